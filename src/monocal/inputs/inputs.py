"""Which kind of input is this? The only place that decides, by a table: the first of `KINDS` that knows it.

memory-mapped, zarr or h5py array   read in slices of its rows                          (`files`)
a function that makes blocks        called once per pass; its blocks are ``(X, y)`` or ``(X, y, sample_weight)``   (`files`)
Dask array                          read by its own workers                             (`dask`)
the largest logits of a server      with the log-sum-exp of all                         (`top_k`)
an array of more axes               rows of its classes, gathered in parts where they are no view   (`layout`, `files`)
anything else                       an array in memory, or what numpy makes one of      (`memory`)

A new kind is one file: a class that is an `interface.Elsewhere`, and a function that puts it to an `Input`, which joins `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays import is_dask
from ..errors import InputError
from .files import BlockLogits, FileLogits, has_parts, is_blocks, is_large_file
from .formats import column_names, library_of
from .interface import Elsewhere
from .layout import ROWS, Flat, GatheredRows, Layout
from .top_k import TopK
from .top_k_rows import TopKLogits


def laid_out(X: Any, y: Any, layout: Layout) -> Flat | None:
    """An array of several axes as rows, and the way back; None where there are rows already, whatever holds them."""
    if isinstance(X, TopK) or is_blocks(X, y):
        return None
    if isinstance(X, list | tuple) and (layout.class_axis != -1 or _is_nested(X)):
        X = np.asarray(X)
    return None if layout.is_plain(X) or _is_dask_frame(X) else layout.flat(X)


def _is_nested(x: Any) -> bool:
    """Whether lists are more than two deep."""
    for _ in range(2):
        if not isinstance(x, list | tuple) or not x:
            break
        x = x[0]
    return np.ndim(x) > 0


class Input(NamedTuple):
    """What a calibrator was given: rows ``X``, and in a fit what belongs to them.

    Without ``streams`` an array in a file is to be read as a whole.
    """

    X: Any
    y: Any = None
    sample_weight: Any = None
    context: Any = None
    layout: Layout = ROWS
    streams: bool = True


def elsewhere(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    context: Any = None,
    layout: Layout = ROWS,
    *,
    streams: bool = True,
) -> Elsewhere | None:
    """A way to work on ``X`` where it is, or None where it is an array in memory or may as well become one."""
    # The short way, for the many small calls: an array that owns its memory is in memory, and so is a part of it.
    if type(X) is np.ndarray and layout.ignore_index is None:
        owner = X if X.base is None else X.base
        if type(owner) is np.ndarray and owner.base is None:
            return None
    given = Input(X, y, sample_weight, context, layout, streams)
    for kind in KINDS:
        place = kind(given)
        if place is not None:
            return place
    return None


def _dask(given: Input) -> Elsewhere | None:
    if not is_dask(given.X) and not _is_dask_frame(given.X):
        return None
    from .dask import DaskLogits

    return DaskLogits(given.X, given.y, given.sample_weight, given.context)


def _top_k(given: Input) -> Elsewhere | None:
    return TopKLogits(given.X, given.y, given.sample_weight) if isinstance(given.X, TopK) else None


def _blocks(given: Input) -> Elsewhere | None:
    if not is_blocks(given.X, given.y):
        return None
    return BlockLogits(given.X, given.y, given.sample_weight, given.context, given.layout)


def _file(given: Input) -> Elsewhere | None:
    X, y = given.X, given.y
    in_parts = isinstance(X, GatheredRows) if y is None else has_parts(X, given.layout)
    if not (given.streams and (in_parts or is_large_file(X))):
        return None
    return FileLogits(X, y, given.sample_weight, given.context)


# Each gives a way to work on an input where it is, or None where it is of another kind.
KINDS: list[Callable[[Input], Elsewhere | None]] = [_dask, _top_k, _blocks, _file]


def _is_dask_frame(x: Any) -> bool:
    return library_of(x) == "dask" and hasattr(x, "to_dask_array")


def refuse_unread(X: Any) -> None:
    """Frames that hold no numbers yet, and frames whose entries are rows themselves."""
    if library_of(X) == "polars" and type(X).__name__ == "LazyFrame":
        raise InputError("X is a polars LazyFrame, whose rows are not there yet. Pass X.collect().")
    if library_of(X) == "pyspark":
        raise InputError(
            "X is a Spark DataFrame, whose rows are elsewhere. Pass X.toPandas(), or a function that returns an iterator of "
            "blocks (X, y), one for each partition."
        )
    if not hasattr(X, "columns") or not hasattr(X, "head") or library_of(X) == "pyarrow":
        return
    names = [str(name) for name in column_names(X)]
    if _is_dask_frame(X):
        other = [
            (n, d) for n, d in zip(names, X.dtypes, strict=True) if getattr(d, "kind", "O") not in "fiub"
        ]
        if other:
            raise InputError(
                f"X: the column {other[0][0]!r} has type {other[0][1]}, expected numbers, one column per class. Spread lists "
                "over columns first."
            )
        return
    first = np.asarray(X.head(1), dtype=object).reshape(-1, len(names))
    nested = [n for row in first for n, entry in zip(names, row, strict=True) if np.ndim(entry) > 0]
    if nested:
        raise InputError(
            f"X: the column {nested[0]!r} holds lists, expected one number per row and one column per class. Pass "
            f"np.stack(X[{nested[0]!r}])."
        )
