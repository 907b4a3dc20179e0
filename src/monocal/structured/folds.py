"""Folds that depend on the rows, not on how they are arranged, named, shifted, repeated or weighted.

A row goes where a hash of its content sends it. Rows of equal logits stay together, whatever their labels: a row that comes
twice is no news about itself, a row of weight two is the same as two rows, and no fit sees a row with all labels but the one it
is judged by, which would teach it the contrary of the truth. Folds are *not* balanced by class: with as many
rows of a class held out as the others lead to expect, what a calibrator learns from chance frequencies would look true.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from ..arrays import Array, to_numpy
from ..calibration.base import Calibrator
from ..calibration.shrinkage import row_keys


def folds_of(logits: Array, labels: Array, folds: int) -> np.ndarray:
    """The fold (n,) of each row, 0 to ``folds`` - 1 at most; all 0 where all rows are alike."""
    z, y = to_numpy(logits), to_numpy(labels)
    keys = _keys(z, _shared(_keys(z, z.argmax(axis=1)), y))
    # Not by the order of the keys, where one row that changes could move all others.
    return (keys % np.uint64(folds)).astype(np.intp)


def _shared(alike: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The smallest label (n,) among the rows that are alike: all of them get the same."""
    _, first, which = np.unique(alike, return_index=True, return_inverse=True)
    smallest = labels[first]
    np.minimum.at(smallest, which, labels)
    return smallest[which]


_ROWS = 2**12


def _keys(z: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """A number (n,) made of each row: of a class of it, that class's log-probability, the margin and the mean depth."""
    blocks = [slice(i, i + _ROWS) for i in range(0, len(z), _ROWS)]
    return np.concatenate([_keys_of_block(z[rows], classes[rows]) for rows in blocks])


def _keys_of_block(z: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Rounded to five digits, so that rows which differ by the rounding of a shift, or of single precision, are seldom told
    apart."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        top = z.max(axis=1, keepdims=True).astype(np.float64)
        depth = np.minimum(top - z, 1e9)
        if depth.shape[1] > 1:
            second = np.partition(depth, 1, axis=1)[:, 1]
        else:
            second = np.zeros(len(z))
        log_p = -depth[np.arange(len(z)), classes] - np.log(np.exp(-depth).sum(axis=1))
    values = np.stack([depth.mean(axis=1), second, log_p, classes])
    digits = np.floor(np.log10(np.maximum(np.abs(values), 1e-9)))
    return row_keys(np.rint(values * 10.0 ** (4 - digits)) * 32 + digits)


def splits(fold: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit on and rows to hold out, for each fold; where there is a single one, all rows serve as both."""
    names = np.unique(fold)
    if len(names) < 2:
        rows = np.arange(len(fold))
        return [(rows, rows)]
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in names]


def out_of_fold(
    stage: Calibrator, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None, fold: np.ndarray
) -> np.ndarray:
    """Calibrated logits (n, m) of each row, from a copy of the stage that has not seen its fold."""
    out = np.empty(logits.shape, dtype=np.result_type(logits.dtype, np.float32))
    for train, test in splits(fold):
        some = None if weight is None else weight[train]
        out[test] = to_numpy(clone(stage).fit(logits[train], labels[train], some).transform(logits[test]))
    return out
