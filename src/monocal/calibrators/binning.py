"""Calibrators that map probabilities: bins of one class against the rest, a spline for the top class, a mixture.

    q = map(p),      p = softmax(z),      transform(X) = log q

    one against the rest    q_j = g_j(p_j) / sum_k g_k(p_k), with g a step function (isotonic: a line):
      histogram             frequency of the class in its bin                              (Zadrozny, Elkan, 2001)
      Bayesian binning      mean of many histograms, weighted by their evidence            (Naeini et al., 2015)
      scaling-binning       mean in its bin of a smooth function fitted first              (Kumar, Liang, Ma, 2019)
      isotonic              the best non-decreasing function in squares                    (Zadrozny, Elkan, 2002)
    isotonic                the same for all classes, fitted to all n m entries            (Zhang, Kailkhura, Han, 2020)
    spline                  the slope of a spline through the cumulative error of the top  (Gupta et al., 2021)
    ensemble temperature    q = w_1 softmax(z / T) + w_2 p + w_3 / m                       (Zhang et al., 2020)

A class that is not available (logit ``-inf``) has ``p = 0`` and keeps ``q = 0``. Rows in which every ``g_j`` is 0 keep their
probabilities. Two keep the order: one non-decreasing function of all entries, and the mixture, of which each part is ordered like
``z`` and so, rounded term by term, is their sum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import expit, gammaln, logit

from ..arrays import compute_dtype, ordered_log, ordered_softmax
from ..edges import equal_mass_edges, halfway
from ..inputs.files import is_blocks
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, one_blas_thread, parallel_map, row_slices, sum_rows
from ..solver import ConeProblem, Expansion, Solution, minimize
from . import state
from .base import START_ROWS, Calibrator
from .one_score import PlattScaling, ScoreIsotonic, interpolated, isotonic_line
from .temperature import best_temperature

# exp(-1000) is zero in every precision: a class of probability 0 that is available has a finite logit all the same.
_LOG_ZERO = -1000.0
# Log-odds are of probabilities no closer to 0 or 1 than this.
_EDGE = 1e-15
# Strength of the beta priors of a histogram, all bins together; histograms that weigh less than the second are left out.
_PRIOR, _NEGLIGIBLE = 2.0, 1e-12
# Rows beyond which finer histograms cost much and add nothing.
_MOST_COUNTED = 1e5
# Steps of EM before Newton's in the search for the weights of a mixture, and how often both are tried.
_CLIMBS, _ROUNDS = 30, 5
# What breaks ties on the flat pieces of an isotonic function of all classes.
_TILT = 1e-9
# Points at which the calibrated probability of the top class is kept. One of exactly 0 or 1 would claim more than a sample shows.
_TABLE, _CAUTION = 512, 1e-6


T = TypeVar("T")


class ProbabilityCalibrator(Calibrator):
    """Base: a family writes `_remap`, from a block of logits to calibrated probabilities."""

    @abstractmethod
    def _remap(self, logits: np.ndarray) -> np.ndarray:
        """Calibrated probabilities (n, m) of a block of rows, summing to one, 0 where not available."""

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return map_rows(self._remap, logits)

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        def one(z: np.ndarray) -> np.ndarray:
            f = np.maximum(ordered_log(self._remap(z)), _LOG_ZERO)
            return np.where(np.isinf(z), -np.inf, f).astype(compute_dtype(z))

        return map_rows(one, logits)


def softmax(logits: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Probabilities in compute precision (or ``dtype``), ordered exactly like the logits."""
    with np.errstate(over="ignore"):
        return ordered_softmax(logits.astype(dtype or compute_dtype(logits), copy=False))


def normalise(q: np.ndarray, p: np.ndarray, available: np.ndarray) -> np.ndarray:
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
    scores: np.ndarray,
    logits: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray | None,
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
    """Base: a family fits one class (`_fit_class`) to a step function of its probability.

    Attributes
    ----------
    edges_ : list of m ndarrays
        Interior bin edges of each class; a bin holds its upper edge.
    values_ : list of m ndarrays
        Calibrated probability in each bin, one more than edges.
    """

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
        scores = map_rows(self._scores, logits)
        functions = for_classes(self._fit_class, (np.zeros(0), np.zeros(1)), scores, logits, labels, weight)
        self.edges_ = [edges for edges, _ in functions]
        self.values_ = [values for _, values in functions]

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        scores = self._scores(logits)
        q = np.empty_like(scores)
        for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
            q[:, k] = values[np.searchsorted(edges, scores[:, k])]
        return normalise(q, scores, ~np.isinf(logits))


