"""Non-negative factors of a row: hinges of its statistics.

    psi(z) = max(q(z) - t, 0) / (high - t)      "above t"
    psi(z) = max(t - q(z), 0) / (t - low)       "below t"

for every statistic ``q`` and knot ``t``. Knots are quantiles of the calibration set; ``q`` is cut to the range ``[low,
high]`` seen there, so every factor lies in [0, 1] and nothing extrapolates: a row stranger than any calibration row is
treated like the strangest of these. The first factor is the constant 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace
from ..objective.blocks import Ranked
from .statistics import compute

ABOVE, BELOW = "above", "below"


@dataclass(frozen=True)
class Hinge:
    """One factor."""

    statistic: int  # which of the statistics
    side: str  # "above" or "below" the knot
    knot: float
    end: float  # where it reaches 1: the largest or smallest value seen in calibration


@dataclass(frozen=True)
class HingeFactors:
    """The constant 1 and hinges, as a function of ranked rows.

    Attributes
    ----------
    statistics : tuple of str or callable
    hinges : tuple of Hinge
    """

    statistics: tuple[str | Callable[[Array], Any], ...]
    hinges: tuple[Hinge, ...]

    @property
    def n_factors(self) -> int:
        return 1 + len(self.hinges)

    def __call__(self, rows: Ranked) -> Array:
        """Factors (n, K) of ranked rows."""
        xp = array_namespace(rows.depth)
        if not self.statistics:
            return xp.ones_like(rows.height)[:, None]
        return self.of_statistics(xp.stack([compute(s, rows) for s in self.statistics], axis=1))

    def of_statistics(self, values: Array) -> Array:
        """Factors (n, K) of statistics (n, S)."""
        xp = array_namespace(values)
        columns = [xp.ones_like(values[:, 0])]
        for hinge in self.hinges:
            q = values[:, hinge.statistic]
            distance = q - hinge.knot if hinge.side == ABOVE else hinge.knot - q
            columns.append(xp.clip(distance / abs(hinge.end - hinge.knot), min=0.0, max=1.0))
        return xp.stack(columns, axis=1)


def choose_hinges(values: np.ndarray, weight: np.ndarray, n_knots: int) -> tuple[Hinge, ...]:
    """Hinges in both directions at the inner quantiles of each statistic (n, S); none where one is constant."""
    levels = np.arange(1, n_knots + 1) / (n_knots + 1)
    hinges = []
    for s, q in enumerate(np.asarray(values, dtype=np.float64).T):
        low, high = float(q.min()), float(q.max())
        knots = np.unique(np.quantile(q, levels, weights=weight, method="inverted_cdf"))
        for knot in knots.tolist():
            if knot < high:
                hinges.append(Hinge(s, ABOVE, knot, high))
            if knot > low:
                hinges.append(Hinge(s, BELOW, knot, low))
    return tuple(hinges)


def statistic_functions(
    statistics: Sequence[str | Callable[[Array], Any]],
) -> list[Callable[[Ranked], Array]]:
    """The statistics as functions of ranked rows."""
    return [lambda rows, s=s: compute(s, rows) for s in statistics]  # type: ignore[misc]
