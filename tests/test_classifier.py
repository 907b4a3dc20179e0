"""CalibratedClassifier: scikit-learn's own checks, honest folds, every kind of label, classes that are rare or absent."""

import pickle
import warnings

import numpy as np
import pandas
import pytest
import sklearn
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import monocal as mc
from hostile import assert_order_kept
from monocal.metrics import nll


@pytest.fixture(scope="module")
def problem():
    X, y = make_classification(
        900, 12, n_informative=6, n_classes=4, n_clusters_per_class=1, flip_y=0.2, random_state=0
    )
    return train_test_split(X, y, test_size=0.5, random_state=0)


@pytest.mark.parametrize(
    "estimator",
    [
        mc.CalibratedClassifier(LogisticRegression()),
        mc.CalibratedClassifier(LogisticRegression(), "temperature", cv=3),
        mc.CalibratedClassifier(DecisionTreeClassifier(random_state=0)),
        mc.CalibratedClassifier(LogisticRegression(), "temperature", cv=3, ensemble=True),
    ],
    ids=["logits", "temperature", "probabilities", "ensemble"],
)
def test_check_estimator(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert len(results) > 55


@pytest.mark.parametrize(
    "method", ["mcct", "mcct_inverse", "conditional", "temperature", mc.MCCT(top_k=2)], ids=str
)
@pytest.mark.parametrize(
    "estimator", [LinearSVC(), GaussianNB(), RandomForestClassifier(30, random_state=0)], ids=repr
)
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


def test_the_calibrator_sees_held_out_scores_only(problem):
    X, _, y, _ = problem
    model = mc.CalibratedClassifier(LinearSVC(), cv=5).fit(X, y)
    fold = np.empty(len(y), dtype=int)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % 5
    scores = np.empty((len(y), 4))
    for k in range(5):
        scores[fold == k] = LinearSVC().fit(X[fold != k], y[fold != k]).decision_function(X[fold == k])
    order = np.argsort(fold, kind="stable")
    expected = mc.MCCT().fit(scores[order], y[order])
    np.testing.assert_allclose(model.calibrator_.weights_, expected.weights_, rtol=1e-6)
    np.testing.assert_allclose(model.calibrator_.biases_, expected.biases_, atol=1e-6)


def test_binary_logits_are_those_of_logistic_regression():
    X, y = make_classification(600, flip_y=0.2, random_state=1)
    plain = LogisticRegression(C=100).fit(X[:300], y[:300])
    model = mc.CalibratedClassifier(plain, "temperature", cv="prefit").fit(X[300:], y[300:])
    temperature = model.calibrator_.temperature_
    d = plain.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-d / temperature)), rtol=1e-10)
    # Between samples, too, the order stays: whoever scored higher is at least as probable.
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
    expected = mc.MCCT().fit(plain.decision_function(X_cal), y_cal)
    np.testing.assert_array_equal(
        model.predict_proba(X), expected.predict_proba(model.estimator_.decision_function(X))
    )
    assert model.estimator_ is estimator


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ant", "bee", "cat", "dog"]),
        np.array([-1.0, 2.0, 5.0, 7.0]),
        np.array(["w", "x", "y", "z"], dtype=object),
    ],
    ids=["text", "numbers", "objects"],
)
def test_labels_of_any_type(problem, names):
    X, X_test, y, _ = problem
    model = mc.CalibratedClassifier(LogisticRegression()).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    plain = mc.CalibratedClassifier(LogisticRegression()).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X_test), plain.predict_proba(X_test))
    assert set(model.predict(X_test)) <= set(names)
    assert model.score(X, names[y]) > 0.5


class NumbersOnly(ClassifierMixin, BaseEstimator):
    """Takes no labels but 0..k-1 with none left out, as XGBClassifier does."""

    def fit(self, X, y):
        names = np.unique(y)
        expected = np.arange(len(names))
        if names.dtype.kind not in "iufb" or (names != expected).any():
            raise ValueError(
                f"Invalid classes inferred from unique values of `y`. Expected: {expected}, got {names}"
            )
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = names
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X).astype(np.float32)


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize(
    "names",
    [np.array(["ant", "bee", "cat", "dog"]), np.arange(1, 5), np.array([-1.0, 2.0, 5.0, 7.0])],
    ids=str,
)
def test_estimators_that_take_numbers_only(problem, names, ensemble):
    X, X_test, y, _ = problem
    plain = mc.CalibratedClassifier(NumbersOnly(), ensemble=ensemble).fit(X, y)
    assert not plain.encoded_
    with pytest.warns(
        UserWarning, match="NumbersOnly refuses these labels, so it was fitted on their places"
    ):
        model = mc.CalibratedClassifier(NumbersOnly(), ensemble=ensemble).fit(X, names[y])
    assert model.encoded_
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.predict_proba(X_test), plain.predict_proba(X_test))
    np.testing.assert_array_equal(model.predict(X_test), names[plain.predict(X_test)])
    if not ensemble:
        assert_order_kept(model.estimator_.predict_proba(X_test), model.predict_proba(X_test))


