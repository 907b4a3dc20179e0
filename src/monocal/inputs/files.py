"""Rows in a file or in blocks: read in parts, each checked as it comes, and written in parts.

memory-mapped, zarr or h5py array   read in slices of its rows
a function that makes blocks        called once per pass. Blocks are ``(X, y)``, ``(X, y, sample_weight)``, ``(X, y, context)``
                                    with a table (n, C), or ``(X, y, sample_weight, context)``
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..core.rows import Blocks
from ..errors import InputError
from .context import ContextReader, find_context
from .formats import class_names, library_of
from .layout import ROWS, Flat, Layout
from .names import by_column, listing
from .reader import Checked, OutOfCore, Reader, RowMap, StreamedBlocks
from .validation import NO_LABELS, check_some_weight

# A file of at most this many bytes is simply read.
IN_MEMORY = 2**26
# Logits to read at a time: a few dozen megabytes at most, in any type.
_READ = 2**22
# How many rows are looked at to judge the unit of all logits.
_FIRST = 50


def is_large_file(x: Any) -> bool:
    """Whether ``x`` is an array in a file that is better read in parts."""
    is_file = _memmap(x) is not None or (library_of(x) in ("zarr", "h5py") and hasattr(x, "shape"))
    return is_file and x.ndim >= 2 and x.size * x.dtype.itemsize > IN_MEMORY


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


def _memmap(x: Any) -> np.memmap | None:
    """The memory map that an array is a view of."""
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap) and isinstance(x.base, mmap.mmap):
            return x
        x = x.base
    return None


class BlockLogits(OutOfCore):
    """Blocks of rows from a function or an iterable."""

    refusal = (
        "X: this method needs all rows in memory, but got blocks of rows. Pass arrays, or use TemperatureScaling "
        "(with loss='nll'), MCCT, ConditionalMCCT or StructuredScaling(kind='vector'), which read blocks."
    )

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
        """Values, labels, weights (or None) and context (or None) as they come."""
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
                    f"X: block {number} must be a tuple (X, y), (X, y, sample_weight) or (X, y, sample_weight, context)."
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
                X, y, weight = flat.rows, flat.column(y, "y"), flat.column(weight, "sample_weight")
            yield X, y, weight, context

    def open(self, reader: Reader) -> BlockLogits:
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
            reader, codes = self._codes(reader, context, weight, first_row)
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

    def _codes(
        self, reader: Reader, context: Any, weight: Any, first_row: int
    ) -> tuple[Reader, np.ndarray | None]:
        """The reader that has seen the context of a block, and the context as numbers."""
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

    def _again(self) -> Iterator[Checked]:
        self.passes += 1
        return self._read()

    def hold(self, make: Callable[[Checked], Any]) -> Blocks:
        return StreamedBlocks(self._again, make, self.shape[0])

    def apply(self, row_map: RowMap, out: Any) -> Any:
        raise InputError(
            f"{row_map.method}: X is a function or an iterable of blocks. Use predict_blocks(X), which gives one block of "
            "probabilities after another, or call this method on each block."
        )


class FileLogits(BlockLogits):
    """A large array in a file, read in slices along its first axis without the classes."""

    def __init__(self, flat: Flat, y: Any = None, sample_weight: Any = None, codes: Any = None):
        self.flat, self.columns = flat, (y, sample_weight, codes)
        for name, column in zip(("y", "sample_weight", "context"), self.columns, strict=True):
            shape = getattr(column, "shape", None)
            if shape and shape[0] != flat.n_rows:
                raise InputError(
                    f"{name} has {shape[0]} entries and X has {flat.n_rows} rows: "
                    f"found input variables with inconsistent numbers of samples: {[flat.n_rows, shape[0]]}."
                )

    def parts(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        if self.columns[0] is None:
            raise InputError(NO_LABELS)
        return file_parts(self.flat, *self.columns)

    def _codes(
        self, reader: Reader, context: Any, weight: Any, first_row: int
    ) -> tuple[Reader, np.ndarray | None]:
        return reader, context

    def apply(self, row_map: RowMap, out: Any) -> Any:
        array, axis = self.flat.array, self.flat.axis
        dtype = None if out is None else check_out(out, array.shape, array.dtype)
        first_row = 0
        for box in _boxes(array, axis):
            part = Flat(_read(array, box), axis)
            result = part.back(row_map.function(part.rows, first_row, dtype))
            if out is None:
                dense = result.ndim == part.array.ndim
                out = np.empty(array.shape if dense else self.flat.lead, dtype=result.dtype)
            out[box if result.ndim == part.array.ndim else box[-1:]] = result
            first_row += part.n_rows
            _forget(out)
        return out


def file_parts(flat: Flat, *columns: Any) -> Iterator[tuple[Any, ...]]:
    """Some rows of an array at a time, with the same rows of each column; None and single numbers stay."""
    arrays = [x if hasattr(x, "shape") and not hasattr(x, "iloc") else np.asarray(x) for x in columns]
    first_row = 0
    for box in _boxes(flat.array, flat.axis):
        part = Flat(_read(flat.array, box), flat.axis)
        rows = slice(first_row, first_row + part.n_rows)
        own = zip(columns, arrays, strict=True)
        yield part.rows, *(x if x is None or np.isscalar(x) else array[rows] for x, array in own)
        first_row = rows.stop


def _boxes(array: Any, axis: int) -> list[tuple[slice, ...]]:
    """Parts to read at a time, cut along the first axis that is not of the classes; whole chunks where there are some."""
    cut = 1 if axis == 0 else 0
    n = array.shape[cut]
    size = max(1, _READ * n // max(1, math.prod(array.shape)))
    chunks = getattr(array, "chunks", None)
    if chunks:
        size = max(1, size // chunks[cut]) * chunks[cut]
    return [(*(slice(None),) * cut, slice(i, min(i + size, n))) for i in range(0, n, size)]


def values_and_context(blocks: Any, with_context: bool, layout: Layout = ROWS) -> Iterator[tuple[Any, Any]]:
    """The values of blocks, whatever the form they come in, and their context, the table (n, C) that comes after them."""
    in_file = _memmap(blocks) is not None or library_of(blocks) in ("zarr", "h5py")
    if in_file and not with_context:
        axis = layout.flat(blocks).axis if blocks.ndim > 1 else -1  # else one score for each row
        return ((_read(blocks, box), None) for box in _boxes(blocks, axis))
    one_array = hasattr(blocks, "shape")
    if one_array or not (callable(blocks) or isinstance(blocks, Iterable)):
        what = "tuples (X, context)" if with_context else "arrays (n_i, m)"
        instead = "one array: use predict_proba" if one_array else f"a {type(blocks).__name__}"
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


def _read(X: Any, box: tuple[slice, ...]) -> np.ndarray:
    values = np.array(X[box], order="C")  # a copy: what a memory map has read is let go
    _forget(X)
    return values


def _forget(x: Any) -> None:
    """Take the pages of a memory map off this process; they stay in the file and in the system's cache."""
    mapped = _memmap(x)
    # Pages of a private map (mode "c") may hold changes that are nowhere else.
    if mapped is not None and mapped.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        # The base is an mmap, as `_memmap` has seen to; numpy's types say that it is an array.
        mapped.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]


def check_out(out: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """``out`` must have room for the result, and take numbers that are not whole: its type, ``dtype`` where it has none."""
    if tuple(getattr(out, "shape", ())) != tuple(shape):
        raise InputError(
            f"out must be an array of shape {tuple(shape)}, but has shape {getattr(out, 'shape', None)}."
        )
    if getattr(getattr(out, "dtype", None), "kind", "f") in "biu":
        raise InputError(f"out must be an array of floating-point numbers, but has type {out.dtype}.")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError("out is read-only.")
    if library_of(out) in ("jax", "jaxlib"):
        raise InputError("out is an array of jax, which cannot be written to. Leave it out.")
    return getattr(out, "dtype", dtype)
