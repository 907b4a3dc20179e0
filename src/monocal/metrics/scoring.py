"""Metrics as scikit-learn's scorers: for ``scoring=`` of `cross_validate`, `GridSearchCV` and the like.

    score = metric(predict_proba(X), place of y in classes_),     with a minus where less is better

What ``make_scorer`` makes has labels and probabilities only and guesses which column is which label, wrongly where a class is
absent from a fold. These use the ``classes_`` of the estimator, and otherwise are scorers like any other: weights are routed,
and with more than two classes several scorers reuse one call of ``predict_proba``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

# Routes weights, and lets several scorers share one prediction; not promised by scikit-learn (`make_scorer` hides the estimator).
from sklearn.metrics._scorer import _BaseScorer

from ..errors import InputError
from ..inputs.names import places_among
from .evaluation import evaluate
from .table import METRICS, Options, chosen

_SHARED = ("n_bins", "top_k", "bin_size", "bandwidth")


class MetricScorer(_BaseScorer):
    """One metric as a scorer, ``scorer(estimator, X, y)``; larger is better. Made by `scorer`.

    Parameters
    ----------
    metric : str
        A name of `METRICS`.
    **options
        ``n_bins``, ``top_k``, ``bin_size`` and ``bandwidth`` of `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.MetricScorer("ece", n_bins=10)
    scorer('ece', n_bins=10)
    """

    def __init__(self, metric: str, **options: Any):
        (self.metric,) = chosen(metric)
        unknown = sorted(set(options) - set(_SHARED))
        if unknown:
            raise InputError(
                f"scorer: expected options out of {', '.join(_SHARED)}; got {', '.join(unknown)}."
            )
        Options(**options).checked()  # at once: scikit-learn would make NaN of the error
        sign = 1 if METRICS[metric].higher_is_better else -1
        super().__init__(_value, sign, {"metric": metric, **options}, "predict_proba")

    def _score(self, method_caller: Any, estimator: Any, X: Any, y_true: Any, **kwargs: Any) -> float:
        self._warn_overlap("A keyword of the scorer is also passed as metadata.", kwargs)
        # From two classes scikit-learn shares one column only, and from what is no classifier nothing.
        shared = is_classifier(estimator) and len(estimator.classes_) > 2
        probs = method_caller(estimator, "predict_proba", X) if shared else estimator.predict_proba(X)
        places = _places(y_true, estimator.classes_)
        return self._sign * self._score_func(probs, places, **{**self._kwargs, **kwargs})

    def __repr__(self) -> str:
        rest = "".join(f", {key}={value!r}" for key, value in self._kwargs.items() if key != "metric")
        return f"scorer({self.metric!r}{rest})"


def _value(probs: Any, labels: Any, metric: str, sample_weight: Any = None, **options: Any) -> float:
    return evaluate(probs, labels, metrics=metric, sample_weight=sample_weight, **options)[metric].value


def _places(y: Any, classes: Any) -> np.ndarray:
    labels = np.asarray(y).ravel()
    places = places_among(labels, classes)
    if (places < 0).any():
        label = labels.tolist()[int(np.argmin(places))]
        raise InputError(
            f"y: the label {label!r} is none of the {len(classes)} classes the estimator was fitted on. Use folds that share out "
            "every class (StratifiedKFold), or leave such rows out."
        )
    return places


def scorer(metric: str, **options: Any) -> MetricScorer:
    """One metric as scikit-learn's ``scoring=`` takes it, for classifiers with ``predict_proba`` and for calibrators.

    Larger is better: the negative of a metric of which less is better, as in scikit-learn.

    Parameters
    ----------
    metric, **options
        As in `MetricScorer`.

    Examples
    --------
    >>> import monocal as mc
    >>> from sklearn.model_selection import cross_val_score
    >>> data = mc.data.synthetic(600, 3)
    >>> cross_val_score(mc.MCCT(), data.values, data.labels, scoring=mc.metrics.scorer("nll"), cv=3).shape
    (3,)
    """
    return MetricScorer(metric, **options)


def scorers(*metrics: str, **options: Any) -> dict[str, MetricScorer]:
    """Several metrics by name, for ``scoring=`` of `cross_validate` and ``GridSearchCV(refit=...)``.

    Parameters
    ----------
    *metrics : str
        Names of `METRICS`; ``nll``, ``brier``, ``ece`` and ``accuracy`` when there are none.
    **options
        As in `scorer`.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.scorers("nll", "ece", n_bins=10)
    {'nll': scorer('nll', n_bins=10), 'ece': scorer('ece', n_bins=10)}
    """
    return {name: scorer(name, **options) for name in metrics or ("nll", "brier", "ece", "accuracy")}
