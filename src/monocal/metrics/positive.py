r"""Two classes: how good the probability of class 1 is, as clinical prediction models and weather forecasts are judged.

With ``p`` = P(class 1), ``y`` in {0, 1} and the log-odds ``x = logit p``

    slope             b  of  logit P(y = 1) = a + b x                1 where calibrated, below 1 where too extreme
    intercept         a  of  logit P(y = 1) = a + x                  0 where calibrated, above 0 where p is too small on average
    in the large      mean p - mean y
    ICI, E50, E90     mean, median, 90th percentile of |p - f(p)|,   f a logistic regression on a restricted cubic spline of x
    CORP              with p' the isotonic regression of y on p, S the mean of (p - y)^2
                      MCB = S(p) - S(p'),   DSC = S(mean y) - S(p'),   UNC = S(mean y),   S(p) = MCB - DSC + UNC

References
----------
Cox, Two further applications of a model for binary regression, Biometrika 45 (1958).
Van Calster et al., Calibration: the Achilles heel of predictive analytics, BMC Medicine 17 (2019).
Austin & Steyerberg, The Integrated Calibration Index (ICI) and related metrics, Statistics in Medicine 38 (2019).
Dimitriadis, Gneiting & Jordan, Stable reliability diagrams for probabilistic classifiers, PNAS 118 (2021).
DeLong, DeLong & Clarke-Pearson, Comparing the areas under two or more correlated ROC curves, Biometrics 44 (1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from ..errors import InputError
from .outcomes import Floats, Outcomes
from .row_sums import running_sums

# Probabilities of 0 and 1 have no log-odds; they count as this far from them.
_LEAST = 1e-7
_KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)
_RIDGE = 1e-6  # of the spline, in rows: where classes are separated there is no finite optimum


def check_two_classes(n_classes: int, name: str = "positive_ece") -> None:
    """Raise unless there is one positive class and one negative."""
    if n_classes != 2:
        raise InputError(
            f"{name}: a positive class is one of two, but there are {n_classes}. classwise_ece takes each class by itself."
        )


def _log_odds(rows: Outcomes) -> Floats:
    return np.asarray(logit(np.clip(rows.confidence, _LEAST, 1 - _LEAST)))


def _both_classes(rows: Outcomes) -> bool:
    return bool(0 < rows.correct.sum() < len(rows.correct))


def auc(rows: Outcomes) -> float:
    """P(a row of class 1 has the larger probability than one of class 0), ties count half; nan without both."""
    if not _both_classes(rows):
        return float("nan")
    return float((rows.weight * rows.correct) @ _wins(rows)[0] / (rows.weight @ rows.correct))


def _wins(rows: Outcomes) -> tuple[Floats, Floats]:
    """For each row the weighted share of class 0 below it, and of class 1 above it; ties count half."""
    positive, negative = rows.weight * rows.correct, rows.weight * (1 - rows.correct)
    ends, (p, n) = running_sums(rows, rows.by_confidence, positive, negative)
    group = np.searchsorted(rows.confidence[ends], rows.confidence)
    shares = [(c + np.append(0.0, c[:-1]))[group] / 2 / c[-1] for c in (n, p)]
    return shares[0], 1 - shares[1]


def auc_influence(rows: Outcomes) -> Floats:
    """What each row adds to ``auc`` (DeLong), as seen by the other rows, on the scale of its log-odds."""
    below, above = _wins(rows)
    value, w, y = auc(rows), rows.weight, rows.correct
    share = w * np.where(y == 1, 1 / (w @ y), 1 / (w @ (1 - y)))
    d = share / (1 - share) * (np.where(y == 1, below, above) - value)
    return d / (value * (1 - value)) if 0 < value < 1 else np.zeros_like(d)


def _logistic(
    X: Floats, rows: Outcomes, offset: Floats | float, ridge: float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Logistic regression of the outcomes by Newton's method: coefficients, inverse Hessian, fitted probabilities."""
    beta, w, y = np.zeros(X.shape[1]), rows.weight, rows.correct
    penalty = ridge * np.eye(X.shape[1])

    def loss(b: Floats) -> float:
        z = offset + X @ b
        return float(w @ (np.logaddexp(0, z) - y * z) + b @ penalty @ b / 2)

    value, inverse = loss(beta), penalty
    for _ in range(50):
        mean = expit(offset + X @ beta)
        gradient = X.T @ (w * (mean - y)) + penalty @ beta
        inverse = np.linalg.pinv((X.T * (w * mean * (1 - mean))) @ X + penalty, hermitian=True)
        step = inverse @ gradient
        length = 1.0
        while loss(beta - length * step) > value and length > 1e-4:
            length /= 2
        beta = beta - length * step
        before, value = value, loss(beta)
        if before - value <= 1e-12 * max(1.0, abs(value)):
            break
    return beta, inverse, expit(offset + X @ beta)


