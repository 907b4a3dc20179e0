"""Tied ranks share one value: the mean of what the map gives them.

The mean lies between its neighbours, so the order stands, and it does not depend on how the sort placed equal values.
Between two jumps of the map the value is linear in the logit, so ties matter only where a jump falls inside a group of them.

An atom that starts inside a group of L counts there as its mean: h = (ranks of the group from its start on) / L. Two atoms in
one group of probability P have the mean product ``P h_a h_b``, not ``P min(h_a, h_b)``, which it is where no ranks are tied.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Array, array_namespace, device_of, like, running_maximum, to_numpy
from .engine import SCALE, Block, Point
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


def average_ties(f: Array, rows: Ranked, jumps: np.ndarray, least: float | None = None) -> bool:
    """Give tied ranks one value, the mean of theirs; it lies between its neighbours, so the order stands.

    ``f`` (n, r) is linear in the logit between the ranks in ``jumps``, so ties need care only where one of these falls
    inside a group of equal values. Groups below ``least`` may be left out. Changes ``f`` in place, and says whether it did.
    """
    xp = array_namespace(f)
    jumps = jumps[jumps > 0]
    if rows.tied is not None:
        jumps = jumps[rows.tied[jumps]]
    if not len(jumps):
        return False
    split = rows.depth[:, jumps] == rows.depth[:, jumps - 1]
    if least is not None:
        split = split & (f[:, jumps] > least)
    index = xp.nonzero(xp.any(split, axis=1))[0]
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
        kept = xp.astype(xp.count_nonzero(low, axis=1), f.dtype)
        share = (kept / (kept + xp.astype(rows.tail.ties, f.dtype)))[:, None]
        lowest = xp.take_along_axis(f, xp.argmax(xp.astype(low, xp.int8), axis=1)[:, None], axis=1)
        mean = xp.where(low, xp.minimum(lowest + (mean - lowest) * share, mean), mean)
    return mean


def few(n_tied: int, n_rows: int) -> bool:
    """Whether so few rows have ties at a start that they do not matter for a step."""
    return 20 * n_tied < n_rows


def within_ties(block: Block, point: Point, p: Array) -> np.ndarray | float:
    """What products of atoms (a, a) count too much where no ranks are tied, from probabilities times weights ``p`` (r, n)."""
    rows = block.rows
    xp = array_namespace(p)
    starts, at, _ = point.columns
    inner = starts[1:] if rows.tied is None else starts[1:][rows.tied[starts[1:]]]
    if not len(inner):
        return 0.0
    split = rows.depth[:, inner] == rows.depth[:, inner - 1]
    total: np.ndarray | float = 0.0
    if few(int(xp.sum(xp.any(split, axis=1))), block.n_rows):
        return total
    index = xp.nonzero(xp.any(split & (p[inner].T > 0), axis=1))[0]  # not where all that ties is hidden
    chunk = max(1, 2**24 // len(at) ** 2)
    block = replace(block, rows=rows.in_use())
    for begin in range(0, index.shape[0], chunk):
        total = total + _ties_of_rows(
            block[index[begin : begin + chunk]], point, p[:, index[begin : begin + chunk]].T, starts, at
        )
    return total


def _ties_of_rows(block: Block, point: Point, p: Array, starts: np.ndarray, at: np.ndarray) -> np.ndarray:
    rows = block.rows
    xp = array_namespace(p)
    first, last = (x[:, starts] for x in tie_bounds(rows.depth))
    size = xp.astype(last - first + 1, p.dtype)
    if rows.tail is not None:
        lowest = rows.depth[:, starts] == rows.height[:, None]
        size = size + xp.astype(lowest, p.dtype) * xp.astype(rows.tail.ties, p.dtype)[:, None]
    rank = like(starts, p)
    share = (xp.astype(last, p.dtype) - rank + 1) / size
    inside = xp.astype(first, p.dtype) < rank
    u = rows.height[:, None] - rows.depth[:, starts]
    mass = p[:, starts] * size
    at_atoms = [x[:, at] for x in (first, share, inside, u, mass)]
    first, share, inside, u, mass = at_atoms
    factor = xp.where(like((point.kind == SCALE).astype(float), p) > 0, u, xp.ones_like(u))
    if block.factors is not None:
        factor = factor * block.factors[:, point.factor]
    factor = factor * xp.astype(inside, p.dtype)
    same = xp.astype(first[:, :, None] == first[:, None, :], p.dtype)
    one, other = share[:, :, None], share[:, None, :]
    excess = mass[:, :, None] * xp.minimum(one, other) * (1.0 - xp.maximum(one, other))
    return to_numpy(xp.sum(same * excess * factor[:, :, None] * factor[:, None, :], axis=0)).astype(
        np.float64
    )
