"""ONNX: the same probabilities in onnxruntime (and torch), the same order on anything, one call behind a classifier."""

import numpy as np
import pytest
from exportable import KINDS, M, fit_set, fitted_kind, hostile_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import monocal as mc
from hostile import assert_order_kept, calibration_set
from monocal.calibrators import ConditionalMCCT

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
helper = onnx.helper

SHARED = [
    "imagenet5k_efficientnet_lite0",
    "netcal_cifar100_densenet-bc-100",
    "netcal_cifar10_lenet-5",
    "nncal_cifar10_densenet40",
    "sctl_cifar10LT_densenet40",
    "toplabel_cifar100_densenet121_brier",
    "toplabel_cifar100_wide_resnet_brier",
    "toplabel_cifar10_resnet50_brier",
    "toplabel_cifar10_wide_resnet_flsd53",
]


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options)


def run(model, x):
    s = session(model)
    return s.run(None, {s.get_inputs()[0].name: x})[0]


def classifier(m=M, opset=17, dtype=np.float32, output="scores", extra=True):
    """x (n, 4) -> scores = x W, and another output of integers."""
    rng = np.random.default_rng(8)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = onnx.numpy_helper.from_array(rng.normal(size=(4, m)).astype(dtype) * 2, "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], [output])]
    outputs = [helper.make_tensor_value_info(output, kind, ["n", m])]
    if extra:
        nodes.append(helper.make_node("ArgMax", [output], ["label"], axis=1, keepdims=0))
        outputs.insert(0, helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]))
    graph = helper.make_graph(
        nodes, "classifier", [helper.make_tensor_value_info("x", kind, ["n", 4])], outputs, [weights]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("name", SHARED)
def test_parity_on_real_logits(name, shared_logits):
    data = shared_logits(name)
    for cal in (mc.TemperatureScaling(), mc.MCCT(top_k=5), ConditionalMCCT()):
        cal.fit(data.logits_val, data.y_val)
        expected = cal.predict_proba(data.logits_test)
        p = run(cal.to_onnx(), data.logits_test)
        assert p.dtype == np.float32
        np.testing.assert_allclose(p, expected, rtol=0, atol=1e-6)
        assert_order_kept(data.logits_test, p)
        p = cal.to_torch()(torch.from_numpy(data.logits_test))
        np.testing.assert_allclose(p, expected, rtol=0, atol=2e-6)
        assert_order_kept(data.logits_test, p)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_ties_in_double_precision_wherever_they_stand(kind):
    """A runtime takes the last of an odd number of doubles by another exp or log than the others."""
    data = mc.data.synthetic(2000, M)
    values = data.values if kind == "logits" else data.truth
    cal = mc.MCCT(shrinkage=0, input=kind).fit(values, data.labels)
    one = session(cal.to_onnx(dtype="float64"))
    rng = np.random.default_rng(0)
    for _ in range(100):
        row = rng.dirichlet(np.ones(M - 1))
        row[-1:] /= 2  # stands twice
        row = np.append(row, row[-1])[None]
        row = np.log(row) if kind == "logits" else row
        p = one.run(None, {one.get_inputs()[0].name: row})[0]
        assert p[0, -1] == p[0, -2]
        np.testing.assert_allclose(p, cal.predict_proba(row), atol=1e-12)


@pytest.fixture(scope="module")
def sessions():
    data = fit_set()
    calibrators = [mc.MCCT(shrinkage=0), mc.MCCT(shrinkage=0, top_k=4), ConditionalMCCT(shrinkage=0.1)]
    return [session(c.fit(*data).to_onnx()) for c in calibrators]


@settings(max_examples=150, deadline=None)
@given(
    z=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.just(M)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
        | st.sampled_from([0.0, 1.0, -1.0, 2.5]),
    )
)
def test_order_is_kept_whatever_comes(sessions, z):
    for s in sessions:
        assert_order_kept(z, s.run(None, {"logits": z})[0])


def test_probabilities_with_zeros():
    z, y = calibration_set(5)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True)).astype(np.float32)
    zeroed = np.where((p < 1e-3) & (np.arange(5) != y[:, None]), 0, p)
    zeroed /= zeroed.sum(axis=1, keepdims=True)
    cal = mc.MCCT(input="probabilities").fit(zeroed, y)
    hard = np.concatenate([zeroed, np.eye(5, dtype=np.float32), [[1, 1e-45, 0, 0, 1e-45]]]).astype(np.float32)
    model = cal.to_onnx()
    assert [v.name for v in model.graph.input] == ["probabilities"]
    assert [v.name for v in model.graph.output] == ["calibrated_probabilities"]
    got = run(model, hard)
    np.testing.assert_allclose(got, cal.predict_proba(hard), rtol=0, atol=1e-6)
    assert_order_kept(hard, got)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_is_standard_and_of_any_batch_size(kind):
    """Parity and order on hard rows: tests/test_row_independence.py, for every method and export."""
    model, z = fitted_kind(kind).to_onnx(), hostile_rows()
    assert {node.domain for node in model.graph.node} == {""}
    assert [o.version for o in model.opset_import if o.domain == ""] == [17]
    one = session(model)
    assert one.get_inputs()[0].shape == ["batch", M]
    p = one.run(None, {"logits": z})[0]
    np.testing.assert_array_equal(one.run(None, {"logits": z[:1]})[0], p[:1])
    assert one.run(None, {"logits": z[:0]})[0].shape == (0, M)
    assert (p[np.isinf(z)] == 0).all()


