"""Dask arrays: the answer of one process, on threads and on worker processes, even where one of them is killed."""

import os
import signal
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import monocal as mc
from monocal.data import synthetic

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, M = 9000, 60


@pytest.fixture(scope="module")
def rows():
    data = synthetic(N, M, seed=4)
    return data.values.astype(np.float32), data.labels


@pytest.fixture(scope="module")
def client():
    """Two worker processes, restarted by their nannies when they die."""
    settings = {"distributed.scheduler.allowed-failures": 10, "distributed.admin.log-length": 0}
    settings |= {f"distributed.comm.timeouts.{name}": "600s" for name in ("connect", "tcp")}  # a busy machine
    import dask

    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a.solution_.coefficients, b.solution_.coefficients, rtol=0, atol=tolerance)
    assert a.solution_.converged


CALIBRATORS = [
    mc.MCCT(),
    mc.MCCT(top_k=7, shrinkage=0.0),
    mc.TemperatureScaling(),
    mc.ConditionalMCCT(),
]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_dask_gives_the_fit_in_memory(calibrator, rows):
    X, y = rows
    weight = np.random.default_rng(1).random(N)
    expected = type(calibrator)(**calibrator.get_params()).fit(X, y, weight)
    lazy = da.from_array(X, chunks=(1700, 25))  # cut along the classes, too
    calibrator.fit(lazy, da.from_array(y, chunks=2000), weight)
    close(calibrator, expected)
    assert calibrator.shrinkage_ == expected.shrinkage_
    p = calibrator.predict_proba(lazy)
    assert isinstance(p, da.Array)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.compute(), expected.predict_proba(X), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        calibrator.transform(lazy).compute(), expected.transform(X), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(calibrator.predict(lazy).compute(), expected.predict(X))


@pytest.mark.parametrize("calibrator", [mc.MCCT(), mc.ConditionalMCCT()], ids=repr)
def test_rows_without_weight_do_not_move_the_blocks(calibrator):
    # Large enough for sums in single precision, which show how they were cut.
    data = synthetic(60_000, 100, seed=4)
    X, y = data.values.astype(np.float32), data.labels
    rng = np.random.default_rng(0)
    weight = rng.random(len(y)) * (rng.random(len(y)) < 0.7)
    expected = clone(calibrator).fit(X, y, weight)
    weights = weight if isinstance(calibrator, mc.MCCT) else da.from_array(weight, chunks=4000)
    close(clone(calibrator).fit(da.from_array(X, chunks=(3100, -1)), y, weights), expected)


def test_ignored_rows_do_not_move_the_blocks():
    data = synthetic(60_000, 100, seed=4)
    X, y = data.values.astype(np.float32), np.array(data.labels)
    y[9000:14000] = y[::7] = -100
    cal = mc.MCCT(ignore_index=-100)
    close(clone(cal).fit(da.from_array(X, chunks=(3100, -1)), da.from_array(y, chunks=4000)), cal.fit(X, y))


@pytest.mark.parametrize(
    ("calibrator", "empty"),
    [
        (mc.ConditionalMCCT(top_k=3), slice(64)),
        (mc.ConditionalMCCT(top_k=3), slice(256, None)),
        (mc.MCCT(top_k=3), slice(64)),
    ],
    ids=repr,
)
def test_chunks_without_weight(calibrator, empty):
    data = synthetic(320, 4096, seed=6)  # so many classes that chunks of 64 rows stay as they are
    weight = np.ones(320)
    weight[empty] = 0
    weight[200:310] = 0
    expected = type(calibrator)(**calibrator.get_params()).fit(data.values, data.labels, weight)
    calibrator.fit(da.from_array(data.values, chunks=(64, 4096)), data.labels, weight)
    close(calibrator, expected)
    assert calibrator.shrinkage_ == expected.shrinkage_


@pytest.mark.parametrize("method", ["predict_proba", "transform", "predict"])
def test_a_prediction_is_that_of_the_map_it_was_asked_of(rows, method):
    X, y = rows
    cal = mc.VectorScaling().fit(X, y)
    expected = getattr(cal, method)(X)
    lazy = getattr(cal, method)(da.from_array(X, chunks=(3000, M)))
    cal.fit(X, (y + 1) % M)
    np.testing.assert_array_equal(lazy.compute(), expected)


def test_probabilities_with_zeros(rows):
    X, y = rows
    p = mc.TemperatureScaling().fit(X, y).predict_proba(X)
    p[7], p[4000] = np.eye(M)[y[7]], np.eye(M)[y[4000]]
    cal = mc.MCCT(input="probabilities").fit(da.from_array(p, chunks=(1000, M)), y)
    expected = mc.MCCT(input="probabilities").fit(p, y)
    assert cal.smallest_probability_ == expected.smallest_probability_
    close(cal, expected)


