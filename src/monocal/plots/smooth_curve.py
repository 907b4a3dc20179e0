"""A reliability curve without bins: kernel regression of "right or not" on the confidence, with its band.

    accuracy(t) = sum_i w_i y_i K(t, c_i) / sum_i w_i K(t, c_i)

K is a Gaussian reflected at 0 and 1, as wide as the SmoothECE, so that no width has to be chosen: what differs by less than the
error itself is smoothed away. The band says how sure the smoothed accuracy is,

    accuracy(t) ± z sqrt(sum_i w_i^2 (y_i - accuracy(t))^2 K(t, c_i)^2) / sum_i w_i K(t, c_i)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..inputs.validation import check_fraction
from ..metrics.outcomes import Floats, Outcomes
from ..metrics.row_sums import residual_grid, smooth_ece_of_grid
from .curves import claims

_NODES = 201
_ROWS = 4096  # at a time
_NARROWEST = 0.01


@dataclass(frozen=True)
class SmoothCurve:
    """Arrays of shape (K,), over the confidences that occur.

    Attributes
    ----------
    confidence, accuracy : ndarray
    low, high : ndarray
        Pointwise band of the accuracy.
    density : ndarray
        Of the rows; its integral over [0, 1] is 1.
    error, bandwidth : float
        SmoothECE, and the width of the kernel: the same, but for a least width.
    level : float

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> curve = mc.plots.smooth_reliability_curve(data.truth, data.labels)
    >>> round(curve.error, 3) == round(mc.metrics.smooth_ece(data.truth, data.labels), 3)
    True
    """

    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    density: Floats
    error: float
    bandwidth: float
    level: float


def smooth_reliability_curve(
    probs: Any, labels: Any, *, label: int | None = None, level: float = 0.95, sample_weight: Any = None
) -> SmoothCurve:
    """Accuracy against confidence, smoothed as wide as the SmoothECE.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    label : int, optional
        Judge the probability of this class instead of that of the top class.
    level : float
        Of the band.
    sample_weight : (n,) array, optional

    Returns
    -------
    SmoothCurve

    References
    ----------
    Błasiok & Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing, ICLR 2024.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.plots import smooth_reliability_curve
    >>> data = mc.data.synthetic(2000, 10)
    >>> model = mc.TemperatureScaling().fit(data.values, data.labels)
    >>> curve = smooth_reliability_curve(model.predict_proba(data.values), data.labels)
    >>> bool((curve.low <= curve.accuracy).all())
    True
    """
    z = float(ndtri((1 + check_fraction(level, "level")) / 2))
    rows = Outcomes.of(probs, labels, sample_weight)
    c, y = claims(rows, label)
    w = rows.weight / rows.weight.sum()
    residuals = residual_grid(replace(rows, confidence=c, correct=y))
    error = smooth_ece_of_grid(residuals, float(rows.weight.sum()))
    width = max(error, _NARROWEST)
    t = np.linspace(0, 1, _NODES)
    mass, right = np.zeros((2, _NODES))
    squares = np.zeros((2, _NODES))  # sums of w^2 K^2 and of w^2 K^2 y, which is that of y^2
    for part in (slice(k, k + _ROWS) for k in range(0, len(c), _ROWS)):
        kernel = _kernel(t, c[part], width)
        mass += w[part] @ kernel
        right += (w * y)[part] @ kernel
        squares[0] += (w**2)[part] @ kernel**2
        squares[1] += (w**2 * y)[part] @ kernel**2
    seen = (t >= c.min() - width / 2) & (t <= c.max() + width / 2) & (mass > 0)
    accuracy = right[seen] / mass[seen]
    square = squares[1][seen] * (1 - 2 * accuracy) + squares[0][seen] * accuracy**2
    half = z * np.sqrt(np.maximum(square, 0.0)) / mass[seen]
    return SmoothCurve(
        t[seen],
        accuracy,
        np.maximum(accuracy - half, 0.0),
        np.minimum(accuracy + half, 1.0),
        mass[seen],
        error,
        width,
        level,
    )


def _kernel(t: Floats, c: Floats, width: float) -> Floats:
    """(rows, nodes): a Gaussian around each confidence, reflected at both ends."""
    away = [t - c[:, None], t + c[:, None], 2 - t - c[:, None]]
    total = sum(np.exp(-((d / width) ** 2) / 2) for d in away)
    return np.asarray(total / (width * np.sqrt(2 * np.pi)))
