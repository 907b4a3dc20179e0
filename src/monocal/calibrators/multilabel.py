"""`MultilabelMCCT`: one score per label, many labels, some of them rare.

    log-odds_l(s) = a_l + b_l g(s) + sum_k c_lk ramp_lk(g(s)),      (a_l, b_l) ~ N(mu, S),   b_l >= .01,   c_lk >= 0

``g`` is the map of a `BinaryMCCT` fitted to all labels together. Mean and covariance of intercepts and slopes are estimated by EM
with Laplace's approximation (empirical Bayes), and act as the prior in the fit of each label: a label with many positives gets a
curve of its own, one with few stays near the others, one with no labelled row at all gets their mean.

With ``C`` upper triangular and ``C C' = S``, ``(a, b) = C e`` turns the prior into a ridge around ``C^-1 mu`` and leaves the
bound of the slope a bound of one coefficient, so that each label is a `LogisticCone`, with a certificate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import ClassifierTags

from ..arrays import array_namespace, is_dask, to_numpy
from ..core.map import MapStep
from ..errors import InputError, warn
from ..inputs.files import is_blocks
from ..inputs.formats import class_names, kind_of, library_of
from ..inputs.validation import check_choice, check_number, check_weights, read_floats, read_numbers
from ..parallel import one_blas_thread
from ..solver import Solution, minimize
from .binary_cone import (
    LEAST_SLOPE,
    SHRINKAGE,
    Line,
    LogisticCone,
    Score,
    Standard,
    informative_knots,
    ramp_ends,
    sigmoid,
    unexplained,
)
from .binary_map import ScoreMap, export_labels
from .binary_mcct import BinaryMCCT, evaluate_map
from .cone_calibrator import warn_if_unfinished
from .score_rows import Cells, ScoreCalibrator, labels_like

# Intervals between the knots of a label.
_INTERVALS = 16
# What intercepts and slopes are before any label is seen, counted as one label more: few labels cannot tell their own spread.
_FIRST_MEAN, _FIRST_COVARIANCE = np.array([0.0, 1.0]), np.diag([0.25, 0.05])
# Added to the variances, so that labels which agree do not make the prior singular.
_LEAST_VARIANCE = 1e-4


class MultilabelMCCT(ScoreCalibrator):
    """Many labels, one score for each: probabilities that keep the order of the rows within every label.

    One increasing map for all labels together, and for each label a line and ramps of it, shrunk towards the other labels as far
    as these agree: a label with three positives, or none, is safe.

    Parameters
    ----------
    input : {"logits", "probabilities", "scores"}
        What a score is: log-odds, P(label), or any scale.
    shrinkage, label_shrinkage : float
        How many standard errors the gradient of a ramp must pass to be used, in the map of all labels and in that of one.
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int

    Attributes
    ----------
    n_labels_ : int
    classes_ : ndarray of shape (n_labels_,)
        The numbers of the columns, as in scikit-learn's multi-label classifiers.
    shared_ : BinaryMCCT
        The map of all labels together.
    maps_ : tuple of ScoreMap
        For each label, the map of the log-odds of ``shared_`` to its own.
    mean_, covariance_ : ndarray of shape (2,), (2, 2)
        Of intercepts and slopes over the labels.
    solutions_ : tuple of monocal.solver.Solution or None
        The certificate of each label's fit; None for a label without a labelled row.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(500, 3))
    >>> Y = (rng.random((500, 3)) < 1 / (1 + np.exp([1, 2, 6] - 2 * scores))).astype(int)
    >>> Y[:100, 1] = -1
    >>> cal = mc.MultilabelMCCT(input="scores").fit(scores, Y)
    >>> cal.predict_proba(np.ones((1, 3))).round(2)
    array([[0.68, 0.52, 0.03]])
    >>> cal.n_labels_
    3
    """

    columns = "scores"
    smallest_probability_ = 5e-324  # an exported map takes 0 for half of it

    def __init__(
        self,
        *,
        input: str = "logits",
        shrinkage: float = SHRINKAGE,
        label_shrinkage: float = 2.0,
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.input = input
        self.shrinkage = shrinkage
        self.label_shrinkage = label_shrinkage
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MultilabelMCCT:  # type: ignore[override]
        """Learn the maps.

        Parameters
        ----------
        X : array-like of shape (n, L)
            A score for each label, in memory.
        y : array-like of shape (n, L)
            0, 1, or -1 or NaN where it is not known whether the row has the label (-1 in cross-validation of scikit-learn, which
            takes no NaN in labels).
        sample_weight : array-like of shape (n,), optional
            A row of weight 2 counts as two rows, one of weight 0 as none.

        Returns
        -------
        self
        """
        self._kept_fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:  # type: ignore[override]
        """P(label) of every row and label, (n, L), in the form and type of ``X``.

        Parameters
        ----------
        X : array-like of shape (n, L)
        out : array of shape (n, L), optional
            Where to write the result.
        """
        return self._apply(X, "predict_proba", out)

    def transform(self, X: Any, *, out: Any = None) -> Any:  # type: ignore[override]
        """Calibrated log-odds of every row and label, (n, L). Parameters are those of `predict_proba`."""
        return self._apply(X, "transform", out)

    def predict(self, X: Any) -> Any:  # type: ignore[override]
        """1 where a label is more probable than not, 0 elsewhere, (n, L)."""
        return self._apply(X, "predict", None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # type: ignore[override]
        """Mean log-likelihood of what is labelled: larger is better. Parameters are those of `fit`."""
        self._check_fitted()
        f = to_numpy(self._on_block(X, "log_odds", None))
        labels, weight = _read_labels(y, sample_weight, f.shape, class_names(X))
        return -float(np.average(np.logaddexp(0.0, np.where(labels == 1, -f, f)), weights=weight))

    @property
    def classes_(self) -> np.ndarray:
        """The numbers of the columns."""
        return np.arange(self.n_labels_)

    @property
    def n_labels_(self) -> int:
        """How many labels there are."""
        self._check_fitted()
        return int(self.n_features_in_)

    # Fitting

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", self._inputs)
        check_number(self.label_shrinkage, "label_shrinkage", least=0)
        if is_dask(X) or hasattr(X, "to_dask_array") or is_blocks(X, y):
            raise InputError(
                "X: MultilabelMCCT is fitted to arrays in memory; predict_proba takes the others."
            )
        self.__dict__.pop("feature_names_in_", None)
        scores = self._read_scores(X)[1]
        self._remember_shape(X)
        matrix = np.stack([to_numpy(score) for score in scores], axis=1)
        self._fit_scores(matrix, *_read_labels(y, sample_weight, matrix.shape, class_names(X)), None)

    def _fit_scores(
        self, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray, codes: np.ndarray | None
    ) -> None:
        """Learn from scores, labels and weights (n, L)."""
        there = weight > 0
        shared = BinaryMCCT(
            input=self.input, shrinkage=self.shrinkage, tol=self.tol, max_iter=self.max_iter
        ).fit(scores[there], labels[there].astype(int), weight[there])
        f = shared.transform(scores.ravel()).reshape(scores.shape)
        with one_blas_thread:
            rows = _rows_of_labels(f, labels, weight)
            self.mean_, self.covariance_ = _mean_and_covariance(*rows)
            fits = [self._fit_label(*(part[:, i] for part in rows)) for i in range(scores.shape[1])]
        self.shared_ = shared
        self.maps_ = tuple(one for one, _, _ in fits)
        self.solutions_ = tuple(solution for _, solution, _ in fits)
        solved = [solution for solution in self.solutions_ if solution is not None]
        self.n_iter_ = max(1, *(solution.n_iter for solution in solved))
        warn_if_unfinished(self, min(solved, key=lambda solution: solution.converged))
        names = getattr(self, "feature_names_in_", range(scores.shape[1]))
        wrong = [str(name) for name, (_, _, at_bound) in zip(names, fits, strict=True) if at_bound]
        if wrong:
            warn(
                f"MultilabelMCCT: the score ranks the rows the wrong way round, or not at all, for the label(s) "
                f"{', '.join(wrong)}: the likeliest slope is not positive and is held at its lower bound."
            )

    def _fit_label(
        self, f: np.ndarray, labels: np.ndarray, weight: np.ndarray
    ) -> tuple[ScoreMap, Solution | None, bool]:
        """The map of one label, its certificate, and whether the line alone has its slope at the lower bound."""
        there = weight > 0
        if not there.any():
            slope = max(float(self.mean_[1]), LEAST_SLOPE)
            return ScoreMap("scores", 0.0, np.zeros(1), self.mean_[:1], np.full(2, slope)), None, False
        f, labels, weight = f[there], labels[there], weight[there]
        total = (
            float(weight.sum()) + 1.0
        )  # with the prior, which counts like a row in the unit of its own coefficients
        factor = _upper_factor(self.covariance_)
        centre = np.linalg.solve(factor, self.mean_)
        lower = np.array([-np.inf, LEAST_SLOPE / factor[1, 1]])
        base = np.column_stack([np.ones(len(f)), f]) @ factor
        # The ridge around the centre: e^2 / 2 and the linear term -centre e.
        prior, ridge = -centre / total, np.full(2, 1.0 / total)
        problem = LogisticCone(base, labels, weight / total, lower, prior, ridge, np.maximum(centre, lower))
        line = minimize(problem, tol=self.tol / 10)
        p = sigmoid(base @ line.coefficients)
        knots, few = informative_knots(f, weight / weight.sum(), p, _INTERVALS)
        ends = ramp_ends(len(knots), few)
        score = Score(0.0, Standard(f, 0.0, 1.0), knots, *ends, Line(line.coefficients, line.objective))
        ramps = score.columns(f)[:, 1:]
        units = unexplained(base, ramps, np.maximum(weight * p * (1.0 - p), 1e-200), np.ones(2))
        none = np.zeros(ramps.shape[1])
        problem = LogisticCone(
            np.column_stack([base, ramps]),
            labels,
            weight / total,
            np.append(lower, none),
            np.append(prior, self.label_shrinkage * units / total),
            np.append(ridge, none),
            np.append(line.coefficients, none),
        )
        solution = minimize(problem, tol=self.tol, max_iter=self.max_iter, gap_tol=100.0 * self.tol)
        intercept, slope = factor @ solution.coefficients[:2]
        own = score.map("scores", intercept, np.append(max(slope, LEAST_SLOPE), solution.coefficients[2:]))
        return own, replace(solution, history=()), bool(line.coefficients[1] <= lower[1])

    # Applying

    def _read_scores(self, X: Any, first_row: int = 0) -> tuple[Any, list[Any]]:
        values, _ = read_floats(kind_of(X).array(X), "X")
        if values.ndim != 2:
            raise InputError(
                f"X must have a column for each label, but has shape {tuple(values.shape)}. One score per row: use BinaryMCCT; "
                "of a list, as of MultiOutputClassifier, take np.stack([p[:, 1] for p in X], axis=1). Reshape your data where it "
                "is a single row."
            )
        return super()._read_scores(values, first_row)

    def _on_block(self, X: Any, method: str, codes: np.ndarray | None, first_row: int = 0) -> Any:
        values, scores = self._read_scores(X, first_row)
        n, width = values.shape
        if width != self.n_features_in_:
            raise InputError(
                f"X has {width} features, but MultilabelMCCT is expecting {self.n_features_in_} features as input."
            )
        xp = array_namespace(values)
        with np.errstate(over="ignore", under="ignore"):
            f = self._log_odds(scores, xp)
        if method == "predict":
            f = labels_like(np.arange(2), to_numpy(f > 0), values)
        elif method != "log_odds":
            f = self._formed(f, values[:, 0], method, xp)
        return xp.stack([f[i * n : (i + 1) * n] for i in range(width)], axis=1)

    def _log_odds(self, scores: list[Any], xp: Any) -> Any:
        """Of all rows of the first label, then of the second, ..."""
        f = self.shared_._log_odds([xp.concat(scores)], xp)
        n = len(scores[0])
        return xp.concat([evaluate_map(f[i * n : (i + 1) * n], one, xp) for i, one in enumerate(self.maps_)])

    def _map_steps(self) -> list[MapStep]:
        return [export_labels(self.shared_.maps_[0], self.maps_)]

    def check_state(self) -> None:
        """Raise ValueError unless fitted attributes can be those of a fit."""
        check_choice(self.input, "input", self._inputs)
        shared, maps, n = self.shared_, self.maps_, self.n_features_in_
        if not isinstance(shared, BinaryMCCT) or shared.input != self.input or len(shared.maps_) != 1:
            raise ValueError(
                "shared_ cannot be this: expected a BinaryMCCT of one score, with the same input"
            )
        several = isinstance(maps, tuple) and all(isinstance(one, ScoreMap) for one in maps)
        if isinstance(n, bool) or not several or len(maps) != n or n < 1:
            raise ValueError("maps_ cannot be this: expected a map for each label")
        for one in maps:
            one.check()
            if one.input != "scores" or one.softness != 0:
                raise ValueError("maps_ cannot be this: expected maps of log-odds")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags


def _read_labels(
    y: Any, sample_weight: Any, shape: tuple[int, ...], names: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels 0 and 1 as (n, L), and weights (n, L) that are 0 where a label is not known."""
    if y is None:
        raise InputError(
            "requires y to be passed, but the target y is None: give 0, 1 or -1 for every label."
        )
    own = class_names(y)
    if names is not None and own is not None and own != names and set(own) == set(names):
        raise InputError("y has the columns of X in another order: use y[X.columns].")
    if library_of(y) == "pandas":  # types of columns that have a missing value of their own
        y = y.astype(object).where(y.notna(), np.nan)
    labels = to_numpy(read_numbers(y, "y", "0, 1, or -1 or NaN where it is not known")).astype(np.float64)
    if labels.shape != shape:
        raise InputError(
            f"y has shape {labels.shape} and X has shape {tuple(shape)}: expected an entry for each score, 0, 1, or -1 "
            "where it is not known."
        )
    known = ~np.isnan(labels) & (labels != -1)
    bad = known & (labels != 0) & (labels != 1)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"y: expected 0, 1, or -1 or NaN where it is not known, but row {row} of label {column} is {labels[row, column]:g}."
        )
    weight = check_weights(sample_weight, labels)
    weight = known * (1.0 if weight is None else weight[:, None])
    if not weight.any():
        raise InputError(
            "y: no entry of a row that counts is 0 or 1, so that there is nothing to learn from."
        )
    return np.where(known, labels, 0.0), weight


