"""Calibration error in equal-width bins, from bin sums that add.

With bins ``B_k = ((k-1)/K, k/K]`` of the top confidence, and in each the weight, the summed confidence and
the summed correctness, the gap of a bin is ``|conf_k - acc_k|`` and

    ECE = sum_k |B_k|/n * gap_k        MCE = max_k gap_k        class-wise ECE = mean_j ECE(p_j, 1[y = j])

Sums of two disjoint sets of rows add (`BinSums.__add__`), so any of these over parts of a file is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf

from ..edges import equal_mass_edges
from ..errors import InputError
from ..layout import Layout
from .outcomes import Floats, Integers, Outcomes, bin_index, bin_totals, equal_width_edges


@dataclass(frozen=True)
class BinSums:
    """Sums over the rows of each bin; arrays of shape (..., K), leading axes for classes.

    Attributes
    ----------
    edges : (K + 1,) array
        Bin k holds values in ``(edges[k], edges[k + 1]]``; the first bin also holds zero.
    weight, weight_squared : (..., K) arrays
        Sum of the sample weights (the count, when they are one) and of their squares.
    confidence, correct : (..., K) arrays
        Weighted sums of the predicted probability and of the outcome.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> sums = mc.metrics.bin_sums(probs, labels, n_bins=2)
    >>> sums.weight, sums.correct
    (array([0., 4.]), array([0., 3.]))
    >>> float(sums.ece().round(2))
    0.0
    """

    edges: Floats
    weight: Floats
    weight_squared: Floats
    confidence: Floats
    correct: Floats

    @classmethod
    def of(cls, rows: Outcomes, weight: Floats, index: Integers, edges: Floats) -> BinSums:
        """Sums of the top confidence; ``weight`` is that of the rows times how often each is drawn."""

        def sums(values: Floats) -> Floats:
            return bin_totals(index, values, len(edges) - 1)

        return cls(
            edges,
            sums(weight),
            sums(weight * rows.weight),
            sums(weight * rows.confidence),
            sums(weight * rows.correct),
        )

    def __add__(self, other: BinSums) -> BinSums:
        if not isinstance(other, BinSums):
            return NotImplemented
        if self.weight.shape != other.weight.shape or not np.array_equal(self.edges, other.edges):
            raise InputError(
                f"BinSums: only sums over the same bins and classes add, got shapes {self.weight.shape} and "
                f"{other.weight.shape}, or other edges: build both with the same n_bins and n_classes"
            )
        return BinSums(
            self.edges,
            self.weight + other.weight,
            self.weight_squared + other.weight_squared,
            self.confidence + other.confidence,
            self.correct + other.correct,
        )

    @property
    def mean_confidence(self) -> Floats:
        """Mean predicted probability of each bin, NaN where the bin is empty."""
        return self._mean(self.confidence)

    @property
    def accuracy(self) -> Floats:
        """Observed frequency in each bin, NaN where the bin is empty."""
        return self._mean(self.correct)

    @property
    def gap(self) -> Floats:
        """``|mean_confidence - accuracy|`` of each bin, zero where the bin is empty."""
        return np.nan_to_num(np.abs(self._mean(self.confidence - self.correct)))

    def ece(self) -> Floats:
        """Weighted mean of the gaps over the last axis."""
        return np.abs(self.confidence - self.correct).sum(axis=-1) / self.weight.sum(axis=-1)

    def mce(self) -> Floats:
        """Largest gap over the last axis."""
        return self.gap.max(axis=-1)

    def rms(self) -> Floats:
        """Root of the weighted mean square of the gaps over the last axis: `debiased_ece` with its bias."""
        share = self.weight / self.weight.sum(axis=-1, keepdims=True)
        return np.sqrt((share * self.gap**2).sum(axis=-1))

    def debiased_ece(self, norm: int = 2) -> Floats:
        """Debiased error of norm 1 or 2 over the last axis; see `debiased_ece`."""
        share = self.weight / self.weight.sum(axis=-1, keepdims=True)
        accuracy = np.nan_to_num(self.accuracy)
        spread = np.clip(accuracy * (1 - accuracy), 0, None)
        if norm == 2:
            # With unit weights the inflation is 1 / (count - 1); a lone row has no variance and counts as 0.
            room = self.weight**2 - self.weight_squared
            known = room > 1e-9 * self.weight**2
            inflation = np.divide(self.weight_squared, room, out=np.zeros_like(room), where=known)
            square = np.where(known, self.gap**2 - spread * inflation, 0.0)
            return np.sqrt(np.clip((share * square).sum(axis=-1), 0, None))
        per_row = np.divide(
            self.weight_squared, self.weight**2, out=np.zeros_like(spread), where=self.weight > 0
        )
        noise = np.sqrt(spread * per_row)
        return np.clip((share * (2 * self.gap - _folded_normal_mean(self.gap, noise))).sum(axis=-1), 0, None)

    def _mean(self, sums: Floats) -> Floats:
        return np.divide(sums, self.weight, out=np.full_like(sums, np.nan), where=self.weight > 0)


def _folded_normal_mean(centre: Floats, sd: Floats) -> Floats:
    """``E|X|`` of ``X ~ N(centre, sd^2)``."""
    ratio = np.divide(centre, np.sqrt(2) * sd, out=np.full_like(centre, np.inf), where=sd > 0)
    return np.where(sd > 0, sd * np.sqrt(2 / np.pi) * np.exp(-(ratio**2)) + centre * erf(ratio), centre)


def top_label_sums(rows: Outcomes, weight: Floats) -> BinSums:
    """Bin sums of the top confidence."""
    return BinSums.of(rows, weight, rows.top_bin, equal_width_edges(rows.n_bins))


def classwise_sums(rows: Outcomes, weight: Floats, column_totals: Floats) -> BinSums:
    """Bin sums of every class, (m, K): entries above the first bin are summed, the first is what is left."""
    assert rows.entries is not None
    m, n_bins = rows.n_classes, rows.n_bins
    entries = rows.entries
    cell = entries.cls * n_bins + entries.bin
    entry_weight = weight[entries.row]

    def sums(values: Floats) -> Floats:
        return bin_totals(cell, values, m * n_bins).reshape(m, n_bins)

    counts, squares = sums(entry_weight), sums(entry_weight * rows.weight[entries.row])
    confidence = sums(entry_weight * entries.value)
    counts[:, 0] = weight.sum() - counts[:, 1:].sum(axis=1)
    squares[:, 0] = weight @ rows.weight - squares[:, 1:].sum(axis=1)
    confidence[:, 0] = column_totals - confidence[:, 1:].sum(axis=1)
    correct = bin_totals(rows.labels * n_bins + rows.label_bin, weight, m * n_bins)
    return BinSums(equal_width_edges(n_bins), counts, squares, confidence, correct.reshape(m, n_bins))


def bin_sums(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    classwise: bool = False,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> BinSums:
    """Mergeable bin statistics: what a reliability diagram shows and ECE sums.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities: numpy, nested lists, a pandas frame or a torch tensor.
    labels : (n,) array
        True classes, integers from 0 to m - 1.
    n_bins : int
        Number of equal-width bins K.
    classwise : bool
        One row of sums per class, (m, K), of every probability; otherwise (K,) of the top confidence.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Returns
    -------
    BinSums

    Examples
    --------
    >>> import monocal as mc
    >>> sums = mc.metrics.bin_sums([[0.9, 0.1], [0.3, 0.7]], [0, 0], n_bins=5)
    >>> sums.weight
    array([0., 0., 0., 1., 1.])
    >>> both = sums + sums
    >>> float(both.ece()) == float(sums.ece())
    True
    """
    layout = Layout(class_axis, ignore_index)
    rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=n_bins, classwise=classwise)
    if classwise:
        return classwise_sums(rows, rows.weight, rows.column_totals)
    return top_label_sums(rows, rows.weight)


def ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Expected calibration error of the top label, equal-width bins.

    ``sum_k |B_k|/n |acc_k - conf_k|`` over ``B_k = ((k-1)/K, k/K]``; confidence 1 lies in the last bin and
    0 in the first.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
        Number of bins K.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Notes
    -----
    netcal agrees. torchmetrics closes its bins on the left, gives confidence 1 a bin of its own, and adds up
    in single precision: it differs where a confidence is 1 or lies on an edge, and agrees to 1e-5 elsewhere.
    A calibrated model does not score 0: see `ece_floor`.

    References
    ----------
    Naeini, Cooper & Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, AAAI 2015.
    Guo, Pleiss, Sun & Weinberger, On calibration of modern neural networks, ICML 2017.

    Examples
    --------
    >>> import monocal as mc
    >>> round(mc.metrics.ece([[0.9, 0.1], [0.2, 0.8]], [0, 0]), 3)
    0.45
    """
    rows = Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index), n_bins=n_bins)
    return float(top_label_sums(rows, rows.weight).ece())


