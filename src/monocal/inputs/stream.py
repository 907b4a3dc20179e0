"""Rows that need not fit in memory: every pass reads them anew, and keeps none.

    parts, of any size  ->  blocks of the size that `MemoryRows` has  ->  prepared  ->  function(block)  ->  sum

Blocks and the order of addition are those of `MemoryRows`, and so is the coarse copy on which the solver works between its
passes. So a fit gives what it gives in memory, bit for bit; it costs a sort a pass, and about eight passes
(`StreamSource.passes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from operator import add
from typing import Any, TypeVar

import numpy as np

from ..arrays import Array, to_numpy
from ..engines.block import Block
from ..engines.runs import of_block
from ..errors import InputError
from ..parallel import block_rows, map_in_order
from .block import prepare_block
from .memory import HeldBlocks, MemoryRows
from .reader import Checked, Reader
from .sampling import blocks_between, join_samples, one_in, sample_step

T = TypeVar("T")


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
    """Checked rows that are read in parts: again and again, or once where what is made of them is kept; implements
    `interface.Source`."""

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

    def hold(self, make: Callable[[Checked], Any]) -> StreamingRows | HeldBlocks:
        n, m = self.shape
        if self.keeps:
            return HeldBlocks(self._made(make))
        return StreamingRows(self.read, make, n, m, m, self.single_precision)

    def prepare(self, **how: Any) -> StreamingRows | MemoryRows:
        if self.keeps:
            return MemoryRows(self._made(partial(prepare_block, **how)))
        n, m = self.shape
        single = self.single_precision and how.get("dtype") is None
        return StreamingRows(
            self.read, partial(prepare_block, **how), n, m, min(how.get("top_k") or m, m), single
        )

    def _made(self, make: Callable[[Checked], Any]) -> list[Any]:
        return list(map_in_order(make, regroup(self.read())))


class StreamingRows:
    """Rows prepared anew in every pass."""

    slow_calls = False

    def __init__(
        self,
        read: Callable[[], Iterator[Checked]],
        prepare: Callable[[Checked], Block],
        n_rows: int,
        n_classes: int,
        n_ranks: int,
        single_precision: bool,
        chosen: np.ndarray | None = None,
    ):
        self.has_tail = n_ranks < n_classes
        self.n_rows = n_rows if chosen is None else int(chosen.sum())
        self.n_classes = n_classes
        self.n_ranks = n_ranks
        self.single_precision = single_precision
        self._read, self._prepare = read, prepare
        self._n_read, self._chosen = n_rows, chosen
        self._sample: MemoryRows | None = None

    def _map(self, function: Callable[[Block], T]) -> Iterator[T]:
        """``function(block)`` for all blocks that have rows, in order."""

        def one(item: tuple[Checked, int]) -> T | None:
            part, end = item
            block = self._prepare(part)
            if self._chosen is not None:
                block = block[np.flatnonzero(self._chosen[end - block.n_rows : end])]
            return function(block) if block.n_rows else None

        seen = 0

        def numbered() -> Iterator[tuple[Checked, int]]:
            nonlocal seen
            for part in regroup(self._read()):
                seen += len(part)
                yield part, seen

        for result in map_in_order(one, numbered()):
            if result is not None:
                yield result
        if seen != self._n_read:
            raise InputError(
                f"X: one pass over the blocks gave {self._n_read} rows and another gave {seen}. Every pass must give the same "
                "rows: let the function open its files anew, and do not shuffle or drop rows at random."
            )

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        return reduce(add, self._map(lambda block: of_block(function, block, *args)))

    def sample(self) -> MemoryRows | None:
        step = sample_step(self.n_rows, self.n_classes)
        if not step:
            return None
        if self._sample is None:
            thin = self._map(lambda block: block.every(step))
            some = islice(thin, None, None, blocks_between(step, self.n_classes))
            self._sample = MemoryRows.of_sample(join_samples(list(some), step))
        return self._sample

    coarse = sample

    def part(self, chosen: np.ndarray) -> StreamingRows:
        if self._chosen is not None:
            index = np.flatnonzero(self._chosen)[chosen]
            chosen = np.zeros(self._n_read, dtype=bool)
            chosen[index] = True
        return self._like(self._prepare, np.asarray(chosen))

    def total_weight(self) -> float:
        """One pass, without preparing the rows."""
        if self._chosen is not None:
            return sum(self._map(lambda b: float(to_numpy(b.weight).sum(dtype=np.float64))))
        dtype = np.float32 if self.single_precision else np.float64  # that of prepared blocks
        parts = regroup(self._read())
        return math.fsum(
            len(p) if p.weight is None else to_numpy(p.weight).astype(dtype).sum(dtype=np.float64)
            for p in parts
        )

    def measured(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """One pass."""
        return one_in(step, self._map(lambda b: (to_numpy(b.measured), to_numpy(b.weight))))

    def with_factors(self, factors: Callable[[Array], Array]) -> StreamingRows:
        """The same rows with the factors computed from their statistics."""

        def one(part: Checked) -> Block:
            block = self._prepare(part)
            return block.with_factors(factors)

        rows = self._like(one, self._chosen)
        if self._sample is not None:
            rows._sample = self._sample.with_factors(factors)
        return rows

    def _like(self, prepare: Callable[[Checked], Block], chosen: np.ndarray | None) -> StreamingRows:
        sizes = self._n_read, self.n_classes, self.n_ranks, self.single_precision
        return StreamingRows(self._read, prepare, *sizes, chosen)