def _bin_sums(p: np.ndarray, edges: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
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

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.strategy, "strategy", ("uniform", "mass"))
        super()._fit(logits, labels, weight)

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.bins, "bins", least=1, most=100_000, whole=True)
        check_choice(self.scaling, "scaling", ("platt", "temperature"))
        if self.scaling == "temperature":
            self.temperature_ = best_temperature(logits, labels, weight)
        else:
            odds = map_rows(lambda z: _log_odds(softmax(z)), logits)
            curves = for_classes(platt, (1.0, 0.0), odds, logits, labels, weight)
            self.slopes_, self.intercepts_ = np.array(curves).T.copy()
        super()._fit(logits, labels, weight)

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self.scaling == "temperature":
            return softmax(logits.astype(compute_dtype(logits), copy=False) / self.temperature_)
        return expit(self.slopes_ * _log_odds(softmax(logits)) + self.intercepts_)

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edges = equal_mass_edges(p, self.bins, weight)
        scored, mass = _bin_sums(p, edges, weight * p, weight)
        return edges, scored / mass


def _log_odds(p: np.ndarray) -> np.ndarray:
    return logit(np.clip(p.astype(np.float64), _EDGE, 1.0 - _EDGE))


def platt(x: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
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

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

        def in_bins(running: np.ndarray) -> np.ndarray:
            total = np.diff(running[cut - 1], prepend=0.0)
            total[first] = running[cut[first] - 1]
            return total

        lower = np.concatenate([[0.0], upper[:-1]])
        lower[first] = 0.0
        theta, score = beta_bins(in_bins(mass), in_bins(hits), (lower + upper) / 2.0, _PRIOR / of_model)
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


def beta_bins(
    mass: np.ndarray, hits: np.ndarray, middle: np.ndarray, strength: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and log scores of bins with beta priors of ``strength`` at their middles."""
    hits = np.clip(hits, 0.0, mass)  # differences of running sums
    alpha = strength * np.clip(middle, 1e-9, 1.0 - 1e-9)
    beta = strength - alpha
    score = gammaln(hits + alpha) - gammaln(alpha) + gammaln(mass - hits + beta) - gammaln(beta)
    return (hits + alpha) / (mass + strength), score + gammaln(strength) - gammaln(mass + strength)


@dataclass(kw_only=True, eq=False, repr=False)
class IsotonicCalibration(ProbabilityCalibrator):
    """Isotonic regression of the labels on the probabilities, rows normalised.

    Parameters
    ----------
    mode : {"multiclass", "one_vs_rest"}
        One function for all classes, which keeps their order (``1e-9 p`` is added so that classes on a flat piece stay
        distinct), or one for each class, which does not.
    input : {"logits", "probabilities", "scores"}
        "scores" (any scale) where ``X`` is one score per row, (n,) or (n, 1).
    class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    knots_, values_ : list of ndarrays
        The broken line of each class, or of all (a list of one).
    one_score_ : ScoreIsotonic
        Where ``X`` was one score per row, (n,) or (n, 1): scikit-learn's isotonic regression of the labels (of any two values) on
        it, in place of the above. Results then are P(class 1), (n,), for one-dimensional ``X``, and (n, 2) else.

    Notes
    -----
    Of two columns, ``mode="one_vs_rest"`` is what scikit-learn has for two classes.
    Rows in which every value is 0 keep their given probabilities.

    References
    ----------
    Zadrozny, Elkan (2002). Transforming classifier scores into accurate multiclass probability estimates. KDD.
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for uncertainty calibration in deep
    learning. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.IsotonicCalibration().fit(data.values, data.labels)
    >>> cal.preserves_order, mc.IsotonicCalibration(mode="one_vs_rest").preserves_order
    (True, False)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.  , 0.  , 0.01, 0.99, 0.  ]], dtype=float32)
    """

    _variants: ClassVar = {"Isotonic": {}, "Isotonic OvR": {"mode": "one_vs_rest"}}
    mode: str = "multiclass"

    _state: ClassVar[state.Rules] = {
        "mode_": None,
        "knots_": state.strictly_rising,
        "values_": state.probabilities_at("knots_"),
    }

    @property
    def preserves_order(self) -> bool:  # type: ignore[override]  # it depends on the mode
        """True in mode "multiclass"."""
        return getattr(self, "mode_", self.mode) == "multiclass"

    preserves_top1 = preserves_order

    @property
    def classes_(self) -> np.ndarray:
        """What `predict` gives: the two labels of one score, else the numbers of the columns."""
        return self._one.classes_ if self._one else super().classes_

    # One score per row goes to a calibrator of its own.

    @property
    def _one(self) -> Any:
        return self.__dict__.get("one_score_")

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        context: Any = None,
        *,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> Self:
        """`Calibrator.fit`, or that of one score."""
        if not _is_one_score(X, y):
            super().fit(X, y, sample_weight, context, start=start, start_rows=start_rows)
            self.__dict__.pop("one_score_", None)
            return self
        one = ScoreIsotonic(input=self.input)
        one.fit(X, y, sample_weight, context, start=start, start_rows=start_rows)
        for name in [name for name in vars(self) if name.endswith("_")]:  # of a fit to classes
            delattr(self, name)
        self.one_score_, self.n_features_in_ = one, one.n_features_in_
        return self

    def _apply(self, *request: Any) -> Any:
        return self._one._apply(*request) if self._one else super()._apply(*request)

    def predict_blocks(self, blocks: Any) -> Iterator[Any]:
        """`Calibrator.predict_blocks`, or that of one score."""
        return self._one.predict_blocks(blocks) if self._one else super().predict_blocks(blocks)

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """`Calibrator.score`, or that of one score."""
        if self._one:
            return float(self._one.score(X, y, sample_weight, context))
        return super().score(X, y, sample_weight, context)

    def check_state(self) -> None:
        """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
        (self._one.check_state if self._one else super().check_state)()

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.mode, "mode", ("multiclass", "one_vs_rest"))
        self.mode_ = self.mode
        weight = np.ones(len(labels)) if weight is None else weight
        if self.mode_ == "multiclass":
            lines = [isotonic_line(*flattened(logits, labels, weight))]
        else:
            p = map_rows(partial(softmax, dtype=np.float64), logits)
            lines = for_classes(isotonic_line, (np.zeros(1), np.zeros(1)), p, logits, labels, weight)
        self.knots_ = [knots for knots, _ in lines]
        self.values_ = [values for _, values in lines]

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        p = softmax(logits, np.float64)
        if self.mode_ == "multiclass":
            q = interpolated(p, self.knots_[0], self.values_[0]) + _TILT * p
        else:
            q = np.empty_like(p)
            for k, (knots, values) in enumerate(zip(self.knots_, self.values_, strict=True)):
                q[:, k] = interpolated(p[:, k], knots, values)
        return normalise(q, p, ~np.isinf(logits))


