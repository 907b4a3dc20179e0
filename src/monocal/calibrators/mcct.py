"""MCCT and MCCT-I: weights and biases by rank, non-decreasing (Zhang, Batista, Kanhere, 2025).

    f_(i) = w_i u_(i) + b_i,     0 < w_1 <= ... <= w_m,   b_1 <= ... <= b_m,      u_(i) = z_(i) - z_(1) >= 0.

On the anchored ``u`` the map is monotone term by term (on raw logits, as published, it is not: a negative logit times a
larger weight falls). Written by increments, ``w = cumsum(dw)``, ``b = cumsum(db)``, it is a cone of atoms and the likelihood is
convex, so the optimum is certified. MCCT-I is the same map written ``u / v + b``, ``v = 1/w``: one optimum, two ways to
report it.

`Published` is the paper's own procedure, for comparison: the raw sorted logits and SLSQP. ``MCCT(solver="slsqp")`` has its
optimiser for the anchored and shrunk objective. It shares no code with the certified solver, which is tested against it. It
breaks ties as the sort does, is dense in the number of ranks, and for a thousand of them stops long before the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from ..arrays import to_numpy
from ..core.cone import RankCone
from ..core.rows import Rows
from ..errors import InputError, OrderWarning, warn
from ..inputs.validation import check_choice, check_number, check_top_k
from ..solver import Solution
from . import state
from .base import Calibrator
from .cone_calibrator import PRIOR_ROWS, ConeCalibrator
from .rank_map import RankMap


@dataclass(kw_only=True, eq=False, repr=False)
class MCCT(ConeCalibrator):
    """Monotonic calibration by constrained transformation: scale and shift the logits by rank.

    Parameters
    ----------
    top_k : int or None
        Ranks with parameters of their own, counted from the top. The ranks below share the lowest one's, in fitting as in
        predicting, and stay in the normaliser. At most the number of classes; None: all.
    shrinkage : float or "cv"
        Pull towards temperature scaling, in units of what the rows can tell (see `core.engine.Information`): with
        ``prior_rows=0`` 0 is the paper's objective, large values give temperature scaling; "cv" chooses by cross-validation.
    prior_rows : float
        Every label gives a share ``prior_rows / (N + prior_rows)`` of itself to the classifier's own probabilities, as if so many
        more rows had been seen, labelled by the classifier itself. It keeps a few rows that are all right from making
        everything certain, and is lost among thousands; 0 is the plain likelihood.
    input, class_axis, ignore_index
        As in `Calibrator`.
    solver : {"newton", "slsqp"}
        The certified solver, or the paper's (same objective, slow, stops early).
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int

    Attributes
    ----------
    weights_, biases_ : ndarray of shape (m,) or (top_k,)
        By rank, lowest logit first.
    solution_ : monocal.solver.Solution
        With the certificate: ``converged``, ``kkt``, ``duality_gap``.
    shrinkage_ : float
        The strength used.
    passes_ : int
        How often files or blocks were read; 1 for arrays in memory, and for Dask arrays, where it is not counted.

    References
    ----------
    Zhang, Batista, Kanhere (2025). Instance-wise monotonic calibration by constrained transformation. UAI.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 10, seed=0)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> cal.solution_.converged
    True
    >>> bool((cal.predict(data.values) == data.values.argmax(axis=1)).all())
    True
    """

    _inverse: ClassVar[bool] = False

    preserves_ranking: ClassVar[bool] = True

    _state: ClassVar[state.Rules] = {
        "weights_": state.weights_by_rank,
        "biases_": state.by_rank,
    }

    top_k: int | None = None
    shrinkage: float | str = 5.0
    prior_rows: float = PRIOR_ROWS
    solver: str = "newton"
    tol: float = 1e-6
    max_iter: int = 100

    @classmethod
    def as_published(cls, top_k: int | None = None, filter: bool = False) -> Published:
        """What the paper's authors ran: raw logits, SLSQP with 100 iterations, its top-k. It does not keep the order.

        ``filter`` is theirs: with ``top_k``, True leaves out rows whose label lies below the top k; False, their default and
        what their benchmark runs, keeps them in the gradient but not in the loss.
        """
        return Published(inverse=cls._inverse, top_k=top_k, filter=filter)

    def _fit_rows(self, rows: Rows) -> None:
        check_choice(self.solver, "solver", ("newton", "slsqp"))
        allowed = np.ones((2, 1, rows.n_ranks), dtype=bool)
        allowed[1, 0, 0] = False  # a bias on every rank is a shift, which softmax does not see
        problem = self._problem(rows, allowed, self._plain_scale(rows))
        if self.solver == "slsqp":
            coefficients = self._solve_slsqp(problem)
        else:
            coefficients = self._solve(problem, self.shrinkage).coefficients
        grid = problem.grid(coefficients)
        self._set_parameters(grid)
        self.rank_map_ = RankMap.from_grid(grid, top_k=self.top_k)

    def _solve_slsqp(self, problem: RankCone) -> np.ndarray:
        if isinstance(self.shrinkage, str):
            raise InputError("solver='slsqp' needs shrinkage as a number; 'cv' goes with solver='newton'.")
        check_number(self.shrinkage, "shrinkage", least=0)
        shrunk = problem.with_strength(self.shrinkage, self.tol)
        coefficients, solution = solve_by_slsqp(shrunk, inverse=self._inverse, max_iter=self.max_iter)
        self._keep(solution, self.shrinkage)
        return coefficients

    def _set_parameters(self, grid: np.ndarray) -> None:
        self.weights_, self.biases_ = np.cumsum(grid[:, 0], axis=1)


class MCCTInverse(MCCT):
    """MCCT-I: the same map as `MCCT`, reported with inverse weights ``v = 1/w`` (by-rank temperatures).

    Parameters
    ----------
    top_k, shrinkage, prior_rows, input, solver, tol, max_iter
        As in `MCCT`.

    Attributes
    ----------
    inverse_weights_ : ndarray
        By-rank temperatures, non-increasing.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.MCCTInverse().fit(data.values, data.labels)
    >>> cal.inverse_weights_.round(2)
    array([1.97, 1.97, 1.97, 1.97, 1.97])
    >>> cal.solution_.converged
    True
    """

    _inverse: ClassVar[bool] = True

    _state: ClassVar[state.Rules] = {"inverse_weights_": state.positive}

    def _set_parameters(self, grid: np.ndarray) -> None:
        super()._set_parameters(grid)
        self.inverse_weights_ = 1.0 / self.weights_


# The published procedure and its optimiser.

_SMALLEST = 1e-6  # w > 0 and v > 0


class Published(Calibrator):
    """The published procedure, made by ``MCCT.as_published()`` and ``MCCTInverse.as_published()``. It does not keep the order.

        f_(i) = w_i z_(i) + b_i        (MCCT)          f_(i) = z_(i) / v_i + b_i        (MCCT-I)

    on the raw sorted logits: NLL by SLSQP under ``w`` non-decreasing (``v`` non-increasing), ``b`` non-decreasing, ``w, v > 0``;
    from ``w = linspace(0, 1, m)`` or ``v = 1``, and ``b = 0``; no anchor and no shrinkage. With ``top_k`` the objective is a
    softmax over the top k alone, and everything below is scaled with the lowest kept parameters.

    Parameters
    ----------
    inverse : bool
        MCCT-I rather than MCCT.
    top_k : int or None
    filter : bool
        What becomes of rows whose label lies below the top k. True: they are left out. False, the default of the authors and
        what their benchmark runs: such a row adds no loss, but the gradient of ``log sum exp f``, as if it had one.
    max_iter : int
    tol : float
        SLSQP's ``ftol``.
    class_axis, ignore_index
        As in `Calibrator`.

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
