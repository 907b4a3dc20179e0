"""What all methods to compare with have in common: weights are repeats, and what they do not promise."""

import numpy as np
import pytest

import monocal as mc
from hostile import calibration_set, hard_rows

REORDER = [
    mc.HistogramBinning(),
    mc.HistogramBinning(strategy="mass"),
    mc.BayesianBinning(),
    mc.ScalingBinning(),
    mc.ScalingBinning(scaling="temperature"),
    mc.IsotonicCalibration(mode="one_vs_rest"),
    mc.SplineCalibration(),
    mc.VectorScaling(tol=1e-8),
    mc.MatrixScaling(tol=1e-8),
    mc.DirichletCalibration(tol=1e-8),
]


@pytest.mark.parametrize("cal", [*REORDER, mc.IsotonicCalibration()], ids=repr)
def test_weights_are_repeats(cal):
    z, y = calibration_set(4, n=200)
    w = np.arange(200) % 4
    a = cal.fit(z, y, sample_weight=w).predict_proba(z)
    b = cal.fit(np.repeat(z, w, axis=0), np.repeat(y, w)).predict_proba(z)
    np.testing.assert_allclose(a, b, atol=1e-6 if hasattr(cal, "tol") else 1e-9)


@pytest.mark.parametrize("cal", REORDER, ids=repr)
def test_order_is_not_promised_and_not_kept(cal):
    z, y = calibration_set(5, n=400)
    y[:300] = z.argsort(axis=1)[:300, -2]  # the second is usually right
    y[z.argmax(axis=1) == 2] = 2
    cal.fit(z, y)
    assert not cal.preserves_order
    assert not cal.preserves_top1
    rows = hard_rows(5)[:200]
    p = cal.predict_proba(rows)
    assert (p.argmax(axis=1) != rows.argmax(axis=1)).any()
    np.testing.assert_array_equal(cal.predict(rows), p.argmax(axis=1))