def test_numbers_only_and_a_class_that_a_fold_lacks(problem):
    X, X_test, y, _ = problem
    few = y.copy()
    few[y == 1] = 2
    few[0] = 1  # in the middle of the others, so that where it is held out a number is left out
    with pytest.warns(UserWarning, match="a class is absent from the training rows of a fold"):
        model = mc.CalibratedClassifier(NumbersOnly(), cv=3).fit(X, few)
    assert not model.encoded_  # the model of all rows has seen it
    assert model.predict_proba(X_test).shape == (len(X_test), 4)


def test_what_is_wrong_with_the_rows_is_not_put_down_to_the_labels(problem):
    X, _, y, _ = problem
    hole = X.copy()
    hole[3, 2] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        mc.CalibratedClassifier(LogisticRegression()).fit(hole, np.array(["a", "b", "c", "d"])[y])


def test_labels_of_another_kind_than_those_of_a_fitted_model(problem):
    X, X_cal, y, y_cal = problem
    plain = LogisticRegression().fit(X, y)
    with pytest.raises(
        mc.InputError, match=r"label 'c' of row 0 is not among the 4 classes .*called the same"
    ):
        mc.CalibratedClassifier(plain, cv="prefit").fit(X_cal, np.full(len(y_cal), "c"))


def test_an_ensemble_is_the_mean_of_its_members(problem):
    X, X_test, y, _ = problem
    model = mc.CalibratedClassifier(LinearSVC(), cv=4, ensemble=True).fit(X, y)
    expected = np.zeros((len(X_test), 4))
    for train, test in [(m != k, m == k) for m in [_fold_numbers(y, 4)] for k in range(4)]:
        one = LinearSVC().fit(X[train], y[train])
        cal = mc.MCCT().fit(one.decision_function(X[test]), y[test])
        expected += cal.predict_proba(one.decision_function(X_test)) / 4
    np.testing.assert_allclose(model.predict_proba(X_test), expected, atol=1e-12)
    assert not hasattr(model, "calibrator_")
    assert not hasattr(model.fit(X, y).set_params(ensemble=False).fit(X, y), "calibrated_classifiers_")


def _fold_numbers(y, folds):
    fold = np.empty(len(y), dtype=int)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % folds
    return fold


