"""MCCT and MCCT-I: weights and biases by rank, non-decreasing (Zhang, Batista, Kanhere, 2025).

    f_(i) = w_i u_(i) + b_i,     0 < w_1 <= ... <= w_m,   b_1 <= ... <= b_m,      u_(i) = z_(i) - z_(1) >= 0.

On the anchored ``u`` the map is monotone term by term (on raw logits, as published, it is not: a negative logit times a
larger weight falls). Written by increments, ``w = cumsum(dw)``, ``b = cumsum(db)``, it is a cone of atoms and the likelihood is
convex, so the optimum is certified. MCCT-I is the same map written ``u / v + b``, ``v = 1/w``: one optimum, two ways to
report it.

`Published` is the paper's own procedure, for comparison: the raw sorted logits and SLSQP. It is dense in the number of ranks,
breaks ties as the sort does, and for a thousand ranks stops long before the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from ..core.rows import Rows
from ..errors import InputError, OrderWarning, warn
from ..inputs.validation import check_number, check_top_k
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
    tol: float = 1e-6
    max_iter: int = 100

    @classmethod
    def as_published(cls, top_k: int | None = None, filter: bool = False) -> Published:
        """What the paper's authors ran: raw logits, SLSQP with 100 iterations, its top-k. It does not keep the order.

        ``filter`` is theirs: with ``top_k``, True leaves out rows whose label lies below the top k; False, their default and
        what their benchmark runs, keeps them in the gradient but not in the loss.
        """
        return Published(inverse=cls._inverse, top_k=top_k, filter=filter)

    def _fit_rows(self, rows: Rows, all_classes: bool) -> None:
        allowed = np.ones((2, 1, rows.n_ranks), dtype=bool)
        allowed[1, 0, 0] = False  # a bias on every rank is a shift, which softmax does not see
        problem = self._problem(rows, allowed, self._plain_scale(rows))
        grid = problem.grid(self._solve(problem, self.shrinkage).coefficients)
        self._set_parameters(grid)
        self.rank_map_ = RankMap.from_grid(grid, top_k=self.top_k)

    def _set_parameters(self, grid: np.ndarray) -> None:
        self.weights_, self.biases_ = np.cumsum(grid[:, 0], axis=1)


class MCCTInverse(MCCT):
    """MCCT-I: the same map as `MCCT`, reported with inverse weights ``v = 1/w`` (by-rank temperatures).

    Parameters
    ----------
    top_k, shrinkage, prior_rows, input, class_axis, ignore_index, tol, max_iter
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

    _variants: ClassVar = {"MCCT-I": {}}
    _inverse: ClassVar[bool] = True

    _state: ClassVar[state.Rules] = {"inverse_weights_": state.positive}

    def _set_parameters(self, grid: np.ndarray) -> None:
        super()._set_parameters(grid)
        self.inverse_weights_ = 1.0 / self.weights_


# The published procedure and its optimiser.

_SMALLEST = 1e-6  # w > 0 and v > 0


@dataclass(kw_only=True, eq=False, repr=False)
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
    filter : bool
        Leave out rows whose label lies below the top k. False, as the authors' benchmark: such a row adds no loss, but the
        gradient of ``log sum exp f``, as if it had one.
    tol : float
        SLSQP's ``ftol``.
    top_k, max_iter, input, class_axis, ignore_index
        As in `MCCT`.

    References
    ----------
    Zhang, Batista, Kanhere (2025). Instance-wise monotonic calibration by constrained transformation. UAI.

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

    _variants: ClassVar = {"MCCT published": {}, "MCCT-I published": {"inverse": True}}

    _state: ClassVar[state.Rules] = {
        "weights_": state.weights_by_rank,
        "biases_": state.by_rank,
        "inverse_weights_": state.positive,
        "solution_": None,
        "n_iter_": None,
    }

    inverse: bool = False
    top_k: int | None = None
    filter: bool = False
    max_iter: int = 100
    tol: float = 1e-12

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
            raise InputError(f"filter=True: no label lies among the top {r} classes. Raise top_k.")
        weight = np.ones(n) if weight is None else weight
        self._minimize(z[kept], rank[kept], weight[kept] / weight[kept].sum())

    def _minimize(self, z: np.ndarray, rank: np.ndarray, share: np.ndarray) -> None:
        """SLSQP for sorted logits (n, r) with labels at ``rank``, negative below the top r, which weigh ``share``."""
        r, rows = z.shape[1], np.flatnonzero(rank >= 0)
        at = rows, rank[rows]

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            w = 1.0 / theta[:r] if self.inverse else theta[:r]
            f = z * w + theta[r:]
            log_total = logsumexp(f, axis=1)
            residual = np.exp(f - log_total[:, None])
            residual[at] -= 1.0
            residual *= share[:, None]
            dw = (residual * z).sum(axis=0) * (-(w**2) if self.inverse else 1.0)
            return float(share[rows] @ (log_total[rows] - f[at])), np.append(dw, residual.sum(axis=0))

        step = np.diff(np.eye(r), axis=0)
        rises = np.kron(np.diag([-1.0 if self.inverse else 1.0, 1.0]), step)
        result = minimize(
            objective,
            np.append(np.ones(r) if self.inverse else np.linspace(0.0, 1.0, r), np.zeros(r)),
            jac=True,
            method="SLSQP",
            bounds=[(_SMALLEST, None)] * r + [(None, None)] * r,
            constraints=[{"type": "ineq", "fun": lambda t: rises @ t, "jac": lambda t: rises}][: r - 1],
            options={"maxiter": self.max_iter, "ftol": self.tol},
        )
        stopped = "" if result.success else "stopped: "
        self.solution_ = Solution(
            coefficients=result.x,
            converged=bool(result.success),
            status=f"{stopped}slsqp says {result.message!r}",
            kkt=float("nan"),
            duality_gap=float("nan"),
            objective=float(result.fun),
            n_iter=int(result.nit),
        )
        self.n_iter_ = self.solution_.n_iter
        scale = np.maximum(result.x[:r], _SMALLEST)
        self.weights_, self.biases_ = (1.0 / scale if self.inverse else scale), result.x[r:]
        if self.inverse:
            self.inverse_weights_ = 1.0 / self.weights_

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        below = (logits.shape[1] - len(self.weights_), 0)
        order = np.argsort(logits, axis=1)
        with np.errstate(invalid="ignore"):
            values = np.take_along_axis(logits, order, axis=1) * np.pad(self.weights_, below, mode="edge")
            values += np.pad(self.biases_, below, mode="edge")
        f = np.empty(logits.shape)
        np.put_along_axis(f, order, values, axis=1)
        return np.where(np.isinf(logits), -np.inf, f)
