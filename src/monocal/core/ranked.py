"""A block of sorted rows: all that the mathematics sees of their logits.

A row enters only through its sorted values, measured from the lowest logit in use,

    u_(i) = z_(i) - z_low >= 0.

They are held as the *height* ``U = z_top - z_low`` of the row and the *depths* ``v_(i) = z_top - z_(i) = U - u_(i)`` below
its top: the classes that matter have small depths, so single precision loses nothing on them.

With ``top_k`` the ranks in use are the k largest; what lies below (the tail, ``v > U``) is not sorted and stays in the
normaliser with the parameters of the lowest rank in use. Masked classes (``-inf``) take the lowest ranks of their row and
no probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    compute_dtype,
    device_of,
    is_torch,
    widened,
)
from ..parallel import available_threads, parallel_map, row_slices, rows_of_size

# Depths are cut here: a class this far below the top has no probability under any scale that means something, and larger
# numbers (the lowest float as a mask, say) would only ruin the conditioning of everything measured from the lowest logit.
LARGEST = 1e6


@dataclass(frozen=True)
class Rest:
    """Classes of which only the number and the common logit are known."""

    depth: Array  # (n,), at least the height
    count: Array  # (n,)

    def __getitem__(self, index: slice | Array) -> Rest:
        return Rest(self.depth[index], self.count[index])


@dataclass(frozen=True)
class Tail:
    """The classes below the top k: their logits stay where they are."""

    logits: Array | None  # (n, m), all classes; None where they are not looked at, or a rest is all there is
    ties: Array  # (n,), classes of the tail that equal the lowest logit in use
    masked: bool
    rest: Rest | None = None

    def __getitem__(self, index: slice | Array) -> Tail:
        logits = None if self.logits is None else self.logits[index]
        rest = None if self.rest is None else self.rest[index]
        return Tail(logits, self.ties[index], self.masked, rest)


@dataclass(frozen=True)
class Ranked:
    """Sorted rows."""

    depth: Array  # (n, r), descending to 0 at the top; masked classes lie below the height
    height: Array  # (n,), depth of the lowest logit in use
    top: Array  # (n, 1), the largest logit
    valid: Array | None  # (n, r) bool, None where nothing is masked
    tail: Tail | None
    n_classes: int
    # (r,) bool: whether a rank equals the one below it in some row; None if not determined
    tied: np.ndarray | None = None
    measured: dict[str, np.ndarray] | None = None  # statistics that are known already, (n,) each by name

    def __getitem__(self, index: slice | Array) -> Ranked:
        return replace(
            self,
            depth=_rows_of(self.depth, index),
            height=self.height[index],
            top=self.top[index],
            valid=None if self.valid is None else self.valid[index],
            tail=None if self.tail is None else self.tail[index],
            measured=self.measured and {name: x[index] for name, x in self.measured.items()},
        )

    def in_use(self) -> Ranked:
        """Without the logits of the tail, so that taking some of the rows does not copy them."""
        return self if self.tail is None else replace(self, tail=replace(self.tail, logits=None))


def _rows_of(depth: Array, index: slice | Array) -> Array:
    """Some of the rows, in the order in memory that all have; where they are many, copied by all threads."""
    if isinstance(index, slice) or not isinstance(depth, np.ndarray):
        return depth[index]
    numbers = np.flatnonzero(index) if index.dtype == bool else index
    if depth.strides[0] < depth.strides[1]:
        return np.take(depth.T, numbers, axis=1).T
    out = np.empty((len(numbers), depth.shape[1]), depth.dtype)

    def copy(part: slice) -> None:
        # Numbers are right: other modes than this one would copy twice.
        np.take(depth, numbers[part], axis=0, out=out[part], mode="clip")

    size = max(-(-len(numbers) // available_threads()), rows_of_size(2**17, depth.shape[1]))
    parallel_map(copy, row_slices(out, size))
    return out


def _look_at_tail(logits: Array, top: Array, height: Array) -> tuple[Array, bool]:
    """How many classes have the lowest logit in use (n,), and whether any is masked."""
    xp = array_namespace(logits)
    with np.errstate(over="ignore"):
        below = top - xp.astype(logits, top.dtype, copy=False)
    if not bool(xp.max(height) < LARGEST):  # cut as the sorted ones were, masked classes apart
        below = xp.where(xp.isinf(logits), below, xp.clip(below, max=LARGEST))
    return xp.count_nonzero(below == height[:, None], axis=1), bool(xp.any(xp.isinf(logits)))


def in_order(z: Array, r: int) -> Array:
    """The r largest of each row, rising, in an array of their own."""
    m = z.shape[1]
    if is_torch(z):
        return z.sort(dim=1).values if r == m else z.topk(r, dim=1).values.flip(1)
    if r < m:
        return np.sort(np.partition(z, m - r, axis=1)[:, m - r :], axis=1)
    return np.sort(z, axis=1)


def rank_rows(
    logits: Array,
    top_k: int | None = None,
    dtype: object = None,
    ordered: bool = True,
    look_at_tail: Callable[[Array, Array, Array], tuple[Array, bool]] = _look_at_tail,
    in_order: Callable[[Array, int], Array] = in_order,
) -> Ranked:
    """Sort rows of logits (n, m); computed in ``dtype`` (default: float32, float64 for float64).

    Without ``ordered`` only the lowest and the largest are put in their places, at either end. There may be a faster way to put
    rows ``in_order``.
    """
    xp = array_namespace(logits)
    dtype = dtype or compute_dtype(logits)
    m = logits.shape[1]
    r = m if top_k is None else min(top_k, m)
    z = widened(logits)
    z = in_order(z, r) if ordered else _ends_in_place(z)
    z = xp.astype(z, dtype, copy=False)
    top = xp.asarray(z[:, -1:], copy=True)
    with np.errstate(over="ignore"):
        height = top[:, 0] - z[:, 0]
        as_it_is = bool(xp.all(height <= LARGEST))  # nothing is masked, and nothing must be cut
        valid = None if as_it_is or not bool(xp.any(xp.isinf(z[:, 0]))) else ~xp.isinf(z)
        # In place: a new array would cost as much as the arithmetic.
        depth = z.neg_().add_(top) if is_torch(z) else np.subtract(top, z, out=z)
    if not as_it_is:
        depth = xp.clip(depth, max=LARGEST)
        height = xp.asarray(depth[:, 0], copy=True)
    if valid is not None:
        height = xp.max(xp.where(valid, depth, 0 * depth), axis=1)
        depth = xp.where(valid, depth, 2 * height[:, None] + 1)
    tail = None
    if r < m:
        equal, hidden = look_at_tail(logits, top, height)
        tail = Tail(logits, equal - xp.count_nonzero(depth == height[:, None], axis=1), hidden)
    return Ranked(depth, height, top, valid, tail, m)


def _ends_in_place(logits: Array) -> Array:
    """Rows with their largest logit last and their smallest first."""
    xp = array_namespace(logits)
    z = xp.asarray(logits, copy=True)
    row = xp.arange(z.shape[0], **device_of(z))
    for place, find in ((-1, xp.argmax), (0, xp.argmin)):
        at = find(z, axis=1)
        there = z[row, at]
        z[row, at] = xp.asarray(z[:, place], copy=True)  # what is written must not be what is read
        z[:, place] = there
    return z
