"""torch: a module with the same probabilities, that trains, compiles and exports, in any floating type."""

import io
import warnings

import numpy as np
import pytest
from exportable import KINDS, M, fit_set, fitted_kind, hostile_rows, sane
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import monocal as mc
from hostile import assert_order_kept
from monocal.calibrators import ConditionalMCCT

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

NARROW = [torch.float16, torch.bfloat16]


@pytest.fixture(params=KINDS)
def fitted(request):
    return fitted_kind(request.param)


@pytest.fixture
def rows():
    return torch.from_numpy(hostile_rows())


def numpy(x):
    return x.detach().double().numpy()


def test_parity_and_order_on_hard_rows(fitted, rows):
    module = fitted.to_torch()
    ordinary = sane(rows.numpy())
    for wide in (rows, rows.double() * np.pi):
        p, f = module(wide), module.transform(wide)
        assert p.dtype == wide.dtype
        assert_order_kept(wide, p)
        assert_order_kept(wide, f)
        assert (p[torch.isinf(wide)] == 0).all()
        assert (torch.isinf(f) == torch.isinf(wide)).all()
        expected = fitted.predict_proba(wide.numpy())[ordinary]
        np.testing.assert_allclose(p[ordinary], expected, rtol=0, atol=2e-6)
        from_top = (f - f.max(dim=1, keepdim=True).values)[ordinary]
        np.testing.assert_allclose(from_top, fitted.transform(wide.numpy())[ordinary], rtol=1e-6, atol=1e-4)
    p = fitted.to_torch(dtype=torch.float64)(wide)
    np.testing.assert_allclose(p[ordinary], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", NARROW)
def test_half_precision(fitted, rows, dtype):
    z = rows[sane(rows.numpy())].to(dtype)
    module = fitted.to_torch()
    results = [module(z), module.transform(z), module.log_probabilities(z)]
    for values in results:
        assert values.dtype == dtype
        assert_order_kept(numpy(z), numpy(values))
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(results[0].float(), module(z.float()), rtol=2 * eps, atol=1e-6)
    extreme = rows.clamp(-6e4, 6e4).to(dtype)
    assert_order_kept(numpy(extreme), numpy(module.transform(extreme)))


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(["mcct", "top 3", "conditional top 3"]),
    dtype=st.sampled_from([torch.float32, torch.float64, *NARROW]),
    z=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.just(M)),
        elements=st.floats(-6e4, 6e4, width=32) | st.sampled_from([0.0, 1.0, -1.0, 2.5]),
    ),
)
def test_order_is_kept_whatever_comes(kind, dtype, z):
    z = torch.from_numpy(z).to(dtype)
    assert_order_kept(numpy(z), numpy(fitted_kind(kind).to_torch()(z)))


def test_any_leading_shape(fitted):
    z = torch.from_numpy(fit_set()[0][:24]).float()
    module = fitted.to_torch()
    p = module(z)
    torch.testing.assert_close(module(z.reshape(2, 3, 4, M)), p.reshape(2, 3, 4, M))
    torch.testing.assert_close(module(z[5]), p[5])
    assert module(z[:0]).shape == (0, M)


def test_gradients(fitted, rows):
    z = torch.from_numpy(np.nan_to_num(fit_set()[0][1:4], neginf=-20.0)).requires_grad_()
    module = fitted.to_torch(dtype=torch.float64)
    for function in (module, module.transform, module.log_probabilities):
        assert torch.autograd.gradcheck(function, (z,), eps=1e-7, atol=1e-5)
    hard = rows[sane(rows.numpy())].clone().requires_grad_()
    fitted.to_torch()(hard).max(dim=1).values.sum().backward()
    assert torch.isfinite(hard.grad).all()
    assert (hard.grad[torch.isinf(hard)] == 0).all()
    assert hard.grad.abs().sum() > 0


def test_casts_and_autocast(fitted):
    """A model cast as a whole keeps its calibrator exact."""
    module = fitted.to_torch()
    z = torch.from_numpy(fit_set()[0][:50]).float()
    p = module(z)
    model = torch.nn.Sequential(torch.nn.Linear(4, M), module).to(torch.bfloat16)
    assert model(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert {t.dtype for t in module.buffers() if t.is_floating_point()} <= {torch.float32, torch.float64}
    torch.testing.assert_close(module.double().cpu()(z), p, rtol=0, atol=0)
    assert not list(module.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(module(z), p, rtol=0, atol=0)


def test_export(fitted, rows):
    module = fitted.to_torch()
    batch = torch.export.Dim("batch", max=10**6)
    program = torch.export.export(module, (rows[:3],), dynamic_shapes=({0: batch},))
    # The module runs the same operations of torch where a gradient is asked for, and numpy's where none is.
    same = module(rows.clone().requires_grad_()).detach()
    torch.testing.assert_close(same, module(rows), rtol=4e-6, atol=5e-7)
    assert program.module()(rows[:0]).shape == (0, M)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.export.load(buffer).module()(rows), same, rtol=0, atol=0)


def every_module():
    z, y = fit_set()
    yield from (fitted_kind(kind).to_torch() for kind in KINDS)
    shift = mc.LabelShift(mc.MCCT(), prior=np.arange(1, M + 1) / (M * (M + 1) / 2))
    yield from (cal.fit(z, y).to_torch() for cal in (mc.StructuredScaling(), mc.StructuredMCCT(), shift))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_by_jit_and_not_scripted(rows):
    for module in every_module():
        traced = torch.jit.trace(module, (rows[:3],))
        ordinary = rows[sane(rows.numpy())]
        torch.testing.assert_close(traced(ordinary), module(ordinary), rtol=0, atol=2e-6)
        with pytest.raises(mc.InputError, match=r"torch.jit.script cannot compile.*torch.jit.trace"):
            torch.jit.script(torch.nn.Sequential(torch.nn.Identity(), module))


def test_every_kind_compiled_in_one_process(rows):
    """Each module has code of its own, so that none uses up the recompilations of another."""
    torch._dynamo.reset()
    for module in every_module():
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        for x in (rows[:5], rows[:6].double()):
            torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=2e-6)


