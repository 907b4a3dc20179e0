"""Context: what is known of a row apart from its logits, as columns of numbers and of categories.

floating-point column              a number; NaN is a missing one
integer, boolean, text column      a category

A reader learns the columns from the calibration rows and turns rows into one array (n, C) of double precision: numbers as they
are, categories by their place among those that the calibration rows had. A category that they had not, or none, is -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import is_torch, to_numpy
from ..errors import InputError
from .formats import library_of

NUMBER, CATEGORY = "number", "category"
_PLURAL = {NUMBER: "numbers", CATEGORY: "categories"}
# What stands for a category that the calibration rows did not have.
_UNSEEN = -1.0
# Columns of a frame hold categories if the name of their type begins so.
_CATEGORIES = ("category", "categorical", "enum", "int", "uint", "bool", "str", "utf8", "large_str")
# Numbers are cut here, so that their differences stay finite in single precision.
_LARGEST = 1e30


@dataclass(frozen=True)
class Column:
    """One column of the context.

    Attributes
    ----------
    name : str
    kind : {"number", "category"}
    categories : tuple of int or str
        Those of the calibration rows, in order; empty for a column of numbers.
    """

    name: str
    kind: str
    categories: tuple[Any, ...] = ()

    def of(self, chosen: np.ndarray) -> Column:
        """The column with those of its categories where ``chosen`` is true."""
        kept = zip(self.categories, chosen, strict=True)
        return replace(self, categories=tuple(category for category, is_kept in kept if is_kept))

    def having_seen(self, values: np.ndarray) -> Column:
        """The column that knows the categories of these values as well."""
        if self.kind != _kind(values, self.name):
            raise InputError(
                f"context: the column {self.name!r} is one of {_PLURAL[_kind(values, self.name)]} here and of "
                f"{_PLURAL[self.kind]} in the blocks before. Floating-point columns are numbers; integers, truth values, texts "
                "are categories."
            )
        if self.kind == NUMBER:
            return self
        new = {key for key in _distinct(values)[0] if key is not None}.difference(self.categories)
        return (
            replace(
                self,
                categories=tuple(
                    sorted((*self.categories, *new), key=lambda key: (isinstance(key, str), key))
                ),
            )
            if new
            else self
        )

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Numbers (n,), or places among the categories."""
        if self.kind == NUMBER:
            return _numbers(values, self.name)
        place = {key: float(i) for i, key in enumerate(self.categories)}
        distinct, which = _distinct(values)
        codes: np.ndarray = np.array([place.get(key, _UNSEEN) for key in distinct])[which]
        return codes

    def missing(self, codes: np.ndarray) -> np.ndarray:
        """Which of these rows (n,) have no number, or no category that the calibration rows had."""
        return np.asarray(np.isnan(codes) if self.kind == NUMBER else codes == _UNSEEN)


