"""Scores of every kind: of pairs of classes, of any size, as tensors, and with an order that `predict` does not go by."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

import monocal as mc

PAIRS = {"decision_function_shape": "ovo"}


@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize(
    ("make", "wrap"),
    [
        (NuSVC, lambda svc: make_pipeline(StandardScaler(), svc)),
        (SVC, lambda svc: GridSearchCV(svc, {"kernel": ["rbf"]}, cv=2)),
    ],
    ids=["pipeline", "search"],
)
def test_scores_of_pairs_are_not_taken_for_scores_of_classes(make, wrap, classes):
    X, y = make_classification(
        200, 5, n_informative=5, n_redundant=0, n_classes=classes, class_sep=3, random_state=0
    )
    pairs, classwise = (wrap(make(decision_function_shape=shape)) for shape in ("ovo", "ovr"))
    expected = mc.CalibratedClassifier(classwise, cv=3).fit(X, y)
    assert expected.score(X, y) > 0.9
    for ensemble in (False, True):
        result = mc.CalibratedClassifier(pairs, cv=3, ensemble=ensemble).fit(X, y)
        if not ensemble:
            np.testing.assert_array_equal(result.predict_proba(X), expected.predict_proba(X))
        assert result.score(X, y) > 0.9
    fitted = pairs.fit(X, y)
    by_class = mc.CalibratedClassifier(classwise.fit(X, y), cv="prefit").fit(X, y).predict_proba(X)
    for estimator, cv in ((fitted, "prefit"), (FrozenEstimator(fitted), 5)):
        result = mc.CalibratedClassifier(estimator, cv=cv).fit(X, y)
        np.testing.assert_array_equal(result.predict_proba(X), by_class)


def test_scores_of_pairs_that_cannot_be_recognised_are_refused():
    X, y = load_iris(return_X_y=True)
    bags = BaggingClassifier(SVC(**PAIRS), n_estimators=2, random_state=0)
    with pytest.raises(
        mc.InputError, match=r"estimator__decision_function_shape='ovo' gives scores of pairs"
    ):
        mc.CalibratedClassifier(bags).fit(X, y)
    X, y = make_classification(200, 5, n_informative=5, n_redundant=0, n_classes=4, random_state=0)
    with pytest.raises(mc.InputError, match=r"gives shape \(\d+, 6\) for 4 classes.*pairs of classes"):
        mc.CalibratedClassifier(bags).fit(X, y)


def test_predictions_that_are_not_the_largest_score_are_named():
    X, y = make_classification(
        600, 8, n_informative=6, n_classes=6, n_clusters_per_class=1, class_sep=0.5, random_state=0
    )
    with pytest.warns(UserWarning, match=r"SVC\.predict names another class .* rows.*break_ties=True"):
        model = mc.CalibratedClassifier(SVC()).fit(X, y)
    largest = model.estimator_.decision_function(X).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), largest)
    agreed = mc.CalibratedClassifier(SVC(break_ties=True)).fit(X, y)
    np.testing.assert_array_equal(agreed.predict(X), agreed.estimator_.predict(X))
    moved = FixedThresholdClassifier(LogisticRegression(), threshold=2.0, response_method="decision_function")
    with pytest.warns(UserWarning, match=r"FixedThresholdClassifier\.predict names another class than the"):
        mc.CalibratedClassifier(moved).fit(X, y > 2)


class Scaled(LinearSVC):
    """Decision values in another unit."""

    unit = 1.0

    def decision_function(self, X):
        return super().decision_function(X) * self.unit


@pytest.mark.parametrize("method", ["temperature", "conditional"])
@pytest.mark.parametrize(("exponent", "classes"), [(37, 2), (1000, 4), (-40, 4), (-1000, 2)])
def test_decision_values_of_any_size(exponent, method, classes):
    X, y = make_classification(
        300, 6, n_informative=4, n_classes=classes, n_clusters_per_class=1, flip_y=0.2, random_state=0
    )

    def fitted(power):
        estimator = type("Scaled", (Scaled,), {"unit": 2.0**power})
        return mc.CalibratedClassifier(estimator(random_state=0), method, cv=3).fit(X, y)

    far, near = (
        fitted(exponent),
        fitted(11 if exponent > 0 else -15),
    )  # of which the usual size is made as well
    np.testing.assert_array_equal(far.predict_proba(X), near.predict_proba(X))
    scale = far.calibrated_classifiers_[0].scale
    assert np.frexp(scale)[0] == 0.5
    assert near.calibrated_classifiers_[0].scale != scale != 1
    plain = fitted(0)
    assert plain.calibrated_classifiers_[0].scale == 1
    assert mc.metrics.nll(far.predict_proba(X), y) == pytest.approx(
        mc.metrics.nll(plain.predict_proba(X), y), abs=0.02
    )


def test_an_estimator_that_answers_with_tensors():
    torch = pytest.importorskip("torch")

    class Tensors(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.inner_ = LogisticRegression(max_iter=500).fit(X, y)
            self.classes_ = self.inner_.classes_
            return self

        def decision_function(self, X):
            return torch.tensor(self.inner_.decision_function(X)).requires_grad_()

    X, y = load_iris(return_X_y=True)
    p = mc.CalibratedClassifier(Tensors(), "mcct").fit(X, torch.tensor(y)).predict_proba(X)
    expected = mc.CalibratedClassifier(LogisticRegression(max_iter=500), "mcct").fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(p, expected)