def calibration_slope(rows: Outcomes) -> tuple[float, Floats]:
    """The slope (with an intercept), and what each row adds to it (sandwich)."""
    x, no_influence = _log_odds(rows), np.full(len(rows.weight), np.nan)
    if not _both_classes(rows) or np.ptp(x) == 0:
        return float("nan"), no_influence
    low, high = (rows.confidence[rows.correct == c] for c in (0, 1))
    if high.min() >= low.max() or high.max() <= low.min():  # separated: the optimum is at infinity
        return (np.inf if high.min() >= low.max() else -np.inf), no_influence
    return _last_coefficient(np.column_stack([np.ones_like(x), x]), rows, 0.0)


def calibration_intercept(rows: Outcomes) -> tuple[float, Floats]:
    """The intercept (with slope 1), and what each row adds to it (sandwich)."""
    if not _both_classes(rows):
        return float("nan"), np.full(len(rows.weight), np.nan)
    return _last_coefficient(np.ones((len(rows.weight), 1)), rows, _log_odds(rows))


def _last_coefficient(X: Floats, rows: Outcomes, offset: Floats | float) -> tuple[float, Floats]:
    beta, inverse, mean = _logistic(X, rows, offset)
    # By how much a row fits itself.
    leverage = rows.weight * mean * (1 - mean) * ((X @ inverse) * X).sum(axis=1)
    influence = (rows.weight * (rows.correct - mean) / (1 - leverage))[:, None] * X @ inverse
    return float(beta[-1]), influence[:, -1]


def smooth_gaps(rows: Outcomes) -> Floats:
    """``|p - f(p)|`` of each row, with ``f`` the smoothed frequency of class 1."""
    X = _spline(_log_odds(rows), rows.weight)
    scale = np.maximum(np.abs(X).max(axis=0), 1e-300)
    return np.abs(rows.confidence - _logistic(X / scale, rows, 0.0, _RIDGE)[2])


def _spline(x: Floats, weight: Floats) -> Floats:
    """Columns 1, x, and those of Harrell's restricted cubic spline with five knots, fewer where values repeat."""
    t = np.unique(np.quantile(x, _KNOTS, weights=weight, method="inverted_cdf"))
    columns = [np.ones_like(x), x] if np.ptp(x) > 0 else [np.ones_like(x)]
    if len(t) > 2:
        cubes = np.clip(x[:, None] - t, 0, None) ** 3
        last = t[-1] - t[-2]
        for j in range(len(t) - 2):
            tail = (cubes[:, -2] * (t[-1] - t[j]) - cubes[:, -1] * (t[-2] - t[j])) / last
            columns.append((cubes[:, j] - tail) / (t[-1] - t[0]) ** 2)
    return np.column_stack(columns)


def gap_quantile(rows: Outcomes, gaps: Floats, share: float) -> float:
    how: dict[str, Any] = (
        {} if np.ptp(rows.weight) == 0 else {"weights": rows.weight, "method": "inverted_cdf"}
    )
    return float(np.quantile(gaps, share, **how))


def corp_parts(rows: Outcomes) -> tuple[float, float, float]:
    """MCB, DSC and UNC of the Brier score of class 1."""
    ends, sums = running_sums(rows, rows.by_confidence, rows.weight, rows.weight * rows.correct)
    weight, ones = (np.diff(one, prepend=0.0) for one in sums)  # of rows of equal probability together
    fitted = isotonic_regression(ones / weight, weights=weight).x
    total, rate = weight.sum(), ones.sum() / weight.sum()

    def score(q: Floats) -> float:
        return float(np.sum(weight * q * q - 2 * q * ones + ones) / total)

    recalibrated, uncertainty = score(fitted), float(rate * (1 - rate))
    mcb = score(rows.confidence[ends]) - recalibrated
    return max(0.0, mcb), max(0.0, uncertainty - recalibrated), uncertainty
