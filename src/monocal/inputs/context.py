"""Context: facts about a row apart from its logits, as columns of numbers and of categories.

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

from ..arrays import is_dask, is_torch, to_numpy
from ..errors import InputError
from .formats import as_array

NUMBER, CATEGORY = "number", "category"
# The code of a category that the calibration rows did not have.
_UNSEEN = -1.0
# Columns of a frame hold categories if the name of their type begins so.
_CATEGORIES = ("category", "categorical", "enum", "int", "uint", "bool", "str", "utf8", "large_str")
# Numbers are cut here, so that their differences stay finite in single precision.
_LARGEST = 1e30


@dataclass(frozen=True)
class Column:
    """One column of the context."""

    name: str
    kind: str  # NUMBER or CATEGORY
    categories: tuple[Any, ...] = ()  # int or str, of the calibration rows, in order

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Numbers (n,), or places among the categories."""
        if self.kind == NUMBER:
            return _numbers(values, self.name)
        place = {key: float(i) for i, key in enumerate(self.categories)}
        distinct, which = _distinct(values)
        codes: np.ndarray = np.array([place.get(key, _UNSEEN) for key in distinct])[which]
        return codes


@dataclass(frozen=True)
class ContextReader:
    """How the context of rows is read. Learnt from the calibration rows."""

    columns: tuple[Column, ...]
    named: bool = False  # whether the columns came with names of their own

    @classmethod
    def of(cls, context: Any) -> ContextReader:
        """A reader for context like this, which has not seen any row yet."""
        columns, named = _split_columns(context)
        return cls(tuple(Column(name, _kind(values, name)) for name, values in columns), named)

    def having_seen(self, context: Any, weight: Any = None) -> ContextReader:
        """The reader that knows the categories of these rows as well, of those that have a weight."""
        counts = _counts(weight)
        columns = []
        for column, values in zip(self.columns, self._matched(context), strict=True):
            if column.kind != _kind(values, column.name):
                raise InputError(
                    f"context: the column {column.name!r} is of kind {column.kind!r} in some blocks and not in others. "
                    "Floating-point columns are numbers; integers, truth values, texts are categories."
                )
            if column.kind == CATEGORY:
                values = values[counts] if counts is not None and len(counts) == len(values) else values
                keys = {key for key in _distinct(values)[0] if key is not None}.union(column.categories)
                ordered = sorted(keys, key=lambda key: (isinstance(key, str), key))
                column = replace(column, categories=tuple(ordered))
            columns.append(column)
        return replace(self, columns=tuple(columns))

    def codes(self, context: Any) -> np.ndarray:
        """The context of rows as an array (n, C)."""
        columns = self._matched(context)
        return np.stack([c.codes(x) for c, x in zip(self.columns, columns, strict=True)], axis=1)

    def check(self, name: str) -> None:
        """Raise ValueError unless the columns can be those of a fit."""
        for column in self.columns:
            if not isinstance(column, Column) or column.kind not in (NUMBER, CATEGORY):
                raise ValueError(f"{name} cannot be this: expected columns of numbers or categories")
            known = column.categories
            if not isinstance(known, tuple) or len(set(known)) < len(known):
                raise ValueError(f"{name}.categories cannot be this: expected categories that differ")

    def count_missing(self, codes: np.ndarray) -> int:
        """How many of these rows lack a number, or have a category that the calibration rows had not."""
        numbers = np.array([c.kind == NUMBER for c in self.columns])
        return int(np.where(numbers, np.isnan(codes), codes == _UNSEEN).any(axis=1).sum())

    def _matched(self, context: Any) -> list[np.ndarray]:
        """The columns of some context in the order of these: by name where both have names."""
        columns, named = _split_columns(context)
        names = [c.name for c in self.columns]
        if named and self.named:
            by_name = dict(columns)
            if set(names) != by_name.keys():
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


