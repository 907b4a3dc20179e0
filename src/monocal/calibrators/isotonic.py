"""Calibrators of probabilities by a curve: isotonic regression, and a spline for the most probable class.

    isotonic, one vs rest   q_j ~ g_j(p_j), the best non-decreasing function in squares     (Zadrozny, Elkan, 2002)
    isotonic, multiclass    one such function for all classes, fitted to all n m entries    (Zhang, Kailkhura, Han, 2020)
    isotonic, one score     p = g(s)
    spline                  the slope of a spline through the cumulative error of the top   (Gupta et al., 2021)

Rows are normalised as in `binning`. One non-decreasing function of all entries keeps the order of the classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray
from scipy.interpolate import CubicSpline
from sklearn.isotonic import IsotonicRegression

from ..inputs.files import is_blocks
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, parallel_map, row_slices
from . import state
from .binary_map import expit, log_odds
from .binning import ProbabilityCalibrator, for_classes, normalise, softmax
from .score_rows import ScoreCalibrator, check_rising

# What breaks ties on the flat pieces of an isotonic function of all classes.
_TILT = 1e-9
# Points at which the calibrated probability of the top class is kept. One of exactly 0 or 1 would claim more than a sample shows.
_TABLE, _CAUTION = 512, 1e-6


def isotonic_line(p: ndarray, hit: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
    """Knots and values of the isotonic fit."""
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    fit = model.fit(p, hit, sample_weight=weight)
    return fit.X_thresholds_, fit.y_thresholds_


def interpolated(x: ndarray, knots: ndarray, values: ndarray) -> ndarray:
    """Linear interpolation between non-decreasing ``values`` that rounding cannot make decrease; constant outside."""
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, max(len(knots) - 2, 0))
    after = np.minimum(at + 1, len(knots) - 1)
    width = np.maximum(knots[after] - knots[at], 1e-300)
    part = np.clip((x - knots[at]) / width, 0.0, 1.0)
    return np.minimum(values[at] + (values[after] - values[at]) * part, values[after])


class ScoreIsotonic(ScoreCalibrator):
    """Isotonic regression of the labels on one score, as scikit-learn has it for two classes.

    `IsotonicCalibration` does this where it is fitted to one score per row.

    Parameters
    ----------
    input : {"logits", "probabilities", "scores"}

    Attributes
    ----------
    knots_, values_ : ndarray
        The broken line from scores to probabilities.

    Examples
    --------
    >>> from monocal.calibrators import ScoreIsotonic
    >>> cal = ScoreIsotonic(input="scores").fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> cal.predict_proba([-1.0, 0.0, 1.5])
    array([0.  , 0.5 , 0.75])
    """

    _variants: ClassVar = {}  # inside IsotonicCalibration

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        x = expit(scores[:, 0], np) if self.input == "probabilities" else scores[:, 0]
        self.knots_, self.values_ = isotonic_line(x, labels, weight)

    def _log_odds(self, scores: ndarray) -> ndarray:
        f: ndarray = log_odds(interpolated(scores[:, 0], self.knots_, self.values_), np)
        return f

    def check_state(self) -> None:
        super().check_state()
        check_rising("knots_", self.knots_, strictly=True)
        check_rising("values_", self.values_, len(self.knots_))


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

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_choice(self.mode, "mode", ("multiclass", "one_vs_rest"))
        self.mode_ = self.mode
        weight = np.ones(len(labels)) if weight is None else weight
        if self.mode_ == "multiclass":
            lines = [isotonic_line(*flattened(logits, labels, weight))]
        else:
            p = map_rows(partial(softmax, dtype=np.float64), logits)
            nothing = np.zeros(1), np.zeros(1)
            lines = for_classes(isotonic_line, nothing, p, logits, labels, weight)
        self.knots_ = [knots for knots, _ in lines]
        self.values_ = [values for _, values in lines]

    def _remap(self, logits: ndarray) -> ndarray:
        p = softmax(logits, np.float64)
        if self.mode_ == "multiclass":
            q = interpolated(p, self.knots_[0], self.values_[0]) + _TILT * p
        else:
            q = np.empty_like(p)
            for k, (knots, values) in enumerate(zip(self.knots_, self.values_, strict=True)):
                q[:, k] = interpolated(p[:, k], knots, values)
        return normalise(q, p, ~np.isinf(logits))

    # One score per row goes to a calibrator of its own.

    @property
    def _how(self) -> Any:
        """The calibrator of one score where that was fitted, else the base class."""
        return self.__dict__.get("one_score_") or super()

    @property
    def classes_(self) -> ndarray:
        """What `predict` gives: the two labels of one score, else the numbers of the columns."""
        classes: ndarray = self._how.classes_
        return classes

    def _checked_fit(self, X: Any, y: Any, *rest: Any) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        if not _is_one_score(X, y):
            super()._checked_fit(X, y, *rest)
            return
        one = ScoreIsotonic(input=self.input)
        one._checked_fit(X, y, *rest)
        self.one_score_, self.n_features_in_ = one, one.n_features_in_

    def _apply(self, *request: Any) -> Any:
        return self._how._apply(*request)

    def _predicted(self, blocks: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        result: Iterator[Any] = self._how._predicted(blocks)
        return result

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """`Calibrator.score`, or that of one score."""
        return float(self._how.score(X, y, sample_weight, context))

    def check_state(self) -> None:
        """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
        self._how.check_state()


