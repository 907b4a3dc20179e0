"""Rows in memory: prepared blocks (numpy, or torch on any device), worked on by threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, is_torch, on_host, to_numpy
from ..core.ranked import LARGEST
from ..engines.block import Block, join_blocks, row_by_row
from ..engines.choice import engine_for
from ..engines.run import SHARED, Run
from ..engines.runs import IN_RUNS, of_block
from ..parallel import GPU_BLOCK, block_rows, parallel_map, parallel_sum, row_slices, rows_of_size
from .block import prepare_block, prepare_in_place
from .reader import Checked, Reader
from .sampling import COARSE_LOGITS, blocks_between, choose_rows, in_sample, join_samples, one_in, sample_step

T = TypeVar("T")
# Up to this many logits, what is left of rows is one block: to share it among threads would cost more than it saves.
_ONE_BLOCK = 2**21

# Elements of blocks that are worth a thread; of rows that are copied, or worked on in one run, which costs one call.
_LEAST_BLOCKS, _PIECE = 2**18, 2**17


class MemoryRows:
    """Rows held in memory as prepared blocks (numpy, or torch on any device)."""

    def __init__(self, blocks: Sequence[Block] = (), run: Run | None = None):
        """Blocks, or a run of them that lie in one array already."""
        first = run.block if run else blocks[0]
        if run:
            self._run = run
        else:
            self.blocks = list(blocks)
        self._lies_together = run is not None
        self.n_rows = first.n_rows if run else sum(b.n_rows for b in blocks)
        self.n_classes = first.rows.n_classes
        self.n_ranks = first.rows.depth.shape[1]
        self.has_tail = not run and any(b.rows.tail is not None for b in blocks)
        self.slow_calls = not on_host(first.rows.depth)
        self.single_precision = not str(first.rows.depth.dtype).endswith("float64")
        self._sample: MemoryRows | None = None
        self._coarse: MemoryRows | None = None
        self._known_row_by_row: dict[bool | None, bool] = {}

    # Each is made of the other.

    @cached_property
    def blocks(self) -> list[Block]:
        return self._run.blocks()

    @cached_property
    def _run(self) -> Run:
        return Run(join_blocks(self.blocks), np.cumsum([block.n_rows for block in self.blocks]), SHARED)

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
        if depths is not None:
            prepared = prepare_in_place(checked, depths, **how)
            if prepared is not None:
                return cls._of_prepared(prepared, one)

        # Where nothing of the width of a tail is written, many rows are prepared at once.
        narrow = engine.reads_tail_in_place and how.get("top_k") and not how.get("statistics")
        slices = row_slices(logits, 16 * block_rows(logits) if narrow else block_rows(logits))
        if on_host(logits):
            return cls(parallel_map(one, slices, serial=is_torch(logits)))
        # A device sorts in small blocks, to save memory, and sums in large ones, to save calls.
        blocks = [one(rows) for rows in slices]
        depth = blocks[0].rows.depth
        width = depth.shape[1] if blocks[0].engine.reads_tail_in_place else logits.shape[1]
        together = max(1, GPU_BLOCK // (blocks[0].n_rows * width))
        groups = [slice(i, i + together) for i in range(0, len(blocks), together)]
        return cls([join_blocks(blocks[g], logits[slices[g][0].start : slices[g][-1].stop]) for g in groups])

    @classmethod
    def _of_prepared(cls, block: Block, one: Callable[[slice], Block]) -> MemoryRows:
        """All rows as one block; those that need more room than that, because something is masked or cut, ``one`` by one."""
        slices = row_slices(block.rows.depth)
        plain: Any = block.rows.height <= LARGEST
        if plain.all():
            return cls(run=Run(block, np.array([rows.stop for rows in slices]), SHARED))
        return cls(parallel_map(lambda rows: block[rows] if plain[rows].all() else one(rows), slices))

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        in_runs = IN_RUNS.get(function)
        if in_runs is not None and self._row_by_row(in_runs.whole_scales(*args)):
            return cast(T, in_runs.total(self._run, *args))
        serial = is_torch(self.blocks[0].weight)  # torch has its own parallelism, on every device
        # Threads that have little to do cost more than they bring.
        most = -(-self.n_rows * self.n_ranks // _LEAST_BLOCKS)
        return parallel_sum(lambda block: of_block(function, block, *args), self.blocks, serial, most)

    def _row_by_row(self, whole_scales: bool | None) -> bool:
        """Whether blocks may be taken in one run."""
        known = self._known_row_by_row
        if whole_scales not in known:
            blocks = [self._run.block] if self._lies_together else self.blocks
            known[whole_scales] = whole_scales is not None and all(
                b.engine.row_by_row(b, whole_scales) for b in blocks
            )
        return known[whole_scales]

    def sample(self) -> MemoryRows | None:
        step = sample_step(self.n_rows, self.n_classes)
        if step and self._sample is None:
            if self.slow_calls:
                self._sample = self.part(in_sample(self.n_rows, self.n_classes, step))
            else:
                self._sample = self._thinned(step)
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
        between = blocks_between(step, self.n_classes)
        if self._lies_together:
            return self._taken(
                np.concatenate([np.arange(x.start, x.stop, step) for x in self._run.slices()[::between]])
            )
        some = self.blocks[::between]
        groups = [some[i : i + step] for i in range(0, len(some), step)]

        def join(group: Sequence[Block]) -> Block:
            (block,) = join_samples([b[slice(None, None, step)] for b in group], step)
            return block

        return MemoryRows.of_sample(parallel_map(join, groups, is_torch(some[0].weight)))

    @classmethod
    def of_sample(cls, blocks: Sequence[Block]) -> MemoryRows:
        """Some of more rows; where they are taken in runs, they are cut in the same way wherever they come from."""
        if not all(isinstance(b.weight, np.ndarray) and b.engine.row_by_row(b, True) for b in blocks):
            return cls(blocks)
        return cls._cut(join_blocks(blocks))

    def part(self, chosen: np.ndarray) -> MemoryRows:
        if self._lies_together:
            return self._taken(np.flatnonzero(chosen))
        kept = choose_rows(self.blocks, chosen)
        few = not self.slow_calls and np.count_nonzero(chosen) * self.n_classes <= _ONE_BLOCK
        return MemoryRows(join_samples(kept, len(kept)) if few else kept)

    def _taken(self, places: np.ndarray) -> MemoryRows:
        """Some of the rows that lie together, copied by all threads."""
        block = self._run.block
        depth = np.empty((len(places), self.n_ranks), block.rows.depth.dtype)

        def copy(cut: slice) -> None:
            # Places are right: other modes than this one would copy twice.
            np.take(block.rows.depth, places[cut], axis=0, out=depth[cut], mode="clip")

        least = rows_of_size(_PIECE, self.n_ranks)
        parallel_map(copy, row_slices(depth, max(least, -(-len(places) // SHARED.count()))))
        narrow = replace(block, rows=replace(block.rows, depth=block.rows.depth[:, :0]))[places]
        return MemoryRows._cut(replace(narrow, rows=replace(narrow.rows, depth=depth)))

    @classmethod
    def _cut(cls, block: Block) -> MemoryRows:
        """Rows that lie together, in blocks: small ones where they are few, so that there is one for every thread."""
        (n, r), size = block.rows.depth.shape, block_rows(block.rows.depth)
        if n * r <= COARSE_LOGITS:
            size = rows_of_size(_PIECE, r)
            size -= size % 64 if size > 64 else 0  # loops work on 64 rows at a time
        return cls(run=Run(block, np.append(np.arange(size, n, size), n), SHARED))

    def total_weight(self) -> float:
        if self._lies_together:
            return self._run.weight()
        return sum(float(to_numpy(b.weight).sum(dtype=np.float64)) for b in self.blocks)

    def measured(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        return one_in(step, ((to_numpy(b.measured), to_numpy(b.weight)) for b in self.blocks))

    def with_factors(self, factors: Callable[[Array], Array]) -> MemoryRows:
        # In one call: they are few numbers a row.
        if self._lies_together:
            block = self._run.block.with_factors(factors)
            rows = MemoryRows(run=replace(self._run, block=block))
        else:
            values = [b.measured for b in self.blocks]
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
