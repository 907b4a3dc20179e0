r"""Go on from an old calibrator: its probabilities of the new rows count as so many rows more.

    fit on new rows with labels, and on  ``start_rows``  rows' worth of the same rows labelled by ``p_old``,

which is the likelihood plus ``start_rows`` times the mean Kullback-Leibler divergence from the old probabilities. Where the new
rows are few the fit stays near the old one; as they grow in number they take over. Updated again and again with a fixed
``start_rows``, what is old is forgotten exponentially: every update keeps ``start_rows / (start_rows + n)`` of it.

Labels are drawn rather than split: of a row, ``R`` classes at equal distances in the cumulated probabilities, from a beginning
that the content of the row decides. It works for every calibrator, and gives the same whatever the order of the rows.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..data.labels import by_column
from ..errors import InputError
from ..rows.inputs import elsewhere
from ..validation import check_number, check_weights, ignored_rows
from .shrinkage import row_keys

# Rows to add, about: more of them make the draws finer, and the fit slower.
_DRAWN, _MOST_EACH = 20_000, 16


@dataclass(frozen=True)
class OldCalibrator:
    """A fitted calibrator to go on from, and how many rows it counts for."""

    fitted: Any
    rows: float

    def beside(
        self, X: Any, y: Any, sample_weight: Any, context: Any, ignore_index: int | None
    ) -> tuple[Any, Any, Any, Any]:
        """New rows, labels, weights and context, and behind them the same rows as the old calibrator would label them."""
        check_number(self.rows, "start_rows", least=0)
        if elsewhere(X, y, sample_weight) is not None:
            raise InputError(
                "start: the new rows must be arrays in memory. Rows since the change are enough."
            )
        p = self._probabilities(X, context)
        n = len(p)
        y = np.asarray(to_numpy(by_column(y, X)))
        if y.shape != (n,):
            raise InputError(f"y must have one label for each of the {n} rows, but has shape {y.shape}.")
        y, sample_weight, _ = ignored_rows(y, sample_weight, n, ignore_index)
        given = check_weights(sample_weight, p)
        weight = np.ones(n) if given is None else given
        if self.rows == 0:
            return X, y, weight, context
        each = int(np.clip(_DRAWN // n, 1, _MOST_EACH))
        share = self.rows / (each * float(weight.sum()))
        rows = np.concatenate([np.arange(n), np.repeat(np.arange(n), each)])
        return (
            _some(X, rows),
            np.concatenate([y, drawn_labels(p, each).ravel()]),
            np.concatenate([weight, np.repeat(weight * share, each)]),
            None if context is None else _some(context, rows),
        )

    def _probabilities(self, X: Any, context: Any) -> np.ndarray:
        if not hasattr(self.fitted, "predict_proba"):
            raise InputError(f"start must be a fitted calibrator, but is {type(self.fitted).__name__}.")
        width, expected = np.shape(X)[-1], getattr(self.fitted, "n_features_in_", None)
        if expected != width:
            raise InputError(
                f"start was fitted on {expected} classes, but X has {width}: it must be of the same classifier."
            )
        old = copy(self.fitted)
        old.class_axis = -1  # these are rows already
        known = {} if getattr(old, "context_", None) is None else {"context": context}
        return np.asarray(to_numpy(old.predict_proba(X, **known)), dtype=np.float64)


def drawn_labels(p: np.ndarray, each: int) -> np.ndarray:
    """Classes (n, each) of probabilities (n, m), evenly spread over what the probabilities add up to."""
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    seen = np.round(sorted_p[:, :64], 4)  # the same in single and in double precision
    begin = row_keys(np.ascontiguousarray(seen.T)) / 2.0**64
    total = np.cumsum(sorted_p, axis=1)
    at = (np.arange(each) + begin[:, None]) / each * total[:, -1:]
    place = np.stack([(total <= at[:, j : j + 1]).sum(axis=1) for j in range(each)], axis=1)
    labels: np.ndarray = np.take_along_axis(order, np.minimum(place, p.shape[1] - 1), axis=1)
    return labels


def _some(x: Any, rows: np.ndarray) -> Any:
    """Rows of an array, a tensor, a frame, a list or a dict of columns."""
    if isinstance(x, dict):
        return {name: _some(column, rows) for name, column in x.items()}
    if hasattr(x, "iloc"):
        return x.iloc[rows]
    return x[rows] if hasattr(x, "shape") else np.asarray(x)[rows]


def forgetting_weights(age: Any, half_life: float) -> np.ndarray:
    """Weights of rows by their age, ``2 ** (-age / half_life)``: for `fit` on rows that were kept, old ones among them.

    Parameters
    ----------
    age : array-like of shape (n,), or int
        How old each row is, 0 for the newest, in any unit; or the number of rows, oldest first, whose age is then counted in
        rows.
    half_life : float
        The age at which a row counts half, in the same unit.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> import monocal as mc
    >>> mc.forgetting_weights(5, half_life=2).round(2)
    array([0.25, 0.35, 0.5 , 0.71, 1.  ])
    """
    check_number(half_life, "half_life", above=0)
    ages = (
        np.arange(age)[::-1] if isinstance(age, (int, np.integer)) else np.asarray(to_numpy(age), dtype=float)
    )
    if ages.ndim != 1 or not np.isfinite(ages).all() or (ages < 0).any():
        raise InputError("age must be a number of rows, or one age of at least 0 for each row.")
    return np.exp2(-ages / half_life)
