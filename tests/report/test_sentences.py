"""Verdicts and advice from known numbers: each says what its numbers show, and no more."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Floor, units
from monocal.metrics.differences import Difference
from monocal.plots import reliability_curve
from monocal.report import MethodComparison, MethodResult
from monocal.report import sentences as say
from monocal.report.comparison import ece_raised, harm_of
from monocal.selection import recommend

BETTER, UNCLEAR, WORSE = (
    Difference(*ends) for ends in ((-0.1, -0.12, -0.08), (-0.1, -0.3, 0.1), (0.1, 0.08, 0.12))
)


def curve_of(confidence, accuracy, count, label=None):
    probs = np.repeat([[c, 1 - c] for c in confidence], count, axis=0)
    labels = [np.arange(n) >= round(a * n) for a, n in zip(accuracy, count, strict=True)]
    return reliability_curve(probs, np.concatenate(labels).astype(int), n_bins=10, label=label)


def floor(observed, p_value, high=0.012):
    return Floor(0.008, 0.0, high, observed, p_value, 0.95, np.zeros(1))


def test_stretches_have_place_size_and_weight():
    curve = curve_of([0.55, 0.75, 0.85, 0.95], [0.75, 0.67, 0.77, 0.95], [400, 300, 300, 1000])
    assert say.what_is_wrong(curve, "confidence") == [
        "Under-confident by 20 points for a confidence of 0.5 to 0.6 (400 rows, 20.0 % of all).",
        "Over-confident by 8.0 points for a confidence of 0.7 to 0.9 (600 rows, 30.0 % of all).",
    ]
    (low,) = say.what_is_wrong(curve_of([0.06], [0.5], [1000], label=0), "P(class 1)", two=True)
    assert low.startswith("Too low by 44 points for a P(class 1) of 0 to 0.1")
    fine = curve_of([0.65, 0.95], [0.62, 0.94], [100, 100])
    assert say.what_is_wrong(fine, "confidence") == ["No bin leaves the 95 % band of perfect calibration."]


@pytest.mark.parametrize(
    ("old", "new", "difference", "more_is_better", "says"),
    [
        (0.3, 0.2, BETTER, False, "better"),
        (0.2, 0.3, WORSE, False, "worse"),
        (0.80, 0.81, WORSE, True, "better"),
        (0.2, 0.3, UNCLEAR, False, "no clear difference"),
        (0.8, 0.8, Difference(0.0, 0.0, 0.0), True, "unchanged"),
        (np.inf, 0.6465, Difference(-np.inf, -np.inf, np.inf), False, "better"),
        (0.6, np.inf, Difference(np.inf, -np.inf, np.inf), False, "worse"),
        (np.inf, np.inf, Difference(np.nan, -np.inf, np.inf), False, "unchanged"),
        (0.000601, 0.000602, None, False, "unchanged"),
        (0.0007, 0.0006, None, False, "lower"),
    ],
)
def test_changes(old, new, difference, more_is_better, says):
    assert say.change_in_words(old, new, units.percent, difference, more_is_better) == says


@pytest.mark.parametrize(
    ("accuracy", "p", "nll", "high", "state", "says"),
    [
        (0.8, 0.001, BETTER, 0.012, "bad", "Not trustworthy as it is: over-confident by 15 points."),
        (0.945, 0.001, UNCLEAR, 0.003, "fair", "Nearly trustworthy as it is: over-confident by 0.5 points, more"),
        (0.95, 0.4, UNCLEAR, 0.012, "good", "Trustworthy as it is: on 1,000 rows, no error beyond chance."),
        (0.95, 0.4, BETTER, 0.012, "fair", "but calibration clearly lowers the NLL."),
        (0.95, 0.4, UNCLEAR, 0.14, "few", "on 1,000 rows even a perfectly calibrated model has an ECE of up to 14.00 %."),
    ],
)  # fmt: skip
def test_trust(accuracy, p, nll, high, state, says):
    actual = say.trust(curve_of([0.95], [accuracy], [1000]), floor(0.01, p, high), nll)
    assert actual[0] == state
    assert says in actual[1]


GRID = list(product([20, 199, 200, 5000], [-0.3, -0.1, 0.0, 0.02, 0.3], [BETTER, UNCLEAR, WORSE]))


@pytest.mark.parametrize("two", [False, True])
def test_the_verdict_says_what_the_evidence_shows(two):
    for rows, gap, nll in GRID:
        curve = curve_of([0.7], [0.7 - gap], [rows], label=0)
        for high in (0.005, 0.02, 0.08):
            more = curve.ece > high
            state, headline = say.trust(curve, floor(curve.ece, 0.001 if more else 0.5, high), nll, two)
            # "Not trustworthy" is said of errors beyond chance, and of few rows only where calibration clearly helps.
            assert ("Not trustworthy" in headline) == (state == "bad")
            assert state != "bad" or (more and (rows >= 200 or nll is BETTER))
            assert state != "good" or (not more and rows >= 200 and not curve.outside.any())
            assert (state == "few") == headline.startswith("Too few rows to say")
            assert state == "few" or rows >= 200 or nll is BETTER
            if state == "bad":
                words = ("too high", "too low") if two else ("over-confident", "under-confident")
                size = units.points(curve.mean_confidence - curve.mean_accuracy)
                assert f"{words[0] if gap > 0 else words[1]} by {size}" in headline


def test_nothing_is_called_fine_above_a_bin_that_is_off():
    curve = curve_of([0.55, 0.95], [0.75, 0.95], [60, 5000])
    state, headline = say.trust(curve, floor(curve.ece, 0.3), UNCLEAR)
    assert state == "fair"
    assert "not the error of 1 of 2 bins" in headline


def test_errors_of_both_signs_or_that_cancel_are_not_called_one_of_them():
    curve = curve_of([0.55, 0.95], [0.75, 0.75], [500, 500])
    assert say.trust(curve, floor(0.2, 0.001), BETTER)[1].endswith("off by 20 points on average.")
    # One bin alone leaves the band, and the others cancel it: the mean says nothing of the size.
    curve = curve_of([0.55, 0.65, 0.95], [0.75, 0.62, 0.93], [300, 800, 500])
    assert say.trust(curve, floor(curve.ece, 0.001), BETTER)[1].endswith("off by 5.9 points on average.")


# Methods.


def result(name, keeps, row_nll, complexity=0):
    probs = np.exp(-np.asarray(row_nll))
    rows, labels = np.stack([probs, 1 - probs], axis=1), np.zeros(len(probs), dtype=int)
    evaluation, top = mc.evaluate(rows, labels, metrics=["nll"]), (probs < 0.5).astype(int)
    return MethodResult(
        name, keeps, evaluation, complexity=complexity, row_nll=np.asarray(row_nll), row_top=top
    )


def compared(*results, **options):
    rows = len(next(one.row_nll for one in results if one.row_nll is not None))
    return MethodComparison(results, 0.95, np.zeros(rows, dtype=int), **options)


@pytest.fixture
def base():
    return 1.2 + 0.1 * np.random.default_rng(0).random(400)


def noise(scale, seed=1):
    drawn = np.random.default_rng(seed).normal(size=400)
    return scale * (drawn - drawn.mean()) / drawn.std(ddof=1)


def test_among_methods_of_the_callers_noise_recommends_nothing(base):
    methods = compared(
        result("uncalibrated", True, base + 0.2),
        result("isotonic", True, base - 0.0002, complexity=5),
        result("MCCT", True, base + noise(0.1), complexity=2),
        result("temperature scaling", True, base + noise(0.1, 2), complexity=0),
        result("clearly worse and simpler", True, base + 0.1, complexity=-1),
        MethodResult("slow", True, note="not tried"),
    )
    assert methods.best(keeping=True).name == "isotonic"
    assert [one.name for one in methods.alike(keeping=True)] == ["temperature scaling", "MCCT", "isotonic"]
    assert methods.recommended == "temperature scaling"
    text = say.recommendation(methods)
    assert text.startswith("Use temperature scaling: of the methods that keep the order, the simplest")
    assert "Its NLL is lower by 0.200 (95 % interval 0.190 to 0.210) than without calibration." in text
    assert text.endswith("Not judged: slow.")
    harmful = compared(result("uncalibrated", True, base), result("MCCT", True, base + 0.1))
    assert harmful.recommended == "uncalibrated"
    assert say.advice(harmful).startswith("No calibration is recommended: every method")


def test_the_recommended_method_is_not_the_winner_of_the_rows_that_judge(base):
    data = mc.data.synthetic(400, 4)
    advised = recommend(data.values, data.labels)
    rows = [
        result("uncalibrated", True, base + 0.2),
        result("conditional MCCT", True, base, complexity=8),
        result("spline", True, base - 0.05, complexity=19),
    ]
    of_advice = {"default": "conditional MCCT", "recommendation": advised}
    methods = compared(*rows, **of_advice)
    assert methods.recommended == "conditional MCCT"
    assert say.advice(methods) == f"Use conditional MCCT: {advised.reason}"
    vetoed = compared(*rows, harm=("raises the ECE from 4.30 % to 8.52 %",), **of_advice)
    assert vetoed.recommended == "uncalibrated"
    assert (
        say.advice(vetoed)
        == "No calibration is recommended: conditional MCCT raises the ECE from 4.30 % to 8.52 %."
    )


def test_where_the_order_costs_both_methods_are_named(base):
    methods = compared(
        result("MCCT", True, base, complexity=2),
        result("Dirichlet", False, base - 0.1 + noise(0.01), complexity=9),
        result("vector scaling", False, base - 0.1 + noise(0.01, 2), complexity=7),
    )
    assert (methods.recommended, methods.recommended_free) == ("MCCT", "vector scaling")
    text = say.recommendation(methods)
    assert "Keeping the order costs 0.100 NLL (97.5 % interval 0.099 to 0.101)" in text
    assert "Where the order may change, use vector scaling." in text
    free = compared(result("MCCT", True, base), result("matrix", False, base + noise(0.1)))
    assert free.recommended_free is None
    assert "costs nothing that could be measured here" in say.recommendation(free)
    # Temperature scaling is indistinguishable from MCCT, and clearly worse than the free method, which MCCT is not.
    simple = compared(
        result("temperature scaling", True, base + 0.012, complexity=0),
        result("MCCT", True, base + noise(0.2), complexity=2),
        result("matrix", False, base + noise(0.001, 3), complexity=9),
    )
    assert simple.recommended == "temperature scaling"
    assert simple.clearly_worse("temperature scaling", "matrix")
    assert simple.recommended_free is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("temperature scaling", "Temperature scaling, as asked for. Use temperature scaling: of the methods"),
        ("MCCT", "MCCT, as asked for: its NLL is lower by 0.00"),
        ("isotonic", "Isotonic, as asked for: its NLL is higher by 0.100 (95 % interval 0.090 to 0.110) than with temperature"),
        ("matrix", "Matrix, as asked for: its NLL is lower by 0.100 (95 % interval 0.090 to 0.110) than with"),
        ("slow", "Slow, as asked for: stopped"),
    ],
)  # fmt: skip
def test_a_method_asked_for_is_compared(base, asked, says):
    methods = compared(
        result("uncalibrated", True, base + 0.2),
        result("temperature scaling", True, base + noise(0.1) + 1e-6, complexity=0),
        result("MCCT", True, base, complexity=2),
        result("isotonic", True, base + 0.1, complexity=5),
        result("matrix", False, base - 0.1, complexity=8),
        MethodResult("slow", True, note="stopped"),
        asked=asked,
    )
    text = say.as_asked(methods)
    assert text.startswith(says)
    assert text.endswith("it may change the order.") == (asked == "matrix")
    assert ("may be chance" in text) == (asked == "MCCT")


def test_a_label_of_probability_zero_does_not_break_the_comparison(base):
    methods = compared(
        result("uncalibrated", True, [np.inf, 0.1]),
        result("MCCT", True, [0.5, 0.1]),
        result("histogram", True, [np.inf, 0.0]),
    )
    assert methods.recommended == "MCCT"
    text = say.recommendation(methods)
    assert "Its NLL is 0.3000, and ∞ without calibration." in text
    assert not re.search(r"\bnan\b", text)
    assert "No method" in say.recommendation(compared(result("uncalibrated", True, base)))


# Harm.


def claims(p, seed=0):
    """Labels of rows whose P(class 1) is right, and rows of probabilities."""
    y = (np.random.default_rng(seed).random(len(p)) < p).astype(int)
    return y, np.stack([1 - p, p], axis=1)


def test_harm_is_what_chance_does_not_explain():
    p = np.random.default_rng(1).random(3000)
    y, right = claims(p)
    squeezed = np.stack([1 - (0.3 + 0.4 * p), 0.3 + 0.4 * p], axis=1)
    old, new, raised = ece_raised(right, squeezed, y, 0.95, 0)
    assert raised
    assert new > old + 0.05
    assert not ece_raised(squeezed, right, y, 0.95, 0)[2]
    harm = harm_of(right, squeezed, y, None, 0.95, 0)
    assert [text.split(" by ")[0].split(" from ")[0] for text in harm] == ["raises the NLL", "raises the ECE"]
    groups = np.where(np.arange(3000) % 3 == 0, "hurt", "helped")
    mixed = np.where((groups == "hurt")[:, None], squeezed, right)
    before = np.where((groups == "hurt")[:, None], right, squeezed)
    assert [text for text in harm_of(before, mixed, y, groups, 0.95, 0) if "'hurt'" in text]
    assert harm_of(right, right, y, groups, 0.95, 0) == ()


def test_harm_is_rarely_seen_where_there_is_none():
    calls = []
    for seed in range(60):
        y, right = claims(np.random.default_rng(seed).random(500), seed)
        shaken = np.clip(right + np.random.default_rng(seed).normal(0, 0.003, (500, 1)) * [1, -1], 1e-3, 1)
        calls.append(bool(harm_of(right, shaken, y, None, 0.95, 0)))
    assert np.mean(calls) <= 0.15
