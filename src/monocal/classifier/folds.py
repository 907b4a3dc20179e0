"""Models that have not seen a fold, what they say of it, and labels in a form that every estimator takes.

    fold k        model_k = fit(rows outside fold k),   scores_i = model_k at X_i for i in fold k

Some estimators (XGBClassifier) take no labels but 0..k-1, with none left out. One that refuses the labels as they are is given
the place of each among those that occur: the columns of its scores are in the same order, so nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..data.labels import places_among
from ..errors import InputError, warn
from ..sklearn_private import params_of_rows, rows_of
from .scores import scores_of


def fit_on_labels(estimator: Any, X: Any, y: np.ndarray, keywords: dict[str, Any]) -> tuple[Any, bool]:
    """A fitted copy of the estimator, and whether it had to be given places 0..k-1 for labels."""
    try:
        return clone(estimator).fit(X, y, **keywords), False
    except (ValueError, TypeError) as refusal:
        names, places = np.unique(y, return_inverse=True)
        if np.array_equal(names, np.arange(len(names))):
            raise
        try:
            return clone(estimator).fit(X, places, **keywords), True
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


def deal(labels: np.ndarray, folds: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Splits that share out every class as evenly as can be: rows are dealt in turn, class by class."""
    if folds < 2:
        raise InputError(f"cv must be at least 2 folds, but is {folds}.")
    n = len(labels)
    folds = min(folds, n)
    if folds < 2:
        raise InputError(
            f"Cross-fitting needs at least 2 rows, but n_samples={n}. Use cv='prefit' with a fitted estimator."
        )
    fold = np.empty(n, dtype=np.intp)
    fold[np.argsort(labels, kind="stable")] = np.arange(n) % folds
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(folds)]


@dataclass(frozen=True)
class Fold:
    """Held-out rows whose class the model has seen, its scores for them, and the classes that these are columns of."""

    rows: np.ndarray
    seen: np.ndarray
    scores: np.ndarray
    model: Any
    encoded: bool

    def in_all_classes(self, n_classes: int, unseen: float) -> np.ndarray:
        """The scores with a column for every class, ``unseen`` for those that the model does not know."""
        scores = np.full((len(self.rows), n_classes), unseen, dtype=self.scores.dtype)
        scores[:, self.seen] = self.scores
        return scores


@dataclass(frozen=True)
class FoldWork:
    """Train without a fold, score the fold; picklable for parallel work."""

    estimator: Any
    X: Any
    y: np.ndarray
    labels: np.ndarray
    response: str
    fit_params: dict[str, Any]
    keep_model: bool = False

    def __call__(self, train: np.ndarray, test: np.ndarray) -> Fold | None:
        n_classes = int(self.labels.max()) + 1
        seen = np.unique(self.labels[train])
        if len(seen) < min(2, n_classes):
            return None  # hardly any classifier can be trained on a single class, and none learns from it
        keywords = params_of_rows(self.X, self.fit_params, indices=train)
        model, encoded = fit_on_labels(self.estimator, rows_of(self.X, train), self.y[train], keywords)
        test = np.asarray(test)
        if test.dtype == bool:
            test = np.flatnonzero(test)
        test = test[np.isin(self.labels[test], seen)]
        if not len(test):
            return None
        scores = scores_of(model, rows_of(self.X, test), self.response, len(seen))
        return Fold(test, seen, scores, model if self.keep_model else None, encoded)


def tell_of_places(estimator: Any, encoded: bool, folds: list[Fold]) -> None:
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
