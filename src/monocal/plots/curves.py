r"""Calibration as numbers, without matplotlib: in bins with the band of perfect calibration, and without bins.

In bin k of n_k rows let ``conf_k`` be the mean confidence and ``acc_k`` the share of correct rows. A perfectly calibrated
predictor gets about ``Binomial(n_k, conf_k)`` of them right, so its accuracy lies in

    [q_a(n_k, conf_k), q_{1-a}(n_k, conf_k)] / n_k,        2a = 1 - level^(1/K),

in all K occupied bins at once with probability ``level`` at least. A bin outside that band is wrong, not unlucky.
(Confidences within a bin differ, which makes the true spread smaller than the binomial one: the band errs on the wide side.)

Without bins, the accuracy is a kernel regression of "right or not" on the confidence,

    accuracy(t) = sum_i w_i y_i K(t, c_i) / sum_i w_i K(t, c_i)

with a Gaussian K that is reflected at 0 and 1, as wide as the SmoothECE: what differs by less than the error itself is smoothed
away. Its band is ``accuracy(t) ± z sqrt(sum_i w_i^2 (y_i - accuracy(t))^2 K(t, c_i)^2) / sum_i w_i K(t, c_i)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from ..edges import equal_mass_edges
from ..errors import InputError
from ..inputs.validation import check_choice, check_count, check_fraction
from ..metrics import BinSums
from ..metrics.outcomes import Floats, Outcomes, bin_index, bin_totals, equal_width_edges, read_scores
from ..metrics.row_sums import residual_grid, smooth_ece_of_grid

_NODES = 201  # of a curve without bins
_ROWS = 4096  # at a time
_NARROWEST = 0.01  # kernel


@dataclass(frozen=True)
class Stretch:
    """Neighbouring bins that are wrong in the same direction.

    Attributes
    ----------
    begin, end : float
    gap : float
        Mean confidence minus accuracy: positive is over-confident.
    weight, share : float
        Rows (or their weight) in it, and as a share of all.

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.plots import reliability_curve
    >>> curve = reliability_curve(np.tile([0.9, 0.1], (1000, 1)), np.arange(1000) % 10 < 2)
    >>> [(round(s.begin, 2), round(s.end, 2), round(s.gap, 2), s.share) for s in curve.stretches()]
    [(0.87, 0.93, 0.1, 1.0)]
    """

    begin: float
    end: float
    gap: float
    weight: float
    share: float


@dataclass(frozen=True)
class CalibrationCurve:
    """What a reliability diagram shows, as numbers; arrays of shape (K,), NaN where a bin is empty.

    Attributes
    ----------
    edges : ndarray of shape (K + 1,)
        Bin k holds the rows with ``edges[k] < statistic <= edges[k + 1]``.
    weight, confidence, accuracy : ndarray of shape (K,)
        Rows of each bin (or the sum of their weights), mean confidence, and share of correct rows.
    low, high : ndarray of shape (K,)
        Accuracies between which a perfectly calibrated predictor stays.
    level : float
        Joint coverage of this band.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> curve = mc.plots.reliability_curve(probs, np.array([0, 1, 1, 0]), n_bins=2)
    >>> curve.weight, curve.accuracy, round(curve.ece, 2)
    (array([0., 4.]), array([ nan, 0.75]), 0.0)
    """

    edges: Floats
    weight: Floats
    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    level: float

    @classmethod
    def of(cls, sums: BinSums, level: float = 0.95) -> CalibrationCurve:
        """From bin sums of shape (K,), which may have been merged over parts of a file."""
        level = check_fraction(level, "level")
        if sums.weight.ndim != 1:
            raise InputError(
                f"sums: expected the bins of the top confidence, shape (K,), got {sums.weight.shape}"
            )
        filled = sums.weight > 0
        low, high = np.full((2, len(filled)), np.nan)
        # Unequal weights tell as much as fewer equal ones: (sum w)^2 / sum w^2 of them.
        count = np.maximum(np.round(sums.weight[filled] ** 2 / sums.weight_squared[filled]), 1)
        share = np.clip(sums.mean_confidence[filled], 0, 1)
        each = level ** (1 / max(1, int(filled.sum())))
        low[filled] = binom.ppf((1 - each) / 2, count, share) / count
        high[filled] = binom.ppf((1 + each) / 2, count, share) / count
        return cls(sums.edges, sums.weight, sums.mean_confidence, sums.accuracy, low, high, level)

    @property
    def gap(self) -> Floats:
        """Confidence minus accuracy: positive where the predictor claims more than it keeps."""
        return self.confidence - self.accuracy

    @property
    def outside(self) -> np.ndarray:
        """(K,) bool: the accuracy lies outside the band."""
        return (self.accuracy < self.low) | (self.accuracy > self.high)

    @property
    def ece(self) -> float:
        """Mean of ``|gap|`` over the rows."""
        return self._mean(np.abs(self.gap))

    @property
    def mean_confidence(self) -> float:
        """Over all rows."""
        return self._mean(self.confidence)

    @property
    def mean_accuracy(self) -> float:
        """Over all rows."""
        return self._mean(self.accuracy)

    def _mean(self, values: Floats, bins: Any = slice(None)) -> float:
        return float(np.nansum((self.weight * values)[bins]) / self.weight[bins].sum())

    def stretches(self) -> tuple[Stretch, ...]:
        """Where the predictor is wrong: runs of bins outside the band whose gaps have one sign and are alike.

        A bin joins the run before it when its gap is within a factor of two of the run's, and what lies between errs to
        the same side (inside the band, though: too few rows to tell alone).
        """
        side = np.sign(np.nan_to_num(self.gap))
        runs: list[tuple[int, Stretch]] = []
        for k in np.flatnonzero(self.outside).tolist():
            first = k
            if runs:
                begin, run = runs[-1]
                between = side[begin:k][self.weight[begin:k] > 0]
                if 0.5 <= abs(self.gap[k] / run.gap) <= 2.0 and (between == side[k]).all():
                    first = begin
                    runs.pop()
            runs.append((first, self._stretch(first, k)))
        return tuple(run for _, run in runs)

    def _stretch(self, first: int, final: int) -> Stretch:
        bins = slice(first, final + 1)
        begin, end, weight = self.edges[first], self.edges[final + 1], float(self.weight[bins].sum())
        share = weight / float(self.weight.sum())
        return Stretch(float(begin), float(end), self._mean(self.gap, bins), weight, share)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, None where a bin is empty: ready for JSON."""
        plain = {
            name: [None if np.isnan(value) else float(value) for value in getattr(self, name)]
            for name in ("weight", "confidence", "accuracy", "low", "high")
        }
        return {"level": self.level, "ece": self.ece, "edges": self.edges.tolist(), **plain}


