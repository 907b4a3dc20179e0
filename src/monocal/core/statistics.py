"""Statistics of a row, and ramps of them: numbers computed from its sorted logits alone, measured from the top.

    margin     v_2                              gap between the two largest logits
    mean_gap   mean_i v_i                       gap between the largest logit and the mean logit
    spread     std_i v_i                        standard deviation of the logits
    entropy    -sum_i p_i log p_i               of the softmax, in nats
    log_odds   log p_top / (1 - p_top)          of the softmax: -log sum_{i > 1} exp(-v_i)

``v_i = z_top - z_(i) >= 0`` are depths below the top, so a shift of the logits or another order of the classes changes nothing.
Masked classes do not take part. All are 0 for a row with one available class, which has nothing to calibrate.

A statistic is written once: as a function (n,) of `Depths`, which arrays of every library have, those that stand for tensors of
a torch program or an ONNX graph included, and as a line of `STATISTICS`.

A map depends on a statistic ``q`` through ramps,

    psi(z) = min(max((q(z) - zero) / (one - zero), 0), 1),

which rise from 0 to 1 between two of its values: towards larger ones where ``zero < one`` ("above"), towards smaller ones where
``one < zero`` ("below"). There is a ramp in either direction around every knot; knots are quantiles of the calibration set, and a
ramp reaches two knots to each side. Every factor lies in [0, 1] and is constant beyond the calibration set, so nothing
extrapolates: a row stranger than any calibration row is treated like the strangest of these. The first factor is the constant 1.
A statistic may be anything, constant or nearly so: a ramp too narrow for single precision is never chosen, and one that was
loaded from a file is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, like, on_device_of
from ..errors import InputError
from .libraries import HOST, namespace_of, ramps_of
from .ranked import LARGEST, Ranked

# A user's statistic is cut here, so that differences of its values stay finite in single precision.
_LARGEST = 1e30
# Knots from the middle of a ramp to its ends. Wider ramps are smoother, narrower ones follow more closely.
_REACH = 2
# The least width of a ramp, in parts of the larger of its ends (a thousand times the error of a statistic in single precision:
# a narrower ramp would tell rounding errors apart) and in numbers that single precision cannot lose.
_LEAST_PART, _LEAST_WIDTH = 1e-3, 1e-30


class Depths:
    """Depths (m, n) of the classes below the top of their row, and the words of statistics; ``xp`` are the library's functions.

    The top comes first and the second class behind it; or they are in any order, with ``second`` (n,) given. Classes in
    ``masked`` (m, n) are not available: their depths may be anything finite. The last class stands for ``times`` (n,) equal ones;
    where for none, it is masked.
    """

    def __init__(self, depth: Any, masked: Any, xp: Any, second: Any = None, times: Any = None):
        self.depth = xp.double(depth) if xp.graph else depth
        self.xp = xp
        self._masked, self._times, self._in_order = masked, times, second is None
        # The smallest depth but the top's own (n,); 0 where no other class is available.
        self.second = self.depth[1 if self.depth.shape[0] > 1 else 0, ...] if second is None else second
        self._mean: Any = None

    @property
    def count(self) -> Any:
        """How many classes are available."""
        if self._masked is None and self._times is None:
            return float(self.depth.shape[0])
        return self.sum(0.0 * self.depth + 1.0)

    def sum(self, x: Any, begin: int = 0) -> Any:
        """``sum_i x_i`` over the available classes, without the first ``begin``."""
        total = self.xp.sum(self._available(x, begin), axis=0)
        # The last class, which is in it once, counts as often as it stands for others.
        return total if self._times is None else total + self.xp.clip(self._times - 1.0, min=0.0) * x[-1]

    @property
    def mean(self) -> Any:
        """Mean depth of the available classes."""
        if self._mean is None:  # no cached_property: torch.compile cannot trace its lock in Python 3.11
            self._mean = self.sum(self.depth) / self.count
        return self._mean

    def largest(self, x: Any) -> Any:
        """``max_i |x_i|`` over the available classes."""
        return self.xp.max(abs(self._available(x)), axis=0)

    def sum_but_one(self, x: Any) -> Any:
        """The sum without one of the classes on top, where ``x`` is 1 on top."""
        if self._in_order:
            return self.sum(x, 1)
        top = self.depth == 0 if self._masked is None else (self.depth == 0) & ~self._masked
        n_top = self.xp.sum(self.xp.astype(top, x.dtype), axis=0)
        return self.sum(self.xp.where(top, 0 * x, x)) + (n_top - 1.0)

    def _available(self, x: Any, begin: int = 0) -> Any:
        x = x[begin:, ...] if begin else x
        if self._masked is None:
            return x
        return self.xp.where(self._masked[begin:, ...], self.xp.filled(x, 0.0), x)

    def sqrt(self, x: Any) -> Any:
        """Its gradient at 0 is 0."""
        if self.xp is HOST:
            return np.sqrt(x)
        positive = x > 0
        return self.xp.where(positive, self.xp.sqrt(self.xp.where(positive, x, 1.0 + 0 * x)), 0 * x)

    def or_one(self, x: Any) -> Any:
        """``x``, or 1 where it is 0."""
        return x + (x == 0) if self.xp is HOST else self.xp.where(x == 0, 1.0 + 0 * x, x)


def margin(v: Depths) -> Any:
    """Gap between the two largest logits."""
    return v.second


def mean_gap(v: Depths) -> Any:
    """Gap between the largest logit and the mean of all."""
    return v.mean


def spread(v: Depths) -> Any:
    """Standard deviation of the logits."""
    away = v.depth - v.mean
    # In units of the largest, so that no square is lost.
    unit = v.or_one(v.largest(away))
    away = away / unit
    return unit * v.sqrt(v.sum(away * away) / v.count)


def entropy(v: Depths) -> Any:
    """Entropy of the softmax, in nats."""
    e = v.xp.exp(-v.depth)
    # Without the largest, whose 1 would swallow the others where it is all but certain.
    others = v.sum_but_one(e)
    return v.xp.log1p(others) + v.sum(e * v.depth) / (1.0 + others)


def log_odds(v: Depths) -> Any:
    """Logarithm of the odds of the largest logit under the softmax."""
    second = v.second
    # Relative to the second class, so that nothing is lost where the first is all but certain.
    others = v.sum_but_one(v.xp.exp(-v.xp.clip(v.depth - second, min=0.0)))
    return second - v.xp.log(v.xp.clip(others, min=1.0))


STATISTICS: dict[str, Callable[[Depths], Any]] = {
    "margin": margin,
    "mean_gap": mean_gap,
    "spread": spread,
    "entropy": entropy,
    "log_odds": log_odds,
}


def compute(statistics: Sequence[str | Callable[[Array], Any]], rows: Ranked) -> list[Array]:
    """Statistics (n,) by their names, or by functions of the sorted, anchored logits (n, r), lowest first."""
    measured = rows.measured or {}
    v: Any = None
    out: list[Array] = []
    with np.errstate(over="ignore", under="ignore"):
        for s in statistics:
            if not isinstance(s, str):
                xp = array_namespace(rows.depth)
                out.append(own_statistic(s, xp.clip(rows.height[:, None] - rows.depth, min=0.0)))
            elif s in measured:
                out.append(measured[s])
            else:
                v = v or _depths_of(rows)
                out.append(STATISTICS[s](v))
    return out


def _depths_of(rows: Ranked) -> Depths:
    """Depths of sorted rows. The classes of a tail count too."""
    xp = namespace_of(rows.depth)
    depth, valid, tail, times = rows.depth, rows.valid, rows.tail, None
    nothing = 0 * rows.height
    second = depth[:, -2] if depth.shape[1] >= 2 else nothing
    if depth.shape[1] >= 2 and valid is not None:
        second = xp.where(valid[:, -2], second, nothing)
    if tail is not None and tail.logits is not None:
        depth = xp.clip(rows.top - xp.astype(tail.logits, depth.dtype, copy=False), max=LARGEST)
        valid = ~xp.isinf(tail.logits) if tail.masked else None
        if rows.depth.shape[1] < 2:  # the smallest depth but the top's own, of classes in any order
            available = xp.ones_like(depth, dtype=xp.bool) if valid is None else valid
            top = (depth == 0) & available
            least = xp.min(xp.where(available & ~top, depth, 0 * depth + np.inf), axis=1)
            shared = xp.sum(xp.astype(top, xp.int64), axis=1) > 1
            second = xp.where(shared | xp.isinf(least), nothing, least)
    if valid is not None:
        depth = xp.where(valid, depth, nothing[:, None])
    if tail is not None and tail.rest is not None:
        times = tail.rest.count
        if depth.shape[1] < 2:
            second = xp.where(times > 0, tail.rest.depth, nothing)
        valid = xp.ones_like(depth, dtype=xp.bool) if valid is None else valid
        valid = xp.concat([valid, times[:, None] > 0], axis=1)
        depth = xp.concat([depth, tail.rest.depth[:, None]], axis=1)
    return Depths(depth.T, None if valid is None else ~valid.T, xp, second, times)


def own_statistic(statistic: Callable[[Array], Any], u: Array) -> Array:
    """A user's own statistic (n,), checked, of sorted logits (n, r) measured from the lowest, lowest first."""
    xp = array_namespace(u)
    values, name = statistic(u), statistic_name(statistic)
    try:
        values = xp.astype(xp.asarray(values), u.dtype)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"The statistic {name} must return an array of numbers: {error}") from error
    if tuple(values.shape) != (u.shape[0],):
        raise InputError(
            f"The statistic {name} must return one number per row, shape ({u.shape[0]},), but returned shape "
            f"{tuple(values.shape)}."
        )
    if bool(xp.any(xp.isnan(values))):
        row = int(xp.argmax(xp.astype(xp.isnan(values), xp.int8)))
        raise InputError(f"The statistic {name} returned NaN: first in row {row} of its block.")
    return xp.clip(values, min=-_LARGEST, max=_LARGEST)


