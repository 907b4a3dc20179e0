"""By predicted class and by context: the order stands, every form and export agrees, and what is not known is shared."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import monocal as mc
from hostile import DTYPES, assert_order_kept, bent, hard_rows, mixed_rows, narrow
from monocal.errors import InputError
from monocal.rows import files
from real_logits import load_shared_logits

torch = pytest.importorskip("torch")
M = 7
SITES = np.array(["a", "b", "c", "d"])


def uneven(n=2400, m=M, seed=0):
    """Rows whose confidence is wrong by class, by site and by age: logits, labels and context."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    site, age = rng.integers(0, 4, n), rng.uniform(20, 80, n)
    sure = np.array([0.3, 0.6, 1.0, 1.3])[site] * np.where(age > 50, 1.0, 0.5)
    sure = sure * np.linspace(0.5, 1.5, m)[z.argmax(axis=1)]
    y = (z * sure[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, y, pd.DataFrame({"site": pd.Categorical(SITES[site]), "age": age})


def nll(probs, labels):
    return float(-np.log(np.asarray(probs, dtype=np.float64)[np.arange(len(labels)), labels]).mean())


@pytest.fixture(scope="module")
def fitted():
    return mc.ConditionalMCCT(shrinkage=2.0).fit(*uneven()[:2], context=uneven()[2])


def any_context(n, seed=7):
    """Context of every kind: known, unknown, missing, far away."""
    rng = np.random.default_rng(seed)
    site = rng.choice(np.array([*SITES, "elsewhere", None], dtype=object), n)
    age = rng.choice([21.0, 50.0, 77.0, np.nan, np.inf, -np.inf, -1e30], n)
    return pd.DataFrame({"site": site, "age": age})


# What it is for.


def test_it_learns_what_logits_alone_cannot_tell():
    z, y, context = uneven(n=4000)
    held_out, labels, other = uneven(seed=1)
    plain = mc.ConditionalMCCT(by_class=False).fit(z, y)
    classes = mc.ConditionalMCCT().fit(z, y)
    both = mc.ConditionalMCCT().fit(z, y, context=context)
    losses = [nll(c.predict_proba(held_out), labels) for c in (plain, classes)]
    losses.append(nll(both.predict_proba(held_out, context=other), labels))
    assert losses[0] > losses[1] + 0.01
    assert losses[1] > losses[2] + 0.02
    scales = both.adjustment_.column_scales[0].scales
    assert (np.diff(scales) > 0).all()  # the sites are ever surer
    assert {ramp.statistic for ramp in both.adjustment_.factors.ramps} == {0, 1}
    assert classes.by_class_.startswith("scales from")
    assert plain.by_class_ == "not asked for"
    assert plain.adjustment_ is None


def test_the_subject_helps_on_real_questions():
    data = load_shared_logits("mmlu_mistral-7b")
    rows = np.random.default_rng(0).permutation(len(data.y_val))
    fit, test = rows[: len(rows) * 3 // 4], rows[len(rows) * 3 // 4 :]
    subject = data.context_val
    plain = mc.ConditionalMCCT(by_class=False).fit(data.logits_val[fit], data.y_val[fit])
    known = mc.ConditionalMCCT().fit(data.logits_val[fit], data.y_val[fit], context=subject[fit])
    probs = known.predict_proba(data.logits_val[test], context=subject[test])
    assert nll(probs, data.y_val[test]) < nll(plain.predict_proba(data.logits_val[test]), data.y_val[test])


@pytest.mark.parametrize("n", [1000, 5000])
def test_noise_costs_nothing(n):
    rng = np.random.default_rng(0)
    z, y = bent(10, n=n)
    held_out, labels = bent(10, n=6000)
    held_out, labels = held_out[-3000:], labels[-3000:]
    base = nll(mc.ConditionalMCCT().fit(z, y).predict_proba(held_out), labels)
    numbers, groups = rng.normal(size=(n + 3000, 20)), rng.integers(0, 50, n + 3000)
    for noise in (numbers, groups, rng.integers(0, 8, (n + 3000, 20))):
        cal = mc.ConditionalMCCT().fit(z, y, context=noise[:n])
        assert nll(cal.predict_proba(held_out, context=noise[n:]), labels) < base + 0.002


# Order, ties, masks; a row alone and in its batch.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parameters", [{}, {"top_k": 4}, {"top_k": 2}, {"by_class": True, "statistics": ()}])
def test_the_order_stands_whatever_is_known(parameters, dtype):
    z, y, context = uneven()
    cal = mc.ConditionalMCCT(shrinkage=0.5, **parameters).fit(z, y, context=context)
    for rows in (hard_rows(M), mixed_rows(M)):
        rows = narrow(rows, dtype) if np.isfinite(rows).all() else rows.astype(np.float64)
        known = any_context(len(rows))
        probs = cal.predict_proba(rows, context=known)
        assert_order_kept(rows, probs)
        np.testing.assert_allclose(np.asarray(probs, dtype=np.float64).sum(axis=1), 1.0, atol=2e-2)
        np.testing.assert_array_equal(cal.predict(rows, context=known), rows.argmax(axis=1))
        assert cal.unseen_ == int((known["age"].isna() | ~known["site"].isin(SITES)).sum())


@pytest.mark.parametrize("form", ["numpy", "torch", "torch module", "onnx"])
def test_a_row_alone_is_the_row_in_its_batch(fitted, form):
    rows = mixed_rows(M)
    rows = np.where(np.isinf(rows), rows, np.clip(rows, -3e38, 3e38)).astype(np.float32)
    known = any_context(len(rows))
    predict = in_form(fitted, form)
    whole = predict(rows, known)
    for i in range(0, len(rows), 11):
        np.testing.assert_array_equal(predict(rows[i : i + 1], known.iloc[i : i + 1])[0], whole[i])


def test_large_arrays_take_the_loops_to_the_same(fitted, monkeypatch):
    from monocal.kernel import compiled

    z = uneven(n=500, seed=5)[0].astype(np.float32)
    z[::3] = np.round(z[::3])
    known = any_context(500)
    expected = fitted.predict_proba(z, context=known)
    monkeypatch.setattr(compiled, "LARGE", 1)
    np.testing.assert_allclose(fitted.predict_proba(z, context=known), expected, atol=2e-6)


def in_form(cal, form):
    """``predict(rows, context)`` of a calibrator in another form."""
    codes = cal.context_.codes
    if form == "numpy":
        return lambda rows, known: cal.predict_proba(rows, context=known)
    if form == "torch":
        return lambda rows, known: cal.predict_proba(torch.as_tensor(rows), context=known).numpy()
    if form == "torch module":
        module = cal.to_torch()
        return lambda rows, known: module(torch.as_tensor(rows), torch.as_tensor(codes(known))).numpy()
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(cal.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda rows, known: session.run(None, {"logits": rows, "context": codes(known)})[0]


@pytest.mark.parametrize("form", ["torch", "torch module", "onnx"])
def test_every_form_gives_the_same(fitted, form):
    z, _, context = uneven(seed=3, n=500)
    z[::5] = np.round(z[::5])
    z[::7, 2] = -np.inf
    z = z.astype(np.float32)
    context.loc[::9, "age"] = np.nan
    expected = fitted.predict_proba(z, context=context)
    found = in_form(fitted, form)(z, context)
    np.testing.assert_allclose(found, expected, atol=3e-6)
    hard = narrow(hard_rows(M), np.float32)
    assert_order_kept(hard, in_form(fitted, form)(hard, any_context(len(hard))))


def test_a_module_is_its_state(fitted):
    from monocal.export import from_state_dict

    z, _, context = uneven(n=50)
    module = fitted.to_torch()
    codes = torch.as_tensor(fitted.context_.codes(context))
    again = from_state_dict(module.state_dict())
    rows = torch.as_tensor(z.astype(np.float32))
    assert torch.equal(module(rows, codes), again(rows, codes))
    with pytest.raises(InputError, match="context must have shape"):
        module(rows)
    with pytest.raises(InputError, match="has adjustment"):
        mc.ConditionalMCCT(shrinkage=2.0).fit(*uneven()[:2]).to_torch().load_state_dict(module.state_dict())


# Where rows live.


def numbers_of(context):
    """The same context as one table of numbers."""
    codes = np.searchsorted(SITES, context["site"].astype(str))
    return np.stack([codes, context["age"]], axis=1)


def in_blocks(z, y, table, tmp_path):
    return (
        (lambda: ((z[i : i + 501], y[i : i + 501], table[i : i + 501]) for i in range(0, len(z), 501))),
        None,
        None,
    )


def in_weighted_blocks(z, y, table, tmp_path):
    ones = np.ones(len(z))
    return (
        (
            lambda: (
                (z[i : i + 501], y[i : i + 501], ones[i : i + 501], table[i : i + 501])
                for i in range(0, len(z), 501)
            )
        ),
        None,
        None,
    )


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


PLACES = [in_blocks, in_weighted_blocks, in_memmap, in_h5py, in_zarr, in_dask, in_torch]


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_wherever_rows_live_the_fit_is_the_same(place, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "IN_MEMORY", 1000)
    z, y, context = uneven(n=2400)
    z, table = z.astype(np.float32), numbers_of(context)
    here = mc.ConditionalMCCT().fit(z, y, context=table)
    X, labels, known = place(z, y, table, tmp_path)
    there = mc.ConditionalMCCT().fit(X, labels, context=known)
    atol = 1e-4 if place is in_torch else 1e-12
    expected = here.predict_proba(z, context=table)
    np.testing.assert_allclose(there.predict_proba(z, context=table), expected, atol=atol)
    if callable(X):
        found = np.concatenate(list(there.predict_blocks(X)))
    else:
        found = np.asarray(there.predict_proba(X, context=known))
    np.testing.assert_allclose(found, expected, atol=atol)


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
    (found,) = cal.context_.columns
    assert (found.kind, len(found.categories)) == ("category", 2)
    cal.predict_proba(z, context=pd.DataFrame({"ward": column}))
    assert cal.unseen_ == 100


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 2.0]], ids=str)
def test_numbers_of_few_values_are_used(values):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 4)) * 2
    x = rng.choice(values, 2000)
    y = np.where(x > 0, z.argmax(axis=1), rng.integers(0, 4, 2000))
    plain, known = mc.ConditionalMCCT().fit(z, y), mc.ConditionalMCCT().fit(z, y, context=x)
    assert known.score(z, y, context=x) > plain.score(z, y) + 0.05


