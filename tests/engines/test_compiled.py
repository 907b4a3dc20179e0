"""The compiled loops give what ordinary array operations give, and keep the order as strictly."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

import monocal as mc
from hostile import assert_order_kept, hard_rows
from monocal.calibrators.rank_map import RankMap
from monocal.data import synthetic
from monocal.engines import numba_engine
from monocal.engines.numba_engine import largest_in_order
from monocal.inputs.reader import Checked, prepared
from prepared import rows_of

pytest.importorskip("numba")


@pytest.fixture(scope="module")
def rows():
    data = synthetic(6000, 1000, seed=0, keep_truth=False)
    return data.values.astype(np.float32), data.labels


METHODS = [
    mc.TemperatureScaling(),
    mc.MCCT(shrinkage=0.1),
    mc.MCCT(top_k=50),
    mc.ConditionalMCCT(),
    mc.ConditionalMCCT(top_k=50),
]


@pytest.fixture(params=METHODS, ids=str)
def cal(request, rows):
    return clone(request.param).fit(*rows)


def without(monkeypatch):
    monkeypatch.setattr(numba_engine, "available", lambda: False)


def test_fits_and_predictions_agree_with_plain_operations(rows, cal, monkeypatch):
    z, y = rows
    fast, logits = cal.predict_proba(z), cal.transform(z)
    assert cal.solution_.converged
    assert_order_kept(z, fast)
    assert_order_kept(z, logits)
    np.testing.assert_allclose(fast.sum(axis=1), 1, rtol=1e-5)
    without(monkeypatch)
    np.testing.assert_allclose(cal.predict_proba(z), fast, rtol=3e-5, atol=1e-30)
    np.testing.assert_allclose(cal.transform(z), logits, rtol=1e-5, atol=1e-5)
    again = type(cal)(**cal.get_params()).fit(z, y)
    np.testing.assert_allclose(again.predict_proba(z), fast, atol=2e-6)
    assert abs(again.solution_.objective - cal.solution_.objective) < 1e-7


@pytest.mark.parametrize("rounded", [False, True])
def test_order_on_hostile_rows(cal, rounded):
    hostile = hard_rows(1000).astype(np.float32)
    many = np.concatenate([hostile, hostile + 1, -hostile] * 6)
    many = np.round(many * 2) / 2 if rounded else many
    many[::97, 3] = -np.inf
    assert many.size >= numba_engine.LARGE
    p, f = cal.predict_proba(many), cal.transform(many)
    assert_order_kept(many, p)
    assert_order_kept(many, f)
    assert (p[::97, 3] == 0).all()
    assert (f[::97, 3] == -np.inf).all()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("classes", "longest"), [(3, None), (40, None), (40, 0), (1000, None), (1000, 0), (20_000, None)]
)
def test_jumps_are_found_in_rows_of_every_kind(classes, longest, cut, monkeypatch):
    """Crowds and outliers, ties, constant rows, masks and the smallest numbers there are: same answer, same order."""
    if longest is not None:  # the longest rows that are sorted and not searched
        monkeypatch.setattr(numba_engine, "_SORTED", longest)
    rng = np.random.default_rng(classes)
    n = numba_engine.LARGE // classes + 1
    top_k = 2 * classes // 3 if cut else None
    ranks = top_k or classes
    starts = np.unique([1, ranks // 3, ranks // 2, ranks - 5, ranks - 2, ranks - 1])
    starts = starts[starts > 0]
    steps = rng.uniform(0.1, 0.5, (2, 1, len(starts) + 1))
    rank_map = RankMap(np.append(0, starts), steps[0], steps[1], top_k=top_k)
    z = rng.normal(size=(n, classes)).astype(np.float32)
    z[1::9, 0] = -5e5
    z[2::9, 0] = 900.0
    z[3::9] = np.exp(4 * z[3::9])
    z[4::9] = np.round(z[4::9])
    z[5::9] = 1.5
    z[6::9, 0] = -np.inf
    z[7::9] *= np.float32(1e-40)
    z[8::9, : classes // 2 + 1] = z[8::9, :1]
    fast = rank_map.apply(z, "probabilities")
    assert_order_kept(z, fast)
    without(monkeypatch)
    np.testing.assert_allclose(fast, rank_map.apply(z, "probabilities"), rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("first", [0.0, 3.0, 86.0, 99.5, 103.5])
def test_exp_is_monotone_in_the_last_bit(first):
    # One logit in a row of two takes all values of a range in turn: its probability must never fall.
    low = np.float32(first) + np.cumsum(np.full(2**20, np.spacing(np.float32(max(first, 3.3)))))
    z = np.stack([-low, np.zeros_like(low)], axis=1).astype(np.float32)
    for scale in (0.3, 1.0, 7.0):
        rank_map = RankMap(np.array([0]), np.array([[scale]]), np.zeros((1, 1)))
        p = numba_engine.LoopMap(rank_map.step(2)).predict(z, "probabilities", None, None)
        assert (np.diff(p[:, 0]) <= 0).all()
        assert (p[:, 0] <= p[:, 1]).all()


def test_sums_over_a_tail_use_the_whole_weight():
    """Weights come in two parts; the smaller one must survive the compiler."""
    from monocal.engines.numba_fit import tail_sums

    z = np.random.default_rng(0).normal(size=(100, 20_000)).astype(np.float32)
    top, height = z.max(axis=1), np.ones(100, dtype=np.float32)
    weight = np.array([-1.3])
    leading = weight.astype(np.float32)
    sums = np.empty((3, 100), dtype=np.float32)
    tail_sums(z, top, height, leading, (weight - leading).astype(np.float32), 0 * height, sums)
    v = np.maximum(top[:, None] - z, height[:, None]).astype(np.float64)
    for power, got in enumerate(sums):
        expected = (np.exp(weight * v) * v**power).sum(axis=1)
        np.testing.assert_allclose(got, expected, rtol=5e-7)
        assert abs((got / expected).mean() - 1) < 2e-8  # without the smaller part: 1e-7


def test_large_sets_are_certified_without_shrinkage(rows):
    """Single precision, atoms that are all but parallel, and classes no label ever falls on."""
    cal = mc.MCCT(shrinkage=0).fit(*rows)
    assert cal.solution_.converged
    assert cal.solution_.kkt <= 1e-6


@pytest.mark.parametrize("cal", [mc.MCCT(), mc.TemperatureScaling(), mc.ConditionalMCCT()])
def test_a_sample_of_one_block_is_no_special_case(cal):
    """With 17 blocks the last part of the coarse sample is one block; streamed and in memory it must be the same."""
    data = synthetic(17 * 4096, 64, seed=2, keep_truth=False)
    z, y = data.values.astype(np.float32), data.labels
    expected = clone(cal).fit(z, y)
    streamed = clone(cal).fit(lambda: ((z[i : i + 5000], y[i : i + 5000]) for i in range(0, len(z), 5000)))
    np.testing.assert_array_equal(streamed.solution_.coefficients, expected.solution_.coefficients)


def test_numba_that_cannot_be_used_is_done_without(rows, monkeypatch):
    def broken():
        raise ImportError("Numba needs NumPy 1.0 or less")

    numba_engine.available.cache_clear()
    monkeypatch.setattr(numba_engine, "loops", broken)
    try:
        with pytest.warns(RuntimeWarning, match="cannot be used"):
            cal = mc.MCCT().fit(*rows)
    finally:
        numba_engine.available.cache_clear()
    assert cal.solution_.converged


@pytest.mark.parametrize("step", [0.25, 1.0, 4.0])
def test_ties_across_jumps_as_in_plain_operations(step, monkeypatch):
    """Rounded logits: nearly every row has ties, some at its top, and jumps fall among them."""
    rng = np.random.default_rng(0)
    z = (np.round(rng.normal(size=(30_000, 150)) * 3 / step) * step).astype(np.float32)
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    fast = mc.MCCT(shrinkage=0.1).fit(z, y)
    assert len(fast.rank_map_.starts) > 2
    assert fast.solution_.converged
    assert_order_kept(z, fast.predict_proba(z))
    without(monkeypatch)
    plain = mc.MCCT(shrinkage=0.1).fit(z, y)
    assert abs(fast.solution_.objective - plain.solution_.objective) < 2e-7
    np.testing.assert_allclose(fast.predict_proba(z[:500]), plain.predict_proba(z[:500]), atol=2e-5)


@pytest.mark.parametrize("step", [None, 0.5])
@pytest.mark.parametrize("statistics", [("margin", "mean_gap", "spread"), ("entropy",), ()], ids=str)
def test_the_second_stage_as_in_plain_operations(step, statistics, monkeypatch):
    """Scales by class and category, ramps of odds and numbers: in the loops as in arrays, with ties at the top and masks."""
    rng = np.random.default_rng(0)
    z = (3 * rng.normal(size=(4000, 12))).astype(np.float32)
    group, number = rng.integers(0, 3, 4000), rng.normal(size=4000)
    sure = (0.3 + 0.3 * group + 0.2 * (number > 0) + 0.2 * (z.argmax(axis=1) % 2))[:, None]
    y = (sure * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    cal = mc.ConditionalMCCT(shrinkage=1.0, by_class=True, statistics=statistics)
    cal.fit(z, y, context={"group": group, "number": number})
    assert cal.adjustment_.class_scales.variance > 0
    assert cal.adjustment_.column_scales[0].variance > 0
    assert {ramp.statistic for ramp in cal.adjustment_.factors.ramps} == {0, 1}
    z = z if step is None else np.round(z / step) * step
    z[::7, :3] = -np.inf
    z[1::7, 0] = -3e38
    plain = [f(z, context={"group": group, "number": number}) for f in (cal.predict_proba, cal.transform)]
    monkeypatch.setattr(numba_engine, "LARGE", 1)
    fast = [f(z, context={"group": group, "number": number}) for f in (cal.predict_proba, cal.transform)]
    assert any((a != b).any() for a, b in zip(plain, fast, strict=True))
    for values in fast:
        assert_order_kept(z, values)
    np.testing.assert_allclose(fast[0], plain[0], rtol=1e-4, atol=1e-30)
    np.testing.assert_allclose(fast[1], plain[1], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("classes", [1, 2, 7, 8, 9, 16, 31, 100, 129, 513, 1000, 5000])
def test_rows_are_sorted_as_numpy_sorts_them(classes):
    """Any number of places and of rows, with ties, constant rows and masks; and the largest alone."""
    rng = np.random.default_rng(classes)
    z = rng.normal(size=(37, classes)).astype(np.float32)
    z[::3] = np.round(z[::3], 1)
    z[5], z[7, ::2] = 1.0, -np.inf
    expected = np.sort(z, axis=1)
    np.testing.assert_array_equal(largest_in_order(z, classes), expected)
    r = -(-classes // 3)
    largest = largest_in_order(z, r)
    np.testing.assert_array_equal(largest, expected[:, -r:])
    assert largest.flags.c_contiguous


@pytest.mark.parametrize("cal", [mc.MCCT(), mc.ConditionalMCCT()], ids=str)
def test_the_number_of_threads_changes_no_bit(rows, cal, monkeypatch):
    """Every thread reads its blocks in one call, but they are added one by one in their order, by one version of each loop."""
    result = []
    for threads in "1", "3":
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        result.append(clone(cal).fit(*rows).solution_.coefficients)
    np.testing.assert_array_equal(*result)
    from monocal.engines import numba_fit

    loops = ("gradients_of_blocks", "hessians_of_blocks", "moments_of_blocks", "add_labels", "truncate_rows")
    for loop in (getattr(numba_fit, name) for name in loops):
        assert len(loop.signatures) <= 1, loop


def negative_zeros(z):
    z = -np.abs(z)
    z[:, 0], z[:, 1] = 0.0, -0.0
    z[::2] = z[::2, ::-1]
    return z


def one_class_available(z):
    z = np.full((8, 8), -np.inf, dtype=np.float32)
    np.fill_diagonal(z, 1.0)
    return z


def huge_odds(z):
    z = z * np.float32(300) * np.resize([1, 3, 10], (len(z), 1)).astype(np.float32)
    z[::5, 3:] = -np.inf
    return z


@pytest.mark.parametrize("kind", [negative_zeros, one_class_available, huge_odds])
def test_rare_rows_as_in_plain_operations(kind, monkeypatch):
    """Zeros of two signs tie; a class that is alone has no odds; odds that single precision cannot hold stay distinct."""
    data = synthetic(2000, 8, seed=0)
    cal = mc.ConditionalMCCT(shrinkage=0.1, by_class=True).fit(data.values / 8, data.labels)
    z = kind(data.values.astype(np.float32) / 8)
    expected = cal.transform(z)
    monkeypatch.setattr(numba_engine, "LARGE", 0)
    np.testing.assert_allclose(cal.transform(z), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_rows_prepared_at_once_are_those_of_each_block(step, threads, monkeypatch):
    """Some are masked, some are cut: these blocks are prepared by themselves, and all others as ever."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(3000, 500)) * 3).astype(np.float32)
    z = np.round(z / step) * step if step else z
    y, weight = rng.integers(0, 500, len(z)), rng.uniform(0.5, 2.0, len(z)).astype(np.float32)
    z[700, y[700] - 1], z[2100] = -np.inf, z[2100] * 1e6
    blocks = rows_of(z, y, weight).blocks
    ends = np.cumsum([0] + [block.n_rows for block in blocks])
    assert ends[-1] == len(z)
    assert [block.rows.valid is not None for block in blocks].count(True) == 1
    for block, (i, j) in zip(blocks, pairwise(ends), strict=True):
        (alone,) = prepared(Checked(z, y, weight)[slice(i, j)])
        for name in ("depth", "height", "top"):
            np.testing.assert_array_equal(getattr(block.rows, name), getattr(alone.rows, name))
        for name in ("weight", "label_depth", "label_rank", "label_held", "label_size"):
            np.testing.assert_array_equal(getattr(block, name), getattr(alone, name))
        assert not (alone.rows.tied & ~block.rows.tied).any()


def test_a_loop_has_one_version_whether_compiled_or_loaded():
    """A loop in the file of its caller could be called in two versions, which add up in different orders."""
    from monocal.engines import numba_fit, numba_loops, numba_map

    modules = numba_fit, numba_loops, numba_map
    result = [f for module in modules for f in vars(module).values() if hasattr(f, "targetoptions")]
    assert len(result) > 40
    assert all(f.targetoptions.get("forceinline") or f.targetoptions["inline"] == "always" for f in result)


def test_without_compilation_large_fits_take_the_engine_for_arrays():
    code = (
        "import numpy as np, monocal as mc; from monocal.data import synthetic; d = synthetic(1100, 1000, seed=0); "
        "X = d.values.astype(np.float32); c = mc.MCCT(top_k=5).fit(X, d.labels); "
        "assert c.solution_.converged; assert (c.predict_proba(X).argmax(1) == X.argmax(1)).all()"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, check=True
    )
