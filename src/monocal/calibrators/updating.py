r"""Start from an old calibrator: its probabilities of the new rows count as so many rows more.

    fit on new rows with labels, and on  ``start_rows``  rows' worth of the same rows labelled by ``p_old``,

which is the likelihood plus ``start_rows`` times the mean Kullback-Leibler divergence from the old probabilities. Where the new
rows are few the fit stays near the old one; as they grow in number they take over. Updated again and again with a fixed
``start_rows``, what is old is forgotten exponentially: every update keeps ``start_rows / (start_rows + n)`` of it.

A row stands for its likeliest classes, each with its old probability as the weight, and for one of the others with what is left.
Which of the others depends on the content of the row and on how often that content came before: equal rows share the others
evenly, and the order of the rows does not matter.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..errors import InputError
from ..inputs.batch import out_of_core
from ..inputs.validation import check_count, check_number, check_weights, ignored_rows, read_numbers
from .calibrated_rows import squared
from .folds import row_keys

# With fewer new rows than this, a fit would leave the old map wherever they do not hold it there.
_FEWEST = 30
# About how many rows to add; and the least and the most labels that each new row gets: more are finer, and slower to fit.
_ADDED, _LEAST_EACH, _MOST_EACH = 40_000, 4, 16
# Weights below this are none.
_FORGOTTEN = 1e-12
# Smaller probabilities are left out; and how far apart the places of equal rows are among the others.
_NOTHING, _GOLDEN = 1e-9, 0.6180339887498949


def with_old_labels(
    start: Any, start_rows: float, X: Any, y: Any, sample_weight: Any, context: Any, ignore_index: int | None
) -> tuple[Any, Any, Any, Any]:
    """New rows, labels, weights and context, followed by the same rows as the calibrator ``start`` would label them."""
    check_number(start_rows, "start_rows", least=0)
    if out_of_core(X, y, sample_weight) is not None:
        raise InputError("start: the new rows must be arrays in memory. Rows since the change are enough.")
    y = np.asarray(to_numpy(y))
    n = len(y)
    if y.shape not in ((n,), (n, 1)) or n != len(X):
        raise InputError(f"y must have one label for each of the {len(X)} rows, but has shape {y.shape}.")
    y, sample_weight, _ = ignored_rows(y.reshape(n), sample_weight, n, ignore_index)
    weights = check_weights(sample_weight, y)
    weights = np.ones(n) if weights is None else weights
    counted = np.flatnonzero(weights)
    if len(counted) < _FEWEST:
        raise InputError(
            f"start: {len(counted)} new rows say too little to change a calibrator by. Keep the old one until there are "
            f"{_FEWEST}."
        )
    X, y, weight = _rows_of(X, counted), y[counted], weights[counted]
    context = None if context is None else _rows_of(context, counted)
    p = _probabilities(start, X, context)
    labels, shares = old_labels(p, int(np.clip(_ADDED // len(p), _LEAST_EACH, _MOST_EACH)))
    shares = shares * (start_rows * weight / float(weight.sum()))[:, None]
    row, place = np.nonzero(shares > 0)
    rows = np.concatenate([np.arange(len(p)), row])
    return (
        _rows_of(X, rows),
        np.concatenate([y, labels[row, place]]),
        np.concatenate([weight, shares[row, place]]),
        None if context is None else _rows_of(context, rows),
    )


def _probabilities(start: Any, X: Any, context: Any) -> np.ndarray:
    if not hasattr(start, "predict_proba"):
        raise InputError(f"start must be a fitted calibrator, but is {type(start).__name__}.")
    width, expected = np.shape(X)[-1], getattr(start, "n_features_in_", None)
    if expected != width:
        raise InputError(
            f"start was fitted on {expected} classes, but X has {width}: it must be of the same classifier."
        )
    old = copy(start)
    old.class_axis = -1  # these are rows already
    old.__dict__.pop("feature_names_in_", None)  # whose names have been compared
    keywords = {} if getattr(old, "context_", None) is None else {"context": context}
    return np.asarray(to_numpy(old.predict_proba(X, **keywords)), dtype=np.float64)


def independent_rows(y: Any, sample_weight: Any, ignore_index: int | None) -> float:
    """How many rows labels of any shape amount to, where one of weight 1/k is a part of a row; ignored ones are none."""
    labels = np.ravel(np.asarray(to_numpy(y)))
    weight = np.ones(len(labels))
    if sample_weight is not None:
        weight = np.ravel(to_numpy(sample_weight)).astype(float)
    if ignore_index is not None and len(weight) == len(labels):
        weight = weight[labels != ignore_index]
    return float(weight.sum() ** 2 / max(float(squared(weight).sum()), 1e-300))


def old_labels(p: np.ndarray, each: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes (n, R) that stand for probabilities (n, m), R at most ``each``, and their shares (n, R), which sum to 1."""
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    if p.shape[1] > each:
        others = sorted_p[:, each - 1 :]
        total = np.cumsum(others, axis=1)
        at = _places(sorted_p) * total[:, -1]
        chosen = np.minimum((total <= at[:, None]).sum(axis=1), others.shape[1] - 1) + each - 1
        one_of_them = np.take_along_axis(order, chosen[:, None], axis=1)
        order = np.concatenate([order[:, : each - 1], one_of_them], axis=1)
        sorted_p = np.concatenate([sorted_p[:, : each - 1], total[:, -1:]], axis=1)
    shares = np.where(sorted_p > _NOTHING, sorted_p, 0.0)
    return order, shares / shares.sum(axis=1, keepdims=True)


