"""Vector scaling, matrix scaling and Dirichlet calibration."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import monocal as mc
from hostile import calibration_set
from monocal.calibrators import affine_problem
from monocal.calibrators.affine_problem import AffineProblem, features
from monocal.core.smooth import SmoothPoint
from monocal.inputs.reader import ArraySource, Checked, Reader

AFFINE = [mc.VectorScaling, mc.MatrixScaling, mc.DirichletCalibration]


def skewed(m=5, n=1500):
    """A set where classes need parameters of their own: labels of class 0 are often class 1."""
    z, y = calibration_set(m, n=n)
    y[(y == 0) & (np.arange(n) % 3 == 0)] = 1
    return z, y


def problem(masked=False, columns=5):
    """An objective of four classes with weights, some of them not available."""
    z, y = skewed(4, 60)
    rng = np.random.default_rng(1)
    if masked:
        z[np.arange(60), (y + 1) % 4] = -np.inf
    source = ArraySource(Reader(), Checked(z, y, rng.random(60)))
    total = float(source.checked.weight.sum())
    return AffineProblem(source, partial(features, temperature=1.7), total, rng.random((4, columns)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("columns", [2, 5])
def test_gradient_and_newton_step(columns, masked, monkeypatch):
    ours, rng = problem(masked, columns), np.random.default_rng(2)
    size = len(ours.modulus)
    for theta in (np.zeros(size), rng.normal(size=size)):
        value, gradient = ours.evaluate(theta)
        assert check_grad(lambda t: ours.evaluate(t)[0], lambda t: ours.evaluate(t)[1], theta) < 1e-6
        step = ours.newton_step(SmoothPoint(theta, value, gradient), 1e-12)
        change = (ours.evaluate(theta + 1e-6 * step)[1] - ours.evaluate(theta - 1e-6 * step)[1]) / 2e-6
        np.testing.assert_allclose(change, -gradient, atol=1e-7)
        monkeypatch.setattr(ours, "formed", False)
        by_products = ours.newton_step(SmoothPoint(theta, value, gradient), 1e-12)
        np.testing.assert_allclose(by_products, step, atol=1e-7)
        monkeypatch.undo()


def nll(cal, z, y):
    return -np.log(cal.predict_proba(z)[np.arange(len(y)), y]).mean()


def test_matrix_without_penalty_is_multinomial_regression():
    z, y = skewed()
    ours = mc.MatrixScaling.as_published().set_params(tol=1e-8).fit(z, y)
    centred = z - z.mean(axis=1, keepdims=True)
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(centred, y)
    np.testing.assert_allclose(ours.predict_proba(z), oracle.predict_proba(centred), atol=1e-5)


def test_dirichlet_meets_its_own_objective():
    z, y = skewed()
    lam, mu = 0.3, 0.2
    cal = mc.DirichletCalibration(lam=lam, mu=mu, tol=1e-9, max_iter=5000).fit(z, y)
    x = log_softmax(z, axis=1)
    off = ~np.eye(5, dtype=bool)

    def objective(w, b):
        p = log_softmax(x @ w.T + b, axis=1)
        return -p[np.arange(len(y)), y].mean() + lam / 20 * (w[off] ** 2).sum() + mu / 5 * (b**2).sum()

    best = objective(cal.coef_, cal.intercept_)
    rng = np.random.default_rng(0)
    for _ in range(200):
        step = 1e-3
        w = cal.coef_ + step * rng.normal(size=(5, 5))
        assert objective(w, cal.intercept_ + step * rng.normal(size=5)) > best


@pytest.mark.parametrize("cls", AFFINE)
def test_a_large_penalty_gives_temperature_scaling(cls):
    z, y = skewed()
    strong = {"lam": 1e9} if cls is mc.DirichletCalibration else {"l2": 1e9}
    p = cls(**strong).fit(z, y).predict_proba(z)
    expected = mc.TemperatureScaling(prior_rows=0).fit(z, y).predict_proba(z)
    if cls is mc.DirichletCalibration:  # its diagonal is free
        assert not np.allclose(p, expected, atol=1e-3)
        expected = cls(lam=1e7).fit(z, y).predict_proba(z)
    np.testing.assert_allclose(p, expected, atol=1e-4)


@pytest.mark.parametrize("cls", AFFINE)
def test_shift_of_a_row_and_unit_change_nothing(cls):
    z, y = skewed()
    cal = cls(tol=1e-7).fit(z, y)
    p = cal.predict_proba(z)
    np.testing.assert_allclose(cal.predict_proba(z + 1000.0), p, atol=1e-9)
    again = cls().fit(z + np.random.default_rng(0).normal(size=(len(z), 1)) * 100, y)
    np.testing.assert_allclose(again.predict_proba(z), p, atol=1e-4)
    for unit in (1e-5, 1e4) if cls is not mc.DirichletCalibration else ():
        scaled = cls(tol=1e-7).fit(z * unit, y).predict_proba(z * unit)
        np.testing.assert_allclose(scaled, p, atol=1e-3)


def test_many_classes_in_single_precision_and_the_warning(monkeypatch):
    monkeypatch.setattr(affine_problem, "DOUBLE_BELOW", 0)
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(2000, 400)) * 3).astype(np.float32)
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    z *= 2
    vector = mc.VectorScaling().fit(z, y)
    assert vector.n_iter_ < 100
    assert nll(vector, z, y) < nll(mc.TemperatureScaling().fit(z, y), z, y)
    with pytest.warns(ConvergenceWarning, match="MatrixScaling did not converge"):
        cal = mc.MatrixScaling(max_iter=1).fit(z, y)
    assert cal.coef_.shape == (400, 400)
    p = cal.predict_proba(z)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("cls", [mc.MatrixScaling, mc.DirichletCalibration])
def test_too_many_classes_are_refused_with_advice(cls):
    with pytest.raises(mc.InputError, match=r"6000 classes.*36,000,000 weights.*Use VectorScaling"):
        cls().fit(np.zeros((2, 6000), dtype=np.float32), [0, 1])
    assert mc.VectorScaling().fit(2 * np.eye(2, 6000, dtype=np.float32), [0, 1]).coef_.shape == (6000,)
