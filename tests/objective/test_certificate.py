"""The certificate against other optimisers: no point is below the objective by more than the bound, however flat it is."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import monocal as mc
from fits import random_fit
from monocal.data import synthetic


def temperature_minimum(z, y, share, own):
    """Infimum over the scale of the objective, with sixty digits, by bisection of its derivative."""
    with localcontext(prec=60):
        depths = [[Decimal(float(x)) for x in row] for row in z.max(axis=1, keepdims=True) - z]
        targets = (1 - share) * np.eye(z.shape[1])[y] + share * own
        n = len(depths)
        drop = (
            sum(
                Decimal(float(t)) * v
                for q, row in zip(targets, depths, strict=True)
                for t, v in zip(q, row, strict=True)
            )
            / n
        )

        def at(c):
            value = slope = Decimal(0)
            for row in depths:
                e = [(-c * v).exp() for v in row]
                value += sum(e).ln() / n
                slope += sum(a * v for a, v in zip(e, row, strict=True)) / sum(e) / n
            return value + c * drop, drop - slope

        low, high = Decimal("1e-6"), Decimal("1e12")
        for _ in range(80):
            middle = (low * high).sqrt()
            low, high = (middle, high) if at(middle)[1] < 0 else (low, middle)
        return float(at(low)[0])


NEARLY_SEPARABLE = {
    "a hair's breadth": (np.array([[2e-6, 0.0, -10.0]] * 5), np.zeros(5, dtype=int), 40.0),
    "one of many": (np.array([[3e-4, 0.0], [2.0, 0.0], [0.0, 5.0]]), np.array([0, 0, 1]), 1.0),
    "one wrong by little": (np.array([[1e-3, 0.0], [4.0, 0.0], [0.0, 3.0]]), np.array([1, 0, 1]), 1.0),
}


@pytest.mark.parametrize("name", NEARLY_SEPARABLE)
@pytest.mark.parametrize("prior_rows", [0.0, 8.0])
def test_temperature_scaling_where_the_objective_is_flat(name, prior_rows):
    z, y, weight = NEARLY_SEPARABLE[name]
    cal = mc.TemperatureScaling(prior_rows=prior_rows).fit(z, y, np.full(len(y), weight))
    share = prior_rows / (weight * len(y) + prior_rows)
    depth = (z.max(axis=1) - z.mean(axis=1)).mean()
    unit = min(1.0, 1.5 * depth / np.sqrt(2 * np.log(z.shape[1])))
    own = 15 / 16 * np.exp(log_softmax(z / unit, axis=1)) + 1 / 16 * np.exp(
        log_softmax(z / unit / 10, axis=1)
    )
    excess = cal.solution_.objective - temperature_minimum(z, y, share, own)
    assert -1e-12 < excess <= cal.solution_.duality_gap + 1e-12
    assert cal.solution_.converged
    assert excess < 1e-3


@pytest.mark.parametrize("shrinkage", [0.0, 1.0])
@pytest.mark.parametrize("prior_rows", [0.0, 1.0])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("kind", ["separable", "nearly", "ties", "ties at the top"])
def test_no_other_optimiser_finds_a_point_below_the_bound(kind, tol, prior_rows, shrinkage):
    rng = np.random.default_rng(7)
    z = rng.normal(size=(60, 4)) * 3
    if kind.startswith("ties"):
        z = np.round(z / 2) * 2
    if kind == "ties at the top":
        z[:, 2] = z[:, :2].max(axis=1)
    y = z.argmax(axis=1)
    if kind == "nearly":
        y[0] = np.argsort(z[0])[-2]
        z[1] = [1e-5, 0, -3, -9]
        y[1] = 0
    from monocal.core.cone import RankCone
    from monocal.solver import minimize as solve
    from prepared import rows_of

    allowed = np.ones((2, 1, 4), dtype=bool)
    allowed[1, 0, 0] = False
    rows = rows_of(z, y)
    problem = RankCone(rows, allowed, prior_rows=prior_rows, shrinkage=shrinkage, tol=tol)
    solution = solve(problem, tol=tol)
    linear = problem.penalty - problem.floor

    def objective(c):
        here = problem.evaluate(c, np.zeros(0, dtype=np.intp))
        return here.value + linear @ c, here.gradient + linear

    lowest = np.inf
    for start in (problem.start(), solution.coefficients, 10 * solution.coefficients + 1.0):
        result = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, None) for low in problem.lower],
            options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-12},
        )
        lowest = min(lowest, result.fun)
    assert solution.objective - lowest <= solution.duality_gap + 1e-12


# Logits in the ten thousands, of which a softmax leaves one class.
BROKE_ONCE = 651, 829, 1857


@pytest.mark.filterwarnings(
    "ignore::monocal.CalibrationWarning"
)  # labels at random, or all the same, leave classes wrong that a map that keeps the order cannot put right
def test_every_fit_reaches_its_optimum():
    """A few hundred calibration sets of all kinds; those in units that are refused say so."""
    fitted = 0
    for seed in (*range(250), *BROKE_ONCE):
        cal, z, y, weight = random_fit(seed)
        try:
            cal.fit(z, y, weight)  # a fit that does not converge warns, and warnings are errors
        except mc.InputError:
            continue
        fitted += 1
        assert cal.solution_.duality_gap >= 0
        assert np.isfinite(cal.predict_proba(z.astype(np.float64))).all()
    assert fitted > 200


def violation(z, y, coefficients):
    """Largest violation of the optimality conditions of `MCCT` without shrinkage, from its formula in double precision."""
    n, m = z.shape
    order = np.argsort(z, axis=1, kind="stable")
    top = z.max(axis=1, keepdims=True).astype(np.float64)
    v = np.minimum(top - np.take_along_axis(z, order, axis=1), 1e6)
    scale, bias = coefficients[:m], np.append(0.0, coefficients[m:])
    above = np.append(
        np.cumsum((v[:, :1] * scale + bias)[:, :0:-1], axis=1)[:, ::-1], np.zeros((n, 1)), axis=1
    )
    away = np.exp(-np.cumsum(scale) * v - above)
    away /= away.sum(axis=1, keepdims=True)
    away[order == y[:, None]] -= 1.0
    below = np.cumsum(away, axis=1) - away
    lower = v[:, :1] * below + np.cumsum((away * v)[:, ::-1], axis=1)[:, ::-1]
    gradient = -np.concatenate([lower.mean(axis=0), below.mean(axis=0)[1:]])
    return max((-gradient).max(), abs(gradient[coefficients > 0]).max())


@pytest.mark.parametrize(
    ("mask", "size", "share"),
    [
        (-1e5, (3000, 100), 0.3),
        (-9e5, (3000, 100), 0.3),
        (-3e38, (3000, 100), 0.3),
        (-1e5, (90_000, 48), 1e-4),
    ],
)
def test_classes_hidden_by_finite_numbers(mask, size, share):
    """The certificate is the one of double precision, and a fit takes few more steps than without them."""
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=size).astype(np.float32)
    hidden = rng.random(z.shape) < share
    y = np.where(hidden, -np.inf, z / 1.7 + rng.gumbel(size=z.shape)).argmax(axis=1)
    without = mc.MCCT(shrinkage=0.0, prior_rows=0.0).fit(z, y).solution_
    solution = mc.MCCT(shrinkage=0.0, prior_rows=0.0).fit(np.where(hidden, np.float32(mask), z), y).solution_
    assert solution.converged
    assert violation(np.where(hidden, np.float32(mask), z), y, solution.coefficients) < 1.01e-6
    assert sum(step.rows for step in solution.history) < 5 * sum(step.rows for step in without.history)


@pytest.mark.parametrize("mask", [-3e4, -1e5, -2e5])
def test_hidden_classes_where_maps_vary_with_the_row(mask):
    """A weight and a bias of the hidden ranks nearly cancel: along both at once the objective hardly bends."""
    data = synthetic(5000, 10)
    z, rng = data.values.copy(), np.random.default_rng(0)
    hidden = rng.random(z.shape) < 0.3
    hidden[np.arange(len(z)), data.labels] = hidden[: len(z) // 4] = False
    without = mc.ConditionalMCCT().fit(z, data.labels).solution_
    solution = mc.ConditionalMCCT().fit(np.where(hidden, np.float32(mask), z), data.labels).solution_
    assert solution.converged
    assert solution.duality_gap < 1e-4
    assert sum(step.rows for step in solution.history) < 8 * sum(step.rows for step in without.history)