@dataclass(frozen=True)
class ContextReader:
    """How the context of rows is read. Learnt from the calibration rows.

    Attributes
    ----------
    columns : tuple of Column
    named : bool
        Whether the columns came with names of their own.
    """

    columns: tuple[Column, ...]
    named: bool = False

    @classmethod
    def of(cls, context: Any) -> ContextReader:
        """A reader for context like this, which has not seen any row yet."""
        columns, named = _split_columns(context)
        return cls(tuple(Column(name, _kind(values, name)) for name, values in columns), named)

    def having_seen(self, context: Any) -> ContextReader:
        """The reader that knows the categories of these rows as well."""
        columns = self._matched(context)
        return replace(
            self, columns=tuple(c.having_seen(x) for c, x in zip(self.columns, columns, strict=True))
        )

    def codes(self, context: Any) -> np.ndarray:
        """The context of rows as an array (n, C)."""
        columns = self._matched(context)
        codes = [c.codes(x) for c, x in zip(self.columns, columns, strict=True)]
        return np.stack(codes, axis=1)

    def check(self, name: str) -> None:
        """Raise ValueError unless the columns can be those of a fit."""
        for column in self.columns:
            if not isinstance(column, Column) or column.kind not in (NUMBER, CATEGORY):
                raise ValueError(f"{name} cannot be this: expected columns of numbers or categories")
            if not isinstance(column.categories, tuple) or len(set(column.categories)) < len(
                column.categories
            ):
                raise ValueError(f"{name}.categories cannot be this: expected categories that differ")

    def count_missing(self, codes: np.ndarray) -> int:
        """How many of these rows lack a number, or have a category that the calibration rows had not."""
        flags = [c.missing(codes[:, i]) for i, c in enumerate(self.columns)]
        return int(np.any(flags, axis=0).sum())

    def _matched(self, context: Any) -> list[np.ndarray]:
        """The columns of some context in the order of these: by name where both have names."""
        columns, named = _split_columns(context)
        names = [c.name for c in self.columns]
        if named and self.named:
            by_name = dict(columns)
            lacking = [name for name in names if name not in by_name]
            if lacking or len(by_name) != len(names):
                raise InputError(
                    f"context has the columns {', '.join(map(repr, by_name))}, but the calibrator was fitted with "
                    f"{', '.join(map(repr, names))}: give these."
                )
            return [by_name[name] for name in names]
        if len(columns) != len(names):
            raise InputError(
                f"context has {len(columns)} column(s), but the calibrator was fitted with {len(names)} "
                f"({', '.join(map(repr, names))}): give these."
            )
        return [values for _, values in columns]


def check_context_rows(context: np.ndarray | None, n_rows: int, first_row: int = 0) -> None:
    """There must be one row of context for each row of logits."""
    if context is not None and len(context) != n_rows:
        where = f" in the block that begins at row {first_row}" if first_row else ""
        raise InputError(
            f"context has {len(context)} rows, but X has {n_rows}{where}: found input variables with inconsistent numbers of "
            f"samples: {[n_rows, len(context)]}."
        )


def _split_columns(context: Any) -> tuple[list[tuple[str, np.ndarray]], bool]:
    """Columns with their names, from arrays, frames, tensors, files and lists; and whether they came with names."""
    if library_of(context) == "duckdb":
        context = context.df()
    if hasattr(context, "column_names"):  # pyarrow
        context = {name: context.column(name).to_numpy() for name in context.column_names}
    named = True
    if hasattr(context, "columns") and not isinstance(context, np.ndarray):  # pandas, polars
        parts = [(str(name), _of_frame(context[name])) for name in context.columns]
    elif isinstance(context, Mapping):
        parts = [(str(name), _array(values)) for name, values in context.items()]
    else:
        values = _of_frame(context) if hasattr(context, "to_numpy") else _array(context)
        if values.dtype.names:  # a structured array of numpy
            parts = [(key, values[key]) for key in values.dtype.names]
        elif values.ndim not in (1, 2):
            raise InputError(
                "context must have one row for each row of X and one column for each thing that is known of it, but has shape "
                f"{values.shape}."
            )
        else:
            name = getattr(context, "name", None)
            named = isinstance(name, str) and hasattr(context, "to_numpy")
            parts = [(str(name) if named else "context", values)]
    columns: list[tuple[str, np.ndarray]] = []
    for name, values in parts:
        if values.ndim not in (1, 2):
            raise InputError(
                f"context: the column {name!r} has shape {values.shape}, expected one value for each row."
            )
        alone = values.ndim == 1 or values.shape[1] == 1
        columns += [
            (name if alone else f"{name} {i}", column)
            for i, column in enumerate([values] if values.ndim == 1 else values.T)
        ]
    listed = ", ".join(repr(name) for name, _ in columns)
    if not columns:
        raise InputError(
            "context has no columns: leave it out, or give one for each thing that is known of a row."
        )
    if len(dict(columns)) < len(columns):
        raise InputError(f"context has two columns of one name: {listed}.")
    if len({len(values) for _, values in columns}) > 1:
        raise InputError(f"context: its columns {listed} have different numbers of rows.")
    return columns, named


