"""Numbers in words: what was wrong, what calibration did about it, and how sure that is.

"Over-confident by 8.1 points between 0.67 and 0.93" is said of bins whose accuracy leaves the band of perfect calibration, and of
no others: what chance alone could do is not called an error.
"""

from __future__ import annotations

import math

from ..metrics import Comparison, Floor, OrderAudit
from ..metrics.units import about, count, in_words, number, percent, points, small, with_interval
from ..plots import CalibrationCurve, RankParameters, Stretch
from ..solver import Solution
from .selection import UNCALIBRATED, MethodComparison

_MOST_STRETCHES = 4
_MOST_ROWS_ASKED = 1000  # times the rows there are; beyond, the methods are alike for all that matters


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
    """Which method to use, why, what it gains, what the order costs, and what more rows would show."""
    told = [advice(methods), gain(methods), more_rows(methods), *price(methods), chosen_on(methods)]
    return " ".join(sentence for sentence in told if sentence)


def advice(methods: MethodComparison) -> str:
    """Ship temperature scaling: within noise of four others that keep the order, and the simplest."""
    name = methods.recommended
    if name is None:
        return "No method that keeps the order of the classes could be judged."
    best = methods.best(keeping=True)
    assert best is not None
    tried = len([one for one in methods.judged if one.keeps_order and one.name != UNCALIBRATED])
    if name == UNCALIBRATED:
        who = {1: "the one method tried makes", 2: "both methods tried make"}.get(tried)
        return (
            f"Ship the model as it is: {who or f'all {in_words(tried)} methods tried make'} it clearly worse."
        )
    if tried == 1:
        return f"Ship {name}: the only method judged that keeps the order."
    others = len(methods.alike(keeping=True)) - 1
    if others:
        return f"Ship {name}: within noise of {in_words(others)} other{'s' if others > 1 else ''}, and the simplest."
    beaten = f"{in_words(tried - 1)} others that keep" if tried > 2 else "one other that keeps"
    return f"Ship {name}: clearly better than the {beaten} the order."


def gain(methods: MethodComparison) -> str:
    """What the recommended method gains over none."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return ""
    assert name is not None
    return f"Against no calibration {lower_or_higher(methods, name, UNCALIBRATED)}."


def lower_or_higher(methods: MethodComparison, a: str, b: str) -> str:
    """NLL of a against that of b: it is lower by 0.0123 (95 % interval ...); ... which may be chance."""
    d = methods.difference(a, b)
    if not math.isfinite(d.low):
        if math.isinf(methods[a].nll) and math.isinf(methods[b].nll):
            return "NLL says nothing: both give a label no probability at all"
        return f"its NLL is {'∞' if d.mean > 0 else 'finite'}: {b if d.mean < 0 else 'it'} gives a label no probability at all"
    if d.mean == 0 and not d.decided:
        return "its NLL is the same"
    low, high = (-d.high, -d.low) if d.mean < 0 else (d.low, d.high)
    by = with_interval(abs(d.mean), low, high, d.level)
    side = "lower" if d.mean < 0 else "higher"
    return f"its NLL is {side} by {by}{'' if d.decided else ', which may be chance'}"


def more_rows(methods: MethodComparison) -> str:
    """How many rows would settle what these cannot: whether calibration helps, else which of the best two is better."""
    name, best = methods.recommended, methods.best(keeping=True)
    if name is None or best is None:
        return ""
    if (
        name != UNCALIBRATED
        and UNCALIBRATED in methods
        and not methods.difference(name, UNCALIBRATED).decided
    ):
        return _settled(methods, name, UNCALIBRATED, "would tell whether calibration changes anything")
    if best.name != name:
        return _settled(methods, name, best.name, f"would tell {name} from {best.name}")
    return ""


def _settled(methods: MethodComparison, a: str, b: str, what: str) -> str:
    difference = methods.difference(a, b)
    needed = difference.rows_to_settle
    if needed is None:
        return ""
    if needed > _MOST_ROWS_ASKED * difference.n_rows:
        return ""
    return f"About {about(needed)} rows {what}."


def price(methods: MethodComparison) -> list[str]:
    """What keeping the order costs, and which method to take where it may go."""
    found = methods.price
    if found is None:
        return []
    told = [str(found[1])]
    if methods.recommended_free is not None:
        told.append(f"Where the order may change, use {methods.recommended_free}.")
    return told


def chosen_on(methods: MethodComparison) -> str:
    """That the rows which chose are the rows which judge."""
    if methods.labels is None or methods.recommended is None or len(methods.judged) < 3:
        return ""
    return f"Chosen and judged by the same {count(len(methods.labels))} rows."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