def test_evaluate(rows):
    X, y = rows
    p = mc.TemperatureScaling().fit(X, y).predict_proba(X)
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    weight[:1500] = 0
    lazy = da.from_array(p, chunks=(1500, 30))
    result = mc.evaluate(lazy, da.from_array(y, chunks=N), sample_weight=weight)
    whole = mc.evaluate(p, y, sample_weight=weight)
    assert set(whole.estimates) - set(result.estimates) == {"adaptive_ece", "eq_bin_ece", "aurc", "e_aurc"}
    for name, estimate in result.estimates.items():
        assert estimate.value == pytest.approx(whole[name].value, abs=1e-10), name
    assert list(mc.evaluate(lazy, y, metrics="nll").estimates) == ["nll"]
    with pytest.raises(mc.InputError, match="adaptive_ece needs all rows"):
        mc.evaluate(lazy, y, metrics=["nll", "adaptive_ece"])
    with pytest.raises(mc.InputError, match="all weights are zero"):
        mc.evaluate(lazy, y, sample_weight=0 * weight)
    with pytest.raises(mc.InputError, match="n_boot needs all rows"):
        mc.evaluate(lazy, y, n_boot=10)
    for wrong in (
        {"level": 2.0},
        {"bin_size": 0},
        {"n_bins": 0},
    ):  # checked as for an array, whether or not it is used
        with pytest.raises(mc.InputError, match=next(iter(wrong))):
            mc.evaluate(lazy, y, **wrong)
    with pytest.raises(mc.InputError, match=r"chunk that begins at row 1500.*negative"):
        mc.evaluate(da.concatenate([lazy[:1500], -lazy[1500:3000], lazy[3000:]]), y)


def test_chunks_that_a_filter_has_emptied(rows):
    X, y = rows[0].copy(), rows[1]
    X[:1500, 0] = -99.0
    kept = X[:, 0] > -98
    lazy = da.from_array(X, chunks=(1500, M))
    lazy = lazy[lazy[:, 0] > -98]
    cal, expected = mc.MCCT().fit(lazy, y[kept]), mc.MCCT().fit(X[kept], y[kept])
    close(cal, expected)
    p = cal.predict_proba(lazy)
    np.testing.assert_allclose(p.compute(), expected.predict_proba(X[kept]), rtol=1e-5, atol=1e-7)
    assert mc.evaluate(p, y[kept])["nll"].value == pytest.approx(mc.metrics.nll(p.compute(), y[kept]))
    with pytest.raises(mc.InputError, match="0 sample"):
        cal.predict_proba(lazy[lazy[:, 0] > 1e9]).compute()


def test_errors_name_the_row(rows):
    X, y = rows[0].copy(), rows[1]
    cal = mc.MCCT().fit(X, y)
    X[6000, 3] = np.nan
    lazy = da.from_array(X, chunks=(1000, M))
    with pytest.raises(mc.InputError, match="NaN: first in row 6000"):
        mc.MCCT().fit(lazy, y)
    with pytest.raises(mc.InputError, match="NaN: first in row 6000"):
        cal.predict_proba(lazy).compute()
    with pytest.raises(mc.InputError, match="Divide all by a constant"):
        mc.MCCT().fit(da.from_array(1e7 * rows[0], chunks=(1000, M)), y)
    with pytest.raises(mc.InputError, match="y is None"):
        mc.MCCT().fit(lazy)
    with pytest.raises(mc.InputError, match="X has 9000 rows"):
        mc.MCCT().fit(lazy, y[1:])
    with pytest.raises(mc.InputError, match="expecting 60 features"):
        cal.predict_proba(lazy[:, :50])
    with pytest.raises(mc.InputError, match="needs all rows in one process"):
        mc.VectorScaling().fit(lazy, y)
    for method in ("predict", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(mc.MCCT(), method)(lazy)


def test_worker_processes_give_the_answer_of_one(rows, client):
    X, y = rows
    expected = mc.MCCT().fit(X, y)
    with client.as_current():
        lazy = da.from_array(X, chunks=(1000, M))
        cal = mc.MCCT().fit(lazy, y)
        close(cal, expected)
        np.testing.assert_allclose(
            cal.predict_proba(lazy).compute(), expected.predict_proba(X), rtol=1e-5, atol=1e-7
        )


def test_a_killed_worker_costs_time_not_the_result(rows, client, monkeypatch):
    X, y = rows
    expected = mc.MCCT().fit(X, y)
    [(address, victim), *_] = client.run(os.getpid).items()
    passes = []

    from monocal.inputs.dask import DaskBlocks

    plain = DaskBlocks.sum

    def sum_and_kill(self, function, *args):
        passes.append(function)
        if len(passes) == 2:  # the blocks have been prepared, and one pass made over them
            os.kill(victim, signal.SIGKILL)
            while (
                address in client.scheduler_info()["workers"]
            ):  # noticed: tasks sent to the dead may wait for ever
                time.sleep(0.05)
        return plain(self, function, *args)

    monkeypatch.setattr(DaskBlocks, "sum", sum_and_kill)
    with client.as_current():
        cal = mc.MCCT().fit(da.from_array(X, chunks=(1000, M)), y)
    assert len(passes) >= 3
    close(cal, expected)
    client.wait_for_workers(2, timeout=600)
    assert victim not in client.run(os.getpid).values()
