"""Statistics of a row: one number computed from its sorted logits alone, measured from the top.

    margin     v_2                              gap between the two largest logits
    mean_gap   mean_i v_i                       gap between the largest logit and the mean logit
    spread     std_i v_i                        standard deviation of the logits
    entropy    -sum_i p_i log p_i               of the softmax, in nats
    log_odds   log p_top / (1 - p_top)          of the softmax: -log sum_{i > 1} exp(-v_i)

``v_i = z_top - z_(i) >= 0`` are the depths of a `Ranked` block, so a shift of the logits or another order of the classes
changes nothing. Masked classes do not take part. All are 0 for a row with one available class, which has nothing to
calibrate.

A statistic is written here and nowhere else: as a function (..., 1) in the words of `Depths`, which arrays, torch modules and
ONNX graphs all understand, and as a line of `STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace
from ..core.ranked import Ranked
from ..errors import InputError
from .depths import Depths, RankedDepths, Value

# A user's statistic is cut here, so that differences of its values stay finite in single precision.
_LARGEST = 1e30


def margin(v: Depths) -> Value:
    """Gap between the two largest logits."""
    return v.second


def mean_gap(v: Depths) -> Value:
    """Gap between the largest logit and the mean of all."""
    return v.sum(v.depth) / v.count


def spread(v: Depths) -> Value:
    """Standard deviation of the logits."""
    away = v.depth - mean_gap(v)
    # In units of the largest, so that no square is lost.
    unit = v.or_one(v.largest(away))
    away = away / unit
    return unit * v.sqrt(v.sum(away * away) / v.count)


def entropy(v: Depths) -> Value:
    """Entropy of the softmax, in nats."""
    e = v.exp(-v.depth)
    # Without the largest, whose 1 would swallow the others where it is all but certain.
    others = v.sum_but_one(e)
    return v.log1p(others) + v.sum(e * v.depth) / (1.0 + others)


def log_odds(v: Depths) -> Value:
    """Logarithm of the odds of the largest logit under the softmax."""
    second = v.second
    # Relative to the second class, so that nothing is lost where the first is all but certain.
    others = v.sum_but_one(v.exp(-v.at_least(v.depth - second, 0.0)))
    return second - v.log(v.at_least(others, 1.0))


STATISTICS: dict[str, Callable[[Depths], Value]] = {
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
    known, v = rows.measured or {}, RankedDepths(rows)

    def one(s: str | Callable[[Array], Any]) -> Array:
        if not isinstance(s, str):
            return _own(s, rows)
        return known[s] if s in known else STATISTICS[s](v)[:, 0]

    with np.errstate(under="ignore"):
        return [one(s) for s in statistics]


def _own(statistic: Callable[[Array], Any], rows: Ranked) -> Array:
    """A user's own statistic, checked."""
    xp = array_namespace(rows.depth)
    values = statistic(xp.clip(rows.height[:, None] - rows.depth, min=0.0))
    name = statistic_name(statistic)
    try:
        values = xp.astype(xp.asarray(values), rows.depth.dtype)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"The statistic {name} must return an array of numbers: {error}") from error
    n = rows.depth.shape[0]
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
