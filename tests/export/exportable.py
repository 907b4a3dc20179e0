"""Fitted calibrators of every kind that can be exported, and rows to try them on."""

from functools import cache

import numpy as np

import monocal as mc
from hostile import calibration_set, hard_rows, narrow
from monocal.calibrators import ConditionalMCCT

M = 7

# Small shrinkage: many jumps in weight and bias.
KINDS = {
    "temperature": mc.TemperatureScaling(),
    "mcct": mc.MCCT(shrinkage=0),
    "inverse": mc.MCCTInverse(shrinkage=0.1),
    "top 3": mc.MCCT(top_k=3, shrinkage=0),
    "top 1": mc.MCCT(top_k=1, shrinkage=0),
    "conditional": ConditionalMCCT(statistics=("margin", "mean_gap", "spread"), shrinkage=0.1, n_knots=3),
    "conditional top 3": ConditionalMCCT(
        statistics=("margin", "mean_gap", "entropy", "log_odds"), n_knots=2, shrinkage=0.1, top_k=3
    ),
    "conditional top 1": ConditionalMCCT(statistics=("margin", "log_odds"), shrinkage=0.1, top_k=1),
}


def fit_set():
    """Logits whose errors depend on rank and margin, so that every kind of step is fitted; some classes masked, some tied."""
    z, y = calibration_set(M, n=600)
    rng = np.random.default_rng(3)
    z = z + 2.0 * (z == z.max(axis=1, keepdims=True)) * rng.uniform(size=(len(z), 1))
    z[::5] = np.round(z[::5])
    rows = np.arange(0, len(z), 7)
    hidden = (y[rows] + 1 + rng.integers(0, M - 1, size=len(rows))) % M
    z[rows, hidden] = -np.inf
    return z, y


@cache
def fitted_kind(name):
    return KINDS[name].fit(*fit_set())


@cache
def hostile_rows():
    """float32 rows of every unpleasant kind, with and without masks, down to one available class a row."""
    plain = narrow(hard_rows(M), np.float32)
    rng = np.random.default_rng(5)
    masked = np.where(rng.uniform(size=plain.shape) < 0.4, np.float32(-np.inf), plain)
    masked[:, 2] = plain[:, 2]
    masked[:20] = -np.inf
    masked[:20, 4] = plain[:20, 4]
    return np.concatenate([plain, masked])


def sane(rows):
    """Rows whose logits mean something: a difference of 1e30 is only about order."""
    return np.abs(np.where(np.isinf(rows), 0, rows)).max(axis=1) < 100
