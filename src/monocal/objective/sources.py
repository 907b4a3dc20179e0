"""Where the rows live. A source adds up what a function returns for each prepared block; that is all the solver needs.

`MemoryRows` keeps prepared blocks and works on them with threads (numpy releases the interpreter's lock). `StreamingRows` (in
`streaming`) prepares them anew in every pass; Dask's workers hold theirs (`monocal.distributed`). Sources other than an array
in memory come to a calibrator as `RowSource`: a shape, and a way to prepare the rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, reduce
from operator import add
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from threadpoolctl import ThreadpoolController

from ..arrays import Array, is_lazy_torch, on_host, to_numpy
from .blocks import Block, join_blocks, prepare_block
from .tail import read_in_place

T = TypeVar("T")

# Elements of a block: small enough for the cache of one core, large enough to drown the cost of the calls.
_CPU_BLOCK = 2**18
_GPU_BLOCK = 2**26
# A coarse copy has one row in eight where that leaves so many, and fewer rows of many; more than one in four saves nothing.
_COARSE = 1024
_COARSE_BLOCKS = 1.5  # so much larger a block is good for a coarse copy: it is all in the cache anyway
# Logits of a coarse copy, at the most; above, it costs more than it improves a step (and memory, where rows are in a file).
_COARSE_LOGITS = 2**24
# Up to this many logits, double precision costs nothing that anyone would notice.
DOUBLE_BELOW = 2**22


class Rows(Protocol):
    """Prepared rows somewhere."""

    n_rows: int
    n_classes: int
    n_ranks: int
    has_tail: bool  # whether there are classes below the ranks in use
    single_precision: bool

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        """``function(block, *args)`` added up over all blocks, in a fixed order."""

    def sample(self) -> Rows | None:
        """A representative quarter or less, the same wherever the rows live; None where that would be too few."""

    def coarse(self) -> Rows | None:
        """As many rows as a rough step needs here; None where fewer rows would save nothing."""

    def part(self, chosen: np.ndarray) -> Rows:
        """The rows where ``chosen`` (n_rows,) is true."""

    def weights(self) -> np.ndarray:
        """(n_rows,), in double precision."""


@runtime_checkable
class RowSource(Protocol):
    """Checked rows that are no array in memory, with their labels and weights."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows that count, and classes."""

    def prepare(self, **how: Any) -> Rows:
        """Rows for the solver; the keywords are those of `prepare_block`."""


