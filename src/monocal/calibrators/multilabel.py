"""`MultilabelMCCT`: one score per label, many labels, some of them rare.

    log-odds_l(s) = a_l + b_l g(s) + sum_k c_lk ramp_lk(g(s)),      (a_l, b_l) ~ N(mu, S),   b_l >= .01,   c_lk >= 0

``g`` is the map of a `BinaryMCCT` fitted to all labels together. Mean and covariance of intercepts and slopes are estimated by EM
with Laplace's approximation (empirical Bayes), and act as the prior in the fit of each label: a label with many positives gets a
curve of its own, one with few stays near the others, one with no labelled row at all gets their mean. Each label is a certified
convex problem, that of `binary_cone` with a prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray
from sklearn.utils import ClassifierTags

from ..arrays import is_dask
from ..core.map import MapStep
from ..errors import InputError, warn
from ..inputs.files import is_blocks
from ..inputs.formats import as_array, class_names
from ..inputs.validation import check_choice, check_many_labels, check_number, check_weights, read_floats
from ..parallel import one_blas_thread
from ..solver import Solution
from .binary_cone import INTERVALS, LEAST_SLOPE, SHRINKAGE, RampProblem, Score
from .binary_context import posterior_by_group
from .binary_map import ScoreMap, evaluate, export_step
from .binary_mcct import BinaryMCCT, check_maps
from .cone_calibrator import warn_if_unfinished
from .score_rows import ScoreCalibrator, cells_by_label
from .state import expect

# What intercepts and slopes are before any label is seen, counted as one label more: few labels cannot tell their own spread.
_FIRST_MEAN, _FIRST_COVARIANCE = np.array([0.0, 1.0]), np.diag([0.25, 0.05])
# Added to the variances, so that labels which agree do not make the prior singular.
_LEAST_VARIANCE = 1e-4 * np.eye(2)


@dataclass(kw_only=True, eq=False, repr=False)
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
    n_features_in_ : int
        How many labels there are.
    classes_ : ndarray of shape (n_features_in_,)
        The numbers of the columns, as in scikit-learn's multi-label classifiers.
    shared_ : BinaryMCCT
        The map of all labels together.
    maps_ : tuple of ScoreMap
        For each label, the map of the log-odds of ``shared_`` to its own.
    mean_, covariance_ : ndarray of shape (2,), (2, 2)
        Of intercepts and slopes over the labels.
    solutions_ : tuple of monocal.solver.Solution or None
        The certificate of each label's fit; None for a label without a labelled row.

    Notes
    -----
    `predict_proba` gives P(label) of every row and label, (n, L), and `transform` log-odds; `predict` is 1 where a
    label is more probable than not.

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
    """

    input: str = "logits"
    shrinkage: float = SHRINKAGE
    label_shrinkage: float = 2.0
    tol: float = 1e-6
    max_iter: int = 100

    columns = "scores"
    labels_ = np.arange(2)  # what `predict` gives
    smallest_probability_ = 0.0  # exported maps take probabilities as they are

    def fit(  # type: ignore[override]  # without start
        self, X: Any, y: Any = None, sample_weight: Any = None, context: Any = None
    ) -> MultilabelMCCT:
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
        return super().fit(X, y, sample_weight, context)

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """Mean log-likelihood of what is labelled: larger is better. Parameters are those of `fit`."""
        self._check_fitted()
        self._check_frame(X)
        f = self._on_rows("log_odds", X, context=self._codes(context))
        labels, weight = _read_labels(y, sample_weight, f.shape, class_names(X))
        return -float(np.average(np.logaddexp(0.0, np.where(labels == 1, -f, f)), weights=weight))

    @property
    def classes_(self) -> ndarray:
        """The numbers of the columns."""
        self._check_fitted()
        return np.arange(self.n_features_in_)

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
        self._remember_shape(X)
        scores = self._read_scores(X)[1]
        labels, weight = _read_labels(y, sample_weight, scores.shape, class_names(X))
        self._fit_scores(scores, labels, weight, None)

    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        """Learn from scores, labels and weights (n, L)."""
        there = weight > 0
        self.shared_ = BinaryMCCT(
            input=self.input, shrinkage=self.shrinkage, tol=self.tol, max_iter=self.max_iter
        ).fit(scores[there], labels[there].astype(int), weight[there])
        f = self.shared_.transform(scores.ravel()).reshape(scores.shape)
        with one_blas_thread:
            rows = {
                i: _rows_of_label(f[use, i], labels[use, i], weight[use, i])
                for i, use in enumerate(there.T)
                if use.any()
            }
            self.mean_, self.covariance_, lines = _lines_of_labels(list(rows.values()))
            fits = {
                i: self._fit_label(*own, line) for (i, own), line in zip(rows.items(), lines, strict=True)
            }
        # A label without a labelled row has the mean line.
        slope = np.full(2, max(float(self.mean_[1]), LEAST_SLOPE))
        mean_line = ScoreMap("scores", 0.0, np.zeros(1), self.mean_[:1], slope), None
        places = range(scores.shape[1])
        self.maps_, self.solutions_ = zip(*(fits.get(i, mean_line)[:2] for i in places), strict=True)
        solved = [fit[1] for fit in fits.values()]
        self.n_iter_ = max(1, *(solution.n_iter for solution in solved))
        warn_if_unfinished(self, min(solved, key=lambda solution: solution.converged))
        names = getattr(self, "feature_names_in_", places)
        wrong = [str(names[i]) for i, fit in fits.items() if fit[2]]
        if wrong:
            warn(
                f"MultilabelMCCT: the score ranks the rows the wrong way round, or not at all, for the label(s) "
                f"{', '.join(wrong)}: the likeliest slope is not positive and is held at its lower bound."
            )

    def _fit_label(
        self, f: ndarray, labels: ndarray, weight: ndarray, line: ndarray
    ) -> tuple[ScoreMap, Solution, bool]:
        """The map of one label, its certificate, and whether the line alone has its slope at the lower bound."""
        line = np.maximum(line, [-np.inf, LEAST_SLOPE])
        score = Score.at_quantiles(f, weight / weight.sum(), line, INTERVALS)
        how = (self.label_shrinkage, self.tol, self.max_iter)
        problem = RampProblem([score], labels, labels, weight, "scores", how)
        fit = problem.fit(prior=(self.mean_, self.covariance_ + _LEAST_VARIANCE))
        return fit.maps[0], replace(fit.solution, history=()), fit.at_bound

    # Applying

    def _read_scores(self, X: Any, first_row: int = 0) -> tuple[Any, ndarray]:
        values, _ = read_floats(as_array(X), "X")
        if values.ndim != 2:
            raise InputError(
                f"X must have a column for each label, but has shape {tuple(values.shape)}. One score per row: use BinaryMCCT; "
                "of a list, as of MultiOutputClassifier, take np.stack([p[:, 1] for p in X], axis=1). Reshape your data where it "
                "is a single row."
            )
        return super()._read_scores(values, first_row)

    def _names_of_results(self, n_columns: int) -> None:
        """A result for each label, called like its score."""

    def _log_odds(self, scores: ndarray) -> ndarray:
        """Of every row and label, (n, L)."""
        f = self.shared_._log_odds(scores.T.reshape(-1, 1)).reshape(scores.T.shape)
        return np.stack([evaluate(own, one) for own, one in zip(f, self.maps_, strict=True)], axis=1)

    def _map_steps(self) -> list[MapStep]:
        return [export_step(self.shared_.maps_, "labels", self.maps_)]

    def check_state(self) -> None:
        """Raise ValueError unless fitted attributes can be those of a fit."""
        check_choice(self.input, "input", self._inputs)
        shared, n = self.shared_, self.n_features_in_
        same = isinstance(shared, BinaryMCCT) and shared.input == self.input and len(shared.maps_) == 1
        expect(same, "shared_", shared, "a BinaryMCCT of one score, with its own input the same")
        expect(type(n) is int and n >= 1, "n_features_in_", n, "the number of labels")
        check_maps(self.maps_, n, "scores")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags


