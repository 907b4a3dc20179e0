"""Metrics as scikit-learn's scorers, in scikit-learn's own tools."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB

import monocal as mc
from monocal.metrics import METRICS, scorer, scorers

NAMES = np.array(["ant", "bee", "cat"])
X, y = make_classification(
    300, 8, n_informative=5, n_classes=3, n_clusters_per_class=1, flip_y=0.2, random_state=0
)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_scores_what_it_measures(metric):
    labels = (y > 0) if METRICS[metric].binary else NAMES[y]
    model = GaussianNB().fit(X, labels)
    numbers = np.unique(labels, return_inverse=True)[1]
    value = mc.evaluate(model.predict_proba(X), numbers, metrics=metric)[metric].value
    sign = 1 if METRICS[metric].higher_is_better else -1
    assert scorer(metric)(model, X, labels) == sign * value


def test_a_fold_may_lack_a_class():
    """What has labels alone takes the two classes of the first rows for the first two columns."""
    model = GaussianNB().fit(X, y + 1)
    rows = y != 0
    expected = mc.metrics.nll(model.predict_proba(X[rows]), y[rows])
    assert -scorer("nll")(model, X[rows], y[rows] + 1) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(mc.InputError, match="the label 9 is none of the 3 classes"):
        scorer("nll")(model, X[:1], [9])


@pytest.mark.parametrize("labels", [y > 0, NAMES[y]], ids=["two", "three"])
def test_cross_validation_agrees_with_scikit_learn(labels):
    result = cross_validate(GaussianNB(), X, labels, scoring=scorers("nll", "brier"), cv=3)
    agreed = cross_val_score(GaussianNB(), X, labels, scoring="neg_log_loss", cv=3)
    np.testing.assert_allclose(result["test_nll"], agreed, rtol=1e-9)
    assert set(scorers()) == {"nll", "brier", "ece", "accuracy"}


def test_searches_and_calibrators_themselves():
    methods = {"method": ["temperature", "mcct"]}
    classifier = mc.CalibratedClassifier(GaussianNB(), cv=2)
    search = GridSearchCV(classifier, methods, scoring=scorers("nll", "ece"), refit="nll", cv=2)
    search.fit(X, NAMES[y])
    assert search.best_score_ == search.cv_results_["mean_test_nll"].max()
    logits, folds = LogisticRegression().fit(X, y).decision_function(X), KFold(3)
    result = cross_val_score(mc.MCCT(), logits, y, scoring=scorer("nll"), cv=folds)
    np.testing.assert_allclose(result, cross_val_score(mc.MCCT(), logits, y, cv=folds), rtol=1e-9)


def test_weights_are_routed():
    weight = np.random.default_rng(0).uniform(size=len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        weighted = scorer("brier").set_score_request(sample_weight=True)
        model = GaussianNB().set_fit_request(sample_weight=True)
        params = {"sample_weight": weight}
        result = cross_validate(model, X, y, scoring={"brier": weighted}, params=params, cv=KFold(2))
    train, test = next(KFold(2).split(X))
    model = GaussianNB().fit(X[train], y[train], sample_weight=weight[train])
    expected = mc.metrics.brier(model.predict_proba(X[test]), y[test], sample_weight=weight[test])
    assert result["test_brier"][0] == pytest.approx(-expected, abs=1e-12)


def test_a_scorer_like_any_other():
    one = scorer("ece", n_bins=5)
    assert repr(one) == "scorer('ece', n_bins=5)"
    assert check_scoring(GaussianNB(), scoring=one) is one
    model = GaussianNB().fit(X, y)
    value = mc.metrics.ece(model.predict_proba(X), y, n_bins=5)
    assert pickle.loads(pickle.dumps(one))(model, X, y) == -value


def test_what_is_wrong_is_refused_when_a_scorer_is_made():
    """In a cross-validation it would only be a NaN."""
    with pytest.raises(mc.InputError, match="expected names out of accuracy"):
        scorers("ecee")
    with pytest.raises(mc.InputError, match=r"expected options out of n_bins, .*; got nbins"):
        scorer("ece", nbins=10)
    for wrong in ({"n_bins": 0}, {"top_k": 1.5}, {"bandwidth": "wide"}):
        with pytest.raises(mc.InputError, match=next(iter(wrong))):
            scorer("ece", **wrong)
