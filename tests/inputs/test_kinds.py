"""Whatever rows come in, results come back in the same kind: one table (`monocal.inputs.formats`) against the real libraries."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic
from monocal.inputs import formats

N, M = 300, 4
NAMES = list("abcd")
DATA = synthetic(N, M, seed=8)
Z, Y = DATA.values.astype(np.float64), DATA.labels


def pandas_lists(z):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"logits": z.tolist()}, index=np.arange(len(z)) + 7)


def pandas_arrays(z):
    """What a pandas_udf of Spark is given for a column of arrays."""
    return pytest.importorskip("pandas").Series(list(z), name="logits")


def arrow_lists(z, chunks=1):
    pa = pytest.importorskip("pyarrow")
    parts = np.array_split(z, chunks)
    return pa.array(z.tolist()) if chunks == 1 else pa.chunked_array([pa.array(p.tolist()) for p in parts])


def arrow_fixed(z):
    pa = pytest.importorskip("pyarrow")
    return pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), M)


def arrow_table(z):
    return pytest.importorskip("pyarrow").table({name: z[:, i] for i, name in enumerate(NAMES)})


def arrow_batch(z):
    pa = pytest.importorskip("pyarrow")
    return pa.RecordBatch.from_arrays([pa.array(column) for column in z.T], names=NAMES)


def labelled(z):
    xr = pytest.importorskip("xarray")
    return xr.DataArray(z, dims=("row", "class"), coords={"class": NAMES, "row": np.arange(N) + 7}, name="z")


# How rows are made in each kind, and how a result is read.
KINDS = {
    "pandas": (lambda z: pytest.importorskip("pandas").DataFrame(z, columns=NAMES), np.asarray),
    "pandas, one column of lists": (pandas_lists, lambda p: np.stack(p["logits"])),
    "pandas, a series of arrays": (pandas_arrays, np.stack),
    "polars": (lambda z: pytest.importorskip("polars").DataFrame(z, schema=NAMES), np.asarray),
    "polars, lists": (
        lambda z: pytest.importorskip("polars").Series("z", z.tolist()),
        lambda p: np.stack(p.to_list()),
    ),
    "polars, arrays": (lambda z: pytest.importorskip("polars").Series("z", z), lambda p: p.to_numpy()),
    "polars, one column of lists": (
        lambda z: pytest.importorskip("polars").DataFrame({"z": z.tolist()}),
        lambda p: np.stack(p["z"].to_list()),
    ),
    "pyarrow": (arrow_table, np.asarray),
    "pyarrow, batch": (arrow_batch, np.asarray),
    "pyarrow, lists": (arrow_lists, lambda p: np.stack(p.to_pylist())),
    "pyarrow, lists in chunks": (lambda z: arrow_lists(z, 3), lambda p: np.stack(p.to_pylist())),
    "pyarrow, lists of one length": (arrow_fixed, lambda p: np.stack(p.to_pylist())),
    "pyarrow, one column of lists": (
        lambda z: pytest.importorskip("pyarrow").table({"z": arrow_lists(z)}),
        lambda p: np.stack(p["z"].to_pylist()),
    ),
    "pyarrow, batch of lists": (
        lambda z: pytest.importorskip("pyarrow").RecordBatch.from_arrays([arrow_lists(z)], names=["z"]),
        lambda p: np.stack(p["z"].to_pylist()),
    ),
    "xarray": (labelled, np.asarray),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_same_kind_comes_back(name):
    make, read = KINDS[name]
    X, expected = make(Z), mc.MCCT().fit(Z, Y)
    cal = mc.MCCT().fit(X, Y)
    for method in ("predict_proba", "transform"):
        result = getattr(cal, method)(X)
        assert type(result) is type(X)
        np.testing.assert_array_equal(read(result), getattr(expected, method)(Z))
        assert formats.library_of(result) == formats.library_of(X)
    classes = cal.predict(X)
    assert formats.library_of(classes) == formats.library_of(X)
    np.testing.assert_array_equal(np.asarray(classes), expected.predict(Z))
    assert cal.score(X, Y) == expected.score(Z, Y)
    (block,) = cal.predict_blocks([X])
    assert type(block) is type(X)
    assert (
        mc.evaluate(cal.predict_proba(X), Y).to_dict() == mc.evaluate(expected.predict_proba(Z), Y).to_dict()
    )


def test_labels_weights_and_context_of_every_kind():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    xr = pytest.importorskip("xarray")
    weight = np.linspace(1, 2, N)
    expected = mc.MCCT().fit(Z, Y, weight).weights_
    for kind in (pa.array, pl.Series, xr.DataArray):
        np.testing.assert_array_equal(mc.MCCT().fit(Z, kind(Y), kind(weight)).weights_, expected)
    columns = {"site": np.arange(N) % 3, "light": np.linspace(-1, 1, N)}
    expected = mc.ConditionalMCCT().fit(Z, Y, context=columns).predict_proba(Z, context=columns)
    for context in (pa.table(columns), pl.DataFrame(columns)):
        cal = mc.ConditionalMCCT().fit(Z, Y, context=context)
        np.testing.assert_array_equal(cal.predict_proba(Z, context=context), expected)


def test_names_of_columns_are_kept():
    for name in ("polars", "pyarrow"):
        X = KINDS[name][0](Z)
        cal = mc.TemperatureScaling().fit(X, np.array(NAMES)[Y])
        assert list(cal.feature_names_in_) == formats.column_names(cal.predict_proba(X)) == NAMES
        with pytest.raises(ValueError, match="same order"):
            cal.predict_proba(X.select(NAMES[::-1]))


def test_jax_in_jax_out():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    X = jnp.asarray(Z)
    cal = mc.MCCT().fit(X, jnp.asarray(Y))
    expected = mc.MCCT().fit(Z.astype(np.float32), Y)
    p = cal.predict_proba(X)
    assert isinstance(p, jax.Array)
    assert p.dtype == X.dtype
    assert p.devices() == X.devices()
    np.testing.assert_array_equal(p, expected.predict_proba(Z.astype(np.float32)))
    assert isinstance(cal.predict(X), jax.Array)
    half = X.astype(jnp.bfloat16)
    assert cal.transform(half).dtype == jnp.bfloat16


def test_bfloat16_of_numpy_stays():
    """The order, and argmax, hold in that type."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    z = Z.astype(ml_dtypes.bfloat16)
    cal = mc.MCCT(shrinkage=0).fit(z, Y)
    for method in ("predict_proba", "transform"):
        result = getattr(cal, method)(z)
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.argmax(axis=1), z.argmax(axis=1))
        alone = np.concatenate([getattr(cal, method)(z[i : i + 1]) for i in range(N)])
        np.testing.assert_array_equal(result, alone)
    assert mc.order_audit(z, cal.transform(z), input="logits").preserved
    # A tie that only rounding makes, and a distance that the type can just hold.
    near = np.array([[1.0, 1.0078125, 0.0, -5.0]] * 3, dtype=ml_dtypes.bfloat16)
    assert (cal.predict_proba(near).argmax(axis=1) == 1).all()


