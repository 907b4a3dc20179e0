"""Context in every kind of table, wherever rows live: the fit is the same, and what is not known is shared."""

import numpy as np
import pandas as pd
import pytest
from uneven_rows import fitted_with_context, numbers_of, uneven

import monocal as mc
from monocal.errors import InputError
from monocal.inputs import files

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def fitted():
    return fitted_with_context()


def in_blocks(z, y, table, tmp_path):
    weight = np.ones(len(z))
    cut = [slice(i, i + 501) for i in range(0, len(z), 501)]
    return (lambda: ((z[c], y[c], weight[c], table[c]) for c in cut)), None, None


def in_memmap(z, y, table, tmp_path):
    np.save(tmp_path / "z.npy", z)
    np.save(tmp_path / "c.npy", table)
    return np.load(tmp_path / "z.npy", mmap_mode="r"), y, np.load(tmp_path / "c.npy", mmap_mode="r")


def in_h5py(z, y, table, tmp_path):
    file = pytest.importorskip("h5py").File(tmp_path / "z.h5", "w")
    file["z"], file["y"], file["c"] = z, y, table
    return file["z"], file["y"], file["c"]


def in_zarr(z, y, table, tmp_path):
    zarr = pytest.importorskip("zarr")
    made = [
        zarr.create_array(store=str(tmp_path / name), shape=x.shape, dtype=x.dtype)
        for name, x in (("z", z), ("c", table))
    ]
    for array, x in zip(made, (z, table), strict=True):
        array[:] = x
    return made[0], y, made[1]


def in_dask(z, y, table, tmp_path):
    da = pytest.importorskip("dask.array")
    return (
        da.from_array(z, chunks=(700, 3)),
        da.from_array(y, chunks=900),
        da.from_array(table, chunks=(500, 1)),
    )


def in_torch(z, y, table, tmp_path):
    return torch.as_tensor(z), torch.as_tensor(y), torch.as_tensor(table)


PLACES = [in_blocks, in_memmap, in_h5py, in_zarr, in_dask, in_torch]


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_wherever_rows_live_the_fit_is_the_same(place, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "IN_MEMORY", 1000)
    z, y, context = uneven(n=2400)
    z, table = z.astype(np.float32), numbers_of(context)
    here = mc.ConditionalMCCT().fit(z, y, context=table)
    X, labels, attributes = place(z, y, table, tmp_path)
    there = mc.ConditionalMCCT().fit(X, labels, context=attributes)
    atol = 1e-4 if place is in_torch else 1e-12
    expected = here.predict_proba(z, context=table)
    np.testing.assert_allclose(there.predict_proba(z, context=table), expected, atol=atol)
    if callable(X):
        result = np.concatenate(list(there.predict_blocks(X)))
    else:
        result = np.asarray(there.predict_proba(X, context=attributes))
    np.testing.assert_allclose(result, expected, atol=atol)


@pytest.mark.parametrize(
    "as_columns",
    [
        lambda c: c,
        lambda c: c.to_dict("list") and pd.DataFrame({"age": c["age"], "site": c["site"].astype(object)}),
        lambda c: c.assign(site=c["site"].astype("string")),
        lambda c: c.assign(age=c["age"].astype(object)),
    ],
    ids=["category", "another order", "string dtype", "objects"],
)
def test_frames_of_all_kinds_say_the_same(fitted, as_columns):
    z, y, context = uneven()
    other = mc.ConditionalMCCT(shrinkage=2.0).fit(z, y, context=as_columns(context))
    expected = fitted.predict_proba(z, context=context)
    np.testing.assert_allclose(other.predict_proba(z, context=as_columns(context)), expected, atol=1e-9)
    np.testing.assert_array_equal(fitted.predict_proba(z, context=as_columns(context)), expected)


def test_whole_numbers_and_truth_values_are_categories():
    z, y, context = uneven()
    young = context["age"].to_numpy() < 50
    cal = mc.ConditionalMCCT().fit(z, y, context=young)
    expected = cal.predict_proba(z, context=young)
    for other in (
        young.astype(int),
        young.astype(np.int8)[:, None],
        young.astype(float),
        young.tolist(),
        torch.as_tensor(young),
    ):
        np.testing.assert_array_equal(cal.predict_proba(z, context=other), expected)
    assert cal.context_.columns[0].categories == (0, 1)


def test_what_is_not_known_gets_the_shared_map(fitted):
    z = uneven(n=40)[0]
    nothing = pd.DataFrame({"site": ["?"] * 40, "age": [np.nan] * 40})
    probs = fitted.predict_proba(z, context=nothing)
    assert fitted.unseen_ == 40
    typical = nothing.assign(age=fitted.adjustment_.typical[1])
    np.testing.assert_array_equal(fitted.predict_proba(z, context=typical), probs)


