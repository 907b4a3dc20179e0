"""Where the classes are in an array of any number of axes, and which labels do not count.

    X (N, C, H, W), class_axis=1      ->   rows (N H W, C)      ->   results (N, C, H, W)
    y (N, H, W), ignore_index=-100    ->   labels (N H W,), of which those equal to -100 do not count

Rows are in the order of the axes that are not the classes'; row ``r`` is the pixel or token ``np.unravel_index(r, y.shape)``.
No array is copied as a whole: rows are a view where numpy and torch have one, and are else gathered, an image at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import array_namespace, is_dask, is_torch, to_numpy
from ..errors import InputError, option
from .formats import as_array


@dataclass(frozen=True)
class Layout:
    """How arrays are laid out."""

    class_axis: int = -1  # of the classes; negative numbers count from the last
    ignore_index: int | None = None  # a pixel or token with this label does not count

    def __post_init__(self) -> None:
        if not _is_whole(self.class_axis):
            raise InputError(f"{option('class_axis')} must be a whole number, but is {self.class_axis!r}.")
        if self.ignore_index is not None and not _is_whole(self.ignore_index):
            raise InputError(
                f"{option('ignore_index')} must be a whole number or None, but is {self.ignore_index!r}."
            )

    def flat(self, array: Any, name: str = "X") -> Flat:
        """An array of two axes or more as rows."""
        shape = tuple(array.shape)
        if len(shape) < 2:
            raise InputError(
                f"{name} must be two-dimensional, one row per sample and one column per class, or have more axes, one of them "
                f"{option('class_axis')}, but has shape {shape}. Reshape your data, for a single sample with "
                f"{name}.reshape(1, -1)."
            )
        if not -len(shape) <= self.class_axis < len(shape):
            raise InputError(
                f"{option('class_axis', self.class_axis)} is no axis of {name}, which has shape {shape}: give a number from "
                f"{-len(shape)} to {len(shape) - 1}."
            )
        axis = self.class_axis % len(shape)
        return Flat(array, axis, _rows(array, axis))

    def is_plain(self, array: Any) -> bool:
        """Whether an array, or what becomes one, is rows of classes already."""
        ndim = getattr(array, "ndim", 2)
        return (ndim < 2 and self.class_axis == -1) or (ndim == 2 and self.class_axis in (-1, 1))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


ROWS = Layout()  # one row per sample, one column per class, and all labels count


@dataclass(frozen=True)
class Flat:
    """An array as rows, and the way back."""

    array: Any  # as it came
    axis: int  # of the classes, counted from the first
    rows: Any  # (n, m): the array itself, a view, or `GatheredRows`

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape without the classes: that of labels and weights."""
        return _without(tuple(self.array.shape), self.axis)

    def column(self, values: Any, name: str, of: str = "X") -> Any:
        """Labels or weights, one for each row, as (n,); None and single numbers stay."""
        if values is None or np.isscalar(values) or len(self.lead) == 1:
            return values
        values = as_array(values)
        values = values if hasattr(values, "shape") else np.asarray(values)
        shape, whole = tuple(values.shape), tuple(self.array.shape)
        if shape == self.lead:
            return _rows(values, None)
        fitting = [axis for axis in range(len(whole)) if _without(whole, axis) == shape]
        advice = f"Where labels have one axis, {of} must be two-dimensional."
        if fitting:
            advice = f"This shape fits {option('class_axis', fitting[0])}."
        raise InputError(
            f"{name} has shape {shape} and {of} has shape {whole}: with {option('class_axis', self.axis)} there is one "
            f"entry for each place, in shape {self.lead}. {advice}"
        )

    def context(self, context: Any) -> Any:
        """Columns by name, or an array with one value, or one row of values, for each place.

        A column may have fewer axes than there are places: one value for each image counts for all its pixels. An array that
        could be one such column or a table of several is refused.
        """
        if len(self.lead) == 1 or hasattr(context, "columns"):  # a frame has rows already
            return context
        if isinstance(context, Mapping):
            return {name: self._spread(np.asarray(values)) for name, values in context.items()}
        values = np.asarray(context)
        shape, lead = values.shape, self.lead
        if 2 <= values.ndim < len(lead) and shape == lead[: values.ndim] and shape[-1] > 1:
            raise InputError(
                f"context has shape {shape}, and there are places of shape {lead}: it may be {shape[-1]} columns, or one. Give a "
                "dict of columns, or one value for each place."
            )
        return self._spread(values)

    def _spread(self, values: np.ndarray) -> np.ndarray:
        lead = self.lead
        if values.shape[:1] == (math.prod(lead),):
            return values  # one for each row, as of any rows
        shared = max((k for k in range(len(lead) + 1) if values.shape[:k] == lead[:k]), default=0)
        if shared == 0 or values.ndim - shared > 1:
            raise InputError(
                f"context has shape {values.shape}, and there are places of shape {lead}: give one value, or one row of values, "
                "for each of them, or for each entry of the first axes."
            )
        own = values.shape[shared:]
        wide = values.reshape((*values.shape[:shared], *(1,) * (len(lead) - shared), *own))
        return np.broadcast_to(wide, (*lead, *own)).reshape((-1, *own))

    def back(self, values: Any) -> Any:
        """The result for all rows, (n, m) or (n,), in the shape of the array."""
        if isinstance(values, GatheredRows):
            return values.array
        if values.ndim == 1:
            return values.reshape(self.lead)
        m = values.shape[1]
        return array_namespace(values).moveaxis(values.reshape((*self.lead, m)), -1, self.axis)


