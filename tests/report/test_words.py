"""Sentences from known numbers."""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Comparison, Floor, OrderAudit, OrderCounts
from monocal.plots import RankParameters, reliability_curve
from monocal.report import MethodComparison, MethodResult, words
from monocal.solver import Solution


def curve_of(confidence, accuracy, count):
    probs = np.repeat([[c, 1 - c] for c in confidence], count, axis=0)
    labels = np.concatenate(
        [np.arange(n) >= round(a * n) for a, n in zip(accuracy, count, strict=True)]
    ).astype(int)
    return reliability_curve(probs, labels, n_bins=10)


def test_over_and_under_confidence_are_told_with_place_size_and_weight():
    curve = curve_of([0.55, 0.75, 0.85, 0.95], [0.75, 0.67, 0.77, 0.95], [400, 300, 300, 1000])
    assert words.what_is_wrong(curve) == [
        "Under-confident by 20 points between 0.50 and 0.60 (400 samples, 20 % of all).",
        "Over-confident by 8.0 points between 0.70 and 0.90 (600 samples, 30 % of all).",
    ]


def test_the_ends_of_the_scale_are_named_as_such():
    assert words.what_is_wrong(curve_of([0.95], [0.8], [1000])) == [
        "Over-confident by 15 points above 0.90 (1,000 samples, 100 % of all)."
    ]
    told = words.what_is_wrong(
        reliability_curve([[0.06] * 16 + [0.04]] * 500, [0] * 250 + [1] * 250, n_bins=10)
    )
    assert told == ["Under-confident by 44 points below 0.10 (500 samples, 100 % of all)."]


def test_what_chance_explains_is_not_called_wrong():
    curve = curve_of([0.65, 0.95], [0.62, 0.94], [100, 100])
    assert words.what_is_wrong(curve) == [
        "In no bin does the accuracy leave the 95 % band of perfect calibration."
    ]


def test_many_stretches_are_cut_to_those_that_matter():
    # Alternating signs, so that every bin is a stretch of its own; the lightest is left out.
    curve = curve_of([0.55, 0.65, 0.75, 0.85, 0.95], [0.75, 0.45, 0.95, 0.65, 1.0], [900, 900, 900, 900, 300])
    told = words.what_is_wrong(curve)
    assert len(told) == 5
    assert told[-1].startswith("1 smaller stretch is left out")
    assert not any("above 0.90" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (0.08, "8.0 points"),
        (-0.12, "12 points"),
        (0.01, "1 point"),
        (0.0004, "0.0 points"),
        (0.0999, "10 points"),
    ],
)
def test_points(gap, text):
    assert words.points(gap) == text


def test_numbers():
    assert words.percent(0.055) == "5.50 %"
    assert words.number(float("inf")) == "∞"
    assert words.number(-0.25) == "−0.2500"
    assert words.small(3.2e-7) == "3.2 × 10⁻⁷"
    assert words.small(0.0) == "0"
    assert words.count(12345.0) == "12,345"
    assert words.count(2.5) == "2.5"


def test_on_average():
    told = words.on_average(curve_of([0.95], [0.8], [1000]))
    assert told == (
        "It claims 95.00 % on average and is right in 80.00 % of the cases: over-confident by 15 points."
    )


def floor(observed, p_value):
    return Floor(0.008, 0.005, 0.012, observed, p_value, 0.95, np.zeros(1))


def nll(a, b, low, high):
    return Comparison("nll", a, b, a - b, low, high, 1.0, 0.01, False, 100, 0.95)


def test_floor():
    assert words.against_floor(floor(0.009, 0.3)).endswith(
        "so 0.90 % cannot be told from perfect calibration."
    )
    assert words.against_floor(floor(0.03, 0.001)).endswith("so 3.00 % is more than chance.")


@pytest.mark.parametrize(
    ("before", "after", "judged", "p", "says"),
    [
        (0.8, 0.95, nll(0.2, 0.3, -0.11, -0.09), 0.4, "which cannot be told from perfect calibration"),
        (0.8, 0.9, nll(0.2, 0.3, -0.11, -0.09), 0.001, "some error is left"),
        (0.9, 0.8, nll(0.2, 0.3, -0.11, -0.09), 0.001, "NLL fell from 0.3000 to 0.2000, but ECE went"),
        (0.8, 0.9, nll(0.4, 0.3, 0.09, 0.11), 0.001, "made the probabilities worse"),
        (0.8, 0.9, nll(0.3, 0.3001, -0.1, 0.1), 0.4, "changed little that these rows can show"),
    ],
)
def test_headline_says_what_the_numbers_say(before, after, judged, p, says):
    old, new = curve_of([0.95], [before], [1000]), curve_of([0.95], [after], [1000])
    assert says in words.headline(old, new, floor(0.01, p), judged)


