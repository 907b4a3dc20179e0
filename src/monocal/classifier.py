"""Calibrate a scikit-learn classifier: scores it has not been trained on, one calibrator on all of them, one model to ship.

    fold by fold      scores_i = model trained without fold(i), at X_i       (out of fold: honest)
    all at once       calibrator_ = fit(scores, y),    estimator_ = fit(X, y)
    predict_proba     calibrator_.predict_proba(scores of estimator_)

One model and one calibrator, not an average over folds: an average of several models orders the classes like none of them,
while here every prediction keeps the order of ``estimator_``, and both parts can be saved and exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_method_params,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from .calibration import MCCT, Calibrator, ConditionalMCCT, MCCTInverse, TemperatureScaling
from .errors import InputError, require, warn
from .structured import StructuredMCCT
from .validation import check_weights

METHODS: dict[str, type[Calibrator]] = {
    "mcct": MCCT,
    "mcct_inverse": MCCTInverse,
    "conditional": ConditionalMCCT,
    "structured": StructuredMCCT,
    "temperature": TemperatureScaling,
}

# What double precision can tell from 0 beside a 1.
RESOLUTION = float(np.finfo(np.float64).eps)


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier with calibrated probabilities that ranks the classes as before.

    Parameters
    ----------
    estimator : classifier
        With ``decision_function`` (preferred) or ``predict_proba``, whose logarithm is used.
    method : {"mcct", "mcct_inverse", "conditional", "temperature", "structured"} or Calibrator
        "structured" (`StructuredMCCT`) may change the order of the classes, the others keep it.
        A calibrator with ``input="probabilities"`` is given ``predict_proba``.
    cv : int, "prefit", splitter or iterable of (train, test)
        Folds to train without in turn. "prefit", or an estimator in a ``FrozenEstimator``: it is fitted already, on other
        data than `fit` is now given.
    n_jobs : int or None
        Folds at a time.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all data, or as given.
    calibrator_ : Calibrator
        ``calibrator_.to_onnx()`` and the like export it; `to_onnx` exports it together with ``estimator_``.
    classes_ : ndarray of shape (m,)
    n_features_in_, feature_names_in_
        Those of ``estimator_``, where it has them.

    Notes
    -----
    The folds of an integer ``cv`` share every class as evenly as they can. A class may be rarer than there are folds: a
    model that has not seen it holds it for not available (or, asked for probabilities, for the least probable), and the
    rows of a class with a single member calibrate nothing. After "prefit" a class may be absent from ``y`` altogether.

    Probabilities below 2.2e-16, the resolution of double precision, count as 2.2e-16; zeros count as half the smallest
    positive one of the calibration rows.

    A binary ``decision_function`` d becomes the logits (0, d): for logistic regression these are its logits.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import LinearSVC
    >>> import monocal as mc
    >>> X, y = load_iris(return_X_y=True)
    >>> model = mc.CalibratedClassifier(LinearSVC()).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)
    """

    def __init__(
        self, estimator: Any, method: str | Calibrator = "mcct", *, cv: Any = 5, n_jobs: int | None = None
    ):
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, context: Any = None, **fit_params: Any
    ) -> CalibratedClassifier:
        """Fit the classifier, unless it is fitted already, and the calibrator.

        Parameters
        ----------
        X : array-like of shape (n, p), or whatever the estimator takes
        y : array-like of shape (n,)
            Labels of any type.
        sample_weight : array-like of shape (n,), optional
            For the calibrator, and for the estimator where its ``fit`` takes them.
        context : array-like of shape (n,) or (n, C), optional
            For a calibrator that takes it (`ConditionalMCCT`): what is known of each row beside its scores. Then `predict_proba`
            and `predict` want it, too.
        **fit_params
            For the ``fit`` of the estimator (not with "prefit"); what has a value for every row is split with the rows.

        Returns
        -------
        self
        """
        if y is None:
            raise InputError("CalibratedClassifier requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weight = check_weights(sample_weight, y[:, None])
        calibrator = self._calibrator()
        response = _response_method(self.estimator, calibrator)
        if self._is_prefit():
            model = self.estimator
            check_is_fitted(model)
            classes, labels = np.asarray(model.classes_), _encode(y, model.classes_)
            rows, scores = np.arange(len(y)), scores_of(model, X, response, len(classes))
        else:
            classes, labels = np.unique(y, return_inverse=True)
            routed = self._routed(sample_weight, fit_params)
            rows, scores = self._out_of_fold(X, y, labels, response, routed)
            model = clone(self.estimator).fit(X, y, **routed.estimator.fit)
        if response == "predict_proba":
            calibrator.set_params(input="probabilities")
        known = {}
        if context is not None:
            if not has_fit_parameter(calibrator, "context"):
                raise InputError(
                    f"context: {type(calibrator).__name__} takes none. Use method='conditional', or leave the context out."
                )
            check_consistent_length(X, context)
            known = {"context": _safe_indexing(context, rows)}
        calibrator.fit(scores, labels[rows], None if weight is None else weight[rows], **known)
        self.classes_ = classes
        self.estimator_ = model
        self.calibrator_ = calibrator
        self._response = response
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    def predict_proba(self, X: Any, context: Any = None) -> np.ndarray:
        """Calibrated probabilities (n, m), columns in the order of ``classes_``; ``context`` as in `fit`."""
        check_is_fitted(self)
        scores = scores_of(self.estimator_, X, self._response, len(self.classes_))
        known = {} if context is None else {"context": context}
        return self.calibrator_.predict_proba(scores, **known)

    def predict(self, X: Any, context: Any = None) -> np.ndarray:
        """The most probable class; ``context`` as in `fit`."""
        best = np.argmax(self.predict_proba(X, context), axis=1)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """Accuracy; ``context`` as in `fit`."""
        return float(accuracy_score(y, self.predict(X, context), sample_weight=sample_weight))

    def to_onnx(
        self,
        path: Any = None,
        *,
        X: Any = None,
        output: str = "probabilities",
        dtype: str = "float32",
        force: bool = False,
    ) -> Any:
        """The classifier and its calibrator as one ONNX model: features in, label and calibrated probabilities out.

        Needs skl2onnx (``pip install skl2onnx``), which converts the estimator. Its graph is compared with the estimator on some
        rows, and refused with a sentence where the two differ.

        Parameters
        ----------
        path : path, optional
            Where to write the model as well.
        X : array-like or DataFrame, optional
            Some rows, for the types of the features and for the comparison. Without it the features are numbers, as many as the
            estimator was fitted on, and the rows are random.
        output : {"probabilities", "logits"}
            What the graph gives beside the label: calibrated probabilities, or the calibrated logits they are the softmax of.
        dtype : {"float32", "float64"}
            Type of the features and of the result.
        force : bool
            Replace an existing file.

        Returns
        -------
        onnx.ModelProto
            Its outputs are ``label`` and ``probabilities`` (or ``calibrated_logits``), columns in the order of ``classes_``.
        """
        require("onnx", "onnx")
        from .export.onnx_classifier import classifier_to_onnx

        return classifier_to_onnx(self, path, X=X, output=output, dtype=dtype, force=force)

    def get_metadata_routing(self) -> MetadataRouter:
        """How metadata go to the estimator and the splitter; see scikit-learn's guide to metadata routing."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=to_fit)
        if hasattr(self.cv, "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.pairwise = inner.pairwise
        tags.input_tags.sparse = inner.sparse
        tags.input_tags.allow_nan = inner.allow_nan
        return tags

    def _is_prefit(self) -> bool:
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(
                f"cv must be a number of folds, 'prefit', a splitter or an iterable of splits, but is {self.cv!r}."
            )
        return isinstance(self.cv, str) or isinstance(self.estimator, FrozenEstimator)

    def _calibrator(self) -> Calibrator:
        if isinstance(self.method, Calibrator):
            return clone(self.method)
        if isinstance(self.method, str) and self.method in METHODS:
            return METHODS[self.method]()
        raise InputError(
            f"method must be one of {', '.join(map(repr, METHODS))} or a calibrator such as MCCT(shrinkage='cv'), but is "
            f"{self.method!r}."
        )

    def _routed(self, sample_weight: Any, fit_params: dict[str, Any]) -> Bunch:
        """Keywords for the estimator's ``fit`` and the splitter's ``split``."""
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            routed.setdefault("splitter", Bunch(split={}))
            return routed
        keywords = dict(fit_params)
        if sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                keywords["sample_weight"] = sample_weight
            else:
                warn(
                    f"{type(self.estimator).__name__}.fit takes no sample_weight, so the weights reach the calibrator alone. "
                    "For a pipeline, turn on scikit-learn's metadata routing and request them in its last step.",
                )
        return Bunch(estimator=Bunch(fit=keywords), splitter=Bunch(split={}))

    def _out_of_fold(
        self, X: Any, y: np.ndarray, labels: np.ndarray, response: str, routed: Bunch
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores of held-out rows whose class the model has seen, and the numbers of these rows."""
        if isinstance(self.cv, (int, np.integer)) and not isinstance(self.cv, bool):
            splits = _deal(labels, int(self.cv))
        else:
            splits = list(check_cv(self.cv, y, classifier=True).split(X, y, **routed.splitter.split))
        work = _FoldWork(self.estimator, X, y, labels, response, routed.estimator.fit)
        held_out = [fold for fold in Parallel(n_jobs=self.n_jobs)(delayed(work)(*s) for s in splits) if fold]
        if not any(len(rows) for rows, _ in held_out):
            raise InputError(
                f"No held-out row belongs to a class its model has seen (n_samples={len(y)}, {labels.max() + 1} classes), so "
                "there is nothing to calibrate on. Give at least two rows a class, or fit the estimator on other data and "
                "use cv='prefit'."
            )
        return np.concatenate([rows for rows, _ in held_out]), np.concatenate([s for _, s in held_out])


@dataclass(frozen=True)
class _FoldWork:
    """Train without a fold, score the fold; picklable for parallel work."""

    estimator: Any
    X: Any
    y: np.ndarray
    labels: np.ndarray
    response: str
    fit_params: dict[str, Any]

    def __call__(self, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        n_classes = int(self.labels.max()) + 1
        seen = np.unique(self.labels[train])
        if len(seen) < min(2, n_classes):
            return None  # hardly any classifier can be trained on a single class, and none learns from it
        keywords = _check_method_params(self.X, self.fit_params, indices=train)
        model = clone(self.estimator).fit(_safe_indexing(self.X, train), self.y[train], **keywords)
        test = np.asarray(test)[np.isin(self.labels[test], seen)]
        if not len(test):
            return None
        found = scores_of(model, _safe_indexing(self.X, test), self.response, len(seen))
        unseen = 0.0 if self.response == "predict_proba" else -np.inf
        scores = np.full((len(test), n_classes), unseen, dtype=found.dtype)
        scores[:, seen] = found
        return test, scores


def _deal(labels: np.ndarray, folds: int) -> list[tuple[np.ndarray, np.ndarray]]:
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


def _response_method(estimator: Any, calibrator: Calibrator) -> str:
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


def _encode(y: np.ndarray, classes: Any) -> np.ndarray:
    """Position of each label among the classes, which need not be sorted."""
    classes = np.asarray(classes)
    order = np.argsort(classes)
    labels = order[np.minimum(np.searchsorted(classes, y, sorter=order), len(classes) - 1)]
    unknown = np.flatnonzero(classes[labels] != y)
    if len(unknown):
        raise InputError(
            f"y: the label {y[unknown[0]]!r} of row {unknown[0]} is not among the {len(classes)} classes the estimator was "
            "fitted on. Remove such rows, or fit the estimator on all classes."
        )
    return labels
