"""The page: sections of words, diagrams and tables in one HTML text that needs nothing else."""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

from . import figures, words
from .collect import METRICS, Report
from .markup import Markup, el, join
from .parts import PLAIN, bin_table, details, facts, section, symbol, table, value

NAMES = {
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "adaptive_ece": "ECE, bins of equal mass",
    "classwise_ece": "class-wise ECE",
    "accuracy": "accuracy",
}
_MOST_EMBEDDED = 4_000_000  # characters of a calibrator file within the page


def page(report: Report) -> str:
    """The whole report."""
    sections = [
        _head(report),
        _wrong(report),
        _metrics(report),
        _margin(report),
        _methods(report),
        _order(report),
        _certificate(report),
        _parameters(report),
        _load(report),
        _provenance(report),
    ]
    # Nothing may be fetched, by whatever mistake.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content=f"monocal {report.versions['monocal']}"),
        el("link", rel="icon", href="data:,"),
        el("title", report.title),
        el("style", _asset("page.css")),
    )
    tip = el("div", id="tip", role="status", hidden="hidden")
    body = el("body", el("main", *sections), tip, el("script", _asset("page.js")))
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _asset(name: str) -> Markup:
    return Markup(files("monocal.report").joinpath(name).read_text(encoding="utf-8"))


def _head(report: Report) -> Markup:
    before, after = report.before, report.after
    sentence = words.headline(before.curve, after.curve, after.floor, report.changes["nll"])
    rows = report.audit.all
    order = "kept" if report.audit.preserved else f"kept in {words.percent(1 - rows.share_inverted)}"
    cards = [
        ("calibration error (ECE)", *_arrow(report, "ece")),
        ("NLL", *_arrow(report, "nll")),
        ("accuracy", *_arrow(report, "accuracy")),
        ("order of the classes", order, f"{words.count(rows.rows)} rows audited"),
    ]
    return join(
        el(
            "header",
            el("h1", report.title),
            el(
                "p",
                f"{words.count(report.n_cal)} rows to calibrate on, {words.count(report.n_classes)} classes, "
                f"calibrated with {type(report.calibrator).__name__}. {report.judged_how}",
            ),
        ),
        el("p", sentence, class_="lead"),
        el(
            "ul",
            [
                el("li", el("span", name, class_="label"), el("b", value), el("small", note))
                for name, value, note in cards
            ],
            class_="cards",
        ),
    )


def _arrow(report: Report, name: str) -> tuple[str, str]:
    old, new = (side.evaluation[name].value for side in (report.before, report.after))
    if name == "accuracy" and old == new:
        return words.percent(new), "unchanged"
    short = f"{old:.3f} → {new:.3f}" if name in PLAIN else f"{100 * old:.2f} → {100 * new:.2f} %"
    if name == "ece":
        return short, f"{words.percent(report.after.floor.median)} if it were perfect"
    return short, words.change_in_words(report.changes[name])


def _wrong(report: Report) -> Markup:
    panels = []
    for name, side in (("before", report.before), ("after", report.after)):
        panels.append(
            el(
                "figure",
                el("h3", f"{name.capitalize()}: ECE {words.percent(side.curve.ece)}"),
                figures.reliability(side.curve, name),
                el("figcaption", " ".join(words.what_is_wrong(side.curve)) if name == "after" else None),
                bin_table(side.curve),
            )
        )
    key = el(
        "ul",
        el("li", symbol("dot before out"), "outside the band"),
        el("li", symbol("dot before in"), "inside the band"),
        el(
            "li",
            symbol("band"),
            f"where a perfectly calibrated model stays, {100 * report.before.curve.level:g} % of the time",
        ),
        class_="key",
    )
    return section(
        "What was wrong",
        el("p", words.on_average(report.before.curve)),
        el("ul", [el("li", sentence) for sentence in words.what_is_wrong(report.before.curve)]),
        el("p", words.against_floor(report.before.floor)),
        el("div", panels, class_="pair"),
        key,
        el("p", "After calibration: ", words.against_floor(report.after.floor)),
    )


