"""Rows in a file or in blocks: read in parts, each checked as it comes, and written in parts.

memory-mapped, zarr or h5py array   read in slices of its rows
a function that makes blocks        called once per pass. Blocks are ``(X, y)``, ``(X, y, sample_weight)``, ``(X, y, context)``
                                    with a table (n, C), or ``(X, y, sample_weight, context)``
"""

from __future__ import annotations

import math
import mmap
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import array_namespace, device_of, is_torch, on_host, to_numpy
from ..core.rows import Blocks, MemoryBlocks
from ..errors import InputError
from ..parallel import GPU_BLOCK, map_in_order, row_slices
from .context import ContextReader, find_context
from .formats import class_names, library_of
from .layout import ROWS, GatheredRows, Layout
from .names import by_column, listing
from .reader import Checked, OutOfCore, Reader, RowMap, StreamedBlocks, regroup
from .validation import NO_LABELS, check_some_weight

# A file of at most this many bytes is simply read.
IN_MEMORY = 2**26
# Logits to read at a time: a few dozen megabytes at most, in any type.
_READ = 2**22
# How many rows are looked at to judge the unit of all logits.
_FIRST = 50


def is_large_file(x: Any) -> bool:
    """Whether ``x`` is an array in a file that is better read in parts."""
    return _is_file(x) and x.ndim == 2 and x.size * x.dtype.itemsize > IN_MEMORY


def has_parts(x: Any, layout: Layout) -> bool:
    """Whether ``x`` is an array in memory that a fit reads in parts, because it would have to copy rows otherwise."""
    whole = isinstance(x, np.ndarray) and x.ndim == 2 and layout.ignore_index is not None
    return whole or (isinstance(x, GatheredRows) and not is_torch(x.array))


def is_blocks(x: Any, y: Any) -> bool:
    """Whether ``x`` is a function that makes blocks, or an iterable of blocks with their labels."""
    if callable(x) and not hasattr(x, "shape"):
        return True
    array = hasattr(x, "shape") or hasattr(x, "__array__") or isinstance(x, str | dict)
    if y is not None or array or not isinstance(x, Iterable):
        return False
    # An iterator is refused later, because it can be read only once.
    return iter(x) is x or _is_block(next(iter(x), None))


def _is_block(x: Any) -> bool:
    """Whether ``x`` is ``(X, y, ...)``, as a tuple or as a list. A list of numbers or of rows is a matrix itself."""
    if not isinstance(x, tuple | list) or not len(x) or np.isscalar(x[0]):
        return False
    return isinstance(x, tuple) or getattr(x[0], "ndim", 0) == 2


def _is_file(x: Any) -> bool:
    x = x.array if isinstance(x, GatheredRows) else x
    return _memmap(x) is not None or (library_of(x) in ("zarr", "h5py") and hasattr(x, "shape"))


def _memmap(x: Any) -> np.memmap | None:
    """The memory map that an array is a view of."""
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap) and isinstance(x.base, mmap.mmap):
            return x
        x = x.base
    return None


