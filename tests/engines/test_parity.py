"""Every engine gives the same sums: one list of engines times one list of rows, held to an oracle in double precision.

A new engine joins by one line in `ENGINES`, a new kind of rows by one line in `ROWS`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engines.rank_oracle import BIAS, SCALE, objective
from monocal.core.cone import RankCone
from monocal.core.engine import join_blocks
from monocal.core.ranked import Rest, Tail
from monocal.core.rows import Rows
from monocal.engines import ARRAY, NUMBA, TRITON, engine_for

N, M = 64, 12


def torch_array(device, dtype):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return lambda x: torch.as_tensor(
        x, device=device, dtype=getattr(torch, dtype) if x.dtype.kind == "f" else None
    )


def numpy_array(library, dtype):
    pytest.importorskip(library)
    return lambda x: x.astype(dtype) if x.dtype.kind == "f" else x


# name: engine, how to make its arrays, tolerance of the gradient
ENGINES = {
    "numpy-float64": (ARRAY, numpy_array, "numpy", 1e-12),
    "numpy-float32": (ARRAY, numpy_array, "numpy", 1e-5),
    "numba-float32": (NUMBA, numpy_array, "numba", 1e-5),
    "torch-float64": (ARRAY, torch_array, "cpu", 1e-12),
    "torch-float32": (ARRAY, torch_array, "cpu", 1e-5),
    "cuda-float64": (ARRAY, torch_array, "cuda", 1e-12),
    "triton-float32": (TRITON, torch_array, "cuda", 1e-5),
}


@pytest.fixture(params=ENGINES)
def way(request):
    """An engine, what makes its arrays, and the tolerance of the gradient."""
    engine, make, where, tol = ENGINES[request.param]
    return engine, make(where, request.param.rpartition("-")[2]), tol


def plain(rng):
    return rng.normal(size=(N, M)) * 2


def ties(rng):
    return np.round(plain(rng))


def tied_tops(rng):
    z = plain(rng)
    z[:, 1] = z[:, 2] = z[:, 3] = z.max(axis=1)
    return z


def masks(rng):
    z = plain(rng)
    z[np.arange(N)[:, None], rng.integers(0, M, (N, 4))] = -np.inf
    return z


def mixed(rng):
    """All kinds side by side in one block."""
    z = np.concatenate([make(rng)[: N // 5] for make in (plain, ties, tied_tops, masks)])
    return np.concatenate([z, np.full((N - len(z), M), 1.5)])


ROWS = {"plain": plain, "ties": ties, "tied-tops": tied_tops, "masks": masks, "mixed": mixed}


@pytest.fixture(params=ROWS)
def rows(request):
    rng = np.random.default_rng(5)
    z = ROWS[request.param](rng).astype(np.float32).astype(np.float64)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    y = np.array([rng.choice(M, p=row / row.sum()) for row in p])
    return z, y, rng.uniform(0.5, 2.0, N).astype(np.float32).astype(np.float64)


def factors_of(statistics):
    """Three factors of a number in [0, 1]: the constant 1, the number, and what is left to 1."""
    from monocal.arrays import array_namespace

    xp = array_namespace(statistics)
    return xp.concat([xp.ones_like(statistics), statistics, 1.0 - statistics], axis=1)


def share_of_row(u):
    """A statistic in [0, 1] that the oracle can compute too."""
    return u[:, -1] / (1.0 + u[:, -1])


ATOMS = [(SCALE, 0, 0), (SCALE, 0, 2), (SCALE, 0, 3), (BIAS, 0, 1), (BIAS, 0, 3)]
CONDITIONAL = sorted([*ATOMS, (SCALE, 1, 0), (SCALE, 2, 0), (BIAS, 1, 2), (BIAS, 2, 3)])


@pytest.mark.parametrize("top_k", [None, 4])
@pytest.mark.parametrize("with_factors", [False, True])
def test_engines_agree_with_the_oracle(way, rows, top_k, with_factors):
    engine, array, tol = way
    z, y, w = rows
    r = top_k or M
    (block,) = engine.prepare(array(z), array(y), array(w), top_k=top_k, statistics=[share_of_row])
    atoms = CONDITIONAL if with_factors else ATOMS
    n_factors = 3 if with_factors else 1
    psi = np.ones((N, 1))
    if with_factors:
        block = replace(block, factors=factors_of(block.statistics))
        lowest = np.sort(np.where(np.isfinite(z), z, np.inf), axis=1)[:, 0]
        if top_k:
            kth = np.sort(z, axis=1)[:, M - top_k]
            lowest = np.where(np.isfinite(kth), kth, lowest)
        height = z.max(axis=1) - lowest
        psi = np.stack([np.ones(N), height / (1 + height), 1 / (1 + height)], axis=1)
    allowed = np.zeros((2, n_factors, r), dtype=bool)
    for atom in atoms:
        allowed[atom] = True
    problem = RankCone(Rows.of_blocks([block]), allowed)
    every = np.arange(len(atoms))
    coefficients = np.random.default_rng(1).uniform(0.05, 0.6, len(atoms))
    both = problem.evaluate(coefficients, every)
    expected = objective(z, y, w, psi, atoms, coefficients, top_k)
    assert_same(both, expected, tol)
    # Each half by itself, as a solver of two phases asks for them.
    alone = problem.hessian(coefficients, every)
    np.testing.assert_allclose(alone, both.hessian, atol=tol, rtol=tol)
    first = problem.evaluate(coefficients, every[:0])
    assert abs(first.value - expected[0]) < tol
    np.testing.assert_allclose(first.gradient, both.gradient, atol=tol)
    # The same where the sums are by column, and atoms begin only where a column does.
    begins = np.array([*range(4), r - 1]) if r > 4 else np.arange(r)
    by_column = RankCone(Rows.of_blocks([block]), allowed[:, :, begins], begins=begins)
    assert_same(by_column.evaluate(coefficients, every), expected, tol)
    np.testing.assert_allclose(by_column.spread, problem.spread, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(by_column.drop, problem.drop, atol=tol)


def assert_same(here, expected, tol):
    """Value, gradient and Hessian of an engine and of the oracle."""
    value, gradient, hessian = expected
    assert abs(here.value - value) < tol
    np.testing.assert_allclose(here.gradient, gradient, atol=tol)
    np.testing.assert_allclose(here.hessian, hessian, atol=10 * tol, rtol=2 * tol)


@pytest.mark.parametrize("kind", ["ties", "mixed"])
def test_many_atoms_among_ties(way, kind):
    """An engine may take atoms a few at a time: groups of ties reach from one lot to the next."""
    (engine, array, tol), rng = way, np.random.default_rng(8)
    z = ROWS[kind](rng).astype(np.float32).astype(np.float64)
    y, w = z.argmax(axis=1), rng.uniform(0.5, 2.0, N).astype(np.float32).astype(np.float64)
    (block,) = engine.prepare(array(z), array(y), array(w), statistics=[share_of_row])
    block = replace(block, factors=factors_of(block.statistics))
    height = z.max(axis=1) - np.where(np.isfinite(z), z, np.inf).min(axis=1)
    psi = np.stack([np.ones(N), height / (1 + height), 1 / (1 + height)], axis=1)
    allowed = np.ones((2, 3, M), dtype=bool)
    allowed[BIAS, :, 0] = allowed[SCALE, 1:, 1:] = False
    atoms = [tuple(cell) for cell in np.argwhere(allowed).tolist()]
    coefficients = rng.uniform(0.01, 0.1, len(atoms))
    here = RankCone(Rows.of_blocks([block]), allowed).evaluate(coefficients, np.arange(len(atoms)))
    assert_same(here, objective(z, y, w, psi, atoms, coefficients, None), tol)


@pytest.mark.parametrize("kind", ["plain", "ties", "tied-tops"])
def test_a_rest_of_which_only_number_and_depth_are_known(way, kind):
    (engine, array, tol), rng = way, np.random.default_rng(6)
    z = ROWS[kind](rng).astype(np.float32).astype(np.float64)
    y, w, count = rng.integers(0, M, N), np.ones(N), 3
    top = z.max(axis=1)
    height = top - z.min(axis=1)
    depth = (height + rng.uniform(0.5, 2.0, N)).astype(np.float32).astype(np.float64)
    (block,) = engine.prepare(array(z), array(y), array(w), statistics=[share_of_row])
    rest = Rest(array(depth), array(np.full(N, float(count))))
    tail = Tail(None, array(np.zeros(N, dtype=np.int64)), False, rest)
    block = replace(
        block,
        rows=replace(block.rows, tail=tail, n_classes=M + count),
        factors=factors_of(block.statistics),
    )
    allowed = np.zeros((2, 3, M), dtype=bool)
    for atom in CONDITIONAL:
        allowed[atom] = True
    coefficients = rng.uniform(0.05, 0.6, len(CONDITIONAL))
    both = RankCone(Rows.of_blocks([block]), allowed).evaluate(coefficients, np.arange(len(coefficients)))
    psi = np.stack([np.ones(N), height / (1 + height), 1 / (1 + height)], axis=1)
    all_classes = np.concatenate([z, np.repeat((top - depth)[:, None], count, axis=1)], axis=1)
    assert_same(both, objective(all_classes, y, w, psi, CONDITIONAL, coefficients, M), tol)


def test_the_plain_scale_alone(way, rows):
    engine, array, tol = way
    z, y, w = rows
    allowed = np.zeros((2, 1, M), dtype=bool)
    allowed[SCALE, 0, 0] = True
    for ordered in (True, False):
        (block,) = engine.prepare(array(z), array(y), array(w), ordered=ordered)
        here = RankCone(Rows.of_blocks([block]), allowed).evaluate(np.array([0.7]), np.array([0]))
        assert_same(here, objective(z, y, w, np.ones((N, 1)), [(SCALE, 0, 0)], np.array([0.7])), tol)


def informed(z, w, psi, scale, rest=None):
    """`Engine.information` row by row: weight, variances (2, K, r) and errors (K,)."""
    r = z.shape[1]
    variances, errors = np.zeros((2, psi.shape[1], r)), np.zeros(psi.shape[1])
    for i, row in enumerate(z):
        ranked = np.sort(row)
        v = ranked[-1] - ranked
        height = v[np.isfinite(v)].max()
        p = np.exp(-scale * v)
        v = np.where(np.isfinite(v), v, 0.0)
        away, count = (0.0, 0) if rest is None else (rest[0][i], rest[1])
        others = count * np.exp(-scale * away)
        p, others = p / (p.sum() + others), others / (p.sum() + others)
        for start in range(r):
            upper = np.arange(r) >= start
            for kind, drop in enumerate((np.where(upper, v, height), np.where(upper, 0.0, 1.0))):
                below = (away if start == 0 else height) if kind == 0 else 1.0
                mean, square = p @ drop + others * below, p @ drop**2 + others * below**2
                variances[kind, :, start] += w[i] * psi[i] ** 2 * (square - mean**2)
        errors += w[i] * psi[i] ** 2 * (1.0 - p[-1])
    return w.sum(), variances, errors


@pytest.mark.parametrize("with_rest", [False, True])
def test_information(way, rows, with_rest):
    engine, array, tol = way
    z, _, w = rows
    y = z.argmax(axis=1)
    height = z.max(axis=1) - np.where(np.isinf(z), np.inf, z).min(axis=1)
    psi = np.stack([np.ones(N), height / (1 + height), 1 / (1 + height)], axis=1)
    rest = (height + 0.5, 3) if with_rest else None
    (block,) = engine.prepare(array(z), array(y), array(w), statistics=[share_of_row])
    if rest is not None:
        rest_of_row = Rest(array(rest[0]), array(np.full(N, float(rest[1]))))
        tail = Tail(None, array(np.zeros(N, dtype=np.int64)), False, rest_of_row)
        block = replace(block, rows=replace(block.rows, tail=tail, n_classes=M + rest[1]))
    for factor_values, factors in ((psi[:, :1], None), (psi, factors_of(block.statistics))):
        subset = Rows.of_blocks([replace(block, factors=factors)])
        result = subset.sum("information", 0.7)
        weight, variances, errors = informed(z, w, factor_values, 0.7, rest)
        assert result.weight == pytest.approx(weight)
        tol_of_sums = max(1e-9, 10 * tol) * N
        np.testing.assert_allclose(result.errors, errors, atol=tol_of_sums)
        np.testing.assert_allclose(result.variances[BIAS, :, 1:], variances[BIAS, :, 1:], atol=tol_of_sums)
        np.testing.assert_allclose(result.variances[SCALE, 0], variances[SCALE, 0], atol=tol_of_sums)
        np.testing.assert_allclose(result.variances[SCALE, 1:, 0], variances[SCALE, 1:, 0], atol=tol_of_sums)


def test_the_choice_of_an_engine():
    small, large = np.zeros((2, 3)), np.zeros((2, 3), dtype=np.float32)
    assert engine_for(small) is ARRAY
    assert engine_for(large, np.float64) is ARRAY
    pytest.importorskip("numba")
    assert engine_for(large) is NUMBA
    torch = pytest.importorskip("torch")
    assert engine_for(torch.zeros((2, 3))) is ARRAY


@pytest.mark.parametrize("kind", ["plain", "ties", "masks"])
def test_many_rows_and_ranks_in_parts(kind):
    """Products that are cut into parts, and sums that are taken start by start, hold on numpy as on torch."""
    n, m = 9000, 40
    rng = np.random.default_rng(7)
    z = rng.normal(size=(n, m))
    if kind == "ties":
        z = np.round(4 * z) / 4
    elif kind == "masks":
        z[::3, :5] = -np.inf
    y, w = z.argmax(axis=1), rng.uniform(0.5, 2.0, n)
    starts = [0, 1, 7, 33, m - 1]
    allowed = np.zeros((2, 3, m), dtype=bool)
    allowed[SCALE, 0, starts] = allowed[SCALE, :, 0] = allowed[BIAS, :, starts[1:]] = True
    factor_values = rng.uniform(0.05, 0.6, np.count_nonzero(allowed))
    result = []
    torch = pytest.importorskip("torch")
    for to in (torch.from_numpy, np.asarray):
        blocks = ARRAY.prepare(to(z), to(y), to(w), statistics=[share_of_row])
        block = join_blocks(blocks)
        rows = Rows.of_blocks([replace(block, factors=factors_of(block.statistics))])
        for problem in (RankCone(rows, allowed), RankCone(Rows.of_blocks([block]), allowed[:, :1])):
            a = len(problem.atoms)
            here = problem.evaluate(factor_values[:a], np.arange(a))
            result.append(
                (here.value, here.gradient, here.hessian, problem.hessian(factor_values[:a], np.arange(a)))
            )
        info = rows.sum("information", 0.7)
        result.append([info.weight, info.variances / n, info.errors / n])
    half = len(result) // 2
    for expected, other in zip(result[:half], result[half:], strict=True):
        for x, y in zip(expected, other, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-12)
