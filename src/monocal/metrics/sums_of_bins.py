"""What is summed in each bin, and the errors that follow from it.

From the weight, the confidence and the correctness summed in the bins ``B_k``, the gap of a bin is ``|conf_k - acc_k|`` and

    ECE = sum_k |B_k|/n * gap_k        MCE = max_k gap_k

Sums of two disjoint sets of rows add (`BinSums.__add__`), so any of these over parts of a file is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from ..errors import InputError
from .outcomes import Floats, Integers, Outcomes, bin_totals, equal_width_edges


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
