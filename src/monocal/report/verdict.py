"""The verdict: can the probabilities be trusted as they are, what to ship, and what to know about it.

    Not trustworthy as it is: over-confident by 5.5 points.
    Ship temperature scaling: within noise of four others, and the simplest.

A model is called wrong where its ECE is more than a perfectly calibrated model would show on as many rows, and by how much is
said in points: the gap between what it claims and what it keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..metrics import Floor
from ..metrics.units import count, from_to, number, percent, points
from ..plots import CalibrationCurve
from . import advice
from .words import direction

if TYPE_CHECKING:
    from .contents import Report

_LITTLE = 0.01  # ECE below which an error is called little
_SHARP = 0.03  # ECE that chance may explain, up to which rows are many enough to speak of trust
_ENOUGH = 200  # rows, below which nothing is called trustworthy
_MATTERS = 0.002  # NLL


@dataclass(frozen=True)
class Verdict:
    """What the page says first.

    Attributes
    ----------
    state : {"good", "fair", "bad"}
        Of the probabilities as they are.
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
    gain = report.changes["nll"]
    improved = gain.high < 0 and -gain.mean >= _MATTERS
    state, headline = trust(report.before.curve, report.before.floor, improved, two=report.n_classes == 2)
    methods = report.methods
    details = [outcome(report)]
    if methods is None:
        told = f"Calibrated with {report.shown}; no other method was tried."
    else:
        if methods.asked is not None:
            told = advice.as_asked(methods)
        elif report.shown not in methods and methods.recommended is not None:
            given = "The calibrator given is not compared: it may have been fitted on the rows that the others are judged on."
            told = f"{given} {advice.advice(methods)}"
        elif methods.recommended is None:
            told = f"No method that keeps the order could be judged in the comparison; this is {report.shown}, the default."
        elif state == "good":
            told = f"No calibration is needed. {advice.advice(methods)}".replace(
                "Ship", "If one is wanted, ship", 1
            )
        else:
            told = advice.advice(methods)
            details.append(advice.rows_to_see_a_change(methods))
        if methods.recommended_free is not None:
            details.append(" ".join(advice.price(methods)))
        details.append(advice.chosen_on(methods))
    if report.shift is not None and report.shift.shifted:
        details.append(report.shift.sentence(report.class_names))
    return Verdict(state, headline, told, tuple(detail for detail in details if detail))


def trust(curve: CalibrationCurve, floor: Floor, improved: bool, *, two: bool = False) -> tuple[str, str]:
    """Whether the probabilities can be trusted as they are; ``improved``: calibration clearly lowered NLL.

    With two classes the curve is that of P(class 1).
    """
    rows = count(curve.weight.sum())
    if floor.more_than_chance:
        if curve.ece < _LITTLE:
            return "fair", f"Nearly trustworthy as it is: {_off(curve, two)}, more than chance, but little."
        return "bad", f"Not trustworthy as it is: {_off(curve, two)}."
    if improved:
        return "fair", (
            f"The confidence can be trusted as far as {rows} rows can tell, but calibration clearly lowers the NLL."
        )
    if floor.high > _SHARP:
        return "fair", (
            f"No error found, but {rows} rows show little: even an ECE of {percent(floor.high)} would be within chance."
        )
    if curve.weight.sum() < _ENOUGH:
        return "fair", f"No error found, but {rows} rows show little."
    return "good", f"Trustworthy as it is: on {rows} rows, indistinguishable from perfect calibration."


def _off(curve: CalibrationCurve, two: bool) -> str:
    """Over-confident by 5.5 points; how far off on average where both signs occur beyond chance, or where they cancel."""
    gap = curve.mean_confidence - curve.mean_accuracy
    signs = {stretch.gap > 0 for stretch in curve.stretches()}
    if signs == {gap > 0} or (not signs and abs(gap) >= 0.5 * curve.ece):
        how = f"P(class 1) is too {'high' if gap > 0 else 'low'}" if two else direction(gap)
        return f"{how} by {points(gap)}"
    if two:
        return f"P(class 1) is off by {points(curve.ece)} on average, too high here and too low there"
    return f"off by {points(curve.ece)} on average, over-confident here and under-confident there"


def outcome(report: Report) -> str:
    """What calibration did, on the rows judged."""
    before, after, nll = report.before, report.after, report.changes["nll"]
    values = from_to(before.evaluation["nll"].value, after.evaluation["nll"].value, number)
    change = f"With {report.shown} ECE is {from_to(before.curve.ece, after.curve.ece, percent)}, NLL {values}"
    if nll.low > 0:
        return f"{change}: calibration made it worse on these rows."
    if not after.floor.more_than_chance:
        if after.floor.high > _SHARP:
            return f"{change}: an error that chance explains on {count(report.n_judged)} rows."
        return f"{change}: on {count(report.n_judged)} rows, indistinguishable from perfect calibration."
    if nll.high < 0:
        return f"{change}: better, and some error is left."
    return f"{change}: no clear change, and some error is left."
