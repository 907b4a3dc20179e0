"""Numbers in words: what was wrong, what calibration did about it, and how sure that is.

"Over-confident by 8.1 points between 0.67 and 0.93" is said of bins whose accuracy leaves the band of perfect calibration, and of
no others: what chance alone could do is not called an error.
"""

from __future__ import annotations

import numpy as np

from ..metrics import Floor, OrderAudit
from ..metrics.paired import Difference
from ..metrics.units import count, counted, number, percent, points, small
from ..plots import CalibrationCurve, RankParameters, Stretch
from ..solver import Solution
from .confidence import ConfidenceChange

_MOST_STRETCHES = 4


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
    rows = f"{count(stretch.weight)} sample{'' if stretch.weight == 1 else 's'}"
    return f"{direction(stretch.gap)} by {points(stretch.gap)} {where} ({rows}, {share} of all)"


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


def on_average(curve: CalibrationCurve, floor: Floor) -> str:
    """It claims 92.30 % on average and is right in 87.80 % of the cases: over-confident by 4.5 points."""
    gap = curve.mean_confidence - curve.mean_accuracy
    claim = f"It claims {percent(curve.mean_confidence)} on average and is right in {percent(curve.mean_accuracy)} of the cases"
    if abs(gap) < 5e-4:
        return f"{claim}."
    return f"{claim}: {direction(gap)} by {points(gap)}{'' if floor.more_than_chance else ', which chance explains'}."


def against_floor(floor: Floor, rows: float) -> str:
    """What the ECE means on this many rows."""
    assert floor.observed is not None
    span = f" ({100 * floor.level:g} % of the time at most {percent(floor.high)})"
    told = (
        f"A perfectly calibrated model would show an ECE of {percent(floor.median)} on rows like these{span}"
    )
    if floor.more_than_chance:
        return f"{told}, so {percent(floor.observed)} is more than chance."
    return f"{told}, so {percent(floor.observed)} is, on {count(rows)} rows, indistinguishable from perfect calibration."


def change_in_words(
    old: str, new: str, lower: bool, difference: Difference | None, more_is_better: bool
) -> str:
    """Verdict on a change, of values as they are shown: better, worse, or which is lower where there is no test."""
    if difference is None:
        return "unchanged" if old == new else "lower" if lower else "higher"
    if difference.mean == 0:
        return "unchanged"
    if not difference.decided:
        return "no clear difference"
    verdict = "better" if lower != more_is_better else "worse"
    return f"{verdict}, by less than is shown" if old == new else verdict


def order_in_words(audit: OrderAudit, guaranteed: bool) -> list[str]:
    """What happened to the order of the classes."""
    rows = audit.all
    if audit.preserved:
        told = [f"In none of the {count(rows.rows)} rows did two classes change places."]
    else:
        broken = f", and {counted(rows.ties_broken, 'tie')} broken" if rows.ties_broken else ""
        told = [
            f"In {count(rows.rows_inverted)} of {count(rows.rows)} rows ({percent(rows.share_inverted)}) at least two classes "
            f"changed places: {counted(rows.inverted_pairs, 'pair')}{broken}."
        ]
    if rows.top1_changed:
        told.append(
            f"The predicted class changed in {counted(rows.top1_changed, 'row')} ({percent(rows.share_top1_changed)})."
        )
    else:
        told.append("The predicted class is the same in every row.")
    if rows.ties_made:
        told.append(f"Rounding made {counted(rows.ties_made, 'pair')} of classes equal.")
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


def parameters_in_words(parameters: RankParameters) -> list[str]:
    """What the weights and biases are: one temperature, steps by rank, and whether they depend on the sample."""
    p = parameters
    if not p.varies and p.constant_from == 1:
        return [f"It is temperature scaling: every logit is divided by {number(1 / p.weight[0])}."]
    told = []
    if p.constant_from == 1:
        told.append("All ranks share one weight.")
    else:
        jumps = len(p.pieces()) - 1
        where = "The lowest rank has a weight and bias of its own"
        if p.constant_from < p.n_classes:
            where = f"Counted from the top, ranks {count(p.constant_from)} to {count(p.n_classes)} share one weight and bias"
        told.append(f"{where}; above that, the correction steps up at {counted(jumps, 'rank')}.")
    if p.varies:
        assert p.weight_range is not None
        low, high = (number(float(end), 2) for end in p.weight_range[:, 0])
        told.append(
            f"It depends on the sample: the weight of the top class lies between {low} and {high} in the middle 80 % of the rows."
            if low != high
            else "The biases depend on the sample."
        )
    elif p.weight_range is not None:
        told.append("It could depend on the sample, but on these data it does not.")
    return told


def confidence_in_words(change: ConfidenceChange) -> str:
    """A claim of 99 % becomes 93 %, one of 90 % becomes 82 %."""
    at = np.unique(np.quantile(np.arange(len(change.x)), [0.1, 0.5, 0.9], method="nearest"))[::-1]
    pairs = dict.fromkeys((_whole(change.x[k]), _whole(change.middle[k])) for k in at)
    if all(old == new for old, new in pairs):
        return "It leaves the confidence as it is, to the nearest per cent."
    told = [f"{'A claim' if i == 0 else 'one'} of {old} becomes {new}" for i, (old, new) in enumerate(pairs)]
    return ", ".join(told) + "."


def _whole(share: float) -> str:
    """93 %; 99.4 % near the end."""
    decimals = 0 if 0.01 <= share <= 0.985 else 1
    return f"{100 * share:.{decimals}f} %"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
