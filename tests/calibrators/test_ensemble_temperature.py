"""Temperature scaling by squared error and ensemble temperature scaling."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

import monocal as mc
from hostile import calibration_set
from monocal.calibrators.ensemble_temperature import simplex_least_squares
from monocal.calibrators.temperature import brier_scale


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e5])
def test_least_brier_temperature_in_any_unit(unit):
    z, y = calibration_set(5, n=2000)
    cal = mc.TemperatureScaling(loss="mse").fit(z * unit, y)
    weight = np.full(len(y), 1 / len(y))
    best = minimize_scalar(
        lambda t: brier_scale(z, y, weight, 1 / t)[0], bounds=(0.1, 10), options={"xatol": 1e-9}
    )
    assert cal.temperature_ == pytest.approx(best.x * unit, rel=1e-5)
    assert cal.solution_.kkt < 1e-8
    assert cal.solution_.n_iter < 25


def test_brier_optimum_at_infinity_stays_finite():
    z, _ = calibration_set(4)
    sure = mc.TemperatureScaling(loss="mse").fit(z, z.argmax(axis=1))
    lost = mc.TemperatureScaling(loss="mse").fit(z, z.argmin(axis=1))
    assert 0 < sure.temperature_ < lost.temperature_ < np.inf
    assert sure.predict_proba(z).max(axis=1).mean() > 0.99
    assert lost.predict_proba(z).max() < 0.27


def test_slopes_whose_product_underflows():
    cal = mc.TemperatureScaling(loss="mse").fit([[9.0, 0.0], [0.1, 0.0]], [0, 0])
    assert cal.solution_.converged
    assert cal.predict_proba([[0.1, 0.0]])[0, 0] > 0.99


def test_many_classes_are_judged_by_more_than_a_few_rows():
    # One row in eight is wrong. With so many classes those alone hold as many logits as a sample of few classes needs.
    z = np.zeros((64, 2**15), dtype=np.float32)
    z[:, 0] = 12.0
    y = np.where(np.arange(64) % 8 == 0, 1, 0)
    cal = mc.TemperatureScaling(loss="mse").fit(z, y)
    # Top probability p, right in 7 of 8 rows: (1 - p)^2 7/8 + (1 + p^2) / 8 is least at p = 7/8, the others' part apart.
    assert cal.predict_proba(z)[0, 0] == pytest.approx(7 / 8, abs=1e-3)


@pytest.mark.parametrize("n_low", [200, 600])
def test_the_lower_of_two_valleys_is_found(n_low):
    # Low rows are right and want a large scale; high rows are often wrong and want a small one.
    rng = np.random.default_rng(0)
    z = np.zeros((n_low + 1000, 3))
    z[:, 0] = np.where(np.arange(len(z)) < n_low, 0.01, 30.0)
    y = np.where((z[:, 0] < 1) | (rng.random(len(z)) < 0.6), 0, rng.integers(1, 3, len(z)))
    scales = np.geomspace(1e-4, 1e5, 800)
    losses = np.array([brier_scale(z, y, np.full(len(y), 1 / len(y)), c)[0] for c in scales])
    steps = np.diff(losses)
    assert np.count_nonzero(np.diff(np.sign(steps[np.abs(steps) > 1e-9]))) == 2  # down, up, down again
    solution = mc.TemperatureScaling(loss="mse").fit(z, y).solution_
    assert solution.objective == pytest.approx(losses.min(), abs=1e-5)
    assert (solution.coefficients[0] > 1) == (n_low > 400)
    assert "not convex" in solution.status
    assert np.isnan(solution.duality_gap)


def test_squared_error_honours_tolerance_and_iterations(monkeypatch):
    monkeypatch.setattr("monocal.calibrators.temperature._SAMPLE", 50)  # a poor start
    z, y = calibration_set(5, n=2000)
    for tol in (1e-3, 1e-6, 1e-10):
        solution = mc.TemperatureScaling(loss="mse", tol=tol).fit(z, y).solution_
        assert solution.converged
        assert solution.kkt <= tol
    with pytest.warns(ConvergenceWarning, match="iteration limit"):
        cal = mc.TemperatureScaling(loss="mse", tol=1e-10, max_iter=2).fit(z, y)
    assert cal.solution_.n_iter == 2
    assert not cal.solution_.converged
    assert cal.solution_.kkt > 1e-10


def test_weights_by_squares_are_the_best_on_the_triangle():
    rng = np.random.default_rng(1)
    for _ in range(30):
        a, b = rng.normal(size=(8, 3)), rng.normal(size=8)
        w = simplex_least_squares(a.T @ a, a.T @ b)
        assert w.min() >= 0
        assert w.sum() == pytest.approx(1)
        others = rng.dirichlet(np.ones(3), size=2000)
        assert ((a @ w - b) ** 2).sum() <= ((others @ a.T - b) ** 2).sum(axis=1).min() + 1e-12
    same = simplex_least_squares(np.ones((3, 3)), np.ones(3))  # three equal parts: any mixture will do
    assert same.sum() == pytest.approx(1)


def test_masked_classes_take_no_share_of_the_uniform_part():
    z, y = calibration_set(6)
    y[::3] = np.random.default_rng(0).integers(0, 6, len(y[::3]))
    mask = np.arange(6) == (y + 1)[:, None] % 6
    cal = mc.EnsembleTemperatureScaling().fit(np.where(mask, -np.inf, z), y)
    assert cal.weights_[2] > 0.05
    p = cal.predict_proba(np.where(mask, -np.inf, z))
    assert (p[mask] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p[~mask].min() >= cal.weights_[2] / 5 * 0.999