def _of_frame(column: Any) -> np.ndarray:
    """A column of a frame. What the frame calls whole numbers, truth values, texts or categories stays so where it has gaps."""
    if (
        getattr(column, "ndim", 1) == 2 and column.shape[1]
    ):  # what pandas makes of the values of a column and [:, None]
        return np.stack([_of_frame(column[:, j]) for j in range(column.shape[1])], axis=1)
    name = str(column.dtype).lower()
    if isinstance(column.dtype, np.dtype) or not name.startswith(_CATEGORIES):
        return _array(column)
    values = np.empty(len(column), dtype=object)
    values[:] = [
        str(v) if isinstance(v, float) and v == v and not v.is_integer() else _key(v) for v in column
    ]
    return values


def _array(x: Any) -> np.ndarray:
    if isinstance(x, np.ma.MaskedArray):
        gaps: Any = x.astype(object) if np.any(x.mask) else x
        return np.asarray(gaps.filled(None) if np.any(x.mask) else gaps)
    if is_torch(x):
        return to_numpy(x)
    if library_of(x) in ("h5py", "zarr"):
        x = x[...]
    if hasattr(x, "compute") and hasattr(x, "dask"):  # small compared with the logits
        return _array(x.compute())
    if hasattr(x, "to_numpy"):
        return np.asarray(x.to_numpy())
    try:
        values = np.asarray(x)
    except ValueError:
        raise InputError(
            "context must be a table: one row for each row of X, all of the same length."
        ) from None
    if values.dtype.kind in "US" and not isinstance(x, np.ndarray):
        # numpy writes a list of numbers and texts as texts.
        values = np.array(x, dtype=object)
    return values


def _kind(values: np.ndarray, name: str) -> str:
    kind, what = values.dtype.kind, f"has type {values.dtype}"
    if kind == "f":
        return NUMBER
    if kind in "iubUST":
        return CATEGORY
    if kind == "O":
        present = [
            v.item() if isinstance(v, np.generic) else v for v in values.tolist() if not _is_missing(v)
        ]
        if present and all(isinstance(v, float) for v in present):
            return NUMBER
        odd = [v for v in present if not isinstance(v, str | bytes | int | float)]
        if not odd:
            return CATEGORY
        what = f"holds a {type(odd[0]).__name__}"
    raise InputError(
        f"context: the column {name!r} {what}, expected numbers (floating-point) or categories (integers, truth values, texts)."
    )


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    try:
        if values.dtype.kind == "O":
            values = np.array([np.nan if _is_missing(v) else v for v in values.tolist()], dtype=np.float64)
        elif values.dtype.kind not in "fiub":
            raise TypeError
        return np.clip(values.astype(np.float64), -_LARGEST, _LARGEST)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"context: the column {name!r} was numbers in fitting, but holds {values.dtype} here."
        ) from None


def _distinct(values: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """The different categories, None for a missing one, and which each row has, (n,)."""
    if values.dtype.kind in "iubfUS":
        distinct, which = np.unique(values, return_inverse=True)
        return [_key(v) for v in distinct.tolist()], which.reshape(-1)
    keys = [_key(v) for v in values.tolist()]
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return list(place), np.array([place[key] for key in keys], dtype=np.intp)


def _key(value: Any) -> Any:
    """A category as it is kept: whole numbers and texts. A frame with gaps makes 3.0 of 3."""
    if _is_missing(value):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_missing(value: Any) -> bool:
    if isinstance(value, np.floating):
        return bool(np.isnan(value))
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def find_context(entries: Iterable[Any]) -> Any:
    """The context among what follows the logits in a block: what is a table, or columns by name. None where there is none."""
    return next((x for x in entries if isinstance(x, Mapping) or len(getattr(x, "shape", ())) == 2), None)
