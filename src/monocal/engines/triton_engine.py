"""The engine for CUDA devices: a handful of kernels a pass where rows allow it, tensor operations elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, takes_triton
from ..core.ranked import Ranked, rank_rows
from . import triton_information, triton_prepare, triton_rows, triton_tail, triton_totals
from .array import ArrayEngine, Exponentials
from .block import Block
from .interface import Sums
from .point import Point
from .totals import Totals


class TritonEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    reads_tail_in_place = True

    def takes(self, logits: Array, dtype: object) -> bool:
        return takes_triton(logits) and dtype == array_namespace(logits).float32

    def prepare(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        *,
        statistics: Sequence[Callable[[Ranked], Array]] = (),
        **how: Any,
    ) -> Block:
        m = logits.shape[1]
        all_ranks = how.get("ordered", True) and min(how.get("top_k") or m, m) == m
        found = triton_prepare.prepare(logits, labels) if all_ranks else None
        if found is None:
            return super().prepare(logits, labels, weight, statistics=statistics, **how)
        rows = found.rows
        xp = array_namespace(rows.depth)
        weight = xp.ones_like(rows.height) if weight is None else xp.astype(weight, rows.height.dtype)
        values = [xp.astype(s(rows), rows.depth.dtype) for s in statistics]
        stats = xp.stack(values, axis=1) if values else None
        of_label = (found.label_depth, found.label_rank, found.label_held)
        return Block(self, rows, weight, *of_label, found.label_held, stats)

    def sums(self, block: Block, point: Point) -> Sums:
        if not triton_rows.suits(block, point):
            return super().sums(block, point)
        return triton_rows.sums(block, point)

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        if not triton_rows.suits(block, point):
            return super().hessian(block, point)
        return triton_rows.sums(block, point, gradient=False).hessian

    def _exponentials(self, block: Block, point: Point) -> Exponentials:
        if block.rows.tail is not None or not triton_rows.suits(block, point):
            return super()._exponentials(block, point)
        return triton_rows.exponentials(block, point)

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        return (
            triton_rows.scale_sums(block, scale)
            if triton_rows.readable(block)
            else super().scale_sums(block, scale)
        )

    def totals(self, block: Block, whole_scales: bool) -> Totals:
        if not triton_rows.readable(block):
            return super().totals(block, whole_scales)
        if whole_scales or block.factors is None:
            return triton_totals.totals(block, triton_totals.scale_moments(block))
        left: Any = block.factors * block.weight[:, None]
        moments: list[Any] = self._moments_by_rank(block, [left, block.factors * left], whole_scales)
        return triton_totals.totals(block, [x.double() for x in moments])

    def information(
        self, block: Block, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        return (
            triton_information.information(block, scale)
            if triton_information.suits(block, whole_scales)
            else None
        )

    def _ranked(
        self, logits: Array, top_k: int | None, dtype: object, ordered: bool, into: np.ndarray | None
    ) -> Ranked:
        return rank_rows(logits, top_k, dtype, ordered, triton_tail.look_at_tail)

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        xp = array_namespace(base)
        weight = sum(xp.astype(w, xp.float64) for w in weights)
        sums = triton_tail.tail_sums(tail.logits, rows.top, rows.height, weight)
        unit = xp.exp(base[:, 0] + sum(w[:, 0] * rows.height for w in weights))
        return [sums[:, t] * unit for t in range(count)]
