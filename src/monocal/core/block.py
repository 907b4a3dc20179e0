"""A block of prepared rows: sorted, with the places of their labels, and factors. This is what an engine reads.

A block is one part, or many that lie one after another in the same arrays: sums are added part by part.

Labels among tied logits: the tied ranks share the label in equal parts, so it does not matter how the sort placed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ..arrays import Array, array_namespace, on_device_of, to_numpy
from ..parallel import parallel_sum
from .engine import Information, Sums, Totals
from .ranked import Ranked, Rest, Tail

if TYPE_CHECKING:
    from .engine import Engine
    from .point import Point

T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Prepared rows, and the engine that works on them."""

    engine: Engine
    rows: Ranked
    weight: Array  # (n,)
    label_depth: Array  # (n,)
    label_rank: Array  # (n,), first of the ranks its value holds
    label_held: Array  # (n,), how many ranks hold it
    label_size: Array  # (n,), how many classes hold it: those ranks and what ties with them in the tail
    statistics: Array | None = None  # (n, S)
    factors: Array | None = None  # (n, K), non-negative, first column 1; None means just the 1
    top_class: np.ndarray | None = (
        None  # (n,), one of the classes that have the largest logit, where it is asked for
    )
    context: np.ndarray | None = None  # (n, C), columns of the context of a row; on the host
    ends: np.ndarray | None = None  # (B,), behind the last row of each part; None: one part

    @property
    def n_rows(self) -> int:
        return len(self.weight)

    def with_factors(self, factors: Callable[[Array], Array]) -> Block:
        """The same rows with the factors of their statistics."""
        return replace(self, factors=like_depths(factors(self.statistics), self.rows.depth))

    # Sums by the block's own engine, as functions for `Rows.sum`.

    def totals(self, begins: np.ndarray | None = None) -> Totals:
        return self.engine.totals(self, begins)

    def label_sums(self, begins: np.ndarray | None = None) -> np.ndarray:
        return self.engine.label_sums(self, begins)

    def scale_totals(self) -> Totals:
        return self.engine.scale_totals(self)

    def scale_sums(self, scale: float) -> np.ndarray:
        return self.engine.scale_sums(self, scale)

    def sums(self, point: Point) -> Sums:
        return self.engine.sums(self, point)

    def hessian(self, point: Point) -> np.ndarray:
        return self.engine.sums(self, point, gradient=False).hessian

    def information(self, scale: float, begins: np.ndarray | None = None) -> Information:
        return self.engine.information(self, scale, begins)

    def every(self, step: int) -> Block:
        """One row in ``step`` of each part, copied side by side."""
        return self[np.concatenate([np.arange(x.start, x.stop, step) for x in self.slices()])]

    def slices(self) -> list[slice]:
        """The rows of each part."""
        ends = [self.n_rows] if self.ends is None else self.ends.tolist()
        return [slice(i, j) for i, j in pairwise([0, *ends])]

    def parts(self) -> list[Block]:
        """Each part as a block."""
        return [self] if self.ends is None else [self[rows] for rows in self.slices()]

    def sum_parts(self, function: Callable[[Block], T]) -> T:
        """``function(part)`` added up, on threads."""
        return function(self) if self.ends is None else parallel_sum(function, self.parts())

    def in_double(self) -> Block:
        """The same rows in double precision, but for the logits of a tail: numpy only."""
        if self.rows.depth.dtype == np.float64:
            return self
        depth, height, top = (
            x.astype(np.float64) for x in (self.rows.depth, self.rows.height, self.rows.top)
        )
        rows = replace(self.rows, depth=depth, height=height, top=top)
        factors = None if self.factors is None else self.factors.astype(np.float64)
        return replace(self, rows=rows, weight=self.weight.astype(np.float64), factors=factors)

    def __getitem__(self, index: slice | Array) -> Block:
        # To a device once for all arrays.
        there = index if isinstance(index, slice) else on_device_of(index, self.weight)
        here = index if isinstance(index, slice) else to_numpy(index)
        parts = {name: _taken(getattr(self, name), there) for name in _OF_ROWS}
        parts |= {name: _taken(getattr(self, name), here) for name in _ON_HOST}
        return Block(self.engine, self.rows[there], **parts)


# Names of what there is for each row, and of what is always on the host.
_OF_ROWS = ("weight", "label_depth", "label_rank", "label_held", "label_size", "statistics", "factors")
_ON_HOST = ("top_class", "context")


def _taken(x: Array | None, index: slice | Array) -> Any:
    return None if x is None else x[index]


def join_blocks(blocks: Sequence[Block], logits: Array | None = None) -> Block:
    """One block with the rows of several; ``logits`` are theirs, where they lie together already."""
    if len(blocks) == 1:
        return blocks[0]
    double = [b for b in blocks if b.engine is not blocks[0].engine or str(b.weight.dtype).endswith("64")]
    if double and len(double) < len(blocks):  # rows with finite masks are in double precision
        wide = next(b for b in double if str(b.weight.dtype).endswith("64"))
        blocks = [replace(b.in_double(), engine=wide.engine) for b in blocks]
    first, ranked = blocks[0], [b.rows for b in blocks]
    xp = array_namespace(first.weight)

    def join(parts: Sequence[Any], concat: Callable[..., Any] = xp.concat) -> Any:
        return None if parts[0] is None else concat(parts, axis=0)

    tail = first.rows.tail
    if tail is not None:
        tails: list[Any] = [rows.tail for rows in ranked]
        if tail.rest is not None:
            rests = [t.rest for t in tails]
            rest = Rest(join([x.depth for x in rests]), join([x.count for x in rests]))
        tail = Tail(
            logits if logits is not None else join([t.logits for t in tails]),
            join([t.ties for t in tails]),
            any(t.masked for t in tails),
            tail.rest and rest,
        )
    valid: list[Any] = [rows.valid for rows in ranked]
    tied: list[Any] = [rows.tied for rows in ranked]
    if any(x is not None for x in valid):
        everywhere = [xp.ones_like(rows.depth, dtype=xp.bool) for rows in ranked]
        valid = [one if x is None else x for x, one in zip(valid, everywhere, strict=True)]
    rows = Ranked(
        join([rows.depth for rows in ranked]),
        join([rows.height for rows in ranked]),
        join([rows.top for rows in ranked]),
        join(valid),
        tail,
        first.rows.n_classes,
        None if any(t is None for t in tied) else np.any(tied, axis=0),
    )
    joined = {name: join([getattr(b, name) for b in blocks]) for name in _OF_ROWS}
    joined |= {name: join([getattr(b, name) for b in blocks], np.concatenate) for name in _ON_HOST}
    return Block(first.engine, rows, **joined)


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """What blocks return, one after another, where `Rows.sum` adds. Who asked joins the parts once: joined pair by pair, many
    blocks would be copied over and over."""

    parts: tuple[T, ...]

    def __add__(self, other: Gathered[T]) -> Gathered[T]:
        return Gathered(self.parts + other.parts)


def like_depths(x: Array, depth: Array) -> Array:
    """The same numbers (n, K) in the order in memory that the depths have: row by row, or rank by rank.

    A loop is compiled again for each way in which an array may lie, and the last digits of its sums would depend on that.
    """
    if not isinstance(x, np.ndarray):
        return x
    return np.asarray(x, order="F" if rank_by_rank(depth) else "C")


def rank_by_rank(depth: Array) -> bool:
    """Whether the depths of one rank in all rows stand side by side in memory."""
    return isinstance(depth, np.ndarray) and depth.strides[0] < depth.strides[1]
