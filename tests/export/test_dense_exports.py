"""Exports along any axis of tensors of any number of axes: what `predict_proba` gives, in the shape given."""

from __future__ import annotations

from copy import copy
from functools import cache

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

M = 6
DATA = synthetic(240, M, seed=5)
LEADS = [(240,), (12, 20), (4, 6, 10)]  # 2, 3 and 4 axes
METHODS = {
    "temperature": mc.TemperatureScaling,
    "mcct": lambda: mc.MCCT(shrinkage=0),
    "conditional": lambda: mc.ConditionalMCCT(shrinkage=0.1),
    "probabilities": lambda: mc.MCCT(shrinkage=0, input="probabilities", top_k=3),
}


@cache
def fitted(name):
    cal = METHODS[name]()
    return cal.fit(rows_for(cal), DATA.labels)


def rows_for(cal):
    z = DATA.values.astype(np.float64)
    if cal.input == "logits":
        return z
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def places(cal, lead, axis):
    return np.ascontiguousarray(np.moveaxis(rows_for(cal).reshape(*lead, M), -1, axis))


def run(model, X, **more):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X, **more})[0]


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("name", METHODS)
def test_along_any_axis_of_any_number_of_axes(name, axis):
    torch = pytest.importorskip("torch")
    cal = copy(fitted(name)).set_params(class_axis=axis)
    module = cal.to_torch(dtype=torch.float64)
    for lead in LEADS:
        X = places(cal, lead, axis)
        x, expected = torch.as_tensor(X), cal.predict_proba(X)
        for method in (module, module.transform, module.log_probabilities):
            assert method(x).shape == X.shape
        model = cal.to_onnx(dtype="float64", ndim=X.ndim)
        assert model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value == M
        for result in (run(model, X), module(x)):
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)
    if axis == 1:
        torch.testing.assert_close(torch.compile(module, backend="eager", fullgraph=True)(x), module(x))


def test_context_of_places():
    site = (np.arange(24) % 3).reshape(4, 6)
    cal = mc.ConditionalMCCT(class_axis=1)
    X = places(cal, (4, 6, 10), 1)
    cal.fit(X, DATA.labels.reshape(4, 6, 10), context={"site": site})
    codes = cal.context_.codes({"site": np.repeat(site.ravel(), 10)}).reshape(4, 6, 10, 1)
    expected = cal.predict_proba(X, context={"site": site})
    result = run(cal.to_onnx(dtype="float64", ndim=4), X, context=codes)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_at_the_end_of_a_network_of_images():
    """Behind a softmax over axis 1 as well, whose input it takes."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    cal = copy(fitted("mcct")).set_params(class_axis=1)
    X = places(cal, (4, 6, 10), 1).astype(np.float32)

    def network(node, axis):
        nodes = [helper.make_node("Identity", ["x"], ["logits"])]
        nodes.append(helper.make_node(node, ["logits"], ["scores"], **({"axis": axis} if axis else {})))
        value = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", M, "h", "w"])
            for name in ("x", "scores")
        ]
        graph = helper.make_graph(nodes, "network", value[:1], value[1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    for base in (network("Identity", None), network("Softmax", 1), network("Softmax", -3)):
        model = cal.to_onnx(append_to=base)
        onnx.checker.check_model(model, full_check=True)
        np.testing.assert_allclose(run(model, X), cal.predict_proba(X), rtol=0, atol=1e-6)
    with pytest.raises(mc.InputError, match="holds probabilities"):
        cal.to_onnx(append_to=network("Softmax", 3))
    with pytest.raises(mc.InputError, match="has 4 axes, but the calibrator has class_axis=4"):
        copy(cal).set_params(class_axis=4).to_onnx(append_to=network("Identity", None))
    with pytest.raises(mc.InputError, match="ndim is for a graph alone"):
        cal.to_onnx(append_to=network("Identity", None), ndim=4)


def test_a_state_knows_its_axis():
    pytest.importorskip("torch")
    from monocal.export import from_state_dict

    state = copy(fitted("mcct")).set_params(class_axis=1).to_torch().state_dict()
    assert from_state_dict(state).class_axis == 1
    module = fitted("mcct").to_torch()
    module.load_state_dict(state)
    assert module.class_axis == 1


@pytest.mark.parametrize(
    ("axis", "ndim", "words"),
    [
        (1, None, "say how many axes"),
        (2, 2, "2 is no number of axes"),
        (1, 1, "1 is no number of axes"),
        (-1, "all", "'all' is no number of axes"),
    ],
)
def test_what_does_not_fit_is_refused(axis, ndim, words):
    pytest.importorskip("onnx")
    with pytest.raises(mc.InputError, match=words):
        copy(fitted("temperature")).set_params(class_axis=axis).to_onnx(ndim=ndim)
