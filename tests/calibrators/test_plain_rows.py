"""Predictions in array operations of numpy: whatever the layout of the rows, and however the processor rounds next to nothing."""

import numpy as np
import pytest

import monocal as mc
from hostile import assert_order_kept
from monocal.data import synthetic

METHODS = [mc.TemperatureScaling(), mc.MCCT(shrinkage=0), mc.MCCT(top_k=8), mc.ConditionalMCCT(shrinkage=1)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("cal", METHODS, ids=str)
def test_subnormal_numbers_may_be_taken_for_zero(cal, dtype):
    torch = pytest.importorskip("torch")
    data = synthetic(400, 10, seed=0)
    cal.fit(data.values, data.labels)
    rows = np.round(data.values).astype(dtype)
    expected = cal.predict_proba(rows)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        p, few, f = cal.predict_proba(rows), cal.predict_proba(rows[:5]), cal.transform(rows)
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_array_equal(p, expected)
    np.testing.assert_array_equal(few, expected[:5])
    assert_order_kept(rows, f)


@pytest.mark.parametrize("kind", ["float32", "float64", "tensor"])
@pytest.mark.parametrize("classes", [10, 70, 5000])
@pytest.mark.parametrize("cal", METHODS, ids=str)
def test_how_rows_lie_in_memory_changes_no_bit(cal, classes, kind):
    data = synthetic(60, classes, seed=0)
    cal.fit(data.values, data.labels)
    rows = np.asarray(data.values, dtype="float32" if kind == "tensor" else kind)
    by_column = np.asfortranarray(rows)
    if kind == "tensor":
        torch = pytest.importorskip("torch")
        rows, by_column = torch.tensor(rows), torch.tensor(np.ascontiguousarray(rows.T)).T
    for function in (cal.predict_proba, cal.transform):
        expected = np.asarray(function(rows))
        np.testing.assert_array_equal(np.asarray(function(by_column)), expected)
        np.testing.assert_array_equal(np.asarray(function(by_column[7:8])), expected[7:8])
