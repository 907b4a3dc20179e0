"""Work on the rows of an array block by block, on threads: bounded memory, whatever the number of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..arrays import Array, array_namespace, device_of, is_lazy_torch
from .memory import block_rows, parallel_map, parallel_sum

T = TypeVar("T")


def row_slices(rows: Any, size: int | None = None) -> list[slice]:
    """Blocks of ``size`` rows, or of as many as fit the cache; one at the least."""
    n, size = rows.shape[0], size or block_rows(rows)
    return [slice(i, min(i + size, n)) for i in range(0, max(n, 1), size)]


def map_rows(function: Callable[[Array], Array], rows: Array, size: int | None = None) -> Array:
    """``function(rows)``, where it treats every row alone and returns as many; of any array library."""
    blocks = row_slices(rows, size)
    first = function(rows[blocks[0]])
    if len(blocks) == 1:
        return first
    xp = array_namespace(first)
    out = xp.empty((rows.shape[0], *first.shape[1:]), dtype=first.dtype, **device_of(first))
    out[blocks[0]] = first

    def one(block: slice) -> None:
        out[block] = function(rows[block])

    parallel_map(one, blocks[1:], serial=is_lazy_torch(rows))
    return out


def sum_rows(function: Callable[[slice], T], rows: np.ndarray) -> T:
    """``function(block)`` added up over the blocks of rows, in a fixed order."""
    return parallel_sum(function, row_slices(rows))
