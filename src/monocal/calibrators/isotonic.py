"""Isotonic calibration: the non-decreasing function of the probability that fits the labels best in squares.

    g = argmin sum weight (g(p) - hit)^2,     g non-decreasing.

One score of two classes is regressed on as it is, as scikit-learn does. Of rows of classes there is one function for every class
(Zadrozny, Elkan, 2002), or one for all classes, fitted to all ``n m`` entries (Zhang, Kailkhura, Han, 2020): the same
non-decreasing function of every entry keeps the order of the classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.isotonic import IsotonicRegression

from ..arrays import device_of, to_numpy
from ..inputs.files import is_blocks
from ..inputs.validation import check_choice
from ..parallel import map_rows, parallel_map, row_slices
from . import state
from .binary_map import expit, log_odds
from .binning import ProbabilityCalibrator, normalise, softmax
from .one_score import check_rising
from .score_rows import ScoreCalibrator

# What breaks ties on the flat pieces of the common function.
_TILT = 1e-9


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

    def __init__(self, *, input: str = "logits"):
        self.input = input

    def _fit_scores(
        self, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray, codes: np.ndarray | None
    ) -> None:
        x = expit(scores[:, 0], np) if self.input == "probabilities" else scores[:, 0]
        self.knots_, self.values_ = _isotonic_line(x, labels, weight)

    def _log_odds(self, scores: list[Any], xp: Any) -> Any:
        p = _interpolated(to_numpy(scores[0]), self.knots_, self.values_)
        return xp.asarray(log_odds(p, np), **device_of(scores[0]))

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
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

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

    mode: str = "multiclass"
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    _state: ClassVar[state.Rules] = {
        "mode_": None,
        "knots_": state.strictly_rising,
        "values_": state.probabilities_at("knots_"),
    }

    @property
    def preserves_order(self) -> bool:  # type: ignore[override]  # it depends on the mode
        """True in mode "multiclass"."""
        return getattr(self, "mode_", self.mode) == "multiclass"

    @property
    def preserves_top1(self) -> bool:  # type: ignore[override]  # it depends on the mode
        """True in mode "multiclass"."""
        return getattr(self, "mode_", self.mode) == "multiclass"

    @property
    def classes_(self) -> np.ndarray:
        """What `predict` gives: the two labels of one score, else the numbers of the columns."""
        return self._one.classes_ if self._one else super().classes_

    # One score per row goes to a calibrator of its own.

    @property
    def _one(self) -> Any:
        return self.__dict__.get("one_score_")

    def _kept_fit(self, X: Any, y: Any, sample_weight: Any, *rest: Any, **options: Any) -> Self:
        if not _is_one_score(X, y):
            self.__dict__.pop("one_score_", None)
            return super()._kept_fit(X, y, sample_weight, *rest, **options)
        one = ScoreIsotonic(input=self.input)._kept_fit(X, y, sample_weight, *rest, **options)
        self.one_score_, self.n_features_in_ = one, one.n_features_in_
        return self

    def _apply(self, *request: Any) -> Any:
        return self._one._apply(*request) if self._one else super()._apply(*request)

    def _apply_to_blocks(self, blocks: Any) -> Iterator[Any]:
        return self._one._apply_to_blocks(blocks) if self._one else super()._apply_to_blocks(blocks)

    def _score(self, *rows: Any) -> float:
        return self._one._score(*rows) if self._one else super()._score(*rows)

    def check_state(self) -> None:
        """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
        (self._one.check_state if self._one else super().check_state)()

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.mode, "mode", ("multiclass", "one_vs_rest"))
        self.mode_ = self.mode
        weight = np.ones(len(labels)) if weight is None else weight
        if self.mode_ == "multiclass":
            lines = [_isotonic_line(*flattened(logits, labels, weight))]
        else:
            p = map_rows(_double_softmax, logits)

            def one(k: int) -> tuple[np.ndarray, np.ndarray]:
                rows = ~np.isinf(logits[:, k])
                if not rows.any():
                    return np.zeros(1), np.zeros(1)
                return _isotonic_line(p[rows, k], (labels[rows] == k).astype(np.float64), weight[rows])

            lines = parallel_map(one, range(logits.shape[1]))
        self.knots_ = [knots for knots, _ in lines]
        self.values_ = [values for _, values in lines]

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        p = _double_softmax(logits)
        if self.mode_ == "multiclass":
            q = _interpolated(p, self.knots_[0], self.values_[0]) + _TILT * p
        else:
            q = np.empty_like(p)
            for k, (knots, values) in enumerate(zip(self.knots_, self.values_, strict=True)):
                q[:, k] = _interpolated(p[:, k], knots, values)
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


def _double_softmax(logits: np.ndarray) -> np.ndarray:
    return softmax(logits, np.float64)


def _isotonic_line(p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knots and values of the isotonic fit."""
    fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(p, hit, sample_weight=weight)
    return fit.X_thresholds_, fit.y_thresholds_


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
        [_double_softmax(logits[b])[rows[: len(labels[b])], labels[b]] for b in row_slices(logits)]
    )
    hits = np.unique(at_label)
    # Places: 2 i + 1 is the i-th hit's own probability, 2 i the open interval below it.
    places = 2 * len(hits) + 1

    def one(block: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        available = ~np.isinf(logits[block])
        p = _double_softmax(logits[block])
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


def _interpolated(x: np.ndarray, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Linear interpolation between non-decreasing ``values`` that rounding cannot make decrease; constant outside."""
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, max(len(knots) - 2, 0))
    after = np.minimum(at + 1, len(knots) - 1)
    width = np.maximum(knots[after] - knots[at], 1e-300)
    part = np.clip((x - knots[at]) / width, 0.0, 1.0)
    return np.minimum(values[at] + (values[after] - values[at]) * part, values[after])
