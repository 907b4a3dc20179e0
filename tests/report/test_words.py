"""Sentences from known numbers."""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Comparison, Floor, OrderAudit, OrderCounts, units
from monocal.plots import RankParameters, reliability_curve
from monocal.report import MethodComparison, MethodResult, words
from monocal.report.selection import SIMPLEST_FIRST
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
    assert units.points(gap) == text


def test_numbers():
    assert units.percent(0.055) == "5.50 %"
    assert units.number(float("inf")) == "∞"
    assert units.number(-0.25) == "−0.2500"
    assert units.small(3.2e-7) == "3.2 × 10⁻⁷"
    assert units.small(0.0) == "0"
    assert units.count(12345.0) == "12,345"
    assert units.count(2.5) == "2.5"


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


def result(name, keeps, row_nll, complexity=0):
    probs = np.exp(-np.asarray(row_nll))
    found = mc.evaluate(
        np.stack([probs, 1 - probs], axis=1), np.zeros(len(probs), dtype=int), metrics=["nll"]
    )
    top = np.where(probs < 0.5, 1, 0)
    return MethodResult(name, keeps, found, complexity=complexity, row_nll=np.asarray(row_nll), row_top=top)


def compared(*results):
    rows = len(next(one.row_nll for one in results if one.row_nll is not None))
    return MethodComparison(results, 0.95, np.zeros(rows, dtype=int))


@pytest.fixture
def base():
    return 1.2 + 0.1 * np.random.default_rng(0).random(400)


def noise(scale, seed=1):
    drawn = np.random.default_rng(seed).normal(size=400)
    return scale * (drawn - drawn.mean()) / drawn.std(ddof=1)


def test_noise_recommends_nothing(base):
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
    told = words.recommendation(methods)
    assert told.startswith("Ship temperature scaling: within noise of two others, and the simplest.")
    assert "Against no calibration its NLL is lower by 0.200 (95 % interval 0.190 to 0.210)" in told
    assert told.endswith("Chosen and judged by the same 400 rows.")


def test_a_clear_winner_is_named_as_such(base):
    methods = compared(
        result("uncalibrated", True, base + 0.2),
        result("temperature scaling", True, base + 0.01, complexity=0),
        result("conditional MCCT", True, base, complexity=4),
    )
    assert (
        words.advice(methods)
        == "Ship conditional MCCT: clearly better than the one other that keeps the order."
    )


def test_where_every_method_harms_none_is_recommended(base):
    methods = compared(
        result("uncalibrated", True, base),
        result("MCCT", True, base + 0.1),
        result("isotonic", True, base + 0.2),
    )
    assert methods.recommended == "uncalibrated"
    assert words.advice(methods) == "Ship the model as it is: both methods tried make it clearly worse."


def test_where_the_order_costs_both_methods_are_named(base):
    methods = compared(
        result("MCCT", True, base, complexity=2),
        result("Dirichlet", False, base - 0.1 + noise(0.01), complexity=9),
        result("vector scaling", False, base - 0.1 + noise(0.01, 2), complexity=7),
    )
    assert (methods.recommended, methods.recommended_free) == ("MCCT", "vector scaling")
    told = words.recommendation(methods)
    assert told.startswith("Ship MCCT: the only method judged that keeps the order.")
    assert "Keeping the order costs 0.100 NLL (97.5 % interval 0.099 to 0.101) and no accuracy" in told
    assert "Where the order may change, use vector scaling." in told


def test_where_the_order_costs_nothing_this_is_said(base):
    methods = compared(result("MCCT", True, base), result("matrix", False, base + noise(0.1)))
    assert methods.recommended_free is None
    told = words.recommendation(methods)
    assert "Keeping the order costs nothing that could be measured here" in told
    assert "may change" not in told


def test_a_simple_method_that_loses_to_a_free_one_is_no_price_of_order(base):
    # Temperature scaling is within noise of MCCT, and clearly worse than the free method, which MCCT is not.
    shared = noise(0.2)
    methods = compared(
        result("temperature scaling", True, base + 0.012, complexity=0),
        result("MCCT", True, base + shared, complexity=2),
        result("matrix", False, base + noise(0.001, 3), complexity=9),
    )
    assert methods.recommended == "temperature scaling"
    assert methods.clearly_worse("temperature scaling", "matrix")
    assert not methods.price[1].costs
    assert methods.recommended_free is None


def test_how_many_rows_would_settle_it(base):
    close = compared(result("uncalibrated", True, base + 0.004 + noise(0.1)), result("MCCT", True, base))
    told = words.more_rows(close)
    assert told == "About 4,900 rows would tell whether calibration changes anything."
    # As many rows of this kind do tell: 80 times in 100, and the other way round with a fifth of them.
    needed = close.difference("MCCT", "uncalibrated").rows_to_settle
    rng = np.random.default_rng(5)
    for rows, share in ((needed, 0.8), (needed / 5, 0.25)):
        drawn = rng.normal(-0.004, 0.1, size=(400, round(rows)))
        ends = drawn.mean(axis=1) + 1.96 * drawn.std(axis=1) / np.sqrt(round(rows))
        assert np.mean(ends < 0) == pytest.approx(share, abs=0.06)
    same = compared(result("uncalibrated", True, base), result("MCCT", True, base))
    assert words.more_rows(same) == ""
    assert "its NLL is the same" in words.recommendation(same)


def test_without_any_method_that_says_so(base):
    assert "No method" in words.recommendation(compared(result("uncalibrated", True, base)))


def test_a_label_of_probability_zero_does_not_break_the_comparison():
    methods = compared(
        result("uncalibrated", True, [np.inf, 0.1]),
        result("MCCT", True, [0.5, 0.1]),
        result("histogram", True, [np.inf, 0.0]),
    )
    assert methods.recommended == "MCCT"
    told = words.recommendation(methods)
    assert (
        "Against no calibration its NLL is finite: uncalibrated gives a label no probability at all" in told
    )
    assert "nan" not in told


def test_every_method_has_its_place_among_the_simple_and_the_complex():
    assert {info.cls for info in mc.calibrators() if not info.published} <= set(SIMPLEST_FIRST)
