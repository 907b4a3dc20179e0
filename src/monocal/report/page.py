"""The page: one jinja2 template, the sentences, tables of texts, and displays as SVG; it needs nothing else."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from ..errors import MissingExtraError, require
from ..metrics import METRICS as ALL_METRICS
from ..metrics import Estimate
from ..metrics.units import count, decimals, from_to, number, percent, small
from ..plots import (
    CalibrationCurve,
    GroupDisplay,
    MarginDisplay,
    RankParametersDisplay,
    ReliabilityDisplay,
    rank_parameters,
)
from ..plots.svg import to_svg
from . import sentences as say
from .collect import METRICS, METRICS_OF_TWO, Report
from .sentences import UNCALIBRATED

_MOST_EMBEDDED = 4_000_000  # characters of a calibrator file within the page
_MOST_GROUPS = 12
_NAMES = {
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "positive_ece": "ECE of P(class 1)",
    "positive_brier": "Brier score of P(class 1)",
    "adaptive_ece": "ECE, bins of equal mass",
    "classwise_ece": "class-wise ECE",
    "accuracy": "accuracy",
}


def page(report: Report) -> str:
    """The whole report."""
    two, methods = report.n_classes == 2, report.methods
    vetoed = methods is not None and methods.asked is None and methods.recommended == UNCALIBRATED
    return render(
        report,
        intro=f"{count(report.n_cal)} rows to calibrate on, {count(report.n_classes)} classes. {report.judged_how}",
        cards=_cards(report, two),
        picture=_reliability(report, two),
        about=_about(report, two),
        caution="No calibrator is recommended here. This is the one that was judged:" if vetoed else "",
        file=file_to_save(report.saved, report.shown),
        code=_code(report),
        sections=[part for make in _SECTIONS if (part := make(report, two))],
    )


def render(report: Any, *, open_first: bool = False, **parts: Any) -> str:
    """The template filled with the parts of a report; ``open_first``: its first section is unfolded."""
    jinja2 = require("jinja2", "cli")
    loader = jinja2.PackageLoader("monocal.report", ".")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    # A unit stays with its number.
    environment.filters["units"] = lambda text: str(text).replace(" %", "\u00a0%")
    template = environment.get_template("page.html")
    text: str = template.render(report=report, verdict=report.verdict, open_first=open_first, **parts)
    return text


def svg(display: Any, name: str, **options: Any) -> Any:
    """The display on the page; without matplotlib, how to install it."""
    from markupsafe import Markup

    try:
        return Markup(to_svg(display, name, **options))
    except MissingExtraError as error:
        return f"{name} is left out. {error}"


def file_to_save(saved: str | None, shown: str) -> dict[str, str] | None:
    """The calibrator of the page, to save."""
    if saved is None or len(saved) > _MOST_EMBEDDED:
        return None
    content = base64.b64encode(saved.encode()).decode()
    return {"content": content, "note": f"{shown}, {len(saved) / 1000:,.0f} kB"}


def _code(report: Report) -> str:
    kind, name = report.kind, type(report.calibrator).__name__
    context = ", context=groups" if report.context else ""
    arguments = "" if kind == "logits" else f'input="{kind}"'
    return (
        "import monocal as mc\n\n"
        f'cal = mc.load("calibrator.json")     # or mc.{name}({arguments}).fit({kind}, labels{context})\n'
        f"probabilities = cal.predict_proba({kind}{context})   # ({kind} of shape (n, {report.n_classes}))"
    )


# First of all.


def _cards(report: Report, two: bool) -> list[tuple[str, str, str]]:
    ece = "positive_ece" if two else "ece"
    rows = report.audit.all
    floor = report.after.floor
    order = "kept" if report.audit.preserved else f"kept in {percent(1 - rows.share_inverted)}"
    ranking = say.ranking(report.calibrator.preserves_ranking, report.context)
    return [
        (_NAMES[ece], _change(report, ece), f"{percent(floor.median)} if it were perfect"),
        ("NLL", _change(report, "nll"), _verdict_on(report, "nll")),
        ("accuracy", _change(report, "accuracy"), _verdict_on(report, "accuracy")),
        ("ranking of the rows (AUC)", ranking, "by the method")
        if two
        else ("order of the classes", order, f"{count(rows.rows)} rows audited"),
    ]


def _change(report: Report, name: str) -> str:
    values = report.before.evaluation[name].value, report.after.evaluation[name].value
    return from_to(*values, say.shown_as(name)).replace(" % →", " →")


def _verdict_on(report: Report, name: str) -> str:
    old, new = report.before.evaluation[name].value, report.after.evaluation[name].value
    show, better = say.shown_as(name), ALL_METRICS[name].higher_is_better
    return say.change_in_words(show(old), show(new), new < old, report.changes.get(name), better)


def _reliability(report: Report, two: bool) -> Any:
    curves = {"before": report.before.curve, "after": report.after.curve}
    display = ReliabilityDisplay(curves, of_classes=two)
    return svg(display, "Reliability diagram before and after calibration", overlay=True)


def _about(report: Report, two: bool) -> list[str]:
    """What the picture shows, in words."""
    return [
        say.on_average(report.before.curve, report.before.floor, two),
        *say.what_is_wrong(report.before.curve, two=two),
        f"After calibration: {say.against_floor(report.after.floor, report.n_judged)}",
    ]


# What folds open: a title, paragraphs, charts, tables (name, head, rows, number of the row that stands out).


def section(
    title: str, texts: Any = (), charts: Any = (), tables: Any = (), code: Any = ()
) -> dict[str, Any]:
    return {"title": title, "texts": texts, "charts": charts, "tables": tables, "code": code}


def _metrics(report: Report, two: bool) -> dict[str, Any]:
    rows = []
    for name in METRICS_OF_TWO if two else METRICS:
        values = [_value(name, side.evaluation[name]) for side in (report.before, report.after)]
        rows.append((_NAMES[name], *values, _verdict_on(report, name)))
    level = report.before.evaluation.level
    note = (
        f"Lower is better, except accuracy. Below each value: its {100 * level:g} % interval. Noise makes an error larger; the "
        "low end takes it back and may be 0. The last column is a paired test for NLL, Brier score and accuracy; of an error it "
        "says only which value is lower."
    )
    estimates = [
        side.evaluation[name] for side in (report.before, report.after) for name in side.evaluation.estimates
    ]
    reasons = dict.fromkeys(f"No interval: {e.reason}." for e in estimates if e.reason and e.low is None)
    tables = [("Metrics", ("metric", "before", "after", "change"), rows, None)]
    for name, side in (("before", report.before), ("after", report.after)):
        tables.append(_bins(side.curve, name, two))
    return section("Metrics and bins, before and after", [note, *reasons], tables=tables)


def _value(name: str, estimate: Estimate) -> tuple[str, str]:
    """A metric, and its interval."""
    show = say.shown_as(name)
    if estimate.low is None or estimate.high is None or not np.isfinite(estimate.value):
        return show(estimate.value), "no interval" if estimate.reason else ""
    return show(estimate.value), f"{show(estimate.low)} – {show(estimate.high)}".replace(" % –", " –")


def _bins(curve: CalibrationCurve, name: str, two: bool) -> tuple[Any, ...]:
    claim, kept = ("P(class 1)", "frequency") if two else ("confidence", "accuracy")
    rows = [
        (
            f"{curve.edges[k]:.2f} to {curve.edges[k + 1]:.2f}",
            count(curve.weight[k]),
            percent(curve.confidence[k]),
            percent(curve.accuracy[k]),
            f"{percent(curve.low[k])} to {percent(curve.high[k])}",
            "outside" if curve.outside[k] else "inside",
        )
        for k in np.flatnonzero(curve.weight > 0)
    ]
    head = (claim, "rows", f"mean {claim}", kept, f"{100 * curve.level:g} % band", "")
    return f"Bins {name} calibration", head, rows, None


def _margin(report: Report, two: bool) -> dict[str, Any] | None:
    if two:
        return None
    sides = {"before": report.before.margin, "after": report.after.margin}
    texts = [
        "The margin is the gap between the two largest logits before calibration: rows that the model is unsure of have a small "
        "one. Above zero the model claims more than it keeps."
    ]
    texts += [
        f"{name.capitalize()}: {' '.join(say.what_is_wrong(c, 'at margins '))}" for name, c in sides.items()
    ]
    chart = svg(
        MarginDisplay(sides), "Calibration error against the margin, before and after", size=(4.6, 3.4)
    )
    return section("Where the error sits", texts, [chart])


def _groups(report: Report, two: bool) -> dict[str, Any] | None:
    texts, charts = [], []
    for sides in report.groups:
        after = sides["after"]
        texts += [f"By {after.kind}. {text}" for text in say.groups_in_words(sides["before"], after)]
        name = f"{'Error of P(class 1)' if two else 'Over-confidence'} by {after.kind}, before and after calibration"
        height = 1.4 + 0.3 * min(len(after), _MOST_GROUPS)
        charts.append(svg(GroupDisplay(sides, _MOST_GROUPS), name, size=(4.6, height)))
    return section("Groups", texts, charts) if texts else None


def _methods(report: Report, two: bool) -> dict[str, Any] | None:
    comparison = report.methods
    if comparison is None:
        return None
    ece = "positive_ece" if two else "ece"
    judged = comparison.judged
    names = [one.name for one in judged]
    rows = []
    for one in judged:
        assert one.evaluation is not None
        evaluation = one.evaluation
        if one.audit is None or two:
            context = report.context and one.name == comparison.default
            order = f"ranking {say.ranking(one.keeps_order, context)}" if two else "–"
        elif one.audit.preserved:
            order = "kept" if one.keeps_order else "kept here"
        else:
            order = f"changed in {percent(one.audit.all.share_inverted)}"
        less = (
            "–"
            if report.shown not in names or one.name == report.shown
            else _less(comparison, one.name, report)
        )
        time = f"{one.seconds:.2f} s" if one.audit is not None else "–"
        cells = (_value(name, evaluation[name]) for name in ("nll", ece, "accuracy"))
        rows.append((one.name, *cells, less, order, time))
    head = ("method", "NLL", "ECE", "accuracy", f"NLL minus that of {report.shown}", "order", "fit")
    texts = [
        say.recommendation(comparison),
        "Differences of NLL are paired by row: what is hard for one method is hard for the other, so these intervals decide, "
        "not whether those of the table overlap.",
        *say.notes(comparison),
    ]
    chosen = names.index(report.shown) if report.shown in names else None
    tables = [("Methods compared", head, rows, chosen)]
    price = comparison.price
    if price is not None and price[1].moves:
        tables.append(_moves(report, *price))
    return section("Methods compared", texts, tables=tables)


def _less(comparison: Any, name: str, report: Report) -> tuple[str, str]:
    d = comparison.difference(name, report.shown)
    if not np.isfinite([d.low, d.high]).all():
        return number(d.mean), ""
    digits = max(4, decimals(d.high - d.mean, d.mean))
    return number(d.mean, digits), f"{number(d.low, digits)} – {number(d.high, digits)}"


def _moves(report: Report, free: str, price: Any) -> tuple[Any, ...]:
    names = report.class_names
    rows = [
        (f"{names[m.before]} → {names[m.after]}", count(m.rows), count(m.right_before), count(m.right_after))
        for m in price.moves[:8]
    ]
    best = report.methods and report.methods.best(keeping=True)
    head = (f"top class with {best and best.name} → with {free}", "rows", "right before", "right after")
    return "Top classes that move", head, rows, None


def _calibrator(report: Report, two: bool) -> dict[str, Any]:
    calibrator = report.calibrator
    texts = [say.confidence_in_words(report.confidence, two)]
    charts, tables, code = [], [], []
    if not two and getattr(calibrator, "rank_map_", None) is not None and not report.context:
        parameters = rank_parameters(calibrator, report.values)
        texts += say.parameters_in_words(parameters)
        if parameters.constant_from > 1 or parameters.varies:
            charts.append(
                svg(
                    RankParametersDisplay(parameters),
                    "Weight and bias by rank, the top rank first",
                    stacked=True,
                )
            )
    if not two or report.calibrator.preserves_order:
        texts.append(" ".join(say.order_in_words(report.audit, calibrator.preserves_order)))
    if report.solution is not None:
        texts.append(say.certificate_in_words(report.solution, getattr(calibrator, "tol", None)))
        facts = [
            ("distance from the optimum at most", small(report.solution.duality_gap)),
            ("objective", number(report.solution.objective)),
            ("iterations", count(report.solution.n_iter)),
        ]
        if getattr(calibrator, "shrinkage_", None):
            facts.append(("shrinkage towards temperature scaling", f"{calibrator.shrinkage_:g}"))
        tables.append(("Certificate", ("certificate", ""), facts, None))
    tables.append(settings(calibrator))
    if report.explanation:
        code.append(report.explanation)
    return section("What the calibrator does", texts, charts, tables, code)


def settings(calibrator: Any) -> tuple[Any, ...]:
    """The parameters of a calibrator, as a table."""
    rows = [(name, repr(value)) for name, value in calibrator.get_params(deep=False).items()]
    return "Settings", ("setting", "value"), rows, None


def origin(report: Any, facts: list[tuple[str, str]], *tables: tuple[Any, ...]) -> dict[str, Any]:
    """The section on data and versions."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    facts = [*facts, ("made", report.created), ("versions", versions)]
    return section("Where this comes from", report.notes, tables=[*tables, ("Origin", ("", ""), facts, None)])


def _origin(report: Report, two: bool) -> dict[str, Any]:
    mark = report.fingerprint
    shape = " × ".join(f"{n:,}" for n in mark["shape"])
    size = f"{shape}, {mark['dtype']} {report.kind}"
    facts = [("data", report.data_name), ("calibration rows × classes", size)]
    return origin(report, [*facts, ("fingerprint (SHA-256)", mark["sha256"])])


_SECTIONS = (_metrics, _margin, _groups, _methods, _calibrator, _origin)