def some_rows(rows: Rows) -> Rows:
    """About a thousand rows of many: enough for what need not be exact."""
    many = rows.n_rows * rows.n_classes > DOUBLE_BELOW
    sample = rows.sample() if many else None
    if sample is None:
        return rows
    return sample.part(np.arange(sample.n_rows) % max(1, sample.n_rows // _COARSE) == 0)


def available_threads() -> int:
    """OMP_NUM_THREADS where it is set, else the cores this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def block_rows(logits: Array) -> int:
    """Rows of a block for an array like this."""
    return _rows_of(_CPU_BLOCK if on_host(logits) else _GPU_BLOCK, logits.shape[1])


def _rows_of(elements: int, n_classes: int) -> int:
    return max(16, elements // max(1, n_classes))


def sample_step(n_rows: int, n_classes: int, most_logits: int = _COARSE_LOGITS) -> int:
    """Every how many rows a coarse copy takes one; 0 where it would save nothing."""
    most = max(_COARSE, most_logits // n_classes)
    step = max(min(8, n_rows // _COARSE), -(-n_rows // most) if n_rows >= 2 * _COARSE else 0)
    return step if step >= 4 else 0


def blocks_between(step: int, n_classes: int) -> int:
    """From one block to the next that a sample of one row in ``step`` takes rows of: 1, unless blocks are smaller than that."""
    return -(-step // _rows_of(_CPU_BLOCK, n_classes))


def in_sample(n_rows: int, n_classes: int, step: int) -> np.ndarray:
    """Which rows are in a sample of one in ``step``, where the host would cut them into blocks, (n_rows,)."""
    block, place = np.divmod(np.arange(n_rows), _rows_of(_CPU_BLOCK, n_classes))
    return (place % step == 0) & (block % blocks_between(step, n_classes) == 0)


def join_samples(thin: Sequence[Block], step: int) -> MemoryRows:
    """Blocks of which one row in ``step`` is left, joined again: thin blocks would cost more in calls than in arithmetic."""
    together = int(step * _COARSE_BLOCKS)
    groups = [thin[i : i + together] for i in range(0, len(thin), together)]
    return MemoryRows([join_blocks(group) if len(group) > 1 else group[0].every(1) for group in groups])


def parallel_map(function: Callable[[Any], T], items: Sequence[Any], serial: bool = False) -> list[T]:
    """``[function(x) for x in items]`` on threads (unless ``serial``), with BLAS held to one thread each."""
    return list(_results(function, items, serial))


def parallel_sum(function: Callable[[Any], T], items: Sequence[Any], serial: bool = False) -> T:
    """The same added up, from first to last, while later ones are being made."""
    return reduce(add, _results(function, items, serial))


def _results(function: Callable[[Any], T], items: Sequence[Any], serial: bool) -> Iterator[T]:
    threads = available_threads()
    # A pool that waits for itself would wait for ever.
    if serial or min(threads, len(items)) <= 1 or getattr(_this_thread, "works_for_pool", False):
        yield from map(function, items)
        return
    with one_blas_thread:
        yield from _pool(os.getpid(), threads).map(function, items)


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # Kept, because to start threads costs as much as a pass over a few thousand rows.
    return ThreadPoolExecutor(threads, initializer=lambda: setattr(_this_thread, "works_for_pool", True))


class _OneBlasThread:
    """Keep BLAS to the thread that calls it. The limit is the process's: the first that enters sets it, the last lifts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, so once only


one_blas_thread = _OneBlasThread()
_this_thread = threading.local()


class MemoryRows:
    """Rows held in memory as prepared blocks (numpy, or torch on any device)."""

    def __init__(self, blocks: Sequence[Block]):
        self.blocks = list(blocks)
        self.n_rows = sum(b.n_rows for b in self.blocks)
        self.n_classes = self.blocks[0].rows.n_classes
        self.n_ranks = self.blocks[0].rows.depth.shape[1]
        self.has_tail = any(b.rows.tail is not None for b in self.blocks)
        self._on_host = on_host(self.blocks[0].rows.depth)
        self.single_precision = not str(self.blocks[0].rows.depth.dtype).endswith("float64")
        self._sample: MemoryRows | None = None

    @classmethod
    def prepare(
        cls,
        logits: Array,
        labels: Array,
        weight: Array | None = None,
        **how: Any,
    ) -> MemoryRows:
        """Rows of logits (n, m); the keywords are those of `prepare_block`."""
        size = block_rows(logits)
        n = logits.shape[0]

        def one(begin: int) -> Block:
            rows = slice(begin, begin + size)
            w = None if weight is None else weight[rows]
            return prepare_block(logits[rows], labels[rows], w, **how)

        begins = range(0, n, size)
        if on_host(logits):
            return cls(parallel_map(one, begins, serial=is_lazy_torch(logits)))
        # A device sorts in small blocks, to save memory, and sums in large ones, to save calls.
        blocks = [one(begin) for begin in begins]
        depth = blocks[0].rows.depth
        width = depth.shape[1] if read_in_place(logits, depth) else logits.shape[1]
        together = max(1, _GPU_BLOCK // (size * width))
        return cls(
            [
                join_blocks(blocks[i : i + together], logits[begins[i] : begins[i] + together * size])
                for i in range(0, len(blocks), together)
            ]
        )

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        serial = is_lazy_torch(self.blocks[0].weight)  # torch has its own parallelism, on every device
        return parallel_sum(lambda block: function(block, *args), self.blocks, serial)

    def sample(self) -> MemoryRows | None:
        step = sample_step(self.n_rows, self.n_classes)
        if step and self._sample is None:
            chosen = in_sample(self.n_rows, self.n_classes, step)
            self._sample = self._thinned(step) if self._on_host else self.part(chosen)
        return self._sample

    def coarse(self) -> MemoryRows | None:
        if self._on_host:
            return self.sample()
        logits = self.n_rows * self.n_classes
        # On a device, a pass over one block costs little more than its calls do.
        return self._thinned(sample_step(self.n_rows, self.n_classes, logits) if logits > _GPU_BLOCK else 0)

    def _thinned(self, step: int) -> MemoryRows | None:
        if not step:
            return None
        some = self.blocks[:: blocks_between(step, self.n_classes)]
        return join_samples([b[slice(None, None, step)] for b in some], step)

    def part(self, chosen: np.ndarray) -> MemoryRows:
        """The rows where ``chosen`` (n_rows,) is true."""
        ends = np.cumsum([b.n_rows for b in self.blocks])
        pieces = [b[np.flatnonzero(c)] for b, c in zip(self.blocks, np.split(chosen, ends[:-1]), strict=True)]
        return MemoryRows([p for p in pieces if p.n_rows])

    def statistics(self) -> Array:
        """(n, S), as numpy."""
        return np.concatenate([to_numpy(b.statistics) for b in self.blocks])

    def weights(self) -> np.ndarray:
        """(n,), in double precision."""
        return np.concatenate([to_numpy(b.weight) for b in self.blocks]).astype(np.float64)

    def with_factors(self, factors: Callable[[Array], Array]) -> MemoryRows:
        """The same rows with the factors computed from their statistics."""
        rows = MemoryRows([replace(b, factors=factors(b.statistics)) for b in self.blocks])
        if self._sample is not None:
            rows._sample = self._sample.with_factors(factors)
        return rows
