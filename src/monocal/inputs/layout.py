"""Where the classes are in an array of any number of axes, and which labels do not count.

    X (N, C, H, W), class_axis=1      ->   rows (N H W, C)      ->   results (N, C, H, W)
    y (N, H, W), ignore_index=-100    ->   labels (N H W,), of which those equal to -100 do not count

Rows are in the order of the axes that are not the classes'; row ``r`` is the pixel or token ``np.unravel_index(r, y.shape)``.
No array is copied as a whole: rows are a view where numpy and torch have one, and are else gathered when some are asked for.
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

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """How arrays are laid out.

    Attributes
    ----------
    class_axis : int
        The axis of the classes; negative numbers count from the last.
    ignore_index : int or None
        A pixel or token with this label does not count.
    """

    class_axis: int = -1
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("class_axis", self.class_axis), ("ignore_index", self.ignore_index)):
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole and not (name == "ignore_index" and value is None):
                raise InputError(
                    f"{option(name)} must be a whole number{' or None' * (name == 'ignore_index')}, but is {value!r}."
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


ROWS = Layout()  # one row per sample, one column per class, and all labels count


@dataclass(frozen=True)
class Flat:
    """An array as rows, and the way back.

    Attributes
    ----------
    array : array
        As it came.
    axis : int
        Of the classes, counted from the first.
    rows : array of shape (n, m), or GatheredRows
        The array itself, a view, or rows that are gathered when asked for.
    """

    array: Any
    axis: int
    rows: Any

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape without the classes: that of labels and weights."""
        shape = tuple(self.array.shape)
        return shape[: self.axis] + shape[self.axis + 1 :]

    def column(self, values: Any, name: str, of: str = "X") -> Any:
        """Labels or weights, one for each row, as (n,); None and single numbers stay."""
        if values is None or np.isscalar(values) or len(self.lead) == 1:
            return values
        values = as_array(values)
        values = values if hasattr(values, "shape") else np.asarray(values)
        shape = tuple(values.shape)
        if shape == self.lead:
            return _rows(values, None)
        whole = tuple(self.array.shape)
        fitting = [axis for axis in range(len(whole)) if whole[:axis] + whole[axis + 1 :] == shape]
        advice = f"Where labels have one axis, {of} must be two-dimensional."
        if fitting:
            advice = f"This shape fits {option('class_axis', fitting[0])}."
        raise InputError(
            f"{name} has shape {shape} and {of} has shape {whole}: with {option('class_axis', self.axis)} there is one "
            f"entry for each place, in shape {self.lead}. {advice}"
        )

    def context(self, context: Any) -> Any:
        """What is known of the rows: columns by name, or an array with one value, or one row of values, for each place.

        A column may have fewer axes than there are places: one value for each image counts for all its pixels. An array that
        could be one such column or a table of several is refused.
        """
        if len(self.lead) == 1:
            return context
        if isinstance(context, Mapping):
            return {name: self._spread(np.asarray(values)) for name, values in context.items()}
        if hasattr(context, "columns"):
            return context  # a frame has rows already
        values = np.asarray(context)
        shape, lead = values.shape, self.lead
        if 2 <= values.ndim < len(lead) and shape == lead[: values.ndim] and shape[-1] > 1:
            raise InputError(
                f"context has shape {shape}, and there are places of shape {lead}: is it one value for each entry of the first "
                f"{values.ndim} axes, or {shape[-1]} columns? Give a dict of columns, or one value for each place "
                f"(shape {lead})."
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
        """What was found for all rows, (n, m) or (n,), in the shape of the array."""
        if values.ndim == 1:
            return values.reshape(self.lead)
        m = values.shape[1]
        return array_namespace(values).moveaxis(values.reshape((*self.lead, m)), -1, self.axis)


class GatheredRows:
    """Rows (n, m) of an array whose classes are not its last axis, or entries (n,) of one without classes.

    It can be cut and assigned to in slices of rows, as an array can, and holds nothing itself.
    """

    def __init__(self, array: Any, axis: int | None):
        self.array, self.axis = array, axis
        shape = tuple(array.shape)
        self.lead = shape if axis is None else shape[:axis] + shape[axis + 1 :]
        n = math.prod(self.lead)
        self.shape: tuple[int, ...] = (n,) if axis is None else (n, shape[axis])
        self.ndim, self.dtype = len(self.shape), array.dtype
        self.size = math.prod(shape)
        chunks = getattr(array, "chunks", None)  # rows of a chunk of a chunked array, along its first axis
        self.chunks = (int(chunks[0]) * math.prod(self.lead[1:]),) if chunks and axis != 0 else None

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(to_numpy(self[:]), dtype=dtype)

    def __getitem__(self, rows: slice) -> Any:
        start, stop = self._span(rows)
        parts = [self._part(box) for box in boxes(self.lead, start, stop)]
        return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts)

    def __setitem__(self, rows: slice, values: Any) -> None:
        start, stop = self._span(rows)
        done = 0
        for box in boxes(self.lead, start, stop):
            size = tuple(side.stop - side.start for side in box)
            part = values[done : done + math.prod(size)]
            done += math.prod(size)
            if self.axis is None:
                self.array[box] = part.reshape(size)
            else:
                whole = part.reshape((*size, self.shape[1]))
                self.array[self._index(box)] = array_namespace(whole).moveaxis(whole, -1, self.axis)

    def _span(self, rows: slice) -> tuple[int, int]:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise InputError(f"GatheredRows are cut in slices of neighbouring rows, but the step is {step}.")
        return start, max(start, stop)

    def _part(self, box: Box) -> Any:
        part = self.array[self._index(box)]
        if not is_torch(part):
            part = np.asarray(part)
        if self.axis is None:
            return part.reshape(-1)
        rows: Any = array_namespace(part).moveaxis(part, self.axis, -1)
        return rows.reshape((-1, self.shape[1]))

    def _index(self, box: Box) -> Box:
        return box if self.axis is None else (*box[: self.axis], slice(None), *box[self.axis :])


def boxes(lead: tuple[int, ...], start: int, stop: int) -> list[Box]:
    """The rows ``start:stop`` as boxes of an array of shape ``lead``, in order: two for an axis at the most."""
    if len(lead) == 1:
        return [(slice(start, stop),)]
    inner = math.prod(lead[1:])
    if start == stop or not inner:
        return [tuple(slice(0, 0) for _ in lead)]
    first, last = start // inner, (stop - 1) // inner
    if first == last and stop - start < inner:
        parts = boxes(lead[1:], start - first * inner, stop - first * inner)
        return [(slice(first, first + 1), *part) for part in parts]
    begin, end = -(-start // inner), stop // inner
    parts = boxes(lead, start, begin * inner) if start < begin * inner else []
    if begin < end:
        parts.append((slice(begin, end), *(slice(0, side) for side in lead[1:])))
    return parts + (boxes(lead, end * inner, stop) if end * inner < stop else [])


def _rows(array: Any, axis: int | None) -> Any:
    """Rows of an array, the classes in ``axis``; None: entries of one without classes."""
    shape = tuple(array.shape)
    if is_dask(array):
        return _dask_rows(array, axis)
    last = axis is None or axis == len(shape) - 1
    n_own = 0 if axis is None else 1
    if last and len(shape) == 1 + n_own:
        return array
    shape_of_rows = (math.prod(shape[: len(shape) - n_own]), *shape[len(shape) - n_own :])
    contiguous = (
        array.is_contiguous()
        if is_torch(array)
        else isinstance(array, np.ndarray) and array.flags.c_contiguous
    )
    return array.reshape(shape_of_rows) if last and contiguous else GatheredRows(array, axis)


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
