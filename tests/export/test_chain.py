"""Calibrators of several steps, exported: the graph and the module give what `predict_proba` gives."""

import numpy as np
import pytest
from exportable import M, fit_set, hostile_rows, sane

import monocal as mc

PRIOR = np.arange(1.0, M + 1) / np.arange(1.0, M + 1).sum()
KINDS = {
    "matrix": mc.StructuredScaling(shrinkage=0.1),
    "only a temperature": mc.StructuredScaling(shrinkage=np.inf),
    "stacked": mc.Stacked([mc.StructuredScaling(shrinkage=0.1), mc.MCCT(shrinkage=0.1)]),
    "recommended": mc.StructuredMCCT(shrinkage=1.0),
    "plain vector": mc.VectorScaling(),
    "Dirichlet": mc.DirichletCalibration(),
    "prior": mc.LabelShift(mc.ConditionalMCCT(), prior=PRIOR),
}


@pytest.fixture(scope="module", params=KINDS, ids=str)
def calibrator(request):
    return KINDS[request.param].fit(*fit_set())


def rows():
    result = hostile_rows()
    return result[sane(result)]


def check(calibrator, z, probabilities, logits):
    np.testing.assert_allclose(probabilities, calibrator.predict_proba(z), atol=2e-5)
    expected = calibrator.transform(z)
    masked = np.isinf(z)
    assert (logits[masked] == -np.inf).all()
    drop = [np.where(masked, 0.0, f - f.max(axis=1, keepdims=True)) for f in (logits, expected)]
    np.testing.assert_allclose(*drop, rtol=1e-3, atol=1e-3)


def test_graph_and_module(calibrator):
    onnxruntime, torch = pytest.importorskip("onnxruntime"), pytest.importorskip("torch")
    z = rows()
    arrays = []
    for kind in ("probabilities", "logits"):
        session = onnxruntime.InferenceSession(calibrator.to_onnx(output=kind).SerializeToString())
        arrays += session.run(None, {"logits": z})
    check(calibrator, z, *arrays)
    module = calibrator.to_torch()
    check(calibrator, z, module(torch.from_numpy(z)).numpy(), module.transform(torch.from_numpy(z)).numpy())
    half = torch.from_numpy(z[:20]).half()
    same = module(half)
    torch.testing.assert_close(module.half()(half), same, rtol=0, atol=0)


def test_gradients_reach_the_logits(calibrator):
    torch = pytest.importorskip("torch")
    z = torch.tensor([[0.3, -0.2, 1.0, 0.0, -torch.inf, 2.0, 0.5]], requires_grad=True)
    calibrator.to_torch().log_probabilities(z)[0, 2].backward()
    assert torch.isfinite(z.grad).all()
    assert z.grad.abs().max() > 0.01


def test_probabilities_as_input():
    onnxruntime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    z, y = fit_set()
    p = mc.TemperatureScaling().fit(z, y).predict_proba(z).astype(np.float32)
    calibrator = mc.StructuredMCCT(shrinkage=1.0, input="probabilities").fit(p, y)
    session = onnxruntime.InferenceSession(calibrator.to_onnx().SerializeToString())
    (result,) = session.run(None, {"probabilities": p})
    np.testing.assert_allclose(result, calibrator.predict_proba(p), atol=2e-5)
    np.testing.assert_allclose(calibrator.to_torch()(torch.from_numpy(p)), result, atol=2e-5)


def test_stages_that_cannot_be_exported_are_named():
    z, y = fit_set()
    stacked = mc.Stacked([mc.HistogramBinning(), mc.MCCT()]).fit(z, y)
    with pytest.raises(mc.InputError, match="HistogramBinning cannot be exported"):
        stacked.to_onnx()
