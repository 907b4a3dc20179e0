"""The paper's optimiser: SLSQP over weights and biases by rank, with difference constraints.

    minimise  -1/n sum_n log softmax(x_n w + b)[label]  +  penalty,      w, b non-decreasing,  w > 0

(or ``x / v + b`` with ``v`` non-increasing). Kept for comparison and as an oracle: it shares no code with the certified
solver. It breaks ties as the sort does, is dense in the number of ranks, and for a thousand of them stops at its iteration
limit long before the optimum.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from ..arrays import to_numpy
from ..errors import InputError
from ..inputs.memory import MemoryRows
from ..objective.cone import RankCone
from ..solver import Solution

_SMALLEST = 1e-6  # w > 0 and v > 0


def _rank_nll(
    x: np.ndarray, rank: np.ndarray, share: np.ndarray, w: np.ndarray, b: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """NLL of sorted values x (n, r) with labels at ``rank``, weighted by ``share``; its gradients in w and b.

    A negative rank is a label below: no loss, but the gradient of the normaliser, as in the authors' code (see `published`).
    """
    f = x * w + b
    log_total = logsumexp(f, axis=1)
    rows = np.flatnonzero(rank >= 0)
    at = rows, rank[rows]
    value = float(share[rows] @ (log_total[rows] - f[at]))
    p = np.exp(f - log_total[:, None])
    p[at] -= 1.0
    p *= share[:, None]
    return value, (p * x).sum(axis=0), p.sum(axis=0)


def minimize_ranks(
    x: np.ndarray,
    rank: np.ndarray,
    weight: np.ndarray | None,
    *,
    scale: np.ndarray,
    inverse: bool,
    n_rows: float,
    max_iter: int,
    tol: float,
    linear: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, Solution]:
    """SLSQP from weights (or inverse weights) ``scale`` and zero biases; returns weights, biases and what happened.

    ``linear``: what else the objective has, linear in w and in b.
    """
    r = x.shape[1]
    share = (np.ones(len(rank)) if weight is None else np.asarray(weight, dtype=np.float64)) / n_rows
    sign = -1.0 if inverse else 1.0
    slope_w, slope_b = (np.zeros(r), np.zeros(r)) if linear is None else linear

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        s, b = theta[:r], theta[r:]
        w = 1.0 / s if inverse else s
        value, dw, db = _rank_nll(x, rank, share, w, b)
        value += float(slope_w @ w + slope_b @ b)
        dw = dw + slope_w
        return value, np.concatenate([-dw * w**2 if inverse else dw, db + slope_b])

    difference = np.zeros((2 * (r - 1), 2 * r))
    for i in range(r - 1):
        difference[i, [i, i + 1]] = -sign, sign
        difference[r - 1 + i, [r + i, r + i + 1]] = -1.0, 1.0
    result = minimize(
        objective,
        np.concatenate([scale, np.zeros(r)]),
        jac=True,
        method="SLSQP",
        bounds=[(_SMALLEST, None)] * r + [(None, None)] * r,
        constraints={"type": "ineq", "fun": lambda t: difference @ t, "jac": lambda t: difference}
        if r > 1
        else (),
        options={"maxiter": max_iter, "ftol": tol},
    )
    s = np.maximum(result.x[:r], _SMALLEST)
    solution = Solution(
        coefficients=result.x,
        converged=bool(result.success),
        status=f"slsqp: {result.message}" if result.success else f"stopped: slsqp says {result.message!r}",
        kkt=float("nan"),
        duality_gap=float("nan"),
        objective=float(result.fun),
        n_iter=int(result.nit),
    )
    return (1.0 / s if inverse else s), result.x[r:], solution


def _by_rank(step_penalty: np.ndarray) -> np.ndarray:
    """A penalty on increments as a linear function of the running sums: ``sum_s p_s (w_s - w_{s-1})``."""
    slope: np.ndarray = step_penalty - np.append(step_penalty[1:], 0.0)
    return slope


def solve(problem: RankCone, *, inverse: bool, max_iter: int) -> tuple[np.ndarray, Solution]:
    """The same objective by SLSQP: coefficients as the certified solver gives them, and what happened."""
    rows = problem.rows
    if not isinstance(rows, MemoryRows):
        raise InputError("solver='slsqp' needs all rows in memory: use solver='newton'.")
    blocks = rows.blocks
    if any(b.rows.tail is not None or b.rows.valid is not None for b in blocks):
        raise InputError(
            "solver='slsqp' takes all ranks and no masked classes: use solver='newton', or top_k=None."
        )
    u = np.concatenate([to_numpy(b.rows.height[:, None] - b.rows.depth) for b in blocks]).astype(np.float64)
    rank = np.concatenate([to_numpy(b.label_rank) for b in blocks])
    weight = np.concatenate([to_numpy(b.weight) for b in blocks])
    penalty = problem.grid(problem.penalty - problem.floor)[:, 0]
    prior = problem.prior_tilt()[:, 0]
    r = u.shape[1]
    weights, biases, solution = minimize_ranks(
        u,
        rank,
        weight,
        scale=np.ones(r) if inverse else np.linspace(0.0, 1.0, r),
        inverse=inverse,
        n_rows=float(weight.sum()),
        max_iter=max_iter,
        tol=1e-12,
        linear=(_by_rank(penalty[0]) + prior[0], _by_rank(penalty[1]) + prior[1]),
    )
    # SLSQP meets its constraints to rounding only; the map must meet them exactly.
    steps = np.zeros(problem.allowed.shape)
    steps[0, 0] = np.maximum(np.diff(weights, prepend=0.0), 0.0)
    steps[1, 0, 1:] = np.maximum(np.diff(biases), 0.0)
    return steps.ravel()[problem.atoms], solution
