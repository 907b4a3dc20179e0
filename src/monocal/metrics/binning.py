"""Calibration error in bins of equal width, ``B_k = ((k-1)/K, k/K]``, from sums that add (`sums_of_bins`).

    ECE = sum_k |B_k|/n |conf_k - acc_k|,  of the top confidence        class-wise ECE = mean_j ECE(p_j, 1[y = j])

`debiased_ece` takes off what the noise in a bin adds to its gap, and may have bins of equal mass instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..edges import equal_mass_edges
from ..errors import InputError
from ..inputs.layout import Layout
from .outcomes import Outcomes, bin_index
from .sums_of_bins import BinSums, classwise_sums, top_label_sums


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