def test_compile_without_breaks_and_train(rows):
    torch._dynamo.reset()
    module = fitted_kind("conditional").to_torch()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    z = rows[sane(rows.numpy())].clone().requires_grad_()
    p = compiled(z)
    assert compiled(rows[:0]).shape == (0, M)
    torch.testing.assert_close(p, module(z), rtol=0, atol=0)
    p.max(dim=1).values.sum().backward()
    assert torch.isfinite(z.grad).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_compiled_to_machine_code(rows):
    torch._dynamo.reset()
    module = fitted_kind("mcct").to_torch()
    z = rows[sane(rows.numpy())].to(torch.bfloat16)
    p = torch.compile(module, fullgraph=True)(z)
    torch.testing.assert_close(p, module(z))
    assert_order_kept(numpy(z), numpy(p))


@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "captured"])
@pytest.mark.parametrize("kind", ["mcct", "conditional top 3"])
def test_to_onnx_by_torch(kind, dynamo, rows):
    """torch's own exporters: what the module gives, in order, for any number of rows."""
    if dynamo:
        pytest.importorskip("onnxscript")
    module, file = fitted_kind(kind).to_torch(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer exporter, and the tracer's own
        if dynamo:
            shapes = ({0: torch.export.Dim("n")},)
            program = torch.onnx.export(
                module, (rows[:3],), dynamo=True, dynamic_shapes=shapes, verbose=False
            )
            file.write(program.model_proto.SerializeToString())
        else:
            names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
            torch.onnx.export(module, (rows[:3],), file, dynamo=False, **names)
    session = onnxruntime.InferenceSession(file.getvalue())
    name = session.get_inputs()[0].name
    p = session.run(None, {name: rows.numpy()})[0]
    assert_order_kept(rows, p)
    ordinary = sane(rows.numpy())
    np.testing.assert_allclose(p[ordinary], module(rows)[ordinary], rtol=0, atol=2e-6)
    np.testing.assert_allclose(session.run(None, {name: rows[5:6].numpy()})[0], p[5:6], rtol=0, atol=1e-6)
    assert session.run(None, {name: rows[:0].numpy()})[0].shape == (0, M)


def test_probabilities_smaller_than_the_type_can_hold():
    p = np.array([[1.75e-32, 2.29e-49, 1.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    cal = mc.ConditionalMCCT(input="probabilities").fit(p, [1, 0, 2])
    x = np.array([[0, 1, 0], [0.25, 0.75, 0], [1e-7, 0, 1]], dtype=np.float16)
    np.testing.assert_array_equal(cal.to_torch()(torch.tensor(x)).numpy(), cal.predict_proba(x))
    session = onnxruntime.InferenceSession(cal.to_onnx().SerializeToString())
    wide = x.astype(np.float32)
    result = session.run(None, {session.get_inputs()[0].name: wide})[0]
    np.testing.assert_allclose(result, cal.predict_proba(wide), atol=1e-6)


def test_own_statistic():
    z, y = fit_set()
    cal = ConditionalMCCT(statistics=("margin", lambda u: u[:, -1]), shrinkage=0.1).fit(z, y)
    p = cal.to_torch()(torch.from_numpy(z).float().reshape(3, -1, M)).reshape(-1, M)
    np.testing.assert_allclose(p, cal.predict_proba(z), atol=2e-6)


def test_refusals():
    cal = fitted_kind("mcct")
    with pytest.raises(mc.InputError, match="logits have 5 columns, but the calibrator was fitted on 7"):
        cal.to_torch()(torch.zeros(2, 5))
    with pytest.raises(mc.InputError, match=r"dtype must be torch.float32 or torch.float64"):
        cal.to_torch(dtype=torch.bfloat16)
    z, y = fit_set()
    other = mc.EnsembleTemperatureScaling().fit(np.nan_to_num(z, neginf=-9), y)
    with pytest.raises(mc.InputError, match="EnsembleTemperatureScaling cannot be exported"):
        other.to_torch()
