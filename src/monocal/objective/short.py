"""Calibrated rows, cut short: all that a second map needs which moves a row as a whole, or its top class.

    depth_i = f_top - f_i      of the highest ranks, up to 32
    rest                       the classes below, as ``count`` classes at one depth:  count exp(-depth) = their mass,
                               depth = their mean depth under it

So a second map ``W f + A 1[top]`` has the right value and slope at ``W = 1``, wherever the classes of the rest lie, and with no
more than 32 classes it is exact. Short rows are few numbers a row: they are gathered in memory wherever the rows live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ..arrays import Array, array_namespace, to_numpy
from ..kernel.block import Block
from ..kernel.choice import ARRAY
from ..kernel.point import Point, from_top, parameters
from ..kernel.tail import tail_moments
from ..kernel.totals import DEPTH, HEIGHT, MASS
from ..ranks.ranked import Ranked, Rest, Tail
from ..ranks.ties import average_ties
from ..rows.interface import Rows
from ..rows.memory import MemoryRows

RANKS = 32
# Rows to gather at the most. Of more, one in so many is taken.
_MOST_ROWS = 2**20
# A depth at which a class has no probability in double precision.
_NOTHING = 600.0


@dataclass(frozen=True)
class ShortRows:
    """Calibrated rows in memory, in double precision. They add: one block's after another's."""

    depth: np.ndarray  # (n, R), falling to 0 at the top; infinite where there is no class
    rest_depth: np.ndarray  # (n,)
    rest_count: np.ndarray  # (n,)
    label_depth: np.ndarray  # (n,)
    own_depth: (
        np.ndarray
    )  # (n,), mean depth under what the classifier itself says, and its probability of the top
    own_top: np.ndarray  # (n,)
    n_top: np.ndarray  # (n,), classes that share the top
    weight: np.ndarray  # (n,)
    top_class: np.ndarray  # (n,)
    context: np.ndarray  # (n, C)

    def __add__(self, other: ShortRows) -> ShortRows:
        return ShortRows(
            *(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self))
        )

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
        """What the classifier itself says, for `RankCone.leaning_on`: all that is below the top at the lowest rank."""
        (block,) = rows.blocks
        assert block.factors is not None
        share = to_numpy(block.factors).T * (self.weight / self.weight.sum())
        height = to_numpy(block.rows.height)
        own = np.zeros((3, len(share), rows.n_ranks))
        own[DEPTH, :, 0] = share @ self.own_depth
        own[HEIGHT, :, 0], own[HEIGHT, :, -1] = (
            share @ (height * q) for q in (1.0 - self.own_top, self.own_top)
        )
        own[MASS, :, 0], own[MASS, :, -1] = (share @ q for q in (1.0 - self.own_top, self.own_top))
        return own

    def log_odds(self) -> np.ndarray:
        """Logarithm of the odds of the top class, (n,)."""
        second = np.where(np.isinf(self.depth[:, -2]), 0.0, self.depth[:, -2])
        with np.errstate(under="ignore", divide="ignore"):
            others = np.exp(second[:, None] - self.depth[:, :-1]).sum(axis=1)
            others += self.rest_count * np.exp(second - self.rest_depth)
        return np.where(others > 0, second - np.log(np.maximum(others, 1e-300)), 0.0)

    def rows(self, statistics: np.ndarray, factors: Callable[[Array], Array]) -> MemoryRows:
        """Rows for the solver, with factors computed from their statistics (n, S)."""
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
        at_top = self.label_depth == 0
        held = np.where(at_top, np.minimum(self.n_top, r), 1)
        rank = np.where(at_top, r - held, 0)
        size = np.where(at_top, self.n_top, 1)
        block = Block(ARRAY, ranked, self.weight, self.label_depth, rank, held, size, statistics)
        return MemoryRows([block]).with_factors(factors)


def shorten(rows: Rows, point: Point, own_scales: Sequence[tuple[float, float]]) -> ShortRows:
    """Rows calibrated by the parameters of ``point``, cut short; ``own_scales`` as `RankCone` has them."""
    return rows.sum(_shorten, point, own_scales, -(-rows.n_rows // _MOST_ROWS))


def _shorten(block: Block, point: Point, own_scales: Sequence[tuple[float, float]], step: int) -> ShortRows:
    if step > 1:
        block = block.every(step)
    block = block.in_double() if isinstance(block.weight, np.ndarray) else block
    rows, v = block.rows, block.rows.depth
    xp = array_namespace(v)
    f = from_top(block, point, v)
    shift = None
    if average_ties(f, rows, point.jumps):  # a tied top has come down to the mean of its group
        shift = xp.asarray(f[:, -1:], copy=True)
        f -= shift
    kept = min(RANKS, v.shape[1])
    with np.errstate(under="ignore"):
        depth, below = -f[:, -kept:], f[:, :-kept]
        mass, first = xp.exp(below), -below * xp.exp(below)
        if rows.valid is not None:
            depth = xp.where(rows.valid[:, -kept:], depth, xp.inf + 0 * depth)
            mass, first = (xp.where(rows.valid[:, :-kept], x, 0 * x) for x in (mass, first))
        mass, first = xp.sum(mass, axis=1), xp.sum(first, axis=1)
        weights, base = parameters(block, point, v)
        scale, base = -sum(w[:, 0] for w in weights), base[:, 0]
        if shift is not None:
            base = base - shift[:, 0]
        if rows.tail is not None:
            tail = tail_moments(block, point, f, shift, 2)
            mass, first = mass + tail[0], first + scale * tail[1] - base * tail[0]
    rank = xp.astype(block.label_rank, xp.int64)
    label = -xp.take_along_axis(f, rank[:, None], axis=1)[:, 0]
    if rows.tail is not None:
        label = xp.where(block.label_depth > rows.height, scale * block.label_depth - base, label)
    at_top = f == 0
    n_top = xp.sum(xp.astype(at_top, xp.int64), axis=1)
    own_depth, own_top = 0 * block.weight, 0 * block.weight
    for share, own_scale in own_scales:
        plain = np.zeros_like(point.weights)
        plain[0] = own_scale
        one = replace(point, weights=plain, biases=0 * plain, _shared={})
        with np.errstate(under="ignore"):
            e = from_top(block, one, v)
            tail = [0 * label] * 2 if rows.tail is None else tail_moments(block, one, e, None, 2)
            e = xp.exp(e)
            if rows.valid is not None:
                e = xp.where(rows.valid, e, 0 * e)
            total = xp.sum(e, axis=1) + tail[0]
            drop = xp.sum(xp.where(e > 0, -f * e, 0 * e), axis=1) + scale * tail[1] - base * tail[0]
            own_depth = own_depth + share * drop / total
            own_top = own_top + share * xp.sum(xp.where(at_top, e, 0 * e), axis=1) / total
    found = [to_numpy(x) for x in (depth, mass, first, label, own_depth, own_top, block.weight)]
    depth_, mass_, first_, label_, own_depth_, own_top_, weight = (x.astype(np.float64) for x in found)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        mean = np.where(mass_ > 0, first_ / mass_, 0.0)
        some = (mass_ > 0) & (mean < _NOTHING)
        count = np.where(some, mass_ * np.exp(np.where(some, mean, 0.0)), 0.0)
    none = np.zeros((len(weight), 0))
    return ShortRows(
        np.maximum(depth_, 0.0) + 0.0,
        np.where(some, np.maximum(mean, 0.0), 0.0),
        count,
        np.maximum(label_, 0.0) + 0.0,
        np.maximum(own_depth_, 0.0) + 0.0,
        own_top_,
        to_numpy(n_top),
        weight,
        np.full(len(weight), -1) if block.top_class is None else block.top_class,
        none if block.context is None else block.context,
    )
