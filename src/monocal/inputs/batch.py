"""A batch: the caller's rows as the package works on them, and the way back for what is computed of them.

    X  ->  format (`formats`)  ->  axes (`layout`)  ->  rows (n, m)        y, sample_weight, context  ->  one entry per row
    result for rows  ->  axes of X  ->  format of X

A fit and a prediction share it:

    batch = Batch(X, layout, y)
    y, weight, context = batch.columns(y, weight, context)
    source = open_source(batch.rows, y, weight, context, reader)      checked rows of a fit, wherever they are (`reader`)
    batch.back(batch.apply(row_map, out))                             a prediction, in the format and axes of X

What is no array in memory has a source of its own (`out_of_core`):

    memory-mapped, zarr or h5py array   read in slices of its rows                                         (`files`)
    a function that makes blocks        called once per pass; its blocks are ``(X, y, ...)``               (`files`)
    an array of more axes               rows of its classes, in parts where it is a large file             (`layout`, `files`)
    Dask array or DataFrame             read by its own workers                                            (`dask`)
    an object with ``as_source``        reads itself, as `TopK` does                                       (`llm.top_k_rows`)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, is_dask, is_plain_rows, is_torch, to_numpy
from ..errors import InputError, wording
from .context import ContextReader, check_context_rows
from .files import BlockLogits, FileLogits, check_out, is_blocks, is_large_file
from .formats import (
    PLAIN,
    as_array,
    class_dim,
    format_of,
    in_dims_of,
    is_made_up,
    library_of,
    named_columns,
)
from .layout import ROWS, Flat, Layout
from .names import by_column
from .reader import ArraySource, OutOfCore, Reader, RowMap, Source

# The largest number of half precision but one: `keep_argmax` may have to go one higher.
_HALF_RANGE = 65472.0


class Batch:
    """Rows of a caller."""

    def __init__(self, X: Any, layout: Layout, y: Any = None):
        self.original, self.layout, self._format = X, layout, PLAIN
        self.rows = X  # (n, m) in memory, or something that has a source
        self.names = None  # a frame without rows, with the names of the classes, for scikit-learn to compare
        self.class_dim: str | None = None  # what a labelled array calls the dimension of the classes
        self._flat: Flat | None = None
        self._plain = is_plain_rows(X) and layout.class_axis in (-1, 1)
        if not self._plain:
            self._read(X, y, layout)

    def _read(self, X: Any, y: Any, layout: Layout) -> None:
        """The format, the axes and the names of what is no array (n, m) in memory."""
        axis = layout.class_axis
        self._format = format_of(X)
        self.rows = array = self._format.array(X)
        if hasattr(X, "columns") and axis not in (-1, 1):
            raise InputError(
                f"X is a {type(X).__name__}, which has a column for each class, but class_axis is {axis}. Turn it "
                "so that it has one row for each sample and leave class_axis out, or pass an array."
            )
        if not hasattr(array, "as_source") and not is_blocks(array, y) and not _is_dask_frame(array):
            if isinstance(array, list | tuple) and (axis != -1 or np.ndim(array[:1]) > 2):
                array = np.asarray(array)
            if not layout.is_plain(array):
                self._flat = layout.flat(array)
                self.rows = self._flat if is_large_file(array) else self._flat.rows
        self.names = named_columns(X, axis)
        dim = class_dim(X, axis)
        self.class_dim = None if dim is None or is_made_up(dim) else str(dim)

    @property
    def width(self) -> Any:
        """The number of classes, where rows have a shape."""
        if isinstance(self.rows, Flat):
            return self.rows.array.shape[self.rows.axis]
        shape: tuple[Any, ...] = getattr(self.rows, "shape", ())
        return shape[1] if len(shape) == 2 else None

    @property
    def in_memory(self) -> Any:
        """The rows, those of a large file as an array."""
        return self.rows.rows if isinstance(self.rows, Flat) else self.rows

    def columns(self, y: Any, sample_weight: Any, context: Any = None) -> tuple[Any, Any, Any]:
        """Labels, weights and context, one of each for each row; names of columns as their places."""
        if not self._plain:
            X, axis = self.original, self.layout.class_axis
            y = by_column(in_dims_of(X, y, axis, "y"), X, axis, self.layout.ignore_index)
            sample_weight = in_dims_of(X, sample_weight, axis, "sample_weight")
        y = None if y is None else as_array(y)
        sample_weight = None if sample_weight is None else as_array(sample_weight)
        flat = self._flat
        if flat is None:
            return y, sample_weight, context
        context = None if context is None else flat.context(context)
        return flat.column(y, "y"), flat.column(sample_weight, "sample_weight"), context

    def apply(self, row_map: RowMap, out: Any) -> Any:
        """The result for all rows, with the axes of ``X``; or written to ``out``."""
        if self._flat is not None:
            self._check_classes(row_map)
        n_rows = getattr(self.rows, "shape", (None,))[0]
        if isinstance(n_rows, int):
            check_context_rows(row_map.context, n_rows)
        source = out_of_core(self.rows)
        if source is not None:
            return source.apply(row_map, out)
        like = self.rows if self._flat is None else self._flat.array
        if out is None:
            return self.in_shape(row_map.function(self.rows, 0, None))
        dtype = check_out(out, np.shape(like), getattr(like, "dtype", np.float64))
        out[:] = self.in_shape(row_map.function(self.rows, 0, dtype))
        return out

    def in_shape(self, result: Any) -> Any:
        """The result for all rows, (n, m) or (n,), with the axes of ``X``."""
        return result if self._flat is None else self._flat.back(result)

    def back(self, result: Any) -> Any:
        """A result with the axes of ``X`` in the format of ``X``."""
        return self._format.back(result, self.original, self.layout.class_axis)

    def _check_classes(self, row_map: RowMap) -> None:
        """The axis of the classes must be as long as there were classes."""
        assert self._flat is not None
        shape, expected, axis = tuple(self._flat.array.shape), row_map.n_classes, self.layout.class_axis
        if self.width != expected:
            raise InputError(
                f"X has shape {shape}: {wording('class_axis=', axis)} has {self.width} classes, but {row_map.name} is expecting "
                f"{expected} features as input. Set class_axis, or give outputs of the same model."
            )


def open_source(
    X: Any, y: Any, sample_weight: Any, context: Any, reader: Reader, *, streams: bool = True
) -> Source:
    """Checked rows for a fit, in memory or wherever they are; without ``streams`` an array in a file is read as a whole."""
    codes = None
    if context is not None:
        columns = ContextReader.of(context).having_seen(context, sample_weight)
        reader, codes = replace(reader, context=columns), columns.codes(context)
    place = out_of_core(X, y, sample_weight, codes, reader.layout, streams=streams)
    if place is None:
        X = X.rows if isinstance(X, Flat) else X
        reader, checked = reader.checked(X, y, sample_weight, context=codes)
        return ArraySource(reader, checked.that_count)
    if not streams:
        raise InputError(place.refusal)
    return place.open(reader)


def out_of_core(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    context: Any = None,
    layout: Layout = ROWS,
    *,
    streams: bool = True,
) -> OutOfCore | None:
    """The source of rows that are no array in memory; None where they are one, or may as well become one."""
    if is_plain_rows(X):
        return None
    if hasattr(X, "as_source"):  # rows that know how they are read
        own: OutOfCore = X.as_source(y, sample_weight, *(() if context is None else (context,)))
        return own
    if is_dask(X) or _is_dask_frame(X):
        from .dask import DaskLogits

        return DaskLogits(X, y, sample_weight, context)
    if is_blocks(X, y):
        return BlockLogits(X, y, sample_weight, context, layout)
    if streams and isinstance(X, Flat):
        return FileLogits(X, y, sample_weight, context)
    return FileLogits(Flat(X, 1), y, sample_weight, context) if streams and is_large_file(X) else None


def _is_dask_frame(x: Any) -> bool:
    return library_of(x) == "dask" and hasattr(x, "to_dask_array")


def in_type(values: Array, like: Array, dtype: Any) -> Array:
    """Results in the library and on the device of ``like``, of some type."""
    xp = array_namespace(like)
    values = xp.asarray(values, device=like.device) if is_torch(like) else to_numpy(values)
    if str(dtype).endswith("float16") and not str(dtype).endswith("bfloat16"):
        # Half precision ends at 65504: calibrated logits are cut there, but for the -inf of a masked class.
        values = xp.where(xp.isinf(values), values, xp.clip(values, -_HALF_RANGE, _HALF_RANGE))
    with np.errstate(under="ignore"):
        return xp.astype(values, dtype, copy=False)
