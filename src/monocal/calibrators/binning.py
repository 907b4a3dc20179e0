"""Calibrators of probabilities by bins of one class against the rest.

    q_j = g_j(p_j) / sum_k g_k(p_k),      p = softmax(z),      transform(X) = log q,      g a step function:

    histogram           frequency of the class in its bin                              (Zadrozny, Elkan, 2001)
    Bayesian binning    mean of many histograms, weighted by their evidence            (Naeini et al., 2015)
    scaling-binning     mean in its bin of a smooth function fitted first              (Kumar, Liang, Ma, 2019)

A class that is not available (logit ``-inf``) has ``p = 0`` and keeps ``q = 0``. Rows in which every ``g_j`` is 0 keep their
probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy import ndarray
from scipy.special import expit, gammaln, logit

from ..arrays import compute_dtype, ordered_log, ordered_softmax
from ..edges import equal_mass_edges, halfway
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, parallel_map
from . import state
from .base import Calibrator
from .one_score import PlattScaling
from .temperature import best_temperature

# exp(-1000) is zero in every precision: a class of probability 0 that is available has a finite logit all the same.
_LOG_ZERO = -1000.0
# Log-odds are of probabilities no closer to 0 or 1 than this.
_EDGE = 1e-15
# Strength of the beta priors of a histogram, all bins together; histograms that weigh less than the second are left out.
_PRIOR, _NEGLIGIBLE = 2.0, 1e-12
# Rows beyond which finer histograms cost much and add nothing.
_MOST_COUNTED = 1e5

T = TypeVar("T")


class ProbabilityCalibrator(Calibrator):
    """Base: a family writes `_remap`, from a block of logits to calibrated probabilities."""

    @abstractmethod
    def _remap(self, logits: ndarray) -> ndarray:
        """Calibrated probabilities (n, m) of a block of rows, summing to one, 0 where not available."""

    def _probabilities(self, logits: ndarray) -> ndarray:
        return map_rows(self._remap, logits)

    def _calibrate(self, logits: ndarray) -> ndarray:
        def one(z: ndarray) -> ndarray:
            f = np.maximum(ordered_log(self._remap(z)), _LOG_ZERO)
            return np.where(np.isinf(z), -np.inf, f).astype(compute_dtype(z))

        return map_rows(one, logits)


def softmax(logits: ndarray, dtype: Any = None) -> ndarray:
    """Probabilities in compute precision (or ``dtype``), ordered exactly like the logits."""
    with np.errstate(over="ignore"):
        return ordered_softmax(logits.astype(dtype or compute_dtype(logits), copy=False))


def normalise(q: ndarray, p: ndarray, available: ndarray) -> ndarray:
    """Rows of ``q >= 0`` that sum to one, 0 where not available; a row with no mass at all keeps ``p``."""
    q = np.where(available, q, 0.0)
    total = q.sum(axis=1, keepdims=True)
    empty = ~(total[:, 0] > 0)
    q[empty], total[empty] = p[empty], 1.0
    q *= 1.0 / total
    return q


def for_classes(
    fit: Callable[..., T],
    nothing: T,
    scores: ndarray,
    logits: ndarray,
    labels: ndarray,
    weight: ndarray | None,
) -> list[T]:
    """``fit(scores, hit, weight)`` of each class, from the rows where it is available; ``nothing`` where there are none."""
    weight = np.ones(len(labels)) if weight is None else weight

    def one(k: int) -> T:
        rows = ~np.isinf(logits[:, k])
        if not rows.any():
            return nothing
        return fit(scores[rows, k].astype(np.float64), labels[rows] == k, weight[rows])

    return parallel_map(one, range(logits.shape[1]))


class OneVsRestCalibrator(ProbabilityCalibrator):
    """Base: a family fits one class (`_fit_class`) to a step function of its probability. A bin holds its upper edge."""

    _state: ClassVar[state.Rules] = {"edges_": state.rising, "values_": state.probabilities_at("edges_", 1)}

    @abstractmethod
    def _fit_class(self, p: ndarray, hit: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
        """Edges and values from probabilities (n,), whether the class was the label (n,), and weights (n,)."""

    def _scores(self, logits: ndarray) -> ndarray:
        """What is binned: the probabilities (n, m) of a block of logits."""
        return softmax(logits)

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        scores = map_rows(self._scores, logits)
        nothing = np.zeros(0), np.zeros(1)
        steps = for_classes(self._fit_class, nothing, scores, logits, labels, weight)
        self.edges_, self.values_ = (list(part) for part in zip(*steps, strict=True))

    def _remap(self, logits: ndarray) -> ndarray:
        scores = self._scores(logits)
        q = np.empty_like(scores)
        for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
            q[:, k] = values[np.searchsorted(edges, scores[:, k])]
        return normalise(q, scores, ~np.isinf(logits))


def _bin_sums(p: ndarray, edges: ndarray, *values: ndarray) -> list[ndarray]:
    """Sums of each of ``values`` (n,) over the bins."""
    index = np.searchsorted(edges, p)
    return [np.bincount(index, value, len(edges) + 1) for value in values]


@dataclass(kw_only=True, eq=False, repr=False)
class HistogramBinning(OneVsRestCalibrator):
    """One-vs-rest histogram binning, normalised.

    Parameters
    ----------
    bins : int
    strategy : {"uniform", "mass"}
        Bins of equal width, or of equal weight in the calibration set (fewer where many probabilities are equal).
    input, class_axis, ignore_index
        See `Calibrator`.

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
    """

    _variants: ClassVar = {"HB": {}, "HB equal mass": {"strategy": "mass"}}
    bins: int = 10
    strategy: str = "uniform"

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.strategy, "strategy", ("uniform", "mass"))
        super()._fit(logits, labels, weight)

    def _fit_class(self, p: ndarray, hit: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
        if self.strategy == "uniform":
            edges = np.linspace(0.0, 1.0, self.bins + 1)[1:-1]
        else:
            edges = equal_mass_edges(p, self.bins, weight)
        hits, mass = _bin_sums(p, edges, weight * hit, weight)
        middle = np.convolve(np.concatenate([[0.0], edges, [1.0]]), [0.5, 0.5], "valid")
        return edges, np.divide(hits, mass, out=middle, where=mass > 0)


@dataclass(kw_only=True, eq=False, repr=False)
class ScalingBinning(OneVsRestCalibrator):
    """The marginal calibrator: scale every class, then bin it; rows normalised.

    All steps use the whole calibration set, as in the authors' software; their theory splits it.

    Parameters
    ----------
    bins : int
        Of equal weight in the calibration set.
    scaling : {"platt", "temperature"}
        A logistic curve for every class, or one temperature for all.
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        Interior bin edges of the scaled score, and its mean in each bin.
    slopes_, intercepts_ : ndarray of shape (m,)
        Of the logistic curves, with ``scaling="platt"``.
    temperature_ : float
        With ``scaling="temperature"``.

    References
    ----------
    Kumar, Liang, Ma (2019). Verified uncertainty calibration. NeurIPS.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.ScalingBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    """

    _variants: ClassVar = {"Scaling-binning": {}}
    bins: int = 15
    scaling: str = "platt"

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "slopes_": state.per_class,
        "intercepts_": state.per_class,
    }

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.scaling, "scaling", ("platt", "temperature"))
        if self.scaling == "temperature":
            self.temperature_ = best_temperature(logits, labels, weight)
        else:
            odds = map_rows(_log_odds, logits)
            curves = for_classes(platt, (1.0, 0.0), odds, logits, labels, weight)
            self.slopes_, self.intercepts_ = np.array(curves).T.copy()
        super()._fit(logits, labels, weight)

    def _scores(self, logits: ndarray) -> ndarray:
        if self.scaling == "temperature":
            return softmax(logits.astype(compute_dtype(logits), copy=False) / self.temperature_)
        return expit(self.slopes_ * _log_odds(logits) + self.intercepts_)

    def _fit_class(self, p: ndarray, hit: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
        edges = equal_mass_edges(p, self.bins, weight)
        scored, mass = _bin_sums(p, edges, weight * p, weight)
        return edges, scored / mass


def _log_odds(logits: ndarray) -> ndarray:
    """Of each class against the rest."""
    return logit(np.clip(softmax(logits).astype(np.float64), _EDGE, 1.0 - _EDGE))


def platt(x: ndarray, hit: ndarray, weight: ndarray) -> tuple[float, float]:
    """Slope and intercept of the logistic curve through ``hit`` (n,) over ``x`` (n,), with Platt's targets."""
    positive, negative = float(weight[hit].sum()), float(weight[~hit].sum())
    target = np.where(hit, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    line = PlattScaling()
    line._fit_line(x[:, None], target, weight)
    return float(line.coef_[0]), line.intercept_


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianBinning(OneVsRestCalibrator):
    """BBQ for every class against the rest, normalised. Sample weights count as repeats.

    Parameters
    ----------
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        The averaged step function of each class.

    References
    ----------
    Naeini, Cooper, Hauskrecht (2015). Obtaining well calibrated probabilities using Bayesian binning. AAAI.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.BayesianBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    """

    _variants: ClassVar = {"BBQ": {}}

    def _fit_class(self, p: ndarray, hit: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
        root = min(float(weight.sum()), _MOST_COUNTED) ** (1.0 / 3.0)
        bins = np.arange(max(1, int(root / 10.0)), int(np.ceil(10.0 * root)) + 1)
        order = np.argsort(p)
        p, weight = p[order], weight[order]
        mass, hits = np.cumsum(weight), np.cumsum(weight * hit[order])
        # All histograms one after the other. Values are cut at equal mass but never between equals, so some bins may be empty:
        # those have score 0 and are never looked up.
        model = np.repeat(np.arange(len(bins)), bins)
        of_model = np.repeat(bins, bins)
        first = np.concatenate([[0], np.cumsum(bins)[:-1]])
        upto = (np.arange(len(model)) - np.repeat(first, bins) + 1) / of_model
        reached = np.searchsorted(mass, mass[-1] * upto * (1.0 - 1e-12))
        cut = np.searchsorted(p, p, side="right")[np.minimum(reached, len(p) - 1)]
        upper = np.where(cut < len(p), halfway(p[cut - 1], p[np.minimum(cut, len(p) - 1)]), 1.0)

        def in_bins(running: ndarray) -> ndarray:
            total = np.diff(running[cut - 1], prepend=0.0)
            total[first] = running[cut[first] - 1]
            return total

        lower = np.concatenate([[0.0], upper[:-1]])
        lower[first] = 0.0
        middle = (lower + upper) / 2.0
        theta, score = beta_bins(in_bins(mass), in_bins(hits), middle, _PRIOR / of_model)
        score = np.add.reduceat(score, first)
        share = np.exp(score - score.max())
        share /= share.sum()
        # The average of step functions steps wherever one of them does.
        of_bin = np.repeat(share, bins)[1:]
        step = of_bin * np.diff(theta)
        kept = (upper[:-1] < 1.0) & (model[1:] == model[:-1]) & (of_bin > _NEGLIGIBLE)
        edges, place = np.unique(upper[:-1][kept], return_inverse=True)
        steps = np.cumsum(np.bincount(place, step[kept], len(edges)))
        return edges, np.clip(share @ theta[first] + np.concatenate([[0.0], steps]), 0.0, 1.0)


def beta_bins(mass: ndarray, hits: ndarray, middle: ndarray, strength: ndarray) -> tuple[ndarray, ndarray]:
    """Values and log scores of bins with beta priors of ``strength`` at their middles."""
    hits = np.clip(hits, 0.0, mass)  # differences of running sums
    alpha = strength * np.clip(middle, 1e-9, 1.0 - 1e-9)
    beta = strength - alpha
    score = gammaln(hits + alpha) - gammaln(alpha) + gammaln(mass - hits + beta) - gammaln(beta)
    return (hits + alpha) / (mass + strength), score + gammaln(strength) - gammaln(mass + strength)
