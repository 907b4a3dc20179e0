"""Calibrate a scikit-learn classifier: scores it has not been trained on, one calibrator on all of them, one model to ship.

    fold by fold      scores_i = model trained without fold(i), at X_i       (out of fold)
    all at once       calibrator_ = fit(scores, y),    estimator_ = fit(X, y)
    predict_proba     calibrator_.predict_proba(scores of estimator_)

One model and one calibrator: every prediction keeps the order of ``estimator_``, and both parts can be saved and exported.
With ``ensemble=True`` the models of the folds are kept instead, each with a calibrator of its own (`members`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.svm import LinearSVC
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

from ..arrays import is_torch, to_numpy
from ..calibrators import Calibrator
from ..calibrators.binary_mcct import BinaryMCCT
from ..calibrators.mcct import MCCT
from ..calibrators.multilabel import MultilabelMCCT
from ..calibrators.score_rows import ScoreCalibrator
from ..errors import InputError, require, warn
from ..inputs.names import places_among
from ..inputs.validation import check_weights
from ..registry import find_method
from ..selection import recommend
from ..sklearn_private import routing_enabled, rows_of
from .members import CalibratedModel, Fold, Trainer, mean_of_members, pooled
from .scores import power_of_two, response_method, warn_of_other_predictions


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier with calibrated probabilities that ranks the classes as before.

    Parameters
    ----------
    estimator : classifier or None
        With ``decision_function`` (preferred) or ``predict_proba``, whose logarithm is used. None: ``LinearSVC(random_state=0)``,
        as in scikit-learn's ``CalibratedClassifierCV``.
    method : str, Calibrator or None
        A calibrator, or a name that the command line takes: "mcct", "conditional", "temperature", "structured" and all others.
        Those whose ``preserves_order`` is true keep the order of the classes. A calibrator with ``input="probabilities"`` is
        given ``predict_proba``. None: the method that is recommended for the rows (`monocal.selection.recommend`):
        `BinaryMCCT` for two classes, which keeps the ranking of the rows (AUC) with the threshold free; `ConditionalMCCT` for
        more, which keeps the order of the classes, and warns where `StructuredMCCT` is needed; `MultilabelMCCT` for many
        labels. `MCCT` where all calibration rows are of one class, or splits hold a row out several times. It is fitted several
        times as fast: name it in searches.
    cv : int, None, "prefit", splitter or iterable of (train, test)
        Folds to train without in turn; a number of them is dealt by ``StratifiedKFold``, None means 5. "prefit", or an estimator
        in a ``FrozenEstimator``: it is fitted already, on other data than `fit` is now given.
    ensemble : bool or "auto"
        Keep the model of every fold, with a calibrator fitted on that fold alone, and average their probabilities: better for
        models that change much with their rows, such as trees, and as many times slower as there are folds. Two classes that
        all members rank the same way keep that rank, others may change places. "auto", the default of scikit-learn's
        ``CalibratedClassifierCV``: true unless the estimator is fitted already.
    n_jobs : int or None
        Folds at a time.

    Attributes
    ----------
    calibrated_classifiers_ : list of CalibratedModel
        Fitted estimators with their calibrators: one for each fold with ``ensemble``, else a single one.
    estimator_, calibrator_
        Of the single one; not with ``ensemble``. `to_onnx` exports both together.
    classes_ : ndarray of shape (m,)
        The classes; with many labels the numbers of the columns.
    encoded_ : bool
        Whether the estimator refused the labels as they are and was given their places 0..m-1 in ``classes_``, as
        XGBClassifier must be. `predict` returns the original labels; ``estimator_.predict`` returns places.
    n_features_in_, feature_names_in_
        Those of the estimator, where it has them.

    Notes
    -----
    A row that several folds hold out counts as one. Without ``ensemble`` a class may be rarer than there are folds, with
    scikit-learn's warning: a model that has not seen it holds it for not available (or, asked for probabilities, for the least
    probable). With ``ensemble`` this is an error, as in scikit-learn, except for splits given one by one. After "prefit" a class
    may be absent from ``y``.

    Probabilities below 2.2e-16, the resolution of double precision, count as 2.2e-16; zeros count as half the smallest
    positive one of the calibration rows. A binary ``decision_function`` d becomes the logits (0, d). SVC and NuSVC with
    ``decision_function_shape="ovo"`` are asked for the scores of classes that "ovr" gives. Decision values of which the largest
    and the smallest of a row usually differ by more than 1,024, or by less than 1/1,024, are multiplied by a power of two,
    ``calibrated_classifiers_[0].scale``, before they reach ``calibrator_``.

    The order that is kept is that of the scores. Where ``predict`` of the estimator names another class than the largest score,
    a warning says in how many rows.

    A matrix of labels (n, L), 0 and 1, is calibrated label by label. `predict_proba` then gives P(label) as (n, L), also where
    the estimator gives a list. Results are numpy arrays.

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
        estimator: Any = None,
        method: str | Calibrator | None = None,
        *,
        cv: Any = 5,
        ensemble: bool | str = False,
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
        y : array-like of shape (n,) or (n, L)
            Labels of any type; or for each of L labels 0 or 1.
        sample_weight : array-like of shape (n,), optional
            For the calibrator, and for the estimator where its ``fit`` takes them.
        context : array-like of shape (n,) or (n, C), optional
            For a calibrator that takes it (`ConditionalMCCT`, `BinaryMCCT`): other properties of each row. Then
            `predict_proba` and `predict` want it, too.
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
        y = _labels(y)
        if not len(y):
            raise InputError("X has 0 sample(s) while a minimum of 1 is required.")
        weight = check_weights(sample_weight, y.reshape(len(y), -1))
        if context is not None:
            check_consistent_length(X, context)
        estimator = self._estimator()
        prefit, ensemble = self._plan(estimator, fit_params)
        classes, places = _classes(y, estimator if prefit else None)
        response = response_method(estimator, self._calibrator(len(classes), y.ndim == 2))
        routed = self._routed(estimator, sample_weight, fit_params)
        trainer = Trainer(estimator, X, y, places, len(classes), response, routed.estimator.fit)
        splits = []
        if ensemble or not prefit:
            cv = check_cv(self.cv, y, classifier=True)
            if ensemble and y.ndim == 1:
                _check_folds(cv, y)
            splits = list(cv.split(X, y, **routed.splitter.split))
        folds = _scored(trainer, splits, ensemble) if prefit else self._trained(trainer, splits, ensemble)
        if y.ndim == 1:
            for model, m in {id(fold.model): (fold.model, len(fold.seen)) for fold in folds}.values():
                warn_of_other_predictions(model, X, response, m)
        members = [self._member(fold, classes, places, response, weight, context) for fold in folds]
        never = np.setdiff1d(np.arange(len(classes)), np.concatenate([member.seen for member in members]))
        if len(never):
            warn(
                f"No member of the ensemble has seen the class {classes.tolist()[never[0]]!r}, so that all give it probability "
                "0. Use more folds, or ensemble=False."
            )
        self.classes_ = classes
        self.calibrated_classifiers_ = members
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(members[0].estimator, name):
                setattr(self, name, getattr(members[0].estimator, name))
        return self

    @property
    def estimator_(self) -> Any:
        return self._single().estimator

    @property
    def calibrator_(self) -> Calibrator:
        return self._single().calibrators[0]

    @property
    def encoded_(self) -> bool:
        return any(member.encoded for member in self.calibrated_classifiers_)

    def predict_proba(self, X: Any, context: Any = None) -> Any:
        """Calibrated probabilities (n, m), columns in the order of ``classes_``; ``context`` as in `fit`.

        With many labels, P(label) of each as (n, L).
        """
        check_is_fitted(self)
        return mean_of_members(self.calibrated_classifiers_, X, context)

    def predict(self, X: Any, context: Any = None) -> Any:
        """The most probable class; or for each of many labels 1 where it is more probable than not. ``context`` as in `fit`."""
        p = self.predict_proba(X, context)
        if self.calibrated_classifiers_[0].has_many_labels:
            return (p > 0.5).astype(np.intp)
        return self.classes_[p.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """Accuracy; ``context`` as in `fit`."""
        y = to_numpy(y) if is_torch(y) else y
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
        X : array-like or DataFrame, optional
            Some rows, for the types of the features and for the comparison. Without it the features are numbers, as many as the
            estimator was fitted on, and the rows are random.
        path, output, dtype, force
            As of `Calibrator.to_onnx`; ``dtype`` is that of the features, too.

        Returns
        -------
        onnx.ModelProto
            Its outputs are ``label`` and ``probabilities`` (or ``calibrated_logits``), columns in the order of ``classes_``.
        """
        require("onnx", "onnx")
        from ..export.onnx_classifier import classifier_to_onnx

        if self.calibrated_classifiers_[0].has_many_labels:
            raise InputError(
                "to_onnx: a classifier of many labels is not exported as one graph. Use calibrator_.to_onnx()."
            )
        return classifier_to_onnx(self, path, X=X, output=output, dtype=dtype, force=force)

    def get_metadata_routing(self) -> MetadataRouter:
        """How metadata go to the estimator and the splitter; see scikit-learn's guide to metadata routing."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self._estimator(), method_mapping=to_fit)
        if hasattr(self.cv, "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self._estimator())
        if own.classifier_tags is not None:
            tags.classifier_tags.multi_label = own.classifier_tags.multi_label
        tags.target_tags.multi_output = own.target_tags.multi_output
        tags.input_tags = own.input_tags
        return tags

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        return default.set_fit_request(sample_weight=True) if routing_enabled() else default

    def _plan(self, estimator: Any, fit_params: dict[str, Any]) -> tuple[bool, bool]:
        """Whether the estimator is fitted already, and whether to make an ensemble."""
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(
                f"cv must be a number of folds, 'prefit', a splitter or an iterable of splits, but is {self.cv!r}."
            )
        if self.ensemble not in (True, False, "auto"):
            raise InputError(f"ensemble must be True, False or 'auto', but is {self.ensemble!r}.")
        prefit = isinstance(self.cv, str) or isinstance(estimator, FrozenEstimator)
        ensemble = not prefit if self.ensemble == "auto" else bool(self.ensemble)
        if ensemble and isinstance(self.cv, str):
            raise InputError(
                "ensemble: its members are of folds, but cv='prefit' makes none. Leave ensemble out."
            )
        if prefit and fit_params:
            raise InputError(
                f"fit: {', '.join(fit_params)} would go to the fit of the estimator, which is fitted already. Leave it out."
            )
        if prefit:
            check_is_fitted(estimator)
        return prefit, ensemble

    def _calibrator(self, n_classes: int, many_labels: bool) -> Calibrator:
        """A copy of the calibrator that ``method`` means, not fitted."""
        if self.method is None:
            return MultilabelMCCT() if many_labels else BinaryMCCT() if n_classes == 2 else MCCT()
        if many_labels and not isinstance(self.method, MultilabelMCCT):
            raise InputError(
                f"method: each row of y has many labels, which MultilabelMCCT() calibrates, not {self.method!r}. Leave it out."
            )
        if isinstance(self.method, Calibrator):
            if self.method.ignore_index is not None or self.method.class_axis not in (-1, 1):
                raise InputError(
                    f"method: {type(self.method).__name__} has ignore_index={self.method.ignore_index} and "
                    f"class_axis={self.method.class_axis}, which mean nothing here: an estimator gives rows of classes. Leave "
                    "both out."
                )
            return clone(self.method)
        if isinstance(self.method, str):
            return find_method(self.method)[1]
        raise InputError(
            f"method must be a name such as 'mcct' or a calibrator such as MCCT(shrinkage='cv'), but is {self.method!r}."
        )

    def _routed(self, estimator: Any, sample_weight: Any, fit_params: dict[str, Any]) -> Bunch:
        """Keywords for the estimator's ``fit`` and the splitter's ``split``."""
        if routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            routed.setdefault("splitter", Bunch(split={}))
            return routed
        keywords = dict(fit_params)
        if sample_weight is not None:
            if has_fit_parameter(estimator, "sample_weight"):
                keywords["sample_weight"] = sample_weight
            else:
                warn(
                    f"{type(estimator).__name__}.fit takes no sample_weight, so the weights reach the calibrator alone. "
                    "For a pipeline, turn on scikit-learn's metadata routing and request them in its last step.",
                )
        return Bunch(estimator=Bunch(fit=keywords), splitter=Bunch(split={}))

    def _trained(self, trainer: Trainer, splits: list[Any], ensemble: bool) -> list[Fold]:
        """What models say of rows that they have not been trained on: by fold with ``ensemble``, else all together."""
        results = Parallel(n_jobs=self.n_jobs)(delayed(trainer.fold)(*split) for split in splits)
        folds = [fold for fold in results if fold is not None]
        if not folds:
            raise InputError(
                f"No held-out row belongs to a class its model has seen (n_samples={len(trainer.y)}, {trainer.n_classes} "
                "classes). Give at least two rows a class, or fit the estimator on other data and use cv='prefit'."
            )
        model, encoded = (None, False) if ensemble else trainer.fit()
        name = type(trainer.estimator).__name__
        if encoded or all(fold.encoded for fold in folds):
            warn(
                f"{name} refuses these labels, so it was fitted on their places 0, 1, ... in classes_. predict of the "
                "calibrated classifier gives the labels; that of the estimator inside gives places."
            )
        elif any(fold.encoded for fold in folds):
            warn(
                f"{name} takes no labels but 0, 1, ... with none left out, and a class is absent from the training rows of a "
                "fold: there it was fitted on the places of those that occur. Give every class at least two rows."
            )
        return folds if ensemble else [pooled(folds, trainer, model, encoded)]

    def _member(
        self,
        fold: Fold,
        classes: np.ndarray,
        labels: np.ndarray,
        response: str,
        weight: np.ndarray | None,
        context: Any,
    ) -> CalibratedModel:
        """A model with a calibrator fitted on its scores of some rows; labels, weights and context are those of all.

        A row that several folds hold out counts as one row: its weight is divided among its scores. Otherwise 20 repeats would
        pass for 20 times the rows, and the fit would trust them so much more.
        """
        rows, many = fold.rows, labels.ndim == 2
        places = labels[rows] if many else np.searchsorted(fold.seen, labels[rows])
        own = None if weight is None else weight[rows]
        times = np.bincount(rows)[rows]
        calibrator = self._calibrator(len(fold.seen), many)
        enough = len(fold.seen) == 2 or (len(fold.seen) > 2 and times.max() == 1)
        if self.method is None and not many and enough:
            kind = "probabilities" if response == "predict_proba" else "logits"
            advised = recommend(fold.scores, places, kind=kind, keep_order=True, sample_weight=own)
            calibrator = advised.calibrator.set_params(input="logits")
        if response == "predict_proba":
            calibrator.set_params(input="probabilities")
        elif many or (isinstance(calibrator, ScoreCalibrator) and not isinstance(self.method, Calibrator)):
            calibrator.set_params(input="scores")  # a margin has any scale
        keywords = {}
        if context is not None:
            if not getattr(calibrator, "takes_context", False):
                advice = "Leave it out." if many else "Use method='conditional', or leave the context out."
                raise InputError(f"context: {type(calibrator).__name__} takes none. {advice}")
            keywords = {"context": rows_of(context, rows)}
        if times.max() > 1:
            own = (1.0 if own is None else own) / times
        scaled = response == "decision_function" and not many
        scale = power_of_two(fold.scores) if scaled else 1.0
        calibrator.fit(fold.scores * scale, places, own, **keywords)
        return CalibratedModel(fold.model, [calibrator], classes, fold.seen, response, scale, fold.encoded)

    def _single(self) -> CalibratedModel:
        """The only member; an AttributeError, as for any attribute that is not there, before `fit` and with ``ensemble``."""
        if len(self.calibrated_classifiers_) > 1:
            raise AttributeError(
                "An ensemble has one estimator and calibrator for each of calibrated_classifiers_."
            )
        return self.calibrated_classifiers_[0]


def _labels(y: Any) -> np.ndarray:
    """Labels (n,); or (n, L) of 0 and 1 (-1 or NaN: not known), where there are several columns."""
    y = y.toarray() if issparse(y) else to_numpy(y) if is_torch(y) else y
    if np.ndim(y) != 2 or np.shape(y)[1] < 2:
        check_classification_targets(y)
        return column_or_1d(y, warn=True)
    labels = np.asarray(y)
    if not np.isin(labels[labels == labels], (-1, 0, 1)).all():
        raise InputError(
            f"y has {labels.shape[1]} columns, so each row may have many labels: expected 0 or 1 in every column. For several "
            "classes in each column fit one CalibratedClassifier for each."
        )
    return labels


def _classes(y: np.ndarray, fitted: Any) -> tuple[np.ndarray, np.ndarray]:
    """All classes, and the place of each label among them; of many labels the numbers of the columns, and ``y`` itself."""
    if y.ndim == 2:
        if fitted is None and not np.isin(y, (0, 1)).all():
            raise InputError(
                "y: an estimator is trained on labels 0 and 1. Labels that are not known (-1, NaN) can be given with an "
                "estimator that is fitted already (cv='prefit')."
            )
        return np.arange(y.shape[1]), y
    if fitted is None:
        return np.unique(y, return_inverse=True)
    classes = to_numpy(fitted.classes_)  # which need not be sorted
    places = places_among(y, classes)
    if (places < 0).any():
        row = int(np.argmax(places < 0))
        raise InputError(
            f"y: the label {y.tolist()[row]!r} of row {row} is not among the {len(classes)} classes the estimator was fitted on "
            f"(the first is {classes.tolist()[0]!r}). Remove such rows, or fit the estimator on all classes, called the same."
        )
    return classes, places


def _check_folds(cv: Any, y: np.ndarray) -> None:
    """Refuse folds that lack a class, as scikit-learn does: each member of an ensemble is calibrated on one of them."""
    folds = getattr(cv, "n_splits", None)
    if folds is not None and np.unique(y, return_counts=True)[1].min() < folds:
        raise InputError(
            f"Requesting {folds}-fold cross-validation but provided less than {folds} examples for at least one class. Use "
            "fewer folds, or ensemble=False, which calibrates on all folds together."
        )
    if isinstance(cv, LeaveOneOut):
        raise InputError(
            "LeaveOneOut cross-validation does not allow an ensemble: each member would be calibrated on a single row. Use "
            "ensemble=False, which calibrates on all of them together."
        )


def _scored(trainer: Trainer, splits: list[Any], ensemble: bool) -> list[Fold]:
    """Rows as folds of an estimator that was fitted on others: one of all of them, or with ``ensemble`` those of the splits."""
    seen, parts = np.arange(trainer.n_classes), [np.arange(len(trainer.y))]
    if ensemble:
        parts = [np.arange(len(trainer.y))[test] for _, test in splits]
    scores = trainer.scores(trainer.estimator, np.arange(len(trainer.y)), len(seen))
    return [Fold(rows, seen, scores[rows], trainer.estimator) for rows in parts]
