"""The engine for every array library: ordinary array operations, on the host or on a device.

    f_i = w_d v_i + base_d,        rank i in piece d;        v_i, f_i, w_d, base_d of all rows, (n,) each
    p_i = exp(f_i) / sum_j exp(f_j),      tied ranks alike

Arrays are worked on rank by rank: (r, n) is a rank after the other, each with its number of every row. What is done piece by
piece, or between the starts of a working set, then runs over thousands of numbers in a line. numpy holds them so in memory, and
computes in double precision: operations on the host round every step, and the rounding of ``w v`` before the exponential moves
the gradient by 1e-7 of the depths, which are large in a large vocabulary.

**The Hessian** of a working set is the covariance of its atoms under ``p``, summed over rows. Measured from the top an atom drops
by ``U`` below its start and by ``v`` from there on (a scale), or by 1 below its start (a bias). With ``P`` the probability below
a start, ``V`` and ``Q`` the sums of ``p v`` and ``p v^2`` from it on, and atom a starting no later than b, the mean product of
their drops is

    scale, scale   U (U P_a + V_a) + Q_b - U V_b           bias, scale   U P_a
    scale, bias      (U P_a + V_a)       -   V_b           bias, bias      P_a

Nothing cancels where one class has nearly all the probability, and the few sums of a row are kept in double precision.

**Classes below the top k** have the parameters of the lowest rank in use, and their sums are added to those of that rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    clip_,
    device_of,
    exp_,
    is_torch,
    on_host,
    to_numpy,
    to_numpy_together,
)
from ..core.engine import (
    BIAS,
    SCALE,
    Block,
    Information,
    Point,
    Sums,
    Totals,
    Truncated,
    join_blocks,
    parameters,
)
from ..core.ranked import LARGEST, Ranked, rank_rows
from ..core.statistics import compute
from ..core.ties import average_ties, largest_tie, within_ties
from ..parallel import GPU_BLOCK, block_rows, keep_freed_memory, parallel_map, row_slices
from .label_sums import label_totals, scale_totals, with_top_labels

# exp(-1000) is zero in every precision.
_NOTHING = -1000.0


class ArrayEngine:
    """Implements `core.engine.Engine`. Faster engines replace single steps."""

    # Whether the sums over a tail need no arrays of its width.
    _reads_tail_in_place: ClassVar[bool] = False

    def takes(self, logits: Array, dtype: object) -> bool:
        return True

    def prepare(self, logits: Array, labels: Array, weight: Array | None, **how: Any) -> list[Block]:
        m, host = logits.shape[1], on_host(logits)
        # Where nothing of the width of a tail is written, many rows are prepared at once.
        narrow = self._reads_tail_in_place and how.get("top_k") and not how.get("statistics")
        slices = row_slices(logits, (16 if narrow else 1) * block_rows(logits))
        context = how.pop("context", None)

        def one(part: slice) -> Block:
            of_part = logits[part], labels[part], None if weight is None else weight[part]
            block = self._prepare_block(*of_part, **how)
            return block if context is None else replace(block, context=context[part])

        if host:
            keep_freed_memory()
            return parallel_map(one, slices, serial=is_torch(logits))
        # A device sorts in small blocks, to save memory, and sums in large ones, to save calls.
        blocks = [one(part) for part in slices]
        width = blocks[0].rows.depth.shape[1] if self._reads_tail_in_place else m
        together = max(1, GPU_BLOCK // (blocks[0].n_rows * width))
        groups = [slice(i, i + together) for i in range(0, len(blocks), together)]
        return [join_blocks(blocks[g], logits[slices[g][0].start : slices[g][-1].stop]) for g in groups]

    def _prepare_block(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        *,
        top_k: int | None = None,
        statistics: Sequence[str | Callable[[Array], Any]] = (),
        dtype: object = None,
        ordered: bool = True,
        top_class: bool = False,
    ) -> Block:
        xp = array_namespace(logits)
        rows = self._ranked(logits, top_k, dtype, ordered)
        depth, tail = rows.depth, rows.tail
        z_label = xp.astype(xp.take_along_axis(logits, labels[:, None], axis=1), depth.dtype)
        with np.errstate(over="ignore"):
            label_depth = xp.clip(rows.top - z_label, max=LARGEST)[:, 0]
        below = xp.count_nonzero(depth > label_depth[:, None], axis=1)
        held = xp.count_nonzero(depth >= label_depth[:, None], axis=1) - below
        if ordered:  # which neighbours tie in some row
            tied = to_numpy(xp.any(depth[:, 1:] == depth[:, :-1], axis=0))
            rows = replace(rows, tied=np.append(False, tied))
        size = held
        if tail is not None:
            in_tail = label_depth > rows.height  # the lowest rank stands for it
            below = xp.where(in_tail, 0 * below, below)
            held = xp.where(in_tail, 0 * held + 1, held)
            size = held + xp.where(label_depth == rows.height, tail.ties, 0 * held)
        if weight is None:
            weight = xp.ones(depth.shape[0], dtype=depth.dtype, **device_of(depth))
        weight = xp.astype(weight, depth.dtype)
        values = self._measure(rows, statistics) if statistics else None
        top = to_numpy(xp.argmax(logits, axis=1)) if top_class else None
        rows = self._laid_out(rows)
        return Block(self, rows, weight, label_depth, below, held, size, values, top_class=top)

    def _ranked(self, logits: Array, top_k: int | None, dtype: object, ordered: bool) -> Ranked:
        return rank_rows(logits, top_k, dtype, ordered)

    def _measure(self, rows: Ranked, statistics: Sequence[str | Callable[[Array], Any]]) -> Array:
        """Statistics (n, S) of rows."""
        xp = array_namespace(rows.depth)
        return xp.stack([xp.astype(x, rows.depth.dtype) for x in compute(statistics, rows)], axis=1)

    def _laid_out(self, rows: Ranked) -> Ranked:
        """The same rows in the order in memory that the sums read."""
        depth = rows.depth
        return replace(rows, depth=np.asfortranarray(depth)) if isinstance(depth, np.ndarray) else rows

    def totals(self, block: Block) -> Totals:
        rows, w = block.rows, block.weight
        xp, r = array_namespace(w), block.rows.depth.shape[1]
        psi = xp.ones_like(w)[None] if block.factors is None else block.factors.T
        lefts = [psi * w, psi * psi * w]
        # A bias is the same at every rank.
        ones = [np.repeat(to_numpy(xp.sum(x, axis=1, dtype=xp.float64))[:, None], r, axis=1) for x in lefts]
        mean, square = (np.stack(pair) for pair in zip(self._scale_moments(block, lefts), ones, strict=True))
        label = label_totals(block)
        top = np.zeros_like(label)  # nothing of it lies below the top
        tied = np.zeros(r, dtype=bool) if rows.tied is None else rows.tied.astype(bool)
        if tied[-1]:  # where classes share the top, an atom may begin among them
            top = label_totals(with_top_labels(block))
        weight = float(xp.sum(w, dtype=xp.float64))
        return Totals(weight, label, top, tied, mean, square, largest_tie(rows))

    def label_sums(self, block: Block) -> np.ndarray:
        return np.append(label_totals(block), block.total_weight)

    def _scale_moments(self, block: Block, lefts: list[Array]) -> list[np.ndarray]:
        """Sums over rows of ``left u`` and ``left u^2`` at each rank, (K, r) each; of factors but the first all of it, at the
        lowest rank and at the top."""
        xp, x = array_namespace(block.weight), _heights(block.rows)
        sums: list[Array] = []
        for left in lefts:
            if sums:
                x *= x
            scales = xp.zeros((left.shape[0], x.shape[0]), dtype=x.dtype, **device_of(x))
            scales[:, -1] = left @ x[-1]
            scales[:, 0] += left @ _sum_of_ranks(x[:-1])
            scales[0] = x @ left[0]
            sums.append(scales)
        return [x.astype(np.float64) for x in to_numpy_together(sums)]

    def scale_totals(self, block: Block) -> Totals:
        u = _heights(block.rows)
        first = _sum_of_ranks(u)
        u *= u
        return scale_totals(block, first, _sum_of_ranks(u))

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        # ``log sum_i exp(-scale v_i)``, minus its slope ``E_p[v]``, and ``E_p[v^2] - E_p[v]^2``. The order plays no part.
        block = self._precise(block)
        weight = block.weight
        xp = array_namespace(weight)
        with np.errstate(under="ignore"):
            p, total = self._at_scale(block, scale)
            p *= block.rows.depth.T
            mean = _sum_of_ranks(p) / total
            p *= block.rows.depth.T
            curvature = _sum_of_ranks(p) / total - mean * mean
        results = xp.stack([xp.log(total), mean, curvature])
        return to_numpy(xp.astype(results, xp.float64) @ xp.astype(weight, xp.float64))

    def _at_scale(self, block: Block, scale: float) -> tuple[Array, Array]:
        """``exp(-scale v)`` (r, n), and its total."""
        rows, v = block.rows, block.rows.depth.T
        weights = [-scale]
        if not str(v.dtype).endswith("float64"):  # the sum of two numbers in single precision
            leading = float(np.float32(-scale))
            weights = [leading, -scale - leading]
        p = exp_(_affine(v, weights, array_namespace(v).empty_like(v)))
        if rows.valid is not None:
            p *= array_namespace(p).astype(rows.valid.T, p.dtype)
        return p, _sum_of_ranks(p)

    def sums(self, block: Block, point: Point, gradient: bool = True) -> Sums:
        block = self._precise(block)
        rows, height, v = block.rows, block.rows.height, block.rows.depth.T
        xp, curved = array_namespace(v), len(point.start) > 0
        by_rank, whole, hessian = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0))
        with np.errstate(under="ignore"):
            p, total, shift, tail = self._exponentials(block, point)
            share = block.weight / total  # makes probabilities of ``p``, times the row's weight
            logs = xp.log(total) if shift is None else xp.log(total) + shift
            value = xp.sum(xp.astype(block.weight, xp.float64) * xp.astype(logs, xp.float64))
            psi = share[None]  # alone, the constant factor takes it along
            if block.factors is not None:
                psi = block.factors.T if point.own is None else block.factors.T[point.own]
                p *= share
                tail = None if tail is None else [t * share for t in tail]
            mass, depth, square = _moments(p, v, tail, curved)
            if gradient:
                by_rank, whole = _gradient(psi, height, mass, depth)
            if curved:
                alone = share if block.factors is None else None
                hessian = _hessian(block, point, mass, depth, square, alone)
                if rows.tied is None or rows.tied[point.columns[0]].any():
                    hessian = hessian - within_ties(block, point, p if alone is None else p * share)
        return Sums(float(value), by_rank, whole, hessian)

    def information(self, block: Block, scale: float) -> Information:
        """Squares of small drops are summed, so nothing cancels where one class has nearly all the probability."""
        block = self._precise(block)
        rows, weight = block.rows, block.weight
        v, height = rows.depth.T, rows.height
        xp = array_namespace(v)
        with np.errstate(under="ignore", over="ignore"):
            p, total = self._at_scale(block, scale)
            tail = None
            if rows.tail is not None:
                tail = self._tail(block, _plain_scale(block, scale), None, None, 3)
                total = total + tail[0]
            share = 1.0 / total
            p *= share
            tail = None if tail is None else [t * share for t in tail]
            mass, depth, square = _moments(p, v, tail)
            below = _running_sums(mass) - mass  # probability below each start
            first = xp.flip(_running_sums(xp.flip(depth, axis=0)), axis=0) + below * height
            psi_square = xp.ones_like(weight)[None] if block.factors is None else block.factors.T**2
            left = psi_square * weight
            # Means of squares add up over the rows before they are added up over the ranks; squares of means do not.
            first *= first
            of_ranks = square @ left[0]
            scales = xp.flip(xp.cumulative_sum(xp.flip(of_ranks)))
            scales = scales + below @ (left[0] * height**2) - first @ left[0]
            lowest = left[1:] @ (_sum_of_ranks(square) - first[0])
            # With one rank in use, the tail is all that lies below the top.
            errors = left @ (tail[0] if tail is not None and len(mass) == 1 else below[-1])
            biases = _products(left, below - below * below)
        results = [to_numpy(x).astype(np.float64) for x in (scales, lowest, errors, biases)]
        variances = np.zeros((2, len(results[2]), len(results[0])))
        variances[SCALE, 0], variances[SCALE, 1:, 0], variances[BIAS] = results[0], results[1], results[3]
        return Information(float(xp.sum(weight, dtype=xp.float64)), np.maximum(variances, 0.0), results[2])

    def truncate(
        self, block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int
    ) -> Truncated:
        """In double precision, with all ranks."""
        rows, tail = block.rows, block.rows.tail
        xp = array_namespace(rows.depth)
        wide = replace(block, rows=replace(rows, depth=xp.astype(rows.depth, xp.float64, copy=False)))
        v, valid = wide.rows.depth.T, None if rows.valid is None else rows.valid.T
        with np.errstate(under="ignore"):
            f = _below_top(wide, point)
            shift = xp.zeros_like(f[-1])
            if average_ties(f.T, rows, point.jumps):  # a tied top has come down to the mean of its group
                shift = xp.asarray(f[-1], copy=True)
            weights, base = parameters(wide, point, lowest=True)
            lowest = -sum(w[0] for w in weights), base[0] - shift

            def below(moments: Sequence[Array]) -> Array:
                """Mass times calibrated depth in the lowest piece, from mass and mass times depth."""
                return lowest[0] * moments[1] - lowest[1] * moments[0]

            depth = shift - f
            if valid is not None:
                depth = xp.where(valid, depth, xp.inf + 0 * depth)
            mass, first = xp.zeros_like(depth[0]), xp.zeros_like(depth[0])
            n_top = at_top = xp.count_nonzero(rows.depth == 0, axis=1)
            label = xp.take_along_axis(depth.T, xp.astype(block.label_rank, xp.int64)[:, None], axis=1)[:, 0]
            if tail is not None:
                f = xp.astype(f - shift, rows.depth.dtype, copy=False)
                moments = self._tail(block, point, f, xp.astype(shift, f.dtype), 2)
                mass, first = moments[0], below(moments)
                n_top = n_top + xp.where(rows.height == 0, xp.astype(tail.ties, xp.int64), 0 * n_top)
                in_tail = lowest[0] * block.label_depth - lowest[1]
                label = xp.where(block.label_depth > rows.height, in_tail, label)
            prior_depth = prior_top = xp.zeros_like(mass)
            finite = depth if valid is None else xp.where(valid, depth, xp.zeros_like(depth))
            for share, scale in prior_scales:
                e = exp_(v[-kept:] * -scale)
                if valid is not None:
                    e *= xp.astype(valid[-kept:], e.dtype)
                total, drop = _sum_of_ranks(e), _sum_of_ranks(finite[-kept:] * e)
                if tail is not None:
                    moments = self._tail(block, _plain_scale(block, scale), None, None, 2)
                    total, drop = total + moments[0], drop + below(moments)
                prior_depth = prior_depth + share * drop / total
                prior_top = prior_top + share * at_top / total
        arrays: list[Any] = [depth.T, mass, first, label, prior_depth, prior_top]
        if on_host(depth):
            arrays = [to_numpy(x) for x in arrays]
        else:  # kernels read along the ranks
            arrays = [x.contiguous() for x in arrays]
        arrays = [array_namespace(x).astype(x, array_namespace(x).float64) for x in arrays]
        return Truncated(to_numpy(n_top), *arrays)

    def _precise(self, block: Block) -> Block:
        """The same block in double precision, where it is an array of numpy."""
        return block.in_double() if isinstance(block.rows.depth, np.ndarray) else block

    def _exponentials(
        self, block: Block, point: Point
    ) -> tuple[Array, Array, Array | None, list[Array] | None]:
        """``exp(f - shift)`` (r, n); its total (n,) with the tail's; the shift (n,) where
        it is not the top; the tail's ``sum exp(f - shift) v^t``, (n,) each, where there is one."""
        rows, f = block.rows, _below_top(block, point)
        shift = None
        if average_ties(
            f.T, rows, point.jumps, _NOTHING
        ):  # a tied top has come down to the mean of its group
            shift = array_namespace(f).asarray(f[-1], copy=True)
            f -= shift
        tail = None
        if rows.tail is not None:
            tail = self._tail(block, point, f, shift, 3 if len(point.start) else 2)
        f = exp_(f)
        if rows.valid is not None:
            f *= array_namespace(f).astype(rows.valid.T, f.dtype)
        total = _sum_of_ranks(f)
        return f, total if tail is None else total + tail[0], shift, tail

    def _tail(
        self, block: Block, point: Point, f: Array | None, shift: Array | None, count: int
    ) -> list[Array]:
        """``sum p``, ``sum p v``, ``sum p v^2`` (the first ``count``) over the tail, unnormalised like ``exp(f)``, (n,) each.

        Its logits are read as they are. With depths cut at the height, each class in use contributes as much as the lowest, and
        that is taken off again. What it loses in precision is below the rounding of the whole normaliser: each of them weighs at
        least as much there. Without ``f`` no ties are split.
        """
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        xp = array_namespace(rows.height)
        in_use, of_row = parameters(block, point, lowest=True)
        weights, base = [w[0] for w in in_use], of_row[0] + 0 * rows.height
        if shift is not None:
            base = base - shift
        rest = [0 * base] * count
        if tail.rest is not None:
            mass = tail.rest.count * xp.exp(base + sum(w * tail.rest.depth for w in weights))
            rest = [xp.astype(mass * tail.rest.depth**t, base.dtype, copy=False) for t in range(count)]
        if tail.logits is None:
            return rest
        lowest = xp.exp(base + sum(w * rows.height for w in weights))
        sums = self._tail_sums(block, weights, base, count)
        valid = rows.valid
        kept = rows.depth.shape[1] if valid is None else xp.sum(xp.astype(valid, base.dtype), axis=1)
        extra = 0 * lowest
        if (
            f is not None
        ):  # classes of the tail that equal the lowest logit in use share the value of its group
            low = rows.height == rows.depth.T
            group = xp.exp(xp.max(xp.where(low, f, xp.min(f) + 0 * f), axis=0))
            extra = xp.astype(tail.ties, base.dtype) * (group - lowest)
        powers = [rows.height**t for t in range(count)]
        return [
            xp.clip(s - kept * lowest * h, min=0.0) + extra * h + t
            for s, h, t in zip(sums, powers, rest, strict=True)
        ]

    def _tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        """``sum exp(f) v^t`` for ``t < count`` over all classes, with depths cut at the height; (n,) each."""
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        xp = array_namespace(base)
        with np.errstate(over="ignore"):
            v = rows.top - xp.astype(tail.logits, base.dtype, copy=False)
        v = clip_(v, rows.height[:, None], LARGEST)
        hidden = xp.isinf(tail.logits) if tail.masked else None
        e = base[:, None] + 0 * v
        for w in weights:
            e += xp.reshape(w, (-1, 1)) * v
        e = exp_(e)
        if hidden is not None:
            e *= xp.astype(~hidden, e.dtype)
        sums = []
        for power in range(count):
            if power:
                e *= v
            sums.append(xp.sum(e, axis=1))
        return sums


