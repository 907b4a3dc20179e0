r"""How far from the optimum the published procedure stopped.

Its objective, ``NLL(w, b)`` on sorted raw logits with ``w > 0`` and ``w``, ``b`` non-decreasing, is convex, and with
increments for variables its constraints are mere bounds:

    w = cumsum(dw),  b = cumsum(db),      dw_1 >= 1e-6,   dw_i >= 0,   db_1 = 0,   db_i >= 0   (i > 1).

Going on from where it stopped with L-BFGS-B can only go down. What that gains is a lower bound on the distance to the
optimum; from MCCT and from MCCT-I it leads to the same value, for the two are one family.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

_SMALLEST = 1e-6
_WORK = 4e9  # logits touched at most: a few minutes, with a thousand classes


def continued_nll(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray, biases: np.ndarray
) -> tuple[float, float]:
    """NLL at ``weights``, ``biases`` (by rank, lowest first), and after going on from there.

    Fewer parameters than classes: the truncated objective of the top ranks, where rows with their label below add
    nothing.
    """
    n, m = logits.shape
    r = len(weights)
    order = np.argsort(logits, axis=1)
    rank = np.argmax(order == labels[:, None], axis=1) - (m - r)
    inside = rank >= 0
    z = np.take_along_axis(logits, order, axis=1)[inside, m - r :].astype(np.float64)
    rank, rows = rank[inside], np.arange(inside.sum())
    share = 1.0 / n

    def by_increment(by_rank: np.ndarray) -> np.ndarray:
        return np.cumsum(by_rank[:, ::-1], axis=1)[:, ::-1]

    def probabilities(steps: np.ndarray) -> tuple[np.ndarray, float]:
        f = z * np.cumsum(steps[:r]) + np.cumsum(steps[r:])
        log_total = logsumexp(f, axis=1)
        return np.exp(f - log_total[:, None]), float((log_total - f[rows, rank]).sum() * share)

    def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        p, value = probabilities(scaled / scale)
        p[rows, rank] -= 1.0
        by_rank = np.stack([np.einsum("ij,ij->j", p, z), p.sum(axis=0)]) * share
        return value, by_increment(by_rank).ravel() / scale

    def curvature(steps: np.ndarray) -> np.ndarray:
        """Diagonal of the Hessian: the mean over rows of the variance of each increment's feature."""
        p, _ = probabilities(steps)
        total = np.zeros((2, r))
        for x, row in ((z, 0), (np.ones_like(z), 1)):
            first = np.cumsum((p * x)[:, ::-1], axis=1)[:, ::-1]
            second = np.cumsum((p * x * x)[:, ::-1], axis=1)[:, ::-1]
            total[row] = np.maximum(second - first**2, 0.0).sum(axis=0) * share
        return total.ravel()

    low = np.zeros(2 * r)
    low[0] = _SMALLEST
    high = np.full(2 * r, np.inf)
    high[r] = 0.0  # a bias on every rank is a shift, which softmax does not see
    best = np.clip(
        np.concatenate([np.diff(weights, prepend=0.0), np.diff(biases, prepend=biases[0])]), low, high
    )
    stopped = value = probabilities(best)[1]
    left = int(np.clip(_WORK / max(z.size, 1), 50, 10000))
    while left > 0:
        # L-BFGS-B forgets and starts again with the curvature of where it stands, until that no longer helps.
        diagonal = curvature(best)
        scale = np.sqrt(np.maximum(diagonal, 1e-6 * diagonal.max()))
        result = minimize(
            objective,
            best * scale,
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack([low * scale, high * scale]),
            options={"maxiter": left, "maxfun": left, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-9},
        )
        gain = value - float(result.fun)
        left -= int(result.nfev)
        if gain > 0:
            best, value = result.x / scale, float(result.fun)
        if gain < 1e-8:
            break
    return stopped, value
