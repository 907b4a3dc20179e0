"""Statistics that say nothing, or nothing exact: the order stands and results are finite, in every form and export."""

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import monocal as mc
from every_form import (
    EXPORTS,
    M,
    as_graph,
    assert_sound,
    calibration_rows,
    double,
    in_batch_and_alone,
    in_form,
)
from hostile import mixed_rows
from monocal.core.statistics import Ramp

torch = pytest.importorskip("torch")


def _counted(u):
    return (u[:, -1] > 5) * 1.0


STRANGE_STATISTICS = {
    "constant": lambda u: 0 * u[:, -1] + 3.0,
    "offset of 1e8": lambda u: 1e8 + u[:, -1] / 5,
    "offset of 1e12": lambda u: 1e12 + u[:, -1],
    "nearly constant": lambda u: 1.0 + 1e-9 * u[:, -1],
    "of two values": _counted,
    "of two values that are one in single precision": lambda u: 1.0 + 1e-9 * _counted(u),
    "tiny": lambda u: 1e-300 * u[:, -1].astype(np.float64),
    "subnormal in single precision": lambda u: 1e-42 * u[:, -1].astype(np.float64),
    "huge": lambda u: 1e29 * u[:, -1],
    "infinite": lambda u: np.where(u[:, -1] > 5, np.inf, -np.inf),
    "entropy of certain rows": "entropy",
}


@pytest.mark.parametrize("name", STRANGE_STATISTICS)
def test_how_wrong_a_statistic_is_cannot_matter(name):
    z, y = calibration_rows(M)
    z = z * 5
    cal = mc.ConditionalMCCT(shrinkage=0.1, statistics=(STRANGE_STATISTICS[name], "margin")).fit(z, y)
    for dtype in (np.float64, np.float32, np.float16):
        for batch in (mixed_rows(M, seed=3), z):
            rows = in_form(batch, dtype)
            for method in ("predict_proba", "transform"):
                assert_sound(rows, double(getattr(cal, method)(rows)), method)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_standardised_logits(dtype, shared_logits):
    """Their spread is 1, give or take a rounding error, and that is no reason to tell rows apart."""
    data = shared_logits("netcal_cifar100_densenet-bc-100")
    z = data.logits_val.astype(np.float64)
    z = ((z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)).astype(dtype)
    cal = mc.ConditionalMCCT().fit(z[:1500], data.y_val[:1500])
    rows = z[3000:3400]
    p = cal.predict_proba(rows)
    assert_sound(rows, double(p), "predict_proba")
    if dtype != np.float16:
        assert not any(cal.factors_.statistics[ramp.statistic] == "spread" for ramp in cal.factors_.ramps)
    single = rows.astype(np.float32)
    expected = cal.predict_proba(single.astype(np.float64))
    for other in (cal.predict_proba, as_graph("float32")(cal, "predict_proba")):
        np.testing.assert_allclose(other(single), expected, atol=1e-5)
    np.testing.assert_allclose(cal.to_torch()(torch.as_tensor(single)), expected, atol=1e-5)


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("apart", [0.0, -1e-12])
def test_a_ramp_between_ends_that_are_one_number_is_a_step(apart, export):
    """As a file of an older version may hold it."""
    cal = copy(cal_of_spread())
    factors = cal.rank_map_.factors
    steps = tuple(replace(ramp, one=ramp.zero + apart) for ramp in factors.ramps)
    zero = Ramp(0, 0.0, 0.0 + apart)  # where a constant row lies exactly
    cal.rank_map_ = replace(cal.rank_map_, factors=replace(factors, ramps=(zero, *steps[1:])))
    make, dtype = EXPORTS[export]
    rows = in_form(mixed_rows(M, seed=7, each=1), dtype)
    for function in (cal.predict_proba, make(cal, "predict_proba")):
        batch, alone = in_batch_and_alone(function, rows)
        np.testing.assert_allclose(batch, alone, rtol=2e-6, atol=2e-6)
        assert_sound(rows, batch, "predict_proba")


@cache
def cal_of_spread():
    return mc.ConditionalMCCT(shrinkage=0.1, statistics=("spread",)).fit(*calibration_rows(M))
