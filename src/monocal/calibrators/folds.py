"""Folds that depend on what rows say, not on how they are arranged, named, shifted, rounded, repeated or weighted.

A row goes where a hash of its key sends it. The key is made of how far the classes next to the top lie below it,

    d_(k) = z_(1) - z_(k),   k = 2, 3, ..., 9,      key = hash of  round(2^b log(1 + d_(k))),

which neither the names of the classes nor a shift of the row change, on a grid so coarse that rounding seldom moves a row to
another cell, and so fine that cells are many. The label is no part of it. So rows of equal logits stay together: a row that
comes twice is no news about itself, a row of weight two is the same as two rows, and no fit sees a row with all labels but the
one it is judged by, which would teach it the contrary of the truth. Where a few kinds of rows are most of the data (confidences
of ten levels), a fit without one of them would be judged by how it extrapolates: such common rows stay in every fit, and are so
many that one of them matters little to what judges it. Folds are *not* balanced by class: with as many rows of a
class held out as the others lead to expect, what a calibrator learns from chance frequencies would look true.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, to_numpy

# Classes below the top that tell one row from another.
DEPTHS = 8
# Together they have about 2^12 cells for every factor of e in the depth, and each has 2^4 at least.
_BITS, _LEAST_BITS = 12, 4
# Deeper classes are all alike.
_DEEPEST = 1e6
# Up to so many different keys for each fold they are dealt in turn, so that no fold is left empty.
_IN_TURN = 20
# Rows of a key that hold more than a fourth of a fold, and more than so many, are common.
_COMMON_PARTS, _COMMON_ROWS = 4, 50.0
_BLOCK = 2**12


def fold_keys(depth: np.ndarray) -> np.ndarray:
    """A number for each row, from the depths (n, k) of its classes below the top, in order, without the top itself."""
    n, k = depth.shape
    if k == 0:
        return np.zeros(n, dtype=np.uint64)
    fineness = 2.0 ** max(_BITS // k, _LEAST_BITS)
    depth = np.minimum(depth.astype(np.float64), _DEEPEST)
    return row_keys(np.rint(fineness * np.log1p(depth)).T)


def keys_of_logits(logits: np.ndarray) -> np.ndarray:
    """The key of each row (n,) of logits (n, m)."""
    k = min(logits.shape[1], DEPTHS + 1)
    keys = np.zeros(len(logits), dtype=np.uint64)
    for i in range(0, len(logits), _BLOCK):
        z = logits[i : i + _BLOCK]
        top = np.sort(np.partition(z, -k, axis=1)[:, -k:], axis=1)[:, ::-1].astype(np.float64)
        with np.errstate(over="ignore"):
            keys[i : i + _BLOCK] = fold_keys(top[:, :1] - top[:, 1:])
    return keys


def row_keys(values: np.ndarray) -> np.ndarray:
    """A number for each of n rows, made of the values (k, n) of each, k at most 66."""
    factors = np.random.default_rng(0).integers(1, 2**63, size=66, dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    keys = np.zeros(values.shape[1], dtype=np.uint64)
    for bits, factor in zip((values + 0.0).view(np.uint64), factors, strict=False):  # no -0.0
        keys = _mixed(keys ^ (bits * factor))
    return keys


def _mixed(x: np.ndarray) -> np.ndarray:
    """Every bit depends on every bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def deal(keys: np.ndarray, folds: int, number: int = 0) -> np.ndarray:
    """The fold of each row, (n,), 0 to ``folds`` - 1; equal keys, equal folds. Each ``number`` is another deal."""
    mixed = _mixed(keys + np.uint64(number + 1))
    different, which = np.unique(mixed, return_inverse=True)
    if len(different) <= _IN_TURN * folds:
        return which % folds
    # Not in turn, where one row that changes could move all others.
    return (mixed % np.uint64(folds)).astype(np.intp)


def splits_of(
    logits: Array, weight: np.ndarray | None, folds: int, number: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit on and rows to judge, for each fold; where all rows are alike, all of them serve as both."""
    keys = keys_of_logits(to_numpy(logits))
    fold = deal(keys, folds, number)
    common = _common(keys, weight, folds)
    names = np.unique(fold)
    if len(names) < 2:
        common[:] = True
    return [(np.flatnonzero((fold != k) | common), np.flatnonzero(fold == k)) for k in names]


def _common(keys: np.ndarray, weight: np.ndarray | None, folds: int) -> np.ndarray:
    """Which rows (n,) are of a kind that holds a large share of all."""
    _, which = np.unique(keys, return_inverse=True)
    mass = np.bincount(which, weight)
    common: np.ndarray = mass[which] > max(_COMMON_ROWS, mass.sum() / (_COMMON_PARTS * folds))
    return common