class Fixed(ClassifierMixin, BaseEstimator):
    """Its logits are the features themselves, plus what the training labels say: members differ."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shift_ = np.cos(counts.cumsum())
        return self

    def decision_function(self, X):
        return X + self.shift_.astype(X.dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_an_ensemble_promises_of_the_order(dtype):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 600)
    X = rng.normal(size=(600, 5)).round(1) * 8  # ties, and members that disagree
    X[np.arange(600), y] += 6
    X = X.astype(dtype)
    model = mc.CalibratedClassifier(Fixed(), "conditional", cv=KFold(3), ensemble=True).fit(X, y)
    p = model.predict_proba(X)
    assert p.dtype == dtype
    scores = np.stack([m.estimator_.decision_function(X) for m in model.calibrated_classifiers_])
    all_above = (scores[:, :, :, None] >= scores[:, :, None, :]).all(axis=0)
    np.testing.assert_array_equal(all_above & (p[:, :, None] < p[:, None, :]), False)
    tops = scores.argmax(axis=2)
    agreed = (tops == tops[0]).all(axis=0)
    assert 0 < agreed.sum() < len(agreed)
    np.testing.assert_array_equal(p.argmax(axis=1)[agreed], tops[0][agreed])


def test_an_ensemble_whose_members_lack_classes():
    rng = np.random.default_rng(0)
    y = np.array(["a"] * 40 + ["b"] * 30 + ["c"] * 3 + ["d"])
    X = rng.normal(size=(len(y), 3)) + np.unique(y, return_inverse=True)[1][:, None]
    model = mc.CalibratedClassifier(LogisticRegression(), cv=5, ensemble=True).fit(X, y)
    assert sorted({len(m.classes_) for m in model.calibrated_classifiers_}) == [3, 4]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p > 0).all()
    split = [(np.arange(73), np.arange(73))]
    once = mc.CalibratedClassifier(LogisticRegression(), cv=split, ensemble=True)
    with pytest.warns(UserWarning, match="No member of the ensemble has seen the class 'd'"):
        once.fit(X, y)
    assert (once.predict_proba(X)[:, 3] == 0).all()


def test_an_ensemble_with_weights_context_and_a_frame(problem):
    X, X_test, y, _ = problem
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    ward = np.array(["east", "west", "north"])[np.arange(len(y)) % 3]
    frame = pandas.DataFrame(X).add_prefix("f")
    model = mc.CalibratedClassifier(LogisticRegression(), "conditional", cv=3, ensemble=True)
    model.fit(frame, y, sample_weight=weight, context=ward)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.n_features_in_ == 12
    wards = ward[: len(X_test)]
    p = model.predict_proba(pandas.DataFrame(X_test).add_prefix("f"), wards)
    assert p.shape == (len(X_test), 4)
    first = model.calibrated_classifiers_[0]
    fold = _fold_numbers(y, 3) == 0
    inner = LogisticRegression().fit(frame[~fold], y[~fold], sample_weight=weight[~fold])
    cal = mc.ConditionalMCCT().fit(
        inner.decision_function(frame[fold]), y[fold], weight[fold], context=ward[fold]
    )
    np.testing.assert_allclose(
        first.predict_proba(frame, ward),
        cal.predict_proba(inner.decision_function(frame), context=ward),
        atol=1e-12,
    )


def test_predictions_out_of_fold(problem):
    X, _, y, _ = problem
    names = np.array(["ant", "bee", "cat", "dog"])
    p = cross_val_predict(
        mc.CalibratedClassifier(LinearSVC(), cv=3), X, names[y], cv=3, method="predict_proba"
    )
    assert p.shape == (len(y), 4)
    assert (names[p.argmax(axis=1)] == names[y]).mean() > 0.6


def test_true_and_false():
    X, y = make_classification(200, random_state=0)
    model = mc.CalibratedClassifier(LinearSVC()).fit(X, y.astype(bool))
    assert model.predict(X).dtype == bool


def test_weights_stand_for_repetition(problem):
    X, X_test, y, _ = problem
    weight = np.random.default_rng(0).integers(0, 3, size=len(y))
    group = np.arange(len(y)) % 4
    splits = [(np.flatnonzero(group != k), np.flatnonzero(group == k)) for k in range(4)]
    again = np.repeat(group, weight)
    repeated = [(np.flatnonzero(again != k), np.flatnonzero(again == k)) for k in range(4)]
    exact = LogisticRegression(tol=1e-10, max_iter=5000)
    a = mc.CalibratedClassifier(exact, cv=splits).fit(X, y, sample_weight=weight)
    b = mc.CalibratedClassifier(exact, cv=repeated).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(a.predict_proba(X_test), b.predict_proba(X_test), atol=1e-4)


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
    pipeline = make_pipeline(StandardScaler(), mc.CalibratedClassifier(LinearSVC(), cv=3))
    assert cross_val_score(pipeline, X, y, scoring="neg_log_loss", cv=3).mean() > -1.2
    search = GridSearchCV(
        mc.CalibratedClassifier(LogisticRegression(), mc.MCCT(), cv=3),
        {"estimator__C": [0.01, 1.0], "method__shrinkage": [0.0, 1.0]},
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


def test_frames_keep_their_names(problem):
    pandas = pytest.importorskip("pandas")
    X, _, y, _ = problem
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    model = mc.CalibratedClassifier(LogisticRegression()).fit(
        frame, pandas.Series(y, index=frame.index[::-1])
    )
    np.testing.assert_array_equal(model.feature_names_in_, frame.columns)
    assert model.n_features_in_ == X.shape[1]
    assert model.predict_proba(frame).shape == (len(X), 4)


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), RandomForestClassifier(10, random_state=0)], ids=repr
)
def test_rare_classes_work_where_others_raise(estimator):
    rng = np.random.default_rng(0)
    y = np.array([0] * 40 + [1] * 30 + [2] * 3 + [3])  # one class thrice, one once
    X = rng.normal(size=(len(y), 3)) + y[:, None]
    with pytest.raises(ValueError, match="less than"):
        CalibratedClassifierCV(estimator, method="temperature", cv=5).fit(X, y)
    model = mc.CalibratedClassifier(estimator, cv=5).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (len(y), 4)
    assert np.isfinite(p).all()
    assert (p[:, 3] > 0).all()  # seldom seen is not impossible
    before = model.estimator_.decision_function(X) if estimator.__class__ is LogisticRegression else None
    if before is not None:
        assert_order_kept(before, p)


def test_classes_absent_from_the_calibration_set(problem):
    X, X_cal, y, y_cal = problem
    plain = LogisticRegression().fit(X, y)
    some = y_cal != 2
    model = mc.CalibratedClassifier(plain, cv="prefit").fit(X_cal[some], y_cal[some])
    assert model.predict_proba(X).shape == (len(X), 4)
    assert_order_kept(plain.decision_function(X), model.predict_proba(X))
    stranger = np.append(y_cal, 9)
    with pytest.raises(mc.InputError, match=r"label 9 of row 450 is not among the 4 classes"):
        mc.CalibratedClassifier(plain, cv="prefit").fit(np.vstack([X_cal, X_cal[:1]]), stranger)


def test_prefit_classes_need_not_be_sorted(problem):
    class Shuffled(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.inner_ = LogisticRegression().fit(X, y)
            self.classes_ = self.inner_.classes_[::-1]
            return self

        def decision_function(self, X):
            return self.inner_.decision_function(X)[:, ::-1]

    X, X_cal, y, y_cal = problem
    model = mc.CalibratedClassifier(Shuffled().fit(X, y), cv="prefit").fit(X_cal, y_cal)
    plain = mc.CalibratedClassifier(LogisticRegression().fit(X, y), cv="prefit").fit(X_cal, y_cal)
    np.testing.assert_allclose(model.predict_proba(X)[:, ::-1], plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_repeated_and_partial_splits(problem):
    X, _, y, _ = problem
    for cv in (
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        [(np.arange(300), np.arange(300, 450))],
    ):
        assert mc.CalibratedClassifier(LinearSVC(), cv=cv).fit(X, y).predict_proba(X).shape == (len(X), 4)


@pytest.mark.parametrize("method", ["mcct", "conditional"])
def test_repeats_are_not_more_rows(problem, method):
    """20 repeats say more of the model, not of the labels: what the fit trusts the rows with must not grow."""
    X, X_test, y, _ = (part[:200] for part in problem)
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    splits = list(RepeatedStratifiedKFold(n_splits=5, n_repeats=20, random_state=0).split(X, y))

    def logs(cv):
        return np.log(mc.CalibratedClassifier(tree, method, cv=cv).fit(X, y).predict_proba(X_test))

    single = np.array([logs(splits[first : first + 5]) for first in range(0, 100, 5)])
    usual = np.abs(single - single.mean(axis=0)).mean()
    assert np.abs(logs(splits) - single.mean(axis=0)).mean() < 0.4 * usual


def test_rows_held_out_twice_count_once(problem):
    X, X_test, y, _ = problem
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    once = list(KFold(3).split(X))
    for weights in (None, weight):
        a, b = (
            mc.CalibratedClassifier(LinearSVC(random_state=0), cv=cv).fit(X, y, sample_weight=weights)
            for cv in (once, once * 4)
        )
        np.testing.assert_allclose(a.predict_proba(X_test), b.predict_proba(X_test), atol=1e-6)


def test_every_name_of_the_command_line(problem):
    X, X_test, y, _ = (part[:120] for part in problem)
    plain = LogisticRegression().fit(X, y)
    for info in mc.calibrators():
        name = info.name.lower().replace(" ", "-")
        if info.extras or info.published:
            continue
        model = mc.CalibratedClassifier(plain, name, cv="prefit").fit(X_test, y)
        assert type(model.calibrator_) is info.cls
        assert model.predict_proba(X).shape == (len(X), 4)
    for short, cls in {
        "mcct_inverse": mc.MCCTInverse,
        "conditional": mc.ConditionalMCCT,
        "structured": mc.StructuredMCCT,
        "temperature": mc.TemperatureScaling,
    }.items():
        assert type(mc.CalibratedClassifier(plain, short, cv="prefit").fit(X, y).calibrator_) is cls


def test_folds_in_parallel_are_the_same(problem):
    X, _, y, _ = problem
    a = mc.CalibratedClassifier(LinearSVC(random_state=0), cv=3).fit(X, y)
    b = mc.CalibratedClassifier(LinearSVC(random_state=0), cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def test_one_class_only():
    model = mc.CalibratedClassifier(DecisionTreeClassifier()).fit(np.zeros((6, 2)), ["only"] * 6)
    np.testing.assert_array_equal(model.predict_proba(np.zeros((2, 2))), [[1], [1]])
    np.testing.assert_array_equal(model.predict(np.zeros((2, 2))), ["only", "only"])


def test_calibrator_of_probabilities(problem):
    X, X_test, y, _ = problem
    model = mc.CalibratedClassifier(LogisticRegression(), mc.MCCT(input="probabilities")).fit(X, y)
    logits = mc.CalibratedClassifier(LogisticRegression(), mc.MCCT()).fit(X, y)
    assert model.calibrator_.input == "probabilities"
    np.testing.assert_allclose(model.predict_proba(X_test), logits.predict_proba(X_test), atol=1e-6)


def test_golden_digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0)
    # GaussianNB multiplies 64 densities and underflows to 0 and 1: nothing to be had from its probabilities as they are.
    plain = GaussianNB().fit(X, y).predict_proba(X_test)
    assert nll(np.clip(plain, 1e-15, 1), y_test) > 2.5
    golden = {"mcct": 0.5627, "temperature": 0.5687}
    for method, expected in golden.items():
        model = mc.CalibratedClassifier(GaussianNB(), method).fit(X, y)
        assert nll(model.predict_proba(X_test), y_test) == pytest.approx(expected, abs=0.005)


def test_refusals(problem):
    X, _, y, _ = problem
    with pytest.raises(mc.InputError, match=r"no method 'platt'.*choose one of .*mcct"):
        mc.CalibratedClassifier(LinearSVC(), "platt").fit(X, y)
    with pytest.raises(mc.InputError, match="method must be a name such as 'mcct' or a calibrator"):
        mc.CalibratedClassifier(LinearSVC(), 3).fit(X, y)
    for fitted, cv in ((LinearSVC().fit(X, y), "prefit"), (FrozenEstimator(LinearSVC().fit(X, y)), 5)):
        with pytest.raises(mc.InputError, match="fit: nonsense would go to the fit of the estimator"):
            mc.CalibratedClassifier(fitted, cv=cv).fit(X, y, nonsense=3)
    with pytest.raises(mc.InputError, match="cv must be a number of folds, 'prefit'"):
        mc.CalibratedClassifier(LinearSVC(), cv="pre-fit").fit(X, y)
    with pytest.raises(mc.InputError, match="at least 2 folds"):
        mc.CalibratedClassifier(LinearSVC(), cv=1).fit(X, y)
    with pytest.raises(mc.InputError, match="StandardScaler has no decision_function and no predict_proba"):
        mc.CalibratedClassifier(StandardScaler()).fit(X, y)
    with pytest.raises(
        mc.InputError, match=r"gives shape \(\d+, 6\) for 4 classes.*decision_function_shape='ovr'"
    ):
        mc.CalibratedClassifier(SVC(decision_function_shape="ovo")).fit(X, y)
    with pytest.raises(mc.InputError, match="No held-out row belongs to a class its model has seen"):
        mc.CalibratedClassifier(LinearSVC()).fit(X[:3], [0, 1, 2])
    with pytest.raises(sklearn.exceptions.NotFittedError):
        mc.CalibratedClassifier(LinearSVC(), cv="prefit").fit(X, y)
    with pytest.raises(mc.InputError, match="ensemble: its members are trained on folds"):
        mc.CalibratedClassifier(LinearSVC().fit(X, y), cv="prefit", ensemble=True).fit(X, y)
    with pytest.raises(mc.InputError, match="sample_weight: entry 0 is negative"):
        mc.CalibratedClassifier(LinearSVC()).fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(ValueError, match="Unknown label type"):
        mc.CalibratedClassifier(LinearSVC()).fit(X, X[:, 0])


@pytest.mark.parametrize("method", [mc.MCCT(ignore_index=-1), mc.TemperatureScaling(class_axis=0)])
def test_the_layout_of_arrays_means_nothing_here(problem, method):
    X, _, y, _ = problem
    with pytest.raises(mc.InputError, match=r"ignore_index=.* and class_axis=.*, which mean nothing here"):
        mc.CalibratedClassifier(GaussianNB(), method=method).fit(X, y)
