"""Every calibrator takes every kind of input, or says in a sentence that it cannot: one list times one list.

A new kind of input joins by one line in `INPUTS`. Calibrators come from the registry.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

N, M = 400, 6


def in_torch(z, y, tmp_path):
    torch = pytest.importorskip("torch")
    return torch.as_tensor(z), torch.as_tensor(y)


def in_memmap(z, y, tmp_path):
    np.save(tmp_path / "z.npy", z)
    return np.load(tmp_path / "z.npy", mmap_mode="r"), y


def in_h5py(z, y, tmp_path):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(tmp_path / "z.h5", "w")
    file["z"], file["y"] = z, y
    return file["z"], file["y"]


def in_zarr(z, y, tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(store=str(tmp_path / "z.zarr"), shape=z.shape, dtype=z.dtype, chunks=(97, M))
    array[:] = z
    return array, y


def in_blocks(z, y, tmp_path):
    return (lambda: ((z[i : i + 77], y[i : i + 77]) for i in range(0, N, 77))), None


def in_dask(z, y, tmp_path):
    da = pytest.importorskip("dask.array")
    return da.from_array(z, chunks=(90, 4)), da.from_array(y, chunks=111)


def in_pandas(z, y, tmp_path):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(z, columns=[f"class {j}" for j in range(M)]), pd.Series(y)


INPUTS = {
    "numpy": lambda z, y, tmp_path: (z, y),
    "lists": lambda z, y, tmp_path: (z.tolist(), y.tolist()),
    "torch": in_torch,
    "memmap": in_memmap,
    "h5py": in_h5py,
    "zarr": in_zarr,
    "blocks": in_blocks,
    "dask": in_dask,
    "pandas": in_pandas,
}
# Rows that are not in memory: methods that need all of them refuse.
IN_PARTS = ("blocks", "dask")

METHODS = {info.name: info.make() for info in mc.calibrators() if not info.extras}
METHODS |= {
    "MCCT(top_k=3)": mc.MCCT(top_k=3),
    "ConditionalMCCT(top_k=3)": mc.ConditionalMCCT(top_k=3),
    "MCCT(input='probabilities')": mc.MCCT(input="probabilities"),
}
STREAMING = (mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT)


@pytest.fixture(params=METHODS)
def method(request):
    from sklearn.base import clone

    return clone(METHODS[request.param])


def rows_for(method):
    data = synthetic(N, M, seed=11)
    z, y = data.values.astype(np.float64), data.labels.copy()
    if method.input == "probabilities":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    y[0] = z[0].argmin()  # no set is separable
    return z, y


@pytest.mark.parametrize("kind", INPUTS)
def test_every_calibrator_takes_every_input(kind, method, tmp_path, monkeypatch):
    monkeypatch.setattr("monocal.rows.files.IN_MEMORY", 1000)
    z, y = rows_for(method)
    X, labels = INPUTS[kind](z, y, tmp_path)
    streams = isinstance(method, STREAMING) and getattr(method, "loss", "nll") == "nll"
    streams |= isinstance(method, mc.StructuredScaling) and method.kind == "vector"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published procedure stops early and says so
        expected = type(method)(**method.get_params()).fit(z, y).predict_proba(z)
        if kind in IN_PARTS and not streams:
            with pytest.raises(mc.InputError, match=r"in memory|in one process"):
                method.fit(X, labels)
            return
        method.fit(X, labels)
    if kind == "blocks":
        found = np.concatenate(list(method.predict_blocks(X)))
    else:
        found = np.asarray(method.predict_proba(X))
    np.testing.assert_allclose(found, expected, atol=1e-9)
