"""The engine for numpy in double precision: in memory, the depths of one rank in all rows stand side by side.

    f_i = w_d v_i + base_d,        rank i in piece d;        v_i, f_i, w_d, base_d of all rows, (n,) each

Rows are short and many. What is done rank by rank, or piece by piece, then runs over thousands of numbers in a line: parameters
of a piece, sums over the ranks of a row, and sums between the starts of a working set. Fresh memory from the system costs as
much as the arithmetic: large arrays are written into scratch buffers of the thread, and the system is told to leave us ours.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..column_sums import sums_from, sums_up_to
from ..core.ranked import Ranked
from ..core.ties import average_ties
from .array import ArrayEngine, Exponentials
from .block import Block
from .curvature import covariance
from .interface import Sums
from .point import BIAS, SCALE, Point
from .scratch import scratch_buffer
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
            p, total, shift, tail = self._exponentials_into(scratch_buffer("p", v.shape), block, point)
            value = np.dot(weight, np.log(total) if shift is None else np.log(total) + shift)
            share = weight / total  # makes probabilities of `p`, times the row's weight
            psi = share[None]  # alone, the constant factor takes it along
            if block.factors is not None:
                psi = _factors(block, point.own)
                tail = _shared_out(p, tail, share)
            pv = np.multiply(p, v, out=scratch_buffer("pv", v.shape))
            part = psi[:1] if point.whole_scales else psi
            depth = np.ones(len(v)) @ pv
            by_rank = np.concatenate(
                [_products(part, pv), _products(part * rows.height, p), _products(psi, p)]
            )
            if tail is not None:
                k = len(part)
                depth += tail[1]
                by_rank[:k, 0] += part @ tail[1]
                by_rank[k : 2 * k, 0] += part @ (tail[0] * rows.height)
                by_rank[2 * k :, 0] += psi @ tail[0]
            hessian = (
                self._hessian(block, point, p, pv, tail, share) if len(point.start) else np.zeros((0, 0))
            )
        return Sums(float(value), by_rank, psi[len(part) :] @ depth, hessian)

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        v = np.asarray(block.rows.depth).T
        with np.errstate(under="ignore"):
            p, total, _, tail = self._exponentials_into(scratch_buffer("p", v.shape), block, point)
            share = np.asarray(block.weight) / total
            if block.factors is not None:
                tail = _shared_out(p, tail, share)
            pv = np.multiply(p, v, out=scratch_buffer("pv", v.shape))
            return self._hessian(block, point, p, pv, tail, share)

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        v, valid = block.rows.depth.T, block.rows.valid
        ones = np.ones(len(v))
        with np.errstate(under="ignore"):
            p = np.multiply(v, -scale, out=scratch_buffer("p", v.shape))
            np.exp(p, out=p)
            if valid is not None:
                p *= valid.T
            total = ones @ p
            p *= v
            mean = (ones @ p) / total
            p *= v
            curvature = (ones @ p) / total - mean * mean
        return np.stack([np.log(total), mean, curvature]) @ block.weight

    def information(
        self, block: Block, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        rows, weight = block.rows, np.asarray(block.weight)
        if rows.tail is not None:
            return None
        v, height = np.asarray(rows.depth).T, np.asarray(rows.height)
        with np.errstate(under="ignore", over="ignore"):
            p = np.multiply(v, -scale, out=scratch_buffer("p", v.shape))
            np.exp(p, out=p)
            if rows.valid is not None:
                p *= np.asarray(rows.valid).T
            p /= np.ones(len(v)) @ p
            below = np.asarray(sums_up_to(p.T)).T  # probability below each start
            below -= p
            p *= v
            first = np.asarray(sums_from(p.T)).T
            first += height * below
            p *= v
            square = np.ones((1, len(weight))) if block.factors is None else _factors(block, None) ** 2
            part = (square[:1] if whole_scales else square) * weight
            # Means of squares add up over the rows before they are added up over the ranks; squares of means do not.
            scales = sums_from(_products(part, p)) + _products(part * height**2, below)
            lowest = weight * (np.ones(len(v)) @ p - first[0] ** 2)
            first *= first
            variances = np.zeros((2, len(square), len(v)))
            variances[SCALE, : len(part)] = scales - _products(part, first)
            variances[SCALE, len(part) :, 0] = square[len(part) :] @ lowest
            errors = square @ (weight * below[-1])
            below *= weight * (1.0 - below)
            variances[BIAS] = _products(square, below)
        return float(weight.sum()), np.maximum(variances, 0.0), errors

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
        tail: list[Array] | None,
        share: np.ndarray,
    ) -> np.ndarray:
        """`curvature.hessian_of`; with factors, ``p`` has its share already. Changes ``pv``."""
        rows, height = block.rows, block.rows.height
        starts, _, column = point.columns
        below, depth = _sums_below(p, starts), _sums_from(pv, starts)
        pv *= rows.depth.T
        alone = block.factors is None
        # Squares enter by their sums over rows; factors differ from row to row.
        square = _sums_from(pv @ share if alone else pv, starts)
        if tail is not None:
            below[1:] += tail[0]
            depth[0] += tail[1]
            square[0] += tail[2] @ share if alone else tail[2]
        if alone:
            below *= share
            depth *= share
        mean = np.concatenate([height * below + depth, below])[column]
        if alone:
            later = np.append(square - depth @ height, -depth.sum(axis=1))[column]
            products = (mean.sum(axis=1)[:, None], (mean @ height)[:, None], later[None])
        else:
            later = np.concatenate([square - height * depth, -depth])[column]
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
            found = found - self.within_ties(block, point, (p * share if alone else p).T)
        return found


def _shared_out(p: np.ndarray, tail: list[Array] | None, share: np.ndarray) -> list[Array] | None:
    """Exponentials (r, n) times the ``share`` of their row, in place; returns the same of a tail."""
    p *= share
    return None if tail is None else [x * share for x in tail]


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b.T`` of a few long rows each: in parts so small that BLAS multiplies them as they lie and copies nothing."""
    n, most = a.shape[1], _AS_IT_LIES // (len(a) * len(b))
    step = most if _LEAST_PART <= most < n else n
    total: np.ndarray = a[:, :step] @ b[:, :step].T
    for i in range(step, n, step):
        total += a[:, i : i + step] @ b[:, i : i + step].T
    return total


