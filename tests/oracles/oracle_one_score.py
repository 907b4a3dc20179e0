"""Calibrators of one score against betacal and venn-abers; see run.sh."""

from __future__ import annotations

import numpy as np
import pytest
from betacal import BetaCalibration
from scipy.special import expit
from venn_abers import VennAbers

import monocal as mc


@pytest.fixture(params=range(4))
def case(request):
    """Probabilities and labels of 600 rows, some of them tied, and new probabilities."""
    rng = np.random.default_rng(request.param)
    s = 2 * rng.normal(size=600)
    return np.round(expit(s), 2 + request.param), (rng.random(600) < expit(1.5 * s - 1)).astype(int)


def test_beta_calibration(case):
    p, y = case
    new = np.linspace(0.01, 0.99, 99)
    theirs = BetaCalibration(parameters="abm").fit(np.clip(p, 1e-6, 1 - 1e-6)[:, None], y).predict(new)
    ours = mc.BetaCalibration().fit(p, y).predict_proba(new)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_venn_abers(case):
    p, y = case
    new = np.append(np.linspace(0.001, 0.999, 499), p[:100])
    theirs = VennAbers()
    theirs.fit(np.stack([1 - p, p], axis=1), y)
    probabilities, intervals = theirs.predict_proba(np.stack([1 - new, new], axis=1))
    ours = mc.VennAbers(input="probabilities").fit(p, y)
    np.testing.assert_allclose(np.stack(ours.predict_interval(new), axis=1), intervals, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(new), probabilities[:, 1], atol=1e-6)
