"""KDE-ECE: the calibration error with kernel densities in place of bins.

With ``f`` the density of the top confidence and ``g`` that of its correct part, accuracy at ``t`` is ``a(t)
= g(t) / f(t)``:

    KDE-ECE = integral of |t - min(a(t), 1)| f(t) dt / integral of f(t) dt        over (0, 1)

Triweight kernel, data mirrored at the nearer of 0 and 1, densities on 2^14 points of [-0.6, 1.6]. Both
grids add over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import fftconvolve

from ..errors import InputError
from ..inputs.layout import Layout
from .grid import deposit
from .outcomes import Floats, Outcomes

N_NODES = 1 << 14
LOW, HIGH = -0.6, 1.6
_STEP = (HIGH - LOW) / (N_NODES - 1)


@dataclass(frozen=True)
class KdeSums:
    """Mergeable, of all rows and of the correct ones: (2, N) mirrored grids, (2, 3) sums of ``w c^k``."""

    n_rows: int
    grids: Floats
    moments: Floats

    @classmethod
    def of(cls, rows: Outcomes, weight: Floats) -> KdeSums:
        confidence = np.clip(rows.confidence, 0, 1)
        mirrored = np.concatenate((confidence, np.where(confidence < 0.5, -confidence, 2 - confidence)))
        parts = (weight, weight * rows.correct)
        grids = np.stack([deposit(mirrored, np.tile(part, 2), LOW, HIGH, N_NODES) for part in parts])
        powers = np.stack((np.ones_like(confidence), confidence, confidence**2))
        return cls(len(confidence), grids, np.stack([powers @ part for part in parts]))

    def __add__(self, other: KdeSums) -> KdeSums:
        return KdeSums(self.n_rows + other.n_rows, self.grids + other.grids, self.moments + other.moments)

    def spread(self, which: int) -> float:
        """Standard deviation of all confidences (0) or of the correct ones (1); zero when there are none."""
        mass, first, second = self.moments[which]
        return float(np.sqrt(max(second / mass - (first / mass) ** 2, 0.0))) if mass > 0 else 0.0

    def bandwidth(self, rule: str | float) -> float:
        """Standard deviation of the kernel; one grid step at least, for confidences that are all equal."""
        if rule == "authors":
            width = self.spread(1) * (2 * self.n_rows) ** -0.2
        elif rule == "text":
            width = 1.06 * self.spread(0) * self.n_rows**-0.2
        else:
            width = float(rule)
        return max(width, _STEP)

    def kde_ece(self, rule: str | float = "authors") -> float:
        half = 3 * self.bandwidth(rule)  # a triweight kernel reaches three of its standard deviations
        reach = int(half / _STEP)
        kernel = (1 - (np.arange(-reach, reach + 1) * _STEP / half) ** 2) ** 3
        density, correct = fftconvolve(self.grids, kernel[None, :] / kernel.sum(), mode="same", axes=1)
        nodes = LOW + _STEP * np.arange(N_NODES)
        inside = (nodes > 0) & (nodes < 1)
        nodes, density, correct = nodes[inside], density[inside], correct[inside]
        known = (
            density > 1e-6 * _STEP * self.moments[0, 0]
        )  # below this there is rounding of the transform only
        accuracy = np.divide(correct, density, out=np.zeros_like(nodes), where=known)
        error = np.where(known, np.abs(nodes - np.minimum(accuracy, 1)) * density, 0.0)
        return float(np.trapezoid(error) / np.trapezoid(density))


def check_bandwidth(rule: Any) -> str | float:
    """``"authors"``, ``"text"`` or a positive number."""
    if rule in ("authors", "text"):
        return str(rule)
    if isinstance(rule, int | float | np.number) and np.isfinite(rule) and rule > 0:
        return float(rule)
    raise InputError(f'bandwidth: expected "authors", "text" or a positive number, got {rule!r}')


def kde_ece(
    probs: Any,
    labels: Any,
    *,
    bandwidth: str | float = "authors",
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> float:
    """Calibration error of the top label by kernel density estimates.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    bandwidth : {"authors", "text"} or float
        Standard deviation of the kernel. ``"authors"``: ``(2n)^(-1/5)`` times the standard deviation of the
        confidences of the *correct* rows, which the published figures were computed with. ``"text"``:
        ``1.06 n^(-1/5)`` times that of all confidences, which the text describes. n counts rows, whatever
        their weight, but not those of weight zero.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Notes
    -----
    Confidences pile up near 1, where the density is far from smooth: the value depends on the bandwidth
    more than ECE does on its bins. When all confidences are equal the kernel is one grid step wide.

    References
    ----------
    Zhang, Kailkhura & Han, Mix-n-Match: ensemble and compositional methods for uncertainty calibration in
    deep learning, ICML 2020.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> round(mc.metrics.kde_ece(data.truth, data.labels), 3)
    0.028
    """
    rule = check_bandwidth(bandwidth)
    rows = Outcomes.of(probs, labels, sample_weight, layout=Layout(class_axis, ignore_index))
    return KdeSums.of(rows, rows.weight).kde_ece(rule)
