"""Non-negative factors of a row: ramps of its statistics.

    psi(z) = min(max((q(z) - zero) / (one - zero), 0), 1)

rises from 0 to 1 between two values of a statistic ``q``: towards larger values where ``zero < one`` ("above"), towards smaller
ones where ``one < zero`` ("below"). There is a ramp in either direction around every knot; knots are quantiles of the
calibration set, and a ramp reaches two knots to each side. Every factor lies in [0, 1] and is constant beyond the
calibration set, so nothing extrapolates: a row stranger than any calibration row is treated like the strangest of these. The
first factor is the constant 1.

A statistic may be anything, constant or nearly so: a ramp too narrow for single precision is never chosen, and one that was
loaded from a file is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, like, on_device_of
from .ranked import Ranked
from .statistics import compute, compute_all

# Knots from the middle of a ramp to its ends. Wider ramps are smoother, narrower ones follow more closely.
_REACH = 2
# The least width of a ramp, in parts of the larger of its ends (a thousand times the error of a statistic in single precision:
# a narrower ramp would tell rounding errors apart) and in numbers that single precision cannot lose.
_LEAST_PART, _LEAST_WIDTH = 1e-3, 1e-30


@dataclass(frozen=True)
class Ramp:
    """One factor: 0 up to ``zero``, 1 from ``one`` on."""

    statistic: int  # which of the statistics
    zero: float
    one: float

    @property
    def side(self) -> str:
        """On which side of ``zero`` rows have the factor."""
        return "above" if self.zero < self.one else "below"

    @property
    def wide(self) -> bool:
        """Whether its ends are far enough apart to mean anything in single precision."""
        largest = max(abs(self.zero), abs(self.one))
        return abs(self.one - self.zero) >= max(_LEAST_PART * largest, _LEAST_WIDTH)


@dataclass(frozen=True)
class RampFactors:
    """The constant 1 and ramps, as a function of ranked rows.

    Attributes
    ----------
    statistics : tuple of str or callable
    ramps : tuple of Ramp
    """

    statistics: tuple[str | Callable[[Array], Any], ...]
    ramps: tuple[Ramp, ...]

    @property
    def n_factors(self) -> int:
        return 1 + len(self.ramps)

    @property
    def mirrors(self) -> np.ndarray:
        """For every factor, the index of an earlier one that adds up to 1 with it; its own index where there is none, (K,)."""
        place = {(ramp.statistic, ramp.zero, ramp.one): i for i, ramp in enumerate(self.ramps, 1)}
        other = [place.get((ramp.statistic, ramp.one, ramp.zero), i) for i, ramp in enumerate(self.ramps, 1)]
        return np.minimum([0, *other], np.arange(self.n_factors))

    @property
    def zeros(self) -> np.ndarray:
        """Where each ramp is still 0, (K - 1,)."""
        return np.array([ramp.zero for ramp in self.ramps], dtype=np.float64)

    @property
    def widths(self) -> np.ndarray:
        """``one - zero`` of each ramp, (K - 1,); never 0, so that a ramp between equal ends is a step."""
        width = np.array([ramp.one for ramp in self.ramps], dtype=np.float64) - self.zeros
        return np.copysign(np.maximum(abs(width), _LEAST_WIDTH), width)

    def only(self, used: np.ndarray) -> RampFactors | None:
        """The constant 1 and some of the ramps, whose numbers among the factors rise; None where the constant is all."""
        ramps = [self.ramps[k - 1] for k in used if k]
        if not ramps:
            return None
        statistics = sorted({ramp.statistic for ramp in ramps})
        renamed = tuple(replace(ramp, statistic=statistics.index(ramp.statistic)) for ramp in ramps)
        return RampFactors(tuple(self.statistics[s] for s in statistics), renamed)

    def __call__(self, rows: Ranked) -> Array:
        """Factors (n, K) of ranked rows."""
        values = compute_all(self.statistics, rows)
        one = len(values) == 1
        return self.of_statistics(
            values[0][:, None] if one else array_namespace(rows.depth).stack(values, axis=1)
        )

    def of_statistics(self, values: Array) -> Array:
        """Factors (n, K) of statistics (n, S)."""
        xp = array_namespace(values)
        statistic = on_device_of(np.array([ramp.statistic for ramp in self.ramps], dtype=np.int64), values)
        with np.errstate(over="ignore"):
            psi = ramps_of(values.T, statistic, like(self.zeros, values), like(self.widths, values), xp)
        return xp.concat([xp.ones_like(values[:, :1]), psi.T], axis=1)


def ramps_of(values: Any, statistic: Any, zero: Any, width: Any, xp: Any) -> Any:
    """Ramps (K - 1, n) of statistics (S, n): which each is of, where it is still 0, and how far from there it is 1."""
    q = values if values.shape[0] == 1 else xp.take(values, statistic, axis=0)
    return xp.clip((q - zero[:, None]) / width[:, None], min=0.0, max=1.0)


def choose_ramps(values: np.ndarray, weight: np.ndarray, n_knots: int) -> tuple[Ramp, ...]:
    """Ramps in both directions around the inner quantiles of each statistic (n, S); none where one is all but constant."""
    levels = np.linspace(0.0, 1.0, n_knots + 2)
    ramps = []
    for s, q in enumerate(np.asarray(values, dtype=np.float64).T):
        knots = np.unique(_quantiles(q, weight, levels)).tolist()
        for i in range(1, len(knots) - 1):
            low, high = knots[max(i - _REACH, 0)], knots[min(i + _REACH, len(knots) - 1)]
            ramps += [Ramp(s, low, high), Ramp(s, high, low)]
        if len(knots) == 2:  # a statistic of few values, such as a count: one ramp between the two
            ramps += [Ramp(s, *knots), Ramp(s, *knots[::-1])]
    return tuple(ramp for ramp in ramps if ramp.wide)


def _quantiles(values: np.ndarray, weight: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """``np.quantile`` with weights, method "inverted_cdf", at less cost: the first values that reach each level."""
    if (weight == weight[0]).all():
        ordered = np.sort(values)
    else:
        order = np.argsort(values)
        ordered, weight = values[order], weight[order]
    reached = np.cumsum(weight, dtype=np.float64)
    reached /= reached[-1]
    lowest = np.searchsorted(reached, 0.0, side="right")  # rows without weight are none
    places = np.maximum(np.searchsorted(reached, levels), lowest)
    return ordered[np.minimum(places, len(ordered) - 1)]


def statistic_functions(
    statistics: Sequence[str | Callable[[Array], Any]],
) -> list[Callable[[Ranked], Array]]:
    """The statistics as functions of ranked rows."""
    return [partial(compute, s) for s in statistics]
