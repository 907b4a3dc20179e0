"""Work on the rows of a numpy array block by block, on threads: bounded memory, whatever the number of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..objective.sources import block_rows, parallel_map, parallel_sum

T = TypeVar("T")


def row_slices(rows: Any, size: int | None = None) -> list[slice]:
    """Blocks of ``size`` rows, or of as many as fit the cache."""
    n, size = rows.shape[0], size or block_rows(rows)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def map_rows(function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    """``function(rows)``, where it treats every row alone and returns as many."""
    blocks = row_slices(rows)
    first = function(rows[blocks[0]])
    if len(blocks) == 1:
        return first
    out = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
    out[blocks[0]] = first

    def one(block: slice) -> None:
        out[block] = function(rows[block])

    parallel_map(one, blocks[1:])
    return out


def sum_rows(function: Callable[[slice], T], rows: np.ndarray) -> T:
    """``function(block)`` added up over the blocks of rows, in a fixed order."""
    return parallel_sum(function, row_slices(rows))
