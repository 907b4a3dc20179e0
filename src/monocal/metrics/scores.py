"""Proper scores and accuracy, each a mean over rows, and the parts of the Brier score.

    NLL = mean -log p_y      Brier = mean sum_j (p_j - 1[y = j])^2 = mean (sum_j p_j^2 - 2 p_y + 1)

In class-wise bins with mean forecast ``c`` and frequency ``f``: Brier = calibration ``(c - f)^2`` +
refinement ``f (1 - f)`` + what happens within bins, each averaged over bins by weight and summed over
classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inputs.layout import Layout
from ..inputs.validation import check_count
from .outcomes import Floats, Outcomes
from .sums_of_bins import BinSums, classwise_sums


def score_terms(rows: Outcomes, top_k: int) -> dict[str, Floats]:
    """What each row adds to the scores that are means over rows, by the name of the metric."""
    with np.errstate(divide="ignore"):
        surprise = -np.log(rows.label_prob)
    return {
        "nll": surprise,
        "brier": rows.square_sum - 2 * rows.label_prob + 1,
        "accuracy": rows.correct,
        "top_k_accuracy": (rows.label_rank < top_k).astype(np.float64),
    }


@dataclass(frozen=True)
class ScoreSums:
    """Mergeable weighted sums over rows."""

    weight: float
    nll: float
    brier: float
    correct: float
    in_top_k: float

    @classmethod
    def of(cls, rows: Outcomes, weight: Floats, top_k: int) -> ScoreSums:
        terms = score_terms(rows, top_k)
        used = weight > 0  # a row of weight zero must not turn an infinite surprise into NaN
        return cls(
            float(weight.sum()),
            float(weight[used] @ terms["nll"][used]),
            float(weight @ terms["brier"]),
            float(weight @ terms["accuracy"]),
            float(weight @ terms["top_k_accuracy"]),
        )

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(
            self.weight + other.weight,
            self.nll + other.nll,
            self.brier + other.brier,
            self.correct + other.correct,
            self.in_top_k + other.in_top_k,
        )


@dataclass(frozen=True)
class BrierParts:
    """``total = calibration + refinement + within_bins``.

    ``calibration`` is what a better map of the probabilities could remove, ``refinement`` what it could
    not, as far as bins can tell; ``within_bins`` is what binning hides and goes to zero with the width of
    the bins.

    Attributes
    ----------
    total, calibration, refinement, within_bins : float

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> mc.metrics.brier_parts(probs, labels, n_bins=5).total == mc.metrics.brier(probs, labels)
    True
    """

    total: float
    calibration: float
    refinement: float
    within_bins: float

    @classmethod
    def of(cls, total: float, classwise: BinSums) -> BrierParts:
        share = classwise.weight / classwise.weight.sum(axis=-1, keepdims=True)
        frequency = np.nan_to_num(classwise.accuracy)
        calibration = float((share * classwise.gap**2).sum())
        refinement = float((share * frequency * (1 - frequency)).sum())
        return cls(total, calibration, refinement, total - calibration - refinement)


def _score_sums(probs: Any, labels: Any, sample_weight: Any, layout: Layout) -> ScoreSums:
    rows = Outcomes.of(probs, labels, sample_weight, layout)
    return ScoreSums.of(rows, rows.weight, top_k=1)


def nll(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Negative log-likelihood ``mean -log p_y``, in nats.

    Infinite when a label was given probability zero: that is its value, and nothing is clipped to hide it.
    Equals scikit-learn's ``log_loss`` wherever that does not clip.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.nll(probs, labels), 4)
    0.6456
    >>> mc.metrics.nll([[1.0, 0.0]], [1])
    inf
    """
    sums = _score_sums(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    return sums.nll / sums.weight


def brier(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Brier score ``mean sum_j (p_j - 1[y = j])^2``, from 0 to 2, all classes counted.

    Two-class packages that count one class only report half of it.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    sample_weight : (n,) array, optional

    References
    ----------
    Brier, Verification of forecasts expressed in terms of probability, Monthly Weather Review 78 (1950).

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.brier(probs, labels), 4)
    0.45
    """
    sums = _score_sums(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    return sums.brier / sums.weight


def brier_parts(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> BrierParts:
    """Calibration and refinement parts of the Brier score, in class-wise equal-width bins.

    The calibration part of a calibrated predictor is not zero but about its noise,
    ``sum f (1 - f) / n`` over occupied class-wise bins.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
    sample_weight : (n,) array, optional

    Returns
    -------
    BrierParts
        ``total``, ``calibration``, ``refinement``, ``within_bins``.

    References
    ----------
    Murphy, A new vector partition of the probability score, Journal of Applied Meteorology 12 (1973).
    Stephenson, Coelho & Jolliffe, Two extra components in the Brier score decomposition, Weather and
    Forecasting 23 (2008), for what happens within bins.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> parts = mc.metrics.brier_parts(probs, labels, n_bins=5)
    >>> round(parts.calibration, 3), round(parts.refinement, 3)
    (0.349, 0.125)
    """
    rows = Outcomes.of(
        probs, labels, sample_weight, n_bins=n_bins, classwise=True, layout=Layout(class_axis, ignore_index)
    )
    scores = ScoreSums.of(rows, rows.weight, 1)
    classwise = classwise_sums(rows, rows.weight, rows.column_totals)
    return BrierParts.of(scores.brier / scores.weight, classwise)


def accuracy(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Share of rows whose largest probability is the label's; of equal ones the lowest class is predicted.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    sample_weight : (n,) array, optional

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> mc.metrics.accuracy(probs, labels)
    0.75
    """
    sums = _score_sums(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    return sums.correct / sums.weight


def top_k_accuracy(
    probs: Any,
    labels: Any,
    *,
    k: int = 5,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Share of rows whose label is among the ``k`` largest probabilities.

    Equal probabilities rank by class number, lowest first, so that ``k=1`` is `accuracy`; scikit-learn
    ranks them the other way round, and agrees where the label is not tied.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    k : int
    sample_weight : (n,) array, optional

    Examples
    --------
    >>> import monocal as mc
    >>> probs = [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]
    >>> mc.metrics.top_k_accuracy(probs, [1, 0], k=2)
    0.5
    """
    rows = Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    rows.check_ranks(check_count(k, "k"))
    sums = ScoreSums.of(rows, rows.weight, k)
    return sums.in_top_k / sums.weight