def _counts(weight: Any) -> np.ndarray | None:
    """Which rows have a weight, (n,); None where all do, or where only a cluster knows."""
    if weight is None or np.isscalar(weight) or is_dask(weight) or hasattr(weight, "dask"):
        return None
    return np.ravel(to_numpy(as_array(weight))) != 0


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
    parts, named = _named_parts(context)
    columns: list[tuple[str, np.ndarray]] = []
    for name, values in parts:
        if values.ndim not in (1, 2):
            raise InputError(
                f"context must have one row for each row of X and one value in each column, but {name!r} has shape "
                f"{values.shape}."
            )
        if values.ndim == 1 or values.shape[1] == 1:
            columns.append((name, values.reshape(-1)))
        else:
            columns += [(f"{name} {i}", column) for i, column in enumerate(values.T)]
    listed = ", ".join(repr(name) for name, _ in columns)
    if not columns:
        raise InputError("context has no columns: leave it out, or give one for each property of a row.")
    if len(dict(columns)) < len(columns):
        raise InputError(f"context has two columns of one name: {listed}.")
    if len({len(values) for _, values in columns}) > 1:
        raise InputError(f"context: its columns {listed} have different numbers of rows.")
    return columns, named


def _named_parts(context: Any) -> tuple[list[tuple[str, np.ndarray]], bool]:
    """Arrays of one column or several each, with a name; and whether the names are the caller's."""
    if hasattr(context, "column_names"):  # pyarrow
        context = {name: context.column(name).to_numpy() for name in context.column_names}
    if hasattr(context, "columns") and not isinstance(context, np.ndarray):  # pandas, polars
        return [(str(name), _of_frame(context[name])) for name in context.columns], True
    if isinstance(context, Mapping):
        return [(str(name), _array(values)) for name, values in context.items()], True
    values = _of_frame(context) if hasattr(context, "to_numpy") else _array(context)
    name = getattr(context, "name", None) if hasattr(context, "to_numpy") else None
    return [(name if isinstance(name, str) else "context", values)], isinstance(name, str)


def _of_frame(column: Any) -> np.ndarray:
    """A column of a frame. What the frame calls whole numbers, truth values, texts or categories stays so where it has gaps."""
    name = str(column.dtype).lower()
    if isinstance(column.dtype, np.dtype) or not name.startswith(_CATEGORIES):
        return _array(column)
    values = np.empty(len(column), dtype=object)
    values[:] = [str(v) if isinstance(v, float) and v == v and v % 1 else _key(v) for v in column]
    return values


def _array(x: Any) -> np.ndarray:
    if is_torch(x):
        return to_numpy(x)
    if hasattr(x, "compute") and hasattr(x, "dask"):  # small compared with the logits
        return _array(x.compute())
    if hasattr(x, "to_numpy"):
        return np.asarray(x.to_numpy())
    try:
        values = np.asarray(x)
    except ValueError:
        raise InputError("context must be a table: one row for each row of X, all of one length.") from None
    # numpy writes a list of numbers and texts as texts.
    mixed = values.dtype.kind in "US" and not isinstance(x, np.ndarray)
    return np.array(x, dtype=object) if mixed else values


def _kind(values: np.ndarray, name: str) -> str:
    kind, what = values.dtype.kind, f"has type {values.dtype}"
    if kind == "f":
        return NUMBER
    if kind in "iubUT":
        return CATEGORY
    if kind == "O":
        present = [v.item() if isinstance(v, np.generic) else v for v in values.flat if not _is_missing(v)]
        if present and all(isinstance(v, float) for v in present):
            return NUMBER
        odd = next((v for v in present if not isinstance(v, str | int | float)), None)
        if odd is None:
            return CATEGORY
        what = f"holds a {type(odd).__name__}"
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
    if values.dtype.kind in "iubfU":
        distinct, which = np.unique(values, return_inverse=True)
        return [_key(v) for v in distinct.tolist()], which.reshape(-1)
    keys = [_key(v) for v in values.tolist()]
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return list(place), np.array([place[key] for key in keys], dtype=np.intp)


def _key(value: Any) -> Any:
    """A category as it is kept: whole numbers and texts. A frame with gaps makes 3.0 of 3."""
    if _is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole else value


def _is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def find_context(entries: Iterable[Any]) -> Any:
    """The context among what follows the logits in a block: what is a table, or columns by name. None where there is none."""
    return next((x for x in entries if isinstance(x, Mapping) or len(getattr(x, "shape", ())) == 2), None)
