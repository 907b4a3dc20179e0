"""Histogram binning (Zadrozny, Elkan, 2001): the calibrated probability is the frequency of the class in its bin.

g_j(p) = sum of weights of class j in the bin of p / sum of weights in the bin.
"""

from __future__ import annotations

import numpy as np

from ..edges import equal_mass_edges
from ..inputs.validation import check_choice, check_number
from .one_vs_rest import OneVsRestCalibrator, bin_sums


class HistogramBinning(OneVsRestCalibrator):
    """One-vs-rest histogram binning, normalised.

    Parameters
    ----------
    bins : int
    strategy : {"uniform", "mass"}
        Bins of equal width, or of equal weight in the calibration set (fewer where many probabilities are equal).
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        Interior bin edges and calibrated probabilities of each class. An empty bin keeps the middle of its range.

    Notes
    -----
    A class that is absent from the calibration set has frequency 0 everywhere and is never predicted.

    References
    ----------
    Zadrozny, Elkan (2001). Obtaining calibrated probability estimates from decision trees and naive Bayesian classifiers.
    ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.HistogramBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.03, 0.03, 0.02, 0.9 , 0.02]], dtype=float32)
    """

    def __init__(
        self,
        *,
        bins: int = 10,
        strategy: str = "uniform",
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.bins = bins
        self.strategy = strategy
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.strategy, "strategy", ("uniform", "mass"))
        super()._fit(logits, labels, weight)

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.strategy == "uniform":
            edges = np.linspace(0.0, 1.0, self.bins + 1)[1:-1]
        else:
            edges = equal_mass_edges(p, self.bins, weight)
        hits, mass = bin_sums(p, edges, weight * hit, weight)
        middle = np.convolve(np.concatenate([[0.0], edges, [1.0]]), [0.5, 0.5], "valid")
        return edges, np.divide(hits, mass, out=middle, where=mass > 0)
