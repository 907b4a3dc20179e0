"""Temperature scaling (Guo et al., 2017): ``f = z / T``, the cone with one atom.

The likelihood is convex in ``c = 1/T``, so a few Newton steps certify the optimum. The squared error (Brier score) is not
convex and may have several valleys: a grid of scales on a sample of the rows shows them, all rows say which is the lowest, and in
it the root of the exact derivative

    dB/d log c = 2 c sum_n weight_n sum_j (p_j - y_j) p_j (z_j - E_p z)

is the optimum. That it is a stationary point is checked; that no deeper valley lies between two scales of the grid is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from ..arrays import compute_dtype, to_numpy
from ..core.cone import MIN_SCALE, RankCone
from ..core.rows import DOUBLE_BELOW, Rows
from ..errors import InputError, part_of_a_fit
from ..inputs.reader import ArraySource, Source
from ..inputs.validation import check_choice
from ..parallel import parallel_sum, row_slices
from ..solver import Solution, Status
from . import state
from .cone_calibrator import PRIOR_ROWS, ConeCalibrator, warn_if_unfinished
from .rank_map import RankMap

# A sample of so many entries shows the shape of the loss. With many classes it has so many rows, up to the last number
# of entries.
_SAMPLE, _SAMPLE_ROWS, _SAMPLE_MOST = 2**18, 200, 2**25


@dataclass(kw_only=True, eq=False, repr=False)
class TemperatureScaling(ConeCalibrator):
    """Divide all logits by one temperature.

    Parameters
    ----------
    loss : {"nll", "mse"}
        Negative log-likelihood, or the mean squared error of the probabilities (Brier score).
    prior_rows : float
        As in `MCCT`; no part of the squared error.
    input, class_axis, ignore_index
        As in `Calibrator`.
    tol : float
        Largest violation of the optimality conditions to accept; with ``loss="mse"``, largest ``|dB / d log T|``.
    max_iter : int
        Iterations; with ``loss="mse"``, passes over the rows. Fewer than it takes warn.

    Attributes
    ----------
    temperature_ : float
    solution_ : monocal.solver.Solution
        With ``loss="nll"`` the certificate of a global optimum. The squared error is not convex: ``kkt`` then says how stationary
        the point is, ``duality_gap`` is NaN.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1])
    >>> round(cal.temperature_, 3)
    1.396
    """

    _variants: ClassVar = {"TS": {}, "TS MSE": {"loss": "mse"}}
    preserves_ranking: ClassVar[bool] = True

    _state: ClassVar[state.Rules] = {"temperature_": state.positive}

    loss: str = "nll"
    prior_rows: float = PRIOR_ROWS
    tol: float = 1e-6
    max_iter: int = 100

    @property
    def _streams(self) -> bool:  # type: ignore[override]  # it depends on the loss
        return self.loss != "mse"  # the search over scales reads the rows too often

    def _preparation(self) -> dict[str, Any]:
        return {"ordered": False}

    def _fit_source(self, source: Source) -> None:
        check_choice(self.loss, "loss", ("nll", "mse"))
        if self.loss == "nll":
            super()._fit_source(source)
            return
        self._check_solver_parameters()
        assert isinstance(source, ArraySource)
        rows = source.checked
        weight = None if rows.weight is None else to_numpy(rows.weight)
        arrays = to_numpy(rows.logits), to_numpy(rows.labels), weight
        self.solution_ = _least_brier_scale(*arrays, self.tol, self.max_iter)
        self.n_iter_ = self.solution_.n_iter
        warn_if_unfinished(self, self.solution_)
        scale = self.solution_.coefficients[:1]
        self.temperature_ = 1.0 / float(scale[0])
        self.rank_map_ = RankMap(np.array([0]), scale[None], np.zeros((1, 1)))

    def _fit_rows(self, rows: Rows, all_classes: bool) -> None:
        allowed = np.zeros((2, 1, rows.n_ranks), dtype=bool)
        allowed[0, 0, 0] = True
        problem = RankCone(rows, allowed, prior_rows=self.prior_rows)
        solution = self._solve(problem, 0.0)
        self.temperature_ = 1.0 / float(solution.coefficients[0])
        self.rank_map_ = RankMap.from_grid(problem.grid(solution.coefficients)[:, :, :1])


@part_of_a_fit()
def best_temperature(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None, loss: str = "nll"
) -> float:
    """The temperature that another method begins or ends with."""
    return TemperatureScaling(loss=loss, prior_rows=0).fit(logits, labels, weight).temperature_


def last_scale(calibrated: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> float:
    """The scale that is best after another method; 1 where that has left logits in no unit that can be fitted."""
    try:
        return 1.0 / best_temperature(calibrated, labels, weight)
    except InputError:
        return 1.0


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

    value, slope = parallel_sum(one, row_slices(logits))
    return float(value), float(slope)


def _least_brier_scale(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None, tol: float, max_iter: int
) -> Solution:
    """The scale ``c = 1/T`` with the smallest Brier score: stationary to ``tol``, after ``max_iter`` passes at most."""
    weight = np.ones(len(labels)) if weight is None else weight
    weight = weight / weight.sum()
    if logits.size <= DOUBLE_BELOW:
        logits = logits.astype(np.float64, copy=False)
    n, m = logits.shape
    rows = max(_SAMPLE // m, min(_SAMPLE_ROWS, _SAMPLE_MOST // m), 1)
    thin = slice(None, None, max(1, n // rows))
    sample = logits[thin].astype(np.float64), labels[thin], weight[thin]
    grid = _scales(sample[0])

    @cache
    def on_sample(log_scale: float) -> tuple[float, float]:
        return brier_scale(*sample, np.exp(log_scale))

    @cache
    def on_all(log_scale: float) -> tuple[float, float]:
        return brier_scale(logits, labels, weight, np.exp(log_scale))

    def slope(log_scale: float) -> float:
        """``dB / d log c``, where it matters."""
        derivative = np.exp(log_scale) * on_all(log_scale)[1]
        return derivative if abs(derivative) > tol else 0.0

    values = np.array([on_sample(x)[0] for x in grid])
    edge = [np.inf]
    low = grid[(values <= np.append(values[1:], edge)) & (values < np.append(edge, values[:-1]))]
    starts = [_valley(lambda x: on_sample(x)[1], x, 0.3, grid, 100) for x in low]
    judge = on_all if 1 < len(starts) < max_iter else on_sample
    start = min(starts, key=lambda x: judge(x)[0])
    spent = on_all.cache_info().currsize
    left = max_iter - spent + (spent > 0)  # what is known of the start costs no pass
    best = _valley(slope, start, 0.02, grid, left)
    value, derivative = on_all(best)
    n_iter, kkt = on_all.cache_info().currsize, float(abs(derivative) * np.exp(best))
    if best == (grid[-1] if derivative < 0 else grid[0]):
        status, kkt = Status.LAST_SCALE, 0.0
    else:
        status = Status.ITERATIONS if n_iter >= max_iter else Status.STALLED
        status = Status.STATIONARY if kkt <= tol else status
    return Solution(
        coefficients=np.exp([best]),
        converged=kkt <= tol,
        status=status,
        kkt=kkt,
        duality_gap=float("nan"),
        objective=value,
        n_iter=n_iter,
    )


def _scales(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the scales to look at: from next to no difference in a high row to a large one in a low row."""
    with np.errstate(over="ignore"):
        height = np.ptp(np.where(np.isinf(logits), logits.max(axis=1, keepdims=True), logits), axis=1)
    height = np.minimum(height[height > 0], 1e100)
    low, high = np.quantile(height, (0.02, 0.98)) if len(height) else (1.0, 1.0)
    first = max(1e-3 / high, MIN_SCALE / max(high, 1.0))
    last = min(1e3 / low, 1e12 * first)
    return np.linspace(np.log(first), np.log(last), int(4 * np.log10(last / first)) + 2)


def _valley(
    slope: Callable[[float], float], x: float, step: float, grid: np.ndarray, max_calls: int
) -> float:
    """Walk downhill from ``x`` until the slope changes sign, and find the root there; or stop at an end of the grid."""
    here, calls = slope(x), 1
    while here != 0 and calls < max_calls:
        further = float(np.clip(x - np.sign(here) * step, grid[0], grid[-1]))
        if further == x:
            break
        there, calls = slope(further), calls + 1
        if np.sign(there) != np.sign(here):  # their product may underflow
            left = max_calls - calls
            return float(brentq(slope, x, further, xtol=1e-14, maxiter=left, disp=False)) if left else further
        x, here, step = further, there, 2.0 * step
    return x
