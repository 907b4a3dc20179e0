"""What a calibrator is given, as rows: where the classes are, what they are called, and what is known of each row.

X  ->  names and dimensions compared with those of the fit  ->  rows (n, m)  ->  checked values  ->  logits
context  ->  numbers and categories as codes (n, C)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ..arrays import Array, to_numpy, widened
from ..errors import InputError, spoken
from ..inputs.context import ContextReader
from ..inputs.formats import ClassDim, as_array, in_dims_of, with_text_names
from ..inputs.inputs import laid_out
from ..inputs.layout import Flat, GatheredRows, Layout
from ..inputs.names import by_column
from ..inputs.reader import Reader
from ..inputs.validation import Given, read_logits


class TakesRows(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """How a calibrator reads what it is given, in a fit and after it."""

    # Families that can only handle numpy get numpy; the result is given back in the caller's library.
    _any_array: ClassVar[bool] = False

    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    @property
    def reader(self) -> Reader:
        """How this calibrator reads rows: their check, and the way from probabilities to logits."""
        return Reader(self.input, getattr(self, "smallest_probability_", np.inf), layout=self._layout)

    @property
    def _layout(self) -> Layout:
        return Layout(self.class_axis, self.ignore_index)

    def _laid_out(self, X: Any) -> Flat | None:
        """An array of several axes as rows; None where there are rows already."""
        # The short way, for the many small calls.
        if type(X) is np.ndarray and X.ndim == 2 and self.class_axis == -1:
            return None
        return laid_out(X, None, self._layout)

    def _arrays(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Rows, labels and weights as something that the package works on, their dimensions in one order."""
        y = by_column(in_dims_of(X, y, self.class_axis, "y"), X, self.class_axis, self.ignore_index)
        sample_weight = in_dims_of(X, sample_weight, self.class_axis, "sample_weight")
        return as_array(X), as_array(y), as_array(sample_weight)

    def _compared(self, X: Any, axis: int | None = None) -> Self:
        """Itself; or, where an array of xarray names its classes and they are those of the fit, a copy that asks for no names."""
        axis = self.class_axis if axis is None else axis
        dim = ClassDim.of(X, axis)
        if dim is None or "n_features_in_" not in self.__dict__:
            return self
        known = getattr(self, "class_dim_", None)
        if None not in (known, dim.name) and dim.name != known:
            advice = "Transpose it" if known in X.dims else "Rename it"
            raise InputError(
                f"X has the dimensions {X.dims}, of which {spoken('class_axis=', axis)} is {dim.name!r}, but the "
                f"classes of the fit were the dimension {known!r}. {advice}, so that the two agree."
            )
        if dim.classes is None:
            return self
        validate_data(self, dim.classes, reset=False, skip_check_array=True)
        return self._without_names()

    def _without_names(self) -> Self:
        now = copy(self)
        now.__dict__.pop("feature_names_in_", None)
        return now

    def _check_fitted(self) -> None:
        if "n_features_in_" not in self.__dict__:  # which every fit sets
            check_is_fitted(self)

    def _read(self, X: Any, first_row: int = 0) -> Given:
        given, check = self._read_unchecked(X, first_row)
        check()
        return given

    def _read_unchecked(self, X: Any, first_row: int = 0) -> tuple[Given, Callable[[], object]]:
        """Rows, and what checks their values in the end (`validation.read_logits`)."""
        self._check_fitted()
        check: Callable[[], object] = _nothing
        if self.input == "logits":  # the short way, for the many small calls
            given, check = read_logits(X, first_row=first_row)
        else:
            given = self.reader.values(X, first_row)
        named = hasattr(X, "columns")
        # scikit-learn's words for wrong columns; where there are as many, and no names, it has nothing to say.
        if named or hasattr(self, "feature_names_in_") or given.values.shape[1] != self.n_features_in_:
            self._check_columns(X if named else given.values)
        return given, check

    def _check_columns(self, X: Any) -> None:
        """Refuse rows whose columns are not those of the fit, by their names where there are some."""
        frame = with_text_names(X) if hasattr(X, "columns") else X
        names = () if frame is X else frame.columns
        if (
            not hasattr(self, "feature_names_in_")
            and sorted(names) == sorted(map(str, range(len(names)))) != []
        ):
            raise InputError(
                f"X: its columns are in the order {', '.join(names)}, and the calibrator's classes in that of their numbers. Put "
                "the columns in order, X[sorted(X.columns)]."
            )
        validate_data(self, frame, reset=False, skip_check_array=True)

    def _logits_of(self, given: Given) -> Array:
        """Logits in a library that the family can work with."""
        logits = given.values if self.input == "logits" else self.reader.logits(given.values)
        return logits if self._any_array else widened(to_numpy(logits))

    def _codes(self, context: Any, flat: Flat | None = None) -> np.ndarray | None:
        """The context of rows as numbers (n, C); there must be one exactly where there was one in `fit`."""
        self._check_fitted()
        known: ContextReader | None = getattr(self, "context_", None)
        if known is None and context is None:
            return None
        if known is None:
            raise InputError(
                "context: the calibrator was fitted without one. Leave it out, or fit with context=."
            )
        names = ", ".join(repr(column.name) for column in known.columns)
        if context is None:
            raise InputError(
                f"context is missing: the calibrator was fitted with the column(s) {names}. Give the same of these rows: context="
            )
        self.unseen_ = 0
        return self._counted(known, context_rows(context, flat))

    def _counted(self, known: ContextReader, context: Any) -> np.ndarray:
        codes = known.codes(context)
        self.unseen_ += known.count_missing(codes)
        return codes


def _nothing() -> None:
    """What is left to check of rows that are checked."""


def gathered(rows: Any) -> Any:
    """Rows in memory that are gathered when asked for, gathered now; all others as they are."""
    return rows[:] if isinstance(rows, GatheredRows) else rows


def context_rows(context: Any, flat: Flat | None) -> Any:
    """Context of an array of several axes as rows: one value for each place, or for all places of an image or a sequence."""
    return context if flat is None or context is None else flat.context(context)