@pytest.mark.parametrize(
    "column",
    [
        pd.Categorical([1, 2, None] * 100),
        pd.Categorical([1.5, 2.0, None] * 100),
        pd.array([1, 2, None] * 100, dtype="Int64"),
        pd.array([True, False, None] * 100, dtype="boolean"),
        pd.array(["a", "b", None] * 100, dtype="string"),
    ],
    ids=["whole", "fractions", "Int64", "boolean", "string"],
)
def test_categories_with_gaps_stay_categories(column):
    z, y, _ = uneven(n=300)
    cal = mc.ConditionalMCCT().fit(z, y, context=pd.DataFrame({"ward": column}))
    (result,) = cal.context_.columns
    assert (result.kind, len(result.categories)) == ("category", 2)
    cal.predict_proba(z, context=pd.DataFrame({"ward": column}))
    assert cal.unseen_ == 100


def test_blocks_say_what_is_weight_and_what_is_context():
    z, y, context = uneven(n=600)
    site = context["site"].astype(str).to_numpy()
    here = mc.ConditionalMCCT().fit(z, y, context={"context": site})
    for attributes in (site, {"context": site}, pd.DataFrame({"context": site})):
        there = mc.ConditionalMCCT().fit(lambda attributes=attributes: iter([(z, y, None, attributes)]))
        assert there.context_.columns[0].categories == here.context_.columns[0].categories
    weighted = mc.ConditionalMCCT().fit(lambda: iter([(z, y, np.arange(600) % 3)]))
    assert not hasattr(weighted, "context_")
    with pytest.raises(InputError, match="hold a context, and MCCT takes none"):
        mc.MCCT().fit(lambda: iter([(z, y, np.ones((600, 2)))]))
    with pytest.raises(InputError, match="a top_k of 2 or more"):
        mc.ConditionalMCCT(top_k=1).fit(z, y, context=site)


def test_a_category_that_no_row_of_weight_had_is_not_known():
    z, y, context = uneven(n=300)
    site = context["site"].astype(str).to_numpy().astype(object)
    site[:5] = "z"
    weight = np.where(site == "z", 0.0, 1.0)
    with_none = mc.ConditionalMCCT().fit(z, y, sample_weight=weight, context=site)
    without = mc.ConditionalMCCT().fit(z[5:], y[5:], context=site[5:])
    for cal in (with_none, without):
        assert cal.context_.columns[0].categories == ("a", "b", "c", "d")
    np.testing.assert_allclose(
        with_none.predict_proba(z, context=site), without.predict_proba(z, context=site), atol=1e-9
    )
    assert with_none.unseen_ == without.unseen_ == 5


def test_what_was_not_known_is_counted_anew():
    z, y, context = uneven(n=300)
    cal = mc.ConditionalMCCT().fit(z, y, context=context)
    assert cal.unseen_ == 0
    strange = numbers_of(context).astype(object)
    strange[:, 0] = "?"
    list(cal.predict_blocks(iter([(z[:100], strange[:100]), (z[100:], strange[100:])])))
    assert cal.unseen_ == 300
    assert not hasattr(cal.fit(z, y), "unseen_")


def test_rows_of_the_largest_logits_take_context():
    """Where all unnamed classes have one logit, rows of the largest say all that there is to know."""
    z, y, context = uneven()
    ids = np.argsort(-z, axis=1, kind="stable")[:, :3]
    named = np.take_along_axis(z, ids, axis=1)
    z = np.repeat(named[:, -1:] - 0.5, z.shape[1], axis=1)
    np.put_along_axis(z, ids, named, axis=1)
    top = mc.TopK(named, ids, np.logaddexp.reduce(z, axis=1), n_classes=z.shape[1])
    for by_class in (True, False):
        cal = mc.ConditionalMCCT(statistics="margin", top_k=3, by_class=by_class).fit(z, y, context=context)
        expected = np.take_along_axis(cal.predict_proba(z, context=context), ids, axis=1)
        result = cal.predict_proba(top, context=context)
        np.testing.assert_allclose(result.probabilities, expected, atol=1e-9)
        np.testing.assert_allclose(result.probabilities.sum(axis=1) + result.rest, 1.0)
        assert cal.score(top, y, context=context) == pytest.approx(cal.score(z, y, context=context))
    with pytest.raises(mc.InputError, match="context has 5 rows, but X has"):
        cal.predict_proba(top, context=context[:5])
