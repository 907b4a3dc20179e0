"""Calibrated rows, cut short. A second map that moves a row as a whole, or its top class, needs no more.

    depth_i = f_top - f_i      of the highest ranks, up to 32
    rest                       the classes below, as ``count`` classes at one depth:  count exp(-depth) = their mass,
                               depth = their mean depth under it

So a second map ``W f + A 1[top]`` has the right value and slope at ``W = 1``, wherever the classes of the rest lie, and with no
more than 32 classes it is exact. Short rows are few numbers per row: they are gathered in memory, wherever the rows live, or stay
on their device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    beside,
    clip_,
    count_true,
    device_of,
    exp_,
    like,
    on_host,
    to_numpy,
    to_numpy_together,
)
from ..column_sums import sums_along
from ..core.ranked import Ranked, Rest, Tail
from ..engines.block import Block
from ..engines.choice import engine_for
from ..engines.point import Point, from_top, parameters
from ..engines.runs import IN_RUNS, at_point
from ..engines.tail import tail_moments
from ..engines.totals import DEPTH, HEIGHT, MASS
from ..inputs.gathered import Gathered
from ..inputs.interface import Rows
from ..inputs.memory import MemoryRows
from ..inputs.sampling import DOUBLE_BELOW
from ..parallel import rows_of_size

RANKS = 32
# The largest number of rows to gather: a fit of them takes about 2 kB a row. Of more rows, one in so many is taken.
_MOST_ROWS = 2**18
# Numbers in a block of short rows.
_BLOCK = 2**17
# A depth at which a class has no probability in double precision.
_NOTHING = 600.0
# The same at every scale that groups may have.
_BEYOND = 1e6
# A probability whose logarithm single precision still knows.
_SMALL = 1e-30


def squared(weight: np.ndarray) -> np.ndarray:
    """What rows of these weights (n,) add to a variance: the squares. But a row of weight 1/k is a part of a row.

    The other parts may say the same, as where a row was held out k times, so such rows count as their weights.
    """
    squares: np.ndarray = weight * np.maximum(weight, 1.0)
    return squares


@dataclass(frozen=True)
class ShortRows:
    """Calibrated rows in double precision: on the device where the rows live, else in numpy. Below the line always in numpy."""

    depth: Array  # (n, R), falling to 0 at the top; infinite where there is no class
    rest_depth: Array  # (n,)
    rest_count: Array  # (n,)
    label_depth: Array  # (n,)
    own_depth: Array  # (n,), mean depth under what the classifier itself says
    own_top: Array  # (n,), its probability of the top
    # ---
    n_top: np.ndarray  # (n,), classes that share the top
    weight: np.ndarray  # (n,)
    top_class: np.ndarray  # (n,)
    context: np.ndarray  # (n, C)

    @classmethod
    def join(cls, parts: Sequence[ShortRows]) -> ShortRows:
        """The rows of several, one after another."""
        if len(parts) == 1:
            return parts[0]

        def joined(arrays: list[Any]) -> Any:
            return array_namespace(arrays[0]).concat(arrays, axis=0)

        return cls(*(joined([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def __len__(self) -> int:
        return len(self.weight)

    def of(self, chosen: np.ndarray) -> ShortRows:
        """Those of the rows where ``chosen`` (n,) is true."""
        if chosen.all():
            return self
        index = np.flatnonzero(chosen)
        there = beside(index, self.depth)
        parts = (getattr(self, f.name) for f in fields(self))
        return ShortRows(*(x[index if isinstance(x, np.ndarray) else there] for x in parts))

    def scaled(self, scale: np.ndarray | float) -> ShortRows:
        """The same rows with all logits multiplied by a number, or by one for each row, (n,)."""
        each = self._each(scale)
        return replace(
            self,
            depth=self.depth * each,
            rest_depth=self.rest_depth * each[:, 0],
            label_depth=self.label_depth * each[:, 0],
            own_depth=self.own_depth * each[:, 0],
        )

    def _each(self, scale: np.ndarray | float) -> Array:
        """Scales beside the depths, (n or 1, 1)."""
        return like(np.reshape(np.asarray(scale, dtype=np.float64), (-1, 1)), self.depth)

    def moments(self, scale: np.ndarray | float, own_share: float) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature of each row's negative log-likelihood in its scale, (n,) each.

        The label gives a share to what the classifier itself says, as in `RankCone`.
        """
        xp = array_namespace(self.depth)
        v, each = self._finite, self._each(scale)
        with np.errstate(under="ignore"):
            p = exp_(v * -each)
            rest = self.rest_count * xp.exp(-self.rest_depth * each[:, 0])
            total = sums_along(p) + rest
            p *= v
            mean = (sums_along(p) + rest * self.rest_depth) / total
            p *= v
            square = (sums_along(p) + rest * self.rest_depth**2) / total
        target = (1.0 - own_share) * self.label_depth + own_share * self.own_depth
        slope, curvature = to_numpy_together([target - mean, xp.clip(square - mean**2, min=0.0)])
        return slope, curvature

    @cached_property
    def _finite(self) -> Array:
        """Depths (n, R), and where there is no class one at which it has no probability at any scale."""
        return array_namespace(self.depth).minimum(self.depth, 0 * self.rest_depth[:, None] + _BEYOND)

    def prior_targets(self, rows: MemoryRows) -> np.ndarray:
        """What the classifier itself says, for `RankCone.leaning_on`: all that is below the top at the lowest rank.

        No row may share its top among several classes, as in `rows`.
        """
        xp = array_namespace(self.depth)
        share = xp.concat([xp.astype(block.factors, xp.float64) for block in rows.blocks])
        share *= like(self.weight / self.weight.sum(), self.depth)[:, None]
        height = xp.concat([xp.astype(block.rows.height, xp.float64) for block in rows.blocks])
        parts = [self.own_depth]
        for q in (1.0 - self.own_top, self.own_top):
            parts += [height * q, q]
        depth, *rest = to_numpy(share.T @ xp.stack(parts, axis=1)).T
        own = np.zeros((3, share.shape[1], rows.n_ranks))
        own[DEPTH, :, 0] = depth
        (own[HEIGHT, :, 0], own[MASS, :, 0], own[HEIGHT, :, -1], own[MASS, :, -1]) = rest
        return own

    def log_odds(self) -> np.ndarray:
        """Logarithm of the odds of the top class, (n,)."""
        xp = array_namespace(self.depth)
        second = xp.where(xp.isinf(self.depth[:, -2]), 0 * self.rest_depth, self.depth[:, -2])
        with np.errstate(under="ignore", divide="ignore"):
            others = sums_along(exp_(second[:, None] - self.depth[:, :-1]))
            others = others + self.rest_count * xp.exp(xp.clip(second - self.rest_depth, max=0.0))
        return to_numpy(xp.where(others > 0, second - xp.log(xp.clip(others, min=1e-300)), 0 * second))

    def rows(self, statistics: np.ndarray, factors: Callable[[Array], Array]) -> MemoryRows:
        """Rows for the solver, with factors computed from their statistics (n, S). Each must have one class on top.

        On a device in single precision, which its kernels take; but the number of a rest may be larger than that holds.
        """
        xp = array_namespace(self.depth)
        valid = ~xp.isinf(self.depth)
        masked = not bool(xp.all(valid))
        height = xp.max(xp.where(valid, self.depth, 0 * self.rest_depth[:, None]), axis=1)
        depth = xp.where(valid, self.depth, 2.0 * height[:, None] + 1.0) if masked else self.depth
        rest = Rest(xp.maximum(self.rest_depth, height), self.rest_count)
        label_depth, weight = self.label_depth, like(self.weight, self.depth)
        if isinstance(depth, np.ndarray):
            depth = np.asfortranarray(depth)  # rank by rank, as its engine wants them
        else:
            single = [xp.astype(x, xp.float32) for x in (depth, height, label_depth, weight)]
            depth, height, label_depth, weight = single
        has_rest = bool(xp.any(self.rest_count > 0))
        r = depth.shape[1]
        # A label below the top may be at any rank but the top: nothing begins between.
        rank = xp.astype(label_depth == 0, xp.int64) * (r - 1)
        nothing = xp.zeros_like(rank)
        ranked = Ranked(
            depth=depth,
            height=height,
            top=xp.zeros_like(height)[:, None],
            valid=valid if masked else None,
            tail=Tail(None, nothing, False, rest) if has_rest else None,
            n_classes=r + (1 if has_rest else 0),
            tied=np.append(False, to_numpy(xp.any(depth[:, 1:] == depth[:, :-1], axis=0))),
        )
        values = like(statistics, depth)
        block = Block(engine_for(depth), ranked, weight, label_depth, rank, nothing + 1, nothing + 1, values)
        return MemoryRows(_for_the_cache(block) if on_host(depth) else [block]).with_factors(factors)