def test_a_number_may_be_measured_from_anywhere(fitted):
    z, y, context = uneven()
    moved = context.assign(age=context["age"] + 2.0**30)
    far = mc.ConditionalMCCT(shrinkage=2.0).fit(z, y, context=moved)
    expected = fitted.predict_proba(z, context=context)
    np.testing.assert_allclose(far.predict_proba(z, context=moved), expected, atol=1e-5)
    z = z.astype(np.float32)
    for form in ("torch module", "onnx"):
        np.testing.assert_allclose(in_form(far, form)(z, moved), expected, atol=1e-5)


def test_the_second_stage_never_fits_worse_among_ties():
    z, y, _ = uneven(n=800, m=6)
    z = np.round(z / 3)
    for top_k in (2, 3, None):
        one = mc.ConditionalMCCT(by_class=False, top_k=top_k).fit(z, y)
        both = mc.ConditionalMCCT(by_class=True, top_k=top_k).fit(z, y)
        assert both.score(z, y) >= one.score(z, y) - 1e-3


# The certificate.


def test_scales_and_steps_are_the_optimum_of_what_is_written_down():
    """The second stage's objective, from its definition, with few classes: the solution satisfies its conditions."""
    z, y, context = uneven(n=600, m=4)
    cal = mc.ConditionalMCCT(n_knots=2, prior_rows=0).fit(z, y, context=context[["site"]])
    a = cal.adjustment_
    assert a.solution.converged
    f = cal.rank_map_.transform(z)
    top = f.argmax(axis=1)
    codes = cal.context_.codes(context[["site"]])[:, 0].astype(int)

    # Scales by class: every group's own problem.
    def loss(s, rows, variance, common=1.0):
        g = common * s * f[rows]
        return (logsumexp(g, axis=1) - g[np.arange(len(rows)), y[rows]]).sum() + (s - 1) ** 2 / (2 * variance)

    everything = np.arange(len(y))
    common = minimize(lambda s: loss(s[0], everything, np.inf), [1.0], tol=1e-10).x[0]
    found = a.class_scales
    for j in range(4):
        rows = np.flatnonzero(top == j)
        best = minimize(lambda s, rows=rows: loss(s[0], rows, found.variance, common), [1.0], tol=1e-10).x[0]
        assert found.scales[j] == pytest.approx(best, abs=2e-4)
        assert found.rows[j] == len(rows)
    assert found.residual <= cal.tol

    # Steps: gradients of the likelihood and the penalty's sign.
    s = found.scales[top] * a.column_scales[0].scales[codes]
    g = f * s[:, None]
    order = np.sort(g, axis=1)
    odds = order[:, -1] - logsumexp(order[:, :-1], axis=1)
    psi = np.stack(
        [np.ones(len(odds))] + [np.clip((odds - r.zero) / (r.one - r.zero), 0, 1) for r in a.factors.ramps]
    )
    at_top = g == g.max(axis=1, keepdims=True)
    out = g * (a.steps[0] @ psi)[:, None] + at_top * (a.steps[1] @ psi)[:, None]
    np.testing.assert_allclose(out, cal.transform(z, context=context[["site"]]), atol=1e-9)
    p = softmax(out, axis=1)
    for k, factor in enumerate(psi):
        for kind, atom in enumerate((g, at_top)):
            gradient = (factor * ((p * atom).sum(axis=1) - atom[np.arange(len(y)), y])).mean()
            if (kind, k) == (0, 0):
                assert abs(gradient) < 2e-6  # the plain scale is not held back
            elif a.steps[kind, k] > 0:
                assert gradient < 0  # held in balance by the penalty
            else:
                assert gradient > -0.05