def _metrics(report: Report) -> Markup:
    rows = []
    for name in METRICS:
        told = words.change_in_words(report.changes[name])
        change = el("span", told, class_={"better": "good", "worse": "bad"}.get(told))
        sides = [value(name, side.evaluation[name]) for side in (report.before, report.after)]
        rows.append((NAMES[name], *sides, change))
    evaluation = report.before.evaluation
    return section(
        "Before and after",
        table(("metric", "before", "after", "change"), rows),
        el(
            "p",
            f"Less is better, but for the accuracy. Small figures: {100 * evaluation.level:g} % intervals, those of "
            f"errors from {words.count(evaluation.n_boot)} draws. Noise makes an error larger; the low end takes it back, and is "
            "0 where a perfectly calibrated model could show the value. No interval is shown where none would be right. The last "
            "column is a paired test for NLL, Brier score and accuracy; of an error it says only which value is lower.",
            class_="muted",
        ),
    )


def _margin(report: Report) -> Markup:
    key = el(
        "ul",
        el("li", symbol("dot before out"), "before"),
        el("li", symbol("dot after out"), "after"),
        el("li", "filled: more than chance explains"),
        el("li", "shaded: what chance explains"),
        class_="key",
    )
    told = [
        join(
            el("h3", name.capitalize()),
            el("ul", [el("li", sentence) for sentence in words.what_is_wrong(side.margin, "at margins ")]),
        )
        for name, side in (("before", report.before), ("after", report.after))
    ]
    return section(
        "Where the error sits",
        el(
            "p",
            "The margin is the gap between the two largest logits before calibration: samples that the model is unsure of "
            "have a small one. Above zero the model claims more than it keeps.",
        ),
        el(
            "div",
            el("figure", figures.margin(report.before.margin, report.after.margin), key),
            el("div", told),
            class_="pair",
        ),
    )


def _methods(report: Report) -> Markup | None:
    comparison = report.methods
    if comparison is None:
        return None
    judged = comparison.judged
    charts = [
        el(
            "figure",
            figures.estimates(
                [
                    (r.name, r.evaluation[name], r.name == comparison.recommended)
                    for r in judged
                    if r.evaluation
                ],
                NAMES[name],
                name not in PLAIN,
            ),
        )
        for name in ("nll", "ece")
    ]
    rows = []
    for result in judged:
        found = result.evaluation
        assert found is not None
        if result.audit is None:
            order = "–"
        elif result.audit.preserved:
            order = "kept" if result.keeps_order else "kept here"
        else:
            order = f"changed in {words.percent(result.audit.all.share_inverted)}"
        rows.append(
            (
                result.name,
                *(value(name, found[name]) for name in ("nll", "ece", "brier", "accuracy")),
                order,
                f"{result.seconds:.2f} s" if result.audit is not None else "–",
            )
        )
    names = [result.name for result in judged]
    chosen = names.index(comparison.recommended) if comparison.recommended else None
    notes = [el("li", f"{r.name}: {r.note}") for r in comparison.results if r.note]
    return section(
        "Methods compared",
        el("p", words.recommendation(comparison)),
        el("div", charts, class_="pair"),
        table(("method", "NLL", "ECE", "Brier", "accuracy", "order", "fit"), rows, chosen),
        el("ul", notes, class_="muted") if notes else None,
    )


def _order(report: Report) -> Markup:
    audit = report.audit
    parts = (
        ("all rows", audit.all),
        (f"uncertain rows (top confidence below {audit.uncertain_below:g})", audit.uncertain),
    )
    rows = [
        (
            name,
            words.count(part.rows),
            words.count(part.rows_inverted),
            words.count(part.inverted_pairs),
            words.count(part.top1_changed),
            words.count(part.ties_broken),
            words.count(part.ties_made),
        )
        for name, part in parts
    ]
    head = (
        "",
        "rows",
        "rows with an inversion",
        "inverted pairs",
        "top class changed",
        "ties broken",
        "ties made",
    )
    told = words.order_in_words(audit, report.calibrator.preserves_order)
    return section("Order of the classes", el("p", " ".join(told)), table(head, rows))


