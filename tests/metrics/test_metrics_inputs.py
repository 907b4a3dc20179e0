"""What the metrics accept, and the sentence with which they refuse the rest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax

import monocal as mc
from monocal import metrics as M

GENERATOR = np.random.default_rng(0)
PROBS = softmax(2 * GENERATOR.standard_normal((50, 4)), axis=1)
LABELS = GENERATOR.integers(4, size=50)


@pytest.mark.parametrize(
    "convert",
    [
        lambda p: p.tolist(),
        lambda p: pd.DataFrame(p, columns=list("abcd")),
        lambda p: torch.tensor(p, requires_grad=True),
        np.asfortranarray,
        np.ma.asarray,
    ],
)
def test_containers_give_the_same_numbers(convert):
    assert mc.evaluate(convert(PROBS), LABELS).to_dict() == mc.evaluate(PROBS, LABELS).to_dict()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 2e-3), (torch.bfloat16, 2e-2)]
)
def test_any_float_type_is_read(dtype, tolerance):
    low = PROBS.astype(dtype) if isinstance(dtype, type) else torch.tensor(PROBS).to(dtype)
    for metric in (M.nll, M.brier, M.smooth_ece):
        assert metric(low, LABELS) == pytest.approx(metric(PROBS, LABELS), abs=tolerance)


@pytest.mark.parametrize(
    "labels", [LABELS.tolist(), pd.Series(LABELS), torch.tensor(LABELS), LABELS.astype(float)]
)
def test_labels_in_any_container(labels):
    assert M.nll(PROBS, labels) == M.nll(PROBS, LABELS)


def broken(row, values):
    probs = PROBS.copy()
    probs[row] = values
    return probs


def labelled(value):
    return np.where(np.arange(50) == 11, value, LABELS)


@pytest.mark.parametrize(
    ("probs", "labels", "words"),
    [
        (broken(7, [0.5, 0.2, 0.2, 0.2]), LABELS, "probs.*row 7.*1.1.*softmax"),
        (broken(3, [1.2, -0.2, 0, 0]), LABELS, "probs.*row 3.*-0.2"),
        (broken(9, [np.nan, 1, 0, 0]), LABELS, "probs.*row 9.*NaN"),
        (PROBS[:, 0], LABELS, r"probs has shape \(50,\).*P\(class 1\).*column_stack"),
        (PROBS[None], LABELS, r"probs.*\(1, 50, 4\)"),
        (PROBS[:0], LABELS[:0], "probs.*0 sample"),
        ([[0.5, 0.5], [1.0]], [0, 1], "probs.*rows of one length"),
        ([["a", "b"]], [0], "probs.*type <U1"),
        (np.ma.masked_less(PROBS, 0.1), LABELS, "probs.*masked"),
        (PROBS, LABELS[:-1], "labels"),
        (PROBS, labelled(-1), "labels.*row 11"),
        (PROBS, labelled(0.5), "labels.*row 11.*0.5|labels.*0.5.*row 11"),
    ],
)
def test_refusals_name_the_argument_and_the_row(probs, labels, words):
    for call in (M.nll, mc.evaluate, mc.ece_floor, M.Evaluator().update):
        with pytest.raises(mc.InputError, match=words):
            call(probs, labels)


def test_two_names_whose_order_contradicts_the_probabilities_are_warned_of():
    p = np.linspace(0.1, 0.9, 50)
    names = np.where(p > 0.4, "fraud", "legit")
    with pytest.warns(UserWarning, match=r"P\(class 1\) is that of 'legit'.*pass labels == 'fraud'"):
        M.ece(p, names)
    assert M.ece(p, names == "fraud") == M.ece(1 - p, names)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: M.ece(PROBS, LABELS, n_bins=2.5), "n_bins"),
        (lambda: M.eq_bin_ece(PROBS, LABELS, bin_size=0), "bin_size"),
        (lambda: M.kde_ece(PROBS, LABELS, bandwidth="scott"), "bandwidth"),
        (lambda: M.debiased_ece(PROBS, LABELS, norm=3), "norm"),
        (lambda: M.debiased_ece(PROBS, LABELS, binning="both"), "binning"),
        (lambda: M.top_k_accuracy(PROBS, LABELS, k=0), "k must"),
        (lambda: M.ece(PROBS, LABELS, sample_weight=-np.ones(50)), "sample_weight"),
        (lambda: M.ece(PROBS, LABELS, sample_weight=np.ones(49)), "sample_weight"),
        (lambda: mc.evaluate(PROBS, LABELS, metrics=["ece", "auc"]), "auc"),
        (lambda: mc.evaluate(PROBS, LABELS, metrics=[]), "metrics"),
        (lambda: mc.evaluate(PROBS, LABELS, n_boot=2, level=95), "level"),
        (lambda: M.compare(PROBS, PROBS[:, ::-1], LABELS, ["ece"]), "metric"),
        (lambda: M.compare(PROBS, softmax(np.ones((50, 5)), axis=1), LABELS), "probs_b"),
        (lambda: mc.order_audit(PROBS, PROBS[:, :3]), "after"),
        (lambda: mc.order_audit(PROBS, PROBS, input="scores"), "input"),
        (lambda: mc.order_audit(broken(5, np.nan), PROBS, input="logits"), "row 5"),
        (lambda: M.Evaluator().result(), "update"),
    ],
)
def test_options_are_checked(call, word):
    with pytest.raises(mc.InputError, match=word):
        call()


def test_a_single_row_is_enough():
    result = mc.evaluate([[0.7, 0.3]], [0], n_boot=3)
    assert result["ece"].value == pytest.approx(0.3)
    undefined = {name for name, e in result.estimates.items() if not np.isfinite(e.value)}
    assert undefined == {"auc", "calibration_slope", "calibration_intercept"}  # they need both classes
