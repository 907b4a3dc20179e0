"""Fitted estimators, each with its calibrator, and the mean of several: what is left of the order of the classes.

    p_j = 1/K sum_k p_j^(k),        p^(k) = calibrator_k(scores of model_k)

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

from ..arrays import array_namespace, device_of, keep_argmax
from ..calibrators import Calibrator, MultilabelMCCT
from .many_labels import label_scores
from .scores import scores_of


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
        if self.has_many_labels:
            return label_scores(self.estimator, X, self.response, len(self.seen))
        scores = scores_of(self.estimator, X, self.response, len(self.seen))
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
