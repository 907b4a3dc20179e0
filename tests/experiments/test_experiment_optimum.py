"""Going on from where the published procedure stopped reaches the optimum of its own objective."""

import warnings

import numpy as np
import pytest
from scipy.special import log_softmax

import monocal as mc
from experiments.optimum import continued_nll
from monocal.data import synthetic


def fit(which, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return which.as_published(**options).fit(data.values, data.labels)


@pytest.mark.parametrize("top_k", [None, 6])
def test_both_forms_lead_to_one_value(top_k):
    data = synthetic(600, 15, seed=4)
    one, other = (fit(which, data, top_k=top_k) for which in (mc.MCCT, mc.MCCTInverse))
    ends = [continued_nll(data.values, data.labels, c.weights_, c.biases_) for c in (one, other)]
    for calibrator, (stopped, lowest) in zip((one, other), ends, strict=True):
        assert stopped == pytest.approx(calibrator.solution_.objective, abs=1e-9)
        assert lowest <= stopped
    assert ends[0][1] == pytest.approx(ends[1][1], abs=1e-7)


def test_value_is_the_nll_of_the_map_and_the_optimum_is_long_slsqp_s():
    data = synthetic(500, 8, seed=2)
    short = fit(mc.MCCT, data).set_params(max_iter=5)
    long = fit(mc.MCCT, data).set_params(max_iter=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short.fit(data.values, data.labels)
        long.fit(data.values, data.labels)
    stopped, lowest = continued_nll(data.values, data.labels, short.weights_, short.biases_)
    log_p = log_softmax(short.transform(data.values.astype(np.float64)), axis=1)
    assert stopped == pytest.approx(-log_p[np.arange(500), data.labels].mean(), abs=1e-6)
    assert stopped > lowest + 1e-5
    assert lowest == pytest.approx(long.solution_.objective, abs=1e-6)
