"""Where the classes are in an array of any number of axes, and which labels do not count.

    X (N, C, H, W), class_axis=1      ->   rows (N H W, C)      ->   results (N, C, H, W)
    y (N, H, W), ignore_index=-100    ->   labels (N H W,), of which those equal to -100 do not count

Rows are in the order of the axes that are not the classes'; row ``r`` is the pixel or token ``np.unravel_index(r, y.shape)``.
They are a view where numpy and torch have one, and a copy else; large files are read a few images at a time (`files`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import array_namespace, is_dask, is_torch
from ..errors import InputError, wording
from .formats import as_array


@dataclass(frozen=True)
class Layout:
    """How arrays are laid out."""

    class_axis: int = -1  # of the classes; negative numbers count from the last
    ignore_index: int | None = None  # a pixel or token with this label does not count

    def __post_init__(self) -> None:
        for name, value in (("class_axis", self.class_axis), ("ignore_index", self.ignore_index)):
            none = " or None" if name == "ignore_index" else ""
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole and not (none and value is None):
                raise InputError(f"{wording(name)} must be a whole number{none}, but is {value!r}.")

    def flat(self, array: Any, name: str = "X") -> Flat:
        """An array of two axes or more as rows."""
        shape = tuple(array.shape)
        if len(shape) < 2:
            raise InputError(
                f"{name} must be two-dimensional, one row per sample and one column per class, or have more axes, one of them "
                f"{wording('class_axis')}, but has shape {shape}. Reshape your data, for a single sample with "
                f"{name}.reshape(1, -1)."
            )
        if not -len(shape) <= self.class_axis < len(shape):
            raise InputError(
                f"{wording('class_axis=', self.class_axis)} is no axis of {name}, which has shape {shape}: give a number from "
                f"{-len(shape)} to {len(shape) - 1}."
            )
        if is_dask(array) and (len(shape) > 2 or self.class_axis not in (-1, 1)):
            raise InputError(
                f"{name}: a Dask array must have one row per sample and one column per class: reshape it."
            )
        return Flat(array, self.class_axis % len(shape))

    def is_plain(self, array: Any) -> bool:
        """Whether an array, or what becomes one, is rows of classes already."""
        ndim = getattr(array, "ndim", 2)
        return (ndim < 2 and self.class_axis == -1) or (ndim == 2 and self.class_axis in (-1, 1))


ROWS = Layout()  # one row per sample, one column per class, and all labels count


@dataclass(frozen=True)
class Flat:
    """An array as rows, and the way back."""

    array: Any  # as it came
    axis: int  # of the classes, counted from the first

    @cached_property
    def rows(self) -> Any:
        """Rows (n, m): the array itself, a view or a copy."""
        array, last = self.array, len(self.array.shape) - 1
        if last == 1 and self.axis == 1:
            return array
        array = array if is_torch(array) else np.asarray(array)
        moved = array if self.axis == last else array_namespace(array).moveaxis(array, self.axis, -1)
        return moved.reshape((self.n_rows, array.shape[self.axis]))

    @property
    def n_rows(self) -> int:
        return math.prod(self.lead)

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape without the classes: that of labels and weights."""
        return _without(self.array.shape, self.axis)

    def column(self, values: Any, name: str, of: str = "X") -> Any:
        """Labels or weights, one for each row, as (n,); None and single numbers stay."""
        if values is None or np.isscalar(values) or len(self.lead) == 1:
            return values
        values = as_array(values)
        values = values if hasattr(values, "shape") else np.asarray(values)
        shape, whole = tuple(values.shape), tuple(self.array.shape)
        if shape == self.lead:
            return (
                values.reshape(self.n_rows) if is_torch(values) else np.asarray(values).reshape(self.n_rows)
            )
        raise InputError(
            f"{name} has shape {shape} and {of} has shape {whole}: with {wording('class_axis=', self.axis)} there is one "
            f"entry for each place, in shape {self.lead}."
        )

    def context(self, context: Any) -> Any:
        """Columns by name, or an array with one value, or one row of values, for each place."""
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
        if values.ndim == 1:
            return values.reshape(self.lead)
        m = values.shape[1]
        return array_namespace(values).moveaxis(values.reshape((*self.lead, m)), -1, self.axis)


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
