"""Models that have not seen a fold, what they say of it, and labels in a form that every estimator takes.

    fold k        model_k = fit(rows outside fold k),   scores_i = model_k at X_i for i in fold k

Some estimators (XGBClassifier) take no labels but 0..k-1, with none left out. One that refuses the labels as they are is given
the place of each among those that occur: the columns of its scores are in the same order, so nothing else changes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import LeaveOneOut

from ..arrays import to_numpy
from ..errors import InputError, warn
from ..inputs.names import places_among
from ..sklearn_private import params_of_rows, rows_of
from .scores import other_predictions, scores_of


def fit_on_labels(
    estimator: Any, X: Any, y: np.ndarray, keywords: dict[str, Any], tensors: bool = False
) -> tuple[Any, bool]:
    """A fitted copy of the estimator, and whether it had to be given places 0..k-1 for labels.

    ``tensors``: labels go to it as tensors on the device of X, which are numbers.
    """

    def in_kind(labels: np.ndarray) -> Any:
        return sys.modules["torch"].as_tensor(labels, device=X.device) if tensors else labels

    try:
        return clone(estimator).fit(X, in_kind(y), **keywords), False
    except (ValueError, TypeError) as refusal:
        names, places = np.unique(y, return_inverse=True)
        if np.array_equal(names, np.arange(len(names))):
            raise
        try:
            return clone(estimator).fit(X, in_kind(places), **keywords), True
        except Exception:  # an estimator may raise anything
            # The labels were not the reason, so the first error is the one to report.
            raise refusal from None


def encode(y: np.ndarray, classes: Any) -> np.ndarray:
    """Position of each label among the classes, which need not be sorted."""
    classes, labels = np.asarray(classes), places_among(y, classes)
    unknown = np.flatnonzero(labels < 0)
    if len(unknown):
        row = int(unknown[0])
        raise InputError(
            f"y: the label {y.tolist()[row]!r} of row {row} is not among the {len(classes)} classes the estimator was fitted on "
            f"(the first is {classes.tolist()[0]!r}). Remove such rows, or fit the estimator on all classes, called the same."
        )
    return labels


def check_folds(cv: Any, counts: np.ndarray) -> None:
    """Refuse folds that lack a class, as scikit-learn does: each member of an ensemble is calibrated on one of them."""
    folds = getattr(cv, "n_splits", None)
    if folds is not None and counts.min() < folds:
        raise InputError(
            f"Requesting {folds}-fold cross-validation but provided less than {folds} examples for at least one class. Use "
            "fewer folds, or ensemble=False, which calibrates on all folds together."
        )
    if isinstance(cv, LeaveOneOut):
        raise InputError(
            "LeaveOneOut cross-validation does not allow an ensemble: each member would be calibrated on a single row. Use "
            "ensemble=False, which calibrates on all of them together."
        )


@dataclass(frozen=True)
class Fold:
    """Held-out rows whose class the model has seen, its scores for them, and the classes that these are columns of."""

    rows: np.ndarray
    seen: np.ndarray
    scores: np.ndarray
    model: Any
    encoded: bool
    other_predictions: tuple[int, int]

    def part(self, rows: np.ndarray) -> Fold:
        """The same for some of the rows."""
        return replace(self, rows=self.rows[rows], scores=self.scores[rows])


def fold_of_all(model: Any, X: Any, response: str, n_classes: int) -> Fold:
    """All rows, held out from a model that was fitted on others."""
    scores = to_numpy(scores_of(model, X, response, n_classes))
    every = np.arange(len(scores)), np.arange(n_classes)
    return Fold(*every, scores, model, False, other_predictions(model, X, scores))


def pooled(folds: list[Fold], model: Any, encoded: bool, n_classes: int, unseen: float) -> Fold:
    """The rows of all folds for one model of all classes, ``unseen`` for those that the model of a fold does not know."""
    counts = [fold.other_predictions for fold in folds]
    compared = sum(other for other, _ in counts), sum(rows for _, rows in counts)
    scores = []
    for fold in folds:
        scores.append(np.full((len(fold.rows), n_classes), unseen, dtype=fold.scores.dtype))
        scores[-1][:, fold.seen] = fold.scores
    rows = np.concatenate([fold.rows for fold in folds])
    return Fold(rows, np.arange(n_classes), np.concatenate(scores), model, encoded, compared)


@dataclass(frozen=True)
class FoldWork:
    """Train without a fold, score the fold; picklable for parallel work."""

    estimator: Any
    X: Any
    y: np.ndarray
    labels: np.ndarray
    response: str
    fit_params: dict[str, Any]
    tensors: bool

    def __call__(self, train: np.ndarray, test: np.ndarray) -> Fold | None:
        n_classes = int(self.labels.max()) + 1
        seen = np.unique(self.labels[train])
        if len(seen) < min(2, n_classes):
            return None  # hardly any classifier can be trained on a single class, and none learns from it
        keywords = params_of_rows(self.X, self.fit_params, indices=train)
        model, encoded = fit_on_labels(
            self.estimator, rows_of(self.X, train), self.y[train], keywords, self.tensors
        )
        test = np.asarray(test)
        if test.dtype == bool:
            test = np.flatnonzero(test)
        test = test[np.isin(self.labels[test], seen)]
        if not len(test):
            return None
        X = rows_of(self.X, test)
        scores = to_numpy(scores_of(model, X, self.response, len(seen)))
        compared = other_predictions(model, X, scores)
        return Fold(test, seen, scores, model, encoded, compared)


def warn_of_places(estimator: Any, encoded: bool, folds: list[Fold]) -> None:
    """Say where the estimator refused the labels as they are: in its last fit (``encoded``), or in folds."""
    name = type(estimator).__name__
    if encoded or all(fold.encoded for fold in folds):
        warn(
            f"{name} refuses these labels, so it was fitted on their places 0, 1, ... in classes_. predict of the calibrated "
            "classifier gives the labels; that of the estimator inside gives places."
        )
    elif any(fold.encoded for fold in folds):
        warn(
            f"{name} takes no labels but 0, 1, ... with none left out, and a class is absent from the training rows of a fold: "
            "there it was fitted on the places of those that occur. Give every class at least two rows."
        )