def _rows_of_labels(
    f: np.ndarray, labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with cells in place of many rows; columns are filled up with rows of weight 0."""
    columns = []
    for i in range(f.shape[1]):
        there = weight[:, i] > 0
        cells = Cells.of(f[there, i, None], labels[there, i], weight[there, i], None, True).by_label
        parts = [(v[:, 0], np.full(len(w), label), w) for label, (v, w, _) in cells.items()]
        columns.append([np.concatenate(part) for part in zip(*parts, strict=True)] or [np.zeros(0)] * 3)
    result = np.zeros((3, max(len(column[0]) for column in columns), len(columns)))
    for i, column in enumerate(columns):
        result[:, : len(column[0]), i] = column
    return result[0], result[1], result[2]


def _mean_and_covariance(
    f: np.ndarray, labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of intercept and slope over the labels, by EM with Laplace's approximation."""
    there = weight.any(axis=0)
    f, labels, weight = f[:, there], labels[:, there], weight[:, there]
    mean, covariance = _FIRST_MEAN, _FIRST_COVARIANCE
    lines = np.tile(mean, (f.shape[1], 1))
    for _ in range(60):
        precision = np.linalg.inv(covariance + _LEAST_VARIANCE * np.eye(2))
        for _ in range(20):
            p = sigmoid(lines[:, 0] + lines[:, 1] * f)
            residual, curvature = weight * (p - labels), weight * p * (1.0 - p)
            gradient = np.stack([residual.sum(axis=0), (residual * f).sum(axis=0)], axis=1)
            gradient += (lines - mean) @ precision
            h = [curvature.sum(axis=0), (curvature * f).sum(axis=0), (curvature * f * f).sum(axis=0)]
            hessian = np.stack([h[0], h[1], h[1], h[2]], axis=1).reshape(-1, 2, 2) + precision
            step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
            size = np.abs(step).max(axis=1, keepdims=True)
            lines = lines - step / np.maximum(size, 1.0)
            if size.max() < 1e-6:
                break
        before = covariance
        with_first = np.concatenate([lines, [_FIRST_MEAN]])
        mean = with_first.mean(axis=0)
        away = with_first - mean
        spread = away.T @ away + np.linalg.inv(hessian).sum(axis=0) + _FIRST_COVARIANCE
        covariance = spread / len(away)
        if np.abs(covariance - before).max() < 1e-4:
            break
    return mean, covariance


def _upper_factor(covariance: np.ndarray) -> np.ndarray:
    """``C`` upper triangular with ``C C'`` the covariance and the least variance."""
    whole = covariance + _LEAST_VARIANCE * np.eye(2)
    return np.linalg.cholesky(whole[::-1, ::-1])[::-1, ::-1]
