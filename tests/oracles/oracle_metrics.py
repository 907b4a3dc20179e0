"""monocal.metrics against the packages a user would otherwise pick.

Not collected by the ordinary test run; ``tests/oracles/run.sh`` runs it where those packages are.
"""

from __future__ import annotations

import calibration
import numpy as np
import pytest
import relplot
import torch
from netcal.metrics import ACE, ECE, MCE
from scipy.special import softmax
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from monocal import metrics as M

TOLERANCE = 1e-6


def draw(n: int = 3000, m: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident probabilities without ties, and labels."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.standard_normal((n, m))
    honest = np.cumsum(softmax(0.7 * logits, axis=1), axis=1)
    labels = (generator.random((n, 1)) > honest).sum(axis=1).clip(max=m - 1)
    return softmax(logits, axis=1), labels


@pytest.fixture(params=["drawn", "nncal_cifar10_densenet40", "netcal_cifar100_densenet-bc-100"])
def case(request, shared_logits):
    if request.param == "drawn":
        return draw()
    data = shared_logits(request.param)
    logits = 0.5 * data.logits_test.astype(np.float64)  # tempered, so that no confidence rounds to one
    return softmax(logits, axis=1), data.y_test


def keep(case, rows):
    return case[0][rows], case[1][rows]


def top_label(case):
    probs, labels = case
    return probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float)


@pytest.mark.parametrize("n_bins", [10, 15])
def test_netcal_ece_and_mce(case, n_bins):
    assert M.ece(*case, n_bins=n_bins) == pytest.approx(ECE(bins=n_bins).measure(*case), abs=TOLERANCE)
    assert M.mce(*case, n_bins=n_bins) == pytest.approx(MCE(bins=n_bins).measure(*case), abs=TOLERANCE)


def test_netcal_ece_of_each_predicted_class(case):
    """The top-label ECE is the mean by rows of netcal's ECE of the rows that predict a class."""
    predicted = case[0].argmax(axis=1)
    expected = 0.0
    for j in np.unique(predicted):
        confidence, right = top_label(keep(case, predicted == j))
        # A single column is to netcal the probability that the second of two classes is the label.
        expected += (predicted == j).mean() * ECE(bins=5).measure(confidence, right)
    assert M.top_label_ece(*case) == pytest.approx(expected, abs=TOLERANCE)


def test_netcal_ace_is_the_class_free_mean_of_equal_width_gaps(case):
    """netcal's ACE keeps the bins of ECE and drops their weights: another quantity, and this is which."""
    gap = M.bin_sums(*case, n_bins=15)
    expected = gap.gap[gap.weight > 0].mean()
    assert ACE(bins=15).measure(*case) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("n_bins", [10, 15])
def test_torchmetrics_errors_and_accuracy(case, n_bins):
    """Less confidences that are 1 in single precision, in which they add up: 6e-6 off on 10,000 rows."""
    case = keep(case, case[0].max(axis=1).astype(np.float32) < 1)
    tolerance = TOLERANCE if len(case[1]) < 5000 else 1e-5
    probs, labels = torch.tensor(case[0]), torch.tensor(case[1])
    m = probs.shape[1]
    for norm, metric in (("l1", M.ece), ("max", M.mce)):
        theirs = multiclass_calibration_error(probs, labels, m, n_bins=n_bins, norm=norm)
        assert metric(*case, n_bins=n_bins) == pytest.approx(float(theirs), abs=tolerance)
    sums = M.bin_sums(*case, n_bins=n_bins)
    plugged = float(sums.weight @ sums.gap**2 / sums.weight.sum()) ** 0.5
    theirs = multiclass_calibration_error(probs, labels, m, n_bins=n_bins, norm="l2")
    assert plugged == pytest.approx(float(theirs), abs=tolerance)
    for k in (1, 3):
        theirs = multiclass_accuracy(probs, labels, m, average="micro", top_k=k)
        assert M.top_k_accuracy(*case, k=k) == pytest.approx(float(theirs), abs=TOLERANCE)


def test_torchmetrics_gives_confidence_one_its_own_bin():
    """The documented difference: sure rows and nearly sure ones offset each other here, and not there."""
    probs = np.array([[1.0, 0.0]] * 2 + [[0.95, 0.05]] * 4)
    labels = np.array([0, 1, 0, 0, 0, 0])
    theirs = multiclass_calibration_error(torch.tensor(probs), torch.tensor(labels), 2, n_bins=10)
    assert M.ece(probs, labels, n_bins=10) == pytest.approx((2 + 4 * 0.95 - 5) / 6)
    assert float(theirs) == pytest.approx((1 + 4 * 0.05) / 6, abs=TOLERANCE)


def test_uncertainty_calibration_plug_in_errors(case):
    """Their equal-width and equal-mass ECE; equal mass to within the rows on a boundary."""
    assert M.ece(*case) == pytest.approx(calibration.get_ece(*case, num_bins=15), abs=TOLERANCE)
    theirs = calibration.get_ece_em(*case, num_bins=15)
    exact = len(case[1]) % 15 == 0 and len(np.unique(case[0].max(axis=1))) == len(case[1])
    assert M.adaptive_ece(*case) == pytest.approx(theirs, abs=TOLERANCE if exact else 15 / len(case[1]))


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_uncertainty_calibration_debiased(case, binning):
    """Exact on equal bins; equal-mass ones may differ by rows on a boundary when 15 does not divide n."""
    confidence, correct = top_label(case)
    utils = calibration.utils
    bins = (utils.get_equal_prob_bins if binning == "width" else utils.get_equal_bins)(confidence, 15)
    binned = utils.bin(list(zip(confidence, correct, strict=True)), bins)
    ours = M.debiased_ece(*case, binning=binning)
    exact = binning == "width" or len(correct) % 15 == 0
    assert ours == pytest.approx(utils.unbiased_l2_ce(binned), abs=TOLERANCE if exact else 5e-4)
    occupied = [part for part in binned if len(part) > 1]
    np.random.seed(0)  # noqa: NPY002 - their estimator draws from the global generator
    theirs = utils.normal_debiased_ce(occupied, power=1, resamples=20_000)
    assert M.debiased_ece(*case, binning=binning, norm=1) == pytest.approx(theirs, abs=3e-4)


def test_relplot_smooth_ece(case):
    """Their bandwidth comes from ten bisections of [0, 1], and points in the last cell of their grid count
    half (a mirrored end node is not doubled): compare on rows that are not that sure."""
    case = keep(case, case[0].max(axis=1) < 0.998)
    assert M.smooth_ece(*case) == pytest.approx(relplot.smECE(*top_label(case)), abs=1e-3)
