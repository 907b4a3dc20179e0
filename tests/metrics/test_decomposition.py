"""Parts of the losses where the truth is known, and what must hold of them."""

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal.metrics import brier, decompose, nll


def drawn(sharpness, n=6000, m=5, seed=0):
    """Labels drawn from ``q``, a predictor that claims softmax(sharpness log q), and the true parts of its losses."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(n, m))
    q, p = softmax(z, axis=1), softmax(sharpness * z, axis=1)
    labels = (rng.random((n, 1)) > np.cumsum(q, axis=1)).sum(axis=1).clip(max=m - 1)
    truth = {
        "nll": ((q * np.log(q / p)).sum(axis=1).mean(), -(q * np.log(q)).sum(axis=1).mean()),
        "brier": (((p - q) ** 2).sum(axis=1).mean(), (q * (1 - q)).sum(axis=1).mean()),
    }
    return p, labels, truth


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("calibrator", [None, mc.TemperatureScaling()], ids=["default", "temperature"])
def test_the_parts_where_the_truth_is_known(sharpness, calibrator):
    p, labels, truth = drawn(sharpness)
    result = decompose(p, labels, calibrator=calibrator)
    assert result.nll.total == pytest.approx(nll(p, labels), abs=1e-12)
    assert result.brier.total == pytest.approx(brier(p, labels), abs=1e-12)
    for loss, (calibration, refinement) in truth.items():
        parts = getattr(result, loss)
        assert parts.calibration + parts.refinement == pytest.approx(parts.total, abs=1e-12)
        # The refinement is a mean over rows, so it is off by its sampling error; so is the calibration, but by much less.
        assert parts.refinement == pytest.approx(refinement, abs=0.03)
        assert parts.calibration == pytest.approx(calibration, abs=0.005 + 0.04 * calibration)
    if sharpness == 1:
        assert abs(result.nll.calibration) < 0.002


@pytest.mark.parametrize(("different", "sharpness"), [(2, 2.0), (20, 1.0), (20, 2.0)])
def test_few_different_rows(different, sharpness):
    """Equal probabilities share a fold whatever their labels; neither order nor weights as repetitions matter."""
    rng = np.random.default_rng(0)
    q = np.repeat(np.linspace(0.2, 0.95, different), 6000 // different)
    labels = (rng.random(6000) < q).astype(int)
    p = 1 / (1 + (1 / q - 1) ** sharpness)
    truth = (q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))).mean()
    probs = np.column_stack([1 - p, p])
    result = decompose(probs, labels)
    assert result.nll.calibration == pytest.approx(truth, abs=0.001 + 0.1 * truth)
    shuffle = rng.permutation(6000)
    other = decompose(probs[shuffle], labels[shuffle])
    assert other.nll.calibration == pytest.approx(result.nll.calibration, abs=1e-6)
    kinds, count = np.unique(np.column_stack([p, labels]), axis=0, return_counts=True)
    rows = np.column_stack([1 - kinds[:, 0], kinds[:, 0]])
    weighted = decompose(rows, kinds[:, 1].astype(int), sample_weight=count)
    assert weighted.nll.calibration == pytest.approx(result.nll.calibration, abs=1e-5)


def test_maps_that_may_change_the_order_find_more_where_there_is_more():
    p, labels, _ = drawn(1.0, n=1500)
    biased = p * np.array([3.0, 1, 1, 1, 1])
    biased /= biased.sum(axis=1, keepdims=True)
    kept = decompose(biased, labels).nll.calibration
    free = decompose(biased, labels, calibrator=mc.StructuredScaling(kind="vector")).nll.calibration
    assert free > kept + 0.02


def test_certain_and_wrong():
    p, labels, _ = drawn(1.0, n=300)
    p[0] = np.eye(5)[(labels[0] + 1) % 5]
    result = decompose(p, labels, calibrator=mc.TemperatureScaling())
    assert result.nll.total == result.nll.calibration == np.inf
    assert np.isfinite(result.nll.refinement)
    assert result.to_dict()["brier"]["total"] == result.brier.total


@pytest.mark.parametrize(
    ("probs", "labels", "options", "words"),
    [
        ([[0.8, 0.2]] * 10, [0] * 8 + [1] * 2, {}, "all rows are alike"),
        ([[0.8, 0.2], [0.5, 0.5]], [0, 1], {"cv": 1}, "cv must be a whole number of at least 2"),
        (mc.TopK([[-0.1, -3.0]], [[0, 1]], n_classes=5), [0], {}, "needs the probabilities of all classes"),
    ],
)
def test_refusals(probs, labels, options, words):
    with pytest.raises(mc.InputError, match=words):
        decompose(probs, labels, **options)
