"""A batch: the caller's rows as the package works on them, and the way back for what is computed of them.

    X  ->  format (`formats`)  ->  axes (`layout`)  ->  rows (n, m)        y, sample_weight, context  ->  one entry per row
    result for rows  ->  axes of X  ->  format of X

`fit` and `predict_proba` share it. Rows may be in memory, or anywhere that `inputs` has a source for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import is_torch
from ..errors import InputError
from .context import check_context_rows
from .files import check_out
from .formats import ClassDim, as_array, in_dims_of, kind_of, with_text_names
from .inputs import elsewhere, laid_out, refuse_unread
from .interface import RowMap
from .layout import GatheredRows, Layout
from .names import by_column


def is_plain_rows(X: Any) -> bool:
    """Whether ``X`` is an array (n, m) in memory, so that there is nothing to find out: a numpy array that owns its numbers, a
    part of one, or a tensor."""
    if type(X) is not np.ndarray:
        return is_torch(X) and X.ndim == 2
    owner = X if X.base is None else X.base
    return X.ndim == 2 and type(owner) is np.ndarray and owner.base is None


class Batch:
    """Rows of a caller.

    Attributes
    ----------
    rows : array (n, m), frame, or GatheredRows
        In memory, or somewhere that has a source.
    names : frame or None
        Without rows, with what the columns are called, for scikit-learn to compare; None where they have no names.
    dim : ClassDim or None
        Where the classes are a named dimension.
    """

    def __init__(self, X: Any, layout: Layout, y: Any = None):
        self.given, self.layout = X, layout
        self.dim = ClassDim.of(X, layout.class_axis)
        self._kind = kind_of(X)
        array = self._kind.array(X)
        refuse_unread(array)
        self._flat = laid_out(array, y, layout)
        self.rows = array if self._flat is None else self._flat.rows
        self.names: Any = None
        if self.dim is not None:
            self.names = self.dim.classes
        elif hasattr(array, "columns"):
            self.names = with_text_names(getattr(array, "_meta", array))  # of a Dask frame without its rows

    @property
    def width(self) -> Any:
        """The number of classes, where rows have a shape."""
        shape: tuple[Any, ...] = getattr(self.rows, "shape", ())
        return shape[1] if len(shape) == 2 else None

    # What belongs to the rows.

    def labels(self, y: Any) -> Any:
        """Labels, one for each row; names of columns as their places."""
        y = in_dims_of(self.given, y, self.layout.class_axis, "y")
        return self._column(by_column(y, self.given, self.layout.class_axis, self.layout.ignore_index), "y")

    def weights(self, sample_weight: Any) -> Any:
        """Weights, one for each row."""
        sample_weight = in_dims_of(self.given, sample_weight, self.layout.class_axis, "sample_weight")
        return self._column(sample_weight, "sample_weight")

    def _column(self, values: Any, name: str) -> Any:
        values = as_array(values)
        return values if self._flat is None else self._flat.column(values, name)

    def context(self, context: Any) -> Any:
        """What is known of each row; one value may stand for all places of an image or a sequence."""
        return context if self._flat is None or context is None else self._flat.context(context)

    # Applying a map, and the way back.

    def gathered(self) -> Any:
        """The rows in one array in memory, where they were to be gathered."""
        return self.rows[:] if isinstance(self.rows, GatheredRows) else self.rows

    def apply(self, row_map: RowMap, out: Any, context: np.ndarray | None = None) -> Any:
        """The result for all rows, with the axes of ``X``; or written to ``out``."""
        into = out
        if self._flat is not None:
            self._check_classes(row_map)
            if out is not None:
                check_out(out, self._flat.array.shape, self._flat.array.dtype)
                into = self.layout.flat(out, "out").rows
        source = elsewhere(self.rows)
        n_rows = getattr(self.rows, "shape", (None,))[0]
        if isinstance(n_rows, int):
            check_context_rows(context, n_rows)
        if source is not None:
            result = source.apply(row_map, into)
        elif out is None:
            result = row_map.function(self.rows, 0, None)
        else:
            dtype = check_out(into, np.shape(self.rows), getattr(self.rows, "dtype", np.float64))
            into[:] = row_map.function(self.rows, 0, dtype)
        return self.in_shape(result) if out is None else out

    def back(self, result: Any) -> Any:
        """A result with the axes of ``X`` in the format of ``X``."""
        return self._kind.back(result, self.given, self.layout.class_axis)

    def in_shape(self, result: Any) -> Any:
        """The result for all rows, (n, m) or (n,), with the axes of ``X``."""
        if isinstance(result, GatheredRows):
            return result.array
        return result if self._flat is None else self._flat.back(result)

    def _check_classes(self, row_map: RowMap) -> None:
        """The axis of the classes must be as long as there were classes."""
        assert self._flat is not None
        shape, expected, axis = tuple(self._flat.array.shape), row_map.n_classes, self.layout.class_axis
        if self.width == expected:
            return
        axes = [i for i, side in enumerate(shape) if side == expected]
        advice = (
            f"Axis {axes[0]} has: set class_axis={axes[0]}." if axes else "Give outputs of the same model."
        )
        raise InputError(
            f"X has shape {shape}: class_axis={axis} has {self.width} classes, but {row_map.name} is expecting {expected} "
            f"features as input. {advice}"
        )
