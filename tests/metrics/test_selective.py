"""Risk and coverage against a plain loop, and figures for trackers."""

import json

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal import metrics as M


def draw(n=200, m=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = softmax(2 * rng.normal(size=(n, m)), axis=1)
    return probs, np.array([rng.choice(m, p=p) for p in probs])


def loop_aurc(order, wrong):
    return np.mean([wrong[order[: t + 1]].mean() for t in range(len(order))])


def test_the_area_is_the_mean_of_the_risks():
    probs, labels = draw()
    wrong = (probs.argmax(axis=1) != labels).astype(float)
    result = loop_aurc(np.argsort(-probs.max(axis=1)), wrong)
    assert M.aurc(probs, labels) == pytest.approx(result, abs=1e-12)
    best = loop_aurc(np.argsort(wrong), wrong)
    assert M.e_aurc(probs, labels) == pytest.approx(result - best, abs=1e-12)


def test_equal_confidences_are_answered_together():
    probs, labels = draw(60)
    confidence = probs.max(axis=1).round(1)
    coarse = np.full_like(probs, ((1 - confidence) / 3)[:, None])
    coarse[np.arange(60), probs.argmax(axis=1)] = confidence
    wrong = (probs.argmax(axis=1) != labels).astype(float)
    own = [wrong[confidence >= threshold].mean() for threshold in confidence]
    assert M.aurc(coarse, labels) == pytest.approx(np.mean(own), abs=1e-12)


def test_the_curve_answers_questions():
    probs, labels = draw(300)
    curve = M.risk_coverage_curve(probs, labels)
    top, wrong = probs.max(axis=1), probs.argmax(axis=1) != labels
    assert curve.risk_at(0.5) == pytest.approx(wrong[np.argsort(-top)][:150].mean())
    assert curve.risk_at(1) == pytest.approx(wrong.mean())
    share = curve.coverage_at(0.2)
    answered = top >= curve.threshold[np.flatnonzero(curve.coverage == share)[0]]
    assert answered.mean() == pytest.approx(share)
    assert wrong[answered].mean() <= 0.2
    assert (curve.risk[curve.coverage > share] > 0.2).all()
    assert M.risk_coverage_curve([[0.9, 0.1]] * 3, [1, 1, 1]).coverage_at(0.5) == 0
    assert json.loads(json.dumps(curve.to_dict()))["aurc"] == curve.aurc
    with pytest.raises(mc.InputError, match="coverage must be a number above 0 and at most 1"):
        curve.risk_at(0)


def test_flat_figures_are_numbers_by_plain_names():
    whole = mc.evaluate(*draw(200), n_boot=20, groups=np.arange(200) % 3)
    flat = whole.to_dict(flat=True)
    assert all(isinstance(value, int | float) for value in flat.values())
    assert all(name.isidentifier() for name in flat)
    assert (flat["ece"], flat["nll_low"], flat["n_samples"]) == (whole["ece"].value, whole["nll"].low, 200)
    assert "mce_low" not in flat
    assert (flat["groups_n_groups"], flat["groups_mean_ece"]) == (3, whole.groups.mean_ece)
