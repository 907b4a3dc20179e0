"""Parameterized temperature scaling and intra order-preserving functions."""

import numpy as np
import pytest

import monocal as mc
from hostile import calibration_set
from monocal.calibrators.networks import new_layers

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Batches are small: threads that wait for each other would take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


QUICK = {"max_epochs": 20, "hidden": (8,)}
NETWORKS = [
    mc.ParameterizedTemperatureScaling(**QUICK),
    *(mc.IntraOrderPreserving(mode=mode, **QUICK) for mode in ("diag", "oi", "op")),
]


def two_temperatures(n=3000, m=5, seed=0):
    """Rows with a large margin are over-confident by far more than the others; and the margins."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    margin = -np.diff(np.sort(z, axis=1)[:, -2:][:, ::-1])[:, 0]
    y = (z / np.where(margin > 2, 5.0, 1.0)[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, y, margin


def nll(cal, z, y):
    return -np.log(cal.predict_proba(z)[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("cal", NETWORKS, ids=repr)
def test_the_seed_alone_fixes_the_result_and_shift_and_unit_change_nothing(cal):
    z, y = calibration_set(5)
    p = cal.fit(z, y).predict_proba(z)
    np.testing.assert_allclose(cal.predict_proba(z + 1000), p, atol=1e-5)
    np.random.seed(7)  # noqa: NPY002  the global generator must not matter
    torch.manual_seed(7)
    np.testing.assert_array_equal(cal.fit(z, y).predict_proba(z), p)
    # Numbers alone: predicting needs no torch.
    assert {type(v) for k, v in vars(cal).items() if k.endswith("_")} <= {float, int, np.ndarray, list}
    np.testing.assert_allclose(cal.fit(z * 1e4, y).predict_proba(z * 1e4), p, atol=0.01)


def test_every_sample_gets_its_temperature():
    z, y, margin = two_temperatures(2000)
    cal = mc.ParameterizedTemperatureScaling(patience=3, learning_rate=0.03, batch_size=500).fit(z, y)
    held_out = two_temperatures(seed=1)[:2]
    assert nll(cal, *held_out) < nll(mc.TemperatureScaling().fit(z, y), *held_out) - 0.02
    t = cal.temperatures(z)
    assert t[margin > 2.5].mean() > 2 * t[margin < 1.5].mean()
    expected = torch.softmax(torch.as_tensor(z / t[:, None]), dim=1).numpy()
    np.testing.assert_allclose(cal.predict_proba(z), expected, atol=1e-6)
    assert min(cal.history_) < cal.history_[0]


@pytest.mark.parametrize("mode", ["diag", "oi", "op"])
def test_monotone_networks_learn_what_one_temperature_cannot(mode):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 5)) * 3
    d = z.max(axis=1, keepdims=True) - z
    y = (-np.where(d < 2, 0.1 * d, 0.2 + 2 * (d - 2)) + rng.gumbel(size=z.shape)).argmax(axis=1)
    quick = {"hidden": (16,), "max_epochs": 100, "patience": 3, "learning_rate": 0.02, "batch_size": 500}
    cal = mc.IntraOrderPreserving(mode=mode, **quick).fit(z[:2000], y[:2000])
    ts = mc.TemperatureScaling().fit(z[:2000], y[:2000])
    assert nll(cal, z[2000:], y[2000:]) < nll(ts, z[2000:], y[2000:]) - 0.03
    if mode == "diag":
        assert (np.diff(cal.table_) > 0).all()


def test_published_schedule():
    z, y = calibration_set(5, n=1500)
    cal = mc.ParameterizedTemperatureScaling.as_published(seed=3)
    assert (cal.max_epochs, cal.learning_rate, cal.loss) == (200, 5e-5, "mse")
    cal.set_params(max_epochs=20).fit(z, y)
    assert cal.n_iter_ == 20 * 2  # batches of 1000
    assert cal.history_ == []
    start = new_layers((5, 5, 5, 1), np.random.default_rng(3), last_zero=False)
    assert all(np.abs(a - b).max() < 2 for a, b in zip(cal.layers_, start, strict=True))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hidden": 5}, "hidden must be a tuple"),
        ({"hidden": (0,)}, "layer size"),
        ({"validation": 1.0}, "validation must be a share"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"loss": "hinge"}, "loss must be one of"),
    ],
)
def test_wrong_parameters_are_named(wrong, says):
    for cls in (mc.ParameterizedTemperatureScaling, mc.IntraOrderPreserving):
        with pytest.raises(mc.InputError, match=says):
            cls(**wrong).fit(*calibration_set(4))
