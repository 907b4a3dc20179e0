"""The engine for every array library: ordinary array operations, on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np

from ..arrays import Array, array_namespace, clip_, count_true, device_of, exp_, to_numpy, to_numpy_together
from ..column_sums import segment_sums, sums_along
from ..core.ranked import LARGEST, Ranked, rank_rows
from ..core.ties import average_ties, largest_tie
from .block import Block
from .compiled_sums import Cut
from .curvature import hessian_of, within_ties
from .interface import Sums
from .point import Point, from_top, in_parts, weighted
from .run import Run, Threads
from .tail import tail_moments
from .totals import Totals, label_sums, label_totals, scale_totals, with_top_labels

# ``exp(f - shift)`` (n, r), its total (n,) with the tail, the shift (n, 1) where it is not the top, the tail's moments.
Exponentials = tuple[Array, Array, Array | None, list[Array] | None]


class ArrayEngine:
    """Implements `interface.Engine`. Faster engines replace single steps."""

    reads_tail_in_place: ClassVar[bool] = False

    def takes(self, logits: Array, dtype: object) -> bool:
        return True

    def prepare(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        *,
        top_k: int | None = None,
        statistics: Sequence[Callable[[Ranked], Array]] = (),
        dtype: object = None,
        ordered: bool = True,
        into: np.ndarray | None = None,
    ) -> Block:
        xp = array_namespace(logits)
        rows = self._ranked(logits, top_k, dtype, ordered, into)
        depth, tail = rows.depth, rows.tail
        z_label = xp.astype(xp.take_along_axis(logits, labels[:, None], axis=1), depth.dtype)
        with np.errstate(over="ignore"):
            label_depth = xp.clip(rows.top - z_label, max=LARGEST)[:, 0]
        below, held, tied = self._find_labels(depth, label_depth, ordered)
        if tied is not None:
            rows = replace(rows, tied=np.append(False, tied))
        size = held
        if tail is not None:
            in_tail = label_depth > rows.height  # the lowest rank stands for it
            below = xp.where(in_tail, 0 * below, below)
            held = xp.where(in_tail, 0 * held + 1, held)
            size = held + xp.where(label_depth == rows.height, tail.ties, 0 * held)
        if weight is None:
            weight = xp.ones(depth.shape[0], dtype=depth.dtype, **device_of(depth))
        stats = self.measure(self._measured(rows), statistics) if statistics else None
        return Block(self, rows, xp.astype(weight, depth.dtype), label_depth, below, held, size, stats)

    def prepare_in_place(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        into: np.ndarray,
        threads: Threads,
        measured: bool = False,
    ) -> Block | None:
        return None

    def measure(self, rows: Ranked, statistics: Sequence[Callable[[Ranked], Array]]) -> Array:
        xp = array_namespace(rows.depth)
        return xp.stack([xp.astype(s(rows), rows.depth.dtype) for s in statistics], axis=1)

    def _ranked(
        self, logits: Array, top_k: int | None, dtype: object, ordered: bool, into: np.ndarray | None
    ) -> Ranked:
        return rank_rows(logits, top_k, dtype, ordered, into=into)

    def _measured(self, rows: Ranked) -> Ranked:
        """The same rows with what a faster way knows of their statistics."""
        return rows

    def _find_labels(
        self, depth: Array, label_depth: Array, ordered: bool
    ) -> tuple[Array, Array, np.ndarray | None]:
        """Values above the label's and equal to it, (n,) each; which neighbours tie in some row, if the rows are sorted."""
        xp = array_namespace(depth)
        below = count_true(depth > label_depth[:, None])
        held = count_true(depth >= label_depth[:, None]) - below
        tied = to_numpy(xp.any(depth[:, 1:] == depth[:, :-1], axis=0)) if ordered else None
        return below, held, tied

    def totals(self, block: Block, whole_scales: bool) -> Totals:
        w, r = block.weight, block.rows.depth.shape[1]
        xp = array_namespace(w)
        psi = xp.ones_like(w)[:, None] if block.factors is None else block.factors
        # First and second moments of the scales, and of the biases, which are the same at every rank.
        left = psi * w[:, None]
        lefts = [left, psi * left]
        scales = self._scale_moments(block, lefts, whole_scales)
        biases = [np.repeat(to_numpy(sums_along(left.T))[:, None], r, axis=1) for left in lefts]
        mean, square = (np.stack(pair).astype(np.float64) for pair in zip(scales, biases, strict=True))
        psi = to_numpy(psi).astype(np.float64, copy=False)
        label = label_totals(block, psi, r)
        top = np.zeros_like(label)  # nothing of it lies below the top
        tied = block.rows.tied
        if tied is not None and tied[-1]:  # where classes share the top, an atom may begin among them
            top = label_totals(with_top_labels(block), psi, r)
        weight = float(xp.sum(w, dtype=xp.float64))
        tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
        return Totals(weight, label, top, self.largest_tie(block.rows), tied, mean, square)

    def largest_tie(self, rows: Ranked) -> int:
        return largest_tie(rows)

    def information(
        self, block: Block, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        return None

    def information_of_run(
        self, run: Run, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        return None

    def _scale_moments(self, block: Block, lefts: list[Array], whole_scales: bool) -> list[np.ndarray]:
        return [to_numpy(x) for x in self._moments_by_rank(block, lefts, whole_scales)]

    def _moments_by_rank(self, block: Block, lefts: list[Array], whole_scales: bool) -> list[Array]:
        """Sums over rows of ``left u`` and ``left u^2`` at each rank, (K, r) each."""
        rows, xp = block.rows, array_namespace(block.weight)
        u = rows.height[:, None] - rows.depth
        if rows.valid is not None:
            u = xp.clip(u, min=0.0)
        sums = []
        for x, left in zip((u, u * u), lefts, strict=True):
            if not whole_scales:
                scales = left.T @ x
            else:  # rank by rank for the first factor; of the others only the total and the top
                scales = xp.zeros((left.shape[1], x.shape[1]), dtype=x.dtype, **device_of(x))
                scales[:, -1] = left.T @ x[:, -1]
                scales[:, 0] += left.T @ sums_along(x[:, :-1])
                scales[0] = left[:, 0] @ x
            sums.append(scales)
        return sums

    def sums(self, block: Block, point: Point) -> Sums:
        block = self._precise(block)
        rows, v, psi = block.rows, block.rows.depth, block.factors
        xp = array_namespace(v)
        with np.errstate(under="ignore"):
            p, total, shift, tail = self._exponentials(block, point)
            logs = xp.log(total) if shift is None else xp.log(total) + shift[:, 0]
            value = xp.sum(block.weight * logs, dtype=xp.float64)
            share = (block.weight / total)[:, None]  # makes probabilities of `p`, times the row's weight
            if psi is not None and point.own is not None:
                psi = psi[:, point.own]
            left = share if psi is None else psi * share
            if len(point.start):  # the Hessian wants them row by row, the sums do not
                p *= share
                left = xp.ones_like(share) if psi is None else psi
                tail = None if tail is None else [t * share[:, 0] for t in tail]
            hessian = hessian_of(block, point, p, tail) if len(point.start) else np.zeros((0, 0))
            by_rank, whole = _sums_by_rank(left, rows.height, p, v, tail, point.whole_scales)
        return Sums(float(value), by_rank.astype(np.float64), whole.astype(np.float64), hessian)

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        return self.sums(block, point).hessian

    def row_by_row(self, block: Block, whole_scales: bool) -> bool:
        return False

    def totals_of_run(self, run: Run, whole_scales: bool) -> Totals:
        return run.sum(lambda block: self.totals(block, whole_scales))

    def sums_of_run(self, run: Run, point: Point) -> Sums:
        return run.sum(lambda block: self.sums(block, point))

    def hessian_of_run(self, run: Run, point: Point) -> np.ndarray:
        return run.sum(lambda block: self.hessian(block, point))

    def scale_sums_of_run(self, run: Run, scale: float) -> np.ndarray:
        return run.sum(lambda block: self.scale_sums(block, scale))

    def scale_totals_of_run(self, run: Run) -> Totals:
        return run.sum(scale_totals)

    def label_sums_of_run(self, run: Run) -> np.ndarray:
        return run.sum(label_sums)

    def probabilities(self, block: Block, point: Point) -> tuple[Block, Array, Array, list[Array] | None]:
        block = self._precise(block)
        p, total, shift, tail = self._exponentials(block, point)
        logs = array_namespace(total).log(total)
        if shift is not None:
            logs = logs + shift[:, 0]
        share = block.weight / total
        p *= share[:, None]
        return block, p, logs, None if tail is None else [t * share for t in tail]

    def shorten(
        self, block: Block, point: Point, kept: int, prior_scales: Sequence[tuple[float, float]]
    ) -> Cut | None:
        return None

    def within_ties(self, block: Block, point: Point, p: Array) -> np.ndarray | float:
        return within_ties(block, point, p)

    def _precise(self, block: Block) -> Block:
        """The same block in double precision, where operations on the host would round every step.

        The rounding of ``w v`` before the exponential moves the gradient by 1e-7 of the depths, and those of a large
        vocabulary are large.
        """
        return block.in_double() if isinstance(block.rows.depth, np.ndarray) else block

    def exponentials(self, block: Block, point: Point) -> Exponentials:
        return self._exponentials(self._precise(block), point)

    def _exponentials(self, block: Block, point: Point) -> Exponentials:
        rows, v = block.rows, block.rows.depth
        xp = array_namespace(v)
        f = from_top(block, point, v)
        shift = None
        if average_ties(f, rows, point.jumps):  # a tied top has come down to the mean of its group
            shift = xp.asarray(f[:, -1:], copy=True)
            f -= shift
        p = exp_(f) if rows.tail is None else xp.exp(f)
        if rows.valid is not None:
            p *= xp.astype(rows.valid, p.dtype)
        total = sums_along(p)
        if rows.tail is None:
            return p, total, shift, None
        tail = tail_moments(block, point, f, shift, 3 if len(point.start) else 2)
        return p, total + tail[0], shift, tail

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        return self._scale_sums(Run.of(block), scale)

    def _scale_sums(self, run: Run, scale: float) -> np.ndarray:
        block = self._precise(run.block)
        # ``log sum_i exp(-scale v_i)``, minus its slope ``E_p[v]``, and ``E_p[v^2] - E_p[v]^2``. The order plays no part.
        v = block.rows.depth
        xp = array_namespace(v)
        with np.errstate(under="ignore"):
            weights = in_parts(xp.asarray([[-scale]], dtype=xp.float64, **device_of(v)), v.dtype)
            total, first, second = self._scale_moments_of_rows(block, weights, run.threads)
            mean = first / total
            curvature = second / total - mean * mean
        rows = xp.stack([xp.log(total), mean, curvature]) * block.weight
        parts = [xp.sum(rows[:, part], axis=1, dtype=xp.float64) for part in run.slices()]
        return to_numpy(reduce(add, parts))

    def _scale_moments_of_rows(
        self, block: Block, weights: list[Array], threads: Threads
    ) -> tuple[Array, Array, Array]:
        """``sum p``, ``sum p v``, ``sum p v^2`` of each row, ``p = exp(sum(weights) v)``."""
        v, valid = block.rows.depth, block.rows.valid
        xp = array_namespace(v)
        p = exp_(weighted(v, weights))
        if valid is not None:
            p *= xp.astype(valid, p.dtype)
        total = sums_along(p)
        p *= v
        return total, sums_along(p), xp.vecdot(p, v)

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        xp = array_namespace(base)
        with np.errstate(over="ignore"):
            v = rows.top - xp.astype(tail.logits, base.dtype, copy=False)
        v = clip_(v, rows.height[:, None], LARGEST)
        hidden = xp.isinf(tail.logits) if tail.masked else None
        e = weighted(v, weights)
        e += base
        e = exp_(e)
        if hidden is not None:
            e *= xp.astype(~hidden, e.dtype)
        sums = []
        for power in range(count):
            if power:
                e *= v
            sums.append(xp.sum(e, axis=1))
        return sums

    def piece_moments(self, p: Array, v: Array, starts: np.ndarray, count: int = 3) -> list[Array]:
        xp = array_namespace(p)
        moments = [p]
        while len(moments) < count:
            moments.append(moments[-1] * v)
        return [xp.astype(x, xp.float64, copy=False) for x in segment_sums(moments, starts)]


def _sums_by_rank(
    left: Array, height: Array, p: Array, v: Array, tail: list[Array] | None, whole_scales: bool
) -> list[np.ndarray]:
    """``by_rank`` and ``whole`` of `Sums`, from factors with the rows' shares. Changes ``p``."""
    xp = array_namespace(p)
    part = left[:, :1] if whole_scales else left
    k = part.shape[1]
    by_rank = xp.empty((2 * k + left.shape[1], p.shape[1]), dtype=p.dtype, **device_of(p))
    by_rank[k:] = xp.concat([part * height[:, None], left], axis=1).T @ p
    p *= v
    by_rank[:k] = part.T @ p
    total = sums_along(p)
    if tail is not None:
        total = total + tail[1]
        by_rank[:k, 0] += part.T @ tail[1]
        by_rank[k : 2 * k, 0] += part.T @ (tail[0] * height)
        by_rank[2 * k :, 0] += left.T @ tail[0]
    return to_numpy_together([by_rank, left[:, k:].T @ total])