def _for_the_cache(block: Block) -> list[Block]:
    """The same rows in blocks of which a core's cache holds several arrays, rank by rank as the engine reads them."""
    size = rows_of_size(_BLOCK, block.rows.depth.shape[1])
    ends = np.append(np.arange(size, block.n_rows, size), block.n_rows)
    parts = block.split(ends)
    return [replace(b, rows=replace(b.rows, depth=np.asfortranarray(b.rows.depth))) for b in parts]


def shorten(rows: Rows, point: Point, prior_scales: Sequence[tuple[float, float]]) -> ShortRows:
    """Rows calibrated by the parameters of ``point``, cut short; ``prior_scales`` as `RankCone` has them.

    Among many rows, what the classifier itself says hardly counts: it is computed from the ranks that are kept.
    """
    whole = rows.n_rows * rows.n_classes <= DOUBLE_BELOW
    found: Gathered[ShortRows] = rows.sum(_shorten, point, prior_scales, whole, -(-rows.n_rows // _MOST_ROWS))
    return ShortRows.join(found.parts)


def _shorten(
    block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], whole: bool, step: int
) -> Gathered[ShortRows]:
    if step > 1:
        block = block.every(step)
    rows, v = block.rows, block.rows.depth
    xp = array_namespace(v)
    arrays: list[Any]
    r = v.shape[1]
    # Below the ranks that are kept, sums by piece will do, unless tied ranks share a value across pieces.
    across = rows.tied is None or bool(rows.tied[point.jumps].any())
    kept = r if whole and across else min(RANKS, r)
    cut = None if whole else block.engine.shorten(block, point, kept, prior_scales)
    if cut is not None:
        arrays = [cut.depth, cut.mass, cut.first, cut.label, cut.own_depth, cut.own_top]
        return Gathered((_cut_short(block, cut.n_top, *arrays),))
    with np.errstate(under="ignore"):
        pieces, mass, first = _Pieces.of(block, point), 0 * block.weight, 0 * block.weight
        depth = pieces.depths(v[:, -kept:], r - kept)
        if across or kept < r or rows.tail is not None:
            p, _, shift, tail = block.engine.exponentials(block, point)
            pieces = pieces.shifted(shift)
            if kept < r:
                mass, first = pieces.sums_below(block, p, r - kept)
            if tail is not None:
                mass, first = mass + tail[0], first + pieces.depth_of(tail[1], tail[0], 0)
            if across:
                depth = _depths_of(p[:, -kept:], pieces.depths(v[:, -kept:], r - kept))
        if rows.valid is not None:
            depth = xp.where(rows.valid[:, -kept:], depth, xp.inf + 0 * depth)
        own_depth, own_top = _own(block, depth, prior_scales, pieces, whole)
    rank = xp.astype(block.label_rank, xp.int64)
    inside = xp.clip(rank - (r - kept), min=0)
    label = xp.take_along_axis(depth, inside[:, None], axis=1)[:, 0]
    if kept < r:
        lower = pieces.depth_of(block.label_depth, xp.ones_like(block.label_depth), rank)
        label = xp.where(rank >= r - kept, label, lower)
    if rows.tail is not None:
        of_tail = pieces.depth_of(block.label_depth, xp.ones_like(block.label_depth), 0)
        label = xp.where(block.label_depth > rows.height, of_tail, label)
    n_top = xp.sum(xp.astype(v == 0, xp.int64), axis=1)
    if rows.tail is not None:
        n_top = n_top + xp.where(rows.height == 0, xp.astype(rows.tail.ties, xp.int64), 0 * n_top)
    arrays = [depth, mass, first, label, own_depth, own_top]
    if on_host(depth):
        arrays = [to_numpy(x) for x in arrays]
    arrays = [array_namespace(x).astype(x, array_namespace(x).float64) for x in arrays]
    return Gathered((_cut_short(block, to_numpy(n_top), *arrays),))


def _shorten_each(
    block: Block,
    ends: np.ndarray,
    point: Point,
    prior_scales: Sequence[tuple[float, float]],
    whole: bool,
    step: int,
) -> Gathered[ShortRows]:
    """The same of blocks that lie one after another: every row is cut short alone, but each block begins to count anew."""
    if step > 1:
        block = block[np.concatenate([np.arange(i, j, step) for i, j in pairwise([0, *ends])])]
    return _shorten(block, point, prior_scales, whole, 1)


IN_RUNS[_shorten] = at_point(_shorten_each)


def _cut_short(
    block: Block,
    n_top: np.ndarray,
    depth: Array,
    mass: Array,
    first: Array,
    label: Array,
    own_depth: Array,
    own_top: Array,
) -> ShortRows:
    """The highest ranks as they are, all others as a rest; ``mass`` and ``first`` are of what lies below ``depth`` already."""
    xp = array_namespace(depth)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        if depth.shape[1] > RANKS:
            lower = depth[:, :-RANKS]
            e = xp.exp(-lower)
            mass = mass + xp.sum(e, axis=1)
            first = first + xp.sum(xp.where(xp.isinf(lower), 0 * e, e * lower), axis=1)
            depth = depth[:, -RANKS:]
        none = 0 * mass
        mean = xp.where(mass > 0, first / mass, none)
        some = (mass > 0) & (mean < _NOTHING)
        count = xp.where(some, mass * xp.exp(xp.where(some, mean, none)), none)
    n = len(n_top)
    return ShortRows(
        _not_negative_(depth),
        xp.where(some, xp.clip(mean, min=0.0), none),
        count,
        _not_negative_(label),
        _not_negative_(own_depth),
        own_top,
        n_top,
        to_numpy(block.weight).astype(np.float64),
        np.full(n, -1) if block.top_class is None else block.top_class,
        np.zeros((n, 0)) if block.context is None else block.context,
    )


def _not_negative_(x: Array) -> Array:
    """Depths without what rounding has left below 0, laid out as they were."""
    return clip_(x, 0.0, np.inf) + 0.0


@dataclass(frozen=True)
class _Pieces:
    """Weight and base of each piece between jumps: a class at depth ``v`` has the calibrated depth ``w v - base``."""

    starts: np.ndarray  # (D,)
    weight: Array  # (n or 1, D), in double precision
    base: Array  # (n, D)

    @classmethod
    def of(cls, block: Block, point: Point) -> _Pieces:
        v = block.rows.depth
        xp = array_namespace(v)
        weights, base = parameters(block, point, v)
        leading, *rest = (xp.astype(w, xp.float64) for w in weights)
        weight = -leading
        for part in rest:
            weight = weight - part
        return cls(np.append(0, point.jumps), weight, xp.astype(base, xp.float64))

    def shifted(self, shift: Array | None) -> _Pieces:
        """The same below a top that has come down by ``-shift`` (n, 1) to the mean of its group."""
        return self if shift is None else replace(self, base=self.base - shift)

    def depth_of(self, v: Array, share: Array, rank: Any) -> Array:
        """``w v - base share`` (n,) at a rank of each row, or of all."""
        xp = array_namespace(self.base)
        if isinstance(rank, int):
            piece = int(np.searchsorted(self.starts, rank, side="right")) - 1
            return self.weight[:, piece] * v - self.base[:, piece] * share
        edges = xp.asarray(self.starts[1:], **device_of(self.base))
        pieces = xp.sum(xp.astype(rank[:, None] >= edges, xp.int64), axis=1)[:, None]
        weight = self.weight + 0 * self.base
        w, b = (xp.take_along_axis(x, pieces, axis=1)[:, 0] for x in (weight, self.base))
        return w * v - b * share

    def sums_below(self, block: Block, p: Array, cut: int) -> tuple[Array, Array]:
        """Mass and mass times depth of the ranks below ``cut``, (n,) each; ``p`` may have these alone."""
        xp = array_namespace(p)
        starts = np.union1d(self.starts, cut)
        starts = starts[starts < p.shape[1]]
        mass, first = block.engine.piece_moments(p, block.rows.depth[:, : p.shape[1]], starts, 2)
        d = int(np.searchsorted(self.starts, cut))  # pieces that begin below
        mass, first = mass[:, :d], first[:, :d]
        depth = self.weight[:, :d] * first - self.base[:, :d] * mass
        return xp.sum(mass, axis=1), xp.sum(depth, axis=1)

    def depths(self, v: Array, cut: int) -> Array:
        """Depths (n, r - cut) of the ranks from ``cut`` on, tied ranks across pieces apart."""
        xp = array_namespace(v)
        piece = np.searchsorted(self.starts, np.arange(cut, cut + v.shape[1]), side="right") - 1
        return self.weight[:, piece] * xp.astype(v, xp.float64) - self.base[:, piece]


def _depths_of(p: Array, far: Array) -> Array:
    """Depths from ``p``, which is the same for tied ranks; where that is too small, ``far``."""
    xp = array_namespace(p)
    p = xp.astype(p, xp.float64)
    near = p > _SMALL
    return xp.where(near, -xp.log(xp.where(near, p, xp.ones_like(p))), far)


def _own(
    block: Block, depth: Array, prior_scales: Sequence[tuple[float, float]], pieces: _Pieces, whole: bool
) -> tuple[Array, Array]:
    """Mean depth and probability of the top under what the classifier itself says, (n,) each.

    From the ranks of ``depth`` or, where the whole row counts, from those below as well.
    """
    xp = array_namespace(depth)
    valid = block.rows.valid
    finite = depth if valid is None else xp.where(xp.isinf(depth), xp.zeros_like(depth), depth)
    own_depth = own_top = xp.zeros_like(depth[:, 0])
    below = block.rows.depth.shape[1] - depth.shape[1]
    v = block.rows.depth[:, below:]
    at_top = xp.astype(count_true(v == 0), depth.dtype)
    for share, scale in prior_scales:
        e = exp_(xp.astype(v, depth.dtype) * -scale)
        if valid is not None:
            e *= xp.astype(valid[:, below:], e.dtype)
        total, drop = sums_along(e), sums_along(finite * e)
        if whole and below:
            lower = block.rows.depth[:, :below]
            said = xp.exp(-scale * xp.astype(lower, depth.dtype))
            if valid is not None:
                said *= xp.astype(valid[:, :below], said.dtype)
            mass, first = pieces.sums_below(block, said, below)
            total, drop = total + mass, drop + first
        if block.rows.tail is not None:
            n_factors = 1 if block.factors is None else block.factors.shape[1]
            point = Point.of_scale((n_factors, block.rows.depth.shape[1]), scale)
            tail = tail_moments(block, point, from_top(block, point, block.rows.depth), None, 2)
            total, drop = total + tail[0], drop + pieces.depth_of(tail[1], tail[0], 0)
        own_depth = own_depth + share * drop / total
        own_top = own_top + share * at_top / total
    return own_depth, own_top
