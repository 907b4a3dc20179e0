"""The CalArena plug-in, driven as the benchmark drives calibrators."""

import numpy as np
import pytest
from scipy.special import expit, softmax

import monocal as mc
from hostile import assert_order_kept
from monocal.integrations.calarena import CUSTOM_CALIBRATORS, ArenaCalibrator
from monocal.metrics import nll

MULTICLASS = [name for name in CUSTOM_CALIBRATORS if name != "monocal-Binary"]


def benchmark_run(factory, p_cal, y_cal, p_test):
    """One experiment: a fresh calibrator, fitted and asked once."""
    return factory().fit(p_cal, y_cal).predict_proba(p_test)


def keeps_order(name):
    return CUSTOM_CALIBRATORS[name]().calibrator.preserves_order


def overconfident(n, m, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 5
    return softmax(z, axis=1), (z / 2.5 + rng.gumbel(size=(n, m))).argmax(axis=1)


@pytest.mark.parametrize("name", MULTICLASS)
def test_multiclass(name):
    p, y = overconfident(1500, 6, 0)
    p_test, y_test = overconfident(1500, 6, 1)
    q = benchmark_run(CUSTOM_CALIBRATORS[name], p.astype(np.float32), y, p_test.astype(np.float32))
    assert q.shape == (1500, 6)
    assert q.dtype == np.float64
    np.testing.assert_allclose(q.sum(axis=1), 1)
    assert nll(q, y_test) < nll(p_test, y_test) - 0.1
    if keeps_order(name):
        assert_order_kept(p_test.astype(np.float32), q)


@pytest.mark.parametrize("name", ["monocal-Conditional", "monocal-Binary", "monocal-Structured"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_binary_of_one_column(name, shape):
    rng = np.random.default_rng(0)
    z = rng.normal(size=1000) * 6
    y = (rng.uniform(size=1000) < expit(z / 3)).astype(int)
    p = expit(z).astype(np.float32)  # many round to 1
    q = benchmark_run(CUSTOM_CALIBRATORS[name], p.reshape(shape), y, p.reshape(shape))
    assert q.shape == (1000, 2)
    two = benchmark_run(CUSTOM_CALIBRATORS[name], np.column_stack([1.0 - p.astype(float), p]), y, p)
    np.testing.assert_array_equal(q, two)
    assert nll(q, y) < nll(np.clip(np.column_stack([1 - p, p]), 1e-7, 1), y)


@pytest.mark.parametrize("name", ["monocal-TS", "monocal-Conditional", "monocal-SMS", "monocal-Structured"])
def test_zeros_even_under_the_label(name):
    p, y = overconfident(800, 5, 2)
    p = np.where(p < 0.02, 0, p)
    p /= p.sum(axis=1, keepdims=True)
    assert (p[np.arange(800), y] == 0).any()
    q = benchmark_run(CUSTOM_CALIBRATORS[name], p, y, np.vstack([p, np.eye(5)]))
    assert np.isfinite(q).all()
    assert (q > 0).all()
    if keeps_order(name):
        assert_order_kept(np.vstack([p, np.eye(5)]), q)
    floored = np.maximum(p, 1e-3)
    assert nll(q[:800], y) < nll(floored / floored.sum(axis=1, keepdims=True), y)


def test_underflowed_products_do_not_rule_the_fit():
    p, y = overconfident(800, 4, 3)
    rows = np.arange(0, 800, 50)
    p[rows] = 1e-300
    p[rows, 0] = 1 - 3e-300
    y[rows] = 1
    calibrator = ArenaCalibrator(mc.TemperatureScaling()).fit(p, y)
    assert calibrator.calibrator_.temperature_ < 10


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # a class without labels
def test_absent_classes_and_single_rows():
    p, y = overconfident(200, 5, 4)
    y = np.where(y == 3, 0, y)
    for name in ("monocal-MCCT", "monocal-Structured"):
        assert benchmark_run(CUSTOM_CALIBRATORS[name], p, y, p[:1]).shape == (1, 5)


def test_on_real_files(shared_logits):
    data = shared_logits("nncal_cifar10_densenet40")
    p, p_test = (softmax(z, axis=1) for z in (data.logits_val, data.logits_test))
    for name in ("monocal-MCCT", "monocal-Conditional"):
        q = benchmark_run(CUSTOM_CALIBRATORS[name], p, data.y_val, p_test)
        assert nll(q, data.y_test) < 0.235
        assert_order_kept(p_test, q)


def test_refusals():
    p, y = overconfident(20, 3, 6)
    make = CUSTOM_CALIBRATORS["monocal-MCCT"]
    with pytest.raises(mc.InputError, match=r"row 0 .* sums to 2, expected"):
        make().fit(np.full((20, 2), 1.0), y)
    with pytest.raises(mc.InputError, match="row 3 holds nan"):
        make().fit(np.where(np.arange(20)[:, None] == 3, np.nan, p), y)
    with pytest.raises(mc.InputError, match="row 0 holds -"):
        make().fit(np.log(p), y)
    with pytest.raises(mc.InputError, match="must have shape"):
        make().fit(np.zeros((2, 2, 2)), y)