def _certificate(report: Report) -> Markup | None:
    solution = report.solution
    if solution is None:
        return None
    known = {
        "largest violation of the optimality conditions": words.small(solution.kkt),
        "distance from the optimum at most": words.small(solution.duality_gap),
        "objective": words.number(solution.objective),
        "iterations": words.count(solution.n_iter),
    }
    shrinkage = getattr(report.calibrator, "shrinkage_", None)
    if shrinkage is not None:
        known["shrinkage towards temperature scaling"] = f"{shrinkage:g}"
    return section(
        "Certificate",
        el("p", words.certificate_in_words(solution, getattr(report.calibrator, "tol", None))),
        facts(known),
    )


def _parameters(report: Report) -> Markup:
    children: list[Any] = []
    shown = report.parameters
    if shown is not None:
        children.append(el("p", words.parameters_in_words(shown)))
        if shown.weight_range is not None:
            children.append(
                el(
                    "p",
                    "Weights and biases depend on the sample here: lines are means over the calibration rows, the shaded "
                    "range holds the middle 80 % of them.",
                )
            )
        if shown.constant_from > 1 or shown.weight_range is not None:
            drawn = [el("figure", figures.by_rank(shown, which)) for which in ("weight", "bias")]
            children.append(el("div", drawn, class_="pair"))
        pieces = [
            (
                f"{first:,}" if first == last else f"{first:,} to {last:,}",
                words.number(weight),
                words.number(bias),
            )
            for first, last, weight, bias in shown.pieces()
        ]
        children.append(
            details("Weights and biases as a table", table(("rank from the top", "weight", "bias"), pieces))
        )
    for curve in report.effects:
        drawn = [el("figure", figures.effect(curve, which)) for which in ("weight", "bias")]
        name = curve.statistic.replace("_", " ")
        children += [
            el("h3", f"Correction of the top ranks against the {name}"),
            el("div", drawn, class_="pair"),
        ]
    if report.explanation:
        children.append(
            details("What each part does", el("pre", el("code", report.explanation), tabindex="0"))
        )
    settings = {name: repr(value) for name, value in report.calibrator.get_params(deep=False).items()}
    children.append(details("Settings of the calibrator", facts(settings)))
    return section("Fitted parameters", *children)


def _load(report: Report) -> Markup:
    name = type(report.calibrator).__name__
    kind = report.kind
    code = (
        "import monocal as mc\n\n"
        'cal = mc.load("calibrator.json")\n'
        f"probabilities = cal.predict_proba({kind})   # ({kind} of shape (n, {report.n_classes}))\n"
    )
    again = f'cal = mc.{name}(input="{kind}").fit({kind}, labels)\nmc.save(cal, "calibrator.json", data=({kind}, labels))\n'
    button = None
    if report.saved is not None and len(report.saved) <= _MOST_EMBEDDED:
        content = "data:application/json;base64," + base64.b64encode(report.saved.encode()).decode()
        button = el(
            "p",
            el(
                "a",
                "Save calibrator.json",
                href=content,
                download="calibrator.json",
                class_="button",
            ),
            el("small", f"  the calibrator of this page, {len(report.saved) / 1000:,.0f} kB"),
            class_="screen",
        )
    return section(
        "How to load it",
        button,
        el("pre", el("code", code), tabindex="0"),
        el("p", "To fit and save it again:"),
        el("pre", el("code", again), tabindex="0"),
    )


def _provenance(report: Report) -> Markup:
    mark = report.fingerprint
    shape = " × ".join(f"{n:,}" for n in mark["shape"])
    known = {
        "data": report.data_name,
        "calibration rows × classes": f"{shape}, {mark['dtype']} {report.kind}",
        "fingerprint (SHA-256)": el("code", mark["sha256"]),
        "made": report.created,
        "versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    }
    notes = [el("li", note) for note in report.notes]
    return section("Where this comes from", facts(known), el("ul", notes, class_="muted") if notes else None)
