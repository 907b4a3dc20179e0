"""Every statistic is the same in numpy, in the torch module and in ONNX: one table, `STATISTICS`, times three."""

import numpy as np
import pytest
import torch
from exportable import M, fit_set, hostile_rows, sane

import monocal as mc
from monocal.calibration.statistics import STATISTICS

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("top_k", [None, 1, 3])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_is_the_same_everywhere(name, top_k):
    cal = mc.ConditionalMCCT(statistics=(name,), shrinkage=0.01, n_knots=4, top_k=top_k).fit(*fit_set())
    rows = hostile_rows()
    rows = rows[sane(rows)]
    expected = cal.predict_proba(rows.astype(np.float64))
    module = cal.to_torch()
    with torch.no_grad():
        by_torch = module(torch.from_numpy(rows)).numpy()
    session = ort.InferenceSession(cal.to_onnx().SerializeToString())
    by_onnx = session.run(None, {session.get_inputs()[0].name: rows})[0]
    assert expected.shape == (len(rows), M)
    np.testing.assert_allclose(by_torch, expected, atol=1e-5, err_msg="torch")
    np.testing.assert_allclose(by_onnx, expected, atol=1e-5, err_msg="ONNX")
    # With any other statistic in its place the result is another, so the comparison does see the statistic.
    for other in STATISTICS.keys() - {name}:
        module.statistics = (other,)
        with torch.no_grad():
            assert np.abs(module(torch.from_numpy(rows)).numpy() - expected).max() > 1e-3, other
