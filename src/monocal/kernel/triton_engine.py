"""The engine for CUDA devices: a handful of kernels a pass where rows allow it, tensor operations elsewhere."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, takes_triton
from ..ranks.ranked import Ranked, rank_rows
from . import triton_rows, triton_tail, triton_totals
from .array import ArrayEngine
from .block import Block
from .interface import Sums
from .point import Point
from .totals import Totals


class TritonEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    reads_tail_in_place = True

    def takes(self, logits: Array, dtype: object) -> bool:
        return takes_triton(logits) and dtype == array_namespace(logits).float32

    def sums(self, block: Block, point: Point) -> Sums:
        if not triton_rows.suits(block, point):
            return super().sums(block, point)
        return triton_rows.sums(block, point)

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        return (
            triton_rows.scale_sums(block, scale)
            if triton_rows.readable(block)
            else super().scale_sums(block, scale)
        )

    def totals(self, block: Block, whole_scales: bool) -> Totals:
        if not triton_rows.readable(block):
            return super().totals(block, whole_scales)
        psi = (
            array_namespace(block.weight).ones_like(block.weight)[:, None]
            if block.factors is None
            else block.factors
        )
        left = psi * block.weight[:, None]
        return triton_totals.totals(block, self._moments_by_rank(block, [left, psi * left], whole_scales))

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
