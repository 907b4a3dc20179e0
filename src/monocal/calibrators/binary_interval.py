"""How far the fitted curves of scores may be off: the posterior of smoothing splines through the same rows.

    f(x) = sum_j v_j hat_j(x),     (second differences of v) / tau  ~  N(0, 1),     v = log-odds at the knots
    posterior of v given tau:      precision  B' W B + R / tau^2  around the fit   (Laplace),    W = w p (1 - p)

The curvature of the fit, a line with few ramps, says little of its error: it does not show what the penalty has left out. The
spline may bend everywhere, by as much as the rows ask for: ``tau`` has a posterior of its own. Its prior density is proportional
to ``tau^2`` in ``log tau``, for a curve of which few rows are seen may be rougher than it looks. Mean and covariance are those of
the mixture over ``tau``. One generalised eigenvalue problem of the size of the knots gives all ``tau`` at once.

References: Wahba (1983), Bayesian confidence intervals for the cross-validated smoothing spline; Nychka (1988).
"""

from __future__ import annotations

import numpy as np

# What tau may be, in log-odds for scores of standard deviation 1.
_TAU = np.exp(np.linspace(-4.0, 3.0, 43))
# Information on every knot, as a part of the mean, that keeps the precision positive definite; and at least.
_LEAST, _LEAST_INFORMATION = 1e-8, 1e-10


def knot_weights(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Hat functions of the knots at ``x``, (n, K): linear between the knots, and beyond them as between the last two."""
    weights = np.zeros((len(x), len(knots)))
    if len(knots) == 1:
        weights[:] = 1.0
        return weights
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    part = (x - knots[left]) / (knots[left + 1] - knots[left])
    rows = np.arange(len(x))
    weights[rows, left], weights[rows, left + 1] = 1.0 - part, part
    return weights


def curve_posterior(
    knots: list[np.ndarray],
    values: np.ndarray,
    hats: np.ndarray,
    residual: np.ndarray,
    curvature: np.ndarray,
    extra: np.ndarray,
    ridge: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the values at the knots.

    Parameters
    ----------
    knots : list of ndarray
        Of each score, standardised.
    values : ndarray of shape (K,)
        The fit at the knots of all scores.
    hats : ndarray of shape (n, K)
        `knot_weights` of all scores at the rows.
    residual, curvature : ndarray of shape (n,)
        Weighted, at the fit.
    extra, ridge : ndarray of shape (n, G) and (G,)
        Other columns with their precision, which are integrated out.
    """
    information, push = (hats.T * curvature) @ hats, hats.T @ residual
    if extra.shape[1]:
        cross = (hats.T * curvature) @ extra
        own = (extra.T * curvature) @ extra + np.diag(ridge + _LEAST_INFORMATION)
        information = information - cross @ np.linalg.solve(own, cross.T)
    information[np.diag_indices(len(values))] += (
        _LEAST * np.trace(information) / len(values) + _LEAST_INFORMATION
    )
    ends = np.cumsum([len(k) for k in knots])
    parts = [slice(end - len(k), end) for k, end in zip(knots, ends, strict=True)]
    for part in parts[1:]:  # the level of a further score is that of the first
        information[part, part] += 1.0
    back = np.linalg.inv(np.linalg.cholesky(information)).T
    half = np.concatenate([_bends(k) @ back[part] for k, part in zip(knots, parts, strict=True)])
    eigenvalues, vectors = np.linalg.eigh(half.T @ half)
    bends = len(half)
    eigenvalues[: len(values) - bends] = 0.0
    shrunk = 1.0 / (1.0 + np.maximum(eigenvalues, 0.0) / _TAU[:, None] ** 2)
    back = back @ vectors
    score = back.T @ (information @ values + push)
    bent = np.maximum(1.0 - shrunk[:, len(values) - bends :], 1e-300)
    evidence = 0.5 * (np.log(bent).sum(axis=1) + shrunk @ score**2) + 2.0 * np.log(_TAU)
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    means = (shrunk * score) @ back.T
    mean = share @ means
    covariance = (back * (share @ shrunk)) @ back.T + ((means - mean).T * share) @ (means - mean)
    return mean, covariance


def _bends(knots: np.ndarray) -> np.ndarray:
    """The second derivative at each inner knot from the values at the knots; squares sum to its integral squared."""
    left, right = np.diff(knots)[:-1], np.diff(knots)[1:]
    rows, width = np.arange(len(left)), np.sqrt((left + right) / 2)
    bends = np.zeros((len(left), len(knots)))
    bends[rows, rows] = 1 / left / width
    bends[rows, rows + 1] = -(1 / left + 1 / right) / width
    bends[rows, rows + 2] = 1 / right / width
    return bends
