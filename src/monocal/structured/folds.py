"""Folds that depend on the rows, not on how they are arranged, named, shifted, repeated or weighted.

Rows are sorted by class and within a class by how sure the classifier is of it, and dealt to the folds in turn, so that folds
are as alike as can be. Rows that are equal in all that is looked at stay together: a row that comes twice is no news about
itself, and a row of weight two is the same as two rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import Array, to_numpy


def balanced_folds(logits: Array, labels: Array, folds: int) -> np.ndarray:
    """The fold (n,) of each row, 0 to ``folds`` - 1 at most; all 0 where all rows are alike."""
    z, y = to_numpy(logits), to_numpy(labels)
    if not len(y):
        return np.zeros(0, dtype=np.intp)
    keys = np.concatenate([_keys(z[i : i + _ROWS], y[i : i + _ROWS]) for i in range(0, len(y), _ROWS)])
    order = np.lexsort(keys.T)
    same = (np.diff(keys[order], axis=0) == 0).all(axis=1)
    fold = np.empty(len(y), dtype=np.intp)
    fold[order] = np.append(0, np.cumsum(~same)) % folds
    return fold


_ROWS = 2**12


def _keys(z: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Sort keys (n, 4), the first to sort by last: mean depth, margin, log-probability of the label, label.

    Rounded to nine digits, so that rows which differ by the rounding of a shift are seldom told apart.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        top = z.max(axis=1, keepdims=True).astype(np.float64)
        depth = np.minimum(top - z, 1e9)
        if depth.shape[1] > 1:
            second = np.partition(depth, 1, axis=1)[:, 1]
        else:
            second = np.zeros(len(z))
        log_p = -depth[np.arange(len(z)), labels] - np.log(np.exp(-depth).sum(axis=1))
    keys = np.stack([depth.mean(axis=1), second, log_p, labels], axis=1)
    digits = np.floor(np.log10(np.maximum(np.abs(keys), 1e-9)))
    unit = 10.0 ** (digits - 8)
    return np.round(keys / unit) * unit


def held_out(
    fold: np.ndarray, work: Callable[[np.ndarray, np.ndarray], np.ndarray], out: np.ndarray
) -> np.ndarray:
    """Fill ``out[rows]`` with ``work(other rows, rows)``, fold by fold; with a single fold, the rows work for themselves."""
    names = np.unique(fold)
    for k in names:
        rows = np.flatnonzero(fold == k)
        out[rows] = work(np.flatnonzero(fold != k) if len(names) > 1 else rows, rows)
    return out
