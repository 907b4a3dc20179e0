"""Statistics of a row: one number computed from its sorted logits alone, measured from the top.

    margin     v_2                              gap between the two largest logits
    mean_gap   mean_i v_i                       gap between the largest logit and the mean logit
    spread     std_i v_i                        standard deviation of the logits
    entropy    -sum_i p_i log p_i               of the softmax, in nats
    log_odds   log p_top / (1 - p_top)          of the softmax: -log sum_{i > 1} exp(-v_i)

``v_i = z_top - z_(i) >= 0`` are the depths of a `Ranked` block, so a shift of the logits or another order of the classes
changes nothing. Masked classes do not take part. All are 0 for a row with one available class, which has nothing to
calibrate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, count_true
from ..errors import InputError
from ..ranks.ranked import LARGEST, Ranked

# A user's statistic is cut here, so that differences of its values stay finite in single precision.
_LARGEST = 1e30


def margin(rows: Ranked) -> Array:
    """Gap between the two largest logits."""
    xp = array_namespace(rows.depth)
    if rows.depth.shape[1] >= 2:
        gap = rows.depth[:, -2]
        return gap if rows.valid is None else xp.where(rows.valid[:, -2], gap, 0 * gap)
    if rows.tail is None:
        return 0 * rows.height
    depth, valid = _all_depths(rows)
    lower = depth > 0 if valid is None else (depth > 0) & valid
    least = xp.min(xp.where(lower, depth, LARGEST + 0 * depth), axis=1)
    return xp.where((rows.tail.ties > 0) | ~xp.any(lower, axis=1), 0 * least, least)


def mean_gap(rows: Ranked) -> Array:
    """Gap between the largest logit and the mean of all."""
    xp = array_namespace(rows.depth)
    depth, valid = _all_depths(rows)
    if valid is None:
        return xp.sum(depth, axis=1) / int(depth.shape[1])
    available = xp.astype(valid, depth.dtype)
    return xp.sum(depth * available, axis=1) / xp.sum(available, axis=1)


def spread(rows: Ranked) -> Array:
    """Standard deviation of the logits."""
    xp = array_namespace(rows.depth)
    depth, valid = _all_depths(rows)
    away = depth - mean_gap(rows)[:, None]
    if valid is not None:
        away = xp.where(valid, away, 0 * away)
    # In units of the largest, so that no square is lost.
    unit = xp.max(abs(away), axis=1)
    unit = unit + (unit == 0)
    away /= unit[:, None]
    with np.errstate(under="ignore"):
        away *= away
        square = xp.sum(away, axis=1)
    n = float(depth.shape[1]) if valid is None else xp.astype(count_true(valid), depth.dtype)
    return unit * xp.sqrt(square / n)


def entropy(rows: Ranked) -> Array:
    """Entropy of the softmax, in nats."""
    xp = array_namespace(rows.depth)
    depth, valid = _all_depths(rows)
    with np.errstate(under="ignore"):
        e = _exponentials(depth, valid)
        # Without the largest, whose 1 would swallow the others where it is all but certain.
        top = depth == 0
        others = xp.sum(xp.where(top, 0 * e, e), axis=1) + xp.astype(count_true(top) - 1, e.dtype)
        return xp.log1p(others) + xp.sum(e * depth, axis=1) / (1.0 + others)


def log_odds(rows: Ranked) -> Array:
    """Logarithm of the odds of the largest logit under the softmax."""
    xp = array_namespace(rows.depth)
    depth, valid = _all_depths(rows)
    second = margin(rows)
    # Relative to the second class, so that nothing is lost where the first is all but certain.
    with np.errstate(under="ignore"):
        e = _exponentials(xp.clip(depth - second[:, None], min=0.0), valid)
    top = depth == 0
    others = xp.sum(xp.where(top, 0 * e, e), axis=1) + xp.astype(count_true(top) - 1, e.dtype)
    return second - xp.log(xp.clip(others, min=1.0))


STATISTICS: dict[str, Callable[[Ranked], Array]] = {
    "margin": margin,
    "mean_gap": mean_gap,
    "spread": spread,
    "entropy": entropy,
    "log_odds": log_odds,
}


def compute(statistic: str | Callable[[Array], Any], rows: Ranked) -> Array:
    """A statistic (n,) by its name, or by a function of the sorted, anchored logits (n, r), lowest first."""
    if isinstance(statistic, str):
        return STATISTICS[statistic](rows)
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
            f"The statistic {name} must return one number a row, shape ({n},), but returned shape "
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


def _all_depths(rows: Ranked) -> tuple[Array, Array | None]:
    """Depths of all classes, sorted or not, finite; and which are available, None for all."""
    tail = rows.tail
    if tail is None:
        return rows.depth, rows.valid
    xp = array_namespace(rows.depth)
    dtype = rows.depth.dtype
    with np.errstate(over="ignore"):
        depth = rows.top - xp.astype(tail.logits, dtype, copy=False)
    depth = xp.clip(depth, max=LARGEST)
    return depth, (~xp.isinf(tail.logits) if tail.masked else None)


def _exponentials(depth: Array, valid: Array | None) -> Array:
    e = array_namespace(depth).exp(-depth)
    return e if valid is None else e * array_namespace(depth).astype(valid, e.dtype)