@pytest.mark.parametrize(
    ("opset", "dtype"),
    [
        (11, np.float32),
        (17, np.float32),
        (18, np.float64),
        (21, np.float32),
        (17, np.float16),
    ],
)
def test_append_to_a_classifier(opset, dtype, tmp_path):
    base = classifier(opset=opset, dtype=dtype)
    before = base.SerializeToString()
    cal = ConditionalMCCT(shrinkage=0.1).fit(*fit_set())
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(dtype)
    onnx.save(base, tmp_path / "base.onnx")
    model = cal.to_onnx(tmp_path / "calibrated.onnx", append_to=tmp_path / "base.onnx")
    assert base.SerializeToString() == before
    assert [o.name for o in model.graph.output] == ["label", "probabilities"]
    scores = dict(zip(("label", "scores"), session(base).run(None, {"x": x}), strict=True))
    s = ort.InferenceSession(tmp_path / "calibrated.onnx")
    label, p = s.run(None, {"x": x})
    np.testing.assert_array_equal(label, scores["label"])
    expected = cal.predict_proba(scores["scores"].astype(p.dtype))
    assert p.dtype == (np.float64 if dtype == np.float64 else np.float32)
    # onnxruntime computes a half-precision product in float32 and hands it on unrounded.
    half = dtype == np.float16
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-2 if half else 1e-6)
    if not half:
        assert_order_kept(scores["scores"], p)


def test_append_keeps_leading_axes_and_names_do_not_clash():
    base = classifier(output="logits", extra=False)
    cal = mc.MCCT(shrinkage=0).fit(*fit_set())
    once = cal.to_onnx(append_to=base, output="logits")
    assert [o.name for o in once.graph.output] == ["calibrated_logits"]
    twice = cal.to_onnx(append_to=once)
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_allclose(run(twice, x), cal.predict_proba(run(once, x)), atol=1e-6)
    tokens = classifier(extra=False)
    for value in (tokens.graph.input[0], tokens.graph.output[0]):
        value.type.tensor_type.shape.dim.insert(1, onnx.TensorShapeProto.Dimension(dim_param="t"))
    x = x.reshape(4, 5, 4)
    p = run(cal.to_onnx(append_to=tokens), x)
    np.testing.assert_allclose(p.reshape(20, M), cal.predict_proba(run(tokens, x).reshape(20, M)), atol=1e-6)


def test_refusals(tmp_path):
    data = fit_set()
    cal = mc.MCCT().fit(*data)
    with pytest.raises(mc.InputError, match="has 5 columns, but the calibrator was fitted on 7"):
        cal.to_onnx(append_to=classifier(m=5))
    with pytest.raises(mc.InputError, match="no output 'nothing'; it has 'label', 'scores'"):
        cal.to_onnx(append_to=classifier(), tensor="nothing")
    with pytest.raises(mc.InputError, match="none of the outputs 'label' is a floating-point tensor"):
        cal.to_onnx(append_to=classifier(), tensor="label")
    both = classifier(extra=False)
    both.graph.output.append(helper.make_tensor_value_info("W", onnx.TensorProto.FLOAT, [4, M]))
    with pytest.raises(mc.InputError, match="'scores', 'W' are all floating-point; say which one"):
        cal.to_onnx(append_to=both)
    with pytest.raises(mc.InputError, match="no file"):
        cal.to_onnx(append_to=tmp_path / "missing.onnx")
    (tmp_path / "bad.onnx").write_text("not a model")
    with pytest.raises(mc.InputError, match="cannot be read as an ONNX model"):
        cal.to_onnx(append_to=tmp_path / "bad.onnx")
    with pytest.raises(mc.InputError, match="output must be one of"):
        cal.to_onnx(output="both")
    with pytest.raises(mc.InputError, match=r"EnsembleTemperatureScaling cannot be exported. These can"):
        mc.EnsembleTemperatureScaling().fit(np.nan_to_num(data[0], neginf=-9), data[1]).to_onnx()
    with pytest.raises(mc.InputError, match="a Python function, which ONNX cannot hold"):
        ConditionalMCCT(statistics=lambda u: u[:, -1]).fit(*data).to_onnx()
    cal.to_onnx(tmp_path / "cal.onnx")
    with pytest.raises(mc.InputError, match="exists"):
        cal.to_onnx(tmp_path / "cal.onnx")
    cal.to_onnx(tmp_path / "cal.onnx", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx", "cal.onnx"]
