"""The engine for CUDA devices: one kernel a pass where rows allow it, tensor operations elsewhere."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from . import triton_rows, triton_tail
from .array import ArrayEngine, Exponentials
from .block import Block
from .curvature import device_hessian
from .interface import Sums
from .point import Point


class TritonEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    reads_tail_in_place = True

    def sums(self, block: Block, point: Point) -> Sums:
        if block.factors is not None or not triton_rows.suits(block):
            return super().sums(block, point)
        found = triton_rows.sums(block, point, point.columns[0])
        hessian = np.zeros((0, 0))
        if found.drops is not None and found.squares is not None:
            hessian = device_hessian(block, point, found.p, found.drops, found.squares, found.n_tied)
        return Sums(found.value, found.by_rank, np.zeros(0), hessian)

    def _exponentials(self, block: Block, point: Point) -> Exponentials:
        if not triton_rows.suits(block):
            return super()._exponentials(block, point)
        return *triton_rows.exponentials(block, point), None

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        leading, *lesser = [-w[:, 0] for w in weights]
        parts = [leading, lesser[0] if lesser else 0 * leading]
        return triton_tail.tail_sums(tail.logits, rows.top[:, 0], rows.height, parts, base[:, 0])[:count]
