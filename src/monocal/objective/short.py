"""Calibrated rows, cut short. A second map that moves a row as a whole, or its top class, needs no more.

    depth_i = f_top - f_i      of the highest ranks, up to 32
    rest                       the classes below, as ``count`` classes at one depth:  count exp(-depth) = their mass,
                               depth = their mean depth under it

So a second map ``W f + A 1[top]`` has the right value and slope at ``W = 1``, wherever the classes of the rest lie, and with no
more than 32 classes it is exact. Short rows are few numbers per row: they are gathered in memory wherever the rows live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, device_of, to_numpy
from ..kernel.block import Block
from ..kernel.choice import ARRAY
from ..kernel.point import Point, from_top, parameters
from ..kernel.tail import tail_moments
from ..kernel.totals import DEPTH, HEIGHT, MASS
from ..ranks.ranked import Ranked, Rest, Tail
from ..rows.gathered import Gathered
from ..rows.interface import Rows
from ..rows.memory import MemoryRows
from ..rows.sampling import DOUBLE_BELOW

RANKS = 32
# The largest number of rows to gather. Of more rows, one in so many is taken.
_MOST_ROWS = 2**20
# A depth at which a class has no probability in double precision.
_NOTHING = 600.0
# A probability whose logarithm single precision still knows.
_SMALL = 1e-30


@dataclass(frozen=True)
class ShortRows:
    """Calibrated rows in memory, in double precision."""

    depth: np.ndarray  # (n, R), falling to 0 at the top; infinite where there is no class
    rest_depth: np.ndarray  # (n,)
    rest_count: np.ndarray  # (n,)
    label_depth: np.ndarray  # (n,)
    # (n,) each: mean depth under what the classifier itself says, and its probability of the top
    own_depth: np.ndarray
    own_top: np.ndarray
    n_top: np.ndarray  # (n,), classes that share the top
    weight: np.ndarray  # (n,)
    top_class: np.ndarray  # (n,)
    context: np.ndarray  # (n, C)

    @classmethod
    def join(cls, parts: Sequence[ShortRows]) -> ShortRows:
        """The rows of several, one after another."""
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def __len__(self) -> int:
        return len(self.weight)

    def of(self, chosen: np.ndarray) -> ShortRows:
        """Those of the rows where ``chosen`` (n,) is true."""
        return ShortRows(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def scaled(self, scale: np.ndarray) -> ShortRows:
        """The same rows with all logits multiplied by a number for each row, (n,)."""
        return replace(
            self,
            depth=self.depth * scale[:, None],
            rest_depth=self.rest_depth * scale,
            label_depth=self.label_depth * scale,
            own_depth=self.own_depth * scale,
        )

    def moments(self, scale: np.ndarray, own_share: float) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature of each row's negative log-likelihood in its scale, (n,) each.

        The label gives a share to what the classifier itself says, as in `RankCone`.
        """
        with np.errstate(under="ignore", invalid="ignore"):
            p = np.exp(-self.depth * scale[:, None])
            v = np.where(np.isinf(self.depth), 0.0, self.depth)
            rest = self.rest_count * np.exp(-self.rest_depth * scale)
            total = p.sum(axis=1) + rest
            pv = p * v
            mean = (pv.sum(axis=1) + rest * self.rest_depth) / total
            square = ((pv * v).sum(axis=1) + rest * self.rest_depth**2) / total
        target = (1.0 - own_share) * self.label_depth + own_share * self.own_depth
        return target - mean, np.maximum(square - mean**2, 0.0)

    def own_targets(self, rows: MemoryRows) -> np.ndarray:
        """What the classifier itself says, for `RankCone.leaning_on`: all that is below the top at the lowest rank.

        No row may share its top among several classes, as in `rows`.
        """
        (block,) = rows.blocks
        assert block.factors is not None
        share = to_numpy(block.factors).T * (self.weight / self.weight.sum())
        height = to_numpy(block.rows.height)
        own = np.zeros((3, len(share), rows.n_ranks))
        own[DEPTH, :, 0] = share @ self.own_depth
        for place, q in ((0, 1.0 - self.own_top), (-1, self.own_top)):
            own[HEIGHT, :, place], own[MASS, :, place] = share @ (height * q), share @ q
        return own

    def log_odds(self) -> np.ndarray:
        """Logarithm of the odds of the top class, (n,)."""
        second = np.where(np.isinf(self.depth[:, -2]), 0.0, self.depth[:, -2])
        with np.errstate(under="ignore", divide="ignore"):
            others = np.exp(second[:, None] - self.depth[:, :-1]).sum(axis=1)
            others += self.rest_count * np.exp(np.minimum(second - self.rest_depth, 0.0))
        return np.where(others > 0, second - np.log(np.maximum(others, 1e-300)), 0.0)

    def rows(self, statistics: np.ndarray, factors: Callable[[Array], Array]) -> MemoryRows:
        """Rows for the solver, with factors computed from their statistics (n, S). Each must have one class on top."""
        valid = ~np.isinf(self.depth)
        masked = not valid.all()
        height = np.where(valid, self.depth, 0.0).max(axis=1)
        depth = np.where(valid, self.depth, 2.0 * height[:, None] + 1.0) if masked else self.depth
        has_rest = bool((self.rest_count > 0).any())
        nothing = np.zeros(len(self), dtype=np.int64)
        rest = Rest(np.maximum(self.rest_depth, height), self.rest_count)
        n, r = depth.shape
        ranked = Ranked(
            depth=depth,
            height=height,
            top=np.zeros((n, 1)),
            valid=valid if masked else None,
            tail=Tail(None, nothing, False, rest) if has_rest else None,
            n_classes=r + (1 if has_rest else 0),
            tied=np.append(False, (depth[:, 1:] == depth[:, :-1]).any(axis=0)),
        )
        # A label below the top may be at any rank but the top: nothing begins between.
        rank = np.where(self.label_depth == 0, r - 1, 0)
        one = nothing + 1
        block = Block(ARRAY, ranked, self.weight, self.label_depth, rank, one, one, statistics)
        return MemoryRows([block]).with_factors(factors)


