"""Calibration error within groups of rows: bins of the top confidence for every group by itself, from sums that add.

With groups ``g`` of the rows and in each the bins ``B_gk = ((k-1)/K, k/K]`` of `ece`

    ECE within groups = sum_g |g|/n ECE_g = sum_gk |B_gk|/n |conf_gk - acc_gk|

Errors of opposite sign in two groups cancel in `ece` and do not here. The top-label ECE is this with the predicted class as
group: whether "90 % sure that it is a cat" is right nine times in ten.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..inputs.layout import Layout
from ..inputs.validation import check_count
from .outcomes import Floats, Integers, Outcomes, bin_index, bin_totals, equal_width_edges
from .sums_of_bins import BinSums

GROUP_BINS = 5  # a group has fewer rows than all have, and every further bin makes the noise larger


def cell_of(rows: Outcomes, group: Integers, n_bins: int) -> Integers:
    """Number of the cell, group by group and bin by bin, that each row lies in."""
    return group * n_bins + bin_index(rows.confidence, equal_width_edges(n_bins))


def group_sums(
    rows: Outcomes, weight: Floats, group: Integers, n_groups: int, n_bins: int = GROUP_BINS
) -> BinSums:
    """Bin sums of the top confidence in every group: (n_groups, n_bins)."""
    cell = cell_of(rows, group, n_bins)
    values = (weight, weight * rows.weight, weight * rows.confidence, weight * rows.correct)
    sums = (bin_totals(cell, one, n_groups * n_bins).reshape(n_groups, n_bins) for one in values)
    return BinSums(equal_width_edges(n_bins), *sums)


def predicted_class_sums(rows: Outcomes, weight: Floats, n_bins: int = GROUP_BINS) -> BinSums:
    """The same with the predicted class as group."""
    return group_sums(rows, weight, rows.predicted, rows.n_classes, n_bins)


def mean_ece(sums: BinSums) -> float:
    """Mean of the groups' errors, each with the weight of its rows; groups without rows count nothing."""
    return float(np.abs(sums.confidence - sums.correct).sum() / sums.weight.sum())


def top_label_ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = GROUP_BINS,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """ECE within each predicted class, weighted by rows: is it right when it says "cat"?

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
        Equal-width bins in each class; those of `ece`, but fewer.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Notes
    -----
    Never less than `ece` in the same bins. With many classes most of it is noise: read it beside
    ``ece_floor(probs, labels, metric="top_label_ece")``. The authors' package cuts each class into 15 bins of equal mass; those
    do not add over parts of a file, and their noise is larger.

    References
    ----------
    Gupta & Ramdas, Top-label calibration and multiclass-to-binary reductions, ICLR 2022.

    Examples
    --------
    >>> import monocal as mc
    >>> probs, labels = [[0.8, 0.2]] * 5 + [[0.2, 0.8]] * 5, [0] * 5 + [0, 0, 1, 1, 1]
    >>> round(mc.metrics.ece(probs, labels), 3), round(mc.metrics.top_label_ece(probs, labels), 3)
    (0.0, 0.2)
    """
    n_bins = check_count(n_bins, "n_bins")
    rows = Outcomes.of(probs, labels, sample_weight, layout=Layout(class_axis, ignore_index))
    return mean_ece(predicted_class_sums(rows, rows.weight, n_bins))
