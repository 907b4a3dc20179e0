"""The kernel against slow oracles: predicted probabilities, finite differences, dense algebra, other arrangements of rows."""

import numpy as np
import pytest

from monocal.calibrators.rank_map import RankMap
from monocal.core import rows
from monocal.core.cone import RankCone
from monocal.core.statistics import Ramp, RampFactors
from monocal.parallel import CPU_BLOCK, rows_of_size
from monocal.solver import minimize
from prepared import rows_of

NOTHING = np.zeros(0, dtype=np.intp)


def make(kind, n=60, m=7, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    if kind == "ties":
        z = np.round(z / 2) * 2
    y = rng.integers(0, m, size=n)
    if kind == "masked":
        mask = rng.random(z.shape) < 0.3
        mask[np.arange(n), y] = False
        z = np.where(mask, -np.inf, z)
    return z, y, rng.uniform(0.2, 2.0, size=n)


RAMPS = RampFactors(("margin",), (Ramp(0, 1.0, 4.0), Ramp(0, 2.0, -1.0)))


def build(z, y, w, top_k, conditional, dtype=np.float64):
    rows = rows_of(z, y, w, top_k=top_k, statistics=["margin"], dtype=dtype)
    k = 1
    if conditional:
        rows, k = rows.with_factors(RAMPS.of_statistics), 3
    allowed = np.ones((2, k, rows.n_ranks), dtype=bool)
    allowed[1, :, 0] = allowed[0, 1:, 1:] = False
    return RankCone(rows, allowed)


def random_point(problem, seed=1):
    rng = np.random.default_rng(seed)
    c = rng.exponential(0.2, size=len(problem.atoms)) * (rng.random(len(problem.atoms)) < 0.6)
    return np.maximum(c, problem.lower)


def predicted_nll(problem, c, z, y, w, top_k, conditional):
    """Mean NLL of the map as it predicts, on the same rows."""
    fn = RAMPS if conditional else None
    p = RankMap.from_grid(problem.grid(c), top_k=top_k, factors=fn).apply(z, "probabilities")
    return float(w @ -np.log(p[np.arange(len(y)), y]) / w.sum())


@pytest.mark.parametrize("kind", ["plain", "ties", "masked"])
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("conditional", [False, True])
def test_value_is_the_nll_of_the_predictions(kind, top_k, conditional):
    z, y, w = make(kind)
    problem = build(z, y, w, top_k, conditional)
    for seed in range(3):
        c = random_point(problem, seed)
        expected = predicted_nll(problem, c, z, y, w, top_k, conditional)
        np.testing.assert_allclose(problem.evaluate(c, NOTHING).value, expected, rtol=1e-10)


@pytest.mark.parametrize("top_k", [None, 3])
def test_sums_of_a_factor_give_those_of_its_mirror_image(top_k):
    z, y, w = make("plain")
    rows = rows_of(z, y, w, top_k=top_k, statistics=["margin"])

    def factors(statistics):
        psi = np.clip(statistics[:, 0] / 3, 0, 1)
        return np.stack([np.ones_like(psi), psi, 1 - psi, psi**2], axis=1)

    rows = rows.with_factors(factors)
    allowed = np.ones((2, 4, rows.n_ranks), dtype=bool)
    allowed[1, :, 0] = allowed[0, 1:, 1:] = False
    plain = RankCone(rows, allowed)
    mirrored = RankCone(rows, allowed, mirrors=np.array([0, 1, 1, 3]))
    c = random_point(plain)
    a, b = (problem.evaluate(c, np.arange(5)) for problem in (plain, mirrored))
    assert a.value == b.value
    np.testing.assert_allclose(b.gradient, a.gradient, atol=1e-12)
    np.testing.assert_array_equal(b.hessian, a.hessian)


def test_single_precision_is_close_and_blocks_add_up():
    z, y, w = make("plain", n=20_000, m=40)
    double = build(z, y, w, None, False)
    single = build(z.astype(np.float32), y, w, None, False, dtype=np.float32)
    assert len(double.rows.blocks) > 2
    c = random_point(double) / 10
    a, b = double.evaluate(c, np.arange(0, 79, 5)), single.evaluate(c, np.arange(0, 79, 5))
    np.testing.assert_allclose(a.value, b.value, rtol=1e-6)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-5)
    halves = [double.on_rows(double.rows.part(np.arange(20_000) % 2 == i)) for i in (0, 1)]
    parts = [h.evaluate(c, NOTHING) for h in halves]
    shares = np.array([h.totals.weight for h in halves]) / double.totals.weight
    np.testing.assert_allclose(
        sum(s * p.value for s, p in zip(shares, parts, strict=True)), a.value, rtol=1e-12
    )


