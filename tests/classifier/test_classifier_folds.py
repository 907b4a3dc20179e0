"""Honest folds: held-out scores alone are calibrated, repeats are not more rows, an ensemble is the mean of its members."""

import numpy as np
import pandas
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    StratifiedKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import monocal as mc


def _fold_numbers(X, y, folds):
    """The fold of each row, as scikit-learn deals them."""
    fold = np.empty(len(y), dtype=int)
    for k, (_, test) in enumerate(StratifiedKFold(folds).split(X, y)):
        fold[test] = k
    return fold


def test_the_calibrator_sees_held_out_scores_only(problem):
    X, _, y, _ = problem
    model = mc.CalibratedClassifier(LinearSVC(), cv=5).fit(X, y)
    fold = _fold_numbers(X, y, 5)
    scores = np.empty((len(y), 4))
    for k in range(5):
        scores[fold == k] = LinearSVC().fit(X[fold != k], y[fold != k]).decision_function(X[fold == k])
    order = np.argsort(fold, kind="stable")
    expected = mc.ConditionalMCCT().fit(scores[order], y[order])
    made = model.calibrator_.predict_proba(scores)
    np.testing.assert_allclose(made, expected.predict_proba(scores), atol=1e-6)


def test_an_ensemble_is_the_mean_of_its_members(problem):
    X, X_test, y, _ = problem
    model = mc.CalibratedClassifier(LinearSVC(), cv=4, ensemble=True).fit(X, y)
    expected = np.zeros((len(X_test), 4))
    for train, test in [(m != k, m == k) for m in [_fold_numbers(X, y, 4)] for k in range(4)]:
        one = LinearSVC().fit(X[train], y[train])
        cal = mc.ConditionalMCCT().fit(one.decision_function(X[test]), y[test])
        expected += cal.predict_proba(one.decision_function(X_test)) / 4
    np.testing.assert_allclose(model.predict_proba(X_test), expected, atol=1e-12)
    assert not hasattr(model, "calibrator_")
    for member in model.calibrated_classifiers_:
        assert member.estimator.coef_.shape == (4, 12)
        assert [type(one) for one in member.calibrators] == [mc.ConditionalMCCT]
    single = model.set_params(ensemble=False).fit(X, y)
    assert [m.estimator for m in single.calibrated_classifiers_] == [single.estimator_]
    assert single.calibrated_classifiers_[0].calibrators == [single.calibrator_]


def test_more_folds_than_rows(problem):
    X, _, y, _ = problem
    for ensemble in (False, True):
        with pytest.raises(ValueError, match=r"greater than the number of samples|Requesting 451-fold"):
            mc.CalibratedClassifier(LinearSVC(), cv=451, ensemble=ensemble).fit(X, y)
    few = np.where(np.arange(len(y)) < 3, 4, y)
    with pytest.raises(mc.InputError, match="Requesting 4-fold cross-validation but provided less than 4"):
        mc.CalibratedClassifier(LinearSVC(), cv=KFold(4), ensemble=True).fit(X, few)
    for estimator, cv, members in ((FrozenEstimator(LinearSVC().fit(X, y)), 3, 1), (LinearSVC(), 3, 3)):
        auto = mc.CalibratedClassifier(estimator, "mcct", cv=cv, ensemble="auto").fit(X, y)
        assert len(auto.calibrated_classifiers_) == members
    with pytest.raises(mc.InputError, match="LeaveOneOut cross-validation does not allow"):
        mc.CalibratedClassifier(LinearSVC(), cv=LeaveOneOut(), ensemble=True).fit(X, y)


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
    scores = np.stack([m.estimator.decision_function(X) for m in model.calibrated_classifiers_])
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
    splits = list(KFold(5, shuffle=True, random_state=0).split(X))
    model = mc.CalibratedClassifier(LogisticRegression(), cv=splits, ensemble=True).fit(X, y)
    lacking = [m for m in model.calibrated_classifiers_ if len(m.seen) == 3]
    assert len(lacking) == 1
    assert (lacking[0].predict_proba(X)[:, 3] == 0).all()
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p > 0).all()
    split = [(np.arange(73), np.arange(73))]
    once = mc.CalibratedClassifier(LogisticRegression(), cv=split, ensemble=True)
    with pytest.warns(UserWarning, match="No member of the ensemble has seen the class 'd'"):
        once.fit(X, y)
    assert (once.predict_proba(X)[:, 3] == 0).all()


@pytest.mark.parametrize("estimator", [LinearSVC(), GaussianNB()])
def test_two_classes_of_which_the_calibration_rows_have_one(estimator):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 3)) + y[:, None]
    one_class = pytest.warns(mc.CalibrationWarning, match="class 1 is the label of .* give rows of both")
    with one_class:
        model = mc.CalibratedClassifier(estimator, cv=KFold(3), ensemble=True).fit(X, y)
    kinds = [type(member.calibrators[0]) for member in model.calibrated_classifiers_]
    assert kinds == [mc.MCCT, mc.BinaryMCCT, mc.MCCT]
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p > 0).all()
    fitted = clone(estimator).fit(X, y)
    prefit = mc.CalibratedClassifier(fitted, cv="prefit")
    for rows, weight in ((slice(60), None), (slice(None), 1.0 - y)):
        with one_class:
            prefit.fit(X[rows], y[rows], sample_weight=weight)
        assert isinstance(prefit.calibrator_, mc.MCCT)
        np.testing.assert_array_equal(prefit.predict(X), fitted.predict(X))


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
    fold = _fold_numbers(X, y, 3) == 0
    inner = LogisticRegression().fit(frame[~fold], y[~fold], sample_weight=weight[~fold])
    cal = mc.ConditionalMCCT().fit(
        inner.decision_function(frame[fold]), y[fold], weight[fold], context=ward[fold]
    )
    np.testing.assert_allclose(
        first.predict_proba(frame, ward),
        cal.predict_proba(inner.decision_function(frame), context=ward),
        atol=1e-12,
    )


def test_repeats_are_not_more_rows(problem):
    """20 repeats say more of the model, not of the labels: what the fit trusts the rows with must not grow."""
    X, X_test, y, _ = (part[:200] for part in problem)
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    splits = list(RepeatedStratifiedKFold(n_splits=5, n_repeats=20, random_state=0).split(X, y))

    def logs(cv):
        return np.log(mc.CalibratedClassifier(tree, "mcct", cv=cv).fit(X, y).predict_proba(X_test))

    single = np.array([logs(splits[first : first + 5]) for first in range(0, 100, 5)])
    usual = np.abs(single - single.mean(axis=0)).mean()
    assert np.abs(logs(splits) - single.mean(axis=0)).mean() < 0.4 * usual
    twice = mc.CalibratedClassifier(tree, cv=splits[:5] * 2).fit(X, y)
    assert type(twice.calibrator_) is mc.MCCT  # it counts a row once, however often it is held out
    np.testing.assert_allclose(np.log(twice.predict_proba(X_test)), logs(splits[:5]), atol=1e-5)
