r"""What metrics are computed from: sums over rows, most of which add over parts of the data.

Of confidences ``c_i`` that are right (``a_i`` = 1) or wrong (0), with weights ``w_i``:

    bins          in each bin  sum w, sum w^2, sum w c, sum w a                  `BinSums`: ECE, MCE, debiased ECE
    grids         sum_i w_i hat((x - c_i) / step) on the nodes of a grid         smooth_ece, kde_ece
    running sums  of w (c - a), rows in ascending order of c                     bins of equal mass; does not add
    risk curve    running sum of w (1 - a), rows in descending order of c        `RiskCoverage`; does not add

A grid shares a point linearly between its two nearest nodes, so that smoothing afterwards is off by O(step^2) and
the grids of two sets of rows add.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from scipy.fft import dct, idct
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.stats import foldnorm

from ..edges import equal_mass_edges
from ..errors import InputError
from ..inputs.layout import Layout
from ..inputs.validation import check_number
from .outcomes import Floats, Integers, Outcomes, bin_index, bin_totals, equal_width_edges

GROUP_BINS = 5  # a group has fewer rows than all have, and every further bin makes the noise larger


@dataclass(frozen=True)
class BinSums:
    """Sums over the rows of each bin; arrays of shape (..., K), leading axes for classes or groups.

    Attributes
    ----------
    edges : (K + 1,) array
        Bin k holds values in ``(edges[k], edges[k + 1]]``; the first bin also holds zero.
    weight, weight_squared, confidence, correct : (..., K) arrays
        Sums of the weights (the count, when they are one), of their squares, and weighted of the probability and the outcome.

    Examples
    --------
    >>> import monocal as mc
    >>> sums = mc.metrics.bin_sums([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1, 0], n_bins=2)
    >>> sums.weight, sums.correct
    (array([0., 4.]), array([0., 3.]))
    """

    edges: Floats
    weight: Floats
    weight_squared: Floats
    confidence: Floats
    correct: Floats

    @classmethod
    def of_stack(cls, sums: Floats) -> BinSums:
        """From the four sums in one array (4, ..., K), in bins of equal width."""
        return cls(equal_width_edges(sums.shape[-1]), *sums)

    @classmethod
    def of(cls, rows: Outcomes, values: Floats, edges: Floats) -> BinSums:
        """Of the confidence, in bins of other values (n,)."""
        return cls(edges, *stack_in_cells(rows, bin_index(values, edges), (len(edges) - 1,)))

    def __add__(self, other: BinSums) -> BinSums:
        if not isinstance(other, BinSums):
            return NotImplemented
        if self.weight.shape != other.weight.shape or not np.array_equal(self.edges, other.edges):
            raise InputError("BinSums: only sums over the same bins and classes add: use the same n_bins.")
        return BinSums(
            self.edges, *(a + b for a, b in zip(astuple(self)[1:], astuple(other)[1:], strict=True))
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

    def debiased_ece(self, norm: int = 2) -> Floats:
        """Debiased error of norm 1 or 2 over the last axis; see `monocal.metrics.debiased_ece`."""
        accuracy = np.nan_to_num(self.accuracy)
        spread = np.clip(accuracy * (1 - accuracy), 0, None)
        if norm == 2:
            # With unit weights the inflation is 1 / (count - 1); a lone row has no variance and counts as 0.
            free = self.weight**2 - self.weight_squared
            has_variance = free > 1e-9 * self.weight**2
            inflation = np.divide(self.weight_squared, free, out=np.zeros_like(free), where=has_variance)
            square = np.where(has_variance, self.gap**2 - spread * inflation, 0.0)
            return np.sqrt(np.clip((self._share * square).sum(axis=-1), 0, None))
        per_row = np.divide(
            self.weight_squared, self.weight**2, out=np.zeros_like(spread), where=self.weight > 0
        )
        sd = np.sqrt(spread * per_row)
        ratio = np.divide(self.gap, sd, out=np.zeros_like(sd), where=sd > 0)
        expected = np.where(sd > 0, foldnorm.mean(ratio, scale=np.where(sd > 0, sd, 1.0)), self.gap)
        return np.clip((self._share * (2 * self.gap - expected)).sum(axis=-1), 0, None)

    @property
    def _share(self) -> Floats:
        return self.weight / self.weight.sum(axis=-1, keepdims=True)

    def _mean(self, sums: Floats) -> Floats:
        return np.divide(sums, self.weight, out=np.full_like(sums, np.nan), where=self.weight > 0)


def stack_in_cells(rows: Outcomes, cell: Integers, shape: tuple[int, ...]) -> Floats:
    """The four sums of `BinSums` of the confidence in numbered cells, (4, *shape)."""
    w, n_cells = rows.weight, int(np.prod(shape))
    values = (w, w * w, w * rows.confidence, w * rows.correct)
    return np.stack([bin_totals(cell, one, n_cells).reshape(shape) for one in values])


def cell_of(rows: Outcomes, group: Integers, n_bins: int) -> Integers:
    """Number of the cell, group by group and bin by bin, that each row lies in."""
    return group * n_bins + bin_index(rows.confidence, equal_width_edges(n_bins))


def group_stack(rows: Outcomes, group: Integers, n_groups: int, n_bins: int = GROUP_BINS) -> Floats:
    """The sums of the confidence in every group, (4, n_groups, n_bins)."""
    return stack_in_cells(rows, cell_of(rows, group, n_bins), (n_groups, n_bins))


def equal_mass_sums(rows: Outcomes) -> BinSums:
    """Of the confidence in bins of equal mass; equal confidences share a bin."""
    inner = equal_mass_edges(rows.confidence, rows.n_bins, rows.weight, own_last=True)
    edges = np.concatenate(([0.0], inner, [max(1.0, float(rows.confidence.max()))]))
    return BinSums.of(rows, rows.confidence, edges)


def _deposit(points: Floats, weights: Floats, low: float, high: float, n_nodes: int) -> Floats:
    """Grid of (n_nodes,) nodes from ``low`` to ``high``; points must lie within."""
    place = (points - low) * ((n_nodes - 1) / (high - low))
    left = np.clip(place.astype(np.int64), 0, n_nodes - 2)
    part = place - left
    return bin_totals(left, weights * (1 - part), n_nodes) + bin_totals(left + 1, weights * part, n_nodes)


# Smooth ECE: |sum_i w_i (a_i - c_i) K_s(t, c_i)| integrated over t, with a Gaussian reflected at 0 and 1. Reflection
# makes the even periodic extension, whose Fourier series is a cosine series, so smoothing multiplies the k-th
# coefficient by exp(-(pi k s)^2 / 2).

_SMOOTH_NODES = (1 << 13) + 1


def residual_grid(rows: Outcomes) -> Floats:
    """Residuals ``correct - confidence`` on the nodes of [0, 1]; grids of disjoint rows add."""
    confidence = np.clip(rows.confidence, 0, 1)
    return _deposit(confidence, rows.weight * (rows.correct - confidence), 0.0, 1.0, _SMOOTH_NODES)


def smooth_ece_of_grid(grid: Floats, total_weight: float) -> float:
    """Fixed point of the smoothed error of a residual grid: it falls with the bandwidth, so there is one."""
    density = grid * ((_SMOOTH_NODES - 1) / total_weight)
    density[[0, -1]] *= 2  # an end node covers half a cell
    coefficients = dct(density, type=1)
    frequency = (np.pi * np.arange(_SMOOTH_NODES)) ** 2 / 2

    def excess(bandwidth: float) -> float:
        smoothed = idct(coefficients * np.exp(-frequency * bandwidth**2), type=1)
        return float(np.trapezoid(np.abs(smoothed), dx=1 / (_SMOOTH_NODES - 1))) - bandwidth

    return float(brentq(excess, 0.0, 1.0 + 1e-9, xtol=1e-10)) if density.any() else 0.0


# KDE-ECE: integral of |t - min(g(t) / f(t), 1)| f(t) over (0, 1), with the densities f of the confidences and g of the
# correct ones. Triweight kernel, data mirrored at the nearer of 0 and 1.

_KDE_NODES = 1 << 14
_LOW, _HIGH = -0.6, 1.6
_STEP = (_HIGH - _LOW) / (_KDE_NODES - 1)


def kde_sums(rows: Outcomes) -> Floats:
    """Of all rows and of the correct ones (2, N + 4): mirrored grids, sums of ``w c^k``, and the number of rows."""
    confidence = np.clip(rows.confidence, 0, 1)
    mirrored = np.concatenate((confidence, np.where(confidence < 0.5, -confidence, 2 - confidence)))
    powers = np.stack((np.ones_like(confidence), confidence, confidence**2))
    n = [float(len(confidence))]
    parts = (rows.weight, rows.weight * rows.correct)
    grids = [_deposit(mirrored, np.tile(part, 2), _LOW, _HIGH, _KDE_NODES) for part in parts]
    return np.stack([np.concatenate((g, powers @ part, n)) for g, part in zip(grids, parts, strict=True)])


def kde_ece_of_sums(sums: Floats, rule: str | float) -> float:
    """KDE-ECE with the bandwidth of the authors' code, of their text, or a number."""
    grids, moments, n = sums[:, :_KDE_NODES], sums[:, _KDE_NODES:-1], sums[0, -1]

    def spread(which: int) -> float:
        mass, first, second = moments[which]
        return float(np.sqrt(max(second / mass - (first / mass) ** 2, 0.0))) if mass > 0 else 0.0

    if rule == "authors":
        width = spread(1) * (2 * n) ** -0.2
    elif rule == "text":
        width = 1.06 * spread(0) * n**-0.2
    else:
        width = float(rule)
    half = 3 * max(width, _STEP)  # a triweight kernel reaches three of its standard deviations
    reach = int(half / _STEP)
    kernel = (1 - (np.arange(-reach, reach + 1) * _STEP / half) ** 2) ** 3
    density, correct = fftconvolve(grids, kernel[None, :] / kernel.sum(), mode="same", axes=1)
    nodes = _LOW + _STEP * np.arange(_KDE_NODES)
    inside = (nodes > 0) & (nodes < 1)
    nodes, density, correct = nodes[inside], density[inside], correct[inside]
    filled = density > 1e-6 * _STEP * moments[0, 0]  # below this there is rounding of the transform only
    accuracy = np.divide(correct, density, out=np.zeros_like(nodes), where=filled)
    error = np.where(filled, np.abs(nodes - np.minimum(accuracy, 1)) * density, 0.0)
    return float(np.trapezoid(error) / np.trapezoid(density))


