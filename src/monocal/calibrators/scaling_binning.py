"""Scaling-binning (Kumar, Liang, Ma, 2019): fit a smooth function first, then give every bin its mean.

    s_j = sigmoid(a_j logit(p_j) + b_j)   or   s = softmax(z / T),        g_j = mean of s_j in its bin.

The bin's value is the mean of the scaled scores, not of the labels: it has the small variance of the scaling and the finite
number of values that makes the calibration error measurable.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from ..arrays import compute_dtype
from ..edges import equal_mass_edges
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, parallel_map
from . import state
from .one_vs_rest import OneVsRestCalibrator, bin_sums
from .probability_map import softmax
from .temperature import best_temperature

_EDGE = 1e-15  # probabilities closer to 0 or 1 than this are taken for this


class ScalingBinning(OneVsRestCalibrator):
    """The marginal calibrator: scale every class, then bin it; rows normalised.

    Parameters
    ----------
    bins : int
        Of equal weight in the calibration set.
    scaling : {"platt", "temperature"}
        A logistic curve for every class, or one temperature for all.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        Interior bin edges of the scaled score, and its mean in each bin.
    slopes_, intercepts_ : ndarray of shape (m,)
        Of the logistic curves, with ``scaling="platt"``.
    temperature_ : float
        With ``scaling="temperature"``.

    Notes
    -----
    All three steps use the whole calibration set, as in the authors' software; their theory splits it.

    References
    ----------
    Kumar, Liang, Ma (2019). Verified uncertainty calibration. NeurIPS.
    Platt (1999). Probabilistic outputs for support vector machines.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.ScalingBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.01, 0.  , 0.97, 0.01]], dtype=float32)
    """

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "slopes_": state.per_class,
        "intercepts_": state.per_class,
    }

    def __init__(
        self,
        *,
        bins: int = 15,
        scaling: str = "platt",
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.bins = bins
        self.scaling = scaling
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.scaling, "scaling", ("platt", "temperature"))
        if self.scaling == "temperature":
            self.temperature_ = best_temperature(logits, labels, weight)
        else:
            p = map_rows(softmax, logits)
            w = np.ones(len(labels)) if weight is None else weight

            def one(k: int) -> tuple[float, float]:
                rows = ~np.isinf(logits[:, k])
                return platt(_log_odds(p[rows, k]), labels[rows] == k, w[rows])

            curves = np.array(parallel_map(one, range(logits.shape[1])))
            self.slopes_, self.intercepts_ = curves[:, 0].copy(), curves[:, 1].copy()
        super()._fit(logits, labels, weight)

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self.scaling == "temperature":
            return softmax(logits.astype(compute_dtype(logits), copy=False) / self.temperature_)
        return expit(self.slopes_ * _log_odds(softmax(logits)) + self.intercepts_)

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edges = equal_mass_edges(p, self.bins, weight)
        scored, mass = bin_sums(p, edges, weight * p, weight)
        return edges, scored / mass


def _log_odds(p: np.ndarray) -> np.ndarray:
    return logit(np.clip(p.astype(np.float64), _EDGE, 1.0 - _EDGE))


def platt(x: np.ndarray, hit: np.ndarray, weight: np.ndarray, max_iter: int = 100) -> tuple[float, float]:
    """Slope and intercept of the logistic curve through ``hit`` (n,) over ``x`` (n,), by Newton's method.

    Platt's targets ``(N+ + 1)/(N+ + 2)`` and ``1/(N- + 2)`` stand for 1 and 0, so the optimum is finite on any data.
    """
    if not len(x):
        return 1.0, 0.0
    positive, negative = float(weight[hit].sum()), float(weight[~hit].sum())
    target = np.where(hit, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    centre, unit = float(np.average(x, weights=weight)), float(x.std()) or 1.0
    u = (x - centre) / unit

    def loss(slope: float, intercept: float) -> float:
        f = slope * u + intercept
        return float(weight @ (np.logaddexp(0.0, f) - target * f))

    slope, intercept = 0.0, float(logit(np.average(target, weights=weight)))
    value = loss(slope, intercept)
    for _ in range(max_iter):
        p = expit(slope * u + intercept)
        r, h = weight * (p - target), weight * p * (1.0 - p)
        gradient = np.array([r @ u, r.sum()])
        if np.abs(gradient).max() <= 1e-9 * weight.sum():
            break
        curvature = np.array([[h @ (u * u), h @ u], [h @ u, h.sum()]]) + 1e-12 * weight.sum() * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        length, new = 1.0, loss(slope - step[0], intercept - step[1])
        while not new <= value - 1e-4 * length * gradient @ step and length > 1e-8:
            length /= 2.0
            new = loss(slope - length * step[0], intercept - length * step[1])
        if not new < value:
            break
        slope, intercept, value = slope - length * step[0], intercept - length * step[1], new
    return slope / unit, intercept - slope * centre / unit
