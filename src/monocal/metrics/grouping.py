"""Which group a row belongs to, from whatever people have: one value per row -> (n,) numbers of groups and their names.

Groups are told apart by how their values print, so 1, 1.0 and "1" are one group. Rows without a value (None, NaN,
NaT, masked) are a group of their own, `MISSING`. Several columns make a group of every combination that occurs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import is_dask, to_numpy
from ..errors import InputError
from .outcomes import Integers

_MISSING = "(missing)"
_MOST_FRACTIONS = 1000


@dataclass(frozen=True)
class Grouping:
    """``number`` (n,) of the group of each row, and the ``names`` of the groups, all of which have rows."""

    number: Integers
    names: tuple[str, ...]


def read_groups(groups: Any, n: int, name: str = "groups") -> Grouping:
    """Groups of ``n`` rows from an array-like of one value per row, a frame, a mapping of columns or an (n, k) array."""
    if isinstance(groups, (str, bytes)):
        raise InputError(f'{name}: expected one value per row, or "predicted", got {groups!r}.')
    if is_dask(groups):
        groups = groups.compute()
    found = [_column(column, n, name) for column in _columns(groups, name)]
    if not found:
        raise InputError(f"{name}: expected at least one column, got none.")
    if len(found) == 1:
        return found[0]
    number = np.zeros(n, dtype=np.int64)
    for one in found:  # numbered anew after each column, so that no number grows beyond n
        number = np.unique(number * len(one.names) + one.number, return_inverse=True)[1].reshape(-1)
    first = np.unique(number, return_index=True)[1]
    names = tuple(", ".join(one.names[one.number[row]] for one in found) for row in first.tolist())
    return Grouping(number, names)


def _columns(groups: Any, name: str) -> list[Any]:
    """The columns of what was given, each an array or a list."""
    if isinstance(groups, Mapping):
        return list(groups.values())
    if hasattr(groups, "columns") and hasattr(
        groups, "shape"
    ):  # a frame: its columns may be of different types
        return [groups[column] for column in groups.columns]
    array = _array(groups, name)
    if array.ndim == 1:
        return [array]
    if array.ndim != 2:
        raise InputError(
            f"{name}: expected one value per row, or one row of values, got shape {array.shape}."
        )
    return list(array.T)


def _array(values: Any, name: str) -> np.ndarray:
    if np.ma.isMaskedArray(values):
        present = np.array(values.data, dtype=object)
        present[np.ma.getmaskarray(values)] = None
        return present
    try:
        # numpy would turn [1, "a"] and ["a", nan] into text.
        return np.array(values, dtype=object) if isinstance(values, (list, tuple)) else to_numpy(values)
    except ValueError as error:
        raise InputError(f"{name}: expected one value per row, in rows of one length. {error}") from error


def _column(values: Any, n: int, name: str) -> Grouping:
    array = _array(values, name)
    if array.shape != (n,):
        raise InputError(f"{name}: expected one value for each of the {n} rows, got shape {array.shape}.")
    kind = array.dtype.kind
    if kind in "biufMm":
        keys, number = np.unique(array, return_inverse=True)
        if kind == "f" and len(keys) > _MOST_FRACTIONS and (keys[np.isfinite(keys)] % 1 != 0).any():
            raise InputError(
                f"{name}: {len(keys)} different fractional numbers make no groups. Cut them into ranges first, for instance "
                "np.digitize(values, [0.2, 0.5])."
            )
        texts = [str(key) for key in keys] if kind in "Mm" else [_text(key) for key in keys.tolist()]
        return _merged(number.reshape(-1), [_MISSING if text == "NaT" else text for text in texts])
    if kind not in "OUST":
        raise InputError(
            f"{name}: values of type {array.dtype} make no groups. Give numbers, text or categories."
        )
    places: dict[Any, int] = {}
    try:
        number = np.fromiter((places.setdefault(value, len(places)) for value in array.tolist()), np.int64, n)
    except TypeError as error:
        raise InputError(f"{name}: expected numbers or text, one value per row. {error}") from error
    return _merged(number, [_text(value) for value in places])


def _merged(number: Integers, texts: list[str]) -> Grouping:
    """Values that print alike are one group; names in alphabetical order, missing last."""
    names = sorted(set(texts), key=lambda text: (text == _MISSING, text))
    place = {text: k for k, text in enumerate(names)}
    return Grouping(np.array([place[text] for text in texts], dtype=np.int64)[number], tuple(names))


def _text(value: Any) -> str:
    if value is None or _is_nothing(value):
        return _MISSING
    if isinstance(value, (float, np.floating)):
        return _MISSING if value != value else f"{float(value):.15g}"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _is_nothing(value: Any) -> bool:
    """Whether it is what pandas writes where there is no value."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)