class GatheredRows:
    """Rows (n, m) of an array whose classes are not its last axis, or entries (n,) of one without classes.

    It is cut and assigned to in slices of rows, as an array is, and holds nothing itself. A slice reads whole entries of the
    first axis that has several, so slices are best cut at these (`chunks`).
    """

    def __init__(self, array: Any, axis: int | None):
        self.array, self.axis = array, axis
        shape = tuple(array.shape)
        lead = shape if axis is None else _without(shape, axis)
        n = math.prod(lead)
        self.shape: tuple[int, ...] = (n,) if axis is None else (n, shape[axis])
        self.ndim, self.dtype, self.size = len(self.shape), array.dtype, math.prod(shape)
        cut = next((i for i, side in enumerate(lead) if side > 1), 0)
        self._cut = cut + (axis is not None and axis <= cut)  # among the axes of the array
        chunks = getattr(array, "chunks", None)  # of an array that lies in chunks
        self._each = math.prod(lead[cut + 1 :])  # rows of an entry
        self.chunks = (max(1, self._each) * (int(chunks[self._cut]) if chunks else 1),)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(to_numpy(self[:]), dtype=dtype)

    def __getitem__(self, rows: slice) -> Any:
        box, inside, _ = self._box(rows)
        return self._rows(box)[inside]

    def __setitem__(self, rows: slice, values: Any) -> None:
        box, inside, shape = self._box(rows)
        if inside != slice(0, math.prod(shape)):
            whole = self._rows(box)
            whole[inside] = values
            values = whole
        moved = values.reshape((*shape, *self.shape[1:]))
        if self.axis is not None:
            moved = array_namespace(moved).moveaxis(moved, -1, self.axis)
        self.array[box] = moved

    def _box(self, rows: slice) -> tuple[tuple[slice, ...], slice, tuple[int, ...]]:
        """Where the array holds these rows, whole entries; which of its rows they are; and its shape without classes."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise InputError(f"GatheredRows are cut in slices of neighbouring rows, but the step is {step}.")
        each = max(1, self._each)
        first, last = start // each, -(-max(start, stop) // each)
        box = (*(slice(None),) * self._cut, slice(first, last))
        shape = tuple(self.array.shape)
        shape = (*shape[: self._cut], last - first, *shape[self._cut + 1 :])
        lead = shape if self.axis is None else _without(shape, self.axis)
        return box, slice(start - first * each, max(start, stop) - first * each), lead

    def _rows(self, box: tuple[slice, ...]) -> Any:
        part = self.array[box]
        part = part if is_torch(part) else np.asarray(part)
        if self.axis is not None:
            part = array_namespace(part).moveaxis(part, self.axis, -1)
        return part.reshape((math.prod(part.shape[: part.ndim - self.ndim + 1]), *self.shape[1:]))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _rows(array: Any, axis: int | None) -> Any:
    """Rows of an array, the classes in ``axis``; None: entries of one without classes."""
    if is_dask(array):
        return _dask_rows(array, axis)
    shape, n_own = tuple(array.shape), 0 if axis is None else 1
    last = axis is None or axis == len(shape) - 1
    if last and len(shape) == 1 + n_own:
        return array
    if is_torch(array):
        contiguous = array.is_contiguous()
    else:
        contiguous = isinstance(array, np.ndarray) and array.flags.c_contiguous
    if not (last and contiguous):
        return GatheredRows(array, axis)
    return array.reshape((math.prod(shape[: len(shape) - n_own]), *shape[len(shape) - n_own :]))


def _dask_rows(array: Any, axis: int | None) -> Any:
    """The same of a Dask array, lazily: chunks are cut along the first axis only."""
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        array = array.compute_chunk_sizes()
    if axis is not None:
        array = array.transpose([i for i in range(array.ndim) if i != axis] + [axis])
    n_own = 0 if axis is None else 1
    if array.ndim == 1 + n_own:
        return array
    array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    return array.reshape((-1, *array.shape[array.ndim - n_own :]))
