"""Spline calibration of the top class (Gupta et al., 2021): fit the cumulative error, differentiate.

With ``s_1 <= ... <= s_n`` the top probabilities in order, at quantiles ``t_i = i / n``, the running sum

    D(t_i) = 1/n sum_{k <= i} (correct_k - s_k)

is smooth where a histogram is not. A natural cubic spline is fitted to it by least squares, and the calibrated top
probability is ``s + D'(t(s))``. The other classes share the rest in proportion to what they had.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.interpolate import CubicSpline

from ..inputs.validation import check_number
from ..parallel import map_rows
from . import state
from .probability_map import ProbabilityCalibrator, normalise, softmax

_TABLE = 512  # points at which the calibrated probability is kept
# A probability of exactly 0 or 1 for the top class would claim more than any sample can show.
_CAUTION = 1e-6


class SplineCalibration(ProbabilityCalibrator):
    """KS-spline recalibration of the most probable class.

    Parameters
    ----------
    knots : int
        Of the natural cubic spline, evenly spaced in quantiles.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    scores_, values_ : ndarray
        Broken line from the given to the calibrated top probability.

    Notes
    -----
    The other classes keep their proportions, and so their order among themselves. The top class may fall below the second
    where its probability is corrected below about a half, so neither the order nor the top class is guaranteed. Classes tied
    for the top are treated alike.

    References
    ----------
    Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021). Calibration of neural networks using splines. ICLR.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.SplineCalibration().fit(data.values, data.labels)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.  , 0.01, 0.98, 0.  ]], dtype=float32)
    """

    _state: ClassVar[state.Rules] = {
        "scores_": state.rising,
        "values_": state.probabilities_at("scores_"),
    }

    def __init__(
        self,
        *,
        knots: int = 6,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.knots = knots
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.knots, "knots", least=2, most=1000, whole=True)
        weight = np.ones(len(labels)) if weight is None else weight
        score = map_rows(lambda z: softmax(z, np.float64).max(axis=1), logits)
        # Among classes tied for the top, the label is the top with equal chances.
        tied = map_rows(lambda z: (z == z.max(axis=1, keepdims=True)).sum(axis=1), logits)
        at_label = logits[np.arange(len(labels)), labels] == logits.max(axis=1)
        correct = np.where(at_label, 1.0 / tied, 0.0)
        # Equal scores are one point, so that neither their order nor repeats of a row matter.
        score, group = np.unique(score, return_inverse=True)
        mass = np.bincount(group, weight)
        error = np.bincount(group, weight * correct) - mass * score
        total = mass.sum()
        quantile, running = np.cumsum(mass) / total, np.cumsum(error) / total
        slope = natural_spline_slope(quantile, running, mass, self.knots)
        middle = quantile - mass / total / 2.0
        if len(score) > _TABLE:
            chosen = np.interp(np.linspace(middle[0], middle[-1], _TABLE), middle, np.arange(len(score)))
            chosen = np.unique(np.round(chosen).astype(np.intp))
            score, middle = score[chosen], middle[chosen]
        self.scores_ = score
        self.values_ = np.clip(score + slope(middle), _CAUTION, 1.0 - _CAUTION)

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        p = softmax(logits, np.float64)
        top = logits == logits.max(axis=1, keepdims=True)
        tied = top.sum(axis=1, keepdims=True)
        highest = np.interp(p.max(axis=1), self.scores_, self.values_)[:, None]
        highest = np.minimum(highest, (1.0 - _CAUTION) / tied)
        rest = np.where(top, 0.0, p)
        left = rest.sum(axis=1, keepdims=True)
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            q = np.where(top, highest, rest / left * (1.0 - tied * highest))
        return normalise(np.where(left > 0, q, top), p, ~np.isinf(logits))


def natural_spline_slope(t: np.ndarray, values: np.ndarray, weight: np.ndarray, knots: int) -> CubicSpline:
    """Derivative of the natural cubic spline on [0, 1] that fits ``values`` at ``t`` best in weighted squares.

    Its value at 0 is held at 0, where a running sum starts.
    """
    at = np.linspace(0.0, 1.0, knots)
    basis = CubicSpline(at, np.eye(knots), bc_type="natural")
    root = np.sqrt(weight / weight.sum())
    height = np.zeros(knots)
    height[1:] = np.linalg.lstsq(basis(t)[:, 1:] * root[:, None], values * root, rcond=None)[0]
    return CubicSpline(at, height, bc_type="natural").derivative()