class _Parts(OutOfCore):
    """Rows that come in parts."""

    refusal = (
        "X: this method needs all rows in memory, but got blocks of rows. Pass arrays, or use TemperatureScaling "
        "(with loss='nll'), MCCT, ConditionalMCCT or StructuredScaling(kind='vector'), which read blocks."
    )
    # Whether the rows are in memory, so that what is made of them may stay there.
    in_memory = False

    @abstractmethod
    def parts(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Values, labels, weights (or None) and context (or None) as they come."""

    def open(self, reader: Reader) -> _Parts:
        rows = classes = 0
        self.reader, self.single_precision = reader, True
        first: list[np.ndarray] = []
        for part in self._read(learning=True):
            if rows < _FIRST:
                first.append(to_numpy(part.logits[:_FIRST]).copy())
            rows += len(part)
            classes = part.logits.shape[1]
            self.single_precision &= part.logits.dtype != np.float64
        if not classes:
            raise InputError("X: there is no block to read, so there is nothing to fit.")
        check_some_weight(rows > 0, reader.layout.ignore_index)
        self.first, self.shape = np.concatenate(first), (rows, classes)
        return self

    def _read(self, learning: bool = False) -> Iterator[Checked]:
        """Checked rows that count; ``reader`` learns from all of them in the first pass."""
        first_row, classes, reader = 0, None, self.reader
        for X, y, weight, context in self.parts():
            if is_empty(X):
                continue
            reader, codes = self._context(reader, context, weight, first_row)
            reader, part = reader.checked(X, y, weight, first_row, codes)
            n, m = part.logits.shape
            classes = classes or m
            if m != classes:
                raise InputError(
                    f"X: the block that begins at row {first_row} has {m} columns, those before it have {classes}. "
                    "All blocks must have one column for each class."
                )
            if learning:
                self.reader = reader
            yield part.on_host().that_count
            first_row += n

    def _context(
        self, reader: Reader, context: Any, weight: Any, first_row: int
    ) -> tuple[Reader, np.ndarray | None]:
        """The reader, and the context of a part as numbers: as they are here."""
        return reader, context

    def _again(self) -> Iterator[Checked]:
        self.passes += 1
        return self._read()

    def hold(self, make: Callable[[Checked], Any]) -> Blocks:
        if self.in_memory:
            return MemoryBlocks(list(map_in_order(make, regroup(self._again()))))
        return StreamedBlocks(self._again, make, self.shape[0])


class FileLogits(_Parts):
    """An array in a file, or one that would have to be copied, read in slices of rows."""

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None, context: Any = None):
        self.X, self.columns = X, (y, sample_weight, context)
        self.in_memory = not _is_file(X) or X.size * X.dtype.itemsize <= IN_MEMORY
        n = X.shape[0]
        for name, column in zip(("y", "sample_weight", "context"), self.columns, strict=True):
            shape = getattr(column, "shape", None)
            if shape is not None and len(shape) and shape[0] != n:
                raise InputError(
                    f"{name} has {shape[0]} entries and X has {n} rows: "
                    f"found input variables with inconsistent numbers of samples: {[n, shape[0]]}."
                )

    def parts(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        if self.columns[0] is None:
            raise InputError(NO_LABELS)
        return file_parts(self.X, *self.columns)

    def apply(self, row_map: RowMap, out: Any) -> Any:
        dtype = None if out is None else check_out(out, self.X.shape, self.X.dtype)
        for rows in _reads(self.X):
            values = row_map.function(_read(self.X, rows), rows.start, dtype)
            if out is None:
                out = self._room_for(values)
            out[rows] = values
            _forget(out)
        return out

    def _room_for(self, values: Any) -> Any:
        """An array for the results of all rows, in the layout of X where they are rows of classes."""
        dense = isinstance(self.X, GatheredRows) and values.ndim == 2
        shape = self.X.array.shape if dense else (self.X.shape[0], *values.shape[1:])
        out = array_namespace(values).empty(shape, dtype=values.dtype, **device_of(values))
        return GatheredRows(out, self.X.axis) if dense else out


def file_parts(X: Any, *columns: Any) -> Iterator[tuple[Any, ...]]:
    """Some rows of an array at a time, with the same rows of each column; None and single numbers stay."""
    whole = [x is None or np.isscalar(x) for x in columns]
    arrays = [x if hasattr(x, "shape") and not hasattr(x, "iloc") else np.asarray(x) for x in columns]
    for rows in _reads(X):
        parts = zip(columns, arrays, whole, strict=True)
        yield _read(X, rows), *(x if is_whole else array[rows] for x, array, is_whole in parts)


class BlockLogits(_Parts):
    """Blocks of rows from a function or an iterable."""

    def __init__(
        self,
        blocks: Any,
        y: Any = None,
        sample_weight: Any = None,
        context: Any = None,
        layout: Layout = ROWS,
    ):
        if y is not None or sample_weight is not None or context is not None:
            raise InputError(
                "X is a function or an iterable of blocks, so labels, weights and context come with its blocks, (X, y), "
                "(X, y, sample_weight) or (X, y, sample_weight, context): do not pass them apart."
            )
        self.blocks, self.layout = blocks, layout

    def parts(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        blocks = self.blocks() if callable(self.blocks) else self.blocks
        if not callable(self.blocks) and iter(blocks) is blocks:
            raise InputError(
                "X is an iterator, which can be read only once, and a fit reads its rows several times. Pass the function that "
                "makes it, for instance  fit(lambda: read_blocks(path))."
            )
        names, axis = None, self.layout.class_axis
        for number, block in enumerate(blocks):
            if not _is_block(block) or len(block) not in (2, 3, 4):
                raise InputError(
                    f"X: block {number} must be a tuple (X, y), (X, y, sample_weight) or (X, y, sample_weight, context), but is "
                    f"{_describe(block)}."
                )
            X, y, weight, context = (*block, None, None)[:4]
            if len(block) == 3 and find_context([weight]) is not None:  # a table is no weights
                weight, context = None, weight
            own = class_names(X, axis)
            if names and own and own != names:
                raise InputError(
                    f"X: the columns of block {number} are {listing(own)}, and those of a block before it {listing(names)}. Put "
                    "them in one order."
                )
            names = names or own
            y = by_column(y, X, axis, self.layout.ignore_index)
            if not self.layout.is_plain(X):
                flat = self.layout.flat(X)
                X, y, weight = flat.rows[:], flat.column(y, "y"), flat.column(weight, "sample_weight")
            yield X, y, weight, context

    def _context(
        self, reader: Reader, context: Any, weight: Any, first_row: int
    ) -> tuple[Reader, np.ndarray | None]:
        columns = reader.context
        if (context is None) != (columns is None) and (first_row or context is None):
            raise InputError(
                f"X: the block that begins at row {first_row} has {'no' if context is None else 'a'} context, unlike those "
                "before it. Give all blocks a context, or none."
            )
        if context is None:
            return reader, None
        columns = (columns or ContextReader.of(context)).having_seen(context, weight)
        return replace(reader, context=columns), columns.codes(context)

    def apply(self, row_map: RowMap, out: Any) -> Any:
        raise InputError(
            f"{row_map.method}: X is a function or an iterable of blocks. Use predict_blocks(X), which gives one block of "
            "probabilities after another, or call this method on each block."
        )


def values_and_context(blocks: Any, with_context: bool, layout: Layout = ROWS) -> Iterator[tuple[Any, Any]]:
    """The values of blocks, whatever the form they come in, and their context, the table (n, C) that comes after them."""
    if _is_file(blocks) and not with_context:
        if layout.is_plain(blocks):
            return ((_read(blocks, rows), None) for rows in _reads(blocks))
        if layout.flat(blocks).axis > 0:
            size = max(1, _READ * blocks.shape[0] // blocks.size)
            return ((_read(blocks, rows), None) for rows in row_slices(blocks, size))
    one_array = hasattr(blocks, "shape")
    if one_array or not (callable(blocks) or isinstance(blocks, Iterable)):
        what = "tuples (X, context)" if with_context else "arrays (n_i, m)"
        instead = "one array: use predict_proba" if one_array else _describe(blocks)
        raise InputError(
            f"blocks must be an iterable of {what} or a function that returns one, but is {instead}."
        )
    source = blocks() if callable(blocks) else blocks
    if not with_context:
        return ((block[0] if _is_block(block) else block, None) for block in source)
    return (_with_context(number, block) for number, block in enumerate(source))


def _with_context(number: int, block: Any) -> tuple[Any, Any]:
    context = find_context(block[1:]) if _is_block(block) else None
    if context is None:
        raise InputError(
            f"blocks: block {number} has no context, and the calibrator was fitted with one. Give tuples (X, context), with "
            "one row of context for each row of X."
        )
    return block[0], context


def is_empty(block: Any) -> bool:
    """Whether a block has columns but no rows, as a filter leaves it."""
    shape: tuple[int, ...] = getattr(block, "shape", ())
    return len(shape) == 2 and shape[0] == 0


def _reads(X: Any) -> list[slice]:
    """Slices of rows to read at a time, whole chunks where the array has some."""
    on_device = isinstance(X, GatheredRows) and not on_host(X.array)
    size = max(1, (GPU_BLOCK if on_device else _READ) // math.prod(X.shape[1:]))
    chunks = getattr(X, "chunks", None)
    if chunks:
        size = max(1, size // chunks[0]) * chunks[0]
    return row_slices(X, size)


def _read(X: Any, rows: slice) -> Any:
    if isinstance(X, GatheredRows) and is_torch(X.array):
        return X[rows]
    values = np.array(X[rows], order="C")  # a copy: what a memory map has read is let go
    _forget(X)
    return values


def _forget(x: Any) -> None:
    """Take the pages of a memory map off this process; they stay in the file and in the system's cache."""
    mapped = _memmap(x.array if isinstance(x, GatheredRows) else x)
    # Pages of a private map (mode "c") may hold changes that are nowhere else.
    if mapped is not None and mapped.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        # The base is an mmap, as `_memmap` has seen to; numpy's types say that it is an array.
        mapped.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]


def check_out(out: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """``out`` must have room for the result, and take numbers that are not whole: its type, ``dtype`` where it has none."""
    if tuple(getattr(out, "shape", ())) != tuple(shape):
        raise InputError(f"out must be an array of shape {tuple(shape)}, but is {_describe(out)}.")
    if getattr(getattr(out, "dtype", None), "kind", "f") in "biu":
        raise InputError(f"out must be an array of floating-point numbers, but has type {out.dtype}.")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError("out is read-only.")
    if library_of(out) in ("jax", "jaxlib"):
        raise InputError("out is an array of jax, which cannot be written to. Leave it out.")
    return getattr(out, "dtype", dtype)


def _describe(x: Any) -> str:
    shape = getattr(x, "shape", None)
    return f"a {type(x).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