def check_bandwidth(rule: Any) -> str | float:
    """``"authors"``, ``"text"`` or a positive number."""
    if rule in ("authors", "text"):
        return str(rule)
    if isinstance(rule, int | float | np.number) and np.isfinite(rule) and rule > 0:
        return float(rule)
    raise InputError(f'bandwidth: expected "authors", "text" or a positive number, got {rule!r}')


def running_sums(rows: Outcomes, order: Integers, *values: Floats) -> tuple[Integers, list[Floats]]:
    """The last row of each group of equal confidences in ``order``, and the running sums of the values there."""
    confidence = rows.confidence[order]
    ends = np.append(np.flatnonzero(confidence[1:] != confidence[:-1]), len(confidence) - 1)
    return order[ends], [np.cumsum(v[order])[ends] for v in values]


def equal_mass_gaps(rows: Outcomes, n_bins: int = 0, bin_size: int = 0) -> tuple[Floats, Floats]:
    """``|sum of w (c - a)|`` of bins of equal mass, ``n_bins`` of them or as large as ``bin_size``; and their masses.

    The running sum is linear across rows of equal confidence: no result depends on the order in which ties arrive.
    """
    gaps = rows.weight * (rows.confidence - rows.correct)
    _, (mass, gap) = running_sums(rows, rows.by_confidence, rows.weight, gaps)
    if n_bins:
        edges = mass[-1] * np.arange(n_bins + 1) / n_bins
    else:  # the last bin also takes what is left over
        full = max(1, int(mass[-1] * (1 + 1e-12) // bin_size))
        edges = np.append(bin_size * np.arange(full, dtype=np.float64), mass[-1])
    at_edges = np.interp(edges, np.insert(mass, 0, 0.0), np.insert(gap, 0, 0.0))
    return np.abs(np.diff(at_edges)), np.diff(edges)


@dataclass(frozen=True)
class RiskCoverage:
    """How often the answers are wrong when only the most confident rows are answered.

    With the different confidences as thresholds, at the k-th largest of which the answered rows weigh ``T_k``, the wrong ones
    among them ``E_k``, and all right answers ``R``,

        AURC   = sum_k (T_k - T_{k-1}) / T * E_k / T_k
        E-AURC = AURC - sum_k (E_k - E_{k-1}) / T * E_k / (R + E_k)

    E-AURC subtracts the AURC of the order in which all right answers come first. Rows of equal confidence are answered together.

    Attributes
    ----------
    threshold : ndarray of shape (K,)
        Answer the rows whose confidence is at least this, the largest first.
    mass, errors : ndarray of shape (K,)
        Rows that are then answered, and wrong answers among them (or their weights).

    Examples
    --------
    >>> import monocal as mc
    >>> curve = mc.metrics.risk_coverage_curve([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3]], [0, 1, 0])
    >>> curve.threshold.tolist(), curve.mass.tolist(), curve.errors.tolist()
    ([0.9, 0.7], [1.0, 3.0], [0.0, 1.0])
    """

    threshold: Floats
    mass: Floats
    errors: Floats

    @classmethod
    def of(cls, rows: Outcomes) -> RiskCoverage:
        errors = rows.weight * (1 - rows.correct)
        ends, sums = running_sums(rows, rows.by_confidence[::-1], rows.weight, errors)
        return cls(rows.confidence[ends], *sums)

    @property
    def coverage(self) -> Floats:
        """Share of the rows that is answered."""
        return self.mass / self.mass[-1]

    @property
    def risk(self) -> Floats:
        """Share of the answers that is wrong."""
        return self.errors / self.mass

    @property
    def aurc(self) -> float:
        """Mean over the rows of the risk at their own confidence as threshold."""
        return float(np.diff(self.mass, prepend=0.0) @ self.risk) / float(self.mass[-1])

    @property
    def e_aurc(self) -> float:
        """The part of `aurc` that a better order of the rows could remove."""
        answered = self.mass[-1] - self.errors[-1] + self.errors
        risk = np.divide(self.errors, answered, out=np.zeros_like(self.errors), where=answered > 0)
        best = float(np.diff(self.errors, prepend=0.0) @ risk) / float(self.mass[-1])
        return max(0.0, self.aurc - best)  # rounding

    def risk_at(self, coverage: float) -> float:
        """Share of wrong answers when this share of the rows is answered."""
        check_number(coverage, "coverage", above=0, most=1)
        mass = coverage * self.mass[-1]
        return float(np.interp(mass, np.append(0.0, self.mass), np.append(0.0, self.errors)) / mass)

    def coverage_at(self, risk: float) -> float:
        """The largest share of the rows that can be answered with at most this share of wrong answers; 0 if none can."""
        check_number(risk, "risk", least=0, most=1)
        low = np.flatnonzero(self.risk <= risk)
        return float(self.coverage[low[-1]]) if len(low) else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        columns = {name: getattr(self, name).tolist() for name in ("threshold", "coverage", "risk")}
        return {"aurc": self.aurc, "e_aurc": self.e_aurc} | columns


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
    probs, labels, n_bins, sample_weight, class_axis, ignore_index
        As in `evaluate`.
    classwise : bool
        One row of sums per class, (m, K), of every probability; otherwise (K,) of the top confidence.

    Examples
    --------
    >>> import monocal as mc
    >>> sums = mc.metrics.bin_sums([[0.9, 0.1], [0.3, 0.7]], [0, 0], n_bins=5)
    >>> sums.weight.tolist(), (sums + sums).weight.tolist()
    ([0.0, 0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0, 2.0])
    """
    layout = Layout(class_axis, ignore_index)
    rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=n_bins, classwise=classwise)
    sums = stack_in_cells(rows, rows.top_bin, (n_bins,)) if rows.classwise is None else rows.classwise
    return BinSums.of_stack(sums)


def risk_coverage_curve(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> RiskCoverage:
    """The risk of answering only the most confident rows (El-Yaniv & Wiener, JMLR 11, 2010), for every share of the rows.

    Parameters
    ----------
    probs, labels, sample_weight, class_axis, ignore_index
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.risk_coverage_curve([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 0, 1]).coverage_at(0.1).__round__(2)
    0.67
    """
    return RiskCoverage.of(Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index)))
