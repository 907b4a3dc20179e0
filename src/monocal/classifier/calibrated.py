"""Calibrate a scikit-learn classifier: scores it has not been trained on, one calibrator on all of them, one model to ship.

    fold by fold      scores_i = model trained without fold(i), at X_i       (out of fold: honest)
    all at once       calibrator_ = fit(scores, y),    estimator_ = fit(X, y)
    predict_proba     calibrator_.predict_proba(scores of estimator_)

One model and one calibrator: every prediction keeps the order of ``estimator_``, and both parts can be saved and exported.
With ``ensemble=True`` the models of the folds are kept instead, each with a calibrator of its own (`ensemble`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from ..calibration import Calibrator
from ..errors import InputError, require, warn
from ..registry import find_method
from ..sklearn_private import routing_enabled, rows_of
from ..validation import check_weights
from .ensemble import mean_of_members
from .folds import Fold, FoldWork, deal, encode, fit_on_labels, tell_of_places
from .scores import response_method, scores_of

# What a classifier is said to have been fitted on, where its model knows.
_OF_THE_MODEL = ("n_features_in_", "feature_names_in_")


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier with calibrated probabilities that ranks the classes as before.

    Parameters
    ----------
    estimator : classifier
        With ``decision_function`` (preferred) or ``predict_proba``, whose logarithm is used.
    method : str or Calibrator
        A calibrator, or a name that the command line takes: "mcct", "mcct-inverse", "conditional-mcct", "temperature-scaling",
        "structured-mcct" and all others; "conditional", "temperature" and "structured" for short. Those whose
        ``preserves_order`` is true keep the order of the classes, as the first four do.
        A calibrator with ``input="probabilities"`` is given ``predict_proba``.

        The default is not that of the command line, "conditional-mcct", which takes several times as long to fit: a classifier
        is fitted many times over, in folds and in searches.
    cv : int, "prefit", splitter or iterable of (train, test)
        Folds to train without in turn. "prefit", or an estimator in a ``FrozenEstimator``: it is fitted already, on other
        data than `fit` is now given.
    ensemble : bool
        Keep the model of every fold, with a calibrator fitted on that fold alone, and average their probabilities: better for
        models that change much with their rows, such as trees, and as many times slower as there are folds. The order of the
        classes is then that of the average: two classes that all members rank the same way keep that rank, others may change
        places.
    n_jobs : int or None
        Folds at a time.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all data, or as given; not with ``ensemble``.
    calibrator_ : Calibrator
        ``calibrator_.to_onnx()`` and the like export it; `to_onnx` exports it together with ``estimator_``. Not with
        ``ensemble``.
    calibrated_classifiers_ : list of CalibratedClassifier
        With ``ensemble``: the members, each with the classes that its model has seen.
    classes_ : ndarray of shape (m,)
    encoded_ : bool
        Whether the estimator refused the labels as they are and was given their places 0..m-1 in ``classes_``, as
        XGBClassifier must be. `predict` speaks the labels all the same; ``estimator_.predict`` gives places.
    n_features_in_, feature_names_in_
        Those of ``estimator_``, where it has them.

    Notes
    -----
    The folds of an integer ``cv`` share every class as evenly as they can. A class may be rarer than there are folds: a
    model that has not seen it holds it for not available (or, asked for probabilities, for the least probable), and the
    rows of a class with a single member calibrate nothing. In an ensemble a member gives nothing to a class it has not seen.
    After "prefit" a class may be absent from ``y`` altogether.

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
        self,
        estimator: Any,
        method: str | Calibrator = "mcct",
        *,
        cv: Any = 5,
        ensemble: bool = False,
        n_jobs: int | None = None,
    ):
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
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
            For the ``fit`` of the estimator; what has a value for every row is split with the rows. Refused where the estimator
            is fitted already.

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
        if context is not None:
            check_consistent_length(X, context)
        response = response_method(self.estimator, self._calibrator())
        for name in ("estimator_", "calibrator_", "calibrated_classifiers_", *_OF_THE_MODEL):
            self.__dict__.pop(name, None)
        if self._is_prefit():
            if fit_params:
                raise InputError(
                    f"fit: {', '.join(fit_params)} would go to the fit of the estimator, which is fitted already. Leave it out."
                )
            model, encoded = self.estimator, False
            check_is_fitted(model)
            classes, labels = np.asarray(model.classes_), encode(y, model.classes_)
            rows, scores = np.arange(len(y)), scores_of(model, X, response, len(classes))
        else:
            classes, labels = np.unique(y, return_inverse=True)
            routed = self._routed(sample_weight, fit_params)
            folds = self._folds(X, y, labels, response, routed)
            if self.ensemble:
                return self._average(folds, classes, labels, response, weight, context)
            unseen = 0.0 if response == "predict_proba" else -np.inf
            rows = np.concatenate([fold.rows for fold in folds])
            scores = np.concatenate([fold.in_all_classes(len(classes), unseen) for fold in folds])
            model, encoded = fit_on_labels(self.estimator, X, y, routed.estimator.fit)
            tell_of_places(self.estimator, encoded, folds)
        calibrator = self._fitted(scores, labels[rows], response, rows, weight, context)
        return self._complete(classes, model, calibrator, response, encoded)

    def predict_proba(self, X: Any, context: Any = None) -> np.ndarray:
        """Calibrated probabilities (n, m), columns in the order of ``classes_``; ``context`` as in `fit`."""
        check_is_fitted(self)
        if hasattr(self, "calibrated_classifiers_"):
            return mean_of_members(self.calibrated_classifiers_, self.classes_, X, context)
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
        from ..export.onnx_classifier import classifier_to_onnx

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
        prefit = isinstance(self.cv, str) or isinstance(self.estimator, FrozenEstimator)
        if prefit and self.ensemble:
            raise InputError(
                "ensemble: its members are trained on folds, but the estimator is fitted already. Leave ensemble out, or give an "
                "estimator to train and a number of folds as cv."
            )
        return prefit

    def _calibrator(self) -> Calibrator:
        if isinstance(self.method, Calibrator):
            if self.method.ignore_index is not None or self.method.class_axis not in (-1, 1):
                raise InputError(
                    f"method: {type(self.method).__name__} has ignore_index={self.method.ignore_index} and "
                    f"class_axis={self.method.class_axis}, which mean nothing here: the estimator gives one row of classes for "
                    "each sample, and all labels are classes. Leave both out, and drop rows that do not count."
                )
            return clone(self.method)
        if isinstance(self.method, str):
            return find_method(self.method)[1]
        raise InputError(
            f"method must be a name such as 'mcct' or a calibrator such as MCCT(shrinkage='cv'), but is {self.method!r}."
        )

    def _routed(self, sample_weight: Any, fit_params: dict[str, Any]) -> Bunch:
        """Keywords for the estimator's ``fit`` and the splitter's ``split``."""
        if routing_enabled():
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

    def _folds(self, X: Any, y: np.ndarray, labels: np.ndarray, response: str, routed: Bunch) -> list[Fold]:
        """What models say of rows that they have not been trained on."""
        if isinstance(self.cv, (int, np.integer)) and not isinstance(self.cv, bool):
            splits = deal(labels, int(self.cv))
        else:
            splits = list(check_cv(self.cv, y, classifier=True).split(X, y, **routed.splitter.split))
        work = FoldWork(self.estimator, X, y, labels, response, routed.estimator.fit, self.ensemble)
        found = Parallel(n_jobs=self.n_jobs)(delayed(work)(*split) for split in splits)
        folds = [fold for fold in found if fold is not None]
        if not folds:
            raise InputError(
                f"No held-out row belongs to a class its model has seen (n_samples={len(y)}, {labels.max() + 1} classes), so "
                "there is nothing to calibrate on. Give at least two rows a class, or fit the estimator on other data and "
                "use cv='prefit'."
            )
        return folds

    def _fitted(
        self,
        scores: np.ndarray,
        labels: np.ndarray,
        response: str,
        rows: np.ndarray,
        weight: np.ndarray | None,
        context: Any,
    ) -> Calibrator:
        """The calibrator, fitted on the scores of some rows; weights and context are those of all.

        A row that several folds hold out counts as one row: its weight is divided among its scores. Otherwise 20 repeats would
        pass for 20 times the rows, and the fit would trust them so much more.
        """
        calibrator = self._calibrator()
        if response == "predict_proba":
            calibrator.set_params(input="probabilities")
        known = {}
        if context is not None:
            if not has_fit_parameter(calibrator, "context"):
                raise InputError(
                    f"context: {type(calibrator).__name__} takes none. Use method='conditional', or leave the context out."
                )
            known = {"context": rows_of(context, rows)}
        own = None if weight is None else weight[rows]
        times = np.bincount(rows)[rows]
        if times.max() > 1:
            own = (1.0 if own is None else own) / times
        return calibrator.fit(scores, labels, own, **known)

    def _complete(
        self, classes: np.ndarray, model: Any, calibrator: Calibrator, response: str, encoded: bool
    ) -> CalibratedClassifier:
        self.classes_ = classes
        self.estimator_ = model
        self.calibrator_ = calibrator
        self.encoded_ = encoded
        self._response = response
        self._take_names_from(model)
        return self

    def _take_names_from(self, model: Any) -> None:
        for name in _OF_THE_MODEL:
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def _average(
        self,
        folds: list[Fold],
        classes: np.ndarray,
        labels: np.ndarray,
        response: str,
        weight: np.ndarray | None,
        context: Any,
    ) -> CalibratedClassifier:
        members = []
        for fold in folds:
            own = np.searchsorted(fold.seen, labels[fold.rows])
            calibrator = self._fitted(fold.scores, own, response, fold.rows, weight, context)
            member = CalibratedClassifier(fold.model, self.method, cv="prefit")
            members.append(
                member._complete(classes[fold.seen], fold.model, calibrator, response, fold.encoded)
            )
        known = np.unique(np.concatenate([fold.seen for fold in folds]))
        if len(known) < len(classes):
            never = classes.tolist()[np.setdiff1d(np.arange(len(classes)), known)[0]]
            warn(
                f"No member of the ensemble has seen the class {never!r}, so that all give it probability 0. Use more folds, or "
                "ensemble=False."
            )
        tell_of_places(self.estimator, False, folds)
        self.classes_ = classes
        self.calibrated_classifiers_ = members
        self.encoded_ = any(fold.encoded for fold in folds)
        self._take_names_from(members[0].estimator_)
        return self
