"""Every sentence of a verdict, a page and a comparison, as a function of numbers.

Each says what its numbers show and no more: what chance explains is not called an error, a difference is not called clear
unless its interval excludes zero, and two numbers that are said to differ are written with the decimals in which they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from ..metrics import Floor, GroupEvaluation, OrderAudit
from ..metrics.differences import NEGLIGIBLE, Difference
from ..metrics.units import (
    about,
    count,
    counted,
    from_to,
    in_words,
    number,
    percent,
    points,
    small,
    with_interval,
)
from ..plots import CalibrationCurve, RankParameters, Stretch

if TYPE_CHECKING:
    from ..solver import Solution
    from .collect import Report
    from .comparison import MethodComparison

_LITTLE = 0.01  # ECE below which an error is called little
_SHARP = 0.03  # ECE that chance may explain, up to which rows are many enough to speak of trust
ENOUGH = 200  # rows, below which nothing is called trustworthy
_MATTERS = 0.002  # NLL
_MOST_ROWS_ASKED = 30  # times the rows there are; beyond, the methods are alike for all that matters
_MOST_STRETCHES = 4
UNCALIBRATED = "uncalibrated"


# Words for numbers.


def direction(gap: float) -> str:
    """Which way a gap (confidence minus accuracy) errs."""
    return "over-confident" if gap > 0 else "under-confident"


def of_class_one(gap: float) -> str:
    """The same of P(class 1)."""
    return f"P(class 1) is too {'high' if gap > 0 else 'low'}"


def apart(a: float, b: float) -> tuple[str, str]:
    """Two shares in per cent, with as many decimals as it takes to tell them apart."""
    for decimals in (2, 3, 4, 6, 9):
        one, other = (f"{100 * value:.{decimals}f} %" for value in (a, b))
        if one != other or a == b:
            return one, other
    return one, other


def lower_or_higher(d: Difference, own: float, other: float, its: str = "its NLL", than: str = "") -> str:
    """Of the NLL ``own``, which differs from ``other`` by ``d``: it is lower by 0.0123 (...); ... which may be chance."""
    than = f" than {than}" if than else ""
    if math.isinf(own) and math.isinf(other):
        return (
            f"{its} is infinite, as {'that' if than else 'it'} was: both give a label no probability at all"
        )
    if math.isinf(other):
        return f"{its} is finite ({number(own)}); the other gives a label no probability at all"
    if math.isinf(own):
        return f"{its} is infinite: it gives a label no probability at all"
    if d.mean == 0 and not d.decided:
        return f"{its} is the same"
    side = f"{its} is {'lower' if d.mean < 0 else 'higher'}"
    if not math.isfinite(d.low):
        return f"{side} by {number(abs(d.mean))}{than}, which may be chance"
    low, high = (-d.high, -d.low) if d.mean < 0 else (d.low, d.high)
    text = f"{side} by {with_interval(abs(d.mean), low, high, d.level)}{than}"
    return text if d.decided else f"{text}, which may be chance"


def change_in_words(
    old: str, new: str, lower: bool, difference: Difference | None, more_is_better: bool
) -> str:
    """A change of values as they are shown: better, worse, or which is lower where there is no test."""
    if difference is None:
        return "unchanged" if old == new else "lower" if lower else "higher"
    infinite = "∞" in old or "∞" in new
    if difference.mean == 0 or (infinite and old == new):
        return "unchanged"
    if not difference.decided and not infinite:
        return "no clear difference"
    better = "better" if lower != more_is_better else "worse"
    return f"{better}, by less than is shown" if old == new else better


# What is wrong.


def stretch_in_words(stretch: Stretch, curve: CalibrationCurve, at: str = "", two: bool = False) -> str:
    """Over-confident by 8.1 points between 0.67 and 0.93 (1,204 rows, 12 % of all)."""
    lowest, highest = curve.edges[0], curve.edges[-1]
    begin, end = stretch.begin, stretch.end
    digits = next(d for d in (2, 3, 4, 6) if round(begin, d) != round(end, d) or d == 6)
    if begin <= lowest and end >= highest:
        where = "everywhere"
    elif end >= highest:
        where = f"{at}above {begin:.{digits}f}"
    elif begin <= lowest:
        where = f"{at}below {end:.{digits}f}"
    else:
        where = f"{at}between {begin:.{digits}f} and {end:.{digits}f}"
    share = f"{100 * stretch.share:.0f} %" if stretch.share >= 0.01 else "under 1 %"
    who = of_class_one(stretch.gap) if two else direction(stretch.gap).capitalize()
    return f"{who} by {points(stretch.gap)} {where} ({counted_rows(stretch.weight)}, {share} of all)."


def counted_rows(weight: float) -> str:
    """1 row; 1,204 rows."""
    return f"{count(weight)} row{'' if weight == 1 else 's'}"


def what_is_wrong(curve: CalibrationCurve, at: str = "", two: bool = False) -> list[str]:
    """Where a predictor leaves the band of perfect calibration, from low to high; ``at`` names what of."""
    stretches = curve.stretches()
    if not stretches:
        share = "frequency of class 1" if two else "accuracy"
        return [f"In no bin does the {share} leave the {100 * curve.level:g} % band of perfect calibration."]
    # The stretches that matter most, in the order of the diagram.
    weightiest = sorted(stretches, key=lambda s: -s.weight * abs(s.gap))[:_MOST_STRETCHES]
    sentences = [stretch_in_words(s, curve, at, two) for s in sorted(weightiest, key=lambda s: s.begin)]
    left_out = len(stretches) - len(sentences)
    if left_out:
        are = "stretches are" if left_out > 1 else "stretch is"
        sentences.append(f"{left_out} smaller {are} left out here; the picture has them all.")
    return sentences


def on_average(curve: CalibrationCurve, floor: Floor, two: bool = False) -> str:
    """It claims 92.30 % on average and is right in 87.80 % of the rows: over-confident by 4.5 points."""
    gap = curve.mean_confidence - curve.mean_accuracy
    claims, keeps = percent(curve.mean_confidence), percent(curve.mean_accuracy)
    claim = f"It claims {claims} on average and is right in {keeps} of the rows"
    if two:
        claim = f"P(class 1) is {claims} on average, and class 1 is the label of {keeps} of the rows"
    if abs(gap) < 5e-4:
        return f"{claim}."
    wrong = f"too {'high' if gap > 0 else 'low'}" if two else direction(gap)
    chance = ""
    if not floor.more_than_chance:
        chance = ", and chance alone may explain its errors"
    elif _within_chance(gap, curve):
        chance = ", which chance alone may explain"
    return f"{claim}: {wrong} by {points(gap)}{chance}."


def _within_chance(gap: float, curve: CalibrationCurve) -> bool:
    """Whether the mean of all outcomes may differ so much from that of calibrated claims."""
    claim = np.nan_to_num(curve.confidence)
    error = math.sqrt(float(curve.sums.weight_squared @ (claim * (1 - claim)))) / float(curve.weight.sum())
    return abs(gap) <= norm.isf((1 - curve.level) / 2) * error


def against_floor(floor: Floor, rows: float) -> str:
    """What the ECE means on this many rows."""
    assert floor.observed is not None
    seen, most = apart(floor.observed, floor.high)
    level = f"{100 * floor.level:g} %"
    if floor.more_than_chance:
        return (
            f"The ECE is {seen}. That of a perfectly calibrated model on rows like these is at most {most} in {level} of the "
            "cases, so this is more than chance."
        )
    return (
        f"The ECE is {seen}. A perfectly calibrated model shows up to {most} on {counted_rows(rows)} like these, so chance "
        "alone may explain it."
    )


def off(curve: CalibrationCurve, two: bool) -> str:
    """Over-confident by 5.5 points; how far off on average where both signs occur beyond chance, or where errors cancel."""
    gap = curve.mean_confidence - curve.mean_accuracy
    signs = {stretch.gap > 0 for stretch in curve.stretches()}
    if signs <= {gap > 0} and abs(gap) >= 0.5 * curve.ece:
        return f"{of_class_one(gap) if two else direction(gap)} by {points(gap)}"
    if len(signs) < 2:
        return f"{'P(class 1) is ' if two else ''}off by {points(curve.ece)} on average"
    if two:
        return f"P(class 1) is off by {points(curve.ece)} on average, too high here and too low there"
    return f"off by {points(curve.ece)} on average, over-confident here and under-confident there"


def trust(curve: CalibrationCurve, floor: Floor, nll: Difference, two: bool = False) -> tuple[str, str]:
    """Whether the probabilities can be trusted as they are: good, fair, bad or few, and why.

    ``nll`` is that after calibration minus that before. With two classes the curve is that of P(class 1).
    """
    n = float(curve.weight.sum())
    rows = counted_rows(n)
    improved = nll.high < 0 and -nll.mean >= _MATTERS
    if n < ENOUGH and not (floor.more_than_chance and improved):
        most = percent(floor.high)
        if floor.more_than_chance:
            return "few", f"Too few rows to say: {rows} hint at an error ({off(curve, two)}), and no more."
        return (
            "few",
            f"Too few rows to say: on {rows} even a perfectly calibrated model shows an ECE of up to {most}.",
        )
    if floor.more_than_chance:
        if curve.ece < _LITTLE:
            return "fair", f"Nearly trustworthy as it is: {off(curve, two)}, more than chance, but little."
        return "bad", f"Not trustworthy as it is: {off(curve, two)}."
    if improved:
        return "fair", (
            f"No error of the confidence beyond chance on {rows}, but calibration clearly lowers the NLL."
        )
    if floor.high > _SHARP:
        return (
            "few",
            f"Too few rows to say: on {rows} an ECE of up to {percent(floor.high)} would be within chance.",
        )
    bins = int(curve.outside.sum())
    if bins:
        many = f"{in_words(bins)} bin{'s' if bins > 1 else ''}"
        leave = "leaves" if bins == 1 else "leave"
        return (
            "fair",
            f"Trustworthy on the whole: the ECE is within chance on {rows}, though {many} {leave} the band.",
        )
    return "good", f"Trustworthy as it is: on {rows}, no error beyond chance."


def outcome(
    name: str,
    ece: tuple[float, float],
    nll: tuple[float, float],
    change: Difference,
    floor: Floor,
    rows: float,
) -> str:
    """What calibration did on the rows judged: ECE and NLL before and after, and what that means."""
    values = f"With {name} ECE is {from_to(*ece, percent)}, NLL {from_to(*nll, number)}"
    if math.isinf(nll[1]):
        return f"{values}: it gives a label no probability at all."
    if change.low > 0:
        return f"{values}: calibration made the NLL worse on these rows."
    better = math.isinf(nll[0]) or change.high < 0
    left = "the ECE is still more than chance"
    if not floor.more_than_chance:
        left = f"the ECE is then within chance on {counted_rows(rows)}"
    effect = "a better NLL" if better else "no clear change of the NLL"
    return f"{values}: {effect}, and {left}."


# Which method to use.


def advice(methods: MethodComparison) -> str:
    """Which method to use, and why."""
    name = methods.recommended
    if name is None:
        return "No method that keeps the order of the classes could be judged."
    tried = methods.candidates(True)
    if name == UNCALIBRATED and methods.harm and methods.default is not None:
        if all(text.startswith("makes ") for text in methods.harm):
            return f"No method is recommended for all groups: {methods.default} {listed(methods.harm)}."
        return f"Leave the model as it is: here {methods.default} {listed(methods.harm)}."
    if name == UNCALIBRATED:
        who = {1: "the one method tried makes", 2: "both methods tried make"}.get(len(tried))
        return f"Leave the model as it is: {who or f'all {in_words(len(tried))} methods tried make'} its NLL clearly worse."
    if methods.recommendation is not None:
        return f"Use {name}: {methods.recommendation.reason}"
    if len(tried) == 1:
        return f"Use {name}: the only method judged that keeps the order."
    others = len(methods.alike(keeping=True)) - 1
    if others:
        return f"Use {name}: indistinguishable from {in_words(others)} other{'s' if others > 1 else ''}, and the simplest."
    beaten = f"{in_words(len(tried) - 1)} others that keep" if len(tried) > 2 else "one other that keeps"
    return f"Use {name}: clearly better than the {beaten} the order."


def as_asked(methods: MethodComparison) -> str:
    """How the method that was asked for compares with the one that is recommended."""
    asked, other = methods.asked, methods.recommended
    assert asked is not None
    begin = f"{asked[0].upper()}{asked[1:]}, as asked for"
    if other is None or other == asked:
        return f"{begin}. {advice(methods)}"
    if methods[asked].evaluation is None:
        return f"{begin}: {methods[asked].note}"
    d, nll = methods.difference(asked, other), (methods[asked].nll, methods[other].nll)
    than = "without calibration" if other == UNCALIBRATED else f"with {other}, the method recommended"
    free = "" if methods[asked].keeps_order else "; it may change the order"
    return f"{begin}: {lower_or_higher(d, *nll, than=than)}{free}."


def gain(methods: MethodComparison) -> str:
    """What the recommended method gains over none."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return ""
    assert name is not None
    nll = methods[name].nll, methods[UNCALIBRATED].nll
    return f"Against no calibration {lower_or_higher(methods.difference(name, UNCALIBRATED), *nll)}."