def _plain_scale(block: Block, scale: float) -> Point:
    """All logits multiplied by one number."""
    plain = np.array([[SCALE], [0], [0]])
    shape = (1 if block.factors is None else block.factors.shape[1], block.rows.depth.shape[1])
    return Point.of_steps(shape, plain, np.array([scale]), plain[:, :0])


def _moments(p: Array, v: Array, tail: list[Array] | None, curved: bool = True) -> list[Any]:
    """``p``, ``p v`` and (if ``curved``) ``p v^2`` at each rank; a tail is in the lowest."""
    depth = p * v
    # What is asked of ``p`` at the lowest rank below has the tail; ties have no part in it.
    moments = [p if tail is None else p + 0.0, depth, depth * v if curved else None]
    for moment, of_tail in zip(moments, tail or (), strict=False):
        moment[0] += of_tail
    return moments


def _heights(rows: Ranked) -> Array:
    """``u = U - v`` (r, n), 0 where a class is masked."""
    u = rows.height - rows.depth.T
    return u if rows.valid is None else clip_(u, 0.0, np.inf)


def _below_top(block: Block, point: Point) -> Array:
    """``f - f_top`` (r, n), as if no ranks were tied."""
    v = block.rows.depth.T
    out = array_namespace(v).empty_like(v)
    weights, base = parameters(block, point)
    for d, (begin, end) in enumerate(pairwise(point.pieces[0])):
        _affine(v[begin:end], [w[d] for w in weights], out[begin:end])
        if end < len(v):  # measured from the top, the uppermost piece has no base
            out[begin:end] += base[d]
    return out


