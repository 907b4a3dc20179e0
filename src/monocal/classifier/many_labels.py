"""Classifiers of many labels: one score per label, calibrated by `MultilabelMCCT` on rows that the models have not seen.

    MultiOutputClassifier, forests, k nearest neighbours      predict_proba: a list of (n, 2), one for each label
    OneVsRestClassifier, ClassifierChain, RidgeClassifier     decision_function or predict_proba: (n, L)

Labels are a matrix (n, L) of 0 and 1; an estimator that is fitted already may be calibrated on rows of which some labels are not
known (-1 or NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from ..arrays import is_torch, to_numpy
from ..calibrators import Calibrator, MultilabelMCCT
from ..errors import InputError
from ..sklearn_private import params_of_rows, rows_of


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


def label_scores(model: Any, X: Any, response: str, n_labels: int) -> np.ndarray:
    """Scores or probabilities (n, L) of a fitted classifier of many labels."""
    scores = getattr(model, response)(X)
    if isinstance(scores, list):
        scores = np.stack([_of_label(p, own) for p, own in zip(scores, model.classes_, strict=True)], axis=1)
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != n_labels:
        raise InputError(
            f"estimator: {response} gives shape {scores.shape} for {n_labels} labels, expected one column per label."
        )
    return scores


def _of_label(p: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """P(label) from the probabilities of the classes 0 and 1, of which the model may have seen one alone."""
    there = np.flatnonzero(np.asarray(classes) == 1)
    return np.asarray(p[:, there[0]] if len(there) else np.zeros(len(p)))


@dataclass(frozen=True)
class ManyLabels:
    """The fit of an estimator of many labels and its calibrators.

    Attributes
    ----------
    estimator : classifier
    labels : ndarray of shape (n, L)
    response : {"decision_function", "predict_proba"}
    calibrator : MultilabelMCCT
        Not fitted.
    fit_params : dict
    """

    estimator: Any
    labels: np.ndarray
    response: str
    calibrator: Calibrator
    fit_params: dict[str, Any]

    def prefit(self, X: Any, weight: np.ndarray | None) -> list[tuple[Any, Calibrator]]:
        """The estimator as it is, with its calibrator."""
        scores = label_scores(self.estimator, X, self.response, self.labels.shape[1])
        return [(self.estimator, self._calibrated(scores, np.arange(len(scores)), weight))]

    def check_known(self) -> None:
        """Refuse labels that an estimator cannot be trained on."""
        if not np.isin(self.labels, (0, 1)).all():
            raise InputError(
                "y: an estimator is trained on labels 0 and 1. Labels that are not known (-1, NaN) can be given with an "
                "estimator that is fitted already (cv='prefit')."
            )

    def trained(
        self, X: Any, weight: np.ndarray | None, splits: list[Any], ensemble: bool, n_jobs: int | None
    ) -> list[tuple[Any, Calibrator]]:
        """Models and calibrators: one pair for each split, or one of all rows on the scores of all splits."""
        folds = Parallel(n_jobs=n_jobs)(delayed(self._fold)(X, *split) for split in splits)
        if ensemble:
            return [(model, self._calibrated(scores, rows, weight)) for model, scores, rows in folds]
        model = clone(self.estimator).fit(X, self.labels, **self.fit_params)
        rows = np.concatenate([rows for *_, rows in folds])
        return [(model, self._calibrated(np.concatenate([scores for _, scores, _ in folds]), rows, weight))]

    def _fold(self, X: Any, train: np.ndarray, test: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        keywords = params_of_rows(X, self.fit_params, indices=train)
        model = clone(self.estimator).fit(rows_of(X, train), self.labels[train], **keywords)
        rows = np.flatnonzero(test) if np.asarray(test).dtype == bool else np.asarray(test)
        return model, label_scores(model, rows_of(X, rows), self.response, self.labels.shape[1]), rows

    def _calibrated(self, scores: np.ndarray, rows: np.ndarray, weight: np.ndarray | None) -> Calibrator:
        """A row that several splits hold out counts as one row."""
        own = np.ones(len(rows)) if weight is None else weight[rows]
        input = "scores" if self.response == "decision_function" else "probabilities"
        calibrator: Calibrator = clone(self.calibrator).set_params(input=input)
        return calibrator.fit(scores, self.labels[rows], own / np.bincount(rows)[rows])


def many_labels_calibrator(method: Any) -> Calibrator:
    """The calibrator that ``method`` of `CalibratedClassifier` means where each row has many labels."""
    if method is None or isinstance(method, MultilabelMCCT):
        return MultilabelMCCT() if method is None else method
    raise InputError(
        f"method: each row of y has many labels, which MultilabelMCCT() calibrates, and not {method!r}. Leave method out."
    )