def mce(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Maximum calibration error: the largest ``|acc_k - conf_k|`` over the occupied bins of `ece`.

    One row alone in its bin can decide it; read it beside the counts of `bin_sums`.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
    sample_weight : (n,) array, optional

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.mce(probs, labels), 4)
    0.8
    """
    rows = Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index), n_bins=n_bins)
    return float(top_label_sums(rows, rows.weight).mce())


def classwise_ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Class-wise ECE: the mean over classes j of the ECE of ``p_j`` as a forecast of ``y = j``.

    With many classes almost every probability lies in the first bin and the value
    shrinks like 1/m: compare it only between predictors of the same classes.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
    sample_weight : (n,) array, optional

    References
    ----------
    Kull et al., Beyond temperature scaling: obtaining well-calibrated multiclass probabilities with
    Dirichlet calibration, NeurIPS 2019. Nixon et al., Measuring calibration in deep learning, CVPR
    workshops 2019 ("SCE").

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.classwise_ece(probs, labels), 4)
    0.4
    """
    layout = Layout(class_axis, ignore_index)
    rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=n_bins, classwise=True)
    return float(classwise_sums(rows, rows.weight, rows.column_totals).ece().mean())


def check_two_classes(n_classes: int) -> None:
    """Raise unless there is one positive class and one negative."""
    if n_classes != 2:
        raise InputError(
            f"positive_ece: a positive class is one of two, but there are {n_classes}. classwise_ece takes each class by itself."
        )