@pytest.mark.parametrize("form", [None, "numpy", "torch", "jax"])
def test_a_column_of_a_hugging_face_dataset(form):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"logits": Z.tolist(), "label": Y.tolist()})
    if form is not None:
        pytest.importorskip(form)
        rows = rows.with_format(form)
    expected = mc.MCCT().fit(Z if form is None else Z.astype(np.float32), Y)
    cal = mc.MCCT().fit(rows["logits"], rows["label"])
    np.testing.assert_allclose(cal.weights_, expected.weights_, atol=1e-6)
    p = cal.predict_proba(rows["logits"])
    np.testing.assert_allclose(np.asarray(p), expected.predict_proba(Z), atol=1e-5)
    assert mc.evaluate(p, rows["label"])["nll"].value == pytest.approx(-expected.score(Z, Y), abs=1e-5)
    if form is None:
        assert mc.read(rows).n_samples == N
        datasets.disable_progress_bars()
        done = rows.map(lambda batch: {"p": cal.predict_proba(batch["logits"])}, batched=True, batch_size=77)
        np.testing.assert_allclose(np.stack(done["p"][:]), expected.predict_proba(Z), atol=1e-12)


class _Device:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_cupy_in_cupy_out(monkeypatch):
    """A stand-in with what cupy's array offers, and refuses: numpy may not read it."""

    class ndarray:
        __module__ = "cupy"
        device = _Device()

        def __init__(self, values):
            self._host = np.asarray(values)
            self.shape, self.ndim, self.dtype = self._host.shape, self._host.ndim, self._host.dtype

        def __array__(self, *args, **rest):
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")

        def get(self):
            return self._host

    library = types.ModuleType("cupy")
    library.asarray = ndarray
    monkeypatch.setitem(sys.modules, "cupy", library)
    X, y = ndarray(Z.reshape(3, 100, M)), ndarray(Y.reshape(3, 100))
    cal = mc.MCCT().fit(X, y)
    p = cal.predict_proba(X)
    assert isinstance(p, ndarray)
    np.testing.assert_array_equal(p.get().reshape(N, M), mc.MCCT().fit(Z, Y).predict_proba(Z))
    assert cal.predict(X).shape == (3, 100)
    assert mc.evaluate(p, y)["nll"].value == pytest.approx(-cal.score(X, y), rel=1e-9)


