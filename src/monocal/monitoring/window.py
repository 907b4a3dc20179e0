"""What a window of a stream shows: accuracy, confidence, and ECE with what chance alone does.

    over_confidence = mean (c - right),     its interval +- 1.96 sqrt(v / n)

with ``v`` the larger of the variance seen and the one that calibrated confidences have: a window without errors shows none. The
floor of the ECE is drawn: every row right with the probability that it claims.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..metrics.chance import ece_by_chance, most_by_chance
from ..metrics.outcomes import bin_index, equal_width_edges
from .betting import Bets
from .frequencies import FrequencyTest

_BINS = 15
_DRAWS = 200


@dataclass(frozen=True)
class Window:
    """What one window of the stream showed; numbers that need labels are None where it has none.

    Attributes
    ----------
    first_row, rows, labelled : int
        Where it begins in the stream, its rows, and those whose label is known.
    accuracy, confidence, nll : float or None
        Of its labelled rows.
    over_confidence, low, high : float or None
        Confidence less accuracy, and its 95 % interval.
    ece, floor, floor_high : float or None
        ECE, what perfect calibration shows on these rows (median), and what it exceeds one time in twenty at most.
    evidence : float
        Logarithm (base 10) of the wealth of the bet against calibration after this window.
    frequency_p, frequency_level : float or None
        p-value of the predicted classes' frequencies, and what it must not fall below; None before there is a reference.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 4, seed=1)
    >>> cal = mc.MCCT().fit(data.values[:1000], data.labels[:1000])
    >>> result = mc.monitor([(data.values, data.labels)], calibrator=cal)
    >>> [(window.first_row, window.rows) for window in result.windows]
    [(0, 500), (500, 500), (1000, 500), (1500, 500)]
    """

    first_row: int
    rows: int
    labelled: int
    accuracy: float | None
    confidence: float | None
    nll: float | None
    over_confidence: float | None
    low: float | None
    high: float | None
    ece: float | None
    floor: float | None
    floor_high: float | None
    evidence: float
    frequency_p: float | None
    frequency_level: float | None


# What is kept of a row until its window is full, by the names in saved files.
ROW = np.dtype(
    [("predicted", np.int64), ("confidence", float), ("label_prob", float), ("right", float), ("known", bool)]
)


def seen_in(rows: np.ndarray, first_row: int, bets: Bets, test: FrequencyTest | None, number: int) -> Window:
    """The window of these rows (of type `ROW`), after it was played (``bets``) and tested."""
    labelled = rows[rows["known"]]
    n = len(labelled)
    columns: dict[str, float | None] = dict.fromkeys(
        ("accuracy", "confidence", "nll", "over_confidence", "low", "high", "ece", "floor", "floor_high")
    )
    if n:
        c, right = labelled["confidence"], labelled["right"]
        gap = float((c - right).mean())
        spread = max(float(np.mean((c - right - gap) ** 2)), float(np.mean(c * (1 - c))))
        half = 1.96 * np.sqrt(spread / n)
        cell = bin_index(c, equal_width_edges(_BINS))
        ece, draws = ece_by_chance(c, right, np.ones(n), cell, _DRAWS, number)
        columns = {
            "accuracy": float(right.mean()),
            "confidence": float(c.mean()),
            "nll": float(-np.log(np.maximum(labelled["label_prob"], np.finfo(float).tiny)).mean()),
            "over_confidence": gap,
            "low": gap - half,
            "high": gap + half,
            "ece": ece,
            "floor": float(np.median(draws)),
            "floor_high": most_by_chance(draws, 0.95),
        }
    return Window(
        first_row=first_row,
        rows=len(rows),
        labelled=n,
        **columns,
        evidence=bets.log_wealth / np.log(10.0),
        frequency_p=None if test is None else test.p_value,
        frequency_level=None if test is None else test.level,
    )
