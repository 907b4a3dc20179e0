"""Checked rows with labels and weights, wherever they live, and how blocks are made of them.

    parts, of any size  ->  blocks of the size that memory has  ->  prepared  ->  function(block)  ->  sum

Rows in memory are prepared once. Rows that need not fit in memory are read and prepared again in every pass, and none are kept.
Blocks and the order of addition are those of rows in memory, and so is the coarse copy on which the solver works between its
passes. So a fit gives what it gives in memory, bit for bit; it costs a sort a pass, and about eight passes
(`StreamSource.passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np

from ..arrays import Array, is_torch
from ..core.block import Block
from ..core.rows import Blocks, MemoryBlocks, Rows
from ..engines import engine_for
from ..errors import InputError
from ..parallel import block_rows, map_in_order, parallel_map, row_slices
from .reader import Checked, Reader

T = TypeVar("T")


class Source(Protocol):
    """Checked rows with labels and weights, wherever they live."""

    @property
    def single_precision(self) -> bool:
        """Whether the rows are in single precision, or less."""

    @property
    def reader(self) -> Reader:
        """The reader, with what it has learnt from the rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows that count, and classes."""

    def first_rows(self) -> Array:
        """Logits of a few of the rows, to judge their unit by."""

    def prepare(self, **how: Any) -> Rows:
        """Rows for the solver; the keywords are those of `Engine.prepare`."""

    def hold(self, make: Callable[[Checked], Any]) -> Blocks:
        """Blocks of rows in the caller's own order of classes: ``make(checked)``, which has ``n_rows``.

        They are made once where they can be kept, and in every pass where rows are read again.
        """


def prepared(rows: Checked, **how: Any) -> list[Block]:
    """Blocks of checked rows, by the engine for them; the keywords are those of `Engine.prepare`."""
    engine = engine_for(rows.logits, how.get("dtype"))
    return engine.prepare(rows.logits, rows.labels, rows.weight, context=rows.context, **how)


def prepared_block(rows: Checked, **how: Any) -> Block:
    """One block of as many rows as `block_rows` says."""
    (block,) = prepared(rows, **how)
    return block


@dataclass(frozen=True)
class ArraySource:
    """Checked arrays in memory; implements `Source`."""

    reader: Reader
    checked: Checked

    @property
    def shape(self) -> tuple[int, int]:
        n, m = self.checked.logits.shape
        return n, m

    def first_rows(self) -> Array:
        return self.checked.logits

    @property
    def single_precision(self) -> bool:
        return not str(self.checked.logits.dtype).endswith("float64")

    def hold(self, make: Callable[[Checked], Any]) -> MemoryBlocks:
        serial = is_torch(self.checked.logits)  # torch has its own parallelism, on every device
        slices = row_slices(self.checked.logits)
        return MemoryBlocks(parallel_map(lambda rows: make(self.checked[rows]), slices, serial), serial)

    def prepare(self, **how: Any) -> Rows:
        return Rows.of_blocks(prepared(self.checked, **how))


def regroup(parts: Iterable[Checked]) -> Iterator[Checked]:
    """The same rows, less those without weight, in blocks of the size that suits the cache."""
    held: list[Checked] = []
    n_held = 0
    for part in parts:
        held.append(part.that_count)
        n_held += len(held[-1])
        size = block_rows(part.logits)
        if n_held < size:
            continue
        rows = _join(held)
        whole = n_held // size * size
        for begin in range(0, whole, size):
            yield rows[begin : begin + size]
        held, n_held = [rows[whole:]], n_held - whole
    if n_held:
        yield _join(held)


def _join(parts: list[Checked]) -> Checked:
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate([np.ones(len(p)) if p.weight is None else p.weight for p in parts])
    names = ("logits", "labels", "context") if parts[0].context is not None else ("logits", "labels")
    logits, labels, *context = (np.concatenate([getattr(p, name) for p in parts]) for name in names)
    return Checked(logits, labels, weight, *context)


@dataclass
class CountedReads:
    """A function that reads all rows, and how often that has been done."""

    read: Callable[[], Iterator[Checked]]
    passes: int = 1  # rows have been checked and counted before

    def __call__(self) -> Iterator[Checked]:
        self.passes += 1
        return self.read()


@dataclass(frozen=True)
class StreamSource:
    """Checked rows that are read in parts: again and again, or once where what is made of them is kept; implements `Source`."""

    reader: Reader
    read: CountedReads
    first: np.ndarray  # a few of the logits
    shape: tuple[int, int]
    single_precision: bool
    keeps: bool = False  # whether what is made of the rows fits in memory, as they do

    @property
    def passes(self) -> int:
        """How often the rows have been read so far."""
        return self.read.passes

    def first_rows(self) -> np.ndarray:
        return self.first

    def hold(self, make: Callable[[Checked], Any]) -> Blocks:
        if self.keeps:
            return MemoryBlocks(list(map_in_order(make, regroup(self.read()))))
        return StreamedBlocks(self.read, make, self.shape[0])

    def prepare(self, **how: Any) -> Rows:
        blocks = self.hold(partial(prepared_block, **how))
        if isinstance(blocks, MemoryBlocks):
            return Rows.of_blocks(blocks.blocks)
        return rows_out_of_core(self, blocks, **how)


def rows_out_of_core(source: Source, blocks: Blocks, **how: Any) -> Rows:
    """Blocks that are not in memory as rows for the solver."""
    (n, m), top_k = source.shape, how.get("top_k")
    r = min(top_k or m, m)
    single = source.single_precision and how.get("dtype") is None
    return Rows(blocks, n, m, r, has_tail=r < m, single_precision=single)


@dataclass(frozen=True)
class StreamedBlocks:
    """Blocks made again in every pass; implements `core.rows.Blocks`."""

    read: Callable[[], Iterator[Checked]]
    make: Callable[[Checked], Any]
    n_read: int  # rows of a pass
    chosen: np.ndarray | None = None  # (n_read,), which of them are in use

    def map(self, function: Callable[[Any, int], T]) -> Iterator[T]:
        before = None if self.chosen is None else np.append(0, np.cumsum(self.chosen))

        def one(item: tuple[Checked, int]) -> tuple[T] | None:
            part, first = item
            if self.chosen is None or before is None:
                return (function(self.make(part), first),)
            places = np.flatnonzero(self.chosen[first : first + len(part)])
            return (function(self.make(part)[places], int(before[first])),) if len(places) else None

        seen = 0

        def numbered() -> Iterator[tuple[Checked, int]]:
            nonlocal seen
            for part in regroup(self.read()):
                yield part, seen
                seen += len(part)

        for result in map_in_order(one, numbered()):
            if result is not None:
                yield result[0]
        if seen != self.n_read:
            raise InputError(
                f"X: one pass over the blocks gave {self.n_read} rows and another gave {seen}. Every pass must give the same "
                "rows: let the function open its files anew, and do not shuffle or drop rows at random."
            )

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        return reduce(add, self.map(lambda block, first: function(block, *args)))

    def changed(self, function: Callable[[Any], Any]) -> StreamedBlocks:
        return replace(self, make=lambda part: function(self.make(part)))

    def part(self, chosen: np.ndarray) -> StreamedBlocks:
        if self.chosen is not None:
            index = np.flatnonzero(self.chosen)[chosen]
            chosen = np.zeros(self.n_read, dtype=bool)
            chosen[index] = True
        return replace(self, chosen=np.asarray(chosen))
