"""Temperature scaling (Guo et al., 2017): ``f = z / T``, the cone with one atom.

The likelihood is convex in ``c = 1/T``, so a few Newton steps certify the optimum.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..objective.problem import RankCone
from .cone_map import ConeCalibrator
from .rank_map import RankMap


class TemperatureScaling(ConeCalibrator):
    """Divide all logits by one temperature.

    Parameters
    ----------
    input : {"logits", "probabilities"}
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int

    Attributes
    ----------
    temperature_ : float
    solution_ : monocal.solver.Solution

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1])
    >>> round(cal.temperature_, 3)
    2.885
    """

    def __init__(self, *, input: str = "logits", tol: float = 1e-6, max_iter: int = 100):
        self.input = input
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, logits: Array, labels: Array, weight: Array | None) -> None:
        self._check_solver_parameters(logits.shape[1])
        rows = self._rows(logits, labels, weight)
        allowed = np.zeros((2, 1, rows.n_ranks), dtype=bool)
        allowed[0, 0, 0] = True
        problem = RankCone(rows, allowed, tol=self.tol)
        solution = self._solve(problem, 0.0)
        self.temperature_ = 1.0 / float(solution.coefficients[0])
        self.rank_map_ = RankMap.from_grid(problem.grid(solution.coefficients)[:, :, :1])
