"""Fitted models with their calibrators: trained without a fold, scored on the fold, and averaged where there are several.

    fold k        model_k = fit(rows outside fold k),   scores_i = model_k at X_i for i in fold k
    member        p^(k) = calibrator_k(scores of model_k)
    ensemble      p_j = 1/K sum_k p_j^(k)

Some estimators (XGBClassifier) take no labels but 0..k-1, with none left out. One that refuses the labels as they are is given
the place of each among those that occur: the columns of its scores are in the same order, so nothing else changes.

Every member keeps the order of its own model. The models order the classes differently, so their mean has the order of none
of them. Where all members agree the mean agrees with them: if p_i^(k) >= p_j^(k) for every k then p_i >= p_j, in floating
point as well, since the members are added in the same order for every class and a rounded sum rises with each of its terms.
A class that every member names is named: where rounding ties it with another, it is lifted by one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..arrays import keep_argmax
from ..calibrators import Calibrator
from ..calibrators.multilabel import MultilabelMCCT
from ..sklearn_private import params_of_rows, rows_of
from .scores import label_scores, scores_of


@dataclass(frozen=True)
class CalibratedModel:
    """A fitted estimator with its calibrator, an entry of ``CalibratedClassifier.calibrated_classifiers_``.

    Attributes
    ----------
    estimator : classifier
    calibrators : list of Calibrator
        The one calibrator of all its classes; a list, as in scikit-learn.
    classes, seen : ndarray
        All classes of the classifier, and which of them the estimator has been trained on; it scores these only.
    response : {"decision_function", "predict_proba"}
    scale : float
        A power of two that ``decision_function`` is multiplied by before it is calibrated.
    encoded : bool
        Whether the estimator was given the places 0, 1, ... of the labels instead of the labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import monocal as mc
    >>> X, y = load_iris(return_X_y=True)
    >>> model = mc.CalibratedClassifier(cv=3, ensemble=True).fit(X, y)
    >>> first = model.calibrated_classifiers_[0]
    >>> first.estimator, first.calibrators
    (LinearSVC(random_state=0), [ConditionalMCCT()])
    >>> first.predict_proba(X).shape
    (150, 3)
    """

    estimator: Any
    calibrators: list[Calibrator]
    classes: np.ndarray
    seen: np.ndarray
    response: str
    scale: float
    encoded: bool

    @property
    def has_many_labels(self) -> bool:
        """Whether each row has many labels, not one class."""
        return isinstance(self.calibrators[0], MultilabelMCCT)

    def scores(self, X: Any) -> Any:
        """What the calibrator is given: a column for each class that the estimator has seen."""
        of = label_scores if self.has_many_labels else scores_of
        scores = of(self.estimator, X, self.response, len(self.seen))
        return scores if self.scale == 1 else scores * self.scale

    def predict_proba(self, X: Any, context: Any = None) -> Any:
        """Calibrated probabilities (n, m) of all classes; 0 for one that the estimator has not seen."""
        keywords = {} if context is None else {"context": context}
        own = self.calibrators[0].predict_proba(self.scores(X), **keywords)
        if len(self.seen) == len(self.classes):
            return own
        p = np.zeros((len(own), len(self.classes)), dtype=own.dtype)
        p[:, self.seen] = own
        return p


def mean_of_members(members: Sequence[CalibratedModel], X: Any, context: Any) -> Any:
    """Probabilities (n, m) of all classes."""
    first = members[0].predict_proba(X, context)
    if len(members) == 1:
        return first
    named, total = first.argmax(axis=1), first
    agreed = named == named
    for member in members[1:]:
        p = member.predict_proba(X, context)
        total = total + p
        agreed &= p.argmax(axis=1) == named
    mean = total / len(members)
    if not members[0].has_many_labels:
        mean[agreed] = keep_argmax(mean[agreed], first[agreed])
    return mean


@dataclass(frozen=True)
class Fold:
    """Held-out rows whose class the model has seen, its scores for them, and the classes that these are columns of."""

    rows: np.ndarray
    seen: np.ndarray
    scores: np.ndarray
    model: Any
    encoded: bool = False


@dataclass(frozen=True)
class Trainer:
    """Trains an estimator on some rows and scores others; picklable for parallel work."""

    estimator: Any
    X: Any
    y: np.ndarray  # (n,) or (n, L), as the caller calls them
    labels: np.ndarray  # the places of ``y`` in the classes, or ``y`` itself where each row has many labels
    n_classes: int  # or labels
    response: str
    fit_params: dict[str, Any]

    def fold(self, train: np.ndarray, test: np.ndarray) -> Fold | None:
        """The scores of a fold by a model that has not seen it; None where they say nothing."""
        many = self.labels.ndim == 2
        seen = np.arange(self.n_classes) if many else np.unique(self.labels[train])
        if len(seen) < min(2, self.n_classes):
            return None  # hardly any classifier can be trained on a single class, and none learns from it
        test = np.flatnonzero(test) if np.asarray(test).dtype == bool else np.asarray(test)
        if not many:
            test = test[np.isin(self.labels[test], seen)]
        model, encoded = self.fit(train)
        return Fold(test, seen, self.scores(model, test, len(seen)), model, encoded) if len(test) else None

    def scores(self, model: Any, rows: np.ndarray, n_columns: int) -> np.ndarray:
        of = label_scores if self.labels.ndim == 2 else scores_of
        return of(model, rows_of(self.X, rows), self.response, n_columns)

    def fit(self, rows: np.ndarray | None = None) -> tuple[Any, bool]:
        """A copy of the estimator fitted on some rows, or all, and whether it had to be given places 0..k-1 for labels."""
        X, y, keywords = self.X, self.y, self.fit_params
        if rows is not None:
            X, y = rows_of(X, rows), y[rows]
            keywords = params_of_rows(self.X, keywords, indices=rows)

        try:
            return clone(self.estimator).fit(X, y, **keywords), False
        except (ValueError, TypeError) as refusal:
            names, places = np.unique(y, return_inverse=True)
            if y.ndim == 2 or np.array_equal(names, np.arange(len(names))):
                raise
            try:
                return clone(self.estimator).fit(X, places, **keywords), True
            except Exception:  # an estimator may raise anything
                # The labels were not the reason, so the first error is the one to report.
                raise refusal from None


def pooled(folds: list[Fold], trainer: Trainer, model: Any, encoded: bool) -> Fold:
    """The rows of all folds for one model of all classes; those that the model of a fold does not know come below all others."""
    unseen = 0.0 if trainer.response == "predict_proba" else -np.inf
    scores = []
    for fold in folds:
        scores.append(np.full((len(fold.rows), trainer.n_classes), unseen, dtype=fold.scores.dtype))
        scores[-1][:, fold.seen] = fold.scores
    rows = np.concatenate([fold.rows for fold in folds])
    return Fold(rows, np.arange(trainer.n_classes), np.concatenate(scores), model, encoded)
