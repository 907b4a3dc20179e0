"""Temperature scaling (Guo et al., 2017): ``f = z / T``, the cone with one atom.

The likelihood is convex in ``c = 1/T``, so a few Newton steps certify the optimum. The squared error (Brier score) is not
convex: a grid on a sample of the rows finds the valley, and the root of the exact derivative

    dB/dc = 2 sum_n weight_n sum_j (p_j - y_j) p_j (z_j - E_p z)

in it is the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.optimize import brentq

from ..arrays import Array, compute_dtype, to_numpy
from ..errors import InputError
from ..objective.problem import MIN_SCALE, RankCone
from ..objective.sources import RowSource
from ..solver import Solution
from ..validation import check_choice
from .cone_map import _DOUBLE_BELOW as DOUBLE_BELOW
from .cone_map import ConeCalibrator
from .rank_map import RankMap
from .row_blocks import sum_rows

# Entries that are enough to see the shape of the loss.
_SAMPLE = 2**18


class TemperatureScaling(ConeCalibrator):
    """Divide all logits by one temperature.

    Parameters
    ----------
    loss : {"nll", "mse"}
        Negative log-likelihood, or the mean squared error of the probabilities (Brier score).
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

    def __init__(self, *, loss: str = "nll", input: str = "logits", tol: float = 1e-6, max_iter: int = 100):
        self.loss = loss
        self.input = input
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, logits: Array, labels: Array, weight: Array | None) -> None:
        check_choice(self.loss, "loss", ("nll", "mse"))
        self._check_solver_parameters()
        if self.loss == "mse":
            if isinstance(logits, RowSource):
                raise InputError(
                    "loss='mse' needs all rows in memory: pass arrays, or use loss='nll', which reads them in parts."
                )
            self._fit_brier(to_numpy(logits), to_numpy(labels), None if weight is None else to_numpy(weight))
            return
        rows = self._rows(logits, labels, weight)
        allowed = np.zeros((2, 1, rows.n_ranks), dtype=bool)
        allowed[0, 0, 0] = True
        problem = RankCone(rows, allowed, tol=self.tol)
        solution = self._solve(problem, 0.0)
        self.temperature_ = 1.0 / float(solution.coefficients[0])
        self.rank_map_ = RankMap.from_grid(problem.grid(solution.coefficients)[:, :, :1])

    def _fit_brier(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        self.solution_ = least_brier_scale(logits, labels, weight)
        self.n_iter_ = self.solution_.n_iter
        scale = self.solution_.coefficients[:1]
        self.temperature_ = 1.0 / float(scale[0])
        self.rank_map_ = RankMap(np.array([0]), scale[None], np.zeros((1, 1)))


def brier_scale(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray, scale: float
) -> tuple[float, float]:
    """Brier score ``sum_n weight_n |softmax(scale z_n) - y_n|^2`` and its derivative in ``scale``."""

    def one(block: slice) -> np.ndarray:
        z, y, w = logits[block], labels[block], weight[block]
        masked = np.isinf(z)
        with np.errstate(over="ignore", under="ignore"):
            depth = z.astype(compute_dtype(z), copy=False) - z.max(axis=1, keepdims=True)
            depth[masked] = 0.0
            p = np.exp(np.maximum(depth * depth.dtype.type(scale), -700.0))
            p[masked] = 0.0
            p /= p.sum(axis=1, keepdims=True)
            p_depth = p * depth
            at = (np.arange(len(y)), y)
            square = np.vecdot(p, p) - 2.0 * p[at] + 1.0
            mean = p_depth.sum(axis=1)
            slope = 2.0 * (np.vecdot(p, p_depth) - p_depth[at] - mean * (np.vecdot(p, p) - p[at]))
        return np.array([w @ square, w @ slope])

    value, slope = sum_rows(one, logits)
    return float(value), float(slope)


def least_brier_scale(logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> Solution:
    """The scale ``c = 1/T`` with the smallest Brier score."""
    weight = np.ones(len(labels)) if weight is None else weight
    weight = weight / weight.sum()
    double = logits.size <= DOUBLE_BELOW
    if double:
        logits = logits.astype(np.float64, copy=False)

    @cache
    def slope(log_scale: float) -> float:
        return np.exp(log_scale) * brier_scale(logits, labels, weight, np.exp(log_scale))[1]

    thin = slice(None, None, max(1, logits.size // _SAMPLE))
    sample = logits[thin].astype(np.float64), labels[thin], weight[thin]

    def sample_slope(log_scale: float) -> float:
        return brier_scale(*sample, np.exp(log_scale))[1]

    with np.errstate(over="ignore"):
        height = np.ptp(
            np.where(np.isinf(sample[0]), sample[0].max(axis=1, keepdims=True), sample[0]), axis=1
        )
    typical = min(float(np.median(height)), 1e100) or 1.0
    grid = np.maximum(np.log(np.geomspace(1e-3, 1e3, 25) / typical), np.log(MIN_SCALE / max(typical, 1.0)))
    ends = grid[0], grid[-1]
    start = grid[int(np.argmin([brier_scale(*sample, np.exp(c))[0] for c in grid]))]
    start = _valley(sample_slope, start, 0.3, ends, 1e-6)
    scale = np.exp(_valley(slope, start, 0.02, ends, 1e-10 if double else 1e-6))
    value, derivative = brier_scale(logits, labels, weight, scale)
    return Solution(
        coefficients=np.array([scale]),
        converged=True,
        status="converged: a stationary point, the lowest of those a sample has shown (this loss is not convex)",
        kkt=float(abs(derivative) * scale),
        duality_gap=float("nan"),
        objective=value,
        n_iter=slope.cache_info().misses,
    )


def _valley(
    slope: Callable[[float], float], x: float, step: float, ends: tuple[float, float], xtol: float
) -> float:
    """Walk downhill from ``x`` until the slope changes sign, and find the root there; or stop at an end."""
    here = slope(x)
    while here != 0:
        further = float(np.clip(x - np.sign(here) * step, *ends))
        if further == x:
            break
        if np.sign(slope(further)) != np.sign(here):
            return float(brentq(slope, x, further, xtol=xtol))
        x, step = further, 2.0 * step
    return x