def statistic_name(statistic: str | Callable[[Array], Any]) -> str:
    """What to call a statistic in words."""
    if isinstance(statistic, str):
        return statistic
    return str(getattr(statistic, "__name__", type(statistic).__name__))


# Ramps


@dataclass(frozen=True)
class Ramp:
    """One factor, of a statistic by its number: 0 up to ``zero``, 1 from ``one`` on."""

    statistic: int
    zero: float
    one: float

    @property
    def side(self) -> str:
        """On which side of ``zero`` rows have the factor."""
        return "above" if self.zero < self.one else "below"


@dataclass(frozen=True)
class RampFactors:
    """The constant 1 and ramps of statistics, as a function of ranked rows."""

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
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each ramp the statistic, where it is still 0, and ``one - zero``, (K - 1,) each.

        The width is never 0, so that a ramp between equal ends is a step.
        """
        statistic = np.array([ramp.statistic for ramp in self.ramps], dtype=np.int64)
        zero, one = np.array([[ramp.zero, ramp.one] for ramp in self.ramps], np.float64).reshape(-1, 2).T
        width = one - zero
        return statistic, zero.copy(), np.copysign(np.maximum(abs(width), _LEAST_WIDTH), width)

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
        return self.of_statistics(array_namespace(rows.depth).stack(compute(self.statistics, rows), axis=1))

    def of_statistics(self, values: Array) -> Array:
        """Factors (n, K) of statistics (n, S)."""
        xp = array_namespace(values)
        statistic, zero, width = self.table
        with np.errstate(over="ignore"):
            psi = ramps_of(
                values.T, on_device_of(statistic, values), like(zero, values), like(width, values), xp
            )
        return xp.concat([xp.ones_like(values[:, :1]), psi.T], axis=1)


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
    # Far enough apart to mean anything in single precision.
    far = [max(_LEAST_PART * max(abs(ramp.zero), abs(ramp.one)), _LEAST_WIDTH) for ramp in ramps]
    return tuple(ramp for ramp, least in zip(ramps, far, strict=True) if abs(ramp.one - ramp.zero) >= least)


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
