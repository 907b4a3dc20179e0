"""The engine for large single-precision arrays in memory: the loops of `compiled`, compiled by numba.

Rows with masked classes and rows with a tail take the way of arrays, but for the sums over a tail without masks.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..ranks.ranked import Ranked
from ..ranks.ties import average_ties
from . import compiled
from .array import ArrayEngine, Exponentials
from .block import Block
from .interface import Sums
from .point import Point, from_top, parameters


class CompiledEngine(ArrayEngine):
    """Implements `interface.Engine`."""

    def _find_labels(
        self, depth: Array, label_depth: Array, ordered: bool
    ) -> tuple[Array, Array, np.ndarray | None]:
        if ordered and compiled.suits(depth):
            return compiled.find_labels(depth, label_depth)
        return super()._find_labels(depth, label_depth, ordered)

    def _scale_moments(self, block: Block, lefts: list[Array], whole_scales: bool) -> list[np.ndarray]:
        rows = block.rows
        if block.factors is None and rows.valid is None and compiled.suits(rows.depth):
            return list(compiled.scale_moments(rows.depth, rows.height, block.weight)[:, None])
        return super()._scale_moments(block, lefts, whole_scales)

    def sums(self, block: Block, point: Point) -> Sums:
        if block.factors is not None or len(point.start) or not _is_plain(block):
            return super().sums(block, point)
        # One loop over the rows; the few whose top is split go the long way.
        rows = block.rows
        weights, base = parameters(block, point, rows.depth)
        split = _top_is_split(point.jumps, rows)
        by_rank, total = compiled.sums_by_rank(
            rows.depth, np.append(0, point.jumps), weights, base, block.weight, rows.height, split
        )
        logs = np.log(total, dtype=np.float64)
        sums = Sums(float(block.weight @ np.where(split, 0.0, logs)), by_rank, np.zeros(0), np.zeros((0, 0)))
        return sums + super().sums(block[np.flatnonzero(split)], point) if split.any() else sums

    def _precise(self, block: Block) -> Block:
        return (
            block if compiled.suits(block.rows.depth) else super()._precise(block)
        )  # loops keep products exact

    def _exponentials(self, block: Block, point: Point) -> Exponentials:
        if not _is_plain(block):
            return super()._exponentials(block, point)
        v = block.rows.depth
        weights, base = parameters(block, point, v)
        p, total = compiled.exponentials(v, np.append(0, point.jumps), weights, base)
        split = np.flatnonzero(_top_is_split(point.jumps, block.rows))
        if not len(split):
            return p, total, None, None
        some = block[split]
        f = from_top(some, point, some.rows.depth)
        average_ties(f, some.rows, point.jumps)
        shift = np.zeros((len(v), 1), dtype=v.dtype)
        shift[split] = f[:, -1:]
        p[split] = np.exp(f - f[:, -1:])
        total[split] = p[split].sum(axis=1)
        return p, total, shift, None

    def _scale_moments_of_rows(self, block: Block, weights: list[Array]) -> tuple[Array, Array, Array]:
        v = block.rows.depth
        if block.rows.valid is not None or not compiled.suits(v):
            return super()._scale_moments_of_rows(block, weights)
        one = np.zeros(1, dtype=np.intp)
        p, _ = compiled.exponentials(v, one, weights, np.zeros((len(v), 1), dtype=v.dtype))
        total, first, second = compiled.piece_moments(p, v, one)[:, :, 0]
        return total, first, second

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        if tail.logits is None or tail.masked or not compiled.suits(tail.logits) or base.dtype != np.float32:
            return super().tail_sums(block, weights, base, count)
        *parts, offset = [np.ascontiguousarray(x[:, 0]) for x in (*weights, base)]
        return list(compiled.tail_sums(tail.logits, rows.top[:, 0], rows.height, parts, offset)[:count])

    def piece_moments(self, p: Array, v: Array, starts: np.ndarray) -> list[Array]:
        if not compiled.suits(p):
            return super().piece_moments(p, v, starts)
        return list(compiled.piece_moments(p, v, starts).astype(np.float64))


def _is_plain(block: Block) -> bool:
    """Whether the loops take rows like these: nothing masked, no tail."""
    rows = block.rows
    return rows.valid is None and rows.tail is None and compiled.suits(rows.depth)


def _top_is_split(jumps: np.ndarray, rows: Ranked) -> np.ndarray:
    """Whether a jump falls among the classes that share the top of a row, (n,): the top then is no longer at 0."""
    return np.equal(rows.depth[:, jumps[-1] - 1], 0) if len(jumps) else np.zeros(len(rows.depth), dtype=bool)