def _places(sorted_p: np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each row: of its content, and evenly spread over equal rows."""
    seen = np.round(sorted_p[:, :64], 4)  # the same in single and in double precision
    keys = row_keys(np.ascontiguousarray(seen.T))
    _, group, count = np.unique(keys, return_inverse=True, return_counts=True)
    before = np.empty(len(keys))
    before[np.argsort(group, kind="stable")] = np.arange(len(keys)) - np.repeat(
        np.cumsum(count) - count, count
    )
    places: np.ndarray = (keys / 2.0**64 + _GOLDEN * before) % 1.0
    return places


def _rows_of(x: Any, rows: np.ndarray) -> Any:
    """Rows of an array, a tensor, a frame, a list or a dict of columns."""
    if isinstance(x, dict):
        return {name: _rows_of(column, rows) for name, column in x.items()}
    if hasattr(x, "iloc"):
        return x.iloc[rows]
    if type(x).__module__.startswith("pyarrow"):
        return x.take(rows)
    return x[rows] if hasattr(x, "shape") else np.asarray(x)[rows]


def forgetting_weights(age: Any = None, *, half_life: float, n_rows: int | None = None) -> np.ndarray:
    """Weights of rows by their age, ``2 ** (-age / half_life)``: for `fit` on rows that were kept, old ones among them.

    Parameters
    ----------
    age : array-like of shape (n,)
        How old each row is, 0 for the newest, in any unit.
    half_life : float
        The age at which a row counts half, in the same unit.
    n_rows : int, optional
        Instead of ``age``: so many rows, oldest first, their age counted in rows.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> import monocal as mc
    >>> mc.forgetting_weights(n_rows=5, half_life=2).round(2)
    array([0.25, 0.35, 0.5 , 0.71, 1.  ])
    """
    check_number(half_life, "half_life", above=0)
    if (age is None) == (n_rows is None):
        raise InputError("Give either age, one for each row, or n_rows.")
    if age is None:
        ages = np.arange(check_count(n_rows, "n_rows"))[::-1]
    else:
        ages = to_numpy(read_numbers(age, "age", "a number")).astype(float)
    if ages.ndim != 1 or not np.isfinite(ages).all() or (ages < 0).any():
        raise InputError("age must be one number of at least 0 for each row.")
    weights = np.exp2(-ages / half_life)
    return np.where(weights < _FORGOTTEN, 0.0, weights)
