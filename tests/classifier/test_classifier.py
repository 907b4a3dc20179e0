"""CalibratedClassifier: scikit-learn's own checks, better probabilities in the same order, weights, names and refusals."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, train_test_split
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import monocal as mc
from hostile import assert_order_kept
from monocal.metrics import nll

_STOPS = (
    "LinearSVC stops at a tolerance of 1e-4, not at the same point for repeated rows as for weighted ones"
)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (
            mc.CalibratedClassifier(),
            {f"check_sample_weight_equivalence_on_{kind}_data": _STOPS for kind in ("dense", "sparse")},
        ),
        (mc.CalibratedClassifier(DecisionTreeClassifier(random_state=0), cv=3), {}),
        (mc.CalibratedClassifier(LogisticRegression(), "temperature", cv=3, ensemble=True), {}),
    ],
    ids=["default", "probabilities", "ensemble"],
)
def test_check_estimator(estimator, expected):
    # Threads of linear algebra wait for each other on a busy machine: a minute instead of seconds.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, expected_failed_checks=expected)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)
    assert len(results) > 55


@pytest.mark.parametrize("method", ["conditional", "temperature", mc.MCCT(top_k=2)], ids=str)
@pytest.mark.parametrize("estimator", [LinearSVC(), RandomForestClassifier(30, random_state=0)], ids=repr)
def test_better_probabilities_in_the_same_order(problem, estimator, method):
    X, X_test, y, y_test = problem
    model = mc.CalibratedClassifier(estimator, method).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    plain = clone(estimator).fit(X, y)
    if hasattr(plain, "decision_function"):
        before = plain.decision_function(X_test)
        raw = log_softmax(before, axis=1)
    else:
        before = plain.predict_proba(X_test)
        raw = np.log(np.maximum(before, 1e-3))
    assert_order_kept(before, p)
    assert nll(p, y_test) < nll(np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True), y_test)
    np.testing.assert_array_equal(model.predict(X_test), p.argmax(axis=1))


def test_binary_logits_are_those_of_logistic_regression():
    X, y = make_classification(600, flip_y=0.2, random_state=1)
    plain = LogisticRegression(C=100).fit(X[:300], y[:300])
    model = mc.CalibratedClassifier(plain, "temperature", cv="prefit").fit(X[300:], y[300:])
    temperature = model.calibrator_.temperature_
    d = plain.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-d / temperature)), rtol=1e-10)
    # Between samples, too, the order stays: a higher score is at least as probable.
    p = mc.CalibratedClassifier(plain, "mcct", cv="prefit").fit(X[300:], y[300:]).predict_proba(X)[:, 1]
    assert (np.diff(p[np.argsort(d)]) >= 0).all()


@pytest.mark.parametrize(
    "wrap", [lambda e: (e, "prefit"), lambda e: (FrozenEstimator(e), 5)], ids=["cv", "frozen"]
)
def test_prefit(problem, wrap):
    X, X_cal, y, y_cal = problem
    plain = LinearSVC().fit(X, y)
    estimator, cv = wrap(plain)
    model = mc.CalibratedClassifier(estimator, cv=cv).fit(X_cal, y_cal)
    expected = mc.ConditionalMCCT().fit(plain.decision_function(X_cal), y_cal)
    np.testing.assert_array_equal(
        model.predict_proba(X), expected.predict_proba(model.estimator_.decision_function(X))
    )
    assert model.estimator_ is estimator


def test_weights_the_estimator_cannot_take(problem):
    X, _, y, _ = problem
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.warns(UserWarning, match="the weights reach the calibrator alone"):
        mc.CalibratedClassifier(pipeline).fit(X, y, sample_weight=np.ones(len(y)))


def test_metadata_routing(problem):
    X, _, y, _ = problem
    weight = np.random.default_rng(0).uniform(size=len(y))
    groups = np.arange(len(y)) % 30
    with sklearn.config_context(enable_metadata_routing=True):
        inner = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            LogisticRegression().set_fit_request(sample_weight=True),
        )
        model = mc.CalibratedClassifier(inner, cv=GroupKFold(3)).set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weight, groups=groups)
        direct = clone(inner).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.estimator_[-1].coef_, direct[-1].coef_)


def test_pipelines_search_and_scores(problem):
    X, _, y, _ = problem
    search = GridSearchCV(
        mc.CalibratedClassifier(LogisticRegression(), mc.MCCT(), cv=2),
        {"estimator__C": [0.01, 1.0], "method__shrinkage": [1.0]},
        scoring="neg_log_loss",
        cv=2,
    ).fit(X, y)
    assert set(search.best_params_) == {"estimator__C", "method__shrinkage"}
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))
    texts = ["good film", "bad film", "good plot", "bad plot"] * 6
    words = mc.CalibratedClassifier(make_pipeline(CountVectorizer(), MultinomialNB()))
    words.fit(texts, ["+", "-"] * 12)
    assert list(words.predict(["good", "bad"])) == ["+", "-"]


def test_golden_digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0)
    # GaussianNB multiplies 64 densities and underflows to 0 and 1: nothing to be had from its probabilities as they are.
    plain = GaussianNB().fit(X, y).predict_proba(X_test)
    assert nll(np.clip(plain, 1e-15, 1), y_test) > 2.5
    for method, expected in {"mcct": 0.5627, "temperature": 0.5687}.items():
        model = mc.CalibratedClassifier(GaussianNB(), method).fit(X, y)
        assert nll(model.predict_proba(X_test), y_test) == pytest.approx(expected, abs=0.005)
    of_probabilities = mc.CalibratedClassifier(GaussianNB(), mc.MCCT(input="probabilities")).fit(X, y)
    assert nll(of_probabilities.predict_proba(X_test), y_test) == pytest.approx(0.5627, abs=0.005)


FITTED = LinearSVC().fit([[0.0], [1.0]], [0, 1])
REFUSED = [
    ({"method": "nonsense"}, r"no method 'nonsense'.*The methods are .*mcct"),
    ({"method": 3}, "method must be a name such as 'mcct' or a calibrator"),
    ({"method": mc.MCCT(ignore_index=-1)}, r"ignore_index=.* and class_axis=.*, which mean nothing here"),
    ({"method": mc.MCCT(class_axis=0)}, r"ignore_index=.* and class_axis=.*, which mean nothing here"),
    ({"cv": "pre-fit"}, "cv must be a number of folds, 'prefit'"),
    ({"cv": 1}, "n_splits=2 or more"),
    ({"estimator": StandardScaler()}, "StandardScaler has no decision_function and no predict_proba"),
    ({"estimator": FITTED, "cv": "prefit", "ensemble": True}, "ensemble: its members are of folds"),
    ({"ensemble": "no"}, "ensemble must be True, False or 'auto'"),
    ({"sample_weight": -np.ones(450)}, "sample_weight: entry 0 is negative"),
    ({"estimator": FITTED, "cv": "prefit", "nonsense": 3}, "nonsense would go to the fit of the estimator"),
    ({"estimator": FrozenEstimator(FITTED), "nonsense": 3}, "nonsense would go to the fit of the estimator"),
    ({"y": np.linspace(0, 1, 450)}, "Unknown label type"),
    ({"X": np.zeros((0, 3)), "y": np.zeros(0, int)}, r"X has 0 sample\(s\)"),
    ({"X": np.zeros((3, 2)), "y": [0, 1, 2], "cv": KFold(3)}, "No held-out row belongs to a class"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=lambda value: None)
def test_refusals(problem, arguments, words):
    X, _, y, _ = problem
    own = {"estimator": LinearSVC(), **arguments}
    made = {name: own.pop(name) for name in ("estimator", "method", "cv", "ensemble") if name in own}
    with pytest.raises(ValueError, match=words):
        mc.CalibratedClassifier(**made).fit(**({"X": X, "y": y} | own))


def test_a_fitted_estimator_must_be_fitted(problem):
    X, _, y, _ = problem
    with pytest.raises(sklearn.exceptions.NotFittedError):
        mc.CalibratedClassifier(LinearSVC(), cv="prefit").fit(X, y)
