"""The solver on problems of other fields: it needs values, gradients and Hessians, and knows nothing of classifiers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import nnls

from monocal.solver import ConeProblem, Expansion, Status, minimize


class NonNegativeProblem(ConeProblem):
    """``F(c) = mean of loss(A c)`` over ``c >= lower``, with the defaults of the solver's own class."""

    def __init__(self, A, y, penalty=0.0, lower=0.0):
        super().__init__(A.shape[1], penalty=penalty, lower=lower)
        self.A, self.y = A, y
        self.calls = self.hessians = 0

    def evaluate(self, coefficients, working):
        self.calls += 1
        self.hessians += len(working) > 0
        value, slope, curvature = self.loss(self.A @ coefficients)
        columns = self.A[:, working]
        n = len(self.y)
        return Expansion(
            float(value.mean()), self.A.T @ slope / n, columns.T @ (columns * curvature[:, None]) / n
        )


class TunedProblem(NonNegativeProblem):
    """The same with all that a problem may say: its units, a start, a bound."""

    def __init__(self, A, y, penalty=0.0):
        super().__init__(A, y, penalty)
        self.spread = A.std(axis=0)
        self.reach = np.sqrt((A**2).mean(axis=0))

    def start(self):
        return np.full(len(self.lower), 0.1)

    def excess(self, coefficients, here):
        g = here.gradient + self.penalty
        return float(abs(g @ coefficients) + max(-g.min(), 0.0) * coefficients.sum())


class SquaredError:
    def loss(self, f):
        return (f - self.y) ** 2 / 2, f - self.y, np.ones_like(f)


class PoissonLoss:
    """Counts with the logarithm of their mean linear in ``c``."""

    def loss(self, f):
        with np.errstate(over="ignore"):  # a step too far: infinity sends the solver back
            mean = np.exp(f)
        return mean - self.y * f, mean - self.y, mean


class LeastSquares(SquaredError, NonNegativeProblem):
    pass


class TunedLeastSquares(SquaredError, TunedProblem):
    pass


class Poisson(PoissonLoss, NonNegativeProblem):
    pass


class TunedPoisson(PoissonLoss, TunedProblem):
    pass


class Coarse(TunedPoisson):
    """Shows one row in eight."""

    def coarse(self):
        small = TunedPoisson(self.A[::8], self.y[::8], self.penalty)
        small.n_rows = len(small.y)
        return small


def counts(seed, rows, columns):
    """Covariates, and counts that depend on the first three of them."""
    rng = np.random.default_rng(seed)
    A = rng.uniform(size=(rows, columns))
    return A, rng.poisson(np.exp(A @ np.where(np.arange(columns) < 3, 0.8, 0.0))).astype(float)


@pytest.mark.parametrize("kind", [LeastSquares, TunedLeastSquares])
@pytest.mark.parametrize("seed", range(2))
def test_non_negative_least_squares_as_scipy(seed, kind):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(60, 25))
    y = A @ np.maximum(rng.normal(size=25), 0) + 0.3 * rng.normal(size=60)
    problem = kind(A, y)
    solution = minimize(problem, tol=1e-10)
    assert solution.converged
    np.testing.assert_allclose(solution.coefficients, nnls(A, y)[0], atol=1e-8)
    assert problem.calls < 40


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_poisson_regression_with_coefficients_that_are_not_negative(seed, penalty):
    A, y = counts(seed, 300, 12)
    problem = TunedPoisson(A, y, penalty)
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


@pytest.mark.parametrize(("rate", "most"), [(1.7, 5), (3.4, 4), (10.2, 6), (34.0, 6)])
def test_one_coefficient_takes_few_evaluations(rate, most):
    """The last two points together tell where the root is. Newton's steps alone would take one or two evaluations more."""
    problem = TunedPoisson(np.linspace(0.5, 1.5, 50)[:, None], np.full(50, rate))
    solution = minimize(problem, start=np.array([1.0]), tol=1e-11)
    assert solution.converged
    assert problem.calls <= most


@pytest.mark.parametrize("lower", [-5.0, -1e-3, 0.0, 1e-6, 4.0])
@pytest.mark.parametrize("root", [-3.0, -1e-4, 1e-5, 2.0, 50.0])
def test_one_coefficient_with_any_lower_bound(lower, root):
    problem = Poisson(np.ones((1, 1)), np.array([np.exp(root)]), lower=lower)
    solution = minimize(problem, tol=1e-9 * max(np.exp(root), 1e-3))
    assert solution.converged
    assert solution.coefficients[0] == pytest.approx(max(root, lower), rel=1e-6, abs=1e-6)


def test_why_it_stopped():
    rng = np.random.default_rng(0)
    problem = LeastSquares(rng.normal(size=(60, 25)), rng.normal(size=60))
    assert minimize(problem).status is Status.CONVERGED
    assert minimize(problem, max_iter=0).status is Status.ITERATIONS
    # Rounding leaves a violation of about 1e-16, which no step can remove.
    assert minimize(problem, tol=0.0).status in (Status.STALLED, Status.CONVERGED)
    assert f"{Status.STALLED}" == "stopped: no further decrease is possible in this precision"
    one = Poisson(np.ones((10, 1)), np.zeros(10))
    assert minimize(one, max_iter=0, start=np.ones(1)).status is Status.ITERATIONS


