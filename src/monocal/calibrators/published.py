"""MCCT and MCCT-I exactly as their authors ran them, for comparison, and their optimiser.

    f_(i) = w_i z_(i) + b_i        (MCCT)          f_(i) = z_(i) / v_i + b_i        (MCCT-I)

on the raw sorted logits, minimising NLL with SLSQP (100 iterations, tolerance 1e-12) under ``w`` non-decreasing (``v``
non-increasing), ``b`` non-decreasing, ``w, v > 0``; from ``w = linspace(0, 1, m)`` or ``v = 1``, and ``b = 0``; no anchor and
no shrinkage. None of this guarantees the order: a negative logit times a larger weight falls.

With ``top_k`` the objective is truncated: a softmax over the top k alone; predictions scale everything below with the lowest
kept parameters. What becomes of rows whose label lies below is the authors' option ``filter``. False, their default and what
their benchmark runs: such a row adds no loss, but the gradient of ``log sum exp f``, as if it had one, so that SLSQP is given a
gradient that is not that of its objective. True: it is left out.

`MCCT` has the same optimiser as ``solver="slsqp"``, for its own anchored and shrunk objective. It shares no code with the
certified solver, which is tested against it. It breaks ties as the sort does, is dense in the number of ranks, and for a thousand
of them stops at its iteration limit long before the optimum.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from ..arrays import to_numpy
from ..core.cone import RankCone
from ..errors import InputError, OrderWarning, warn
from ..inputs.validation import check_number, check_top_k
from ..solver import Solution
from . import state
from .base import Calibrator

_SMALLEST = 1e-6  # w > 0 and v > 0


class Published(Calibrator):
    """The published procedure. Made by ``MCCT.as_published()`` and ``MCCTInverse.as_published()``.

    Parameters
    ----------
    inverse : bool
        MCCT-I rather than MCCT.
    top_k : int or None
    filter : bool
        Leave out rows whose label lies below the top k; see above. Without ``top_k`` there are none.
    max_iter : int
    tol : float
        SLSQP's ``ftol``.
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    weights_, biases_ : ndarray of shape (m,) or (top_k,)
        By rank, lowest first.
    solution_ : monocal.solver.Solution

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore", category=mc.OrderWarning):
    ...     published = mc.MCCT.as_published().fit(data.values, data.labels)
    >>> published.preserves_order, published.weights_.shape
    (False, (5,))
    """

    _state: ClassVar[state.Rules] = {
        "weights_": state.weights_by_rank,
        "biases_": state.by_rank,
        "inverse_weights_": state.positive,
        "solution_": None,
        "n_iter_": None,
    }

    def __init__(
        self,
        inverse: bool = False,
        top_k: int | None = None,
        filter: bool = False,
        max_iter: int = 100,
        tol: float = 1e-12,
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.inverse = inverse
        self.top_k = top_k
        self.filter = filter
        self.max_iter = max_iter
        self.tol = tol
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        warn(
            "The published procedure works on raw logits and does not guarantee the order of the classes; MCCT() does.",
            OrderWarning,
        )
        masked = np.isinf(logits).any(axis=1)
        if masked.any():
            raise InputError(
                f"X has a class that is not available (-inf) in row {int(masked.argmax())}; the published procedure cannot fit "
                "such rows. Use MCCT(), or leave them out."
            )
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        check_number(self.tol, "tol", above=0)
        n, m = logits.shape
        r = check_top_k(self.top_k, m)
        order = np.argsort(logits, axis=1)
        z = np.take_along_axis(logits, order, axis=1)[:, m - r :].astype(np.float64)
        rank = np.argmax(order == labels[:, None], axis=1) - (m - r)
        kept = rank >= 0 if self.filter else np.full(n, True)
        if not kept.any():
            raise InputError(
                f"filter=True: no label lies among the top {r} classes, so that no row is left. Raise top_k."
            )
        weight = np.ones(n) if weight is None else weight
        scale = np.ones(r) if self.inverse else np.linspace(0.0, 1.0, r)
        weights, biases, self.solution_ = minimize_ranks(
            z[kept],
            rank[kept],
            weight[kept],
            scale=scale,
            inverse=self.inverse,
            n_rows=float(weight[kept].sum()),
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.n_iter_ = self.solution_.n_iter
        self.biases_ = biases
        self.weights_ = weights
        if self.inverse:
            self.inverse_weights_ = 1.0 / weights

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        m, r = logits.shape[1], len(self.weights_)
        weights = np.concatenate([np.full(m - r, self.weights_[0]), self.weights_])
        biases = np.concatenate([np.full(m - r, self.biases_[0]), self.biases_])
        order = np.argsort(logits, axis=1)
        f = np.empty(logits.shape)
        with np.errstate(invalid="ignore"):
            values = np.take_along_axis(logits, order, axis=1) * weights + biases
        np.put_along_axis(f, order, values, axis=1)
        return np.where(np.isinf(logits), -np.inf, f)


def _rank_nll(
    x: np.ndarray, rank: np.ndarray, share: np.ndarray, w: np.ndarray, b: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """NLL of sorted values x (n, r) with labels at ``rank``, weighted by ``share``; its gradients in w and b.

    A negative rank is a label below: no loss, but the gradient of the normaliser, as in the authors' code.
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

    step = np.diff(np.eye(r), axis=0)
    difference = np.block([[sign * step, 0 * step], [0 * step, step]])
    result = minimize(
        objective,
        np.concatenate([scale, np.zeros(r)]),
        jac=True,
        method="SLSQP",
        bounds=[(_SMALLEST, None)] * r + [(None, None)] * r,
        constraints=[{"type": "ineq", "fun": lambda t: difference @ t, "jac": lambda t: difference}][: r - 1],
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


def solve_by_slsqp(problem: RankCone, *, inverse: bool, max_iter: int) -> tuple[np.ndarray, Solution]:
    """The same objective by SLSQP: coefficients as the certified solver gives them, and what happened."""
    rows = problem.rows
    if not rows.in_memory:
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