def positive_ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """ECE of two-class work: the probability of class 1 against how often it is the label.

    `ece` looks at the larger of the two probabilities, between 0.5 and 1. Where a decision is made by the probability of one
    class (a disease, a default, a click) it matters whether "3 %" is three in a hundred, and this is what looks there.

    Parameters
    ----------
    probs : (n, 2) array
        Rows of class probabilities, the positive class in the second column.
    labels : (n,) array
        True classes, 0 and 1.
    n_bins : int
        Equal-width bins of the probability of class 1.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> round(mc.metrics.positive_ece([[0.97, 0.03]] * 100, [0] * 90 + [1] * 10), 3)
    0.07
    """
    layout = Layout(class_axis, ignore_index)
    rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=n_bins, classwise=True)
    check_two_classes(rows.n_classes)
    return float(classwise_sums(rows, rows.weight, rows.column_totals).ece()[1])


def debiased_ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    norm: int = 2,
    binning: str = "width",
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Calibration error of the top label with the bias of finite bins removed.

    ``norm=2``: ``sqrt(max(0, sum_k |B_k|/n [gap_k^2 - acc_k (1 - acc_k) / (|B_k| - 1)]))``, whose square is
    unbiased before the cut at zero. ``norm=1``: ECE less the bias a normal accuracy of each bin would
    cause, ``2 gap_k - E|N(gap_k, acc_k (1 - acc_k) / |B_k|)|`` per bin, in closed form, cut at zero.

    Parameters
    ----------
    probs, labels, n_bins, sample_weight, class_axis, ignore_index
        As in `ece`. Weights enter the variances by their squares, as importance weights do.
    norm : {2, 1}
    binning : {"width", "mass"}
        The bins of `ece` (they merge), or bins of equal mass as in the reference; equal confidences share a
        bin.

    Notes
    -----
    The norms differ in scale: the square root of a mean of squares is at least the mean. Agrees with the
    package of the authors on the same bins, which equal-mass bins are up to rows on a boundary; their norm 1
    draws 1000 normals where this one uses the mean they converge to.

    References
    ----------
    Kumar, Liang & Ma, Verified uncertainty calibration, NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.debiased_ece(probs, labels, n_bins=2, norm=1), 4)
    0.0
    """
    if norm not in (1, 2):
        raise InputError(f"norm: expected 1 or 2, got {norm!r}")
    if binning not in ("width", "mass"):
        raise InputError(f'binning: expected "width" or "mass", got {binning!r}')
    rows = Outcomes.of(probs, labels, sample_weight, n_bins=n_bins, layout=Layout(class_axis, ignore_index))
    if binning == "width":
        return float(top_label_sums(rows, rows.weight).debiased_ece(norm))
    inner = equal_mass_edges(rows.confidence, rows.n_bins, rows.weight, own_last=True)
    edges = np.concatenate(([0.0], inner, [max(1.0, float(rows.confidence.max()))]))
    sums = BinSums.of(rows, rows.weight, bin_index(rows.confidence, edges), edges)
    return float(sums.debiased_ece(norm))