def lower_still(methods: MethodComparison) -> str:
    """Another method that keeps the order and has a lower NLL beyond chance, corrected for those it is the best of."""
    name, best = methods.recommended, methods.best(keeping=True)
    if name in (None, UNCALIBRATED) or best is None or best.name == name or name not in methods:
        return ""
    assert name is not None
    d = methods.difference(name, best.name)
    many = max(1, len(methods.candidates(True)) - 1)
    wide = d.mean - (d.mean - d.low) * _quantile(methods.level, many)
    if not math.isfinite(wide) or wide <= 0 or d.mean < NEGLIGIBLE:
        return ""
    return (
        f"On these rows {best.name} has a lower NLL, by {number(d.mean)}: more than chance among the {in_words(many + 1)} "
        "methods that keep the order."
    )


def _quantile(level: float, many: int) -> float:
    return float(norm.isf((1 - level) / (2 * many)) / norm.isf((1 - level) / 2))


def rows_to_see_a_change(methods: MethodComparison) -> str:
    """How many rows would tell whether calibration changes anything, where these cannot."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return ""
    assert name is not None
    d = methods.difference(name, UNCALIBRATED)
    needed = d.rows_to_settle
    if needed is None or needed > _MOST_ROWS_ASKED * d.n_rows:
        return ""
    return f"About {about(needed)} rows would tell whether calibration changes anything."


def price(methods: MethodComparison) -> str:
    """What keeping the order costs, and the method to use where it may change."""
    best_free = methods.price
    best = methods.best(keeping=True)
    if best_free is None or best is None:
        return ""
    order = "ranking of the rows" if methods.two else "order"
    text = best_free[1].in_words(best.name, best_free[0], order)
    free = methods.recommended_free
    recommended = methods.recommended or ""
    if free is None or (recommended in methods and not methods[recommended].keeps_order):
        return text
    return f"{text} Where the {order} may change, use {free}."


def unfinished(methods: MethodComparison) -> str:
    """Methods without figures."""
    names = methods.unfinished
    return f"Not judged: {listed(names)}." if names else ""


def notes(methods: MethodComparison) -> list[str]:
    """Why methods have no figures, or what to know of those they have; said once for all that share it."""
    sharing: dict[str, list[str]] = {}
    for one in methods.results:
        if one.note:
            sharing.setdefault(one.note, []).append(one.name)
    return [f"{', '.join(names)}: {note}" for note, names in sharing.items()]


def recommendation(methods: MethodComparison) -> str:
    """Which method to use, why, what it gains, what the order costs, and what more rows would show."""
    parts = (advice, gain, lower_still, rows_to_see_a_change, price, unfinished)
    return " ".join(text for part in parts if (text := part(methods)))


def listed(texts: Sequence[str]) -> str:
    """A, b and c."""
    *first, final = texts
    return f"{', '.join(first)} and {final}" if first else final


# The verdict.


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
    """Of all that was collected."""
    two = report.n_classes == 2
    before, after = report.before, report.after
    state, headline = trust(before.curve, before.floor, report.changes["nll"], two)
    nll = before.evaluation["nll"].value, after.evaluation["nll"].value
    off = [
        one["before"].verdict for one in report.groups if one["before"].off.any() and len(one["before"]) > 1
    ]
    if math.isinf(nll[0]) and state != "bad":
        state, headline = "bad", "Not trustworthy as it is: it gives a label no probability at all."
    elif off and not before.floor.more_than_chance and state != "few":
        state, headline = "fair", f"Trustworthy on average, but {off[-1][0].lower()}{off[-1][1:]}"
    ece = before.curve.ece, after.curve.ece
    details = [outcome(report.shown, ece, nll, report.changes["nll"], after.floor, report.n_judged)]
    named = [one for one in report.groups if one["before"].kind == "group" and one["before"].off.any()]
    details += [" ".join(groups_in_words(one["before"], one["after"])) for one in named]
    methods = report.methods
    if methods is None:
        text = f"Calibrated with {report.shown}; no other method was tried."
    else:
        text = advice(methods)
        if methods.asked is not None:
            text = as_asked(methods)
        elif report.shown not in methods and methods.recommended is not None:
            text = (
                "The calibrator given is not compared: it may have been fitted on the rows that the others are judged on. "
                f"{text}"
            )
        elif methods.recommended is None:
            text = f"No method could be judged in the comparison; this is {report.shown}."
        elif state == "good" and methods.recommended != UNCALIBRATED:
            text = f"No calibration is needed; if one is wanted, u{text[1:]}"
        elif state == "few" and methods.recommended != UNCALIBRATED:
            text = f"If calibration is wanted before there are more rows, u{text[1:]}"
        if methods.differ:
            details.append(
                "The groups differ after it by more than chance: fit it with context=, the groups of the calibration rows."
            )
        details += [lower_still(methods), rows_to_see_a_change(methods), unfinished(methods)]
        if methods.recommended_free is not None:
            details.append(price(methods))
    if report.shift is not None and report.shift.shifted:
        details.append(report.shift.sentence(report.class_names))
    return Verdict(state, headline, text, tuple(detail for detail in details if detail))


# The calibrator.


def ranking(kept: bool, context: bool) -> str:
    """What a method guarantees for the order of the rows; groups that are its context may pass one another."""
    return "not guaranteed" if not kept else "kept within each group" if context else "kept"


def order_in_words(audit: OrderAudit, guaranteed: bool) -> list[str]:
    """What happened to the order of the classes."""
    rows = audit.all
    if audit.preserved:
        sentences = [f"In none of the {counted_rows(rows.rows)} did two classes change places."]
    else:
        broken = f", and {counted(rows.ties_broken, 'tie')} broken" if rows.ties_broken else ""
        sentences = [
            f"In {count(rows.rows_inverted)} of {counted_rows(rows.rows)} ({percent(rows.share_inverted)}) at least two classes "
            f"changed places: {counted(rows.inverted_pairs, 'pair')}{broken}."
        ]
    if rows.top1_changed:
        share = percent(rows.share_top1_changed)
        sentences.append(f"The predicted class changed in {counted_rows(rows.top1_changed)} ({share}).")
    else:
        sentences.append("The predicted class is the same in every row.")
    if rows.ties_made:
        sentences.append(f"Rounding made {counted(rows.ties_made, 'pair')} of classes equal.")
    if guaranteed:
        return [*sentences, "This calibrator guarantees the order for every input."]
    return [*sentences, "This calibrator does not guarantee the order: other rows may change it."]


def certificate_in_words(solution: Solution, tol: float | None) -> str:
    """What the optimality conditions prove."""
    violation = f"the largest violation of the optimality conditions is {small(solution.kkt)}"
    if not solution.converged:
        return f"Not certified: {solution.status}, and {violation}."
    within = "" if tol is None else f" (tolerance {small(tol)})"
    return (
        f"The fit is the global optimum: the problem is convex, and {violation}{within}. No other parameters of this family have "
        f"an objective lower by more than {small(solution.duality_gap)}."
    )


def parameters_in_words(p: RankParameters) -> list[str]:
    """What the weights and biases are: one temperature, steps by rank, and whether they depend on the sample."""
    if not p.varies and p.constant_from == 1:
        return [f"It is temperature scaling: every logit is divided by {number(1 / p.weight[0])}."]
    sentences = ["All ranks share one weight."]
    if p.constant_from > 1:
        steps = counted(len(p.pieces()) - 1, "rank")
        where = "The lowest rank has a weight and bias of its own"
        if p.constant_from < p.n_classes:
            ranks = f"ranks {count(p.constant_from)} to {count(p.n_classes)}"
            where = f"Counted from the top, {ranks} share one weight and bias"
        sentences = [f"{where}; above that, the correction steps up at {steps}."]
    if p.varies:
        assert p.weight_range is not None
        low, high = (number(float(end), 2) for end in p.weight_range[:, 0])
        sentences.append(
            f"It depends on the sample: the weight of the top class lies between {low} and {high} in the middle 80 % of the rows."
            if low != high
            else "The biases depend on the sample."
        )
    elif p.weight_range is not None:
        sentences.append("It could depend on the sample, but on these data it does not.")
    return sentences


def confidence_in_words(medians: Sequence[tuple[float, float]], two: bool = False) -> str:
    """A claim of 99 % becomes 93 %, one of 90 % becomes 82 %: of the median confidences, from low to high.

    Of ``two`` classes P(class 1) is claimed.
    """
    at = dict.fromkeys((len(medians) - 1, len(medians) // 2, 0))
    pairs = {claim(medians[k][0]): claim(medians[k][1]) for k in reversed(at)}  # one for each claim
    if all(old == new for old, new in pairs.items()):
        return f"It leaves {'P(class 1)' if two else 'the confidence'} as it is, to the digits shown."
    texts = [f"{old} becomes {new}" for old, new in reversed(pairs.items())]
    return f"{'P(class 1) of' if two else 'A claim of'} {', one of '.join(texts)}."


def claim(share: float) -> str:
    """93 %; 99.4 % and 99.96 % near the end, so that only what is certain is 100 %."""
    margin = min(share, 1 - share)
    if 0 < margin < 1e-6:
        return "under 0.0001 %" if share < 0.5 else "over 99.9999 %"
    decimals = 0 if margin == 0 or margin >= 0.015 else max(1, math.floor(-math.log10(margin)) - 1)
    return f"{100 * share:.{decimals}f} %"


def groups_in_words(before: GroupEvaluation, after: GroupEvaluation) -> list[str]:
    """Which groups were off before, and which are after."""
    return [f"Before calibration: {before.verdict}", f"After: {after.verdict}"]


def shown_as(name: str) -> Callable[[float], str]:
    """How the values of a metric are written: scores with four decimals, shares in per cent."""
    return number if name in ("nll", "brier", "positive_brier") else percent
