"""Evaluation, intervals, comparison, floor and streaming."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal import metrics as M
from monocal.plots import margin_curve

MEANS = ["accuracy", "top_k_accuracy", "nll", "brier"]
WITH_INTERVAL = {name for name, one in M.METRICS.items() if one.term or one.error or one.influence}
SORTED = {"adaptive_ece", "eq_bin_ece", "aurc", "e_aurc"}  # need all rows at once


def world(n, sharpness=1.0, m=4, seed=0):
    """Labels drawn from softmax(logits); probabilities of sharpness times the logits: calibrated at 1."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.standard_normal((n, m))
    honest = np.cumsum(softmax(logits, axis=1), axis=1)
    labels = (generator.random((n, 1)) > honest).sum(axis=1).clip(max=m - 1)
    return softmax(sharpness * logits, axis=1), labels


@pytest.mark.parametrize("m", [2, 4])
def test_evaluate_equals_the_single_functions(m):
    probs, labels = world(900, 1.5, m)
    weights = np.random.default_rng(3).random(900)
    shared = {"n_bins": 10, "top_k": 2, "bin_size": 100, "bandwidth": "text"}
    result = mc.evaluate(probs, labels, sample_weight=weights, **shared)
    assert set(result.estimates) == {
        name
        for name, one in M.METRICS.items()
        if (m == 2 or not one.binary) and (m > 2 or name != "top_k_accuracy")
    }
    for name, estimate in result.estimates.items():
        keywords = {k: shared[v] for k, v in M.METRICS[name].keywords.items() if v in shared}
        expected = getattr(M, name)(probs, labels, sample_weight=weights, **keywords)
        assert estimate.value == pytest.approx(expected, abs=1e-12)
        assert estimate.low is estimate.high is None


def test_blocks_do_not_show(monkeypatch):
    probs, labels = world(500, m=30)
    whole = mc.evaluate(probs, labels)
    monkeypatch.setattr("monocal.metrics.outcomes.BLOCK_ENTRIES", 100)
    for name, estimate in mc.evaluate(probs, labels).estimates.items():
        assert estimate.value == pytest.approx(whole[name].value, abs=1e-12)


def test_result_as_dict_frame_and_text():
    probs, labels = world(300)
    result = mc.evaluate(probs, labels, n_boot=30)
    assert json.loads(json.dumps(result.to_dict()))["metrics"]["ece"]["value"] == result["ece"].value
    frame = result.to_pandas()
    assert frame.loc["nll", "low"] == result["nll"].low
    assert list(frame.columns) == ["value", "low", "high"]
    assert "300 samples, 4 classes, 95% intervals from 30" in repr(result)
    with pytest.raises(KeyError, match="was not computed"):
        mc.evaluate(probs, labels, metrics="ece")["nll"]


def test_intervals_are_deterministic_and_match_the_standard_error():
    probs, labels = world(2000)
    first, again = (mc.evaluate(probs, labels, metrics=["accuracy", "nll", "ece"], n_boot=400) for _ in "12")
    assert first.to_dict() == again.to_dict()
    terms = {
        "accuracy": (probs.argmax(axis=1) == labels).astype(float),
        "nll": -np.log(probs[np.arange(2000), labels]),
    }
    for name, term in terms.items():
        width = first[name].high - first[name].low
        assert width == pytest.approx(2 * 1.96 * term.std() / np.sqrt(2000), rel=0.15)


@pytest.mark.parametrize("sharpness", [1.0, 1.3, 0.7])
@pytest.mark.parametrize("n", [100, 1000])
def test_an_interval_holds_its_own_estimate(sharpness, n):
    for seed in range(4):
        m = 2 + 4 * (seed % 3)
        probs, labels = world(n, sharpness, m=m, seed=seed)
        weight = np.random.default_rng(seed).integers(0, 4, size=n) if seed % 2 else None
        result = mc.evaluate(probs, labels, sample_weight=weight, n_boot=20)
        shown = {name for name, e in result.estimates.items() if e.low is not None}
        assert shown == WITH_INTERVAL & set(result.estimates)
        for name in shown:
            least = M.METRICS[name].lower
            assert least <= result[name].low <= result[name].value <= result[name].high, name


