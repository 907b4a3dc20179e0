"""Sections of the page about the error: what was wrong, by how much it changed, where it sits, and for whom."""

from __future__ import annotations

from ..metrics import METRICS as ALL_METRICS
from ..metrics.units import count, percent
from . import figures, for_whom, words
from .contents import METRICS, Report
from .markup import Markup, el, join
from .parts import bin_table, section, shown_as, symbol, table, value

_NAMES = {
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "adaptive_ece": "ECE, bins of equal mass",
    "classwise_ece": "class-wise ECE",
    "accuracy": "accuracy",
}


def before_and_after(report: Report, name: str) -> tuple[float, float]:
    """A metric before and after."""
    return report.before.evaluation[name].value, report.after.evaluation[name].value


def told_change(report: Report, name: str) -> str:
    """What became of a metric, in words."""
    old, new = before_and_after(report, name)
    show = shown_as(name)
    more_is_better = ALL_METRICS[name].higher_is_better
    return words.change_in_words(show(old), show(new), new < old, report.changes.get(name), more_is_better)


def wrong(report: Report) -> Markup:
    """What was wrong, and what is left of it."""
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


def metrics(report: Report) -> Markup:
    """All metrics before and after, in a table."""
    rows = []
    for name in METRICS:
        told = told_change(report, name)
        change = el("span", told, class_={"better": "good", "worse": "bad"}.get(told.split(",")[0]))
        sides = [value(name, side.evaluation[name]) for side in (report.before, report.after)]
        rows.append((_NAMES[name], *sides, change))
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


def margin(report: Report) -> Markup:
    """Where the error sits, by the margin of the rows."""
    key = _key("filled: more than chance explains", "shaded: what chance explains")
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


def groups(report: Report) -> Markup:
    """Classes and groups that are off, before and after."""
    key = _key("filled: more than chance explains")
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


def _key(*signs: str) -> Markup:
    sides = [el("li", symbol(f"dot {side} out"), side) for side in ("before", "after")]
    return el("ul", sides, [el("li", sign) for sign in signs], class_="key")
