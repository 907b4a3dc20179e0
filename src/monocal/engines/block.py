"""A block of prepared rows: sorted, with labels found and factors at hand. This is what an engine reads.

Labels among tied logits: the tied ranks share the label in equal parts, so it does not matter how the sort placed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, array_namespace, beside, to_numpy
from ..core.ranked import Ranked, Rest, Tail

if TYPE_CHECKING:
    from .interface import Engine


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
    context: np.ndarray | None = None  # (n, C), what is known of a row beside its logits; on the host

    @property
    def n_rows(self) -> int:
        return len(self.weight)

    @property
    def measured(self) -> Array:
        """The statistics (n, S) of rows that were prepared with some."""
        assert self.statistics is not None
        return self.statistics

    def with_factors(self, factors: Callable[[Array], Array]) -> Block:
        """The same rows with the factors of their statistics."""
        return replace(self, factors=row_by_row(factors(self.measured)))

    def every(self, step: int) -> Block:
        """One row in ``step``, copied side by side: loops want them so, and the others need not stay in memory."""
        return self[np.arange(0, self.n_rows, step)]

    def in_double(self) -> Block:
        """The same rows in double precision, but for the logits of a tail: numpy only."""
        if self.rows.depth.dtype == np.float64:
            return self

        def wide(x: Any) -> Any:
            return None if x is None else x.astype(np.float64)

        rows = replace(
            self.rows,
            depth=wide(self.rows.depth),
            height=wide(self.rows.height),
            top=wide(self.rows.top),
        )
        return replace(self, rows=rows, weight=wide(self.weight), factors=wide(self.factors))

    def __getitem__(self, index: slice | Array) -> Block:
        # To a device once for all arrays.
        there = index if isinstance(index, slice) else beside(index, self.weight)
        return Block(
            self.engine,
            self.rows[there],
            self.weight[there],
            self.label_depth[there],
            self.label_rank[there],
            self.label_held[there],
            self.label_size[there],
            None if self.statistics is None else self.statistics[there],
            None if self.factors is None else self.factors[there],
            *(None if x is None else x[_on_host(index)] for x in (self.top_class, self.context)),
        )

    def split(self, ends: np.ndarray) -> list[Block]:
        """Blocks of the same rows, one up to each of the ends."""
        return [self[slice(i, j)] for i, j in pairwise([0, *ends])]


def join_blocks(blocks: Sequence[Block], logits: Array | None = None) -> Block:
    """One block with the rows of several; ``logits`` are theirs, where they lie together already."""
    if len(blocks) == 1:
        return blocks[0]
    xp = array_namespace(blocks[0].weight)

    def join(get: Callable[[Block], Any]) -> Any:
        parts = [get(b) for b in blocks]
        if parts[0] is None:
            return None
        together = _as_they_lie(parts)
        return xp.concat(parts, axis=0) if together is None else together

    tail = blocks[0].rows.tail
    if tail is not None:
        tail = Tail(
            logits if logits is not None else join(lambda b: b.rows.tail and b.rows.tail.logits),
            join(lambda b: b.rows.tail and b.rows.tail.ties),
            any(b.rows.tail is not None and b.rows.tail.masked for b in blocks),
            tail.rest and Rest(join(lambda b: _rest(b).depth), join(lambda b: _rest(b).count)),
        )
    masked = any(b.rows.valid is not None for b in blocks)
    rows = Ranked(
        join(lambda b: b.rows.depth),
        join(lambda b: b.rows.height),
        join(lambda b: b.rows.top),
        join(lambda b: _valid(b.rows)) if masked else None,
        tail,
        blocks[0].rows.n_classes,
        _any_tied([b.rows.tied for b in blocks]),
    )
    return Block(
        blocks[0].engine,
        rows,
        join(lambda b: b.weight),
        join(lambda b: b.label_depth),
        join(lambda b: b.label_rank),
        join(lambda b: b.label_held),
        join(lambda b: b.label_size),
        join(lambda b: b.statistics),
        join(lambda b: b.factors),
        *(_join_on_host([getattr(b, name) for b in blocks]) for name in ("top_class", "context")),
    )


def _as_they_lie(parts: Sequence[Any]) -> np.ndarray | None:
    """The rows of several arrays without a copy, where they are neighbours in one."""
    whole = getattr(parts[0], "base", None)
    if not (isinstance(whole, np.ndarray) and whole.flags.c_contiguous and whole.ndim == parts[0].ndim):
        return None
    ends = [(part.ctypes.data, part.ctypes.data + part.nbytes) for part in parts]
    beside = all(end == begin for (_, end), (begin, _) in pairwise(ends))
    if not beside or any(part.base is not whole or part.shape[1:] != whole.shape[1:] for part in parts):
        return None
    if not all(part.flags.c_contiguous for part in parts):  # one row in a few
        return None
    first = (ends[0][0] - whole.ctypes.data) // whole.strides[0]
    return whole[first : first + sum(map(len, parts))]


def _on_host(index: slice | Array) -> slice | np.ndarray:
    return index if isinstance(index, slice) else to_numpy(index)


def _join_on_host(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _any_tied(tied: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [t for t in tied if t is not None]
    return np.any(known, axis=0) if len(known) == len(tied) else None


def _rest(block: Block) -> Rest:
    assert block.rows.tail is not None
    assert block.rows.tail.rest is not None
    return block.rows.tail.rest


def _valid(rows: Ranked) -> Array:
    xp = array_namespace(rows.depth)
    return xp.ones_like(rows.depth, dtype=xp.bool) if rows.valid is None else rows.valid


def row_by_row(x: Array) -> Array:
    """The same numbers, those of a row side by side in memory.

    A loop is compiled anew for each way in which an array may lie, and the last digits of its sums would hang on that.
    """
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x