def _read_labels(
    y: Any, sample_weight: Any, shape: tuple[int, ...], names: tuple[str, ...] | None
) -> tuple[ndarray, ndarray]:
    """Labels 0 and 1 as (n, L), and weights (n, L) that are 0 where a label is not known."""
    if y is None:
        raise InputError(
            "requires y to be passed, but the target y is None: give 0, 1 or -1 for every label."
        )
    labels, known = check_many_labels(y, shape, names)
    weight = check_weights(sample_weight, labels)
    weight = known * (1.0 if weight is None else weight[:, None])
    if not weight.any():
        raise InputError(
            "y: no entry of a row that counts is 0 or 1, so that there is nothing to learn from."
        )
    return labels, weight


def _rows_of_label(f: ndarray, labels: ndarray, weight: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """Log-odds, labels and weights of the rows of a label, or of cells in place of many."""
    cells = cells_by_label(f[:, None], labels, weight, None, reduced=True)
    parts = [(v[:, 0], np.full(len(w), label), w) for label, (v, w, _) in cells.items()]
    scores, labels, weight = map(np.concatenate, zip(*parts, strict=True))
    return scores, labels, weight


def _lines_of_labels(rows: list[tuple[ndarray, ndarray, ndarray]]) -> tuple[ndarray, ndarray, ndarray]:
    """Mean and covariance of intercept and slope over the labels, by EM with Laplace's approximation; and those of each label."""
    f, labels, weight = map(np.concatenate, zip(*rows, strict=True))
    starts = np.cumsum([0, *(len(own[0]) for own in rows[:-1])])
    features = np.stack([np.ones(len(f)), f])
    mean, covariance = _FIRST_MEAN, _FIRST_COVARIANCE
    lines = np.tile(mean, (len(rows), 1))
    for _ in range(60):
        precision = np.linalg.inv(covariance + _LEAST_VARIANCE)
        lines, own = posterior_by_group(features, starts, 0.0, labels, weight, mean, precision, lines)
        before = covariance
        with_first = np.concatenate([lines, [_FIRST_MEAN]])
        mean = with_first.mean(axis=0)
        away = with_first - mean
        covariance = (away.T @ away + own.sum(axis=0) + _FIRST_COVARIANCE) / len(away)
        if np.abs(covariance - before).max() < 1e-4:
            break
    return mean, covariance, lines
