"""The classics for one score and two classes, under the names people know.

Platt        log-odds = a + b s                                   fitted to targets (n_1 + 1) / (n_1 + 2) and 1 / (n_0 + 2)
beta         log-odds = a log p - b log(1 - p) + c,  a, b >= 0    of probabilities
Venn-Abers   p_0, p_1: isotonic regression with the new row added as class 0, as class 1;   p = p_1 / (1 - p_0 + p_1)
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from ..errors import warn
from ..inputs.formats import format_of
from ..solver import minimize
from .binary_cone import LogisticCone
from .binary_map import expit, log_odds, ordered_log
from .score_rows import ScoreCalibrator, check_rising
from .state import expect

# Log-odds of probabilities are cut here where a line is fitted to them: those of 0 and 1 have none.
_ODDS = 36.0


class _Linear(ScoreCalibrator):
    """Log-odds that are a line in functions of the score: ``coef_`` and ``intercept_``."""

    coef_: ndarray
    intercept_: float
    _n_coefficients = 1

    def _fit_line(self, features: ndarray, targets: ndarray, weight: ndarray, least: float = -np.inf) -> None:
        """The maximum of the likelihood, with coefficients of at least ``least``."""
        share = weight / weight.sum()
        largest = np.maximum(np.abs(features).max(axis=0), 1e-300)
        scaled = features / largest
        mean = share @ scaled
        sd = np.sqrt(share @ (scaled - mean) ** 2)
        sd = np.where(sd > 0, sd, 1.0)
        design = np.column_stack([np.ones(len(features)), (scaled - mean) / sd])
        rate, m = float(share @ targets), features.shape[1]
        first = np.append(np.log(rate / (1.0 - rate)), np.full(m, max(least, 0.0)))
        # The ridge weighs 1e-9 rows: labels that the score separates would take the line to infinity.
        ridge = np.append(0.0, np.full(m, 1e-9 / float(weight.sum())))
        lower = np.append(-np.inf, np.full(m, least))
        line = LogisticCone(design, targets, share, lower, 0.0, ridge, first)
        c = minimize(line, tol=1e-9, max_iter=200).coefficients
        slopes = c[1:] / sd
        self.intercept_, self.coef_ = float(c[0] - slopes @ mean), slopes / largest

    def check_state(self) -> None:
        super().check_state()
        n, coef = self._n_coefficients, np.asarray(self.coef_, dtype=np.float64)
        right = coef.shape == (n,) and np.isfinite([*coef, self.intercept_]).all()
        expect(right, "coef_", coef, f"{n} finite numbers, and an intercept_")
        expect(not self.preserves_ranking or coef >= 0, "coef_", coef, "numbers of at least 0")


class PlattScaling(_Linear):
    """Platt scaling: a logistic regression of the labels on the score, with Platt's targets.

    Agrees with scikit-learn's ``CalibratedClassifierCV(method="sigmoid")``, which fits the same to decision values.

    Parameters
    ----------
    input : {"logits", "probabilities", "scores"}
        What a score is; probabilities are fitted as log-odds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    coef_ : ndarray of shape (1,)
    intercept_ : float

    Notes
    -----
    A score that ranks the wrong way round gets a negative slope, as in scikit-learn, and a warning.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods. Advances in
    Large Margin Classifiers.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.PlattScaling(input="scores").fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> cal.predict_proba([-1.0, 1.0]).round(2)
    array([0.31, 0.57])
    """

    _variants: ClassVar = {"Platt": {}}

    @property
    def preserves_ranking(self) -> bool:  # type: ignore[override]  # of a fit, not of the class: the sign of the slope decides
        """Whether the fitted slope is not negative; False before `fit`."""
        return bool(np.all(np.asarray(getattr(self, "coef_", -1.0)) >= 0))

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        v = np.clip(scores, -_ODDS, _ODDS) if self.input == "probabilities" else scores
        positive, total = float(weight @ labels), float(weight.sum())
        high, low = (positive + 1.0) / (positive + 2.0), 1.0 / (total - positive + 2.0)
        targets = np.where(labels == 1, high, low)
        self._fit_line(v, targets, weight)
        if self.coef_[0] < 0:
            warn("PlattScaling: the score ranks the rows the wrong way round: its slope is negative.")

    def _log_odds(self, scores: ndarray) -> ndarray:
        x: ndarray = scores[:, 0]
        if self.input == "probabilities":
            x = np.clip(log_odds(x, np), -_ODDS, _ODDS)
        return np.clip(self.intercept_ + float(self.coef_[0]) * x, -1.79e308, 1.79e308)


class BetaCalibration(_Linear):
    """Beta calibration: log-odds that are linear in ``log p`` and ``log(1 - p)``, with slopes that are not negative.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What a score is; of log-odds, probabilities are made.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    coef_ : ndarray of shape (2,)
        Of ``log p`` and of ``-log(1 - p)``; one that would be negative is 0, and the other fitted alone.
    intercept_ : float

    References
    ----------
    Kull, Silva Filho, Flach (2017). Beta calibration: a well-founded and easily implemented improvement on logistic
    calibration for binary classifiers. AISTATS.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.BetaCalibration(input="probabilities").fit([0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 0, 1, 0, 1, 1])
    >>> cal.predict_proba([0.2, 0.7]).round(2)
    array([0.12, 0.74])
    """

    _variants: ClassVar = {"Beta": {}}

    _inputs = ("logits", "probabilities")
    _n_coefficients = 2

    def __init__(self, *, input: str = "probabilities"):
        self.input = input

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        v = np.clip(scores[:, 0], -_ODDS, _ODDS)
        features = np.stack([-np.logaddexp(0.0, -v), np.logaddexp(0.0, v)], axis=1)
        self._fit_line(features, labels, weight, least=0.0)

    def _log_odds(self, scores: ndarray) -> ndarray:
        v = log_odds(scores[:, 0], np) if self.input == "probabilities" else scores[:, 0]
        v = np.clip(v, -_ODDS, _ODDS)
        log_p, log_not = ordered_log(expit(v, np), np), ordered_log(expit(-v, np), np)
        f: ndarray = self.intercept_ + float(self.coef_[0]) * log_p - float(self.coef_[1]) * log_not
        return f


class VennAbers(ScoreCalibrator):
    """Inductive Venn-Abers prediction: two isotonic regressions for each new row, and the interval between them.

    Parameters
    ----------
    input : {"logits", "probabilities", "scores"}
        Only the order of the scores matters.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    scores_ : ndarray of shape (K,)
        The different scores of the calibration rows.
    lower_, upper_ : ndarray of shape (2 K + 1,)
        ``p_0`` and ``p_1`` of a row below the first score, at it, between it and the next, and so on.

    References
    ----------
    Vovk, Petej (2014). Venn-Abers predictors. UAI.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.VennAbers(input="scores").fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> low, high = cal.predict_interval([-1.0, 1.0])
    >>> low.round(2), high.round(2)
    (array([0.  , 0.33]), array([0.5 , 0.67]))
    """

    _variants: ClassVar = {"Venn-Abers": {}}

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        v = scores[:, 0]
        self.scores_, which = np.unique(v, return_inverse=True)
        mass = np.bincount(which, weight)
        hits = np.bincount(which, weight * labels)
        # A row between two scores is pooled as one at the next would be, and beyond the last it stands alone.
        self.upper_ = np.append(np.repeat(_added_as_one(mass, hits), 2), 1.0)
        # Class 0 added is class 1 added where order and labels are reversed.
        reversed_ = _added_as_one(mass[::-1], (mass - hits)[::-1])[::-1]
        self.lower_ = np.insert(np.repeat(1.0 - reversed_, 2), 0, 0.0)

    def predict_interval(self, X: Any) -> Any:
        """``p_0`` and ``p_1``: P(class 1) with the row added to the calibration rows as class 0, and as class 1.

        Parameters
        ----------
        X : array-like of shape (n,), (n, 1) or (n, 2)

        Returns
        -------
        low, high : arrays of shape (n,)
        """
        self._check_fitted()
        self._check_frame(X)
        place = self._place(self._read_scores(X)[1])
        return tuple(format_of(X).back(table[place], X, -1) for table in (self.lower_, self.upper_))

    def _place(self, scores: ndarray) -> ndarray:
        v = log_odds(scores[:, 0], np) if self.input == "probabilities" else scores[:, 0]
        at = np.searchsorted(self.scores_, v)
        equal = self.scores_[np.minimum(at, len(self.scores_) - 1)] == v
        return 2 * at + equal

    def _log_odds(self, scores: ndarray) -> ndarray:
        low, high = self.lower_, self.upper_
        # Both rise with the score, and so does their combination but for rounding.
        f = np.maximum.accumulate(log_odds(np.clip(high / (1.0 - low + high), 0.0, 1.0), np))
        result: ndarray = f[self._place(scores)]
        return result

    def check_state(self) -> None:
        super().check_state()
        check_rising("scores_", self.scores_, strictly=True)
        for name, table in (("lower_", self.lower_), ("upper_", self.upper_)):
            check_rising(name, table, len(self.scores_) * 2 + 1)


def _added_as_one(mass: ndarray, hits: ndarray) -> ndarray:
    """Isotonic regression at a row of class 1 that joins each score in turn, in one sweep (Vovk, Petej, Fedorova, 2015).

    With the points P_i of the cumulative sum diagram, those before the row moved by (-1, -1), the value is the slope of their
    greatest convex minorant between P_{i-1} - (1, 1) and P_i. From one score to the next a single point moves.
    """
    x = np.concatenate([[0.0], np.cumsum(mass)]).tolist()
    y = np.concatenate([[0.0], np.cumsum(hits)]).tolist()
    corners: list[tuple[float, float]] = []
    for point in zip(reversed(x[1:]), reversed(y[1:]), strict=True):
        _push(corners, point)
    _push(corners, (-1.0, -1.0))
    values = []
    for i in range(1, len(x)):
        begin, end = corners[-1], corners[-2]
        slope = (end[1] - begin[1]) / (end[0] - begin[0])
        values.append(slope)
        moved = (x[i] - 1.0, y[i] - 1.0)
        if i + 1 < len(x) and moved[1] < begin[1] + slope * (moved[0] - begin[0]):
            corners.pop()
            while corners[-1][0] <= x[i]:  # the point that has moved, which may have been a corner
                corners.pop()
            _push(corners, moved)
    return np.clip(np.maximum.accumulate(values), 0.0, 1.0)


def _push(corners: list[tuple[float, float]], point: tuple[float, float]) -> None:
    """Add a point to the left of a lower hull whose leftmost corner is the last of the list."""
    while len(corners) > 1:
        (x1, y1), (x2, y2) = corners[-1], corners[-2]
        if (y1 - point[1]) * (x2 - point[0]) < (y2 - point[1]) * (x1 - point[0]):
            break
        corners.pop()
    corners.append(point)
