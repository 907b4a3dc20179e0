"""The engine for single-precision arrays in memory, and the map on large ones: loops compiled by numba.

    p_i = exp(-w_d v_i + base_d),                     d the piece of rank i
    sum_n p_i v_i,  sum_n p_i U,  sum_n psi p_i       over rows, p normalised
    sum_n Cov_p[atom_a, atom_b]                       over rows
    sum_i p_i,  sum_i p_i v_i,  sum_i p_i v_i^2       over each piece
    softmax(-w_d v_i - D_d)                           the fitted map, that of `core.map` up to rounding (`LoopMap`)

A row stays in the cache from one step to the next. All between one call of Python and the next is done in a loop: many threads
would wait for each other's calls. Threads call the same loop, which takes part after part (`numba_loops.next_of`) until none is
left. What it adds up it adds for each part alone, and these sums are added in the order of the parts.

Rows with masked classes and rows with a tail go the way of arrays, but for the sums over a tail without masks. So do rows whose
lowest class is far down (a finite mask), in double precision: the gradient of a weight is a sum of probabilities times heights,
and rounding of the former by 1e-7 counts as often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from importlib.util import find_spec
from operator import add
from typing import Any

import numpy as np

from ..arrays import Array, keep_argmax, to_numpy
from ..core.engine import BIAS, SCALE, Block, Information, Point, Sums, Totals, Truncated
from ..core.libraries import HOST, ramps_of
from ..core.map import PROBABILITIES, MapStep, steps_as
from ..core.ranked import Ranked, in_order, rank_rows
from ..core.second_stage import terms_of_context
from ..core.statistics import compute
from ..errors import warn
from ..parallel import (
    available_threads,
    keep_freed_memory,
    parallel_map,
    row_slices,
    rows_of_size,
    run_parallel,
)
from .array import ARRAY, ArrayEngine
from .label_sums import scale_totals, with_top_labels

# Statistics of a row that need no sorting, in the order in which `find_jumps` has them.
STATISTICS = ("margin", "mean_gap", "spread")
# A prediction of at least so many logits loads the compiled loops.
LARGE = 2**20
# Logits of a block.
_BLOCK = 2**17
# Longer rows are searched for the values at jumps, shorter ones sorted.
_SORTED = 2048
_NONE, _ONE, _FIRST = np.zeros(0, np.float32), np.ones((1, 1), np.float32), np.zeros(1, np.intp)
# In a fit: a row whose lowest class lies so far below its top is computed in double precision; numbers in the sums of all parts
# that are worked on at a time.
_HIGH, _TOGETHER = 1e3, 2**21


@cache
def available() -> bool:
    """Whether numba is there, works, and compiles: under ``NUMBA_DISABLE_JIT`` (debuggers, coverage) it does not."""
    if find_spec("numba") is None:
        return False
    try:
        import numba

        if numba.config.DISABLE_JIT:
            return False
        loops()
    except ImportError as error:
        warn(
            f"numba is installed but cannot be used ({error}): large arrays take the slower way.",
            RuntimeWarning,
        )
        return False
    return True


def loops() -> Any:
    """The loops of a fit, in a module that needs numba; compiling one for the first time takes a second."""
    from . import numba_fit

    return numba_fit


def suits(x: Array) -> bool:
    """Whether these loops take an array like this."""
    return isinstance(x, np.ndarray) and x.dtype == np.float32 and x.flags.c_contiguous and available()


class NumbaEngine(ArrayEngine):
    """Implements `core.engine.Engine`."""

    def takes(self, logits: Array, dtype: object) -> bool:
        return isinstance(logits, np.ndarray) and dtype == np.float32 and available()

    def prepare(self, logits: Array, labels: Array, weight: Array | None, **how: Any) -> list[Block]:
        m = logits.shape[1]
        all_ranks = how.get("ordered", True) and min(how.get("top_k") or m, m) == m
        block = self._prepare_plain(logits, labels, weight, **how) if all_ranks and suits(logits) else None
        return super().prepare(logits, labels, weight, **how) if block is None else [block]

    def _prepare_block(self, logits: Array, labels: Array, weight: Array | None, **how: Any) -> Block:
        block = super()._prepare_block(logits, labels, weight, **how)
        if float(np.max(block.rows.height)) <= _HIGH:
            return block
        return ARRAY._prepare_block(logits, labels, weight, **{**how, "dtype": np.float64})

    def _prepare_plain(
        self,
        z: np.ndarray,
        labels: Array,
        weight: Array | None,
        *,
        statistics: Sequence[str | Callable[[Array], Any]] = (),
        top_class: bool = False,
        context: np.ndarray | None = None,
        **rest: Any,
    ) -> Block | None:
        """All ranks of any number of rows; None where some are too high."""
        (n, m), slices = z.shape, row_slices(z)
        # One array for all depths: the system hands out large ones in large pages, which threads need not wait for.
        depth, (top, height, label_depth) = np.empty_like(z), np.empty((3, n), dtype=z.dtype)
        rank, held = np.empty((2, n), dtype=np.intp)
        tied, values = np.zeros(m, np.uint8), np.empty((n if statistics else 0, len(STATISTICS)), z.dtype)
        classes = np.ascontiguousarray(labels, dtype=np.int64)
        args = z, classes, depth, top, height, label_depth, rank, held, tied, values, _first_turn()
        run_parallel(lambda: loops().prepare_rows(*args), _threads(z))
        if float(height.max()) > _HIGH:
            return None
        rows = Ranked(depth, height, top[:, None], None, None, m, tied > 0)
        weight = np.ones(n, z.dtype) if weight is None else np.asarray(weight, dtype=z.dtype)
        ends = np.array([part.stop for part in slices])
        block = Block(self, rows, weight, label_depth, rank, held, held, context=context, ends=ends)
        if statistics:
            ranked = replace(rows, measured=dict(zip(STATISTICS, values.T, strict=True)))
            parts = parallel_map(lambda part: ArrayEngine._measure(self, ranked[part], statistics), slices)
            block = replace(block, statistics=np.concatenate(parts))
        if top_class:
            block = replace(
                block, top_class=np.concatenate(parallel_map(lambda x: z[x].argmax(axis=1), slices))
            )
        return block

    def _ranked(self, logits: Array, top_k: int | None, dtype: object, ordered: bool) -> Ranked:
        way = largest_in_order if suits(logits) else in_order
        return rank_rows(logits, top_k, dtype, ordered, in_order=way)

    def _measure(self, rows: Ranked, statistics: Sequence[str | Callable[[Array], Any]]) -> Array:
        if rows.valid is None and rows.tail is None and suits(rows.depth):
            values = np.empty((len(rows.depth), len(STATISTICS)), dtype=np.float32)
            loops().measure_rows(rows.depth, values)
            rows = replace(rows, measured=dict(zip(STATISTICS, values.T, strict=True)))
        return super()._measure(rows, statistics)

    def _laid_out(self, rows: Ranked) -> Ranked:
        return rows if rows.valid is None and rows.tail is None else super()._laid_out(rows)

    def _precise(self, block: Block) -> Block:
        return block  # loops keep products exact

    def totals(self, block: Block) -> Totals:
        if not _is_plain(block):
            return super().totals(block)
        rows, psi = block.rows, _factors(block)
        r, k = rows.depth.shape[1], psi.shape[1]
        args = rows.depth, rows.height, block.weight, psi
        scales, (below, at_top, ones) = _sum_of_parts(
            block, [(2, r), (3, 2, k)], loops().moments_of_blocks, args
        )
        mean, square = np.zeros((2, 2, k, r))
        for moment, (out, scale) in enumerate(zip((mean, square), scales, strict=True)):
            out[SCALE, :, -1] = at_top[moment]
            out[SCALE, :, 0] += below[moment]
            out[SCALE, 0] = scale
            out[BIAS] = ones[moment][:, None]
        tied = np.zeros(r, dtype=bool) if rows.tied is None else rows.tied.astype(bool)
        label = _label_totals(block)
        top = _label_totals(with_top_labels(block)) if tied[-1] else np.zeros_like(label)
        ties = int(loops().largest_tie(rows.depth)) if tied.any() else 1
        return Totals(float(ones[0, 0]), label, top, tied, mean, square, ties)  # the first factor is 1

    def label_sums(self, block: Block) -> np.ndarray:
        if not _is_plain(block):
            return super().label_sums(block)
        return np.append(_label_totals(block), block.total_weight)

    def scale_totals(self, block: Block) -> Totals:
        if not _is_plain(block):
            return super().scale_totals(block)
        rows, turn = block.rows, _first_turn()
        out = np.empty((2, len(rows.depth)))
        run_parallel(
            lambda: loops().sums_of_heights(rows.depth, rows.height, out, turn), _threads(rows.depth)
        )
        return scale_totals(block, out[0], out[1], block.slices())

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        if not _is_plain(block):
            return super().scale_sums(block, scale)
        v, weight, turn = block.rows.depth, np.asarray(block.weight), _first_turn()
        out = np.empty((3, len(weight)), dtype=np.float32)
        leading, lesser = _in_two(-scale)
        run_parallel(lambda: loops().scale_moments_of_rows(v, leading, lesser, out, turn), _threads(v))
        total, first, second = out
        with np.errstate(under="ignore"):
            mean = first / total
            rows = np.stack([np.log(total), mean, second / total - mean * mean]) * weight
        return reduce(add, [rows[:, part].sum(axis=1, dtype=np.float64) for part in block.slices()])

    def sums(self, block: Block, point: Point, gradient: bool = True) -> Sums:
        """One loop over the rows, and one more where a Hessian is asked for."""
        if not _is_plain(block):
            return super().sums(block, point, gradient)
        rows, psi, r = block.rows, _factors(block), block.rows.depth.shape[1]
        used, table = (_FIRST, point.table[1]) if block.factors is None else point.table
        # First ranks of the pieces, factors of the rows, and which of these count with which parameters.
        parameters = point.pieces[0], psi, used, table[0], table[1:].reshape(-1, table.shape[2])
        args = rows.depth, *parameters, block.weight, rows.height
        value, by_rank, whole, hessian = np.zeros(()), np.zeros((0, 0)), np.zeros(1), np.zeros((0, 0))
        if gradient:
            own = np.arange(psi.shape[1]) if point.own is None or block.factors is None else point.own
            sizes: list[tuple[int, ...]] = [(), (2 + len(own), r), (len(own),)]
            value, by_rank, whole = _sum_of_parts(block, sizes, loops().gradients_of_blocks, (*args, own))
        if a := len(point.start):
            order, column, is_scale, factor = point.by_start
            among_ties = rows.tied is None or bool(rows.tied[point.columns[0]].any())
            atoms = point.pieces[1], column, is_scale, factor, among_ties, point.start[order], order
            (hessian,) = _sum_of_parts(block, [(a, a)], loops().hessians_of_blocks, (*args, *atoms))
        return Sums(float(value), by_rank, whole[1:], hessian)

    def information(self, block: Block, scale: float) -> Information:
        if not _is_plain(block):
            return super().information(block, scale)
        rows, psi = block.rows, _factors(block)
        r, k = rows.depth.shape[1], psi.shape[1]
        args = rows.depth, rows.height, block.weight, psi, *_in_two(-scale)
        sizes: list[tuple[int, ...]] = [(r,), (r,), (k, r), (k,), (k,)]
        out = _sum_of_parts(block, sizes, loops().information_of_blocks, args)
        scales, squares, biases, lowest, errors = out
        variances = np.zeros((2, k, r))
        variances[SCALE, :, 0] = lowest
        variances[SCALE, 0] = np.cumsum(squares[::-1])[::-1] + scales
        variances[BIAS] = biases
        return Information(block.total_weight, np.maximum(variances, 0.0), errors)

    def truncate(
        self, block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int
    ) -> Truncated:
        """In a loop: rows in single precision are so many that rounding does not matter."""
        if not _is_plain(block):
            return super().truncate(block, point, prior_scales, kept)
        v, height = block.rows.depth, block.rows.height
        depth, out = np.empty((len(v), kept)), np.empty((len(v), 6))
        shares, scales = np.array(prior_scales, dtype=np.float64).reshape(-1, 2).T.copy()
        label = block.label_depth, block.label_rank
        used, table = (_FIRST, point.table[1]) if block.factors is None else point.table
        parameters = point.pieces[0], _factors(block), used, table[0], table[1:].reshape(-1, table.shape[2])
        args = v, *parameters, height, kept, shares, scales, *label, depth, out, _first_turn()
        run_parallel(lambda: loops().truncate_rows(*args), _threads(v))
        return Truncated(out[:, 5].astype(np.int64), depth, *out.T[:5])

    def _tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        if tail.logits is None or tail.masked or not suits(tail.logits) or base.dtype != np.float32:
            return super()._tail_sums(block, weights, base, count)
        out = np.empty((3, len(tail.logits)), dtype=np.float32)
        loops().tail_sums(tail.logits, rows.top[:, 0], rows.height, *weights, base, out)
        return list(out[:count])


def _is_plain(block: Block) -> bool:
    """Whether the loops take rows like these: nothing masked, no tail."""
    rows = block.rows
    return rows.valid is None and rows.tail is None and suits(rows.depth)


def largest_in_order(z: np.ndarray, r: int) -> np.ndarray:
    """The r largest of each row, rising: `core.ranked.in_order` by a sorting network."""
    out, m = np.empty_like(z), z.shape[1]
    loops().sort_rows(z, out, _NONE)
    return out if r == m else out[:, m - r :].copy()


def _first_turn() -> np.ndarray:
    """Where threads count the pieces of work that they take (`loops.next_of`)."""
    return np.zeros(1, dtype=np.int64)


def _threads(v: Array) -> int:
    """Number of threads that pays off for a quick operation on each number of an array."""
    return min(available_threads(), max(1, v.shape[0] * v.shape[1] // 2**17))


def _factors(block: Block) -> np.ndarray:
    return _ONE if block.factors is None else np.ascontiguousarray(block.factors)


def _in_two(x: float) -> tuple[np.float32, np.float32]:
    """A number as the sum of two in single precision."""
    leading = np.float32(x)
    return leading, np.float32(x - float(leading))


def _sum_of_parts(
    block: Block, sizes: Sequence[tuple[int, ...]], loop: Callable[..., None], args: tuple[Any, ...]
) -> list[np.ndarray]:
    """Sums of these sizes over the parts of a block, added from first to last: the same on any number of threads.

    ``loop`` writes those of a few parts at a time: those of all could take more memory than the rows.
    """
    threads, slices = available_threads(), block.slices()
    together = max(threads, _TOGETHER // sum(int(np.prod(size)) for size in sizes))
    totals = [np.zeros(size) for size in sizes]
    for i in range(0, len(slices), together):
        chosen = slices[i : i + together]
        ends, out = (
            np.array([part.stop for part in chosen]),
            [np.empty((len(chosen), *size)) for size in sizes],
        )
        work = partial(loop, *args, chosen[0].start, ends, *out, _first_turn())
        run_parallel(work, min(threads, len(chosen)))
        for total, parts in zip(totals, out, strict=True):
            for part in parts:
                total += part
    return totals


def _label_totals(block: Block) -> np.ndarray:
    """What of the labels begins and ends at each rank, (3, K, r)."""
    psi, r = _factors(block), block.rows.depth.shape[1]
    out = np.zeros((r + 1, 3, psi.shape[1]))
    of_labels = block.label_depth, block.rows.height, block.label_rank, block.label_held
    loops().add_labels(psi, block.weight, *of_labels, np.array([part.stop for part in block.slices()]), out)
    return np.ascontiguousarray(out[:-1].transpose(1, 2, 0))


# Applying a map.


class LoopMap:
    """A rank map with the numbers of a step ``"ranks"`` in single precision."""

    def __init__(self, step: MapStep):
        _, a, s = steps_as([step], np.ascontiguousarray, np.float32)[0]
        self._arrays, self._static, self._second = a, s, s["adjustment"]
        r, m = s["n_ranks"], s["n_classes"]
        starts = a["jumps"] if s["n_jumps"] else np.zeros(0, dtype=np.int64)
        ranks = np.append(r - starts[::-1], [r] if r < m else []).astype(np.uint32)
        self._by_loop = s["n_factors"] > 1 and all(q in STATISTICS for q in s["statistics"])
        which, zeros, widths = np.zeros(0, np.intp), _NONE, _NONE
        if self._by_loop:
            places = np.array([STATISTICS.index(q) for q in s["statistics"]], dtype=np.intp)
            which, zeros, widths = places[a["ramp_statistic"]], a["ramp_zero"], a["ramp_width"]
        # So many buckets in each octave of depths that few values share one.
        shift = np.int32(23 - min(max((m // 64).bit_length(), 4), 11))
        self._numbers = ranks, r < m, shift, which, zeros, widths
        self._steps = np.ascontiguousarray(np.moveaxis(a["steps"], 0, 1))
        self._stage = _NONE, _NONE, _NONE, _NONE.reshape(2, 0)
        if (
            self._second is not None
        ):  # class scales; zeros, widths (R,) and steps (2, R) of ramps of the log-odds
            of_odds = a.get("second_statistic", np.zeros(0)) == 0
            ramps = [a.get(f"second_{name}", _NONE)[of_odds] for name in ("zero", "width")]
            steps = np.ascontiguousarray(a["second_steps"][:, 1:][:, of_odds])
            self._stage = a.get("class_scales", _NONE), *ramps, steps

    def predict(
        self,
        logits: np.ndarray,
        output: str,
        context: np.ndarray | None,
        otherwise: Callable[[np.ndarray, str, np.ndarray | None], Any],
    ) -> np.ndarray:
        """Probabilities (n, m) with the argmax of the logits, or calibrated logits; rows too deep for the loops ``otherwise``."""
        from . import numba_map

        keep_freed_memory()
        out = np.empty_like(logits)

        def one(rows: slice) -> None:
            z, to, codes = logits[rows], out[rows], None if context is None else context[rows]
            done, lost = np.empty((2, len(z)), dtype=bool)
            m = z.shape[1]
            ordered = largest_in_order(z, m) if m <= _SORTED else _NONE.reshape(0, 0)
            args = self._factors(z), self._steps, *self._stage, self._terms(codes)
            numba_map.calibrate(z, ordered, *self._numbers, *args, output == PROBABILITIES, to, done, lost)
            far, near = np.flatnonzero(~done), np.flatnonzero(lost)
            if len(far):
                to[far] = otherwise(z[far], output, None if codes is None else codes[far])
            # Where rounding has made another class as probable as the top, `argmax` may change.
            if len(near):
                to[near] = keep_argmax(to[near], z[near])

        parallel_map(one, row_slices(logits, rows_of_size(_BLOCK, logits.shape[1])))
        return out

    def _factors(self, z: np.ndarray) -> np.ndarray:
        """Factors (n, K) of statistics that the loops do not know; else the constant."""
        a, s = self._arrays, self._static
        if self._by_loop or s["n_factors"] == 1:
            return _ONE
        values = compute(s["statistics"], rank_rows(z, s["n_ranks"]))
        with np.errstate(over="ignore"):
            psi = ramps_of(
                np.stack([to_numpy(x) for x in values]).astype(z.dtype),
                a["ramp_statistic"], a["ramp_zero"], a["ramp_width"], HOST,
            )  # fmt: skip
        return np.concatenate([np.ones((len(z), 1), z.dtype), psi.T], axis=1)

    def _terms(self, context: np.ndarray | None) -> np.ndarray:
        """A scale, and the parts of weight and lift without the log-odds, (1 or n, 3); (0, 3): no second stage."""
        if self._second is None:
            return _NONE.reshape(0, 3)
        like = np.zeros(1 if context is None else len(context), dtype=np.float32)
        terms = terms_of_context(context, self._arrays, self._second, like, HOST)
        return np.ascontiguousarray(terms, dtype=np.float32)
