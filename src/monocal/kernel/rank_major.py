"""The engine for numpy in double precision: in memory, the depths of one rank in all rows stand side by side.

    f_i = w_d v_i + base_d,        rank i in piece d;        v_i, f_i, w_d, base_d of all rows, (n,) each

Rows are short and many. What is done rank by rank, or piece by piece, then runs over thousands of numbers in a line: parameters
of a piece, sums over the ranks of a row, and sums between the starts of a working set. Fresh memory from the system costs as
much as the arithmetic: large arrays are written into `room` that belongs to the thread, and the system is told to leave us ours.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..ranks.ranked import Ranked
from ..ranks.ties import average_ties
from .array import ArrayEngine, Exponentials
from .block import Block
from .curvature import covariance
from .interface import Sums
from .point import SCALE, Point
from .room import room
from .tail import tail_moments


class RankMajorEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    def takes(self, logits: Array, dtype: object) -> bool:
        return isinstance(logits, np.ndarray) and dtype == np.float64

    def _ranked(
        self, logits: Array, top_k: int | None, dtype: object, ordered: bool, into: np.ndarray | None
    ) -> Ranked:
        rows = super()._ranked(logits, top_k, dtype, ordered, into)
        return replace(rows, depth=np.asfortranarray(rows.depth))

    def sums(self, block: Block, point: Point) -> Sums:
        rows, weight = block.rows, np.asarray(block.weight)
        v = np.asarray(rows.depth).T
        with np.errstate(under="ignore"):
            p, total, shift, tail = self._exponentials_into(room("p", v.shape), block, point)
            value = np.dot(weight, np.log(total) if shift is None else np.log(total) + shift)
            share = weight / total  # makes probabilities of `p`, times the row's weight
            left = share[None]
            if block.factors is not None:
                psi = _factors(block, point.own)
                left = np.multiply(psi, share, out=room("left", psi.shape))
            part = left[:1] if point.whole_scales else left
            pv = np.multiply(p, v, out=room("pv", v.shape))
            depth = np.ones(len(v)) @ pv
            by_rank = np.concatenate([part @ pv.T, (part * rows.height) @ p.T, left @ p.T])
            if tail is not None:
                k = len(part)
                depth += tail[1]
                by_rank[:k, 0] += part @ tail[1]
                by_rank[k : 2 * k, 0] += part @ (tail[0] * rows.height)
                by_rank[2 * k :, 0] += left @ tail[0]
            hessian = (
                self._hessian(block, point, p, pv, share, tail) if len(point.start) else np.zeros((0, 0))
            )
        return Sums(float(value), by_rank, left[len(part) :] @ depth, hessian)

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        v = np.asarray(block.rows.depth).T
        with np.errstate(under="ignore"):
            p, total, _, tail = self._exponentials_into(room("p", v.shape), block, point)
            pv = np.multiply(p, v, out=room("pv", v.shape))
            return self._hessian(block, point, p, pv, np.asarray(block.weight) / total, tail)

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        v, valid = block.rows.depth.T, block.rows.valid
        ones = np.ones(len(v))
        with np.errstate(under="ignore"):
            p = np.multiply(v, -scale, out=room("p", v.shape))
            np.exp(p, out=p)
            if valid is not None:
                p *= valid.T
            total = ones @ p
            p *= v
            mean = (ones @ p) / total
            p *= v
            curvature = (ones @ p) / total - mean * mean
        return np.stack([np.log(total), mean, curvature]) @ block.weight

    def piece_moments(self, p: Array, v: Array, starts: np.ndarray, count: int = 3) -> list[Array]:
        moments: list[Array] = []
        for power in range(count):
            p = p * v if power else p
            moments.append(_between(np.asarray(p).T, starts).T)
        return moments

    def _exponentials(self, block: Block, point: Point) -> Exponentials:
        p, total, shift, tail = self._exponentials_into(np.empty(block.rows.depth.T.shape), block, point)
        return p.T, total, None if shift is None else shift[:, None], tail

    def _exponentials_into(
        self, f: np.ndarray, block: Block, point: Point
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[Array] | None]:
        """`exponentials` with ranks first: (r, n), written into ``f``; the shift is (n,)."""
        rows = block.rows
        v = rows.depth.T
        used, table = point.table
        if block.factors is None:
            weights, drops = table[0, 0], table[1:, 0]
        else:
            weights, *drops = table.transpose(0, 2, 1) @ _factors(block, None)[used]
        edges = point.pieces[0]
        for d, (begin, end) in enumerate(pairwise(edges)):
            piece = np.multiply(v[begin:end], weights[d], out=f[begin:end])
            if end < len(v):  # measured from the top, the uppermost piece has no base
                piece += drops[0][d] * rows.height + drops[1][d]
        shift = None
        if average_ties(f.T, rows, point.jumps):  # a tied top has come down to the mean of its group
            shift = f[-1].copy()
            f -= shift
        tail = None
        if rows.tail is not None:
            below = None if shift is None else shift[:, None]
            tail = tail_moments(block, point, f.T, below, 3 if len(point.start) else 2)
        np.exp(f, out=f)
        if rows.valid is not None:
            f *= rows.valid.T
        total = np.ones(len(v)) @ f
        if tail is not None:
            total += tail[0]
        return f, total, shift, tail

    def _hessian(
        self,
        block: Block,
        point: Point,
        p: np.ndarray,
        pv: np.ndarray,
        share: np.ndarray,
        tail: list[Array] | None,
    ) -> np.ndarray:
        """`curvature.hessian_of`. Changes ``pv``."""
        rows, height = block.rows, block.rows.height
        starts, _, column = point.columns
        lower = np.tril(np.ones((len(starts), len(starts))))
        mass, depth = _between(p, starts), _between(pv, starts)
        pv *= rows.depth.T
        alone = block.factors is None
        # Squares enter by their sums over rows; factors differ from row to row.
        square = np.add.reduceat(pv @ share, starts) if alone else _between(pv, starts)
        if tail is not None:
            mass[0] += tail[0]
            depth[0] += tail[1]
            square[0] += tail[2] @ share if alone else tail[2]
        mass *= share
        depth *= share
        below, depth = lower @ mass - mass, lower.T @ depth
        mean = np.concatenate([height * below + depth, below])[column]
        if alone:
            later = np.append(lower.T @ square - depth @ height, -depth.sum(axis=1))[column]
            products = (mean.sum(axis=1)[:, None], (mean @ height)[:, None], later[None])
        else:
            square *= share
            later = np.concatenate([lower.T @ square - height * depth, -depth])[column]
            factor = _factors(block, None)[point.factor]
            mean *= factor
            later *= factor
            scales = point.kind == SCALE  # the others take no part in the second and third product
            to_scale, from_scale = np.zeros((2, len(mean), len(mean)))
            to_scale[:, scales] = mean @ (factor[scales] * height).T
            from_scale[scales] = factor[scales] @ later.T
            products = (mean @ factor.T, to_scale, from_scale)
        found = covariance(point, *products, mean @ (mean / block.weight).T)
        if rows.tied is None or rows.tied[starts].any():
            found = found - self.within_ties(block, point, (p * share).T)
        return found


def _between(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``x`` (r, n) over the ranks from each start to the next, (D, n)."""
    ends = np.append(starts[1:], len(x))
    return np.stack([np.add.reduce(x[i:j], axis=0) for i, j in zip(starts, ends, strict=True)])


def _factors(block: Block, own: np.ndarray | None) -> np.ndarray:
    """All factors or some of them, one after another in memory, (K, n); made once for a block."""
    kept: dict[bytes | None, np.ndarray] = block.__dict__.setdefault("_by_factor", {})
    key = None if own is None else own.tobytes()
    if key not in kept:
        assert isinstance(block.factors, np.ndarray)
        kept[key] = np.ascontiguousarray((block.factors if own is None else block.factors[:, own]).T)
    return kept[key]


def _keep_freed_memory() -> None:
    """The C library of Linux keeps what is freed, unless it is much larger than any array that was freed before. One of 16 MiB,
    which is never touched, saves thousands of new pages in every fit."""
    np.empty(2**21)


_keep_freed_memory()
