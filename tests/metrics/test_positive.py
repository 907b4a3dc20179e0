"""Metrics of P(class 1) against scikit-learn, scipy and sums written out; forms of two-class input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import monocal as mc
from monocal import metrics as M


def draw(n=800, shift=0.7, slope=1.4, seed=0, digits=None):
    """P(class 1) whose log-odds are ``slope`` times the true ones, and moved by ``shift``."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.standard_normal(n) - 1
    p = expit(slope * z + shift)
    return p if digits is None else p.round(digits).clip(0.01, 0.99), (rng.random(n) < expit(z)).astype(int)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_agree_with_scikit_learn(weighted):
    p, y = draw(digits=2)  # with ties
    weight = np.random.default_rng(1).random(len(y)) if weighted else np.ones(len(y))
    w = {"sample_weight": weight}
    assert M.auc(p, y, **w) == pytest.approx(roc_auc_score(y, p, **w), abs=1e-12)
    assert M.positive_brier(p, y, **w) == pytest.approx(brier_score_loss(y, p, **w), abs=1e-12)
    assert M.nll(p, y, **w) == pytest.approx(log_loss(y, p, **w), abs=1e-12)
    cells = np.ceil(p * 15).clip(1) - 1
    gaps = [abs(weight[cells == k] @ (p - y)[cells == k]) for k in range(15)]
    assert M.positive_ece(p, y, **w) == pytest.approx(sum(gaps) / weight.sum(), abs=1e-12)
    expected = np.average(p, weights=weight) - np.average(y, weights=weight)
    assert M.calibration_in_the_large(p, y, **w) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_slope_and_intercept_are_logistic_regressions(weighted):
    p, y = draw()
    w = np.random.default_rng(1).random(len(y)) if weighted else np.ones(len(y))
    x = logit(p)
    joint = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x[:, None], y, sample_weight=w)
    assert M.calibration_slope(p, y, sample_weight=w) == pytest.approx(joint.coef_[0, 0], abs=1e-5)
    alone = minimize(lambda a: w @ (np.logaddexp(0, x + a[0]) - y * (x + a[0])), [0.0], tol=1e-12)
    assert M.calibration_intercept(p, y, sample_weight=w) == pytest.approx(alone.x[0], abs=1e-5)


def test_what_has_no_slope():
    assert M.calibration_slope([0.1, 0.2, 0.8], [0, 0, 1]) == np.inf
    assert M.calibration_slope([0.9, 0.7, 0.1], [0, 0, 1]) == -np.inf
    for metric in (M.auc, M.calibration_slope, M.calibration_intercept):
        assert np.isnan(metric([0.1, 0.2, 0.8], [0, 0, 0]))
    assert np.isnan(M.calibration_slope([0.3] * 4, [0, 1, 0, 0]))
    assert mc.evaluate([0.1, 0.2, 0.8], [0, 0, 1], n_boot=10)["calibration_slope"].low is None


def test_corp_by_isotonic_regression():
    p, y = draw(digits=2)
    w = np.random.default_rng(2).integers(1, 4, len(y)).astype(float)
    fitted = IsotonicRegression(out_of_bounds="clip").fit(p, y, sample_weight=w).predict(p)
    loss, recalibrated = (np.average((q - y) ** 2, weights=w) for q in (p, fitted))
    rate = np.average(y, weights=w)
    expected = loss - recalibrated, rate * (1 - rate) - recalibrated, rate * (1 - rate)
    parts = [metric(p, y, sample_weight=w) for metric in (M.mcb, M.dsc, M.unc)]
    assert parts == pytest.approx(expected, abs=1e-10)
    assert M.positive_brier(p, y, sample_weight=w) == pytest.approx(parts[0] - parts[1] + parts[2], abs=1e-10)


def test_the_integrated_index_is_the_gap_to_the_true_frequency():
    p, y = draw(40_000)
    gaps = np.abs(p - expit((logit(p) - 0.7) / 1.4))
    expected = [gaps.mean(), np.median(gaps), np.quantile(gaps, 0.9)]
    np.testing.assert_allclose([M.ici(p, y), M.e50(p, y), M.e90(p, y)], expected, atol=0.01)
    assert M.ici(*draw(40_000, shift=0, slope=1)) < 0.008


def test_the_interval_of_auc_is_that_of_delong():
    p, y = draw(300)
    ones, zeros = p[y == 1], p[y == 0]
    wins = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    error = np.sqrt(wins.mean(axis=1).var(ddof=1) / len(ones) + wins.mean(axis=0).var(ddof=1) / len(zeros))
    estimate = mc.evaluate(p, y, metrics="auc", n_boot=1)["auc"]
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * error, rel=0.05)  # Student


def test_forms_of_two_classes():
    p, y = draw(200)
    expected = mc.evaluate(np.column_stack([1 - p, p]), y).to_dict()
    words = np.where(y == 1, "sick", "healthy")
    for values in (p[:, None], p.tolist(), pd.Series(p), pd.DataFrame({"p": p}), torch.from_numpy(p)):
        assert mc.evaluate(values, y).to_dict() == expected
    for labels in (y == 1, 2 * y - 1, words, words.tolist(), pd.Series(words)):
        assert mc.evaluate(p, labels).to_dict() == expected
        assert mc.evaluate(np.column_stack([1 - p, p]), labels).to_dict() == expected
    three = np.full((4, 3), 1 / 3)
    assert mc.evaluate(three, ["a", "b", "c", "a"]).to_dict() == mc.evaluate(three, [0, 1, 2, 0]).to_dict()


@pytest.mark.parametrize(
    ("probs", "labels", "words"),
    [
        ([0.2, 1.3], [0, 1], r"one column must hold P\(class 1\).*row 1.*1.3.*sigmoid"),
        ([-2.0, 3.0], [0, 1], "row 0.*BinaryMCCT"),
        ([0.2, 0.3], ["no", "no"], "1 different names for 2 classes"),
        ([0.2, 0.3], [1, 2], "labels holds 2"),
        (np.full((2, 3), 1 / 3), [0, 1], "one of two, but there are 3.*classwise_ece"),
        (np.full((2, 3), 1 / 3), ["a", "b"], "2 different names for 3 classes.*number the classes"),
    ],
)
def test_refusals_say_what_to_do(probs, labels, words):
    with pytest.raises(mc.InputError, match=words):
        M.positive_ece(probs, labels)


@pytest.mark.parametrize("m", [2, 3, 6])
def test_the_six_that_matter_first(m):
    probs = np.random.default_rng(0).dirichlet(np.ones(m), 50)
    result = mc.evaluate(probs, np.arange(50) % m, n_boot=5)
    assert len(result.main.estimates) == 6
    assert ("top_k_accuracy" in result.estimates) == (m > 5)
    assert ("auc" in result.main.estimates) == (m == 2)
    assert result._repr_html_().count("<tr>") == 6
    assert list(mc.evaluate(probs, np.arange(50) % m, metrics="mce").main.estimates) == ["mce"]
