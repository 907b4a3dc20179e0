"""MCCT and MCCT-I: weights and biases by rank, non-decreasing (Zhang, Batista, Kanhere, 2025).

    f_(i) = w_i u_(i) + b_i,     0 < w_1 <= ... <= w_m,   b_1 <= ... <= b_m,      u_(i) = z_(i) - z_(1) >= 0.

On the anchored ``u`` the map is monotone term by term (on raw logits, as published, it is not: a negative logit times a
larger weight falls). Written by increments, ``w = cumsum(dw)``, ``b = cumsum(db)``, it is a cone of atoms and the likelihood is
convex, so the optimum is certified. MCCT-I is the same map written ``u / v + b``, ``v = 1/w``: one optimum, two ways to
report it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..core.cone import RankCone
from ..core.rows import Rows
from ..errors import InputError
from ..inputs.validation import check_choice, check_number
from . import state
from .cone_calibrator import PRIOR_ROWS, ConeCalibrator
from .published import Published, solve_by_slsqp
from .rank_map import RankMap


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
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.
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

    _inverse = False

    preserves_ranking = True

    _state: ClassVar[state.Rules] = {
        "weights_": state.weights_by_rank,
        "biases_": state.by_rank,
    }

    def __init__(
        self,
        *,
        top_k: int | None = None,
        shrinkage: float | str = 5.0,
        prior_rows: float = PRIOR_ROWS,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
        solver: str = "newton",
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.top_k = top_k
        self.shrinkage = shrinkage
        self.prior_rows = prior_rows
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

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

    _inverse = True

    _state: ClassVar[state.Rules] = {"inverse_weights_": state.positive}

    def _set_parameters(self, grid: np.ndarray) -> None:
        super()._set_parameters(grid)
        self.inverse_weights_ = 1.0 / self.weights_
