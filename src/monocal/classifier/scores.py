"""What a classifier of scikit-learn says of rows, in the form that calibrators take: logits or probabilities (n, m)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration import Calibrator
from ..errors import InputError

# What double precision can tell from 0 beside a 1.
RESOLUTION = float(np.finfo(np.float64).eps)


def response_method(estimator: Any, calibrator: Calibrator) -> str:
    """The method of the estimator whose result the calibrator is given."""
    names = (
        ["predict_proba"] if calibrator.input == "probabilities" else ["decision_function", "predict_proba"]
    )
    for name in names:
        if hasattr(estimator, name):
            return name
    raise InputError(f"estimator: {type(estimator).__name__} has no {' and no '.join(names)}.")


def resolvable(probabilities: np.ndarray) -> np.ndarray:
    """Raise positive probabilities to what double precision can tell from 0 beside a 1.

    Models that multiply many densities give 1e-200 and less. Such numbers say how long the product was, not how probable
    the class is, and their logarithms would rule the fit. Zeros stay zeros: a calibrator sets them below all others.
    """
    tiny = (probabilities > 0) & (probabilities < RESOLUTION)
    return np.where(tiny, probabilities.dtype.type(RESOLUTION), probabilities)


def scores_of(model: Any, X: Any, response: str, n_classes: int) -> np.ndarray:
    """Logits or probabilities (n, m) of a fitted classifier."""
    scores = np.asarray(getattr(model, response)(X))
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1 and n_classes == 2):
        scores = scores.reshape(-1, 1)
        if n_classes == 2:
            zero_or_rest = np.zeros_like(scores) if response == "decision_function" else 1 - scores
            scores = np.hstack([zero_or_rest, scores])
    if scores.ndim != 2 or scores.shape[1] != n_classes:
        raise InputError(
            f"estimator: {response} gives shape {scores.shape} for {n_classes} classes, expected one column per class. For SVC "
            "use decision_function_shape='ovr'."
        )
    return scores if response == "decision_function" else resolvable(scores)
