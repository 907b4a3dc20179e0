"""Each metric against a plain loop, scikit-learn, or a property it must have."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score

import monocal as mc
from monocal import metrics as M
from monocal.metrics import functions


def draw(n=600, m=7, scale=2.0, seed=0):
    """Over-confident probabilities and labels."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.standard_normal((n, m))
    honest = np.cumsum(softmax(0.7 * logits, axis=1), axis=1)
    labels = (generator.random((n, 1)) > honest).sum(axis=1).clip(max=m - 1)
    return softmax(logits, axis=1), labels


def loop_gaps(forecast, outcome, n_bins):
    """(weight, mean forecast, frequency) of every occupied bin ((k-1)/K, k/K]."""
    bins = {}
    for value, hit in zip(forecast, outcome, strict=True):
        k = next(k for k in range(1, n_bins + 1) if value <= k / n_bins or k == n_bins)
        bins.setdefault(k, []).append((value, hit))
    return [(len(rows), *np.mean(rows, axis=0)) for rows in bins.values()]


def loop_ece(forecast, outcome, n_bins):
    return sum(w * abs(c - f) for w, c, f in loop_gaps(forecast, outcome, n_bins)) / len(forecast)


@pytest.mark.parametrize("n_bins", [1, 15, 40])
def test_binned_errors_against_loops(n_bins):
    probs, labels = draw()
    top, hit = probs.max(axis=1), probs.argmax(axis=1) == labels
    assert M.ece(probs, labels, n_bins=n_bins) == pytest.approx(loop_ece(top, hit, n_bins), abs=1e-12)
    gaps = [abs(c - f) for _, c, f in loop_gaps(top, hit, n_bins)]
    assert M.mce(probs, labels, n_bins=n_bins) == pytest.approx(max(gaps), abs=1e-12)
    each = [loop_ece(probs[:, j], labels == j, n_bins) for j in range(7)]
    assert M.classwise_ece(probs, labels, n_bins=n_bins) == pytest.approx(np.mean(each), abs=1e-12)


def test_reliability_agrees_with_scikit_learn():
    probs, labels = draw(m=2)
    frequency, forecast = calibration_curve(labels, probs[:, 1], n_bins=10)
    sums = M.bin_sums(probs, labels, n_bins=10, classwise=True)
    used = sums.weight[1] > 0
    np.testing.assert_allclose(sums.accuracy[1][used], frequency, atol=1e-12)
    np.testing.assert_allclose(sums.mean_confidence[1][used], forecast, atol=1e-12)


def test_edges_belong_to_the_bin_below_and_one_to_the_last():
    probs = np.array([[1.0, 0.0], [0.8, 0.2], [0.6, 0.4], [np.nextafter(0.8, 1), np.nextafter(0.2, 0)]])
    assert M.bin_sums(probs, [0] * 4, n_bins=5).weight.tolist() == [0, 0, 1, 1, 2]
    assert M.bin_sums(probs, [0] * 4, n_bins=5, classwise=True).weight[1].tolist() == [3, 1, 0, 0, 0]


def test_equal_mass_against_split_of_the_sorted_rows():
    probs, labels = draw(n=600)
    order = np.argsort(probs.max(axis=1))
    gap = (probs.max(axis=1) - (probs.argmax(axis=1) == labels))[order]
    expected = sum(abs(part.sum()) for part in np.array_split(gap, 15)) / 600
    assert M.adaptive_ece(probs, labels) == pytest.approx(expected, abs=1e-12)
    # Bins of 90: six of them, the last with the sixty rows left over.
    expected = sum(abs(part.mean()) for part in np.split(gap, np.arange(90, 540, 90)))
    assert M.eq_bin_ece(probs, labels, bin_size=90) == pytest.approx(expected, abs=1e-12)
    assert M.eq_bin_ece(probs, labels, bin_size=10_000) == pytest.approx(abs(gap.mean()), abs=1e-12)