def test_order():
    fine = OrderCounts(100, 0, 0, 0, 0, 0)
    told = " ".join(words.order_in_words(OrderAudit(fine, fine, 0.7), True))
    assert "In none of the 100 rows" in told
    assert "guarantees the order" in told
    worse = OrderCounts(200, 10, 35, 2, 7, 4)
    told = " ".join(words.order_in_words(OrderAudit(worse, fine, 0.7), False))
    assert "In 10 of 200 rows (5.00 %) at least two classes changed places: 35 pairs, and 2 ties" in told
    assert "The predicted class changed in 4 rows (2.00 %)." in told
    assert "7 pairs" in told
    assert "does not guarantee" in told


def test_certificate():
    proven = Solution(np.ones(1), True, "converged", 3e-7, 1.5e-6, 0.4, 5)
    told = words.certificate_in_words(proven, 1e-6)
    assert "global optimum" in told
    assert "3.0 × 10⁻⁷ (tolerance 1.0 × 10⁻⁶)" in told
    stopped = Solution(np.ones(1), False, "stopped: the iteration limit", 3e-3, 0.1, 0.4, 100)
    assert words.certificate_in_words(stopped, None).startswith("Not certified: stopped")


def test_parameters():
    one = RankParameters(np.arange(1, 4), np.full(3, 0.5), np.zeros(3), None, None, 1, 3)
    assert words.parameters_in_words(one).endswith("The temperature is 2.0000.")
    two = RankParameters(np.arange(1, 4), np.array([2.0, 1, 1]), np.zeros(3), None, None, 2, 3)
    assert words.parameters_in_words(two) == (
        "Counted from the top, ranks 2 to 3 share one weight and bias; above them the correction grows at 1 rank."
    )


def result(name, keeps, row_nll):
    probs = np.exp(-np.asarray(row_nll))
    found = mc.evaluate(
        np.stack([probs, 1 - probs], axis=1), np.zeros(len(probs), dtype=int), metrics=["nll"]
    )
    top = np.where(probs < 0.5, 1, 0)
    return MethodResult(name, keeps, found, row_nll=np.asarray(row_nll), row_top=top)


def test_recommendation_gives_its_reason():
    rng = np.random.default_rng(0)
    base = 0.5 + 0.1 * rng.random(400)
    methods = MethodComparison(
        (
            result("uncalibrated", True, base + 0.2),
            result("temperature scaling", True, base + 0.01 * rng.normal(size=400)),
            result("MCCT", True, base - 0.001),
            result("matrix", False, base - 0.1),
            MethodResult("slow", True, note="not tried"),
        ),
        "MCCT",
        0.95,
        np.zeros(400, dtype=int),
    )
    told = words.recommendation(methods)
    assert told.startswith(
        "Use MCCT: of the methods that guarantee the order of the classes it has the lowest NLL"
    )
    assert "The difference from uncalibrated is clear (−0.2010, 95 % interval −0.2010 to −0.2010)." in told
    assert (
        "Keeping the order costs 0.099 NLL (95 % interval 0.099 to 0.099) and 0.0 points of accuracy" in told
    )
    assert told.endswith("Where the order may change, use matrix (both were chosen by these rows).")
    alike = MethodComparison(
        (result("MCCT", True, base), result("matrix", False, base)), "MCCT", 0.95, np.zeros(400, dtype=int)
    )
    assert "Keeping the order costs nothing that could be measured here" in words.recommendation(alike)
    assert "may change" not in words.recommendation(alike)
    none = MethodComparison(methods.results[:1], None, 0.95)
    assert "No method" in words.recommendation(none)


def test_a_label_of_probability_zero_does_not_break_the_comparison():
    methods = MethodComparison(
        (result("uncalibrated", True, [np.inf, 0.1]), result("MCCT", True, [0.5, 0.1])), "MCCT", 0.95
    )
    assert "probability zero" in words.recommendation(methods)
