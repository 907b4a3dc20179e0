"""Sums over the columns of an array (n, r), for fits: whole rows, up to each column, from each column on, over segments.

    sums_along  sum_j x_j        sums_up_to  sum_{j <= i} x_j        sums_from  sum_{j >= i} x_j

Where rows are short, a matrix product with ones is several times faster than a library's own reductions. It adds in an order
that may depend on the number of rows, so these sums are never for predictions (`arrays.row_sums` is).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import A, Array, array_namespace, is_torch, like

# numpy without its types, which do not take an `Array` for ``out``.
_np: Any = np
# Columns up to which a product with a triangle is faster than running sums, which wait for each other.
_FEW_COLUMNS = 64


def sums_along(x: Array) -> Array:
    """The sum of each row, (n,)."""
    if is_torch(x):
        return x.sum(dim=1)
    return _np.asarray(x @ np.ones(x.shape[1], dtype=x.dtype))


def sums_up_to(x: Array) -> Array:
    """Sums over the columns up to each, this one included, (n, r)."""
    if _by_columns(x):
        return _added_on(x, range(1, x.shape[1]), -1)
    if is_torch(x) or x.shape[1] > _FEW_COLUMNS:
        return array_namespace(x).cumulative_sum(x, axis=1)
    return x @ np.triu(np.ones((x.shape[1], x.shape[1]), dtype=x.dtype))


def sums_from(x: Array) -> Array:
    """Sums over the columns from each on, (n, r)."""
    if _by_columns(x):
        return _added_on(x, range(x.shape[1] - 2, -1, -1), 1)
    if is_torch(x) or x.shape[1] > _FEW_COLUMNS:
        xp = array_namespace(x)
        return xp.flip(xp.cumulative_sum(xp.flip(x, axis=1), axis=1), axis=1)
    return x @ np.tril(np.ones((x.shape[1], x.shape[1]), dtype=x.dtype))


def by_columns(x: A) -> A:
    """An array of numpy with one column after another in memory, for running sums over them; others as they are."""
    return x if is_torch(x) else _np.asfortranarray(x)


def _by_columns(x: Any) -> bool:
    """Whether one column after another lies in memory, and each is long."""
    return not is_torch(x) and len(x) > 64 and bool(x.strides[0] < x.strides[1])


def _added_on(x: Any, columns: range, before: int) -> Any:
    """Each of the columns in turn with the one before it, which has been added on already."""
    out = x.copy(order="K").T
    for column in columns:
        _np.add(out[column], out[column + before], out=out[column])
    return out.T


def segment_sums(xs: list[Array], starts: np.ndarray) -> list[Array]:
    """Sums of each ``x`` (n, r) over the column segments that begin at ``starts`` (sorted, first is 0)."""
    r = xs[0].shape[1]
    # numpy takes about 0.4 ns a column and 8 ns a segment, a product 0.07 ns for each column times segment.
    if not is_torch(xs[0]) and 0.07 * r * len(starts) > 0.4 * r + 8 * len(starts):
        return [_np.add.reduceat(x, starts, axis=1) for x in xs]
    # A 0/1 matrix product: the fastest reduction over ragged segments that torch has on every device.
    ones = np.zeros((r, len(starts)))
    ones[np.arange(r), np.searchsorted(starts, np.arange(r), side="right") - 1] = 1.0
    member = like(ones, xs[0])
    return [x @ member for x in xs]
