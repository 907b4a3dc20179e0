"""Every calibrator takes every kind of input, or says in a sentence that it cannot: one list times one list.

A new kind of input joins by one line in `INPUTS`. Calibrators come from the registry.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

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


def halves(shape):
    return tuple(-(-side // 2) for side in shape)


def in_zarr(z, y, tmp_path):
    zarr = pytest.importorskip("zarr")
    store = str(tmp_path / "z.zarr")
    array = zarr.create_array(store=store, shape=z.shape, dtype=z.dtype, chunks=halves(z.shape))
    array[:] = z
    return array, y


def in_blocks(z, y, tmp_path):
    size = -(-len(z) // 3)
    return (lambda: ((z[i : i + size], y[i : i + size]) for i in range(0, len(z), size))), None


def in_dask(z, y, tmp_path):
    da = pytest.importorskip("dask.array")
    return da.from_array(z, chunks=halves(z.shape)), da.from_array(y, chunks=-(-len(y) // 3))


def in_pandas(z, y, tmp_path):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(z, columns=[f"class {j}" for j in range(M)]), pd.Series(y)


def in_polars(z, y, tmp_path):
    pl = pytest.importorskip("polars")
    return pl.DataFrame(z, schema=[f"class {j}" for j in range(M)]), pl.Series(y)


def in_lists_of_arrow(z, y, tmp_path):
    pa = pytest.importorskip("pyarrow")
    return pa.table({"logits": pa.array(z.tolist())}), pa.array(y)


def of_images(make):
    """The same with images (N, C, H, W) and labels (N, H, W)."""

    def made(z, y, tmp_path):
        images = np.ascontiguousarray(np.moveaxis(z.reshape(5, 8, 10, M), -1, 1))
        return make(images, y.reshape(5, 8, 10), tmp_path)

    return made


def in_tokens(z, y, tmp_path):
    return z.reshape(20, 20, M), y.reshape(20, 20)


ARRAYS = {
    "numpy": lambda z, y, tmp_path: (z, y),
    "torch": in_torch,
    "memmap": in_memmap,
    "h5py": in_h5py,
    "zarr": in_zarr,
    "blocks": in_blocks,
    "dask": in_dask,
}
INPUTS = {
    **ARRAYS,
    **{f"images, {kind}": of_images(make) for kind, make in ARRAYS.items() if kind != "dask"},
    "lists": lambda z, y, tmp_path: (z.tolist(), y.tolist()),
    "pandas": in_pandas,
    "polars": in_polars,
    "pyarrow, a column of lists": in_lists_of_arrow,
    "classes first": lambda z, y, tmp_path: (z.T, y),
    "tokens": in_tokens,
    "lists of tokens": lambda z, y, tmp_path: tuple(x.tolist() for x in in_tokens(z, y, tmp_path)),
    "every other token": lambda z, y, tmp_path: (
        np.repeat(z, 2, axis=0).reshape(20, 40, M)[:, ::2],
        in_tokens(z, y, None)[1],
    ),
}
# Rows that are not in memory: methods that need all of them refuse.
IN_PARTS = ("blocks", "dask", "images, blocks")


def class_axis(kind):
    return 0 if kind == "classes first" else 1 if kind.startswith("images") else -1


METHODS = {info.name: info.make() for info in mc.all_calibrators() if not info.extras}
METHODS |= {
    "MCCT(top_k=3)": mc.MCCT(top_k=3),
    "ConditionalMCCT(top_k=3)": mc.ConditionalMCCT(top_k=3),
    "MCCT(input='probabilities')": mc.MCCT(input="probabilities"),
}
STREAMING = (mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT)


def rows_for(method):
    data = synthetic(N, M, seed=11)
    z, y = data.values.astype(np.float64), data.labels.copy()
    if method.input == "probabilities":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    y[0] = z[0].argmin()  # no set is separable
    return z, y


@cache
def expected_of(name):
    """What a method gives for rows in memory."""
    z, y = rows_for(METHODS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published procedure stops early and says so
        return clone(METHODS[name]).fit(z, y).predict_proba(z)


# One method for each way that rows take, on every kind of input; every method on the kinds that differ most.
EVERY_WAY = ("MCCT", "ConditionalMCCT(top_k=3)", "MCCT(input='probabilities')", "VS", "HB")
KINDS_FOR_ALL = ("torch", "images, memmap", "blocks", "pandas")


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in INPUTS for name in METHODS if name in EVERY_WAY or kind in KINDS_FOR_ALL],
)
def test_every_calibrator_takes_every_input(kind, name, tmp_path, monkeypatch):
    monkeypatch.setattr("monocal.inputs.files.IN_MEMORY", 1000)
    method = clone(METHODS[name]).set_params(class_axis=class_axis(kind))
    X, labels = INPUTS[kind](*rows_for(method), tmp_path)
    streams = isinstance(method, STREAMING) and getattr(method, "loss", "nll") == "nll"
    streams |= isinstance(method, mc.StructuredScaling) and method.kind == "vector"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind in IN_PARTS and not streams:
            with pytest.raises(mc.InputError, match=r"in memory|in one process"):
                method.fit(X, labels)
            return
        method.fit(X, labels)
    if "blocks" in kind:
        result = np.concatenate(list(method.predict_blocks(X)))
    else:
        result = method.predict_proba(X)
        if kind == "pyarrow, a column of lists":
            result = np.stack(result["logits"].to_pylist())
        else:
            assert tuple(result.shape) == np.shape(X)
        result = np.asarray(result)
    rows = np.moveaxis(result, method.class_axis, -1).reshape(-1, M)
    np.testing.assert_allclose(rows, expected_of(name), atol=1e-9)