def test_weights_are_repetitions():
    z, y, context = uneven(n=500)
    context.loc[::7, "age"] = np.nan
    weight = np.arange(500) % 3
    again = np.repeat(np.arange(500), weight)
    a = mc.ConditionalMCCT().fit(z, y, sample_weight=weight, context=context)
    b = mc.ConditionalMCCT().fit(z[again], y[again], context=context.iloc[again])
    np.testing.assert_allclose(
        a.predict_proba(z, context=context), b.predict_proba(z, context=context), atol=1e-5
    )


# Kept, told, refused.


def test_it_is_kept_in_a_file_to_the_last_bit(fitted, tmp_path):
    z, _, context = uneven(n=100)
    fitted.save(tmp_path / "cal.json")
    loaded = mc.load(tmp_path / "cal.json")
    expected = fitted.predict_proba(z, context=context)
    np.testing.assert_array_equal(loaded.predict_proba(z, context=context), expected)
    assert str(loaded.explain()) == str(fitted.explain())


def test_explain_names_classes_and_categories():
    z, y, context = uneven(n=4000)
    frame = pd.DataFrame(z, columns=["cat", "dog", "emu", "fox", "gnu", "hen", "ibis"])
    cal = mc.ConditionalMCCT().fit(frame, y, context=context)
    told = cal.explain()
    words = str(told)
    assert "when the top class is 'cat': " in words
    assert "% less sure" in words
    assert "site 'a': " in words
    by_name = {(g.column, g.group): g for g in told.groups}
    assert by_name["site", "a"].scale < 1 < by_name["site", "d"].scale
    assert by_name[None, "cat"].scale < 1 < by_name[None, "ibis"].scale
    age = [e for e in told if e.statistic == "age"]
    assert age
    assert all(20 <= e.knot <= 80 for e in age)
    assert words.startswith(f"{sum(e.stage == 1 for e in told)} of {cal.n_atoms_} atoms are active")


