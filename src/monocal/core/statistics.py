"""Statistics of a row: one number computed from its sorted logits alone, measured from the top.

    margin     v_2                              gap between the two largest logits
    mean_gap   mean_i v_i                       gap between the largest logit and the mean logit
    spread     std_i v_i                        standard deviation of the logits
    entropy    -sum_i p_i log p_i               of the softmax, in nats
    log_odds   log p_top / (1 - p_top)          of the softmax: -log sum_{i > 1} exp(-v_i)

``v_i = z_top - z_(i) >= 0`` are depths below the top, so a shift of the logits or another order of the classes changes nothing.
Masked classes do not take part. All are 0 for a row with one available class, which has nothing to calibrate.

A statistic is written once: as a function (n,) of `Depths`, which arrays of every library have, those that stand for tensors of
a torch program or an ONNX graph included, and as a line of `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace
from ..errors import InputError
from .libraries import HOST, double, filled, is_graph, namespace_of
from .ranked import LARGEST, Ranked

# A user's statistic is cut here, so that differences of its values stay finite in single precision.
_LARGEST = 1e30


class Depths:
    """Depths of the classes below the top of their row, and the words of statistics.

    Parameters
    ----------
    depth : array of shape (m, n)
        The top first and the second class behind it; or in any order, with ``second``.
    masked : array of bool of shape (m, n), or None
        Classes that are not available, whose depths may be anything finite.
    xp : functions of the library
    second : array of shape (n,), optional
    times : array of shape (n,), optional
        The last class stands for so many equal ones; where for none, it is masked.
    """

    def __init__(self, depth: Any, masked: Any, xp: Any, second: Any = None, times: Any = None):
        self.depth = double(depth, xp) if xp is not HOST and is_graph(depth) else depth
        self.xp = xp
        self._masked, self._second, self._times = masked, second, times
        self._mean: Any = None

    @property
    def second(self) -> Any:
        """The smallest depth but the top's own (n,); 0 where no other class is available."""
        if self._second is not None:
            return self._second
        return self.depth[1 if self.depth.shape[0] > 1 else 0, ...]

    @property
    def count(self) -> Any:
        """How many classes are available."""
        if self._masked is None and self._times is None:
            return float(self.depth.shape[0])
        return self.sum(0.0 * self.depth + 1.0)

    def sum(self, x: Any) -> Any:
        """``sum_i x_i`` over the available classes."""
        return self._with_rest(self.xp.sum(self._available(x), axis=0), x)

    def _with_rest(self, total: Any, x: Any) -> Any:
        """A sum in which the last class, which is in it once, counts as often as it stands for others."""
        return total if self._times is None else total + self.xp.clip(self._times - 1.0, min=0.0) * x[-1]

    @property
    def mean(self) -> Any:
        """Mean depth of the available classes."""
        if self._mean is None:
            self._mean = self.sum(self.depth) / self.count
        return self._mean

    def largest(self, x: Any) -> Any:
        """``max_i |x_i|`` over the available classes."""
        return self.xp.max(abs(self._available(x)), axis=0)

    def sum_but_one(self, x: Any) -> Any:
        """The sum without one of the classes on top, where ``x`` is 1 on top."""
        if self._second is None:
            return self._with_rest(self.xp.sum(self._available(x, 1), axis=0), x)
        top = self.depth == 0 if self._masked is None else (self.depth == 0) & ~self._masked
        n_top = self.xp.sum(self.xp.astype(top, x.dtype), axis=0)
        return self.sum(self.xp.where(top, 0 * x, x)) + (n_top - 1.0)

    def _available(self, x: Any, begin: int = 0) -> Any:
        x = x[begin:, ...] if begin else x
        if self._masked is None:
            return x
        return self.xp.where(self._masked[begin:, ...], filled(x, 0.0, self.xp), x)

    def exp(self, x: Any) -> Any:
        return self.xp.exp(x)

    def log(self, x: Any) -> Any:
        return self.xp.log(x)

    def log1p(self, x: Any) -> Any:
        return self.xp.log1p(x)

    def sqrt(self, x: Any) -> Any:
        """Its gradient at 0 is 0."""
        if self.xp is HOST:
            return np.sqrt(x)
        positive = x > 0
        return self.xp.where(positive, self.xp.sqrt(self.xp.where(positive, x, 1.0 + 0 * x)), 0 * x)

    def at_least(self, x: Any, low: float) -> Any:
        return self.xp.clip(x, min=low)

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
    e = v.exp(-v.depth)
    # Without the largest, whose 1 would swallow the others where it is all but certain.
    others = v.sum_but_one(e)
    return v.log1p(others) + v.sum(e * v.depth) / (1.0 + others)


