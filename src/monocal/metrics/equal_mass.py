"""Calibration error in bins of equal mass, read off one curve.

Sort the rows by confidence and let ``G(t)`` be the running sum of ``confidence - correct`` after mass
``t``. A bin from mass ``s`` to ``t`` has the gap ``|G(t) - G(s)| / (t - s)``, so with edges ``t_0 < ... <
t_K``

    adaptive ECE = sum_k |G(t_k) - G(t_{k-1})| / t_K,       EQ-BIN ECE = sum_k |G(t_k) - G(t_{k-1})| / (t_k
    - t_{k-1})

``G`` is linear across rows of equal confidence, so the result does not depend on the order in which ties
arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inputs.layout import Layout
from ..inputs.validation import check_count
from .outcomes import Floats, Outcomes


@dataclass(frozen=True)
class GapCurve:
    """``G`` at the end of every group of equal confidences, from (0, 0)."""

    mass: Floats
    gap: Floats

    @classmethod
    def of(cls, rows: Outcomes, weight: Floats) -> GapCurve:
        order = rows.by_confidence
        confidence, weight = rows.confidence[order], weight[order]
        ends = np.append(np.flatnonzero(confidence[1:] != confidence[:-1]), len(confidence) - 1)
        mass = np.cumsum(weight)[ends]
        gap = np.cumsum(weight * (confidence - rows.correct[order]))[ends]
        return cls(np.insert(mass, 0, 0.0), np.insert(gap, 0, 0.0))

    def adaptive_ece(self, n_bins: int) -> float:
        edges = self.mass[-1] * np.arange(n_bins + 1) / n_bins
        return float(np.abs(np.diff(np.interp(edges, self.mass, self.gap))).sum() / self.mass[-1])

    def eq_bin_ece(self, bin_size: int) -> float:
        full = max(1, int(self.mass[-1] * (1 + 1e-12) // bin_size))
        edges = np.append(bin_size * np.arange(full, dtype=np.float64), self.mass[-1])
        return float((np.abs(np.diff(np.interp(edges, self.mass, self.gap))) / np.diff(edges)).sum())


def adaptive_ece(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """ECE of the top label in ``n_bins`` bins that hold the same mass each.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    n_bins : int
        Number of bins.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Notes
    -----
    A row on a boundary is shared between its two bins in proportion. Implementations that move it whole (by
    ``np.array_split`` or by quantile edges) agree to 1e-12 when n is a multiple of ``n_bins`` and no two
    confidences are equal, and to about ``n_bins / n`` otherwise.

    References
    ----------
    Nixon, Dusenberry, Zhang, Jerfel & Tran, Measuring calibration in deep learning, CVPR workshops 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.adaptive_ece(probs, labels, n_bins=2), 4)
    0.35
    """
    n_bins = check_count(n_bins, "n_bins")
    rows = Outcomes.of(probs, labels, sample_weight, layout=Layout(class_axis, ignore_index))
    return GapCurve.of(rows, rows.weight).adaptive_ece(n_bins)


def eq_bin_ece(
    probs: Any,
    labels: Any,
    *,
    bin_size: int = 1000,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Un-weighted sum of the gaps of bins of ``bin_size`` rows in the order of confidence ("EQ-BIN ECE").

    The last bin also takes the rows that are left over. The sum is not divided by the number of bins, so it
    grows with n: compare it only on the same test set. Published tables show it times ten.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    bin_size : int
        Rows (or weight, where weights are given) of a bin.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    References
    ----------
    Instance-Wise Monotonic Calibration by Constrained Transformation, Table 3.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> round(mc.metrics.eq_bin_ece(probs, labels, bin_size=2), 4)
    0.7
    """
    bin_size = check_count(bin_size, "bin_size")
    rows = Outcomes.of(probs, labels, sample_weight, layout=Layout(class_axis, ignore_index))
    return GapCurve.of(rows, rows.weight).eq_bin_ece(bin_size)