def test_smooth_ece_against_the_kernel_matrix():
    probs, labels = draw(n=100)
    top, hit = probs.max(axis=1), probs.argmax(axis=1) == labels
    nodes = np.linspace(0, 1, 20_001)

    def smoothed(bandwidth):
        images = [sign * top + shift for sign in (1, -1) for shift in (-2, 0, 2)]
        density = sum(
            np.exp(-(((nodes[:, None] - image) / bandwidth) ** 2) / 2) @ (hit - top) for image in images
        )
        return np.trapezoid(np.abs(density), nodes) / (len(top) * bandwidth * np.sqrt(2 * np.pi))

    expected = brentq(lambda s: smoothed(s) - s, 0.01, 1, xtol=1e-7)
    assert M.smooth_ece(probs, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("bandwidth", ["authors", "text", 0.07])
def test_kde_ece_against_direct_sums_of_kernels(bandwidth):
    probs, labels = draw(n=250)
    top, hit = probs.max(axis=1), probs.argmax(axis=1) == labels
    widths = {"authors": np.std(top[hit]) * 500**-0.2, "text": 1.06 * np.std(top) * 250**-0.2}
    width = widths.get(bandwidth, 0.07)
    nodes = np.linspace(-0.6, 1.6, 1 << 14)
    nodes = nodes[(nodes > 0) & (nodes < 1)]
    images = np.concatenate((top, np.where(top < 0.5, -top, 2 - top)))
    kernel = np.clip(1 - ((nodes[:, None] - images) / (3 * width)) ** 2, 0, None) ** 3
    density, correct = kernel.sum(axis=1), kernel @ np.tile(hit, 2)
    accuracy = np.minimum(np.divide(correct, density, out=np.zeros_like(nodes), where=density > 0), 1)
    expected = np.trapezoid(np.abs(nodes - accuracy) * density) / np.trapezoid(density)
    assert M.kde_ece(probs, labels, bandwidth=bandwidth) == pytest.approx(expected, abs=1e-6)


def test_debiased_errors_against_their_definition():
    probs, labels = draw()
    bins = loop_gaps(probs.max(axis=1), probs.argmax(axis=1) == labels, 15)
    square = sum(w * ((c - f) ** 2 - f * (1 - f) / (w - 1)) for w, c, f in bins if w > 1) / len(labels)
    assert M.debiased_ece(probs, labels) == pytest.approx(np.sqrt(square), abs=1e-12)
    noise = np.random.default_rng(0).standard_normal(200_000)
    one = sum(
        w * (2 * abs(c - f) - np.abs(c - f + np.sqrt(f * (1 - f) / w) * noise).mean()) for w, c, f in bins
    )
    assert M.debiased_ece(probs, labels, norm=1) == pytest.approx(one / len(labels), abs=1e-4)


def test_debiasing_removes_the_bias_of_small_samples():
    """Mean square over small draws: near the truth when debiased, above it when plugged in."""
    truth = M.debiased_ece(*draw(200_000, m=3)) ** 2
    plugged, debiased = [], []
    for seed in range(1, 101):
        probs, labels = draw(400, m=3, seed=seed)
        sums = M.bin_sums(probs, labels)
        plugged.append(sums.weight @ sums.gap**2 / 400)
        debiased.append(M.debiased_ece(probs, labels) ** 2)
    assert np.mean(debiased) == pytest.approx(truth, rel=0.1)
    assert np.mean(plugged) > 1.4 * truth


@pytest.mark.parametrize("weight", [None, np.random.default_rng(1).random(600)], ids=["equal", "weighted"])
def test_scores_agree_with_scikit_learn(weight):
    (probs, labels), w = draw(), {"sample_weight": weight}
    assert M.nll(probs, labels, **w) == pytest.approx(log_loss(labels, probs, **w), abs=1e-12)
    expected = brier_score_loss(labels, probs, labels=range(7), scale_by_half=False, **w)
    assert M.brier(probs, labels, **w) == pytest.approx(expected, abs=1e-12)
    expected = accuracy_score(labels, probs.argmax(axis=1), **w)
    assert M.accuracy(probs, labels, **w) == pytest.approx(expected, abs=1e-12)
    expected = top_k_accuracy_score(labels, probs, k=3, **w)
    assert M.top_k_accuracy(probs, labels, k=3, **w) == pytest.approx(expected, abs=1e-12)


def test_ties_rank_by_class_number():
    probs = [[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3]]
    assert M.accuracy(probs, [0, 1, 2]) == pytest.approx(1 / 3)
    shares = [M.top_k_accuracy(probs, [0, 1, 2], k=k) for k in (1, 2, 9)]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])