def test_what_is_certain_or_infinite_has_an_honest_interval():
    right = mc.evaluate(np.eye(3)[[0, 1, 2] * 20], [0, 1, 2] * 20, n_boot=10)
    assert right["accuracy"].low == pytest.approx(60 / (60 + 1.96**2), abs=1e-3)
    assert right["accuracy"].high == 1
    assert right["nll"].low is None
    assert right["nll"].reason.startswith("too few rows of the rare class (0 wrong")
    assert right.to_dict()["metrics"]["nll"]["reason"] == right["nll"].reason
    wrong = mc.evaluate(np.eye(3)[[0, 1, 2] * 20], [1, 1, 2] * 20, n_boot=10)
    assert wrong["nll"].value == np.inf
    assert M.nll([[1.0, 0.0], [0.5, 0.5]], [1, 0], sample_weight=[0, 1]) == pytest.approx(np.log(2))
    assert wrong["nll"].low is wrong["nll"].high is None
    assert wrong["brier"].low <= wrong["brier"].value <= wrong["brier"].high


@pytest.mark.parametrize("metric", sorted(name for name, one in M.METRICS.items() if not one.mean))
def test_differences_of_calibration_errors_are_not_tested(metric):
    m = 2 if M.METRICS[metric].binary else 4
    probs, labels = world(300, m=m)
    result = M.compare(probs, world(300, 1.5, m)[0], labels, metric, n_boot=10)
    assert result.difference == pytest.approx(result.a - result.b)
    assert result.low is result.high is result.p_value is result.probability_a_better is None
    assert result.verdict == json.loads(json.dumps(result.to_dict()))["verdict"] == "not tested"


@pytest.mark.parametrize("metric", MEANS)
def test_comparing_a_predictor_with_itself_is_undecided(metric):
    probs, labels = world(200)
    same = M.compare(probs, probs.copy(), labels, metric, n_boot=10)
    assert (same.difference, same.low, same.high, same.verdict) == (0, 0, 0, "undecided")
    assert (same.p_value, same.probability_a_better) == (1, 0.5)


def test_pairing_finds_a_difference_that_intervals_alone_would_not():
    probs, labels = world(3000)
    worse = softmax(1.25 * np.log(probs), axis=1)
    result = M.compare(probs, worse, labels, "nll", n_boot=200)
    assert result.verdict == "A is better"
    assert "A is better" in repr(result)
    assert result.probability_a_better > 0.97
    assert result.p_value < 0.05
    a, b = (mc.evaluate(p, labels, metrics="nll", n_boot=200)["nll"] for p in (probs, worse))
    assert a.high > b.low
    assert M.compare(worse, probs, labels, "nll", n_boot=200).verdict == "B is better"


@pytest.mark.parametrize("metric", ["ece", "top_label_ece"])
def test_what_is_called_more_than_chance_lies_outside_what_chance_does(metric):
    """The flag and the interval shown with it are of one test, at every level, number of draws and size."""
    flagged = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n, level = int(rng.integers(20, 400)), float(rng.choice([0.5, 0.8, 0.9, 0.95, 0.99]))
        probs = rng.dirichlet(np.ones(3), size=n).round(1 + seed % 3)
        probs /= probs.sum(axis=1, keepdims=True)
        labels = (rng.random((n, 1)) > np.cumsum(probs, axis=1)).sum(axis=1).clip(max=2)
        floor = mc.ece_floor(probs, labels, int(rng.choice([9, 19, 99, 200])), metric=metric, level=level)
        assert floor.low == 0
        assert floor.more_than_chance == (floor.observed > floor.high) == (floor.p_value <= 1 - level + 1e-9)
        flagged += floor.more_than_chance
    assert 5 < flagged < 60


