"""Dask arrays and DataFrames: the same sums over chunks of rows, by whatever scheduler Dask has.

    X (n, m)  ->  chunks of whole rows  ->  blocks, checked and sorted by the workers, which keep them
    a pass    ->  function(block) added up where the chunk lies  ->  added in a tree  ->  one small result

Chunks are cut where rows in memory end a block, so the answer is that of one process. Only parameters and sums travel. A
chunk is a task like any other: when the worker that held it dies, Dask makes it again from the array it came from.

With a `distributed` client the sorted blocks stay with the workers during a fit; without one nothing is kept, every pass
reads the chunks again, and memory is bounded by the chunks at work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np

from ..arrays import to_numpy
from ..core.rows import MemoryBlocks
from ..errors import InputError, require
from ..parallel import block_rows
from .files import check_out
from .formats import format_of
from .reader import NO_PARTS, Checked, OutOfCore, Reader, RowMap, regroup
from .validation import NO_LABELS, check_some_weight

T = TypeVar("T")
Delayed = Any

# How many sums one task adds.
_FAN_IN = 16


class DaskLogits(OutOfCore):
    """A Dask array or frame of logits with its labels and weights."""

    refusal = (
        "X: this method needs all rows in one process, but got a Dask array. Pass X.compute(), or use "
        "TemperatureScaling (with loss='nll'), MCCT, ConditionalMCCT or StructuredScaling(kind='vector')."
    )

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None, context: Any = None):
        require("dask.array", "dask")
        self._frame = X
        self.y, self.weight, self.context = as_array(y), as_array(sample_weight), context

    @cached_property
    def X(self) -> Any:
        """Chunks of whole rows; the rows of a frame are counted for it."""
        X = as_array(self._frame)
        if X.ndim != 2:
            raise InputError(
                f"X must be two-dimensional, one row per sample and one column per class, but has shape {X.shape}."
            )
        return whole_rows(X)

    def open(self, reader: Reader) -> DaskLogits:
        if self.y is None:
            raise InputError(NO_LABELS)
        X = _cut_at_blocks(self.X, self.y, self.weight, reader.layout.ignore_index)
        chunks = chunks_of(X, self.y, self.weight, self.context)
        shared = once(reader)
        looks = compute([task(_look, shared, *chunk) for chunk in chunks])
        self.reader = replace(reader, smallest=min(smallest for *_, smallest in looks))
        # Those that have rows with weight, and how many.
        used = [(chunk, n, rows) for chunk, (n, rows, _) in zip(chunks, looks, strict=True) if n]
        check_some_weight(bool(used), reader.layout.ignore_index)
        self._chunks, sizes, firsts = zip(*used, strict=True)
        self._sizes, self.first = list(sizes), firsts[0]
        self.shape = sum(sizes), X.shape[1]
        self.single_precision = X.dtype.kind == "f" and X.dtype.itemsize <= 4 and reader.input == "logits"
        return self

    def hold(self, make: Callable[[Checked], Any]) -> DaskBlocks:
        """A list of blocks for each chunk, kept where there are workers to keep them."""
        reader, shared = once(self.reader), once(make)
        chunks = [task(_make_blocks, reader, shared, *chunk) for chunk in self._chunks]
        if has_client():
            import dask

            chunks = list(dask.persist(*chunks))
        return DaskBlocks(chunks, self._sizes)

    def apply(self, row_map: RowMap, out: Any) -> Any:
        if hasattr(self._frame, "columns") and out is None and row_map.context is None:
            # Partition by partition; nothing is computed, nor rows counted.
            meta = _apply_to_part(self._frame._meta, row_map)
            return self._frame.map_partitions(_apply_to_part, row_map, meta=meta)
        X = self.X
        if X.shape[1] != row_map.n_classes:
            raise InputError(
                f"X has {X.shape[1]} features, but {row_map.name} is expecting {row_map.n_classes} features as input."
            )
        if row_map.method == "predict":
            empty = np.empty(0, dtype=np.int64)
            return X.map_blocks(_apply, row_map, None, drop_axis=1, dtype=np.int64, meta=empty)
        plain = X.dtype.kind == "f" and X.dtype.itemsize <= 8
        dtype = X.dtype.newbyteorder("=") if plain else np.dtype(np.float64)
        if out is not None:
            dtype = check_out(out, X.shape, dtype)
        result = X.map_blocks(_apply, row_map, dtype, dtype=dtype, meta=np.empty((0, 0), dtype=dtype))
        if out is None:
            return result
        result.store(out)
        return out


@dataclass(frozen=True)
class DaskBlocks:
    """Blocks, one list of them a chunk, on the workers; implements `core.rows.Blocks`."""

    chunks: list[Delayed]
    sizes: list[int]  # rows of each chunk

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        args_once = once(args)
        total: T = reduce_tasks([task(_sum_blocks, chunk, function, args_once) for chunk in self.chunks])
        return total

    def map(self, function: Callable[[Any, int], T]) -> list[T]:
        first, shared = np.cumsum([0, *self.sizes]).tolist(), once(function)
        tasks = [task(_map_blocks, chunk, n, shared) for chunk, n in zip(self.chunks, first, strict=False)]
        return [result for results in compute(tasks) for result in results]

    def changed(self, function: Callable[[Any], Any]) -> DaskBlocks:
        shared = once(function)
        return DaskBlocks([task(_change_blocks, chunk, shared) for chunk in self.chunks], self.sizes)

    def part(self, chosen: np.ndarray) -> DaskBlocks:
        raise InputError(NO_PARTS)


def _cut_at_blocks(X: Any, y: Any, weight: Any, ignore_index: int | None) -> Any:
    """Chunks that end where blocks of rows in memory end, which hold those with weight only: sums are those of one process."""
    n, size = X.shape[0], block_rows(X)
    per_chunk = max(1, round(max(X.chunks[0]) / size)) * size
    counts = np.ones(n, dtype=bool)
    for column, nothing in ((weight, 0), (y, ignore_index)):
        if column is None or nothing is None or np.isscalar(column):
            continue
        values = to_numpy(compute([column])[0])
        if values.shape == (n,) and values.dtype.kind in "biuf":  # others are refused later
            counts &= values != nothing
    if counts.all():
        return X.rechunk({0: per_chunk})
    ends = np.flatnonzero(counts)[per_chunk - 1 :: per_chunk] + 1
    return X.rechunk({0: tuple(np.diff(np.unique([0, *ends, n])).tolist())})


# What the workers do.


def _look(
    reader: Box, X: Any, y: Any, weight: Any, context: Any, first_row: int
) -> tuple[int, np.ndarray, float]:
    """Check a chunk: how many of its rows count, a few of their logits, and the smallest probability."""
    learnt, checked = reader.value.checked(X, y, weight, first_row, context)
    rows = checked.that_count.on_host()
    return len(rows), rows.logits[:50].copy(), learnt.smallest


def _make_blocks(
    reader: Box, make: Box, X: Any, y: Any, weight: Any, context: Any, first_row: int
) -> list[Any]:
    _, checked = reader.value.checked(X, y, weight, first_row, context)
    return [make.value(part) for part in regroup([checked.on_host()])]


def _sum_blocks(blocks: list[Any], function: Callable[..., Any], args: Box) -> Any:
    return add_all(*(function(block, *args.value) for block in blocks))


def _map_blocks(blocks: list[Any], first: int, function: Box) -> list[Any]:
    return MemoryBlocks(blocks, serial=True).map(lambda block, begin: function.value(block, first + begin))


def _change_blocks(blocks: list[Any], function: Box) -> list[Any]:
    return [function.value(block) for block in blocks]


def _apply_to_part(frame: Any, row_map: RowMap) -> Any:
    values = frame.to_numpy()
    if not len(frame):  # the type of the results is that of some row
        values = np.full(
            (1, values.shape[1]), 1 / values.shape[1], values.dtype if values.dtype.kind == "f" else None
        )
    return format_of(frame).back(row_map.function(values, 0, None)[: len(frame)], frame, -1)


def _apply(X: np.ndarray, row_map: RowMap, dtype: Any, block_info: Any = None) -> np.ndarray:
    first_row = block_info[0]["array-location"][0][0] if block_info else 0
    result: np.ndarray = row_map.function(X, first_row, dtype)
    return result


def as_array(x: Any) -> Any:
    """A Dask DataFrame or Series as a Dask array, with the numbers of rows counted; anything else as it is."""
    return x.to_dask_array(lengths=True) if hasattr(x, "to_dask_array") else x


def whole_rows(X: Any) -> Any:
    """The same array in chunks that hold all classes of their rows."""
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        X = X.compute_chunk_sizes()
    rows = tuple(size for size in X.chunks[0] if size)  # what a filter has emptied is no chunk
    return X.rechunk({0: rows or -1, 1: -1})


def chunks_of(X: Any, *columns: Any) -> list[tuple[Any, ...]]:
    """Values, labels, weights, context and number of the first row of every chunk."""
    import dask.array as da

    n = X.shape[0]
    parts = [list(X.to_delayed().ravel())]
    for name, column in zip(("y", "sample_weight", "context"), columns, strict=False):
        if column is None or np.isscalar(column):
            parts.append([column] * X.numblocks[0])
            continue
        if not isinstance(column, da.Array):
            column = to_numpy(column)
        elif any(np.isnan(size) for size in column.chunks[0]):
            column = column.compute_chunk_sizes()
        if column.ndim == 0 or column.shape[0] != n:
            raise InputError(
                f"{name} has shape {tuple(column.shape)} and X has {n} rows: "
                f"found input variables with inconsistent numbers of samples: {[n, *column.shape[:1]]}."
            )
        chunks = (X.chunks[0], *column.shape[1:])
        in_memory = not isinstance(column, da.Array)
        column = da.from_array(column, chunks=chunks) if in_memory else column.rechunk(chunks)
        parts.append(list(column.to_delayed().ravel()))
    first = np.cumsum((0, *X.chunks[0][:-1])).tolist()
    return list(zip(*parts, first, strict=True))


def has_client() -> bool:
    """Whether there is a cluster whose workers can keep things."""
    try:
        from distributed import get_client

        get_client()
    except (ImportError, ValueError):
        return False
    return True


def task(function: Callable[..., Any], *args: Any) -> Delayed:
    """``function(*args)`` as a task."""
    import dask

    return dask.delayed(function, pure=False, traverse=False)(*args)


def once(value: Any) -> Delayed:
    """A value that all tasks share, sent once."""
    import dask

    return dask.delayed(Box(value), pure=False, traverse=False)


@dataclass(frozen=True)
class Box:
    """Holds a value that Dask must not look into."""

    value: Any


def compute(tasks: list[Delayed]) -> list[Any]:
    """The results of all tasks."""
    import dask

    return list(dask.compute(*tasks))


def reduce_tasks(tasks: list[Delayed], merge: Callable[..., Any] | None = None) -> Any:
    """The sum of all tasks' results, in a fixed order."""
    while True:
        groups = [tasks[i : i + _FAN_IN] for i in range(0, len(tasks), _FAN_IN)]
        tasks = [task(merge or add_all, *group) for group in groups]
        if len(tasks) == 1:
            return compute(tasks)[0]


def add_all(*sums: Any) -> Any:
    """The sum of what can be added."""
    return reduce(add, sums)
