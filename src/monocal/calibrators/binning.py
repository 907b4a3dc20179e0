"""Calibrators that bin probabilities, one class against the rest, and a spline for the top class.

    q_j = g_j(p_j) / sum_k g_k(p_k),      p = softmax(z).

    histogram          g = frequency of the class in its bin                                  (Zadrozny, Elkan, 2001)
    Bayesian binning   g = mean of many histograms, weighted by their evidence                (Naeini et al., 2015)
    scaling-binning    g = mean in its bin of a smooth function fitted first                  (Kumar, Liang, Ma, 2019)
    spline             the derivative of a spline through the cumulative error of the top     (Gupta et al., 2021)

Rows in which every ``g_j`` is 0 keep their probabilities. A class that is not available (logit ``-inf``) has ``p = 0`` and keeps
``q = 0``. The classes have functions of their own, so their order is not kept.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import expit, gammaln, logit

from ..arrays import compute_dtype
from ..edges import equal_mass_edges, halfway
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, parallel_map
from . import state
from .probability_map import ProbabilityCalibrator, normalise, softmax
from .temperature import best_temperature


class OneVsRestCalibrator(ProbabilityCalibrator):
    """Base: a family fits one class (`_fit_class`) to a step function of its probability.

    Attributes
    ----------
    edges_ : list of m ndarrays
        Interior bin edges of each class; a bin holds its upper edge.
    values_ : list of m ndarrays
        Calibrated probability in each bin, one more than edges.
    """

    edges_: list[np.ndarray]
    values_: list[np.ndarray]

    _state: ClassVar[state.Rules] = {
        "edges_": state.rising,
        "values_": state.probabilities_at("edges_", 1),
    }

    @abstractmethod
    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Edges and values from probabilities (n,), whether the class was the label (n,), and weights (n,)."""

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """What is binned: the probabilities (n, m) of a block of logits."""
        return softmax(logits)

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        weight = np.ones(len(labels)) if weight is None else weight
        scores = map_rows(self._scores, logits)
        masked = np.isinf(logits).any()

        def one(k: int) -> tuple[np.ndarray, np.ndarray]:
            rows = ~np.isinf(logits[:, k]) if masked else slice(None)
            score = scores[rows, k].astype(np.float64)
            if not len(score):  # never available: nothing to learn, and nothing that will be used
                return np.zeros(0), np.zeros(1)
            return self._fit_class(score, labels[rows] == k, weight[rows])

        functions = parallel_map(one, range(logits.shape[1]))
        self.edges_ = [edges for edges, _ in functions]
        self.values_ = [values for _, values in functions]

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        scores = self._scores(logits)
        q = np.empty_like(scores)
        for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
            q[:, k] = values[np.searchsorted(edges, scores[:, k])]
        return normalise(q, scores, ~np.isinf(logits))


def bin_sums(p: np.ndarray, edges: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
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

    bins: int = 10
    strategy: str = "uniform"
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

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


_EDGE = 1e-15  # probabilities closer to 0 or 1 than this are taken for this


@dataclass(kw_only=True, eq=False, repr=False)
class ScalingBinning(OneVsRestCalibrator):
    """The marginal calibrator: scale every class, then bin it; rows normalised.

    Parameters
    ----------
    bins : int
        Of equal weight in the calibration set.
    scaling : {"platt", "temperature"}
        A logistic curve for every class, or one temperature for all.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        Interior bin edges of the scaled score, and its mean in each bin.
    slopes_, intercepts_ : ndarray of shape (m,)
        Of the logistic curves, with ``scaling="platt"``.
    temperature_ : float
        With ``scaling="temperature"``.

    Notes
    -----
    All three steps use the whole calibration set, as in the authors' software; their theory splits it.

    References
    ----------
    Kumar, Liang, Ma (2019). Verified uncertainty calibration. NeurIPS.
    Platt (1999). Probabilistic outputs for support vector machines.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.ScalingBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.01, 0.  , 0.97, 0.01]], dtype=float32)
    """

    bins: int = 15
    scaling: str = "platt"
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "slopes_": state.per_class,
        "intercepts_": state.per_class,
    }

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.scaling, "scaling", ("platt", "temperature"))
        if self.scaling == "temperature":
            self.temperature_ = best_temperature(logits, labels, weight)
        else:
            p = map_rows(softmax, logits)
            w = np.ones(len(labels)) if weight is None else weight

            def one(k: int) -> tuple[float, float]:
                rows = ~np.isinf(logits[:, k])
                return platt(_log_odds(p[rows, k]), labels[rows] == k, w[rows])

            curves = np.array(parallel_map(one, range(logits.shape[1])))
            self.slopes_, self.intercepts_ = curves[:, 0].copy(), curves[:, 1].copy()
        super()._fit(logits, labels, weight)

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self.scaling == "temperature":
            return softmax(logits.astype(compute_dtype(logits), copy=False) / self.temperature_)
        return expit(self.slopes_ * _log_odds(softmax(logits)) + self.intercepts_)

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edges = equal_mass_edges(p, self.bins, weight)
        scored, mass = bin_sums(p, edges, weight * p, weight)
        return edges, scored / mass