def _is_one_score(X: Any, y: Any) -> bool:
    """Whether rows are single scores, in one dimension or in one column, rather than rows of classes."""
    if is_blocks(X, y) or (isinstance(X, list | tuple) and not X):
        return False
    if isinstance(X, list | tuple):
        return np.ndim(X[0]) == 0 or np.shape(X[0]) == (1,)
    shape: tuple[Any, ...] = getattr(X, "shape", ())
    if len(shape) == 1 and shape[0]:
        first = X.iloc[0] if hasattr(X, "iloc") else X[0]
        return np.ndim(first.as_py() if hasattr(first, "as_py") else first) == 0  # else a column of lists
    return len(shape) == 2 and shape[1] == 1 and not hasattr(X, "columns")


def flattened(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All available entries as points for an isotonic fit, without what cannot matter: at most about 3 n of n m.

    Misses between two neighbouring hits have one value in the fit (equal neighbours always have), so their lowest and
    highest entry, with all their weight, stand for them.
    """
    n = len(labels)
    rows = np.arange(n)
    at_label = np.concatenate(
        [softmax(logits[b], np.float64)[rows[: len(labels[b])], labels[b]] for b in row_slices(logits)]
    )
    hits = np.unique(at_label)
    # Places: 2 i + 1 is the i-th hit's own probability, 2 i the open interval below it.
    places = 2 * len(hits) + 1

    def one(block: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        available = ~np.isinf(logits[block])
        p = softmax(logits[block], np.float64)
        at = np.searchsorted(hits, p)
        place = 2 * at + (hits[np.minimum(at, len(hits) - 1)] == p)
        mass = np.bincount(
            place[available], np.broadcast_to(weight[block][:, None], p.shape)[available], places
        )
        low, high = np.full(places, np.inf), np.full(places, -np.inf)
        np.minimum.at(low, place[available], p[available])
        np.maximum.at(high, place[available], p[available])
        return mass, low, high

    mass, low, high = np.zeros(places), np.full(places, np.inf), np.full(places, -np.inf)
    for part in parallel_map(one, row_slices(logits)):
        mass += part[0]
        np.minimum(low, part[1], out=low)
        np.maximum(high, part[2], out=high)
    hit = np.zeros(places)
    np.add.at(hit, 2 * np.searchsorted(hits, at_label) + 1, weight)
    used = mass > 0
    mean, mass, low, high = hit[used] / mass[used], mass[used], low[used], high[used]
    wide = high > low
    return (
        np.concatenate([low, high[wide]]),
        np.concatenate([mean, mean[wide]]),
        np.concatenate([np.where(wide, mass / 2, mass), mass[wide] / 2]),
    )


@dataclass(kw_only=True, eq=False, repr=False)
class SplineCalibration(ProbabilityCalibrator):
    """KS-spline recalibration of the most probable class.

    The other classes keep their proportions. The top class may fall below the second where its probability is corrected below
    about a half, so neither the order nor the top class is guaranteed. Classes tied for the top are treated alike.

    Parameters
    ----------
    knots : int
        Of the natural cubic spline, evenly spaced in quantiles.
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    scores_, values_ : ndarray
        Broken line from the given to the calibrated top probability.

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

    _variants: ClassVar = {"Spline": {}}
    knots: int = 6

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


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleTemperatureScaling(ProbabilityCalibrator):
    """Mix temperature scaling with the given probabilities and the uniform distribution.

    First the temperature, then the weights: a concave likelihood or a quadratic on a triangle, so their optimum is exact.

    Parameters
    ----------
    loss : {"nll", "mse"}
        What the weights minimise.
    temperature_loss : {"nll", "mse"} or None
        What the temperature minimises; None: the same.
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    temperature_ : float
    weights_ : ndarray of shape (3,)
        Of the tempered, the given and the uniform probabilities. Uniform means over the classes available in the row.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for uncertainty calibration in deep
    learning. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 10)
    >>> cal = mc.EnsembleTemperatureScaling().fit(data.values, data.labels)
    >>> float(round(cal.weights_.sum(), 6))
    1.0
    """

    _variants: ClassVar = {
        "ETS": {},
        "ETS MSE": {"loss": "mse"},
        "ETS published": {"loss": "mse", "temperature_loss": "nll"},
        "ETS MSE published": {"loss": "mse", "temperature_loss": "mse"},
    }
    loss: str = "nll"
    temperature_loss: str | None = None

    preserves_order = True
    preserves_top1 = True
    preserves_ranking = True

    _state: ClassVar[state.Rules] = {"temperature_": state.positive, "weights_": state.shares}

    @classmethod
    def as_published(cls, variant: str = "ETS") -> EnsembleTemperatureScaling:
        """What published comparisons call "ETS" (temperature by NLL, weights by MSE) and "ETS MSE" (both by MSE)."""
        check_choice(variant, "variant", ("ETS", "ETS MSE"))
        return cls(**cls._variants[f"{variant} published"])

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        temperature_loss = self.loss if self.temperature_loss is None else self.temperature_loss
        check_choice(self.loss, "loss", ("nll", "mse"))
        check_choice(temperature_loss, "temperature_loss", ("nll", "mse"))
        self.temperature_ = best_temperature(logits, labels, weight, temperature_loss)
        share = np.ones(len(labels)) if weight is None else weight
        share = share / share.sum()
        at_label = np.empty((len(labels), 3))

        def moments(block: slice) -> np.ndarray:
            parts = self._parts(logits[block].astype(np.float64))
            rows = np.arange(len(parts[0]))
            at_label[block] = np.stack([part[rows, labels[block]] for part in parts], axis=1)
            if self.loss == "nll":
                return np.zeros((3, 3))
            return np.array([[share[block] @ np.vecdot(a, b) for a in parts] for b in parts])

        gram = sum_rows(moments, logits)
        if self.loss == "nll":
            w = most_likely_mixture(at_label, share, np.full(3, 1.0 / 3.0)).coefficients
            self.weights_ = w / w.sum()
        else:
            self.weights_ = simplex_least_squares(gram, share @ at_label)

    def _parts(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tempered, given and uniform probabilities, each (n, m)."""
        p = softmax(logits)
        with np.errstate(over="ignore", under="ignore"):
            depth = logits.astype(p.dtype) - logits.max(axis=1, keepdims=True).astype(p.dtype)
            depth *= p.dtype.type(1.0 / self.temperature_)
        available = ~np.isinf(logits)
        uniform = available * (1.0 / available.sum(axis=1, keepdims=True)).astype(p.dtype)
        return ordered_softmax(depth), p, uniform

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        parts = self._parts(logits)
        w = self.weights_.astype(parts[0].dtype)
        with np.errstate(under="ignore"):
            return w[0] * parts[0] + w[1] * parts[1] + w[2] * parts[2]


def simplex_least_squares(gram: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights on the simplex that minimise ``w' gram w - 2 target' w``: the best over all supports."""
    a = len(target)
    best, lowest = np.zeros(a), np.inf
    for size in range(1, a + 1):
        for support in map(list, combinations(range(a), size)):
            # Stationarity with the multiplier of sum(w) = 1.
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = gram[np.ix_(support, support)]
            system[size, size] = 0.0
            w = np.zeros(a)
            w[support] = np.linalg.lstsq(system, np.append(target[support], 1.0), rcond=None)[0][:size]
            value = w @ gram @ w - 2.0 * target @ w
            if (w >= 0).all() and value < lowest - 1e-15:
                best, lowest = w / w.sum(), value
    return best


class MixtureProblem(ConeProblem):
    """``sum_j w_j - sum_n share_n log(q_n . w)`` over ``w >= 0``, whose minimiser sums to 1 by itself (scale ``w`` to see it).

    Since ``w . gain = 1`` for ``gain_j = sum_n share_n q_nj / (q_n . w)``, weights of sum 1 are the most likely exactly when no
    gain exceeds 1, and they miss the maximum by ``max_j gain_j - 1`` at most.
    """

    def __init__(self, q: np.ndarray, share: np.ndarray, start: np.ndarray):
        super().__init__(q.shape[1], penalty=1.0)
        self.rounding, self.n_rows = 1e-13, len(q)
        self.q, self.share, self._start = q, share, start

    def start(self) -> np.ndarray:
        return self._start

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        mixed = self.q @ coefficients
        if not (mixed > 0).all():
            nothing = np.zeros(len(coefficients))
            return Expansion(np.inf, nothing, np.zeros((len(working), len(working))))
        part = self.q / mixed[:, None]
        own = part[:, working]
        value = -float(self.share @ np.log(mixed))
        return Expansion(value, -(self.share @ part), (own.T * self.share) @ own)

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        # What no row can be of would leave the Hessian without curvature; it stays at zero all the same.
        order = np.argsort(gradient + self.penalty)[:size]
        return np.sort(order[gradient[order] < 0])

    @property
    def worth(self) -> np.ndarray:
        return self.penalty

    def excess(self, coefficients: np.ndarray, here: Expansion) -> float:
        # Convex: F(w) - F(w*) <= g . (w - w*), and w* sums to 1.
        g = here.gradient + self.penalty
        return max(float(g @ coefficients) + max(-float(g.min()), 0.0), 0.0)


def most_likely_mixture(
    q: np.ndarray, share: np.ndarray, start: np.ndarray, tol: float = 1e-9, max_iter: int = 100
) -> Solution:
    """Weights that maximise ``sum_n share_n log(q_n . w)`` for ``q`` (n, a) and shares of sum 1, from positive ones on.

    EM climbs in steps that never fail, however unequal the parts, and that soon become small; Newton goes the rest of the way.
    """
    w = start
    with one_blas_thread:
        for _ in range(_ROUNDS):
            for _ in range(_CLIMBS):
                w = w * (share @ (q / (q @ w)[:, None]))
            solution = minimize(MixtureProblem(q, share, w), tol=tol, max_iter=max_iter)
            if solution.converged:
                break
            w = 0.9 * w + 0.1 * start
    return solution
