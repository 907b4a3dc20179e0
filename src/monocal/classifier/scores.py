"""The scores of a scikit-learn classifier in the form that calibrators take: logits or probabilities (n, m), one column a class.

    SVC with decision_function_shape="ovo"                 m(m-1)/2 scores of pairs  ->  m scores of classes, as "ovr" gives them
    decision values far from 1                             scores * 2^k, about 8 between the best and the worst class of a row
    MultiOutputClassifier, forests, k nearest neighbours   a list of (n, 2), one for each label  ->  P(label) as (n, L)

For three classes there are three pairs, so the number of columns alone does not tell pairs from classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from ..arrays import array_namespace, to_numpy
from ..calibrators import Calibrator
from ..errors import InputError, warn
from ..inputs.names import places_among
from ..sklearn_private import rows_of, scores_from_pairs

# What double precision can tell from 0 next to a 1.
RESOLUTION = float(np.finfo(np.float64).eps)

# Scores whose usual spread within a row is within these powers of two are taken as they are.
_USUAL_EXPONENT, _TARGET_EXPONENT = 10, 3
# Rows in which the predictions of an estimator are compared with its scores.
_COMPARED = 1000


def response_method(estimator: Any, calibrator: Calibrator) -> str:
    """The method of the estimator whose result the calibrator is given."""
    names = (
        ["predict_proba"] if calibrator.input == "probabilities" else ["decision_function", "predict_proba"]
    )
    for name in names:
        if hasattr(estimator, name):
            return name
    raise InputError(f"estimator: {type(estimator).__name__} has no {' and no '.join(names)}.")


def resolvable(probabilities: Any) -> Any:
    """Raise positive probabilities to what double precision can tell from 0 next to a 1.

    Models that multiply many densities give 1e-200 and less. Such numbers say how long the product was, not how probable
    the class is, and their logarithms would rule the fit. Zeros stay zeros: a calibrator sets them below all others.
    """
    xp = array_namespace(probabilities)
    tiny = (probabilities > 0) & (probabilities < RESOLUTION)
    return xp.where(tiny, xp.asarray(RESOLUTION, dtype=probabilities.dtype), probabilities)


def scoring_estimator(model: Any) -> Any:
    """The estimator whose scores the model passes on: the last step of a pipeline, the best of a search, a frozen one."""
    while True:
        if isinstance(model, Pipeline):
            model = model.steps[-1][1]
        elif isinstance(model, FrozenEstimator):
            model = model.estimator
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return model


def scores_pairs(model: Any) -> bool:
    """Whether ``decision_function`` compares pairs of classes, as that of SVC and NuSVC can."""
    return getattr(scoring_estimator(model), "decision_function_shape", None) == "ovo"


def scores_of(model: Any, X: Any, response: str, n_classes: int) -> np.ndarray:
    """Logits or probabilities (n, m) of a fitted classifier."""
    scores = to_numpy(getattr(model, response)(X))
    scores = scores if scores.dtype.kind == "f" else scores.astype(np.float64)
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1 and n_classes == 2):
        scores = scores.reshape(-1, 1)
        if n_classes == 2:
            zero_or_rest = np.zeros_like(scores) if response == "decision_function" else 1 - scores
            scores = np.hstack([zero_or_rest, scores])
    pairs = n_classes * (n_classes - 1) // 2
    if n_classes > 2 and response == "decision_function" and scores_pairs(model) and scores.shape[1] == pairs:
        scores = scores_from_pairs(scores < 0, -scores, n_classes)
    _check_shape(scores, response, n_classes)
    return scores if response == "decision_function" else resolvable(scores)


def label_scores(model: Any, X: Any, response: str, n_labels: int) -> np.ndarray:
    """Scores or probabilities (n, L) of a fitted classifier of many labels."""
    scores = getattr(model, response)(X)
    if isinstance(scores, list):
        # Probabilities of the classes 0 and 1 of each label, of which the model may have seen one alone.
        columns = zip(scores, model.classes_, strict=True)
        scores = np.stack([p[:, np.asarray(own) == 1].sum(axis=1) for p, own in columns], axis=1)
    scores = np.asarray(scores, dtype=np.float64)
    _check_shape(scores, response, n_labels)
    return scores


def _check_shape(scores: Any, response: str, n_columns: int) -> None:
    if scores.ndim != 2 or scores.shape[1] != n_columns:
        raise InputError(
            f"estimator: {response} gives shape {tuple(scores.shape)} for {n_columns} classes, expected one column per class. "
            "Scores of pairs of classes cannot be calibrated: give an estimator that scores classes."
        )


def power_of_two(scores: np.ndarray) -> float:
    """What to multiply decision values by so that calibrators can take them: 1, unless they are very large or very small.

    By a power of two nothing is rounded, so the order and the ties of the classes stay.
    """
    halves = (
        np.where(np.isinf(scores), np.nan, scores).astype(np.float64) / 2
    )  # their differences do not overflow
    halves = halves[~np.isnan(halves).all(axis=1)]
    spread = np.nanmax(halves, axis=1, initial=-np.inf) - np.nanmin(halves, axis=1, initial=np.inf)
    spread = spread[spread > 0]
    exponent = int(np.frexp(np.median(spread))[1]) + 1 if len(spread) else 0
    if abs(exponent) <= _USUAL_EXPONENT:
        return 1.0
    limit = np.finfo(scores.dtype).maxexp - 8
    return float(2.0 ** np.clip(_TARGET_EXPONENT - exponent, -limit, limit))


def warn_of_other_predictions(model: Any, X: Any, response: str, n_classes: int) -> None:
    """Say where the order of the scores, which is kept, is not what ``predict`` of a fitted model goes by."""
    if not hasattr(model, "predict") or not hasattr(model, "classes_"):
        return
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    some = rows_of(X, np.unique(np.linspace(0, n - 1, _COMPARED).astype(np.intp)))
    values = scores_of(model, some, response, n_classes)
    predicted = places_among(to_numpy(model.predict(some)), to_numpy(model.classes_))
    rounding = 8 * np.finfo(values.dtype).eps * np.abs(values).max(axis=1)
    other = (values[np.arange(len(values)), predicted] < values.max(axis=1) - rounding).sum()
    if not other:
        return
    name = type(model).__name__
    where = (
        f"{name}.predict names another class than the largest of {response} in {other} of {len(values)} rows"
    )
    nested = model.get_params() if hasattr(model, "get_params") else {}
    pairs = [k for k, value in nested.items() if k.endswith("__decision_function_shape") and value == "ovo"]
    if pairs and not scores_pairs(model):
        raise InputError(
            f"estimator: {where}, and {pairs[0]}='ovo' gives scores of pairs of classes, which cannot be calibrated. Set it to "
            "'ovr'."
        )
    ties = " break_ties=True makes both the same." if hasattr(scoring_estimator(model), "break_ties") else ""
    warn(f"{where}. The calibrated classifier keeps the order of {response}, and predicts its largest.{ties}")
