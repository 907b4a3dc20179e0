"""Histogram binning, BBQ, scaling-binning, isotonic and spline calibration, against plain loops and scikit-learn."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import betaln, softmax
from sklearn.isotonic import IsotonicRegression

import monocal as mc
from hostile import calibration_set, hard_rows
from monocal import metrics
from monocal.calibrators.binning import beta_bins
from monocal.edges import equal_mass_edges


@pytest.mark.parametrize("weighted", [False, True])
def test_histogram_is_the_frequency_in_the_bin(weighted):
    z, y = calibration_set(4, n=300)
    w = np.random.default_rng(0).random(300) + 0.1 if weighted else None
    cal = mc.HistogramBinning(bins=7).fit(z, y, sample_weight=w)
    p, w = softmax(z, axis=1), np.ones(300) if w is None else w
    expected = np.zeros_like(p)
    for k in range(4):
        for i in range(300):
            bin_of = np.ceil(p[:, k] * 7)
            same = bin_of == bin_of[i]
            expected[i, k] = (w * (y == k))[same].sum() / w[same].sum()
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cal.predict_proba(z), expected, atol=1e-12)


def test_equal_mass_edges():
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    np.testing.assert_allclose(equal_mass_edges(p, 3), [0.25, 0.45])
    np.testing.assert_allclose(equal_mass_edges(p, 3, np.array([2, 0.5, 0.5, 1, 1, 1])), [0.15, 0.45])
    np.testing.assert_allclose(equal_mass_edges(np.array([0.1, 0.5, 0.5, 0.5, 0.9]), 5), [0.3, 0.7])
    assert len(equal_mass_edges(np.full(9, 0.4), 5)) == 0
    near = np.array(
        [1.0, np.nextafter(1.0, 2.0)]
    )  # no number lies between: the edge must still separate them
    assert np.searchsorted(equal_mass_edges(near, 2), near).tolist() == [0, 1]
    # On the last value of a bin, and where the largest value outweighs a bin.
    assert equal_mass_edges(p, 3, between=False).tolist() == [0.2, 0.4]
    heavy = np.array([1, 1, 1, 1, 1, 100])
    assert len(equal_mass_edges(p, 3, heavy)) == 0
    np.testing.assert_allclose(equal_mass_edges(p, 3, heavy, own_last=True), [0.55])


def test_bbq_against_its_formula():
    z, y = calibration_set(2, n=60)
    cal = mc.BayesianBinning().fit(z, y)
    p = softmax(z, axis=1)[:, 1]
    order = np.argsort(p)
    rows = hard_rows(2)[:40]
    probability = softmax(rows, axis=1)[:, 1]
    scores, predictions = [], []
    for bins in range(1, int(np.ceil(10 * 60 ** (1 / 3))) + 1):
        cuts = [int(np.ceil(60 * i / bins - 1e-9)) for i in range(bins + 1)]
        cuts = sorted(set(cuts))
        edges = [(p[order[c - 1]] + p[order[c]]) / 2 for c in cuts[1:-1]]
        score, theta = 0.0, []
        for (a, b), low, high in zip(pairwise(cuts), [0, *edges], [*edges, 1], strict=True):
            alpha = 2 / bins * (low + high) / 2
            beta = 2 / bins - alpha
            k = y[order[a:b]].sum()
            score += betaln(k + alpha, b - a - k + beta) - betaln(alpha, beta)
            theta.append((k + alpha) / (b - a + 2 / bins))
        scores.append(score)
        predictions.append(np.array(theta)[np.searchsorted(edges, probability)])
    share = np.exp(np.array(scores) - max(scores))
    expected = share @ np.array(predictions) / share.sum()
    result = cal.values_[1][np.searchsorted(cal.edges_[1], probability)]
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    empty = beta_bins(np.zeros(1), np.zeros(1), np.array([0.3]), np.array([0.5]))
    assert empty[0] == pytest.approx(0.3)
    assert empty[1] == 0


def test_scaling_binning_gives_the_mean_of_the_bin():
    z, y = calibration_set(3, n=1000)
    cal = mc.ScalingBinning(scaling="temperature", bins=8).fit(z, y)
    scaled = mc.TemperatureScaling(prior_rows=0).fit(z, y).predict_proba(z)
    for k in range(3):
        assert len(cal.values_[k]) == 8
        index = np.searchsorted(cal.edges_[k], scaled[:, k])
        assert np.bincount(index).tolist() == [125] * 8
        for b in range(8):
            assert cal.values_[k][b] == pytest.approx(scaled[index == b, k].mean())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
def test_one_isotonic_fit_for_all_classes(weighted, rounded):
    z, y = calibration_set(6, n=500)
    if rounded:
        z = np.round(z)
    w = np.random.default_rng(0).integers(1, 5, 500) if weighted else np.ones(500)
    p = softmax(z, axis=1)
    p = np.round(p, 13)  # equal probabilities reached by different sums
    oracle = IsotonicRegression(out_of_bounds="clip").fit(p.ravel(), np.eye(6)[y].ravel(), np.repeat(w, 6))
    cal = mc.IsotonicCalibration().fit(z, y, sample_weight=w)
    rows = hard_rows(6)[:160]
    q = oracle.predict(softmax(rows, axis=1).ravel()).reshape(-1, 6) + 1e-9 * softmax(rows, axis=1)
    np.testing.assert_allclose(cal.predict_proba(rows), q / q.sum(axis=1, keepdims=True), atol=1e-5)
    assert len(cal.knots_[0]) <= 3 * 500


def test_isotonic_one_vs_rest_is_sklearns():
    z, y = calibration_set(3, n=400)
    cal = mc.IsotonicCalibration(mode="one_vs_rest").fit(z, y)
    p = softmax(z, axis=1)
    q = np.stack([IsotonicRegression().fit_transform(p[:, k], y == k) for k in range(3)], axis=1)
    np.testing.assert_allclose(cal.predict_proba(z), q / q.sum(axis=1, keepdims=True), atol=1e-9)


def test_spline_corrects_the_top_class():
    z, y = calibration_set(5, n=8000)
    cal = mc.SplineCalibration().fit(z[:4000], y[:4000])
    before = metrics.ece(softmax(z[4000:], axis=1), y[4000:])
    p = cal.predict_proba(z[4000:])
    assert metrics.ece(p, y[4000:]) < 0.3 * before
    probs = softmax(z[4000:], axis=1)  # the others keep their proportions
    probs[np.arange(4000), z[4000:].argmax(axis=1)] = 0
    np.testing.assert_allclose(
        probs / probs.sum(axis=1, keepdims=True),
        np.where(probs > 0, p, 0) / np.where(probs > 0, p, 0).sum(axis=1, keepdims=True),
        rtol=1e-6,
    )
