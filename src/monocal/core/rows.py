"""Rows for the solver: blocks that are cached or read again, and the sums over them.

    sum(f)      f(block) added up over all blocks, in a fixed order
    sample()    one row in ``step``, in memory: a part that stands for all, the same wherever the rows live

Rows in memory, in a file and in the partitions of a Dask array differ only in how a block is obtained (`Blocks`). The solver
works on a coarse copy between its passes over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from ..arrays import Array, is_torch, on_host, to_numpy
from ..parallel import CPU_BLOCK, GPU_BLOCK, block_rows, parallel_map, parallel_sum, rows_of_size
from .engine import Block, join_blocks, rank_by_rank

T = TypeVar("T")

# A coarse copy has one row in eight where that leaves at least this many rows, and a smaller share of very many rows. A copy
# of more than one row in four saves nothing.
_COARSE = 1024
# Logits of a coarse copy, at the most; above, it costs more than it improves a step (and memory, where rows are in a file).
_COARSE_LOGITS = 2**24
# Up to this many logits, double precision costs nothing that anyone would notice.
DOUBLE_BELOW = 2**22
# Up to this many, what need not be exact is computed from all rows.
_ALL_BELOW = 2**19
# Up to this many, what is left of rows is one block: to share it among threads would cost more than it saves.
_ONE_BLOCK = 2**21
# Elements of blocks that are worth a thread; of a part where rows are few.
_LEAST_BLOCKS, _PIECE = 2**18, 2**17


class Blocks(Protocol):
    """Where blocks come from."""

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        """``function(block, *args)`` added up over all blocks, in a fixed order."""

    def map(self, function: Callable[[Block, int], T]) -> Iterable[T]:
        """``function(block, number of its first row)`` of all blocks, in order."""

    def changed(self, function: Callable[[Block], Any]) -> Blocks:
        """Other blocks with the same rows, made of each."""

    def part(self, chosen: np.ndarray) -> Blocks:
        """The rows where ``chosen`` (n,) is true; blocks that keep none are left out."""


class MemoryBlocks:
    """Blocks in memory, of any kind with ``n_rows``; worked on by threads."""

    def __init__(self, blocks: Sequence[Any], serial: bool = False, most: int | None = None):
        """``serial``: not on threads; ``most``: on no more threads than this."""
        self.blocks, self._serial, self._most = list(blocks), serial, most

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        return parallel_sum(lambda block: function(block, *args), self.blocks, self._serial, self._most)

    def map(self, function: Callable[[Any, int], T]) -> list[T]:
        first = np.cumsum([0, *(block.n_rows for block in self.blocks)]).tolist()
        pairs = list(zip(self.blocks, first, strict=False))
        return parallel_map(lambda pair: function(*pair), pairs, self._serial)

    def changed(self, function: Callable[[Any], Any]) -> MemoryBlocks:
        return MemoryBlocks(parallel_map(function, self.blocks, self._serial), self._serial, self._most)

    def part(self, chosen: np.ndarray) -> MemoryBlocks:
        parts = self.map(partial(choose_rows, chosen=chosen))
        return MemoryBlocks([b for b in parts if b is not None], self._serial, self._most)


class Rows:
    """Prepared rows, wherever they live.

    Attributes
    ----------
    n_rows, n_classes, n_ranks : int
    has_tail : bool
        Whether there are classes below the ranks in use.
    single_precision : bool
    slow_calls : bool
        Whether a call takes longer than what it computes, as on a GPU.
    """

    def __init__(
        self,
        source: Blocks,
        n_rows: int,
        n_classes: int,
        n_ranks: int,
        *,
        has_tail: bool,
        single_precision: bool,
        slow_calls: bool = False,
    ):
        self._source = source
        self.n_rows, self.n_classes, self.n_ranks = n_rows, n_classes, n_ranks
        self.has_tail, self.single_precision, self.slow_calls = has_tail, single_precision, slow_calls
        self._samples: dict[int, Rows] = {}

    @classmethod
    def of_blocks(cls, blocks: Sequence[Block]) -> Rows:
        """Blocks in memory (numpy, or torch on any device)."""
        first, n = blocks[0].rows, sum(block.n_rows for block in blocks)
        n_ranks = first.depth.shape[1]
        # Threads that have little to do cost more than they bring. torch has its own, on every device.
        source = MemoryBlocks(blocks, is_torch(first.depth), -(-n * n_ranks // _LEAST_BLOCKS))
        return cls(
            source,
            n,
            first.n_classes,
            n_ranks,
            has_tail=any(block.rows.tail is not None for block in blocks),
            single_precision=any(not str(block.rows.depth.dtype).endswith("float64") for block in blocks),
            slow_calls=not on_host(first.depth),
        )

    @property
    def blocks(self) -> list[Block]:
        """The blocks of rows in memory."""
        assert isinstance(self._source, MemoryBlocks)
        return self._source.blocks

    def sum(self, function: str | Callable[..., Any], *args: Any) -> Any:
        """``function(block, *args)`` added up over all blocks, in a fixed order; a name is that of a method of the engine."""
        return self._source.sum(
            partial(_by_engine, function) if isinstance(function, str) else function, *args
        )

    def sample(self, most_logits: int = _COARSE_LOGITS) -> Rows | None:
        """A representative quarter or less, the same wherever the rows live; None where that would be too few."""
        step = sample_step(self.n_rows, self.n_classes, most_logits)
        if step and step not in self._samples:
            thin = [b for b in self._source.map(partial(_thinned, n_classes=self.n_classes, step=step)) if b]
            # Thin blocks would cost more in calls than in arithmetic, and one block would be too few for many cores. Rows that
            # engines take in parts are one block, cut in the same way wherever they come from.
            if all(_takes_parts(block) for block in thin):
                blocks = [cut_for_threads(join_blocks(thin))]
            else:
                blocks = [join_blocks(thin[i : i + step]) for i in range(0, len(thin), step)]
            self._samples[step] = Rows.of_blocks(blocks)
        return self._samples.get(step)

    def coarse(self) -> Rows | None:
        """As many rows as a rough step needs here; None where fewer rows would save nothing."""
        if not self.slow_calls:
            return self.sample()
        logits = self.n_rows * self.n_classes
        # On a device, a pass over one block costs little more than its calls do.
        return self.sample(logits) if logits > GPU_BLOCK else None

    def some(self) -> Rows:
        """About a thousand rows of many: enough for what need not be exact."""
        sample = self.sample() if self.n_rows * self.n_classes > _ALL_BELOW else None
        if sample is None:
            return self
        if 0 not in sample._samples:  # they are asked for several times
            every = max(1, sample.n_rows // _COARSE)
            sample._samples[0] = sample.part(np.arange(sample.n_rows) % every == 0)
        return sample._samples[0]

    def part(self, chosen: np.ndarray) -> Rows:
        """The rows where ``chosen`` (n_rows,) is true."""
        source, n = self._source.part(chosen), int(np.count_nonzero(chosen))
        if isinstance(source, MemoryBlocks):
            few = not self.slow_calls and n * self.n_classes <= _ONE_BLOCK
            blocks = [join_blocks(source.blocks)] if few and len(source.blocks) > 1 else source.blocks
            return Rows.of_blocks([cut_for_threads(b) if len(blocks) == 1 else b for b in blocks])
        rows = copy(self)
        rows._source, rows.n_rows, rows._samples = source, n, {}
        return rows

    def with_factors(self, factors: Callable[[Array], Array]) -> Rows:
        """The same rows with the factors computed from their statistics."""
        rows = copy(self)
        rows._source = self._source.changed(partial(Block.with_factors, factors=factors))
        rows._samples = {step: sample.with_factors(factors) for step, sample in self._samples.items() if step}
        return rows

    def measured(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (n, S) and weights (n,) of one row in ``step``, the first among them."""
        parts = list(self._source.map(partial(_measured, step=step)))
        return np.concatenate([s for s, _ in parts]), np.concatenate([w for _, w in parts])


