"""Labels of every kind, and classes that are rare, absent or named in another order."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import monocal as mc
from hostile import assert_order_kept


def test_labels_of_any_type(problem):
    X, X_test, y, _ = problem
    plain = mc.CalibratedClassifier(LogisticRegression(), "mcct").fit(X, y).predict_proba(X_test)
    for names in (np.array(["ant", "bee", "cat", "dog"], dtype=object), np.array([-1.0, 2.0, 5.0, 7.0])):
        model = mc.CalibratedClassifier(LogisticRegression(), "mcct").fit(X, names[y])
        np.testing.assert_array_equal(model.classes_, names)
        np.testing.assert_array_equal(model.predict_proba(X_test), plain)
        assert set(model.predict(X_test)) <= set(names)
        assert model.score(X, names[y]) > 0.5
    X, y = make_classification(200, random_state=0)
    assert mc.CalibratedClassifier(LinearSVC()).fit(X, y.astype(bool)).predict(X).dtype == bool


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
    [np.array(["ant", "bee", "cat", "dog"]), np.array([-1.0, 2.0, 5.0, 7.0])],
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
        model = mc.CalibratedClassifier(NumbersOnly(), cv=KFold(3)).fit(X, few)
    assert not model.encoded_  # the model of all rows has seen it
    assert model.predict_proba(X_test).shape == (len(X_test), 4)


def test_what_is_wrong_with_the_rows_is_not_put_down_to_the_labels(problem):
    X, _, y, _ = problem
    hole = X.copy()
    hole[3, 2] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        mc.CalibratedClassifier(LogisticRegression()).fit(hole, np.array(["a", "b", "c", "d"])[y])


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), RandomForestClassifier(10, random_state=0)], ids=repr
)
def test_rare_classes_work_where_others_raise(estimator):
    rng = np.random.default_rng(0)
    y = np.array([0] * 40 + [1] * 30 + [2] * 3 + [3])  # one class thrice, one once
    X = rng.normal(size=(len(y), 3)) + y[:, None]
    with pytest.raises(ValueError, match="less than"):
        CalibratedClassifierCV(estimator, method="temperature", cv=5).fit(X, y)
    with pytest.warns(UserWarning, match="The least populated class"):
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
    kept = y_cal != 2
    with pytest.warns(mc.CalibrationWarning, match="StructuredMCCT"):
        model = mc.CalibratedClassifier(plain, cv="prefit").fit(X_cal[kept], y_cal[kept])
    assert model.predict_proba(X).shape == (len(X), 4)
    assert_order_kept(plain.decision_function(X), model.predict_proba(X))
    for stranger in (np.append(y_cal[:-1], 9), np.append(y_cal[:-1].astype(str), "c")):
        with pytest.raises(mc.InputError, match=r"label .* of row .* is not among the 4 classes"):
            mc.CalibratedClassifier(plain, cv="prefit").fit(X_cal, stranger)


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


def test_one_class_only():
    model = mc.CalibratedClassifier(DecisionTreeClassifier()).fit(np.zeros((6, 2)), ["only"] * 6)
    np.testing.assert_array_equal(model.predict_proba(np.zeros((2, 2))), [[1], [1]])
    np.testing.assert_array_equal(model.predict(np.zeros((2, 2))), ["only", "only"])
