"""The conditional family: rank weights and biases that depend on the sample, still convex, still order-preserving.

    f_(i) = w_i(z) u_(i) + b_i(z),      w_i(z) = sum_k psi_k(z) sum_{s <= i} c[scale, k, s],    b_i likewise,   c >= 0.

``psi_0 = 1`` is MCCT. The other ``psi_k >= 0`` are hinges of statistics of the sorted logits (see `hinges`, `statistics`): a
sample with a small margin may be scaled, and its ranks shifted, otherwise than one with a large margin. Within one sample
the ``psi_k`` are constants, so weights and biases still grow with the rank, and the order stands whatever the factors
are. In ``c`` the likelihood is convex as ever, so the optimum is certified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, to_numpy
from ..errors import InputError
from ..objective.kernel import BIAS, SCALE
from ..objective.problem import RankCone
from ..validation import check_number
from .cone_map import ConeCalibrator
from .hinges import HingeFactors, choose_hinges, statistic_functions
from .rank_map import RankMap
from .statistics import STATISTICS


class ConditionalMCCT(ConeCalibrator):
    """MCCT whose weights and biases depend on the sample through statistics of its sorted logits."""

    def __init__(
        self,
        *,
        statistics: Sequence[str | Callable[[Array], Any]] = ("margin", "mean_gap"),
        n_knots: int = 7,
        shrinkage: float | str = 1.0,
        emphasis: float = 3.0,
        top_k: int | None = None,
        input: str = "logits",
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.statistics = statistics
        self.n_knots = n_knots
        self.shrinkage = shrinkage
        self.emphasis = emphasis
        self.top_k = top_k
        self.input = input
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, logits: Array, labels: Array, weight: Array | None) -> None:
        self._check_solver_parameters(logits.shape[1])
        check_number(self.n_knots, "n_knots", least=1, whole=True)
        check_number(self.emphasis, "emphasis", least=0)
        statistics = _check_statistics(self.statistics)
        rows = self._rows(logits, labels, weight, statistics=statistic_functions(statistics))
        weights = np.concatenate([to_numpy(b.weight) for b in rows.blocks]).astype(np.float64)
        hinges = choose_hinges(rows.statistics(), weights, self.n_knots) if statistics else ()
        factors = HingeFactors(statistics, hinges)
        if hinges:
            rows = rows.with_factors(factors.of_statistics)
        problem = RankCone(
            rows,
            dictionary(factors.n_factors, rows.n_ranks),
            emphasis=np.where(np.arange(factors.n_factors) > 0, self.emphasis, 1.0)[None, :, None],
            tol=self.tol,
        )
        grid = problem.grid(self._solve(problem, self.shrinkage).coefficients)
        self.factors_ = factors
        self.coefficients_ = grid
        self.rank_map_ = RankMap.from_grid(grid, top_k=self.top_k, factors=factors if hinges else None)


def dictionary(n_factors: int, n_ranks: int) -> np.ndarray:
    """Which atoms (kind, factor, start) there are: all rank atoms; conditional scales of all ranks; conditional biases."""
    allowed = np.ones((2, n_factors, n_ranks), dtype=bool)
    allowed[BIAS, :, 0] = False  # a bias on every rank is a shift, which softmax does not see
    allowed[SCALE, 1:, 1:] = False
    return allowed


def _check_statistics(given: Any) -> tuple[str | Callable[[Array], Any], ...]:
    if isinstance(given, str) or callable(given):
        given = (given,)
    try:
        statistics = tuple(given)
    except TypeError:
        raise InputError(f"statistics must be a sequence of names or functions, but is {given!r}.") from None
    for s in statistics:
        if not callable(s) and s not in STATISTICS:
            raise InputError(
                f"statistics: {s!r} is not known. Use {', '.join(map(repr, STATISTICS))} or a function of the sorted, "
                "anchored logits (n, m) that returns one number a row."
            )
    return statistics