def reliability_curve(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    label: int | None = None,
    level: float = 0.95,
    sample_weight: Any = None,
) -> CalibrationCurve:
    """Accuracy against confidence in bins; by default equal-width ones, those of `monocal.metrics.ece`.

    Parameters
    ----------
    probs, labels, sample_weight
        As in `monocal.evaluate`.
    n_bins : int
    strategy : {"uniform", "quantile"}
        Bins of equal width, or with about as many rows each.
    label : int, optional
        Judge the probability of this class, against how often it is the label, instead of that of the top class.
    level : float
        Probability with which a perfectly calibrated predictor stays within the band in every bin.

    References
    ----------
    Bröcker & Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting 22 (2007).

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.plots import reliability_curve
    >>> probs = np.tile([0.9, 0.1], (1000, 1))
    >>> curve = reliability_curve(probs, np.arange(1000) % 10 < 2)
    >>> round(curve.ece, 2), int(curve.outside.sum())
    (0.1, 1)
    """
    check_choice(strategy, "strategy", ("uniform", "quantile"))
    rows = Outcomes.of(probs, labels, sample_weight, n_bins=n_bins)
    confidence, right = _claims(rows, label)
    edges = equal_width_edges(rows.n_bins) if strategy == "uniform" else quantile_edges(confidence, n_bins)
    return curve_in_bins(confidence, edges, confidence, right, rows.weight, level)


def curve_in_bins(
    values: Floats, edges: Floats, confidence: Floats, right: Floats, weight: Floats, level: float
) -> CalibrationCurve:
    """Of the confidence of each row, whether it is right, and its weight, in bins of ``values``; all (n,)."""
    index = bin_index(values, edges)
    columns = (weight, weight**2, weight * confidence, weight * right)
    return CalibrationCurve.of(
        BinSums(edges, *(bin_totals(index, one, len(edges) - 1) for one in columns)), level
    )


def _claims(rows: Outcomes, label: int | None = None) -> tuple[Floats, Floats]:
    """What is claimed of each row and whether it holds: of the top class, or of the class ``label``."""
    if label is None:
        return rows.confidence, rows.correct
    if not 0 <= label < rows.n_classes:
        raise InputError(f"label: expected a class from 0 to {rows.n_classes - 1}, got {label!r}")
    return rows.of_class(label), (rows.labels == label).astype(np.float64)


