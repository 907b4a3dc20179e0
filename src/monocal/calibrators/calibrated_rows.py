"""Rows after a first stage, of which only the highest ranks are kept: what a second stage is fitted on.

    depth_i = f_top - f_i      of the 32 highest ranks
    rest                       the classes below, as ``count`` classes at one depth:  count exp(-depth) = their mass,
                               depth = their mean depth under it

A second map ``W f + A 1[top]`` moves a row as a whole, or its top class. Its likelihood then has the right value and slope at
``W = 1`` wherever the classes of the rest lie, and is exact with at most 32 classes. These few numbers a row are gathered in
memory wherever the rows live, or stay on their device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    clip_,
    exp_,
    like,
    on_device_of,
    to_numpy,
    to_numpy_together,
)
from ..core.engine import DEPTH, HEIGHT, MASS, Block, Point
from ..core.ranked import Ranked, Rest, Tail
from ..core.rows import DOUBLE_BELOW, Rows, cut_for_the_cache
from ..engines import engine_for

RANKS = 32
# The largest number of rows to gather: a fit of them takes about 2 kB a row. Of more rows, one in so many is taken.
_MOST_ROWS = 2**18
# Numbers of calibrated rows that are worked on at a time.
_PART = 2**25
# A depth at which a class has no probability in double precision, and one at which it has none at any scale of a group.
_NOTHING, _BEYOND = 600.0, 1e6


def squared(weight: np.ndarray) -> np.ndarray:
    """What rows of these weights (n,) add to a variance: the squares. But a row of weight 1/k is a part of a row.

    The other parts may say the same, as where a row was held out k times, so such rows count as their weights.
    """
    squares: np.ndarray = weight * np.maximum(weight, 1.0)
    return squares


@dataclass(frozen=True)
class CalibratedRows:
    """Calibrated rows in double precision. The first six arrays stay on the device of the rows, the others are in numpy."""

    depth: Array  # (n, R), falling to 0 at the top; infinite where there is no class
    rest_depth: Array  # (n,)
    rest_count: Array  # (n,)
    label_depth: Array  # (n,)
    prior_depth: Array  # (n,), mean depth under the prior targets
    prior_top: Array  # (n,), their probability of the top
    n_top: np.ndarray  # (n,), classes that share the top
    weight: np.ndarray  # (n,)
    label_place: np.ndarray  # (n,): 0 where the label is on top, 1 where it is ranked second, else 2
    top_class: np.ndarray  # (n,)
    context: np.ndarray  # (n, C)

    @classmethod
    def of(cls, rows: Rows, point: Point, prior_scales: Sequence[tuple[float, float]]) -> CalibratedRows:
        """Rows calibrated by the parameters of ``point``; ``prior_scales`` as `RankCone` has them."""
        kept = rows.n_ranks if rows.n_rows * rows.n_classes <= DOUBLE_BELOW else min(RANKS, rows.n_ranks)
        parts = rows.sum(_of_block, point, prior_scales, kept, -(-rows.n_rows // _MOST_ROWS))
        columns = zip(*([getattr(part, f.name) for f in fields(cls)] for part in parts), strict=True)
        return cls(*(x[0] if len(x) == 1 else array_namespace(x[0]).concat(x, axis=0) for x in columns))

    def __getitem__(self, chosen: np.ndarray) -> CalibratedRows:
        """The rows where ``chosen`` (n,) is true."""
        if chosen.all():
            return self
        index = np.flatnonzero(chosen)
        there = on_device_of(index, self.depth)
        columns = (getattr(self, f.name) for f in fields(self))
        return CalibratedRows(*(x[index if isinstance(x, np.ndarray) else there] for x in columns))

    def scaled(self, scale: np.ndarray | float) -> CalibratedRows:
        """The same rows with all logits multiplied by a number, or by one for each row, (n,)."""
        each = like(np.reshape(np.asarray(scale, dtype=np.float64), (-1, 1)), self.depth)
        names = ("rest_depth", "label_depth", "prior_depth")
        return replace(
            self, depth=self.depth * each, **{name: getattr(self, name) * each[:, 0] for name in names}
        )

    def moments(self, scale: np.ndarray | float, prior_share: float) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature of each row's negative log-likelihood in its scale, (n,) each."""
        xp = array_namespace(self.depth)
        each = like(np.reshape(np.asarray(scale, dtype=np.float64), (-1, 1)), self.depth)
        # Where there is no class, a depth at which it has no probability at any scale.
        v, ones = xp.clip(self.depth, max=_BEYOND), xp.ones_like(self.depth[0, :])
        with np.errstate(under="ignore"):
            p = exp_(v * -each)
            rest = self.rest_count * xp.exp(-self.rest_depth * each[:, 0])
            total = p @ ones + rest
            p *= v
            mean = (p @ ones + rest * self.rest_depth) / total
            p *= v
            square = (p @ ones + rest * self.rest_depth**2) / total
        target = (1.0 - prior_share) * self.label_depth + prior_share * self.prior_depth
        slope, curvature = to_numpy_together([target - mean, xp.clip(square - mean**2, min=0.0)])
        return slope, curvature

    def log_odds(self) -> np.ndarray:
        """Logarithm of the odds of the top class, (n,)."""
        xp = array_namespace(self.depth)
        second = xp.where(xp.isinf(self.depth[:, -2]), 0 * self.rest_depth, self.depth[:, -2])
        with np.errstate(under="ignore", divide="ignore"):
            others = exp_(second[:, None] - self.depth[:, :-1]) @ xp.ones_like(self.depth[0, :-1])
            others = others + self.rest_count * xp.exp(xp.clip(second - self.rest_depth, max=0.0))
        return to_numpy(xp.where(others > 0, second - xp.log(xp.clip(others, min=1e-300)), 0 * second))

    def prior_targets(self, rows: Rows) -> np.ndarray:
        """The prior targets of `RankCone.leaning_on`, with all that is below the top at the lowest rank."""
        xp = array_namespace(self.depth)
        share = xp.concat([xp.astype(block.factors, xp.float64) for block in rows.blocks])
        share *= like(self.weight / self.weight.sum(), self.depth)[:, None]
        height = xp.concat([xp.astype(block.rows.height, xp.float64) for block in rows.blocks])
        low, top = 1.0 - self.prior_top, self.prior_top
        parts = [self.prior_depth, height * low, low, height * top, top]
        targets = np.zeros((3, share.shape[1], rows.n_ranks))
        places = (DEPTH, 0), (HEIGHT, 0), (MASS, 0), (HEIGHT, -1), (MASS, -1)
        for (kind, rank), sums in zip(places, to_numpy(share.T @ xp.stack(parts, axis=1)).T, strict=True):
            targets[kind, :, rank] = sums
        return targets

    def for_solver(self, statistics: np.ndarray, factors: Callable[[Array], Array]) -> Rows:
        """Rows for the solver, with factors computed from their statistics (n, S). Each must have one class on top."""
        xp = array_namespace(self.depth)
        valid = ~xp.isinf(self.depth)
        masked = not bool(xp.all(valid))
        height = xp.max(xp.where(valid, self.depth, 0 * self.rest_depth[:, None]), axis=1)
        depth = xp.where(valid, self.depth, 2.0 * height[:, None] + 1.0) if masked else self.depth
        rest = Rest(xp.maximum(self.rest_depth, height), self.rest_count)
        label_depth, weight = self.label_depth, like(self.weight, self.depth)
        if isinstance(depth, np.ndarray):
            depth = np.asfortranarray(depth)  # rank by rank, as its engine reads them
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
        return Rows.of_blocks(cut_for_the_cache(block.with_factors(factors)))