def test_the_floor_is_the_ece_of_calibrated_predictors():
    probs, labels = world(2000)
    floor = mc.ece_floor(probs, labels, n_draws=400)
    observed = [M.ece(*world(2000, seed=seed)) for seed in range(1, 60)]
    assert floor.median == pytest.approx(np.median(observed), rel=0.1)
    assert np.mean([floor.low <= value <= floor.high for value in observed]) > 0.85
    assert floor.observed == pytest.approx(M.ece(probs, labels), abs=1e-12)
    assert floor.p_value > 0.05
    assert mc.ece_floor(*world(2000, 1.5), n_draws=400).p_value == pytest.approx(1 / 401)
    without = mc.ece_floor(probs, n_draws=400)
    assert without.observed is without.p_value is None
    assert without.median == floor.median
    assert "draws" not in json.loads(json.dumps(floor.to_dict()))


def test_streaming_equals_evaluating_at_once():
    probs, labels = world(1000, 1.5)
    weights = np.random.default_rng(0).random(1000)
    weights[200:500] = 0
    whole = mc.evaluate(probs, labels, sample_weight=weights)
    left, right = M.Evaluator(), M.Evaluator()
    for evaluator, cuts in ((left, (0, 1, 350)), (right, (350, 400, 980, 1000))):
        for start, stop in pairwise(cuts):
            evaluator.update(probs[start:stop], labels[start:stop], weights[start:stop])
    merged = M.Evaluator().merge(left).merge(right).result()
    assert (merged.n_samples, merged.n_classes) == (700, 4)
    assert set(whole.estimates) - set(merged.estimates) == SORTED
    for name, estimate in merged.estimates.items():
        assert estimate.value == pytest.approx(whole[name].value, abs=1e-9)


def test_only_like_statistics_merge():
    probs, labels = world(20)
    with pytest.raises(mc.InputError, match="options"):
        M.Evaluator(n_bins=10).merge(M.Evaluator())
    with pytest.raises(mc.InputError, match="same bins and classes"):
        M.Evaluator().update(probs, labels).update(*world(20, m=5))
    with pytest.raises(mc.InputError, match="same bins"):
        M.bin_sums(probs, labels) + M.bin_sums(probs, labels, n_bins=4)


def test_a_weight_of_zero_leaves_the_row_out():
    probs, labels = world(400, 1.5)
    other, _ = world(400, 0.7)
    weight = np.where(np.arange(400) % 3 == 0, 0.0, 1.0)
    kept = weight > 0
    for call in (
        lambda p, q, y, **w: mc.evaluate(p, y, n_boot=20, bandwidth="text", **w).to_dict(),
        lambda p, q, y, **w: M.compare(p, q, y, n_boot=50, **w).to_dict(),
        lambda p, q, y, **w: M.debiased_ece(p, y, binning="mass", **w),
        lambda p, q, y, **w: mc.ece_floor(p, y, 50, **w).to_dict(),
        lambda p, q, y, **w: margin_curve(p, y, **w).accuracy.tolist(),
    ):
        weighted = call(probs, other, labels, sample_weight=weight)
        assert weighted == call(probs[kept], other[kept], labels[kept])
    probs[0] = -1
    with pytest.raises(mc.InputError, match="row 0 contains the negative value -1"):
        mc.evaluate(probs, labels, sample_weight=weight)
    with pytest.raises(mc.InputError, match="all weights are zero"):
        M.Evaluator().update(*world(20), np.zeros(20)).result()


def test_rows_with_two_classes_on_top_are_named():
    """A random forest ties often; programs that round differently break such ties differently."""
    generator = np.random.default_rng(0)
    votes = generator.multinomial(10, [0.4, 0.4, 0.2], size=500) / 10
    labels = generator.integers(3, size=500)
    nudged = (votes + 1e-9 * generator.standard_normal(votes.shape)).clip(0)
    nudged /= nudged.sum(axis=1, keepdims=True)
    for probs in (votes, nudged, nudged.astype(np.float32)):
        result = mc.evaluate(probs, labels, metrics="ece")
        assert result.near_ties > 0.1
        assert "two classes are tied at the top up to rounding" in str(result)
    assert mc.evaluate(generator.dirichlet(np.ones(3), 500), labels, metrics="ece").near_ties == 0