@pytest.mark.parametrize("name", ["pandas, one column of lists", "polars, one column of lists"])
def test_lists_of_two_classes(name):
    z, y = Z[:, :2], Y % 2
    X, read = KINDS[name][0](z), KINDS[name][1]
    cal, expected = mc.BinaryMCCT().fit(X, y), mc.BinaryMCCT().fit(z, y)
    np.testing.assert_array_equal(read(cal.predict_proba(X)), expected.predict_proba(z))
    np.testing.assert_array_equal(np.asarray(cal.predict(X)), expected.predict(z))


@pytest.mark.parametrize("name", ["pandas, one column of lists", "polars, lists", "pyarrow, lists"])
def test_lists_of_different_lengths_are_refused(name):
    ragged = np.empty(3, dtype=object)
    ragged[:] = [[1.0, 2.0], [3.0], [4.0, 5.0]]
    with pytest.raises(mc.InputError, match=r"row 1 of the column of lists has shape \(1,\)"):
        mc.MCCT().fit(KINDS[name][0](ragged), [0, 0, 1])


def test_classes_of_a_labelled_array_are_those_of_the_fit(tmp_path):
    X = labelled(Z)
    cal = mc.MCCT().fit(X, Y)
    assert list(cal.feature_names_in_) == NAMES
    assert cal.class_dim_ == "class"
    for loaded in (cal, mc.load(cal.save(tmp_path / "cal.json"))):
        for use in (loaded.predict_proba, loaded.predict, lambda x, loaded=loaded: loaded.score(x, Y)):
            with pytest.raises(ValueError, match="same order"):
                use(X.isel({"class": [3, 2, 1, 0]}))
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.predict_proba(X.assign_coords({"class": list("abce")}))
        with pytest.raises(ValueError, match="same order"):
            list(loaded.predict_blocks([X.isel({"class": [3, 2, 1, 0]})]))
    again = mc.MCCT().fit(X, Y, start=cal)
    assert list(again.feature_names_in_) == NAMES
    with pytest.raises(ValueError, match="same order"):
        mc.MCCT().fit(X.isel({"class": [3, 2, 1, 0]}), 3 - Y, start=cal)
    numbered = X.assign_coords({"class": [8, 7, 6, 5]})
    with pytest.raises(ValueError, match="same order"):
        mc.MCCT().fit(numbered, 8 - Y).predict_proba(numbered.isel({"class": [1, 0, 2, 3]}))
    assert not hasattr(cal.fit(Z, Y), "class_dim_")
    assert not hasattr(cal, "feature_names_in_")


