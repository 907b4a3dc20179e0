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

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.model_selection import LeaveOneOut

from ..arrays import array_namespace, device_of, is_torch, keep_argmax, to_numpy
from ..calibrators import Calibrator
from ..calibrators.multilabel import MultilabelMCCT
from ..errors import InputError, warn
from ..inputs.names import places_among
from ..sklearn_private import params_of_rows, rows_of
from .scores import label_scores, other_predictions, scores_of


@dataclass(frozen=True)
class CalibratedModel:
    """A fitted estimator with its calibrator, an entry of ``CalibratedClassifier.calibrated_classifiers_``.

    Attributes
    ----------
    estimator : classifier
        Fitted.
    calibrators : list of Calibrator
        The one calibrator of all its classes; a list, as in scikit-learn.
    classes : ndarray of shape (m,)
        All classes of the classifier.
    seen : ndarray of int
        Which of them the estimator has been trained on; it scores these only.
    response : {"decision_function", "predict_proba"}
        The method that gives the scores.
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
        p = array_namespace(own).zeros((len(own), len(self.classes)), dtype=own.dtype, **device_of(own))
        p[:, self.seen] = own
        return p


def mean_of_members(members: Sequence[CalibratedModel], X: Any, context: Any) -> Any:
    """Probabilities (n, m) of all classes."""
    first = members[0].predict_proba(X, context)
    if len(members) == 1:
        return first
    if members[0].has_many_labels:
        return np.mean([first, *(member.predict_proba(X, context) for member in members[1:])], axis=0)
    xp = array_namespace(first)
    named = xp.argmax(first, axis=1)
    agreed, total = named == named, first
    for member in members[1:]:
        p = member.predict_proba(X, context)
        total = total + p
        agreed &= xp.argmax(p, axis=1) == named
    mean = total / len(members)
    mean[agreed] = keep_argmax(mean[agreed], first[agreed])
    return mean


# Labels.


def as_label_matrix(y: Any) -> np.ndarray | None:
    """Labels (n, L) of 0 and 1 (-1 or NaN: not known); None where there is one column, so one class for each row."""
    if issparse(y):
        return np.asarray(y.toarray())
    if np.ndim(y) != 2 or np.shape(y)[1] < 2:
        return None
    labels = to_numpy(y) if is_torch(y) else np.asarray(y)
    if not np.isin(labels[labels == labels], (-1, 0, 1)).all():
        raise InputError(
            f"y has {labels.shape[1]} columns, so each row may have many labels: expected 0 or 1 in every column. For several "
            "classes in each column fit one CalibratedClassifier for each."
        )
    return labels


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


# Folds.


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

    @classmethod
    def pooled(cls, folds: list[Fold], model: Any, encoded: bool, n_classes: int, unseen: float) -> Fold:
        """The rows of all folds for one model of all classes, ``unseen`` for those that the model of a fold does not know."""
        other, compared = (
            sum(numbers) for numbers in zip(*(f.other_predictions for f in folds), strict=True)
        )
        scores = []
        for fold in folds:
            scores.append(np.full((len(fold.rows), n_classes), unseen, dtype=fold.scores.dtype))
            scores[-1][:, fold.seen] = fold.scores
        rows = np.concatenate([fold.rows for fold in folds])
        return cls(rows, np.arange(n_classes), np.concatenate(scores), model, encoded, (other, compared))


@dataclass(frozen=True)
class Trainer:
    """Trains an estimator on some rows and scores others; picklable for parallel work.

    Attributes
    ----------
    estimator : classifier
    X : array-like of n rows
    y : ndarray of shape (n,) or (n, L)
        As the caller calls them.
    labels : ndarray
        The places of ``y`` in the classes, or ``y`` itself where each row has many labels.
    n_classes : int
        Or labels.
    response : {"decision_function", "predict_proba"}
    fit_params : dict
    tensors : bool
        Whether labels go to the estimator as tensors on the device of X.
    """

    estimator: Any
    X: Any
    y: np.ndarray
    labels: np.ndarray
    n_classes: int
    response: str
    fit_params: dict[str, Any]
    tensors: bool

    def __call__(self, train: np.ndarray, test: np.ndarray) -> Fold | None:
        """The scores of a fold by a model that has not seen it; None where they say nothing."""
        many = self.labels.ndim == 2
        seen = np.arange(self.n_classes) if many else np.unique(self.labels[train])
        if len(seen) < min(2, self.n_classes):
            return None  # hardly any classifier can be trained on a single class, and none learns from it
        test = np.flatnonzero(test) if np.asarray(test).dtype == bool else np.asarray(test)
        if not many:
            test = test[np.isin(self.labels[test], seen)]
        model, encoded = self.fit(train)
        return self.scored(model, test, seen, encoded) if len(test) else None

    def scored(
        self, model: Any, rows: np.ndarray | None = None, seen: Any = None, encoded: bool = False
    ) -> Fold:
        """Rows, or all, as a fold of a model that was trained on others."""
        X = self.X if rows is None else rows_of(self.X, rows)
        seen = np.arange(self.n_classes) if seen is None else seen
        if self.labels.ndim == 2:
            scores, compared = label_scores(model, X, self.response, len(seen)), (0, 0)
        else:
            scores = to_numpy(scores_of(model, X, self.response, len(seen)))
            compared = other_predictions(model, X, scores)
        return Fold(np.arange(len(scores)) if rows is None else rows, seen, scores, model, encoded, compared)

    def fit(self, rows: np.ndarray | None = None) -> tuple[Any, bool]:
        """A copy of the estimator fitted on some rows, or all, and whether it had to be given places 0..k-1 for labels."""
        X, y, keywords = self.X, self.y, self.fit_params
        if rows is not None:
            X, y = rows_of(X, rows), y[rows]
            keywords = params_of_rows(self.X, keywords, indices=rows)

        def in_kind(labels: np.ndarray) -> Any:
            return sys.modules["torch"].as_tensor(labels, device=X.device) if self.tensors else labels

        try:
            return clone(self.estimator).fit(X, in_kind(y), **keywords), False
        except (ValueError, TypeError) as refusal:
            names, places = np.unique(y, return_inverse=True)
            if y.ndim == 2 or np.array_equal(names, np.arange(len(names))):
                raise
            try:
                return clone(self.estimator).fit(X, in_kind(places), **keywords), True
            except Exception:  # an estimator may raise anything
                # The labels were not the reason, so the first error is the one to report.
                raise refusal from None


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
