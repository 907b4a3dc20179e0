"""torch: a module with the same probabilities, that trains, compiles and exports, in any floating type."""

import io

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

from monocal.export import LogitsProcessor  # noqa: E402  needs torch

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
        p = module(wide)
        assert p.dtype == wide.dtype
        assert_order_kept(wide, p)
        assert (p[torch.isinf(wide)] == 0).all()
        np.testing.assert_allclose(
            p[ordinary], fitted.predict_proba(wide.numpy())[ordinary], rtol=0, atol=2e-6
        )
        f = module.transform(wide)
        assert_order_kept(wide, f)
        assert (torch.isinf(f) == torch.isinf(wide)).all()
        from_top = (f - f.max(dim=1, keepdim=True).values)[ordinary]
        np.testing.assert_allclose(from_top, fitted.transform(wide.numpy())[ordinary], rtol=1e-6, atol=1e-4)
    p = fitted.to_torch(dtype=torch.float64)(wide)
    np.testing.assert_allclose(p[ordinary], fitted.predict_proba(wide.numpy())[ordinary], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", NARROW)
def test_half_precision(fitted, rows, dtype):
    z = rows[sane(rows.numpy())].to(dtype)
    module = fitted.to_torch()
    p, f, log_p = module(z), module.transform(z), module.log_probabilities(z)
    for values in (p, f, log_p):
        assert values.dtype == dtype
        assert_order_kept(numpy(z), numpy(values))
    exact = module(z.float())
    np.testing.assert_allclose(p.float(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
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


def test_gradients(fitted):
    z = torch.from_numpy(np.nan_to_num(fit_set()[0][1:4], neginf=-20.0)).requires_grad_()
    module = fitted.to_torch(dtype=torch.float64)
    for function in (module, module.transform, module.log_probabilities):
        assert torch.autograd.gradcheck(function, (z,), eps=1e-7, atol=1e-5)


def test_gradients_are_finite_on_hard_rows(fitted, rows):
    z = rows[sane(rows.numpy())].clone().requires_grad_()
    p = fitted.to_torch()(z)
    p.max(dim=1).values.sum().backward()
    assert torch.isfinite(z.grad).all()
    assert (z.grad[torch.isinf(z)] == 0).all()
    assert z.grad.abs().sum() > 0


def test_state_dict_and_casts(fitted):
    module = fitted.to_torch()
    z = torch.from_numpy(fit_set()[0][:50]).float()
    p = module(z)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    other = fitted.to_torch()
    for tensor in other.buffers():
        tensor.zero_()
    other.load_state_dict(torch.load(buffer, weights_only=True))
    torch.testing.assert_close(other(z), p, rtol=0, atol=0)
    # A model cast as a whole keeps its calibrator exact.
    model = torch.nn.Sequential(torch.nn.Linear(4, M), module).to(torch.bfloat16)
    assert model(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert module.step0_steps.dtype == torch.float32
    torch.testing.assert_close(module.double().cpu()(z), p, rtol=0, atol=0)
    assert not list(module.parameters())


def test_under_autocast(fitted):
    z = torch.from_numpy(fit_set()[0][:50]).float()
    module = fitted.to_torch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = module(z)
    torch.testing.assert_close(p, module(z), rtol=0, atol=0)


def test_export(fitted, rows):
    module = fitted.to_torch()
    batch = torch.export.Dim("batch", max=10**6)
    program = torch.export.export(module, (rows[:3],), dynamic_shapes=({0: batch},))
    # The module runs the same operations of torch where a gradient is asked for, and numpy's where none is.
    same = module(rows.clone().requires_grad_()).detach()
    torch.testing.assert_close(program.module()(rows), same, rtol=0, atol=0)
    torch.testing.assert_close(same, module(rows), rtol=4e-6, atol=5e-7)
    assert program.module()(rows[:0]).shape == (0, M)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.export.load(buffer).module()(rows), same, rtol=0, atol=0)


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
    compiled = torch.compile(module, fullgraph=True)
    z = rows[sane(rows.numpy())].to(torch.bfloat16)
    p = compiled(z)
    torch.testing.assert_close(p, module(z))
    assert_order_kept(numpy(z), numpy(p))


def test_probabilities_smaller_than_the_type_can_hold():
    onnxruntime = pytest.importorskip("onnxruntime")
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
    got = cal.to_torch()(torch.from_numpy(z).float().reshape(3, -1, M)).reshape(-1, M)
    np.testing.assert_allclose(got, cal.predict_proba(z), atol=2e-6)


def test_logits_processor(fitted, rows):
    process = LogitsProcessor(fitted)
    z = rows[sane(rows.numpy())]
    scores = process(torch.zeros(len(z), 1, dtype=torch.long), z)
    assert (torch.isinf(scores) == torch.isinf(z)).all()
    np.testing.assert_allclose(scores.exp(), fitted.to_torch()(z), atol=2e-6)
    assert_order_kept(z, scores)
    # Log-probabilities, as beam search gives them, and logits are the same to it.
    torch.testing.assert_close(process(None, z.log_softmax(-1))[:40], scores[:40], rtol=1e-4, atol=1e-4)
    assert process(None, z[0]).shape == (M,)


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