def test_forgetting_and_changing_the_context_is_refused(fitted):
    z, y, context = uneven(n=20)
    with pytest.raises(InputError, match="context is missing: the calibrator was fitted with the column"):
        fitted.predict_proba(z)
    with pytest.raises(InputError, match=r"context has 1 column\(s\), but the calibrator was fitted with 2"):
        fitted.predict_proba(z, context=np.zeros(20))
    with pytest.raises(InputError, match="context has the columns 'site', but"):
        fitted.predict_proba(z, context=context[["site"]])
    with pytest.raises(InputError, match="context has 19 rows, but X has 20"):
        fitted.predict_proba(z, context=context.iloc[1:])
    with pytest.raises(InputError, match="'age' was numbers in fitting"):
        fitted.predict_proba(z, context=context.assign(age="old"))
    with pytest.raises(InputError, match="fitted without one"):
        mc.ConditionalMCCT().fit(z, y).predict_proba(z, context=context)
    with pytest.raises(InputError, match="found input variables with inconsistent numbers of samples"):
        mc.ConditionalMCCT().fit(z, y, context=context.iloc[:5])
    with pytest.raises(InputError, match="datetime64"):
        mc.ConditionalMCCT().fit(z, y, context=np.zeros(20, dtype="datetime64[s]"))
    with pytest.raises(InputError, match="holds a dict"):
        mc.ConditionalMCCT().fit(z, y, context=np.array([{}] * 20))
    for odd in (
        {"a": np.zeros(20), "b": np.zeros(19)},
        {"a": 3},
        {1: y, "1": y},
        {"a": np.zeros((20, 2, 2))},
    ):
        with pytest.raises(InputError, match="context"):
            mc.ConditionalMCCT().fit(z, y, context=odd)
    with pytest.raises(InputError, match="several classes share the largest logit"):
        mc.ConditionalMCCT().fit(np.zeros((20, 7)), y, context=context)
    with pytest.raises(InputError, match="context has no columns"):
        mc.ConditionalMCCT().fit(z, y, context=np.zeros((20, 0)))
    with pytest.raises(InputError, match="must have one row for each row"):
        mc.ConditionalMCCT().fit(z, y, context=np.zeros((20, 1, 1)))
    with pytest.raises(InputError, match="by_class must be 'auto', True or False"):
        mc.ConditionalMCCT(by_class="yes").fit(z, y)
    with pytest.raises(InputError, match="unlike those before"):
        mc.ConditionalMCCT().fit(lambda: iter([(z, y, np.ones((20, 1))), (z, y)]))
    with pytest.raises(TypeError):
        mc.MCCT().fit(z, y, context=context)


