"""Chunks of rows of Dask arrays, and tasks on them, by whatever scheduler Dask has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..errors import InputError

Delayed = Any

# How many sums one task adds.
_FAN_IN = 16


def as_array(x: Any) -> Any:
    """A Dask DataFrame or Series as a Dask array, with the numbers of rows counted; anything else as it is."""
    return x.to_dask_array(lengths=True) if hasattr(x, "to_dask_array") else x


def whole_rows(X: Any) -> Any:
    """The same array in chunks that hold all classes of their rows."""
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        X = X.compute_chunk_sizes()
    rows = tuple(size for size in X.chunks[0] if size)  # what a filter has emptied is no chunk
    return X.rechunk({0: rows or -1, 1: -1})


def chunks_of(X: Any, *columns: Any) -> list[tuple[Any, ...]]:
    """Values, labels, weights, context and number of the first row of every chunk."""
    import dask.array as da

    n = X.shape[0]
    parts = [list(X.to_delayed().ravel())]
    for name, column in zip(("y", "sample_weight", "context"), columns, strict=False):
        if column is None or np.isscalar(column):
            parts.append([column] * X.numblocks[0])
            continue
        if not isinstance(column, da.Array):
            column = to_numpy(column)
        elif any(np.isnan(size) for size in column.chunks[0]):
            column = column.compute_chunk_sizes()
        if column.ndim == 0 or column.shape[0] != n:
            raise InputError(
                f"{name} has shape {tuple(column.shape)} and X has {n} rows: "
                f"found input variables with inconsistent numbers of samples: {[n, *column.shape[:1]]}."
            )
        chunks = (X.chunks[0], *column.shape[1:])
        in_memory = not isinstance(column, da.Array)
        column = da.from_array(column, chunks=chunks) if in_memory else column.rechunk(chunks)
        parts.append(list(column.to_delayed().ravel()))
    first = np.cumsum((0, *X.chunks[0][:-1])).tolist()
    return list(zip(*parts, first, strict=True))


def has_client() -> bool:
    """Whether there is a cluster whose workers can keep things."""
    try:
        from distributed import get_client

        get_client()
    except (ImportError, ValueError):
        return False
    return True


def task(function: Callable[..., Any], *args: Any) -> Delayed:
    """``function(*args)`` as a task."""
    import dask

    return dask.delayed(function, pure=False, traverse=False)(*args)


def once(value: Any) -> Delayed:
    """A value that all tasks share, sent once."""
    import dask

    return dask.delayed(Box(value), pure=False, traverse=False)


@dataclass(frozen=True)
class Box:
    """Holds a value that Dask must not look into."""

    value: Any


def compute(tasks: list[Delayed]) -> list[Any]:
    """The results of all tasks."""
    import dask

    return list(dask.compute(*tasks))


def reduce_tasks(tasks: list[Delayed], merge: Callable[..., Any] | None = None) -> Any:
    """The sum of all tasks' results, in a fixed order."""
    while True:
        groups = [tasks[i : i + _FAN_IN] for i in range(0, len(tasks), _FAN_IN)]
        tasks = [task(merge or add_all, *group) for group in groups]
        if len(tasks) == 1:
            return compute(tasks)[0]


def add_all(*sums: Any) -> Any:
    """The sum of what can be added."""
    return reduce(add, sums)
