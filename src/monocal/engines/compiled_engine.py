"""The engine for large single-precision arrays in memory: the loops of `compiled`, compiled by numba.

Rows with masked classes and rows with a tail take the way of arrays, but for the sums over a tail without masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array
from ..core.ranked import Ranked, in_order, rank_rows
from . import compiled, compiled_information, compiled_sums, compiled_totals
from .array import ArrayEngine, Exponentials
from .block import Block, row_by_row
from .interface import Sums
from .point import Point
from .run import Run, Threads, added
from .totals import Totals

_HIGH = 1e3


class CompiledEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    def takes(self, logits: Array, dtype: object) -> bool:
        return isinstance(logits, np.ndarray) and dtype == np.float32 and compiled.available()

    def _ranked(
        self, logits: Array, top_k: int | None, dtype: object, ordered: bool, into: np.ndarray | None
    ) -> Ranked:
        sort = compiled.in_order if compiled.suits(logits) else in_order
        return rank_rows(logits, top_k, dtype, ordered, into=into, in_order=sort)

    def prepare_in_place(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        into: np.ndarray,
        threads: Threads,
        measured: bool = False,
    ) -> Block | None:
        if not compiled.suits(logits):
            return None
        z, n = np.asarray(logits), len(logits)
        found = compiled.prepare(z, np.ascontiguousarray(labels, dtype=np.int64), into, threads, measured)
        rows = Ranked(
            into, found.height, found.top[:, None], None, None, z.shape[1], found.tied, found.measured
        )
        weight = np.ones(n, z.dtype) if weight is None else np.asarray(weight, dtype=z.dtype)
        held = found.label_held
        return Block(self, rows, weight, found.label_depth, found.label_rank, held, held)

    def _measured(self, rows: Ranked) -> Ranked:
        plain = rows.valid is None and rows.tail is None and compiled.suits(rows.depth)
        return replace(rows, measured=compiled.measured(rows.depth)) if plain else rows

    def _find_labels(
        self, depth: Array, label_depth: Array, ordered: bool
    ) -> tuple[Array, Array, np.ndarray | None]:
        if ordered and compiled.suits(depth):
            return compiled.find_labels(depth, label_depth)
        return super()._find_labels(depth, label_depth, ordered)

    def largest_tie(self, rows: Ranked) -> int:
        if rows.tied is None or rows.valid is not None or not compiled.suits(rows.depth):
            return super().largest_tie(rows)
        return compiled.largest_tie(rows.depth)

    def sums(self, block: Block, point: Point) -> Sums:
        """One loop over the rows, and one more where a Hessian is wanted."""
        if not self.row_by_row(block, point.whole_scales):
            return super().sums(block.in_double() if _is_plain(block) or _is_high(block) else block, point)
        return self.sums_of_run(Run.of(block), point)

    def sums_of_run(self, run: Run, point: Point) -> Sums:
        values, by_rank, whole = compiled_sums.gradients_of_blocks(
            *_numbers(run.block), point, run.ends, run.threads
        )
        hessian = self.hessian_of_run(run, point) if len(point.start) else np.zeros((0, 0))
        return Sums(float(added(values)), added(by_rank), added(whole[:, 1:]), hessian)

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        if not self.row_by_row(block, point.whole_scales):
            return super().hessian(block, point)
        return self.hessian_of_run(Run.of(block), point)

    def hessian_of_run(self, run: Run, point: Point) -> np.ndarray:
        tied = run.block.rows.tied
        among_ties = tied is None or bool(tied[point.columns[0]].any())
        return added(
            compiled_sums.hessians_of_blocks(*_numbers(run.block), point, run.ends, among_ties, run.threads)
        )

    def row_by_row(self, block: Block, whole_scales: bool) -> bool:
        return _is_plain(block) and (block.factors is None or whole_scales) and not _is_high(block)

    def totals(self, block: Block, whole_scales: bool) -> Totals:
        if not self.row_by_row(block, whole_scales):
            return super().totals(block.in_double() if _is_high(block) else block, whole_scales)
        return self.totals_of_run(Run.of(block), whole_scales)

    def totals_of_run(self, run: Run, whole_scales: bool) -> Totals:
        return compiled_totals.totals_of_run(run)

    def label_sums_of_run(self, run: Run) -> np.ndarray:
        return compiled_totals.label_sums_of_run(run)

    def information_of_run(
        self, run: Run, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray]:
        return compiled_information.information_of_run(run, scale)

    def scale_totals_of_run(self, run: Run) -> Totals:
        return compiled_totals.scale_totals_of_run(run)

    def scale_sums_of_run(self, run: Run, scale: float) -> np.ndarray:
        return self._scale_sums(run, scale)

    def probabilities(self, block: Block, point: Point) -> tuple[Block, Array, Array, list[Array] | None]:
        if not _is_plain(block):
            return super().probabilities(block, point)
        rows = block.rows
        p, total, shift = compiled_sums.exponentials(rows.depth, rows.height, _factors(block), point)
        p *= (block.weight / total)[:, None]
        return block, p, np.log(total, dtype=np.float64) + shift, None

    def exponentials(self, block: Block, point: Point) -> Exponentials:
        if not _is_plain(block):
            return super().exponentials(block, point)
        rows = block.rows
        p, total, shift = compiled_sums.exponentials(rows.depth, rows.height, _factors(block), point)
        return p, total, shift[:, None], None

    def shorten(
        self, block: Block, point: Point, kept: int, prior_scales: Sequence[tuple[float, float]]
    ) -> compiled_sums.Cut | None:
        if not _is_plain(block):
            return None
        rows, label = block.rows, (block.label_depth, block.label_rank)
        return compiled_sums.shorten(
            rows.depth, rows.height, _factors(block), point, label, kept, prior_scales
        )

    def within_ties(self, block: Block, point: Point, p: Array) -> np.ndarray | float:
        if not (_is_plain(block) and compiled.suits(p)):
            return super().within_ties(block, point, p)
        rows = block.rows
        return compiled_sums.products_in_ties(p, rows.depth, rows.height, _factors(block), point)

    def _precise(self, block: Block) -> Block:
        return (
            block if compiled.suits(block.rows.depth) else super()._precise(block)
        )  # loops keep products exact

    def _scale_moments_of_rows(
        self, block: Block, weights: list[Array], threads: Threads
    ) -> tuple[Array, Array, Array]:
        v = block.rows.depth
        if block.rows.valid is not None or not compiled.suits(v):
            return super()._scale_moments_of_rows(block, weights, threads)
        total, first, second = compiled.scale_moments_of_rows(v, weights, threads)
        return total, first, second

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        if tail.logits is None or tail.masked or not compiled.suits(tail.logits) or base.dtype != np.float32:
            return super().tail_sums(block, weights, base, count)
        *parts, offset = [np.ascontiguousarray(x[:, 0]) for x in (*weights, base)]
        return list(compiled.tail_sums(tail.logits, rows.top[:, 0], rows.height, parts, offset)[:count])

    def piece_moments(self, p: Array, v: Array, starts: np.ndarray, count: int = 3) -> list[Array]:
        if not (compiled.suits(p) and compiled.suits(v)):
            return super().piece_moments(p, v, starts, count)
        return list(compiled_sums.piece_moments(p, v, starts)[:count])


def _is_plain(block: Block) -> bool:
    """Whether the loops take rows like these: nothing masked, no tail."""
    rows = block.rows
    return rows.valid is None and rows.tail is None and compiled.suits(rows.depth)


def _is_high(block: Block) -> bool:
    """Whether the lowest class of some row is so far down (a finite mask) that single precision would spoil the certificate.

    The gradient of a weight is a sum of probabilities times heights: rounding of the former by 1e-7 counts as often.
    """
    return len(block.rows.height) > 0 and float(np.max(block.rows.height)) > _HIGH


def _numbers(block: Block) -> tuple[Any, Any, Any, Any]:
    """Depths, heights, weights and factors of the rows."""
    return block.rows.depth, block.rows.height, block.weight, _factors(block)


def _factors(block: Block) -> Any:
    return None if block.factors is None else row_by_row(block.factors)