def _is_one_score(X: Any, y: Any) -> bool:
    """Whether rows are single scores, in one dimension or in one column, rather than rows of classes."""
    if is_blocks(X, y) or hasattr(X, "columns"):
        return False
    if isinstance(X, list | tuple):
        return len(X) > 0 and np.shape(X[0]) in ((), (1,))
    shape: tuple[Any, ...] = getattr(X, "shape", ())
    return (len(shape) == 1 and shape[0] > 0) or (len(shape) == 2 and shape[1] == 1)


def flattened(logits: ndarray, labels: ndarray, weight: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """All available entries as points for an isotonic fit, without what cannot matter: at most about 3 n of n m.

    Misses between two neighbouring hits have one value in the fit (equal neighbours always have), so their lowest and
    highest entry, with all their weight, stand for them.
    """
    blocks = row_slices(logits)
    p_of = [np.take_along_axis(softmax(logits[b], np.float64), labels[b, None], 1) for b in blocks]
    hits, of_hit = np.unique(np.concatenate(p_of)[:, 0], return_inverse=True)
    # Places: 2 i + 1 is the i-th hit's own probability, 2 i the open interval below it.
    places = 2 * len(hits) + 1

    def one(block: slice) -> tuple[ndarray, ndarray, ndarray]:
        available = ~np.isinf(logits[block])
        p = softmax(logits[block], np.float64)
        at = np.searchsorted(hits, p)
        place = (2 * at + (hits[np.minimum(at, len(hits) - 1)] == p))[available]
        of_entry = np.broadcast_to(weight[block][:, None], p.shape)[available]
        mass = np.bincount(place, of_entry, places)
        low, high = np.full(places, np.inf), np.full(places, -np.inf)
        np.minimum.at(low, place, p[available])
        np.maximum.at(high, place, p[available])
        return mass, low, high

    mass, low, high = np.zeros(places), np.full(places, np.inf), np.full(places, -np.inf)
    for part in parallel_map(one, blocks):
        mass += part[0]
        np.minimum(low, part[1], out=low)
        np.maximum(high, part[2], out=high)
    hit = np.bincount(2 * of_hit + 1, weight, places)
    used = mass > 0
    mean, mass, low, high = hit[used] / mass[used], mass[used], low[used], high[used]
    wide = high > low
    weights = np.concatenate([np.where(wide, mass / 2, mass), mass[wide] / 2])
    return np.concatenate([low, high[wide]]), np.concatenate([mean, mean[wide]]), weights


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

    _state: ClassVar[state.Rules] = {"scores_": state.rising, "values_": state.probabilities_at("scores_")}

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
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
            even = np.linspace(middle[0], middle[-1], _TABLE)
            chosen = np.unique(np.rint(np.interp(even, middle, np.arange(len(score)))).astype(np.intp))
            score, middle = score[chosen], middle[chosen]
        self.scores_ = score
        self.values_ = np.clip(score + slope(middle), _CAUTION, 1.0 - _CAUTION)

    def _remap(self, logits: ndarray) -> ndarray:
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


def natural_spline_slope(t: ndarray, values: ndarray, weight: ndarray, knots: int) -> CubicSpline:
    """Derivative of the natural cubic spline on [0, 1] that fits ``values`` at ``t`` best in weighted squares.

    Its value at 0 is held at 0, where a running sum starts.
    """
    at = np.linspace(0.0, 1.0, knots)
    basis = CubicSpline(at, np.eye(knots), bc_type="natural")
    root = np.sqrt(weight / weight.sum())
    height = np.zeros(knots)
    height[1:] = np.linalg.lstsq(basis(t)[:, 1:] * root[:, None], values * root, rcond=None)[0]
    return CubicSpline(at, height, bc_type="natural").derivative()