def _affine(v: Array, weights: Sequence[Any], out: Array) -> Array:
    """``sum(weights) v``, term by term."""
    if isinstance(v, np.ndarray):
        np.multiply(v, weights[0], out=out)
    else:
        out[...] = v * weights[0]
    for w in weights[1:]:
        out += w * v
    return out


def _running_sums(x: Array) -> Array:
    """Sums of ``x`` (r, n) over the ranks up to each; numpy adds line by line faster than across them."""
    if not isinstance(x, np.ndarray):
        return array_namespace(x).cumulative_sum(x, axis=0)
    out = x.copy()
    for before, here in pairwise(out):
        here += before
    return out


def _gradient(psi: Array, height: Array, mass: Array, depth: Array) -> tuple[np.ndarray, np.ndarray]:
    """``by_rank`` and ``whole`` of `Sums`, from factors (K, n), with or without the rows' shares, and moments (r, n)."""
    xp = array_namespace(mass)
    psi = xp.astype(psi, mass.dtype, copy=False)
    first = psi[:1]
    by_rank = [
        _products(first, depth),
        _products(first * xp.astype(height, mass.dtype), mass),
        _products(psi, mass),
    ]
    sums = to_numpy_together([xp.concat(by_rank), psi[1:] @ _sum_of_ranks(depth)])
    return sums[0].astype(np.float64, copy=False), sums[1].astype(np.float64, copy=False)