def test_brier_parts_add_up_and_calibration_shows():
    probs, labels = draw(n=5000)
    parts = M.brier_parts(probs, labels)
    assert parts.total == pytest.approx(M.brier(probs, labels))
    assert parts.calibration + parts.refinement + parts.within_bins == pytest.approx(parts.total)
    gaps = (gap for j in range(7) for gap in loop_gaps(probs[:, j], labels == j, 15))
    assert parts.calibration == pytest.approx(sum(w * (c - f) ** 2 / 5000 for w, c, f in gaps), abs=1e-12)
    better = softmax(0.7 * np.log(probs), axis=1)
    assert M.brier_parts(better, labels).calibration < 0.3 * parts.calibration
    assert abs(M.brier_parts(probs, labels, n_bins=200).within_bins) < abs(parts.within_bins)


@pytest.mark.parametrize("name", sorted({*M.METRICS} - {"debiased_ece", "eq_bin_ece", "kde_ece"}))
def test_integer_weights_repeat_rows(name):
    """Of all metrics but those that use the number of rows, or squares of weights."""
    metric, (probs, labels) = getattr(M, name), draw(n=200, m=2 if M.METRICS[name].binary else 7)
    probs = probs.round(2) if M.METRICS[name].binary else probs
    counts = np.random.default_rng(2).integers(0, 4, size=200)
    repeated = metric(np.repeat(probs, counts, axis=0), np.repeat(labels, counts))
    tolerance = 0.02 if name in ("e50", "e90", "ici") else 1e-8  # interpolated quantiles, a ridge of rows
    assert metric(probs, labels, sample_weight=counts) == pytest.approx(repeated, abs=tolerance)
    scaled = metric(probs, labels, sample_weight=np.full(200, 7))
    assert scaled == pytest.approx(metric(probs, labels), abs=tolerance)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(2, 20))
def test_no_metric_depends_on_the_order_of_rows_nor_leaves_its_range(seed, n, m):
    """Rows with many exact ties, zeros and ones."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 3, size=(n, m)) * generator.integers(0, 2, size=(n, m))
    counts[np.arange(n), generator.integers(m, size=n)] += 1
    probs, labels = counts / counts.sum(axis=1, keepdims=True), generator.integers(m, size=n)
    shuffle = generator.permutation(n)
    first, second = mc.evaluate(probs, labels), mc.evaluate(probs[shuffle], labels[shuffle])
    for name, metric in ((name, M.METRICS[name]) for name in first.estimates):
        assert second[name].value == pytest.approx(first[name].value, abs=1e-6, nan_ok=metric.binary)
        assert np.isnan(first[name].value) or metric.lower - 1e-9 <= first[name].value <= metric.upper + 1e-9


@pytest.mark.parametrize(
    ("probs", "labels", "expected"),
    [([[1.0, 0.0]] * 5, [0] * 5, 0), ([[1.0, 0.0]] * 5, [1] * 5, 1), ([[0.5, 0.5]] * 4, [0, 0, 1, 1], 0)],
)
def test_constant_predictors_have_the_obvious_errors(probs, labels, expected):
    for metric in (M.ece, M.mce, M.adaptive_ece, M.smooth_ece, M.eq_bin_ece):
        assert metric(probs, labels) == pytest.approx(expected, abs=1e-6)
    assert M.kde_ece(probs, labels) == pytest.approx(expected, abs=1e-3)


def test_examples_of_generated_docstrings_run():
    assert doctest.testmod(functions).failed == 0
