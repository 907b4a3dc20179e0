"""Rows in memory: prepared blocks (numpy, or torch on any device), worked on by threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeVar, cast

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, is_torch, on_host, to_numpy
from ..kernel.block import Block, join_blocks, row_by_row
from ..kernel.choice import engine_for
from ..kernel.run import Run
from ..kernel.runs import IN_RUNS
from .block import prepare_block
from .parallel import (
    GPU_BLOCK,
    SHARED,
    available_threads,
    block_rows,
    deal,
    parallel_map,
    parallel_sum,
    row_slices,
)
from .reader import Checked, Reader
from .sampling import (
    blocks_between,
    choose_rows,
    in_sample,
    join_samples,
    one_in,
    sample_step,
)

T = TypeVar("T")
# Up to this many logits, what is left of rows is one block: to share it among threads would cost more than it saves.
_ONE_BLOCK = 2**21

# Elements of blocks that are worth a thread.
_LEAST_BLOCKS = 2**18


class MemoryRows:
    """Rows held in memory as prepared blocks (numpy, or torch on any device)."""

    def __init__(self, blocks: Sequence[Block]):
        self.blocks = list(blocks)
        self.n_rows = sum(b.n_rows for b in self.blocks)
        self.n_classes = self.blocks[0].rows.n_classes
        self.n_ranks = self.blocks[0].rows.depth.shape[1]
        self.has_tail = any(b.rows.tail is not None for b in self.blocks)
        self.slow_calls = not on_host(self.blocks[0].rows.depth)
        self.single_precision = not str(self.blocks[0].rows.depth.dtype).endswith("float64")
        self._sample: MemoryRows | None = None
        self._coarse: MemoryRows | None = None
        self._known_row_by_row: dict[bool | None, bool] = {}

    @classmethod
    def prepare(
        cls,
        logits: Array,
        labels: Array,
        weight: Array | None = None,
        context: np.ndarray | None = None,
        **how: Any,
    ) -> MemoryRows:
        """Rows of logits (n, m); the keywords are those of `prepare_block`."""
        checked = Checked(logits, labels, weight, context)

        # One array for all depths: the system hands out large ones in large pages, which threads need not wait for. Double
        # precision is laid out anew, block by block.
        m, dtype = logits.shape[1], how.get("dtype") or compute_dtype(logits)
        whole = how.get("ordered", True) and min(how.get("top_k") or m, m) == m and logits.dtype == dtype
        single = isinstance(logits, np.ndarray) and dtype == np.float32
        depths = np.empty(logits.shape, dtype) if whole and single else None

        def one(rows: slice) -> Block:
            into = None if depths is None else depths[rows]
            return prepare_block(checked[rows], **how, into=into)

        engine = engine_for(logits, how.get("dtype"))

        def run(slices: Sequence[slice]) -> list[Block]:
            rows = slice(slices[0].start, slices[-1].stop)
            ranked = None if depths is None else engine.rank_in_place(logits[rows], depths[rows])
            if ranked is None:
                return [one(each) for each in slices]
            block = prepare_block(checked[rows], ranked=ranked, **how)
            return block.split(np.array([each.stop - rows.start for each in slices]))

        # Where nothing of the width of a tail is written, many rows are prepared at once.
        narrow = engine.reads_tail_in_place and how.get("top_k") and not how.get("statistics")
        slices = row_slices(logits, 16 * block_rows(logits) if narrow else block_rows(logits))
        if on_host(logits):
            runs = deal(slices, available_threads())
            return cls([*chain.from_iterable(parallel_map(run, runs, serial=is_torch(logits)))])
        # A device sorts in small blocks, to save memory, and sums in large ones, to save calls.
        blocks = [one(rows) for rows in slices]
        depth = blocks[0].rows.depth
        width = depth.shape[1] if blocks[0].engine.reads_tail_in_place else logits.shape[1]
        together = max(1, GPU_BLOCK // (blocks[0].n_rows * width))
        groups = [slice(i, i + together) for i in range(0, len(blocks), together)]
        return cls([join_blocks(blocks[g], logits[slices[g][0].start : slices[g][-1].stop]) for g in groups])

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        in_runs = IN_RUNS.get(function)
        if in_runs is not None and self._row_by_row(in_runs.whole_scales(*args)):
            return cast(T, in_runs.total(self._run, *args))
        serial = is_torch(self.blocks[0].weight)  # torch has its own parallelism, on every device
        # Threads that have little to do cost more than they bring.
        most = -(-self.n_rows * self.n_ranks // _LEAST_BLOCKS)
        return parallel_sum(lambda block: function(block, *args), self.blocks, serial, most)

    def _row_by_row(self, whole_scales: bool | None) -> bool:
        """Whether blocks may be taken in one run."""
        known = self._known_row_by_row
        if whole_scales not in known:
            known[whole_scales] = whole_scales is not None and all(
                b.engine.row_by_row(b, whole_scales) for b in self.blocks
            )
        return known[whole_scales]

    @cached_property
    def _run(self) -> Run:
        return Run(join_blocks(self.blocks), np.cumsum([block.n_rows for block in self.blocks]), SHARED)

    def sample(self) -> MemoryRows | None:
        step = sample_step(self.n_rows, self.n_classes)
        if step and self._sample is None:
            chosen = in_sample(self.n_rows, self.n_classes, step)
            self._sample = self.part(chosen) if self.slow_calls else self._thinned(step)
        return self._sample

    def coarse(self) -> MemoryRows | None:
        if not self.slow_calls:
            return self.sample()
        logits = self.n_rows * self.n_classes
        # On a device, a pass over one block costs little more than its calls do.
        if self._coarse is None and logits > GPU_BLOCK:
            self._coarse = self._thinned(sample_step(self.n_rows, self.n_classes, logits))
        return self._coarse

    def _thinned(self, step: int) -> MemoryRows | None:
        if not step:
            return None
        some = self.blocks[:: blocks_between(step, self.n_classes)]
        groups = [some[i : i + step] for i in range(0, len(some), step)]
        thin = [sum(-(-block.n_rows // step) for block in group) for group in groups]
        first = some[0].rows.depth
        # In one array, so that the blocks of a thread lie one after another (`_runs`).
        row_after_row = isinstance(first, np.ndarray) and first.flags.c_contiguous
        depths = np.empty((sum(thin), self.n_ranks), first.dtype) if row_after_row else None

        def join(item: tuple[Sequence[Block], tuple[int, int]]) -> Block:
            group, (begin, end) = item
            (block,) = join_samples([b[slice(None, None, step)] for b in group], step)
            if depths is None:
                return block
            depths[begin:end] = block.rows.depth
            return replace(block, rows=replace(block.rows, depth=depths[begin:end]))

        places = pairwise(np.cumsum([0, *thin]).tolist())
        serial = is_torch(some[0].weight)
        return MemoryRows(parallel_map(join, [*zip(groups, places, strict=True)], serial))

    def part(self, chosen: np.ndarray) -> MemoryRows:
        kept = choose_rows(self.blocks, chosen)
        if not self.slow_calls and np.count_nonzero(chosen) * self.n_classes <= _ONE_BLOCK:
            kept = join_samples(kept, len(kept))
        return MemoryRows(kept)

    def total_weight(self) -> float:
        return sum(float(to_numpy(b.weight).sum(dtype=np.float64)) for b in self.blocks)

    def measured(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        return one_in(step, ((to_numpy(b.measured), to_numpy(b.weight)) for b in self.blocks))

    def with_factors(self, factors: Callable[[Array], Array]) -> MemoryRows:
        values = [b.measured for b in self.blocks]
        # In one call: they are few numbers a row.
        psi = row_by_row(factors(array_namespace(values[0]).concat(values, axis=0)))
        ends = np.cumsum([b.n_rows for b in self.blocks]).tolist()
        parts = zip(self.blocks, pairwise([0, *ends]), strict=True)
        rows = MemoryRows([replace(b, factors=psi[i:j]) for b, (i, j) in parts])
        if self._sample is not None:
            rows._sample = self._sample.with_factors(factors)
        return rows


class HeldBlocks:
    """Blocks of any kind in memory; implements `interface.Held`."""

    def __init__(self, blocks: Sequence[Any], serial: bool = False):
        self.blocks, self._serial = list(blocks), serial

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        return parallel_sum(lambda block: function(block, *args), self.blocks, self._serial)


@dataclass(frozen=True)
class ArraySource:
    """Checked arrays in memory; implements `interface.Source`."""

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

    def hold(self, make: Callable[[Checked], Any]) -> HeldBlocks:
        serial = is_torch(self.checked.logits)  # torch has its own parallelism, on every device
        slices = row_slices(self.checked.logits)
        return HeldBlocks(parallel_map(lambda rows: make(self.checked[rows]), slices, serial), serial)

    def prepare(self, **how: Any) -> MemoryRows:
        rows = self.checked
        return MemoryRows.prepare(rows.logits, rows.labels, rows.weight, rows.context, **how)
