"""What displays are made of: predictors by name, and what a calibrator was given as probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from ..errors import InputError
from ._axes import AFTER, BEFORE, SERIES

Curve = TypeVar("Curve")


class CurvesDisplay(Generic[Curve]):
    """Named curves of one kind, drawn later; see scikit-learn's displays."""

    def __init__(self, curves: dict[str, Curve]):
        if not curves:
            raise InputError("curves: expected at least one, by name")
        self.curves = curves

    figure_: Any
    ax_: Any

    def _colours(self) -> dict[str, str]:
        """Before and after have their own; others go through the series."""
        if set(self.curves) <= {"before", "after", "model"}:
            return {name: BEFORE if name == "before" else AFTER for name in self.curves}
        return {name: SERIES[i % len(SERIES)] for i, name in enumerate(self.curves)}


def by_name(y_prob: Any, before: Any, name: str | None) -> dict[str, Any]:
    """Probabilities by the title of their curve."""
    if isinstance(y_prob, Mapping):
        return dict(y_prob)
    return {name or "model": y_prob} if before is None else {"before": before, "after": y_prob}


def predicted(estimator: Any, X: Any, name: str | None) -> tuple[Any, Any]:
    """Probabilities of one predictor, or of several by name; and those before a calibrator that is not called by a name."""
    if isinstance(estimator, Mapping):
        return {title: one.predict_proba(X) for title, one in estimator.items()}, None
    return estimator.predict_proba(X), before_probabilities(estimator, X) if name is None else None


def is_calibrator(estimator: Any) -> bool:
    """Whether it maps scores to probabilities, so that there is a before to show."""
    return hasattr(estimator, "preserves_order") and hasattr(estimator, "input")


def before_probabilities(estimator: Any, X: Any) -> Any:
    """What a calibrator was given, as probabilities; None for a classifier."""
    if not is_calibrator(estimator):
        return None
    if estimator.input == "probabilities":
        return X
    from scipy.special import softmax

    from ..arrays import to_numpy
    from ..inputs.formats import kind_of
    from ..inputs.validation import check_logits

    p = softmax(to_numpy(check_logits(X).values).astype(np.float64), axis=1)
    return kind_of(X).back(p, X, -1)  # with the names that labels may go by