def _hessian(
    block: Block, point: Point, mass: Array, depth: Array, square: Array, alone: Array | None
) -> np.ndarray:
    """Covariance (a, a) of the working set's atoms as if no ranks were tied, from the moments of all ranks.

    ``alone``: without factors, what the moments have yet to be multiplied by.
    """
    xp = array_namespace(mass)
    starts, _, column = point.columns
    height, weight = (xp.astype(x, xp.float64, copy=False) for x in (block.rows.height, block.weight))
    below, depth = _sums_from(mass, starts, below=True), _sums_from(depth, starts)
    if alone is not None:
        alone = xp.astype(alone, xp.float64, copy=False)
        below *= alone
        depth *= alone
        square = xp.astype(square, xp.float64, copy=False) @ alone
    square = _sums_from(square, starts)
    mean = xp.concat([height * below + depth, below])[column]
    is_scale = np.flatnonzero(point.kind == SCALE)
    if alone is not None:  # squares enter by their sums over rows; factors differ from row to row
        later = xp.concat([square - depth @ height, -xp.sum(depth, axis=1)])[column]
        products = [xp.sum(mean, axis=1)[:, None], (mean @ height)[:, None], later[None]]
    else:
        assert block.factors is not None
        later = xp.concat([square - height * depth, -depth])[column]
        factor = xp.astype(block.factors.T[point.factor], xp.float64, copy=False)
        mean *= factor
        later *= factor
        products = [mean @ factor.T, mean @ (factor[is_scale] * height).T, factor[is_scale] @ later.T]
    to_bias, to_scale, from_scale, squares = to_numpy_together([*products, mean @ (mean / weight).T])
    # Row a holds the product with b where b starts no earlier than a; the rest follows by symmetry.
    a = len(point.start)
    product = np.broadcast_to(to_bias, (a, a)).copy()
    product[:, is_scale] = to_scale
    product[is_scale] += from_scale
    in_order = point.start[:, None] <= point.start[None, :]
    return np.where(in_order, product, product.T) - squares


