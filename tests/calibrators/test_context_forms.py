"""With any context: the order stands, a row alone is the row in its batch, and every form and export gives the same."""

import numpy as np
import pytest
from uneven_rows import SITES, M, any_context, fitted_with_context, uneven

import monocal as mc
from hostile import DTYPES, assert_order_kept, hard_rows, mixed_rows, narrow
from monocal.errors import InputError

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def fitted():
    return fitted_with_context()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parameters", [{"top_k": 4}, {"by_class": True, "statistics": ()}])
def test_the_order_stands_whatever_is_known(parameters, dtype):
    z, y, context = uneven()
    cal = mc.ConditionalMCCT(shrinkage=0.5, **parameters).fit(z, y, context=context)
    for rows in (hard_rows(M), mixed_rows(M)):
        rows = narrow(rows, dtype) if np.isfinite(rows).all() else rows.astype(np.float64)
        other = any_context(len(rows))
        probs = cal.predict_proba(rows, context=other)
        assert_order_kept(rows, probs)
        np.testing.assert_allclose(np.asarray(probs, dtype=np.float64).sum(axis=1), 1.0, atol=2e-2)
        np.testing.assert_array_equal(cal.predict(rows, context=other), rows.argmax(axis=1))
        assert cal.unseen_ == int((other["age"].isna() | ~other["site"].isin(SITES)).sum())


@pytest.mark.parametrize("form", ["numpy", "torch", "torch module", "onnx"])
def test_a_row_alone_is_the_row_in_its_batch(fitted, form):
    rows = mixed_rows(M)
    rows = np.where(np.isinf(rows), rows, np.clip(rows, -3e38, 3e38)).astype(np.float32)
    context = any_context(len(rows))
    predict = in_form(fitted, form)
    whole = predict(rows, context)
    for i in range(0, len(rows), 11):
        np.testing.assert_array_equal(predict(rows[i : i + 1], context.iloc[i : i + 1])[0], whole[i])


def test_large_arrays_take_the_loops_to_the_same(fitted, monkeypatch):
    from monocal.engines import numba_engine

    z = uneven(n=500, seed=5)[0].astype(np.float32)
    z[::3] = np.round(z[::3])
    context = any_context(500)
    expected = fitted.predict_proba(z, context=context)
    monkeypatch.setattr(numba_engine, "LARGE", 1)
    np.testing.assert_allclose(fitted.predict_proba(z, context=context), expected, atol=2e-6)


def in_form(cal, form):
    """``predict(rows, context)`` of a calibrator in another form."""
    codes = cal.context_.codes
    if form == "numpy":
        return lambda rows, context: cal.predict_proba(rows, context=context)
    if form == "torch":
        return lambda rows, context: cal.predict_proba(torch.as_tensor(rows), context=context).numpy()
    if form == "torch module":
        module = cal.to_torch()
        return lambda rows, context: module(torch.as_tensor(rows), torch.as_tensor(codes(context))).numpy()
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(cal.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda rows, context: session.run(None, {"logits": rows, "context": codes(context)})[0]


@pytest.mark.parametrize("form", ["torch", "torch module", "onnx"])
def test_every_form_gives_the_same(fitted, form):
    z, _, context = uneven(seed=3, n=500)
    z[::5] = np.round(z[::5])
    z[::7, 2] = -np.inf
    z = z.astype(np.float32)
    context.loc[::9, "age"] = np.nan
    expected = fitted.predict_proba(z, context=context)
    result = in_form(fitted, form)(z, context)
    np.testing.assert_allclose(result, expected, atol=3e-6)
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


def test_a_number_may_be_measured_from_anywhere(fitted):
    z, y, context = uneven()
    moved = context.assign(age=context["age"] + 2.0**30)
    far = mc.ConditionalMCCT(shrinkage=2.0).fit(z, y, context=moved)
    expected = fitted.predict_proba(z, context=context)
    np.testing.assert_allclose(far.predict_proba(z, context=moved), expected, atol=1e-5)
    z = z.astype(np.float32)
    for form in ("torch module", "onnx"):
        np.testing.assert_allclose(in_form(far, form)(z, moved), expected, atol=1e-5)