@pytest.mark.parametrize("seed", range(3))
def test_a_problem_that_shows_a_part_of_its_rows_is_asked_for_no_hessian_of_all(seed):
    A, y = counts(seed, 4000, 30)
    whole, coarse = TunedPoisson(A, y, 0.02), Coarse(A, y, 0.02)
    one, other = minimize(whole, tol=1e-8), minimize(coarse, tol=1e-8)
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)
    assert whole.hessians > 0
    assert coarse.hessians == 0


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_hessian_of_all_rows_that_is_cheap_is_asked_for_where_a_part_says_too_little(seed):
    A, y = counts(seed, 4000, 30)
    dear, cheap = Coarse(A, y, 0.02), Coarse(A, y, 0.02)
    cheap.cheap_hessian = True
    one, other = minimize(dear, tol=1e-8), minimize(cheap, tol=1e-8)
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)
    assert dear.hessians == 0
    assert 0 < cheap.hessians <= 2
    assert cheap.calls < dear.calls


@pytest.mark.parametrize("most", [0, 1])
def test_no_more_iterations_are_taken_on_all_rows_than_are_allowed(most):
    rng = np.random.default_rng(0)
    A = rng.uniform(size=(400, 5))
    problem = Coarse(A, rng.poisson(np.exp(A.sum(axis=1))).astype(float), 0.02)
    solution = minimize(problem, tol=1e-12, max_iter=most)
    assert solution.n_iter == most
    assert problem.calls == most + 1
    assert not solution.converged


def test_no_step_is_taken_from_the_optimum_with_the_floor():
    """A bound of the excess that the floor keeps up is not waited for."""

    class Floored(LeastSquares):
        def excess(self, coefficients, here):
            return 1.0

    rng = np.random.default_rng(0)
    problem = Floored(rng.normal(size=(60, 5)), rng.normal(size=60))
    problem.floor = np.full(5, 0.5e-6)
    problem.penalty = problem.penalty + problem.floor
    solution = minimize(problem, tol=1e-6, gap_tol=1e-4)
    assert solution.converged
    after = [step.kkt for step in solution.history if step.kkt <= 1e-6]
    assert len(after) == 1


def test_a_gradient_that_leads_uphill_is_followed_nowhere():
    class Wrong(LeastSquares):
        def evaluate(self, coefficients, working):
            here = super().evaluate(coefficients, working)
            return replace(here, gradient=-here.gradient)

    rng = np.random.default_rng(0)
    problem = Wrong(rng.normal(size=(30, 3)), -rng.uniform(size=30))
    solution = minimize(problem, start=np.full(3, 0.5))
    assert solution.status is Status.STALLED
    assert not solution.converged
    np.testing.assert_array_equal(solution.coefficients, 0.5)


def test_a_hessian_that_rounding_has_left_indefinite():
    class Rounded(LeastSquares):
        def evaluate(self, coefficients, working):
            here = super().evaluate(coefficients, working)
            return replace(here, hessian=here.hessian + 1e-6 * (1 - np.eye(len(working))))

    rng = np.random.default_rng(0)
    one = rng.normal(size=(40, 1))
    A = np.hstack([one, one, one, rng.normal(size=(40, 2))])  # three atoms that are the same
    y = A @ np.array([1.0, 0.0, 0.0, 2.0, 0.0])
    solution = minimize(Rounded(A, y), tol=1e-8)
    assert solution.converged
    np.testing.assert_allclose(A @ solution.coefficients, y, atol=1e-6)


@pytest.mark.parametrize(("seed", "far_off"), [(0, False), (1, False), (2, False), (0, True)])
def test_a_problem_with_slow_calls_comes_to_the_same_point_in_fewer_steps(seed, far_off):
    rng = np.random.default_rng(seed)
    A = rng.uniform(size=(400, 300))
    y = rng.poisson(np.exp(A @ np.where(np.arange(300) < 40, 0.02, 0.0))).astype(float)
    quick, slow = TunedPoisson(A, y, 0.002), TunedPoisson(A, y, 0.002)
    slow.slow_calls = True
    # Far off, three hundred atoms add up: each step moves every one of them by little, and the sum by much.
    start = quick.start() if far_off else np.zeros(300)
    one, other = (minimize(p, tol=1e-8, start=start) for p in (quick, slow))
    assert one.converged
    assert other.converged
    assert other.objective == pytest.approx(one.objective, abs=1e-9)
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)
    if not far_off:
        assert other.n_iter < one.n_iter


def test_the_longer_it_takes_the_more_atoms_may_join():
    """Six hundred atoms above their bounds, where twenty-four may join at first: not one hundred iterations."""
    target = np.linspace(1.0, 2.0, 600)
    result = minimize(LeastSquares(np.eye(600), target), tol=1e-8, max_iter=24)
    assert result.converged
    np.testing.assert_allclose(result.coefficients, target, atol=1e-4)


def test_many_atoms_that_change_sides_at_once_end_where_they_would_one_by_one():
    rng = np.random.default_rng(0)
    A, target = rng.normal(size=(500, 300)), rng.normal(size=500)

    class LeastSquares(ConeProblem):
        def evaluate(self, coefficients, working):
            residual, columns = A @ coefficients - target, A[:, working]
            return Expansion(residual @ residual / 2, A.T @ residual, columns.T @ columns)

    solution = minimize(LeastSquares(300), n_candidates=300, tol=1e-9)
    assert solution.converged
    np.testing.assert_allclose(solution.coefficients, nnls(A, target)[0], atol=1e-9)
