"""The solver on problems of other fields: it needs values, gradients and Hessians, and knows nothing of classifiers."""

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import nnls

from monocal.solver import Evaluation, minimize


class NonNegativeProblem:
    """``F(c) = mean of loss(A c)`` over ``c >= 0``; implements `monocal.solver.ConeProblem`."""

    rounding = 1e-14

    def __init__(self, A, y, penalty=0.0):
        self.A, self.y = A, y
        self.n_rows, k = A.shape
        self.penalty, self.floor, self.lower = np.full(k, penalty), np.zeros(k), np.zeros(k)
        self.spread = A.std(axis=0)
        self.reach = np.sqrt((A**2).mean(axis=0))
        self.calls = 0

    worth = property(lambda self: self.penalty)

    def start(self):
        return np.full(len(self.lower), 0.1)

    def evaluate(self, coefficients, working):
        self.calls += 1
        value, slope, curvature = self.loss(self.A @ coefficients)
        some = self.A[:, working]
        return Evaluation(
            float(value.mean()),
            self.A.T @ slope / self.n_rows,
            some.T @ (some * curvature[:, None]) / self.n_rows,
        )

    def candidates(self, gradient, size):
        order = np.argsort(gradient)[:size]
        return np.sort(order[gradient[order] < 0])

    def excess(self, coefficients, here):
        g = here.gradient + self.penalty
        return float(abs(g @ coefficients) + max(-g.min(), 0.0) * coefficients.sum())

    def coarse(self):
        return None


class LeastSquares(NonNegativeProblem):
    def loss(self, f):
        return (f - self.y) ** 2 / 2, f - self.y, np.ones_like(f)


class Poisson(NonNegativeProblem):
    """Counts with the logarithm of their mean linear in ``c``."""

    def loss(self, f):
        mean = np.exp(f)
        return mean - self.y * f, mean - self.y, mean


@pytest.mark.parametrize("seed", range(5))
def test_non_negative_least_squares_as_scipy(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(60, 25))
    y = A @ np.maximum(rng.normal(size=25), 0) + 0.3 * rng.normal(size=60)
    problem = LeastSquares(A, y)
    solution = minimize(problem, tol=1e-10)
    assert solution.converged
    np.testing.assert_allclose(solution.coefficients, nnls(A, y)[0], atol=1e-8)
    assert problem.calls < 40


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_poisson_regression_with_coefficients_that_are_not_negative(seed, penalty):
    rng = np.random.default_rng(seed)
    A = rng.uniform(size=(300, 12))
    y = rng.poisson(np.exp(A @ np.where(np.arange(12) < 3, 0.8, 0.0))).astype(float)
    problem = Poisson(A, y, penalty)
    solution = minimize(problem, tol=1e-9)
    assert solution.converged
    assert solution.duality_gap < 1e-7

    def objective(c):
        here = problem.evaluate(c, np.zeros(0, dtype=int))
        return here.value + penalty * c.sum(), here.gradient + penalty

    other = scipy_minimize(
        objective, np.full(12, 0.1), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 12, tol=1e-12
    )
    assert solution.objective <= other.fun + 1e-9
    np.testing.assert_allclose(solution.coefficients, other.x, atol=2e-3)


def test_one_coefficient_cannot_be_missed():
    problem = Poisson(np.ones((10, 1)), np.full(10, 1e6))
    solution = minimize(problem, tol=1e-3)
    assert solution.converged
    assert solution.coefficients[0] == pytest.approx(np.log(1e6), abs=1e-6)
