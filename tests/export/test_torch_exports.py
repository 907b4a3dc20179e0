"""The module through torch's own exporters, batches without rows included, and chains from their state alone."""

import io
import warnings

import numpy as np
import pytest
from exportable import KINDS, M, fit_set, fitted_kind, hostile_rows, sane

import monocal as mc
from hostile import assert_order_kept

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

from monocal.export import LogitsProcessor, attach, from_state_dict  # noqa: E402  needs torch


@pytest.fixture
def rows():
    return torch.from_numpy(hostile_rows())


def check(graph, module, rows):
    """A graph gives what the module gives, in order, for any number of rows."""
    session = onnxruntime.InferenceSession(graph)
    name = session.get_inputs()[0].name
    got = session.run(None, {name: rows.numpy()})[0]
    assert_order_kept(rows, got)
    ordinary = sane(rows.numpy())
    np.testing.assert_allclose(got[ordinary], module(rows)[ordinary], rtol=0, atol=2e-6)
    np.testing.assert_allclose(session.run(None, {name: rows[5:6].numpy()})[0], got[5:6], rtol=0, atol=1e-6)
    assert session.run(None, {name: rows[:0].numpy()})[0].shape == (0, M)


@pytest.mark.parametrize("kind", ["temperature", "mcct", "conditional", "conditional top 3"])
def test_traced_to_onnx(kind, rows):
    module, file = fitted_kind(kind).to_torch(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer exporter, and the tracer's own
        torch.onnx.export(
            module, (rows[:3],), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    check(file.getvalue(), module, rows)


def test_captured_to_onnx(rows):
    pytest.importorskip("onnxscript")
    module = fitted_kind("top 3").to_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module, (rows[:3],), dynamo=True, dynamic_shapes=({0: torch.export.Dim("n")},), verbose=False
        )
    check(program.model_proto.SerializeToString(), module, rows)


@pytest.mark.parametrize("input", ["logits", "probabilities"])
@pytest.mark.parametrize("kind", ["vector", "matrix", "structured", "shift"])
def test_a_chain_from_its_state_alone(kind, input):
    z, y = fit_set()
    z = np.nan_to_num(z, neginf=-30.0)
    if input == "probabilities":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    cal = {
        "vector": mc.StructuredScaling(kind="vector", input=input),
        "matrix": mc.StructuredScaling(kind="matrix", input=input),
        "structured": mc.StructuredMCCT(input=input),
        "shift": mc.LabelShift(mc.MCCT(), input=input, prior=np.arange(1, M + 1) / (M * (M + 1) / 2)),
    }[kind].fit(z, y)
    module = cal.to_torch()
    model = torch.nn.Sequential(torch.nn.Identity(), module)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = from_state_dict(torch.load(file, weights_only=True), prefix="1.")
    x = torch.from_numpy(z).float()
    assert torch.equal(again(x), module(x))
    assert torch.equal(again.transform(x), module.transform(x))
    assert type(again) is type(module)


def test_a_model_with_a_calibrator_attached(rows):
    cal = fitted_kind("mcct")
    model = torch.nn.Sequential(torch.nn.Identity())
    handle = attach(model, cal)
    assert torch.equal(model(rows), cal.to_torch().transform(rows))
    with pytest.raises(mc.InputError, match="has a calibrator already"):
        attach(model, cal)
    handle.remove()
    assert torch.equal(model(rows), rows)

    class Pair(torch.nn.Module):
        def forward(self, x):
            return x, x

    pair = Pair()
    attach(pair, cal)
    with pytest.raises(mc.InputError, match="returned tuple, expected a tensor of logits"):
        pair(rows)
    p = np.full((4, 2), 0.5)
    with pytest.raises(mc.InputError, match="fitted on probabilities, but models give logits"):
        attach(model, mc.TemperatureScaling(input="probabilities").fit(p, [0, 1, 0, 1]))
    data = mc.data.synthetic(200, 3)
    with_context = mc.ConditionalMCCT().fit(data.values, data.labels, context=np.arange(200) % 2)
    for wrap in (lambda cal: attach(model, cal), LogitsProcessor):
        with pytest.raises(mc.InputError, match="fitted with context, which a model does not give"):
            wrap(with_context)


CHAINS = {
    "matrix": mc.StructuredScaling(),
    "structured": mc.StructuredMCCT(),
    "shift": mc.LabelShift(mc.MCCT(), prior=np.arange(1, M + 1) / (M * (M + 1) / 2)),
}


def every_module():
    z, y = fit_set()
    yield from (fitted_kind(kind).to_torch() for kind in KINDS)
    yield from (cal.fit(z, y).to_torch() for cal in CHAINS.values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that tracing is old
def test_traced_by_jit_and_not_scripted(rows):
    for module in every_module():
        traced = torch.jit.trace(module, (rows[:3],))
        ordinary = rows[sane(rows.numpy())]
        torch.testing.assert_close(traced(ordinary), module(ordinary), rtol=0, atol=2e-6)
        for whole in (module, torch.nn.Sequential(torch.nn.Identity(), module)):
            with pytest.raises(mc.InputError, match=r"torch.jit.script cannot compile.*torch.jit.trace"):
                torch.jit.script(whole)


def test_every_kind_compiled_in_one_process(rows):
    """Each module has code of its own, so that none uses up the recompilations of another."""
    torch._dynamo.reset()
    for module in every_module():
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        for x in (rows[:5], rows[:6].double()):
            torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=2e-6)
