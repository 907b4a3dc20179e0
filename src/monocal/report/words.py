"""Numbers in words: what was wrong, what calibration did about it, and how sure that is.

"Over-confident by 8.1 points between 0.67 and 0.93" is said of bins whose accuracy leaves the band of perfect calibration, and of
no others: what chance alone could do is not called an error.
"""

from __future__ import annotations

import math

from ..metrics import Comparison, Floor, OrderAudit
from ..plots import CalibrationCurve, RankParameters, Stretch
from ..solver import Solution
from .selection import UNCALIBRATED, MethodComparison

_MOST_STRETCHES = 4


def percent(value: float) -> str:
    """5.50 %"""
    return f"{100 * value:.2f} %" if math.isfinite(value) else number(value)


def number(value: float) -> str:
    """0.3456, or the sign for infinity."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4f}".replace("-", "−")


def count(value: float) -> str:
    """12,345; weights that are not whole keep one decimal."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def small(value: float) -> str:
    """3.2e-07 as 3.2 × 10⁻⁷."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else number(value)
    mantissa, exponent = f"{value:.1e}".split("e")
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return f"{mantissa} × 10{str(int(exponent)).translate(digits)}"


def points(gap: float) -> str:
    """8.1 points; 12 points."""
    size = abs(100 * gap)
    text = f"{size:.0f}" if size >= 9.95 else f"{size:.1f}"
    return f"{text} point{'' if text == '1.0' else 's'}".replace("1.0 point", "1 point")


def direction(gap: float) -> str:
    """Which way a gap (confidence minus accuracy) errs."""
    return "over-confident" if gap > 0 else "under-confident"


def _stretch_in_words(stretch: Stretch, curve: CalibrationCurve, at: str = "") -> str:
    """Over-confident by 8.1 points between 0.67 and 0.93 (1,204 samples, 12 % of all)."""
    lowest, highest = curve.edges[0], curve.edges[-1]
    if stretch.begin <= lowest and stretch.end >= highest:
        where = "everywhere"
    elif stretch.end >= highest:
        where = f"{at}above {stretch.begin:.2f}"
    elif stretch.begin <= lowest:
        where = f"{at}below {stretch.end:.2f}"
    else:
        where = f"{at}between {stretch.begin:.2f} and {stretch.end:.2f}"
    share = f"{100 * stretch.share:.0f} %" if stretch.share >= 0.01 else "under 1 %"
    return f"{direction(stretch.gap)} by {points(stretch.gap)} {where} ({count(stretch.weight)} samples, {share} of all)"


def what_is_wrong(curve: CalibrationCurve, at: str = "") -> list[str]:
    """Sentences on where a predictor leaves the band of perfect calibration, from low to high; ``at`` names what of."""
    found = curve.stretches()
    if not found:
        return [f"In no bin does the accuracy leave the {100 * curve.level:g} % band of perfect calibration."]
    # The stretches that matter most, told in the order of the diagram.
    weightiest = sorted(found, key=lambda s: -s.weight * abs(s.gap))[:_MOST_STRETCHES]
    told = [_sentence(_stretch_in_words(s, curve, at)) for s in sorted(weightiest, key=lambda s: s.begin)]
    left_out = len(found) - len(told)
    if left_out:
        told.append(
            f"{left_out} smaller stretch{'es are' if left_out > 1 else ' is'} left out here; the diagram has them all."
        )
    return told


def on_average(curve: CalibrationCurve) -> str:
    """It claims 92.30 % on average and is right in 87.80 % of the cases: over-confident by 4.5 points."""
    gap = curve.mean_confidence - curve.mean_accuracy
    claim = f"It claims {percent(curve.mean_confidence)} on average and is right in {percent(curve.mean_accuracy)} of the cases"
    return f"{claim}." if abs(gap) < 5e-4 else f"{claim}: {direction(gap)} by {points(gap)}."


def against_floor(floor: Floor) -> str:
    """What the ECE means on this many rows."""
    assert floor.observed is not None
    assert floor.p_value is not None
    told = (
        f"A perfectly calibrated model would show an ECE of {percent(floor.median)} on rows like these "
        f"({100 * floor.level:g} % of the time between {percent(floor.low)} and {percent(floor.high)})"
    )
    if floor.p_value > 1 - floor.level:
        return f"{told}, so {percent(floor.observed)} cannot be told from perfect calibration."
    return f"{told}, so {percent(floor.observed)} is more than chance."


def headline(before: CalibrationCurve, after: CalibrationCurve, floor: Floor, nll: Comparison) -> str:
    """One sentence for the top of the page; ``nll`` compares after (A) with before (B)."""
    assert floor.p_value is not None
    change = f"ECE went from {percent(before.ece)} to {percent(after.ece)}"
    if nll.verdict == "B is better":
        return (
            f"Calibration made the probabilities worse on these rows: NLL rose from {number(nll.b)} to "
            f"{number(nll.a)}. {change}."
        )
    if nll.verdict == "undecided":
        return f"Calibration changed little that these rows can show: {change}."
    if floor.p_value > 1 - floor.level:
        return f"{change}, which cannot be told from perfect calibration on this many rows."
    if after.ece < before.ece:
        return f"{change}; some error is left."
    return f"NLL fell from {number(nll.b)} to {number(nll.a)}, but {change}."


def change_in_words(comparison: Comparison) -> str:
    """Verdict of a paired comparison of after (A) with before (B); which is lower, where there is no test."""
    if comparison.difference == 0:
        return "unchanged"
    if comparison.verdict == "not tested":
        return "lower" if comparison.difference < 0 else "higher"
    return {"A is better": "better", "B is better": "worse", "undecided": "no clear difference"}[
        comparison.verdict
    ]


def order_in_words(audit: OrderAudit, guaranteed: bool) -> list[str]:
    """What happened to the order of the classes."""
    rows = audit.all
    if audit.preserved:
        told = [f"In none of the {count(rows.rows)} rows did two classes change places."]
    else:
        told = [
            f"In {count(rows.rows_inverted)} of {count(rows.rows)} rows ({percent(rows.share_inverted)}) at least two classes "
            f"changed places: {count(rows.inverted_pairs)} pairs, and {count(rows.ties_broken)} ties were broken."
        ]
    if rows.top1_changed:
        told.append(
            f"The predicted class changed in {count(rows.top1_changed)} rows ({percent(rows.share_top1_changed)})."
        )
    else:
        told.append("The predicted class is the same in every row.")
    if rows.ties_made:
        told.append(f"{count(rows.ties_made)} pairs of classes were rounded to equal values.")
    told.append(
        "This calibrator guarantees the order for every input."
        if guaranteed
        else "This calibrator does not guarantee the order: other inputs may fare worse."
    )
    return told


def certificate_in_words(solution: Solution, tol: float | None) -> str:
    """What the optimality conditions prove."""
    if not solution.converged:
        return (
            f"Not certified: {solution.status}. The largest violation of the optimality conditions is "
            f"{small(solution.kkt)}."
        )
    within = "" if tol is None else f" (tolerance {small(tol)})"
    return (
        "The fit is the global optimum: the problem is convex, and the largest violation of its optimality conditions is "
        f"{small(solution.kkt)}{within}. No other parameters of this family have an objective lower by more than "
        f"{small(solution.duality_gap)}."
    )


def parameters_in_words(parameters: RankParameters) -> str:
    """Where weights and biases stop changing."""
    if parameters.constant_from == 1:
        told = "All ranks share one weight: this is temperature scaling."
        if parameters.weight_range is None:
            told += f" The temperature is {number(1 / parameters.weight[0])}."
        return told
    jumps = len(parameters.pieces()) - 1
    return (
        f"Counted from the top, ranks {count(parameters.constant_from)} to {count(parameters.n_classes)} share one weight and "
        f"bias; above them the correction grows at {count(jumps)} rank{'s' if jumps > 1 else ''}."
    )


def recommendation(methods: MethodComparison) -> str:
    """Which method to use, and why."""
    name = methods.recommended
    if name is None:
        return "No method that keeps the order of the classes could be judged."
    best = methods[name]
    assert best.evaluation is not None
    told = [
        f"Use {name}: of the methods that guarantee the order of the classes it has the lowest NLL, "
        f"{number(best.evaluation['nll'].value)}."
    ]
    for other in (UNCALIBRATED, "temperature scaling"):
        if other != name and any(result.name == other for result in methods.judged):
            told.append(_difference(methods, name, other))
    if methods.price is not None:
        free, price = methods.price
        told.append(f"{price}")
        if price.costs:
            told.append(f"Where the order may change, use {free} (both were chosen by these rows).")
    return " ".join(told)


def _difference(methods: MethodComparison, name: str, other: str) -> str:
    d = methods.difference(name, other)
    if not math.isfinite(d.low):
        return f"Against {other} the mean is decided by labels of probability zero."
    span = f"{number(d.mean)}, {100 * methods.level:g} % interval {number(d.low)} to {number(d.high)}"
    return f"The difference from {other} is {'clear' if d.decided else 'not clear'} ({span})."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