def margin_curve(
    probs: Any,
    labels: Any,
    margin: Any = None,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    sample_weight: Any = None,
) -> CalibrationCurve:
    """Confidence and accuracy against the margin, in bins of equal mass.

    Parameters
    ----------
    probs, labels, level, sample_weight
        As in `reliability_curve`.
    margin : (n,) array, optional
        The number to bin by. Default: ``log p_(1) - log p_(2)``, the difference of the two largest logits. Give the
        margin of the uncalibrated logits to see the same rows in the same bins before and after.
    n_bins : int
        At most: rows of equal margin share a bin.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> curve = mc.plots.margin_curve(data.truth, data.labels, n_bins=4)
    >>> curve.weight
    array([250., 250., 250., 250.])
    """
    rows = Outcomes.of(probs, labels, sample_weight, n_bins=n_bins)
    own = margins(probs)
    values = own if margin is None else np.asarray(margin, dtype=np.float64)
    if values.shape != own.shape or np.isnan(values).any():
        raise InputError(f"margin: expected {len(own)} numbers, one per row, got shape {values.shape} or NaN")
    values = finite(values[rows.kept])
    edges = quantile_edges(values, n_bins)
    return curve_in_bins(values, edges, rows.confidence, rows.correct, rows.weight, level)


def margins(values: Any, *, input: str = "probabilities") -> Floats:
    """Difference of the two largest logits of each row, from logits or from the logarithms of probabilities: (n,).

    Parameters
    ----------
    values : (n, m) array
    input : {"probabilities", "logits"}

    Examples
    --------
    >>> from monocal.plots import margins
    >>> margins([[2.0, 5.0, 1.0]], input="logits")
    array([3.])
    """
    array = read_scores(values, "values")[0].rows
    two = np.partition(array, array.shape[1] - 2, axis=1)[:, -2:].astype(np.float64)
    if input == "probabilities":
        with np.errstate(divide="ignore"):
            two = np.log(two)
    return two[:, 1] - two[:, 0]


def finite(values: Floats) -> Floats:
    """Infinite values (a row with one class left) moved to the largest finite one."""
    inside = values[np.isfinite(values)]
    return np.clip(values, inside.min(), inside.max()) if len(inside) else np.zeros_like(values)


def quantile_edges(values: Floats, n_bins: int) -> Floats:
    """Edges of at most ``n_bins`` bins with about as many values in each, (K + 1,); equal values share a bin."""
    n_bins = check_count(n_bins, "n_bins")
    low, high = values.min(), values.max()
    inner = equal_mass_edges(values, n_bins, between=False, rounding=0.0)
    return np.unique([low, *inner, high]) if low < high else np.array([low, high])


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
    probs, labels, label, level, sample_weight
        As in `reliability_curve`.

    References
    ----------
    Błasiok & Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing, ICLR 2024.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 10)
    >>> curve = mc.plots.smooth_reliability_curve(data.truth, data.labels)
    >>> bool((curve.low <= curve.accuracy).all())
    True
    """
    z = float(ndtri((1 + check_fraction(level, "level")) / 2))
    rows = Outcomes.of(probs, labels, sample_weight)
    c, y = _claims(rows, label)
    w = rows.weight / rows.weight.sum()
    residuals = residual_grid(replace(rows, confidence=c, correct=y))
    error = smooth_ece_of_grid(residuals, float(rows.weight.sum()))
    width = max(error, _NARROWEST)
    t = np.linspace(0, 1, _NODES)
    of_kernel, of_square = np.zeros((2, 2, _NODES))  # sums of w and w y times K and, with w^2, times K^2
    for part in (slice(k, k + _ROWS) for k in range(0, len(c), _ROWS)):
        kernel = _kernel(t, c[part], width)
        both = np.stack([w[part], w[part] * y[part]])
        of_kernel += both @ kernel
        of_square += (w[part] * both) @ kernel**2
    mass, right = of_kernel
    seen = (t >= c.min() - width / 2) & (t <= c.max() + width / 2) & (mass > 0)
    t, mass, accuracy = t[seen], mass[seen], right[seen] / mass[seen]
    square = of_square[1][seen] * (1 - 2 * accuracy) + of_square[0][seen] * accuracy**2
    half = z * np.sqrt(np.maximum(square, 0.0)) / mass
    low, high = np.maximum(accuracy - half, 0.0), np.minimum(accuracy + half, 1.0)
    return SmoothCurve(t, accuracy, low, high, mass, error, width, level)


def _kernel(t: Floats, c: Floats, width: float) -> Floats:
    """(rows, nodes): a Gaussian around each confidence, reflected at both ends."""
    away = [t - c[:, None], t + c[:, None], 2 - t - c[:, None]]
    total = sum(np.exp(-((d / width) ** 2) / 2) for d in away)
    return np.asarray(total / (width * np.sqrt(2 * np.pi)))