def _log_odds(p: np.ndarray) -> np.ndarray:
    return logit(np.clip(p.astype(np.float64), _EDGE, 1.0 - _EDGE))


def platt(x: np.ndarray, hit: np.ndarray, weight: np.ndarray, max_iter: int = 100) -> tuple[float, float]:
    """Slope and intercept of the logistic curve through ``hit`` (n,) over ``x`` (n,), by Newton's method.

    Platt's targets ``(N+ + 1)/(N+ + 2)`` and ``1/(N- + 2)`` stand for 1 and 0, so the optimum is finite on any data.
    """
    if not len(x):
        return 1.0, 0.0
    positive, negative = float(weight[hit].sum()), float(weight[~hit].sum())
    target = np.where(hit, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    centre, unit = float(np.average(x, weights=weight)), float(x.std()) or 1.0
    u = (x - centre) / unit

    def loss(slope: float, intercept: float) -> float:
        f = slope * u + intercept
        return float(weight @ (np.logaddexp(0.0, f) - target * f))

    slope, intercept = 0.0, float(logit(np.average(target, weights=weight)))
    value = loss(slope, intercept)
    for _ in range(max_iter):
        p = expit(slope * u + intercept)
        r, h = weight * (p - target), weight * p * (1.0 - p)
        gradient = np.array([r @ u, r.sum()])
        if np.abs(gradient).max() <= 1e-9 * weight.sum():
            break
        curvature = np.array([[h @ (u * u), h @ u], [h @ u, h.sum()]]) + 1e-12 * weight.sum() * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        length, new = 1.0, loss(slope - step[0], intercept - step[1])
        while not new <= value - 1e-4 * length * gradient @ step and length > 1e-8:
            length /= 2.0
            new = loss(slope - length * step[0], intercept - length * step[1])
        if not new < value:
            break
        slope, intercept, value = slope - length * step[0], intercept - length * step[1], new
    return slope / unit, intercept - slope * centre / unit


_PRIOR = 2.0  # strength of the beta priors of a histogram, all bins together
_NEGLIGIBLE = 1e-12  # histograms that weigh less than this are left out


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianBinning(OneVsRestCalibrator):
    """BBQ for every class against the rest, normalised.

    Parameters
    ----------
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        The averaged step function of each class.

    Notes
    -----
    Sample weights count as repeats.

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
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.  , 0.  , 0.99, 0.  ]], dtype=float32)
    """

    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = min(float(weight.sum()), 1e5) ** (
            1.0 / 3.0
        )  # beyond that, finer cuts cost much and add nothing
        bins = np.arange(max(1, int(root / 10.0)), int(np.ceil(10.0 * root)) + 1)
        order = np.argsort(p)
        p, weight = p[order], weight[order]
        mass, hits = np.cumsum(weight), np.cumsum(weight * hit[order])
        # All histograms one after the other. Values are cut at equal mass but never between equals, so some bins may be empty:
        # those have score 0 and are never looked up.
        model = np.repeat(np.arange(len(bins)), bins)
        first = np.concatenate([[0], np.cumsum(bins)[:-1]])
        upto = (np.arange(len(model)) - np.repeat(first, bins) + 1) / np.repeat(bins, bins)
        reached = np.searchsorted(mass, mass[-1] * upto * (1.0 - 1e-12))
        cut = np.searchsorted(p, p, side="right")[np.minimum(reached, len(p) - 1)]
        upper = np.where(cut < len(p), halfway(p[cut - 1], p[np.minimum(cut, len(p) - 1)]), 1.0)

        def in_bins(running: np.ndarray) -> np.ndarray:
            total = np.diff(running[cut - 1], prepend=0.0)
            total[first] = running[cut[first] - 1]
            return total

        lower = np.concatenate([[0.0], upper[:-1]])
        lower[first] = 0.0
        theta, score = beta_bins(
            in_bins(mass), in_bins(hits), (lower + upper) / 2.0, _PRIOR / np.repeat(bins, bins)
        )
        score = np.add.reduceat(score, first)
        share = np.exp(score - score.max())
        share /= share.sum()
        # The average of step functions steps wherever one of them does.
        step = np.repeat(share, bins)[1:] * np.diff(theta)
        kept = (upper[:-1] < 1.0) & (model[1:] == model[:-1]) & (np.repeat(share, bins)[1:] > _NEGLIGIBLE)
        edges, place = np.unique(upper[:-1][kept], return_inverse=True)
        values = share @ theta[first] + np.concatenate(
            [[0.0], np.cumsum(np.bincount(place, step[kept], len(edges)))]
        )
        return edges, np.clip(values, 0.0, 1.0)


def beta_bins(
    mass: np.ndarray, hits: np.ndarray, middle: np.ndarray, strength: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and log scores of bins with beta priors of ``strength`` at their middles."""
    hits = np.clip(hits, 0.0, mass)  # differences of running sums
    alpha = strength * np.clip(middle, 1e-9, 1.0 - 1e-9)
    beta = strength - alpha
    score = gammaln(hits + alpha) - gammaln(alpha) + gammaln(mass - hits + beta) - gammaln(beta)
    return (hits + alpha) / (mass + strength), score + gammaln(strength) - gammaln(mass + strength)


_TABLE = 512  # points at which the calibrated probability is kept
# A probability of exactly 0 or 1 for the top class would claim more than any sample can show.
_CAUTION = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class SplineCalibration(ProbabilityCalibrator):
    """KS-spline recalibration of the most probable class.

    Parameters
    ----------
    knots : int
        Of the natural cubic spline, evenly spaced in quantiles.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    scores_, values_ : ndarray
        Broken line from the given to the calibrated top probability.

    Notes
    -----
    The other classes keep their proportions, and so their order among themselves. The top class may fall below the second
    where its probability is corrected below about a half, so neither the order nor the top class is guaranteed. Classes tied
    for the top are treated alike.

    References
    ----------
    Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021). Calibration of neural networks using splines. ICLR.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.SplineCalibration().fit(data.values, data.labels)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.  , 0.01, 0.98, 0.  ]], dtype=float32)
    """

    knots: int = 6
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    _state: ClassVar[state.Rules] = {
        "scores_": state.rising,
        "values_": state.probabilities_at("scores_"),
    }

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.knots, "knots", least=2, most=1000, whole=True)
        weight = np.ones(len(labels)) if weight is None else weight
        score = map_rows(lambda z: softmax(z, np.float64).max(axis=1), logits)
        # Among classes tied for the top, the label is the top with equal chances.
        tied = map_rows(lambda z: (z == z.max(axis=1, keepdims=True)).sum(axis=1), logits)
        at_label = logits[np.arange(len(labels)), labels] == logits.max(axis=1)
        correct = np.where(at_label, 1.0 / tied, 0.0)
        # Equal scores are one point, so that neither their order nor repeats of a row matter.
        score, group = np.unique(score, return_inverse=True)
        mass = np.bincount(group, weight)
        error = np.bincount(group, weight * correct) - mass * score
        total = mass.sum()
        quantile, running = np.cumsum(mass) / total, np.cumsum(error) / total
        slope = natural_spline_slope(quantile, running, mass, self.knots)
        middle = quantile - mass / total / 2.0
        if len(score) > _TABLE:
            chosen = np.interp(np.linspace(middle[0], middle[-1], _TABLE), middle, np.arange(len(score)))
            chosen = np.unique(np.round(chosen).astype(np.intp))
            score, middle = score[chosen], middle[chosen]
        self.scores_ = score
        self.values_ = np.clip(score + slope(middle), _CAUTION, 1.0 - _CAUTION)

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        p = softmax(logits, np.float64)
        top = logits == logits.max(axis=1, keepdims=True)
        tied = top.sum(axis=1, keepdims=True)
        highest = np.interp(p.max(axis=1), self.scores_, self.values_)[:, None]
        highest = np.minimum(highest, (1.0 - _CAUTION) / tied)
        rest = np.where(top, 0.0, p)
        left = rest.sum(axis=1, keepdims=True)
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            q = np.where(top, highest, rest / left * (1.0 - tied * highest))
        return normalise(np.where(left > 0, q, top), p, ~np.isinf(logits))


def natural_spline_slope(t: np.ndarray, values: np.ndarray, weight: np.ndarray, knots: int) -> CubicSpline:
    """Derivative of the natural cubic spline on [0, 1] that fits ``values`` at ``t`` best in weighted squares.

    Its value at 0 is held at 0, where a running sum starts.
    """
    at = np.linspace(0.0, 1.0, knots)
    basis = CubicSpline(at, np.eye(knots), bc_type="natural")
    root = np.sqrt(weight / weight.sum())
    height = np.zeros(knots)
    height[1:] = np.linalg.lstsq(basis(t)[:, 1:] * root[:, None], values * root, rcond=None)[0]
    return CubicSpline(at, height, bc_type="natural").derivative()