def _sum_of_ranks(x: Array) -> Array:
    """The sum over the ranks of each row, (n,)."""
    if isinstance(x, np.ndarray):
        return np.ones(len(x), dtype=x.dtype) @ x
    return array_namespace(x).sum(x, axis=0)


def _products(a: Array, b: Array) -> Array:
    """``a @ b.T`` of a few long rows each: numpy's in parts so small that BLAS multiplies them as they lie and copies nothing."""
    if not isinstance(a, np.ndarray):
        return a @ b.T
    n, most = a.shape[1], _AS_IT_LIES // max(len(a) * len(b), 1)
    step = most if _LEAST_PART <= most < n else n
    total: np.ndarray = a[:, :step] @ b[:, :step].T
    for i in range(step, n, step):
        total += a[:, i : i + step] @ b[:, i : i + step].T
    return total


# Multiplications of a product that OpenBLAS makes without copies, and the length of a part that is worth a call.
_AS_IT_LIES, _LEAST_PART = 10**6, 1000
# Up to so many ranks, one product with zeros and ones is faster than a sum for each start.
_FEW_RANKS = 32


def _sums_from(x: Array, starts: np.ndarray, *, below: bool = False) -> Array:
    """Sums of ``x`` (r, ...) over the ranks from each start on, or below each, (D, ...), in double precision."""
    ranks = np.arange(len(x))
    if len(x) > _FEW_RANKS:
        x, ranks = _between(x, starts), starts
    ones = starts[:, None] > ranks if below else starts[:, None] <= ranks
    xp = array_namespace(x)
    return xp.asarray(ones.astype(np.float64), **device_of(x)) @ xp.astype(x, xp.float64, copy=False)


def _between(x: Array, starts: np.ndarray) -> Array:
    """Sums of ``x`` (r, ...) over the ranks from each start to the next, (D, ...), in double precision."""
    ends = np.append(starts[1:], len(x))
    if isinstance(x, np.ndarray):
        sums = [np.add.reduce(x[i:j], axis=0, dtype=np.float64) for i, j in zip(starts, ends, strict=True)]
        return np.stack(sums)
    # A product with zeros and ones: the fastest reduction over ragged pieces that torch has on every device.
    member = np.arange(len(x)) >= starts[:, None]
    member &= np.arange(len(x)) < ends[:, None]
    xp = array_namespace(x)
    ones = xp.asarray(member.astype(np.float64), **device_of(x))
    return xp.astype(xp.astype(ones, x.dtype, copy=False) @ x, xp.float64, copy=False)


ARRAY = ArrayEngine()
