"""What must work with numpy, scipy, scikit-learn and array-api-compat alone: `make bare` runs it where nothing else is."""

import importlib.util

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

EXTRAS = [
    "torch",
    "dask",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "h5py",
    "typer",
    "rich",
    "zarr",
    "pandas",
    "pyarrow",
    "safetensors",
    "numba",
]


@pytest.fixture(scope="module")
def data():
    return synthetic(600, 6, seed=0)


def test_fit_predict_evaluate(data):
    for cal in (mc.TemperatureScaling(), mc.MCCT(), mc.MCCTInverse(), mc.MCCT(top_k=3), mc.ConditionalMCCT()):
        p = cal.fit(data.values, data.labels).predict_proba(data.values)
        np.testing.assert_array_equal(p.argmax(axis=1), data.values.argmax(axis=1))
        assert np.isfinite(mc.evaluate(p, data.labels)["nll"].value)


def test_save_and_load(tmp_path, data):
    cal = mc.MCCT().fit(data.values, data.labels)
    mc.save(cal, tmp_path / "cal.json")
    np.testing.assert_array_equal(
        mc.load(tmp_path / "cal.json").predict_proba(data.values), cal.predict_proba(data.values)
    )


def test_read_npz(tmp_path, data):
    np.savez(tmp_path / "x.npz", logits=data.values, labels=data.labels)
    np.testing.assert_array_equal(mc.read(tmp_path / "x.npz").values, data.values)


def test_the_environment_is_bare():
    assert not [name for name in EXTRAS if importlib.util.find_spec(name)]


def test_missing_extras_are_named(data):
    cal = mc.MCCT().fit(data.values, data.labels)
    with pytest.raises(mc.MissingExtraError, match=r"pip install 'monocal\[plots\]'"):
        mc.ReliabilityDisplay.from_estimator(cal, data.values, data.labels).plot()
    with pytest.raises(mc.MissingExtraError, match=r"pip install 'monocal\[torch\]'"):
        cal.to_torch()
    with pytest.raises(mc.MissingExtraError, match=r"pip install 'monocal\[onnx\]'"):
        cal.to_onnx()