def test_places_of_labelled_arrays_go_by_name(tmp_path):
    """Four classes in 5 images of 4 x 4 pixels: of the sizes alone no order of the dimensions is wrong."""
    xr = pytest.importorskip("xarray")
    z = np.moveaxis(Z[:80].reshape(5, 4, 4, M), -1, 1)
    X = xr.DataArray(z, dims=("n", "c", "h", "w"))
    y = xr.DataArray(Y[:80].reshape(5, 4, 4), dims=("n", "h", "w"))
    weight = xr.DataArray(np.linspace(1, 2, 80).reshape(5, 4, 4), dims=("n", "h", "w"))
    expected = mc.MCCT(class_axis=1).fit(z, y.values, weight.values)
    turned = [x.transpose("w", "n", "h") for x in (y, weight)]
    cal = mc.MCCT(class_axis=1).fit(X, *turned)
    np.testing.assert_array_equal(cal.weights_, expected.weights_)
    assert cal.score(X, *turned) == expected.score(z, y.values, weight.values)
    p = cal.predict_proba(X)
    plain = mc.evaluate(p.values, y.values, sample_weight=weight.values, class_axis=1).to_dict()
    assert mc.evaluate(p, turned[0], sample_weight=turned[1], class_axis=1).to_dict() == plain
    assert mc.metrics.nll(p, turned[0], class_axis=1) == mc.metrics.nll(p.values, y.values, class_axis=1)
    for wrong in (y.rename(h="c"), y.rename(h="w", w="v")):
        with pytest.raises(mc.InputError, match=r"give y the dimensions \('n', 'h', 'w'\)"):
            mc.MCCT(class_axis=1).fit(X, wrong)
    for loaded in (cal, mc.load(cal.save(tmp_path / "cal.json"))):
        for use in (loaded.predict_proba, loaded.predict, lambda x, loaded=loaded: loaded.score(x, y)):
            with pytest.raises(mc.InputError, match=r"the dimension 'c'\. Transpose it"):
                use(X.transpose("n", "h", "w", "c"))
        with pytest.raises(mc.InputError, match=r"the dimension 'c'\. Rename it"):
            loaded.predict_proba(X.rename(c="k"))
    # Of two axes of one size, too.
    square = mc.MCCT().fit(xr.DataArray(Z[:M], dims=("n", "c")), Y[:M])
    with pytest.raises(mc.InputError, match=r"the dimension 'c'\. Transpose it"):
        square.predict_proba(xr.DataArray(Z[:M], dims=("c", "n")))
    # Other dimensions may be in any order: every place is a row of its own.
    flipped = cal.predict_proba(X.transpose("n", "c", "w", "h"))
    xr.testing.assert_equal(flipped.transpose(*p.dims), p)
    assert p.dims == X.dims
    assert cal.predict(X).dims == y.dims
    # Without names of one's own, places go by their order.
    bare = xr.DataArray(z)
    np.testing.assert_array_equal(
        mc.MCCT(class_axis=1).fit(bare, xr.DataArray(y.values), xr.DataArray(weight.values)).weights_,
        cal.weights_,
    )
    np.testing.assert_array_equal(cal.predict_proba(bare), p)


def test_frames_have_their_classes_in_columns():
    for name in ("pandas", "pyarrow, batch"):
        for use in (mc.MCCT(class_axis=0).fit, mc.MCCT(class_axis=0).fit(Z.T, Y).score):
            with pytest.raises(mc.InputError, match="has a column for each class, but class_axis is 0"):
                use(KINDS[name][0](Z), Y)


def test_results_cannot_be_written_to_jax():
    X = pytest.importorskip("jax.numpy").asarray(Z, dtype="float32")
    with pytest.raises(mc.InputError, match="an array of jax, which cannot be written to"):
        mc.MCCT().fit(Z, Y).predict_proba(Z, out=X)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_types_of_a_byte_are_refused(dtype):
    types = pytest.importorskip("ml_dtypes")
    narrow = np.clip(Z, -7, 7).astype(getattr(types, dtype))
    with pytest.raises(
        mc.InputError, match=f"every entry must be a real number, but they are of type {dtype}"
    ):
        mc.MCCT().fit(Z, Y).predict_proba(narrow)
