"""Tied ranks share one value: the mean of what the map gives them.

The mean lies between its neighbours, so the order stands, and it does not depend on how the sort placed equal values.
Between two jumps of the map the value is linear in the logit, so ties matter only where a jump falls inside a group of them.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, count_true, device_of, running_maximum
from .ranked import Ranked


def tie_bounds(depth: Array) -> tuple[Array, Array]:
    """First and last rank of the group of equal values that each rank belongs to."""
    xp = array_namespace(depth)
    n, r = depth.shape
    rank = xp.broadcast_to(xp.arange(r, **device_of(depth)), (n, r))
    edge = depth[:, 1:] != depth[:, :-1]
    true = xp.ones((n, 1), dtype=xp.bool, **device_of(depth))
    begins = xp.concat([true, edge], axis=1)
    ends = xp.concat([edge, true], axis=1)
    first = running_maximum(xp.where(begins, rank, 0 * rank))
    last = r - 1 - xp.flip(running_maximum(xp.flip(xp.where(ends, r - 1 - rank, 0 * rank), axis=1)), axis=1)
    return first, last


def largest_tie(rows: Ranked) -> int:
    """Ranks of the largest group of equal values, masked classes apart; 1 where rows are in no order."""
    if rows.tied is None or not rows.tied.any():
        return 1
    xp = array_namespace(rows.depth)
    equal = rows.depth[:, 1:] == rows.depth[:, :-1]
    if rows.valid is not None:
        equal = equal & rows.valid[:, :-1]
    longer = xp.nonzero(xp.any(equal[:, 1:] & equal[:, :-1], axis=1))[0]
    if not longer.shape[0]:
        return 2
    first, last = tie_bounds(rows.depth[longer])
    size = last - first + 1
    return int(xp.max(size if rows.valid is None else xp.where(rows.valid[longer], size, 1 + 0 * size)))


def average_ties(f: Array, rows: Ranked, jumps: np.ndarray) -> bool:
    """Give tied ranks one value, the mean of theirs; it lies between its neighbours, so the order stands.

    ``f`` (n, r) is linear in the logit between the ranks in ``jumps``, so ties need care only where one of these falls
    inside a group of equal values. Changes ``f`` in place, and says whether it did.
    """
    xp = array_namespace(f)
    jumps = jumps[jumps > 0]
    if rows.tied is not None:
        jumps = jumps[rows.tied[jumps]]
    if not len(jumps):
        return False
    split = xp.any(rows.depth[:, jumps] == rows.depth[:, jumps - 1], axis=1)
    index = xp.nonzero(split)[0]
    chunk = max(1, 2**22 // f.shape[1])  # half a dozen arrays of this size are needed at a time
    rows = rows.in_use()
    for begin in range(0, index.shape[0], chunk):
        part = index[begin : begin + chunk]
        f[part] = _group_means(f[part], rows[part])
    return bool(index.shape[0])


def _group_means(f: Array, rows: Ranked) -> Array:
    xp = array_namespace(f)
    first, last = tie_bounds(rows.depth)
    total = xp.cumulative_sum(xp.astype(f, xp.float64), axis=1)
    f_first = xp.take_along_axis(f, first, axis=1)
    f_last = xp.take_along_axis(f, last, axis=1)
    before = xp.take_along_axis(total, first, axis=1) - xp.astype(f_first, xp.float64)
    mean = (xp.take_along_axis(total, last, axis=1) - before) / xp.astype(last - first + 1, xp.float64)
    mean = xp.clip(xp.astype(mean, f.dtype), f_first, f_last)
    if rows.tail is not None:
        # Classes of the tail that equal the lowest logit in use belong to its group, with the lowest rank's value.
        low = rows.depth == rows.height[:, None]
        kept = xp.astype(count_true(low), f.dtype)
        share = (kept / (kept + xp.astype(rows.tail.ties, f.dtype)))[:, None]
        lowest = xp.take_along_axis(f, xp.argmax(xp.astype(low, xp.int8), axis=1)[:, None], axis=1)
        mean = xp.where(low, xp.minimum(lowest + (mean - lowest) * share, mean), mean)
    return mean