def _of_block(
    block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int, step: int
) -> tuple[CalibratedRows, ...]:
    """One row in ``step``, a few at a time, as a tuple: sums of tuples stand one after another."""
    block = block.every(step) if step > 1 else block
    n, size = block.n_rows, max(1, _PART // block.rows.depth.shape[1])
    parts = [block] if n <= size else [block[i : i + size] for i in range(0, n, size)]
    return tuple(_highest_ranks(part, point, prior_scales, kept) for part in parts)


def _highest_ranks(
    block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int
) -> CalibratedRows:
    """The highest ranks as they are, all others as a rest; without the numbers below 0 that rounding has left."""
    rows = block.engine.truncate(block, point, prior_scales, kept)
    depth, mass, first = rows.depth, rows.mass, rows.first
    xp = array_namespace(depth)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        if depth.shape[1] > RANKS:
            lower, depth = depth[:, :-RANKS], depth[:, -RANKS:]
            e = xp.exp(-lower)
            mass = mass + xp.sum(e, axis=1)
            first = first + xp.sum(xp.where(xp.isinf(lower), 0 * e, e * lower), axis=1)
        none = 0 * mass
        mean = xp.where(mass > 0, first / mass, none)
        has_rest = (mass > 0) & (mean < _NOTHING)
        count = xp.where(has_rest, mass * xp.exp(xp.where(has_rest, mean, none)), none)
    n = block.n_rows
    depth, label = (clip_(x, 0.0, np.inf) + 0.0 for x in (depth, rows.label))
    on_top, second = to_numpy(label == 0), to_numpy(label == depth[:, -2])
    return CalibratedRows(
        depth,
        xp.where(has_rest, xp.clip(mean, min=0.0), none),
        count,
        label,
        clip_(rows.prior_depth, 0.0, np.inf) + 0.0,
        rows.prior_top,
        rows.n_top,
        to_numpy(block.weight).astype(np.float64),
        np.where(on_top, 0, np.where(second, 1, 2)),
        np.full(n, -1) if block.top_class is None else block.top_class,
        np.zeros((n, 0)) if block.context is None else block.context,
    )