def log_odds(v: Depths) -> Any:
    """Logarithm of the odds of the largest logit under the softmax."""
    second = v.second
    # Relative to the second class, so that nothing is lost where the first is all but certain.
    others = v.sum_but_one(v.exp(-v.at_least(v.depth - second, 0.0)))
    return second - v.log(v.at_least(others, 1.0))


STATISTICS: dict[str, Callable[[Depths], Any]] = {
    "margin": margin,
    "mean_gap": mean_gap,
    "spread": spread,
    "entropy": entropy,
    "log_odds": log_odds,
}


def compute(statistic: str | Callable[[Array], Any], rows: Ranked) -> Array:
    """A statistic (n,) by its name, or by a function of the sorted, anchored logits (n, r), lowest first."""
    return compute_all((statistic,), rows)[0]


def compute_all(statistics: Sequence[str | Callable[[Array], Any]], rows: Ranked) -> list[Array]:
    """Several statistics, (n,) each."""
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
    depth, valid, tail = rows.depth, rows.valid, rows.tail
    second = 0 * rows.height
    if depth.shape[1] >= 2:
        second = depth[:, -2]
        if valid is not None:
            second = xp.where(valid[:, -2], second, 0 * second)
    if tail is not None and tail.logits is not None:
        depth = xp.clip(rows.top - xp.astype(tail.logits, depth.dtype, copy=False), max=LARGEST)
        valid = ~xp.isinf(tail.logits) if tail.masked else None
        if rows.depth.shape[1] < 2:
            second = _second_of(depth, valid, xp)
    if valid is not None:
        depth = xp.where(valid, depth, 0 * rows.height[:, None])
    times = None
    if tail is not None and tail.rest is not None:
        times = tail.rest.count
        if depth.shape[1] < 2:
            second = xp.where(times > 0, tail.rest.depth, 0 * second)
        valid = xp.ones_like(depth, dtype=xp.bool) if valid is None else valid
        valid = xp.concat([valid, times[:, None] > 0], axis=1)
        depth = xp.concat([depth, tail.rest.depth[:, None]], axis=1)
    return Depths(depth.T, None if valid is None else ~valid.T, xp, second, times)


def _second_of(depth: Any, valid: Any, xp: Any) -> Any:
    """The smallest depth but the top's own (n,), of classes in any order."""
    top = depth == 0 if valid is None else (depth == 0) & valid
    lower = ~top if valid is None else ~top & valid
    least = xp.min(xp.where(lower, depth, 0 * depth + np.inf), axis=1)
    shared = xp.sum(xp.astype(top, xp.int64), axis=1) > 1
    return xp.where(shared | xp.isinf(least), 0 * depth[:, 0], least)


def own_statistic(statistic: Callable[[Array], Any], u: Array) -> Array:
    """A user's own statistic (n,), checked, of sorted logits (n, r) measured from the lowest, lowest first."""
    xp = array_namespace(u)
    values = statistic(u)
    name = statistic_name(statistic)
    try:
        values = xp.astype(xp.asarray(values), u.dtype)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"The statistic {name} must return an array of numbers: {error}") from error
    n = u.shape[0]
    if tuple(values.shape) != (n,):
        raise InputError(
            f"The statistic {name} must return one number per row, shape ({n},), but returned shape "
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