@pytest.mark.parametrize("kind", ["plain", "ties", "masked"])
@pytest.mark.parametrize("top_k", [None, 3])
def test_no_feasible_point_is_better(kind, top_k):
    """The certificate, checked by brute force around the solution."""
    z, y, w = make(kind)
    problem = build(z, y, w, top_k, True).with_strength(1.0, tol=1e-6)
    solution = minimize(problem)
    assert solution.converged
    assert solution.kkt <= 1e-6
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            other = np.maximum(
                solution.coefficients + scale * rng.normal(size=len(problem.atoms)), problem.lower
            )
            objective = problem.evaluate(other, NOTHING).value + (problem.penalty - problem.floor) @ other
            assert objective >= solution.objective - solution.duality_gap - 1e-12


def test_coarse_copy_leads_to_the_same_solution():
    z, y, w = make("plain", n=9000, m=12)
    y = np.where(np.random.default_rng(4).random(9000) < 0.6, z.argmax(axis=1), y)
    problem = build(z, y, w, None, False).with_strength(1.0, tol=1e-6)
    assert problem.coarse() is not None
    with_coarse = minimize(problem)
    problem.coarse = lambda: None
    without = minimize(problem)
    assert with_coarse.converged
    assert without.converged
    assert abs(with_coarse.objective - without.objective) < 1e-9
    passes = sum(step.rows == 9000 for step in with_coarse.history)
    assert passes < sum(step.rows == 9000 for step in without.history)


@pytest.mark.parametrize(
    "n", [30_000, 300_000, 3_000_000]
)  # blocks have 131 rows, and a sample one row in 8, 36, 358
def test_a_sample_is_bounded_and_the_same_wherever_rows_are_cut(n):
    m = 2000
    step = rows.sample_step(n, m)
    chosen = np.flatnonzero(rows.in_sample(n, m, step))
    assert 2**22 < len(chosen) * m < 1.2 * 2**24
    size = rows_of_size(CPU_BLOCK, m)
    blocks = np.split(np.arange(n), range(size, n, size))[:: -(-step // size)]
    np.testing.assert_array_equal(np.concatenate([b[::step] for b in blocks]), chosen)


def test_blocks_joined_are_the_same_rows():
    from monocal.core.engine import join_blocks
    from monocal.core.rows import Rows
    from monocal.engines import ARRAY

    z, y, w = make("ties", n=90, m=11)
    pieces = [ARRAY.prepare(z[i : i + 30], y[i : i + 30], w[i : i + 30], top_k=4)[0] for i in (0, 30, 60)]
    c = None
    results = []
    for blocks in (ARRAY.prepare(z, y, w, top_k=4), [join_blocks(pieces)], [join_blocks(pieces, z)]):
        allowed = np.ones((2, 1, 4), dtype=bool)
        allowed[1, 0, 0] = False
        problem = RankCone(Rows.of_blocks(blocks), allowed)
        c = random_point(problem)
        results.append(problem.evaluate(c, np.arange(len(c))))
    for other in results[1:]:
        np.testing.assert_allclose(other.value, results[0].value, rtol=1e-13)
        np.testing.assert_allclose(other.gradient, results[0].gradient, atol=1e-14)
        np.testing.assert_allclose(other.hessian, results[0].hessian, atol=1e-14)