def test_blocks_say_what_is_weight_and_what_is_context():
    z, y, context = uneven(n=600)
    site = context["site"].astype(str).to_numpy()
    here = mc.ConditionalMCCT().fit(z, y, context={"context": site})
    for known in (site, {"context": site}, pd.DataFrame({"context": site})):
        there = mc.ConditionalMCCT().fit(lambda known=known: iter([(z, y, None, known)]))
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


# scikit-learn.


def test_metadata_routing_carries_the_context():
    z, y, context = uneven(n=600)
    table = numbers_of(context)
    with sklearn.config_context(enable_metadata_routing=True):
        cal = mc.ConditionalMCCT().set_fit_request(context=True).set_score_request(context=True)
        scores = cross_val_score(cal, z, y, params={"context": table}, cv=3)
        assert np.isfinite(scores).all()
        pipe = make_pipeline(FunctionTransformer(), clone(cal).set_predict_proba_request(context=True))
        pipe.fit(z, y, context=table)
        np.testing.assert_allclose(
            pipe.predict_proba(z, context=table),
            mc.ConditionalMCCT().fit(z, y, context=table).predict_proba(z, context=table),
        )


def test_a_calibrated_classifier_passes_the_context_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.array(["no", "yes"])[(X[:, 0] + rng.normal(size=600) > 0).astype(int)]
    ward = rng.integers(0, 3, 600)
    model = mc.CalibratedClassifier(LogisticRegression(), method="conditional").fit(X, y, context=ward)
    assert model.calibrator_.context_.columns[0].categories == (0, 1, 2)
    assert set(model.predict(X, context=ward)) == {"no", "yes"}
    with pytest.raises(InputError, match="context is missing"):
        model.predict_proba(X)
    assert model.score(X, y, context=ward) > 0.7
    with pytest.raises(InputError, match="MCCT takes none"):
        mc.CalibratedClassifier(LogisticRegression()).fit(X, y, context=ward)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        mc.CalibratedClassifier(LogisticRegression(), method="conditional").fit(X, y, context=np.zeros(700))
    z, labels, context = uneven(n=300)
    both = mc.ConditionalMCCT().fit_transform(z, labels, context=context)
    np.testing.assert_array_equal(both.argmax(axis=1), z.argmax(axis=1))


def test_probabilities_in_and_log_probabilities_agree():
    z, y, context = uneven()
    p = softmax(z, axis=1)
    a = mc.ConditionalMCCT(input="probabilities").fit(p, y, context=context)
    b = mc.ConditionalMCCT().fit(log_softmax(z, axis=1), y, context=context)
    np.testing.assert_allclose(
        a.predict_proba(p, context=context),
        b.predict_proba(log_softmax(z, axis=1), context=context),
        atol=1e-6,
    )
