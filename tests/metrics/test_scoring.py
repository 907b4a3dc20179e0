"""Metrics as scikit-learn's scorers, in scikit-learn's own tools."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB

import monocal as mc
from monocal.metrics import METRICS, scorer, scorers

NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def problem():
    X, y = make_classification(
        300, 8, n_informative=5, n_classes=3, n_clusters_per_class=1, flip_y=0.2, random_state=0
    )
    return X, y


@pytest.mark.parametrize("metric", [name for name, one in METRICS.items() if not one.binary])
def test_every_metric_scores_what_it_measures(problem, metric):
    X, y = problem
    model = GaussianNB().fit(X, NAMES[y])
    value = mc.evaluate(model.predict_proba(X), y, metrics=metric)[metric].value
    sign = 1 if METRICS[metric].higher_is_better else -1
    assert scorer(metric)(model, X, NAMES[y]) == sign * value


def test_two_classes_have_two_columns(problem):
    X, y = problem
    model = GaussianNB().fit(X, y > 0)
    for metric in ("nll", "ece", "positive_ece"):
        value = mc.evaluate(model.predict_proba(X), y > 0, metrics=metric)[metric].value
        assert scorer(metric)(model, X, y > 0) == -value
    result = cross_validate(GaussianNB(), X, y > 0, scoring=scorers("nll", "brier"), cv=3)
    agreed = cross_val_score(GaussianNB(), X, y > 0, scoring="neg_log_loss", cv=3)
    np.testing.assert_allclose(result["test_nll"], agreed, rtol=1e-9)


def test_a_fold_may_lack_a_class(problem):
    """What sees labels alone takes the two classes of the first rows for the first two columns."""
    X, y = problem
    model = GaussianNB().fit(X, y + 1)
    rows = y != 0
    expected = mc.metrics.nll(model.predict_proba(X[rows]), y[rows])
    assert -scorer("nll")(model, X[rows], y[rows] + 1) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(mc.InputError, match="the label 9 is none of the 3 classes"):
        scorer("nll")(model, X[:1], [9])
    order = np.argsort(y, kind="stable")  # so that each part is trained without the class it is judged on
    with pytest.raises(mc.InputError, match="Use folds that share out every class"):
        cross_validate(
            GaussianNB(), X[order], y[order], scoring=scorer("nll"), cv=KFold(3), error_score="raise"
        )


def test_cross_validation_and_searches(problem):
    X, y = problem
    asked = scorers("nll", "brier", "ece", "aurc")
    result = cross_validate(GaussianNB(), X, NAMES[y], scoring=asked, cv=3)
    agreed = cross_val_score(GaussianNB(), X, NAMES[y], scoring="neg_log_loss", cv=3)
    np.testing.assert_allclose(result["test_nll"], agreed, rtol=1e-9)
    assert set(scorers()) == {"nll", "brier", "ece", "accuracy"}
    search = GridSearchCV(
        mc.CalibratedClassifier(GaussianNB(), cv=2),
        {"method": ["temperature", "mcct"]},
        scoring=asked,
        refit="nll",
        cv=2,
    ).fit(X, NAMES[y])
    assert search.best_score_ == search.cv_results_["mean_test_nll"].max()
    assert search.score(X, NAMES[y]) == asked["nll"](search.best_estimator_, X, NAMES[y])


def test_calibrators_themselves(problem):
    X, y = problem
    logits = LogisticRegression().fit(X, y).decision_function(X)
    folds = KFold(3)
    result = cross_val_score(mc.MCCT(), logits, y, scoring=scorer("nll"), cv=folds)
    np.testing.assert_allclose(result, cross_val_score(mc.MCCT(), logits, y, cv=folds), rtol=1e-9)
    search = GridSearchCV(
        mc.MCCT(), {"shrinkage": [0.0, 100.0]}, scoring=scorers("ece"), refit="ece", cv=folds
    )
    assert search.fit(logits, y).best_params_["shrinkage"] in (0.0, 100.0)


def test_weights_are_routed(problem):
    X, y = problem
    weight = np.random.default_rng(0).uniform(size=len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        weighted = scorer("brier").set_score_request(sample_weight=True)
        result = cross_validate(
            GaussianNB().set_fit_request(sample_weight=True),
            X,
            y,
            scoring={"brier": weighted},
            params={"sample_weight": weight},
            cv=KFold(2),
        )
    train, test = next(KFold(2).split(X))
    model = GaussianNB().fit(X[train], y[train], sample_weight=weight[train])
    expected = mc.metrics.brier(model.predict_proba(X[test]), y[test], sample_weight=weight[test])
    assert result["test_brier"][0] == pytest.approx(-expected, abs=1e-12)


def test_a_scorer_like_any_other(problem):
    one = scorer("ece", n_bins=5)
    assert repr(one) == "scorer('ece', n_bins=5)"
    assert get_scorer(one) is one
    assert check_scoring(GaussianNB(), scoring=one) is one
    X, y = problem
    model = GaussianNB().fit(X, y)
    value = mc.metrics.ece(model.predict_proba(X), y, n_bins=5)
    assert pickle.loads(pickle.dumps(one))(model, X, y) == -value


@pytest.mark.parametrize("make", [scorer, scorers])
def test_what_is_wrong_is_said_when_a_scorer_is_made(make):
    """In a cross-validation it would only be a NaN."""
    with pytest.raises(mc.InputError, match="expected names out of accuracy"):
        make("ecee")
    with pytest.raises(mc.InputError, match=r"expected options out of n_bins, .*; got nbins"):
        make("ece", nbins=10)
    for wrong in ({"n_bins": 0}, {"top_k": 1.5}, {"bin_size": -1}, {"bandwidth": "wide"}):
        with pytest.raises(mc.InputError, match=next(iter(wrong))):
            make("ece", **wrong)