# Multiplications of a product that OpenBLAS makes without copies, and the length of a part that is worth a call.
_AS_IT_LIES, _LEAST_PART = 10**6, 1000


def _sums_from(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``x`` (r, ...) over the ranks from each start on, (D, ...)."""
    found: np.ndarray
    if len(x) <= _FEW_RANKS:
        found = (starts[:, None] <= np.arange(len(x))).astype(np.float64) @ x
    else:
        found = np.triu(np.ones((len(starts), len(starts)))) @ _between(x, starts)
    return found


def _sums_below(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The same over the ranks below each start."""
    found: np.ndarray
    if len(x) <= _FEW_RANKS:
        found = (starts[:, None] > np.arange(len(x))).astype(np.float64) @ x
    else:
        found = np.tril(np.ones((len(starts), len(starts))), -1) @ _between(x, starts)
    return found


# Up to so many, one product with zeros and ones is faster than a sum for each start.
_FEW_RANKS = 32


def _between(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``x`` (r, ...) over the ranks from each start to the next, (D, ...)."""
    ends = np.append(starts[1:], len(x))
    return np.stack([np.add.reduce(x[i:j], axis=0) for i, j in zip(starts, ends, strict=True)])


def _factors(block: Block, own: np.ndarray | None) -> np.ndarray:
    """All factors or some of them, one after another in memory, (K, n); made once for a block."""
    kept: dict[bytes | None, np.ndarray] = block.__dict__.setdefault("_by_factor", {})
    if None not in kept:
        assert isinstance(block.factors, np.ndarray)
        kept[None] = np.ascontiguousarray(block.factors.T)
    if own is None:
        return kept[None]
    key = own.tobytes()
    if key not in kept:
        kept[key] = kept[None][own]
    return kept[key]


def _keep_freed_memory() -> None:
    """The C library of Linux keeps what is freed, unless it is much larger than any array that was freed before. One of 16 MiB,
    which is never touched, saves thousands of new pages in every fit."""
    np.empty(2**21)


_keep_freed_memory()