def shorten(rows: Rows, point: Point, own_scales: Sequence[tuple[float, float]]) -> ShortRows:
    """Rows calibrated by the parameters of ``point``, cut short; ``own_scales`` as `RankCone` has them.

    Among many rows, what the classifier itself says hardly counts: it is computed from the ranks that are kept.
    """
    whole = rows.n_rows * rows.n_classes <= DOUBLE_BELOW
    found: Gathered[ShortRows] = rows.sum(_shorten, point, own_scales, whole, -(-rows.n_rows // _MOST_ROWS))
    return ShortRows.join(found.parts)


def _shorten(
    block: Block, point: Point, own_scales: Sequence[tuple[float, float]], whole: bool, step: int
) -> Gathered[ShortRows]:
    if step > 1:
        block = block.every(step)
    rows, v = block.rows, block.rows.depth
    xp = array_namespace(v)
    r = v.shape[1]
    kept = r if whole else min(RANKS, r)
    with np.errstate(under="ignore"):
        p, _, shift, tail = block.engine.exponentials(block, point)
        pieces = _Pieces.of(block, point, shift)
        mass, first = 0 * block.weight, 0 * block.weight
        if kept < r:
            mass, first = pieces.sums_below(block, p, r - kept)
        if tail is not None:
            mass, first = mass + tail[0], first + pieces.depth_of(tail[1], tail[0], 0)
        depth = pieces.depths(v[:, -kept:], p[:, -kept:], r - kept)
        if rows.valid is not None:
            depth = xp.where(rows.valid[:, -kept:], depth, xp.inf + 0 * depth)
        own_depth, own_top = _own(block, depth, own_scales, pieces)
    rank = xp.astype(block.label_rank, xp.int64)
    inside = xp.clip(rank - (r - kept), min=0)
    label = pieces.depth_of(block.label_depth, xp.ones_like(block.label_depth), rank)
    label = xp.where(rank >= r - kept, xp.take_along_axis(depth, inside[:, None], axis=1)[:, 0], label)
    if rows.tail is not None:
        of_tail = pieces.depth_of(block.label_depth, xp.ones_like(block.label_depth), 0)
        label = xp.where(block.label_depth > rows.height, of_tail, label)
    n_top = xp.sum(xp.astype(v == 0, xp.int64), axis=1)
    if rows.tail is not None:
        n_top = n_top + xp.where(rows.height == 0, xp.astype(rows.tail.ties, xp.int64), 0 * n_top)
    found = (depth, mass, first, label, own_depth, own_top, block.weight)
    arrays = [to_numpy(x).astype(np.float64) for x in found]
    return Gathered((_cut_short(block, to_numpy(n_top), *arrays),))


def _cut_short(
    block: Block,
    n_top: np.ndarray,
    depth: np.ndarray,
    mass: np.ndarray,
    first: np.ndarray,
    label: np.ndarray,
    own_depth: np.ndarray,
    own_top: np.ndarray,
    weight: np.ndarray,
) -> ShortRows:
    """The highest ranks as they are, all others as a rest; ``mass`` and ``first`` are of what lies below ``depth`` already."""
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        if depth.shape[1] > RANKS:
            lower = depth[:, :-RANKS]
            e = np.exp(-lower)
            mass = mass + e.sum(axis=1)
            first = first + np.where(np.isinf(lower), 0.0, e * lower).sum(axis=1)
            depth = depth[:, -RANKS:]
        mean = np.where(mass > 0, first / mass, 0.0)
        some = (mass > 0) & (mean < _NOTHING)
        count = np.where(some, mass * np.exp(np.where(some, mean, 0.0)), 0.0)
    none = np.zeros((len(weight), 0))
    return ShortRows(
        np.maximum(depth, 0.0) + 0.0,
        np.where(some, np.maximum(mean, 0.0), 0.0),
        count,
        np.maximum(label, 0.0) + 0.0,
        np.maximum(own_depth, 0.0) + 0.0,
        own_top,
        n_top,
        weight,
        np.full(len(weight), -1) if block.top_class is None else block.top_class,
        none if block.context is None else block.context,
    )


@dataclass(frozen=True)
class _Pieces:
    """Weight and base of each piece between jumps: a class at depth ``v`` has the calibrated depth ``w v - base``."""

    starts: np.ndarray  # (D,)
    weight: Array  # (n or 1, D), in double precision
    base: Array  # (n, D)

    @classmethod
    def of(cls, block: Block, point: Point, shift: Array | None) -> _Pieces:
        v = block.rows.depth
        xp = array_namespace(v)
        weights, base = parameters(block, point, v)
        leading, *rest = (xp.astype(w, xp.float64) for w in weights)
        weight = -leading
        for part in rest:
            weight = weight - part
        base = xp.astype(base, xp.float64)
        return cls(np.append(0, point.jumps), weight, base if shift is None else base - shift)

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
        """Mass and mass times depth of the ranks below ``cut``, (n,) each."""
        xp = array_namespace(p)
        starts = np.union1d(self.starts, cut)
        mass, first = block.engine.piece_moments(p, block.rows.depth, starts)[:2]
        below = np.flatnonzero(starts < cut)
        piece = np.searchsorted(self.starts, starts[below], side="right") - 1
        mass, first = mass[:, below], first[:, below]
        depth = self.weight[:, piece] * first - self.base[:, piece] * mass
        return xp.sum(mass, axis=1), xp.sum(depth, axis=1)

    def depths(self, v: Array, p: Array, cut: int) -> Array:
        """Depths (n, r - cut) of the ranks from ``cut`` on, the same for tied ranks: from ``p``, where it is not too small."""
        xp = array_namespace(v)
        piece = np.searchsorted(self.starts, np.arange(cut, cut + v.shape[1]), side="right") - 1
        far = self.weight[:, piece] * xp.astype(v, xp.float64) - self.base[:, piece]
        p = xp.astype(p, xp.float64)
        near = p > _SMALL
        return xp.where(near, -xp.log(xp.where(near, p, xp.ones_like(p))), far)


def _own(
    block: Block, depth: Array, own_scales: Sequence[tuple[float, float]], pieces: _Pieces
) -> tuple[Array, Array]:
    """Mean depth and probability of the top under what the classifier itself says, (n,) each, from the ranks of ``depth``."""
    xp = array_namespace(depth)
    there, none = ~xp.isinf(depth), xp.zeros_like(depth)
    finite = xp.where(there, depth, none)
    own_depth, own_top = none[:, 0], none[:, 0]
    v = block.rows.depth[:, -depth.shape[1] :]
    for share, scale in own_scales:
        e = xp.where(there, xp.exp(-scale * xp.astype(v, depth.dtype)), none)
        total, drop = xp.sum(e, axis=1), xp.sum(finite * e, axis=1)
        if block.rows.tail is not None:
            plain = np.zeros(
                (1 if block.factors is None else block.factors.shape[1], block.rows.depth.shape[1])
            )
            plain[0] = scale
            empty = np.zeros(0, dtype=np.intp)
            point = Point(plain, 0 * plain, empty, empty, empty)
            tail = tail_moments(block, point, from_top(block, point, block.rows.depth), None, 2)
            total, drop = total + tail[0], drop + pieces.depth_of(tail[1], tail[0], 0)
        own_depth = own_depth + share * drop / total
        own_top = own_top + share * xp.sum(xp.where(v == 0, e, 0 * e), axis=1) / total
    return own_depth, own_top
