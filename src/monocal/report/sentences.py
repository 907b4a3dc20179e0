"""What the figures mean: the verdict of a page and the advice of a comparison, in plain sentences.

Each says what its numbers show and no more: what chance explains is not called an error, and a difference is not called clear
unless its interval excludes zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metrics import Floor
from ..metrics.differences import Difference
from ..metrics.units import counted, from_to, number, percent, points, with_interval
from ..plots import CalibrationCurve
from .comparison import UNCALIBRATED, MethodComparison
from .trial import FOLDS

if TYPE_CHECKING:
    from .collect import LabelReport, Report

_LITTLE = 0.01  # ECE below which an error is called little
_SHARP = 0.03  # ECE that chance may explain, up to which rows are many enough to speak of trust
_ENOUGH = 200  # rows, below which nothing is called trustworthy
_MATTERS = 0.002  # NLL
_MOST_STRETCHES = 4
_IMPOSSIBLE = "gives a label no probability at all"
# Before the advice, where the probabilities are fine, or there are too few rows to say.
_WITHOUT_NEED = {
    "good": "No calibration is needed. If you want one: ",
    "few": "More rows would tell whether calibration helps. Until then: ",
}


@dataclass(frozen=True)
class Verdict:
    """What the page says first.

    Attributes
    ----------
    state : {"good", "fair", "bad", "few"}
        Of the probabilities as they are; "few": too few rows to say.
    headline, advice : str
    details : tuple of str
    """

    state: str
    headline: str
    advice: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.headline, self.advice, *self.details))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "details": list(self.details)}


def verdict(report: Report) -> Verdict:
    """Whether the probabilities can be trusted, what to do, and what calibration did."""
    two, before, methods = report.cal.n_classes == 2, report.before, report.methods
    state, headline = trust(before.curve, before.floor, report.changes["nll"], two)
    if math.isinf(before.evaluation["nll"].value):
        state, headline = "bad", f"Not trustworthy as it is: it {_IMPOSSIBLE}."
    off = [one for one in report.groups if one["before"].off.any() and len(one["before"]) > 1]
    if off and state in ("good", "fair") and not before.floor.more_than_chance:
        state, headline = "fair", f"Trustworthy on average, but {_lower(off[-1]['before'].verdict)}"
    details = [outcome(report)]
    for sides in off:
        if sides["before"].kind == "group":
            details.append(
                f"Before calibration: {sides['before'].verdict} After: {_lower(sides['after'].verdict)}"
            )
    if methods is not None:
        if methods.differ:
            details.append(
                "The groups differ after it beyond chance: fit it with these groups as its context=."
            )
        details.append(unfinished(methods))
        details += [price(methods)] if methods.recommended_free is not None else []
    if report.shift is not None and report.shift.shifted:
        details.append(report.shift.sentence(report.class_names))
    return Verdict(state, headline, _advice_on(report, state), tuple(filter(None, details)))


def label_verdict(report: LabelReport) -> Verdict:
    """The same of many labels."""
    before, after = report.before, report.after
    state, headline, advice = "bad", before.verdict, f"Use {report.shown}."
    if not before.off:
        state = "good" if min(before.rows) >= _ENOUGH else "few"
        headline = headline if state == "good" else f"Too few rows to say: {_lower(headline)}"
    elif len(after.off) >= len(before.off):
        advice = f"{report.shown} does not help here."
    nll = from_to(before.macro["nll"], after.macro["nll"], number)
    details = f"NLL, mean over labels: {nll}.", "The order of the rows is kept within every label."
    return Verdict(state, headline, f"{_qualified(state, advice)} After it, {_lower(after.verdict)}", details)


def how_judged(rows: int, fitted: bool, tested: bool) -> str:
    """On which rows the figures are."""
    n, given = f"{rows:,}", "The calibrator came fitted"
    if tested:
        begin = f"{given};" if fitted else "Fitted on the calibration set;"
        end = "" if fitted else ", which the fit has not seen"
        return f"{begin} all figures are of the {n} rows of the test set{end}."
    if fitted:
        return f"{given}: all figures are of the {n} rows given. If it was fitted on them, they flatter it."
    return (
        f"There is no test set, so the figures come from {min(FOLDS, rows)}-fold cross-validation: each of the {n} rows was "
        "judged by a calibrator fitted on the other folds. The calibrator described below was fitted on all rows."
    )


# What is wrong.


def describe_gap(curve: CalibrationCurve, two: bool) -> str:
    """Over-confident by 5.5 points; how far off on average where errors of both signs occur, or cancel."""
    gap = curve.mean_confidence - curve.mean_accuracy
    one_sign = all((stretch.gap > 0) == (gap > 0) for stretch in curve.stretches())
    whose = "P(class 1) is " if two else ""
    if not one_sign or abs(gap) < 0.5 * curve.ece:
        return f"{whose}off by {points(curve.ece)} on average"
    if two:
        return f"{whose}too {'high' if gap > 0 else 'low'} by {points(gap)}"
    return f"{'over' if gap > 0 else 'under'}-confident by {points(gap)}"


def trust(curve: CalibrationCurve, floor: Floor, nll: Difference, two: bool = False) -> tuple[str, str]:
    """Whether the probabilities can be trusted as they are: good, fair, bad or few, and why; the first rule that holds.

    ``nll`` is that after calibration minus that before. With two classes the curve is that of P(class 1).
    """
    n, helps = int(curve.weight.sum()), nll.high < 0 and nll.mean <= -_MATTERS
    rows, gap = counted(n, "row"), describe_gap(curve, two)
    if floor.more_than_chance and (n >= _ENOUGH or helps):
        if curve.ece < _LITTLE:
            return "fair", f"Nearly trustworthy as it is: {gap}, more than chance, but little."
        return "bad", f"Not trustworthy as it is: {gap}."
    if n < _ENOUGH or (floor.high > _SHARP and not helps):
        most = percent(floor.high)
        return (
            "few",
            f"Too few rows to say: on {rows} even a perfectly calibrated model has an ECE of up to {most}.",
        )
    if helps:
        return (
            "fair",
            f"No error of the confidence beyond chance on {rows}, but calibration clearly lowers the NLL.",
        )
    if outside := int(curve.outside.sum()):
        bins = f"{outside} of {counted(int((curve.weight > 0).sum()), 'bin')}"
        return (
            "fair",
            f"Trustworthy on the whole: the ECE is within chance on {rows}, but not the error of {bins}.",
        )
    return "good", f"Trustworthy as it is: on {rows}, no error beyond chance."


def what_is_wrong(curve: CalibrationCurve, what: str, two: bool = False) -> list[str]:
    """Where a predictor leaves the band of perfect calibration, from low to high; ``what`` is on the horizontal axis."""
    stretches = sorted(curve.stretches(), key=lambda s: -s.weight * abs(s.gap))[:_MOST_STRETCHES]
    sentences = []
    for s in sorted(stretches, key=lambda s: s.begin):
        way = "Over-confident" if s.gap > 0 else "Under-confident"
        if two:
            way = "Too high" if s.gap > 0 else "Too low"
        rows = f"{counted(int(s.weight), 'row')}, {100 * s.share:.1f} % of all"
        sentences.append(f"{way} by {points(s.gap)} for a {what} of {s.begin:.3g} to {s.end:.3g} ({rows}).")
    return sentences or [f"No bin leaves the {100 * curve.level:g} % band of perfect calibration."]


def outcome(report: Report) -> str:
    """What calibration did on the rows judged: ECE and NLL before and after, and what that means."""
    before, after, change = report.before, report.after, report.changes["nll"]
    old, new = (side.evaluation["nll"].value for side in (before, after))
    ece = from_to(before.curve.ece, after.curve.ece, percent)
    values = f"With {report.shown} ECE is {ece}, NLL {from_to(old, new, number)}"
    if math.isinf(new):
        return f"{values}: it {_IMPOSSIBLE}."
    if change.low > 0:
        return f"{values}: calibration made the NLL worse on these rows."
    effect = "a better NLL" if math.isinf(old) or change.high < 0 else "no clear change of the NLL"
    chance = "still more than chance" if after.floor.more_than_chance else "then within chance"
    return f"{values}: {effect}, and the ECE is {chance} on {counted(report.n_judged, 'row')}."


def change_in_words(
    old: float, new: float, show: Callable[[float], str], difference: Difference | None, more_is_better: bool
) -> str:
    """Better or worse where a paired test decides; else which is lower, as far as it is shown."""
    if difference is None:
        return "unchanged" if show(old) == show(new) else "lower" if new < old else "higher"
    if old == new:
        return "unchanged"
    if not difference.decided and not np.isinf([old, new]).any():
        return "no clear difference"
    return "better" if (new > old) == more_is_better else "worse"


# Which method to use.


def advice(methods: MethodComparison) -> str:
    """Which method to use, and why."""
    name = methods.recommended
    if name is None:
        return "No method that keeps the order of the classes could be judged."
    if name == UNCALIBRATED and methods.harm:
        return f"No calibration is recommended: {methods.default} {', '.join(methods.harm)}."
    if name == UNCALIBRATED:
        return "No calibration is recommended: every method that keeps the order makes the NLL clearly worse."
    if methods.recommendation is not None:
        return f"Use {name}: {methods.recommendation.reason}"
    if len(methods.candidates(True)) == 1:
        return f"Use {name}: the only method judged that keeps the order."
    return f"Use {name}: of the methods that keep the order, the simplest that is not clearly worse than the best."


def _advice_on(report: Report, state: str) -> str:
    methods = report.methods
    if methods is None:
        return f"Calibrated with {report.shown}; no other method was tried."
    text, name = advice(methods), methods.recommended
    if methods.asked is not None:
        return as_asked(methods)
    if name is None:
        return f"{text} This is {report.shown}."
    if report.shown not in methods:
        return f"The calibrator given is not compared: it may have been fitted on the rows that judge the others. {text}"
    return text if name == UNCALIBRATED else _qualified(state, text)


def _qualified(state: str, text: str) -> str:
    return _WITHOUT_NEED[state] + _lower(text) if state in _WITHOUT_NEED else text


def as_asked(methods: MethodComparison) -> str:
    """How the method that was asked for compares with the one that is recommended."""
    asked, other = methods.asked, methods.recommended
    assert asked is not None
    begin = f"{asked[0].upper()}{asked[1:]}, as asked for"
    if other is None or other == asked:
        return f"{begin}. {advice(methods)}"
    if methods[asked].evaluation is None:
        return f"{begin}: {methods[asked].note}"
    than = "without calibration" if other == UNCALIBRATED else f"with {other}, the method recommended"
    free = "" if methods[asked].keeps_order else "; it may change the order"
    return f"{begin}: {nll_change(methods, asked, other, than)}{free}."


def nll_change(methods: MethodComparison, a: str, b: str, than: str) -> str:
    """The NLL of a against that of b: lower by 0.0123 (95 % interval ...) than with b, which may be chance."""
    own, other, d = methods[a].nll, methods[b].nll, methods.difference(a, b)
    if np.isinf([own, other]).any():
        return f"its NLL is {number(own)}, and {number(other)} {than}"
    if own == other:
        return f"its NLL is the same as {than}"
    low, high = (-d.high, -d.low) if d.mean < 0 else (d.low, d.high)
    size = with_interval(abs(d.mean), low, high, d.level) if math.isfinite(low) else number(abs(d.mean))
    chance = "" if d.decided else ", which may be chance"
    return f"its NLL is {'lower' if d.mean < 0 else 'higher'} by {size} than {than}{chance}"


def gain(methods: MethodComparison) -> str:
    """What the recommended method gains over none."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return ""
    change = nll_change(methods, str(name), UNCALIBRATED, "without calibration")
    return f"I{change[1:]}."


def price(methods: MethodComparison) -> str:
    """What keeping the order costs, and the method to use where it may change."""
    found, best = methods.price, methods.best(keeping=True)
    if found is None or best is None:
        return ""
    order = "ranking of the rows" if methods.two else "order"
    text = found[1].in_words(best.name, found[0], order)
    name, free = methods.recommended, methods.recommended_free
    if free is None or (name in methods and not methods[str(name)].keeps_order):
        return text
    return f"{text} Where the {order} may change, use {free}."


def unfinished(methods: MethodComparison) -> str:
    """Methods without figures."""
    return f"Not judged: {', '.join(methods.unfinished)}." if methods.unfinished else ""


def recommendation(methods: MethodComparison) -> str:
    """Which method to use, why, what it gains, and what the order costs."""
    parts = (advice, gain, price, unfinished)
    return " ".join(text for part in parts if (text := part(methods)))


def _lower(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:]}"
