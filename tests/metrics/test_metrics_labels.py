"""Metrics of many labels."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, log_loss

import monocal as mc

RNG = np.random.default_rng(0)
P = RNG.uniform(0.02, 0.9, size=(1500, 6))
Y = (RNG.random(P.shape) < P * [1, 1, 0.7, 1, 1, 1]).astype(int)
NAMES = ["a", "b", "c", "d", "e", "f"]
FRAME = pd.DataFrame(P, columns=NAMES)
RESULT = mc.metrics.evaluate_labels(P, Y, names=NAMES)


def test_each_label_is_that_of_scikit_learn():
    for i in range(6):
        assert RESULT.nll[i] == pytest.approx(log_loss(Y[:, i], P[:, i]))
        assert RESULT.brier[i] == pytest.approx(brier_score_loss(Y[:, i], P[:, i]))
    assert RESULT.macro["nll"] == pytest.approx(RESULT.nll.mean())
    assert RESULT.micro["nll"] == pytest.approx(log_loss(Y.ravel(), P.ravel()))


def test_the_label_that_is_off_is_named():
    assert RESULT.off == ("c",)
    assert RESULT.verdict.startswith("1 of 6 labels is off beyond chance; the worst is 'c'")
    assert str(RESULT).splitlines()[3].startswith("c ")
    assert json.loads(json.dumps(RESULT.to_dict()))["off"] == ["c"]


def test_calibrated_labels_are_seldom_off():
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.5, 5, size=(300, 8))
        alarms += bool(mc.metrics.evaluate_labels(p, rng.random(p.shape) < p, n_draws=199).off)
    assert alarms <= 5


def test_labels_that_are_not_known_and_names_of_frames():
    y = Y.astype(float)
    y[::2, 1] = np.nan
    y[:, 4] = -1
    result = mc.metrics.evaluate_labels(FRAME, y)
    assert result.names == tuple(NAMES)
    assert result.rows.tolist() == [1500, 750, 1500, 1500, 0, 1500]
    assert result.nll[1] == pytest.approx(log_loss(Y[1::2, 1], P[1::2, 1]))
    assert np.isnan(result.nll[4])
    assert np.isfinite(result.macro["nll"])


@pytest.mark.parametrize(
    ("p", "y", "keywords", "message"),
    [
        (P, Y[:, :3], {}, "a column for each label"),
        (P, Y + 1, {}, "expected 0, 1"),
        (P * 2, Y, {}, "between 0 and 1"),
        (FRAME, pd.DataFrame(Y, columns=NAMES[::-1]), {}, "another order"),
        (P, Y, {"names": ["a"]}, "expected 6"),
    ],
)
def test_what_is_refused(p, y, keywords, message):
    with pytest.raises(mc.InputError, match=message):
        mc.metrics.evaluate_labels(p, y, **keywords)
