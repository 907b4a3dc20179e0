"""The same input gives the same fit, bit for bit, and the same predictions."""

import numpy as np
import pytest
from sklearn.base import clone

import monocal as mc
from monocal.data import synthetic


@pytest.mark.parametrize(
    "cal", [mc.TemperatureScaling(), mc.MCCT(), mc.MCCT(top_k=5), mc.ConditionalMCCT()], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_fit_bit_for_bit(cal, dtype):
    data = synthetic(40_000, 20, seed=0)  # several blocks, so that threads could finish in any order
    z = data.values.astype(dtype)
    first, second = (clone(cal).fit(z, data.labels) for _ in range(2))
    np.testing.assert_array_equal(first.solution_.coefficients, second.solution_.coefficients)
    np.testing.assert_array_equal(first.predict_proba(z), second.predict_proba(z))
