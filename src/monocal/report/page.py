"""The page: sections of words, diagrams and tables in one HTML text that needs nothing else."""

from __future__ import annotations

import base64
import re
from importlib.resources import files
from typing import Any

from ..metrics import METRICS as ALL_METRICS
from ..metrics import PriceOfOrder
from ..metrics.units import count, from_to, in_words, number, percent, small
from . import advice, figures, for_whom, method_figures, words
from .collect import METRICS, Report
from .markup import Markup, el, join
from .parts import bin_table, details, facts, section, shown_as, symbol, table, value

NAMES = {
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "adaptive_ece": "ECE, bins of equal mass",
    "classwise_ece": "class-wise ECE",
    "accuracy": "accuracy",
}
_MOST_EMBEDDED = 4_000_000  # characters of a calibrator file within the page
_WORTH_A_PICTURE = 3  # rows of the most frequent move
_MOST_CLASSES = 8  # of the picture of classes that moved


def page(report: Report) -> str:
    """The whole report."""
    sections = [
        _head(report),
        _wrong(report),
        _metrics(report),
        _margin(report),
        _for_whom(report),
        _methods(report),
        _price(report),
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
    text = f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"
    return re.sub(r"(\d) %", "\\1\u00a0%", text)  # a unit stays with its number


def _asset(name: str) -> Markup:
    return Markup(files("monocal.report").joinpath(name).read_text(encoding="utf-8"))


def _head(report: Report) -> Markup:
    rows = report.audit.all
    order = "kept" if report.audit.preserved else f"kept in {percent(1 - rows.share_inverted)}"
    cards = [
        ("calibration error (ECE)", *_card(report, "ece")),
        ("NLL", *_card(report, "nll")),
        ("accuracy", *_card(report, "accuracy")),
        ("order of the classes", order, f"{count(rows.rows)} rows audited"),
    ]
    return join(
        el(
            "header",
            el("h1", report.title),
            el(
                "p",
                f"{count(report.n_cal)} rows to calibrate on, {count(report.n_classes)} classes. {report.judged_how}",
            ),
        ),
        _verdict(report),
        el(
            "ul",
            [
                el("li", el("span", name, class_="label"), el("b", value), el("small", note))
                for name, value, note in cards
            ],
            class_="cards",
        ),
    )


def _verdict(report: Report) -> Markup:
    """What to think and what to do, first of all."""
    found = report.verdict
    return el(
        "section",
        el("h2", "Verdict", id="verdict", class_="unseen"),
        el("p", found.headline, class_="headline"),
        el("p", found.advice, class_="advice"),
        el("ul", [el("li", detail) for detail in found.details]),
        _button(report),
        class_=f"verdict is-{found.state}",
        aria_labelledby="verdict",
    )


def _button(report: Report) -> Markup | None:
    """Saves the calibrator of the page."""
    if report.saved is None or len(report.saved) > _MOST_EMBEDDED:
        return None
    content = "data:application/json;base64," + base64.b64encode(report.saved.encode()).decode()
    return el(
        "p",
        el("a", "Save calibrator.json", href=content, download="calibrator.json", class_="button"),
        el("small", f"{report.shown}, {len(report.saved) / 1000:,.0f} kB"),
        class_="screen",
    )


def _values(report: Report, name: str) -> tuple[float, float]:
    return report.before.evaluation[name].value, report.after.evaluation[name].value


def _change(report: Report, name: str) -> str:
    old, new = _values(report, name)
    show = shown_as(name)
    more_is_better = ALL_METRICS[name].higher_is_better
    return words.change_in_words(show(old), show(new), new < old, report.changes.get(name), more_is_better)


def _card(report: Report, name: str) -> tuple[str, str]:
    text = from_to(*_values(report, name), shown_as(name)).replace(" % →", " →")
    if name == "ece":
        return text, f"{percent(report.after.floor.median)} if it were perfect"
    return text, _change(report, name)


def _wrong(report: Report) -> Markup:
    panels = []
    for name, side in (("before", report.before), ("after", report.after)):
        panels.append(
            el(
                "figure",
                el("h3", f"{name.capitalize()}: ECE {percent(side.curve.ece)}"),
                figures.reliability(side.curve, name),
                el("figcaption", " ".join(words.what_is_wrong(side.curve)) if name == "after" else None),
                bin_table(side.curve),
            )
        )
    key = el(
        "ul",
        el("li", symbol("dot before out"), "outside the band"),
        el("li", symbol("dot before in"), "inside the band"),
        el("li", symbol("dot before in few"), "fewer than five rows"),
        el(
            "li",
            symbol("band"),
            f"where a perfectly calibrated model stays, {100 * report.before.curve.level:g} % of the time",
        ),
        class_="key",
    )
    return section(
        "What was wrong",
        el("p", words.on_average(report.before.curve, report.before.floor)),
        el("ul", [el("li", sentence) for sentence in words.what_is_wrong(report.before.curve)]),
        el("p", words.against_floor(report.before.floor, report.n_judged)),
        el("div", panels, class_="pair"),
        key,
        el("p", "After calibration: ", words.against_floor(report.after.floor, report.n_judged)),
    )


def _metrics(report: Report) -> Markup:
    rows = []
    for name in METRICS:
        told = _change(report, name)
        change = el("span", told, class_={"better": "good", "worse": "bad"}.get(told.split(",")[0]))
        sides = [value(name, side.evaluation[name]) for side in (report.before, report.after)]
        rows.append((NAMES[name], *sides, change))
    evaluation = report.before.evaluation
    return section(
        "Before and after",
        table("Metrics before and after", ("metric", "before", "after", "change"), rows),
        el(
            "p",
            f"Lower is better, except accuracy. Small figures: {100 * evaluation.level:g} % intervals, those of "
            f"errors from {count(evaluation.n_boot)} draws. Noise makes an error larger; the low end takes it back, and is "
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


def _for_whom(report: Report) -> Markup:
    """Classes and groups that are off, before and after."""
    key = el(
        "ul",
        el("li", symbol("dot before out"), "before"),
        el("li", symbol("dot after out"), "after"),
        el("li", "filled: more than chance explains"),
        class_="key",
    )
    free = report.methods.recommended_free if report.methods is not None else None
    parts = []
    for found in report.for_whom:
        told = el("ul", [el("li", sentence) for sentence in for_whom.in_words(found, free)])
        title = el("h3", f"By {found.before.kind}") if len(report.for_whom) > 1 else None
        figure = el("figure", for_whom.picture(found), key) if found.shown else None
        left_out = len(found.before) - len(found.shown)
        rest = el("p", f"{count(left_out)} more are not drawn.", class_="muted") if left_out else None
        parts.append(join(title, el("div", figure, el("div", told, rest), class_="pair")))
    return section("For whom it is calibrated", *parts)


def _methods(report: Report) -> Markup | None:
    comparison = report.methods
    if comparison is None:
        return None
    judged = comparison.judged
    shown = report.shown
    rows = []
    for result in judged:
        found = result.evaluation
        assert found is not None
        if result.audit is None:
            order = "–"
        elif result.audit.preserved:
            order = "kept" if result.keeps_order else "kept here"
        else:
            order = f"changed in {percent(result.audit.all.share_inverted)}"
        rows.append(
            (
                result.name,
                *(value(name, found[name]) for name in ("nll", "ece", "brier", "accuracy")),
                order,
                f"{result.seconds:.2f}\u00a0s" if result.audit is not None else "–",
            )
        )
    names = [result.name for result in judged]
    notes = [el("li", note) for note in advice.notes(comparison)]
    charts: list[Markup] = []
    if shown in names and len(names) > 1:
        drawn = (method_figures.differences(comparison, shown), method_figures.errors(comparison, shown))
        charts = [el("figure", figure) for figure in drawn]
    return section(
        "Methods compared",
        el("p", advice.recommendation(comparison)),
        el(
            "p",
            "Shaded: methods that keep the order and are indistinguishable from the best of them. Differences are paired by row: "
            "what is hard for one method is hard for the other, so these intervals decide, not whether those of the table "
            "overlap.",
            class_="muted",
        )
        if charts
        else None,
        el("div", charts, class_="pair") if charts else None,
        table(
            "Methods compared",
            ("method", "NLL", "ECE", "Brier", "accuracy", "order", "fit"),
            rows,
            names.index(shown) if shown in names else None,
        ),
        el("ul", notes, class_="muted") if notes else None,
    )


def _price(report: Report) -> Markup | None:
    """What keeping the order costs, and which classes are concerned."""
    found = report.methods.price if report.methods is not None else None
    if found is None:
        return None
    free, price = found
    best = report.methods.best(keeping=True) if report.methods is not None else None
    assert best is not None
    assert report.methods is not None
    others = sum(1 for one in report.methods.judged if not one.keeps_order)
    kind = "which may change it"
    if others > 1:
        kind = f"the best of {in_words(others)} that may change it, for which the interval allows"
    told = [el("p", f"{price} Compared are {best.name}, the best that keeps the order, and {free}, {kind}.")]
    if not price.moved or price.moves[0].rows < _WORTH_A_PICTURE:
        return section("Price of order", *told)
    names = report.class_names or tuple(f"class {c}" for c in range(report.n_classes))
    return section("Price of order", *told, _moves(price, names, free))


def _moves(price: PriceOfOrder, names: tuple[str, ...], free: str) -> Markup:
    listed = price.moves[:_MOST_CLASSES]
    rows = [
        (f"{names[m.before]} → {names[m.after]}", count(m.rows), count(m.right_before), count(m.right_after))
        for m in listed
    ]
    classes: list[int] = []
    drawn = []
    for move in price.moves:  # the most frequent first, as long as the picture has room
        new = [c for c in (move.before, move.after) if c not in classes]
        if len(classes) + len(new) <= _MOST_CLASSES:
            classes += new
            drawn.append(move)
    left_out = len(price.moves) - len(listed)
    rest = f" The {count(left_out)} rarest moves are left out of the table." if left_out else ""
    key = el(
        "ul",
        el("li", symbol("cell gain"), "more right than before"),
        el("li", symbol("cell loss"), "fewer right than before"),
        el("li", symbol("cell even"), "as many"),
        class_="key",
    )
    return join(
        el(
            "div",
            el("figure", method_figures.moves(drawn, names), key),
            el(
                "div",
                table(
                    "Top classes that move",
                    ("top class with the order kept → given up", "rows", "right before", "right after"),
                    rows,
                ),
                el("p", f"With {free} instead of the order kept.{rest}", class_="muted"),
            ),
            class_="pair",
        )
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
            count(part.rows),
            count(part.rows_inverted),
            count(part.inverted_pairs),
            count(part.top1_changed),
            count(part.ties_broken),
            count(part.ties_made),
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
    return section("Order of the classes", el("p", " ".join(told)), table("Changes of the order", head, rows))


def _certificate(report: Report) -> Markup | None:
    solution = report.solution
    if solution is None:
        return None
    known = {
        "largest violation of the optimality conditions": small(solution.kkt),
        "distance from the optimum at most": small(solution.duality_gap),
        "objective": number(solution.objective),
        "iterations": count(solution.n_iter),
    }
    shrinkage = getattr(report.calibrator, "shrinkage_", None)
    if shrinkage:
        known["shrinkage towards temperature scaling"] = f"{shrinkage:g}"
    return section(
        "Certificate",
        el("p", words.certificate_in_words(solution, getattr(report.calibrator, "tol", None))),
        facts(known),
    )


def _parameters(report: Report) -> Markup:
    change = el(
        "figure",
        figures.confidence(report.confidence),
        el(
            "figcaption",
            None
            if report.confidence.one_curve
            else "The line is the median of rows alike in confidence; the shade holds the middle 80 % of them.",
        ),
    )
    told = [el("p", words.confidence_in_words(report.confidence))]
    shown = report.parameters
    if shown is None or report.n_classes == 2:  # with two classes the one curve is all there is
        if shown is not None and shown.constant_from == 1 and not shown.varies:
            told += [el("p", sentence) for sentence in words.parameters_in_words(shown)]
        inside: list[Any] = []
    else:
        told += [el("p", sentence) for sentence in words.parameters_in_words(shown)]
        inside = _by_rank(report)
    if report.explanation:
        inside.append(details("What each part does", el("pre", el("code", report.explanation), tabindex="0")))
    settings = {name: repr(value) for name, value in report.calibrator.get_params(deep=False).items()}
    return section(
        "What it does",
        el("div", change, el("div", told), class_="pair"),
        *inside,
        details("Settings of the calibrator", facts(settings)),
    )


def _by_rank(report: Report) -> list[Any]:
    """Weights and biases by rank, and what they depend on; only what there is to see."""
    shown = report.parameters
    assert shown is not None
    children: list[Any] = []
    if shown.constant_from > 1 or shown.varies:
        drawn = [el("figure", figures.by_rank(shown, which)) for which in ("weight", "bias")]
        children += [el("h3", "Correction by rank"), el("div", drawn, class_="pair")]
        if shown.varies:
            children.append(
                el(
                    "p",
                    "Lines are means over the calibration rows; the shade holds the middle 80 % of them.",
                    class_="muted",
                )
            )
    pieces = [
        (
            f"{first:,}" if first == last else f"{first:,} to {last:,}",
            number(weight),
            number(bias),
        )
        for first, last, weight, bias in shown.pieces()
    ]
    if len(pieces) > 1 or shown.varies:
        head = ("rank from the top", "weight", "bias")
        children.append(
            details("Weights and biases as a table", table("Weights and biases by rank", head, pieces))
        )
    for curve in report.effects:
        drawn = [
            el("figure", figures.effect(curve, which)) for which in ("weight", "bias") if curve.varies(which)
        ]
        name = curve.statistic.replace("_", " ")
        if drawn:
            children += [
                el("h3", f"Correction of the top ranks against the {name}"),
                el("div", drawn, class_="pair"),
            ]
    return children


def _load(report: Report) -> Markup:
    name = type(report.calibrator).__name__
    kind = report.kind
    code = (
        "import monocal as mc\n\n"
        'cal = mc.load("calibrator.json")\n'
        f"probabilities = cal.predict_proba({kind})   # ({kind} of shape (n, {report.n_classes}))\n"
    )
    again = f'cal = mc.{name}(input="{kind}").fit({kind}, labels)\nmc.save(cal, "calibrator.json", data=({kind}, labels))\n'
    return section(
        "How to load it",
        el("p", "The button in the verdict saves the calibrator of this page.", class_="screen")
        if report.saved is not None and len(report.saved) <= _MOST_EMBEDDED
        else None,
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
