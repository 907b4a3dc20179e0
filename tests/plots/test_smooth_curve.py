"""The reliability curve without bins: its values, its band and its ends."""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc
from monocal.plots import ReliabilityDisplay, smooth_reliability_curve


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


def test_drawn_with_its_band():
    pytest.importorskip("matplotlib").use("Agg")
    data = mc.data.synthetic(400, 5, seed=1)
    model = mc.TemperatureScaling().fit(data.values, data.labels)
    display = ReliabilityDisplay.from_estimator(model, data.values, data.labels, smooth=True).plot()
    for name, ax in zip(display.curves, display.ax_, strict=True):
        line = display.smooth[name]
        assert any(np.array_equal(drawn.get_ydata(), line.accuracy) for drawn in ax.lines)
        assert len(ax.collections) == 1
    import matplotlib.pyplot as plt

    plt.close("all")