# Functions of a block and the number of its first row: they go to the workers of a cluster.


def _by_engine(name: str, block: Block, *args: Any) -> Any:
    return getattr(block.engine, name)(block, *args)


def _thinned(block: Block, first: int, n_classes: int, step: int) -> Block | None:
    chosen = np.flatnonzero(in_sample(block.n_rows, n_classes, step, first))
    return block[chosen] if len(chosen) else None


def choose_rows(block: Any, first: int, chosen: np.ndarray) -> Any:
    """The rows of a block where ``chosen`` is true, which has an entry for each row of all blocks; None where there are none."""
    places = np.flatnonzero(chosen[first : first + block.n_rows])
    return block[places] if len(places) else None


def _measured(block: Block, first: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    begin = -first % step
    return to_numpy(block.statistics)[begin::step], to_numpy(block.weight)[begin::step].astype(np.float64)


# How rows are cut.


def sample_step(n_rows: int, n_classes: int, most_logits: int = _COARSE_LOGITS) -> int:
    """The step of a coarse copy, which takes one row in so many; 0 where it would save nothing."""
    most = max(_COARSE, most_logits // n_classes)
    step = max(min(8, n_rows // _COARSE), -(-n_rows // most) if n_rows >= 2 * _COARSE else 0)
    return step if step >= 4 else 0


def in_sample(n_rows: int, n_classes: int, step: int, first: int = 0) -> np.ndarray:
    """Which rows are in a sample of one in ``step``, where the host would cut them into blocks, (n_rows,).

    It takes one row in ``step`` of each block, or of one block in several where blocks have fewer rows. ``first`` is the number
    of the first row.
    """
    size = rows_of_size(CPU_BLOCK, n_classes)
    block, place = np.divmod(np.arange(first, first + n_rows), size)
    return (place % step == 0) & (block % -(-step // size) == 0)


def _takes_parts(block: Block) -> bool:
    """Whether its rows lie one after another in memory, and nothing is masked: then an engine takes all parts in one call."""
    rows = block.rows
    plain = rows.valid is None and rows.tail is None
    return plain and isinstance(rows.depth, np.ndarray) and not rank_by_rank(rows.depth)


def cut_for_threads(block: Block) -> Block:
    """Rows in parts, of which there is one for every thread where rows are few; rank by rank they are one part."""
    if not _takes_parts(block):
        return block
    (n, r), size = block.rows.depth.shape, block_rows(block.rows.depth)
    if n * r <= _COARSE_LOGITS:
        size = rows_of_size(_PIECE, r)
        size -= size % 64 if size > 64 else 0  # loops work on 64 rows at a time
    return replace(block, ends=np.append(np.arange(size, n, size), n))


def cut_for_the_cache(block: Block) -> list[Block]:
    """Rows that are held rank by rank, in blocks of which a core's cache holds several arrays."""
    size = rows_of_size(_PIECE, block.rows.depth.shape[1])
    if block.n_rows <= size or not rank_by_rank(block.rows.depth):
        return [block]
    parts = [block[i : i + size] for i in range(0, block.n_rows, size)]
    return [replace(b, rows=replace(b.rows, depth=np.asfortranarray(b.rows.depth))) for b in parts]
