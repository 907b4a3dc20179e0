"""The numbers behind the diagrams, against loops and known cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import monocal as mc
from monocal.errors import InputError
from monocal.plots import (
    CalibrationCurve,
    margin_curve,
    margins,
    reliability_curve,
    smooth_reliability_curve,
)


def forecasts(confidence, accuracy, count):
    """Rows of two classes: in group k ``count[k]`` rows at ``confidence[k]``, the share ``accuracy[k]`` of them right."""
    probs, labels = [], []
    for c, a, n in zip(confidence, accuracy, count, strict=True):
        probs += [[c, 1 - c]] * n
        labels += [0] * round(a * n) + [1] * (n - round(a * n))
    return np.array(probs), np.array(labels)


def test_bins_hold_what_a_loop_finds():
    data = mc.data.synthetic(3000, 7, seed=1)
    probs = mc.TemperatureScaling().fit(data.values, data.labels).predict_proba(data.values).astype(float)
    curve = reliability_curve(probs, data.labels, n_bins=10)
    top, right = probs.max(axis=1), probs.argmax(axis=1) == data.labels
    for k in range(10):
        inside = (top > k / 10) & (top <= (k + 1) / 10)
        assert curve.weight[k] == inside.sum()
        if inside.any():
            assert curve.confidence[k] == pytest.approx(top[inside].mean())
            assert curve.accuracy[k] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan(curve.gap[k])
            assert not curve.outside[k]
    assert curve.ece == pytest.approx(mc.metrics.ece(probs, data.labels, n_bins=10))
    assert curve.mean_accuracy == pytest.approx(right.mean())
    assert curve.mean_confidence == pytest.approx(top.mean())


def test_band_is_the_binomial_one_with_joint_coverage():
    probs, labels = forecasts([0.7, 0.9], [0.7, 0.9], [200, 500])
    curve = reliability_curve(probs, labels, n_bins=10, level=0.9)
    each = 0.9**0.5
    for k, c, n in ((6, 0.7, 200), (8, 0.9, 500)):
        low, high = binom.interval(each, n, c)
        assert (curve.low[k], curve.high[k]) == pytest.approx((low / n, high / n))


def test_a_calibrated_model_leaves_the_band_as_rarely_as_promised():
    rng = np.random.default_rng(0)
    top = 0.5 + rng.random(4000) / 2
    probs = np.stack([top, 1 - top], axis=1)
    left = [
        reliability_curve(probs, (rng.random(4000) >= top).astype(int), level=0.9).outside.any()
        for _ in range(120)
    ]
    assert np.mean(left) <= 0.15


def test_stretches_join_neighbours_and_keep_signs_apart():
    probs, labels = forecasts(
        [0.55, 0.65, 0.75, 0.85, 0.95], [0.75, 0.65, 0.65, 0.84, 0.85], [400, 400, 400, 30, 400]
    )
    first, second = reliability_curve(probs, labels, n_bins=10).stretches()
    assert (first.begin, first.end) == (0.5, 0.6)
    assert first.gap == pytest.approx(-0.2)
    # The small bin between the two wrong ones errs to the same side, too little to tell alone.
    assert (second.begin, second.end) == (0.7, 1.0)
    assert second.weight == 830
    assert second.share == pytest.approx(830 / 1630)
    wrong = 400 * 0.1 + 30 * 0.85 - round(0.84 * 30) + 400 * 0.1
    assert second.gap == pytest.approx(wrong / 830)
    # Unlike gaps stay apart.
    probs, labels = forecasts([0.75, 0.85, 0.95], [0.55, 0.65, 0.9], [400, 400, 2000])
    gaps = [s.gap for s in reliability_curve(probs, labels, n_bins=10).stretches()]
    assert gaps == pytest.approx([0.2, 0.05])


def test_weights_count_as_rows_do_and_unequal_ones_widen_the_band():
    probs, labels = forecasts([0.8], [0.7], [200])
    double = reliability_curve(probs, labels, sample_weight=np.full(200, 2.0))
    plain = reliability_curve(probs, labels)
    np.testing.assert_allclose(double.low, plain.low)
    uneven = reliability_curve(probs, labels, sample_weight=np.r_[np.full(100, 10.0), np.full(100, 0.1)])
    assert np.nansum(uneven.high - uneven.low) > np.nansum(plain.high - plain.low)


def test_merged_sums_give_the_same_curve():
    probs, labels = forecasts([0.6, 0.9], [0.5, 0.7], [100, 300])
    parts = [mc.metrics.bin_sums(probs[i::2], labels[i::2]) for i in (0, 1)]
    merged = CalibrationCurve.of(parts[0] + parts[1])
    whole = reliability_curve(probs, labels)
    for name in ("edges", "weight", "confidence", "accuracy", "low", "high"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name))
    assert whole.to_dict()["accuracy"][:2] == [None, None]  # empty bins, as JSON can say it


def test_margin_bins_have_equal_mass_and_ties_stay_together():
    logits = np.array([[0.0, 1.0]] * 50 + [[0.0, 2.0]] * 30 + [[3.0, 0.0]] * 20)
    labels = np.ones(100, dtype=int)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(margins(p), margins(logits, input="logits"))
    curve = margin_curve(p, labels, n_bins=50)
    np.testing.assert_array_equal(curve.weight[curve.weight > 0], [80, 20])
    assert curve.accuracy[-1] == 0


def test_margin_of_a_certain_row_is_infinite_and_drawn_with_the_largest():
    curve = margin_curve([[1.0, 0.0], [0.6, 0.4], [0.9, 0.1]], [0, 0, 1], n_bins=3)
    assert np.isfinite(curve.edges).all()
    assert curve.weight.sum() == 3
    alone = margin_curve([[1.0, 0.0]] * 4, [0, 0, 0, 1])
    np.testing.assert_array_equal(alone.weight, [4])
    assert alone.outside.all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: reliability_curve([[2.0, -1.0]], [0]), "Logits need a softmax"),
        (lambda: reliability_curve([[0.5, 0.5]], [0], level=1.0), "level"),
        (lambda: margin_curve([[0.5, 0.5]], [0], margin=[1.0, 2.0]), "margin"),
        (lambda: CalibrationCurve.of(mc.metrics.bin_sums([[0.5, 0.5]], [0], classwise=True)), "sums"),
    ],
)
def test_bad_input_is_refused_in_words(call, says):
    with pytest.raises(InputError, match=says):
        call()


# Without bins.


def two_classes(confidence, right):
    probs = np.stack([confidence, 1 - confidence], axis=1)
    return probs, np.where(right, 0, 1)


def test_it_is_the_kernel_regression_it_says():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 1, 300)
    probs, labels = two_classes(c, rng.random(300) < c - 0.2)
    weight = rng.random(300) + 0.5
    curve = smooth_reliability_curve(probs, labels, sample_weight=weight)
    assert curve.error == pytest.approx(mc.metrics.smooth_ece(probs, labels, sample_weight=weight))
    t, s = curve.confidence[50], curve.bandwidth
    kernel = sum(np.exp(-((d / s) ** 2) / 2) for d in (t - c, t + c, 2 - t - c))
    mean = np.average(labels == 0, weights=weight * kernel)
    assert curve.accuracy[50] == pytest.approx(mean)
    spread = np.sqrt(np.sum((weight * kernel * ((labels == 0) - mean)) ** 2)) / np.sum(weight * kernel)
    assert curve.high[50] - curve.accuracy[50] == pytest.approx(1.959964 * spread, rel=1e-5)


def test_the_band_holds_the_smoothed_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(60):
        c = rng.uniform(0.5, 1, 500)
        probs, labels = two_classes(c, rng.random(500) < c**2)
        curve = smooth_reliability_curve(probs, labels)
        k = np.argmin(abs(curve.confidence - 0.75))
        kernel = np.exp(-(((curve.confidence[k] - c) / curve.bandwidth) ** 2) / 2)
        inside.append(curve.low[k] <= np.average(c**2, weights=kernel) <= curve.high[k])
    assert 0.87 <= np.mean(inside) <= 1.0


def test_one_confidence_and_one_row_are_no_trouble():
    for n in (1, 50):
        curve = smooth_reliability_curve([[1.0, 0.0]] * n, [0] * n)
        assert np.isfinite(curve.accuracy).all()
        assert curve.accuracy == pytest.approx(np.ones(len(curve.accuracy)))
    sure = smooth_reliability_curve([[0.3, 0.7]] * 40, [0] * 20 + [1] * 20, label=0)
    assert sure.accuracy == pytest.approx(np.full(len(sure.accuracy), 0.5))
