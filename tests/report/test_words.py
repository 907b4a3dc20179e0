"""Sentences from known numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Floor, OrderAudit, OrderCounts, units
from monocal.metrics.paired import Difference
from monocal.plots import RankParameters, reliability_curve
from monocal.report import MethodComparison, MethodResult, advice, verdict, words
from monocal.report.confidence import ConfidenceChange
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


def floor(observed, p_value, high=0.012):
    return Floor(0.008, 0.005, high, observed, p_value, 0.95, np.zeros(1))


def test_on_average():
    curve = curve_of([0.95], [0.8], [1000])
    claim = "It claims 95.00 % on average and is right in 80.00 % of the cases: over-confident by 15 points"
    assert words.on_average(curve, floor(0.15, 0.001)) == f"{claim}."
    assert words.on_average(curve, floor(0.15, 0.4)) == f"{claim}, which chance explains."


def test_floor():
    assert words.against_floor(floor(0.009, 0.3), 2500).endswith(
        "so 0.90 % is, on 2,500 rows, indistinguishable from perfect calibration."
    )
    assert words.against_floor(floor(0.03, 0.001), 2500).endswith("so 3.00 % is more than chance.")


@pytest.mark.parametrize(
    ("old", "new", "difference", "more_is_better", "says"),
    [
        ("0.3", "0.2", Difference(-0.1, -0.12, -0.08), False, "better"),
        ("0.2", "0.3", Difference(0.1, 0.08, 0.12), False, "worse"),
        ("80 %", "81 %", Difference(0.01, 0.005, 0.015), True, "better"),
        ("80 %", "79 %", Difference(-0.01, -0.015, -0.005), True, "worse"),
        ("0.2", "0.3", Difference(0.1, -0.08, 0.12), False, "no clear difference"),
        ("0.06 %", "0.06 %", Difference(-1e-6, -2e-6, -1e-7), False, "better, by less than is shown"),
        ("80 %", "80 %", Difference(0.0, 0.0, 0.0), True, "unchanged"),
        ("0.06 %", "0.06 %", None, False, "unchanged"),
        ("0.07 %", "0.06 %", None, False, "lower"),
        ("0.06 %", "0.07 %", None, False, "higher"),
    ],
)
def test_changes(old, new, difference, more_is_better, says):
    lower = difference.mean < 0 if difference else new < old
    assert words.change_in_words(old, new, lower, difference, more_is_better) == says


@pytest.mark.parametrize(
    ("accuracy", "p", "improved", "high", "state", "says"),
    [
        (0.8, 0.001, True, 0.012, "bad", "Not trustworthy as it is: over-confident by 15 points."),
        (0.999, 0.001, True, 0.012, "bad", "Not trustworthy as it is: under-confident by 4.9 points."),
        (
            0.945,
            0.001,
            False,
            0.003,
            "fair",
            "Nearly trustworthy as it is: over-confident by 0.5 points, more",
        ),
        (
            0.95,
            0.4,
            False,
            0.012,
            "good",
            "Trustworthy as it is: on 1,000 rows, indistinguishable from perfect",
        ),
        (0.95, 0.4, True, 0.012, "fair", "but calibration clearly lowers the NLL."),
        (0.95, 0.4, False, 0.14, "fair", "show little: even an ECE of 14.00 % would be within chance."),
    ],
)
def test_trust(accuracy, p, improved, high, state, says):
    found = verdict.trust(curve_of([0.95], [accuracy], [1000]), floor(0.01, p, high), improved)
    assert found[0] == state
    assert says in found[1]


def test_errors_of_both_signs_are_not_called_one_of_them():
    curve = curve_of([0.55, 0.95], [0.75, 0.75], [500, 500])
    told = verdict.trust(curve, floor(0.2, 0.001), True)[1]
    assert (
        told
        == "Not trustworthy as it is: off by 20 points on average, over-confident here and under-confident there."
    )


def test_few_rows_are_never_called_trustworthy():
    assert "60 rows show little" in verdict.trust(curve_of([0.95], [0.95], [60]), floor(0.0, 1.0), False)[1]


def test_order():
    fine = OrderCounts(100, 0, 0, 0, 0, 0)
    told = " ".join(words.order_in_words(OrderAudit(fine, fine, 0.7), True))
    assert "In none of the 100 rows" in told
    assert "guarantees the order" in told
    worse = OrderCounts(200, 10, 35, 2, 7, 4)
    told = " ".join(words.order_in_words(OrderAudit(worse, fine, 0.7), False))
    assert (
        "In 10 of 200 rows (5.00 %) at least two classes changed places: 35 pairs, and 2 ties broken." in told
    )
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


def ranks(weight, constant_from, spread=None, bias_spread=0.0):
    weight = np.asarray(weight, dtype=float)
    n = len(weight)
    ends = None if spread is None else np.stack([weight - spread, weight + spread])
    biases = None if spread is None else np.stack([np.zeros(n), np.full(n, bias_spread)])
    return RankParameters(np.arange(1, n + 1), weight, np.zeros(n), ends, biases, constant_from, n)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (ranks([0.5] * 3, 1), "It is temperature scaling: every logit is divided by 2.0000."),
        # A weight that depends on the sample is no temperature.
        (ranks([0.5] * 2, 1, 0.1), "All ranks share one weight. It depends on the sample: the weight of the top class lies"),
        (ranks([0.5] * 2, 1, 0.0, 0.5), "All ranks share one weight. The biases depend on the sample."),
        # The conditional family on data that ask for nothing conditional.
        (ranks([0.5] * 10, 1, 0.0), "It is temperature scaling: every logit is divided by 2.0000."),
        (ranks([2.0, 1, 1], 2, 0.0), "It could depend on the sample, but on these data it does not."),
        (ranks([2.0, 1, 1], 2), "Counted from the top, ranks 2 to 3 share one weight and bias; above that, the correction"),
        (ranks([2.0, 1, 1], 2), "the correction steps up at 1 rank."),
        (ranks([2.0, 1.5, 1], 3), "The lowest rank has a weight and bias of its own; above that, the correction steps up at 2"),
    ],
)  # fmt: skip
def test_parameters(parameters, says):
    assert says in " ".join(words.parameters_in_words(parameters))


def test_what_becomes_of_the_confidence():
    x = np.linspace(0.5, 0.999, 20)
    told = words.confidence_in_words(ConfidenceChange(x, x - 0.1, x - 0.2, x))
    assert told == "A claim of 95 % becomes 85 %, one of 76 % becomes 66 %, one of 55 % becomes 45 %."
    assert words.confidence_in_words(ConfidenceChange(x, x, x, x)).startswith(
        "It leaves the confidence as it is"
    )


@pytest.mark.parametrize("value", [0.0, -1e-9, 1e-9, -4e-5, 3e-4, -0.01, 12.0])
@pytest.mark.parametrize("width", [0.0, 1e-9, 2e-4, 0.05])
def test_no_interval_is_all_zeros_with_a_minus(value, width):
    told = units.with_interval(value, value - width, value + width, 0.95)
    assert not re.search(r"−0\.0+\b", told)
    if width > 1e-6 and abs(value) > 1e-5:  # the ends differ from the middle, and nothing is rounded away
        assert len({*re.findall(r"−?\d+\.\d+", told)}) == 3


def test_equal_values_are_shown_once():
    assert units.from_to(0.00061, 0.00062, units.percent) == "0.06 %"
    assert units.from_to(0.0006, 0.0007, units.percent) == "0.06 % → 0.07 %"


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
    told = advice.recommendation(methods)
    assert told.startswith("Ship temperature scaling: within noise of two others, and the simplest.")
    assert "Against no calibration its NLL is lower by 0.200 (95 % interval 0.190 to 0.210)" in told
    assert told.endswith("Chosen and judged by the same 400 rows, so its figures may be a little too good.")


def test_a_clear_winner_is_named_as_such(base):
    methods = compared(
        result("uncalibrated", True, base + 0.2),
        result("temperature scaling", True, base + 0.01, complexity=0),
        result("conditional MCCT", True, base, complexity=4),
    )
    assert (
        advice.advice(methods)
        == "Ship conditional MCCT: clearly better than the one other that keeps the order."
    )


def test_where_every_method_harms_none_is_recommended(base):
    methods = compared(
        result("uncalibrated", True, base),
        result("MCCT", True, base + 0.1),
        result("isotonic", True, base + 0.2),
    )
    assert methods.recommended == "uncalibrated"
    assert advice.advice(methods) == "Ship the model as it is: both methods tried make it clearly worse."


def test_where_the_order_costs_both_methods_are_named(base):
    methods = compared(
        result("MCCT", True, base, complexity=2),
        result("Dirichlet", False, base - 0.1 + noise(0.01), complexity=9),
        result("vector scaling", False, base - 0.1 + noise(0.01, 2), complexity=7),
    )
    assert (methods.recommended, methods.recommended_free) == ("MCCT", "vector scaling")
    told = advice.recommendation(methods)
    assert told.startswith("Ship MCCT: the only method judged that keeps the order.")
    assert "Keeping the order costs 0.100 NLL (97.5 % interval 0.099 to 0.101) and no accuracy" in told
    assert "Where the order may change, use vector scaling." in told


def test_where_the_order_costs_nothing_this_is_said(base):
    methods = compared(result("MCCT", True, base), result("matrix", False, base + noise(0.1)))
    assert methods.recommended_free is None
    told = advice.recommendation(methods)
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


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            "temperature scaling",
            "Temperature scaling, as asked for. Ship temperature scaling: within noise of one other",
        ),
        ("MCCT", "MCCT, as asked for: within noise of temperature scaling, which is simpler."),
        (
            "isotonic",
            "Isotonic, as asked for: its NLL is higher by 0.100 (95 % interval 0.090 to 0.110) than with temperature",
        ),
        (
            "matrix",
            "Matrix, as asked for: clearly better than temperature scaling, which keeps the order; this one may",
        ),
        (
            "spline",
            "Spline, as asked for: within noise of temperature scaling, which keeps the order; this one may",
        ),
    ],
)
def test_a_method_asked_for_is_compared(base, asked, says):
    found = compared(
        result("uncalibrated", True, base + 0.2),
        result("temperature scaling", True, base + noise(0.1), complexity=0),
        result("MCCT", True, base, complexity=2),
        result("isotonic", True, base + 0.1, complexity=5),
        result("matrix", False, base - 0.1, complexity=8),
        result("spline", False, base + noise(0.1, 4), complexity=9),
    )
    assert advice.as_asked(replace(found, asked=asked)).startswith(says)


def test_how_many_rows_would_settle_it(base):
    close = compared(result("uncalibrated", True, base + 0.004 + noise(0.1)), result("MCCT", True, base))
    told = advice.more_rows(close)
    assert told == "About 4,900 rows would tell whether calibration changes anything."
    # As many rows of this kind do tell: 80 times in 100, and the other way round with a fifth of them.
    needed = close.difference("MCCT", "uncalibrated").rows_to_settle
    rng = np.random.default_rng(5)
    for rows, share in ((needed, 0.8), (needed / 5, 0.25)):
        drawn = rng.normal(-0.004, 0.1, size=(400, round(rows)))
        ends = drawn.mean(axis=1) + 1.96 * drawn.std(axis=1) / np.sqrt(round(rows))
        assert np.mean(ends < 0) == pytest.approx(share, abs=0.06)
    same = compared(result("uncalibrated", True, base), result("MCCT", True, base))
    assert advice.more_rows(same) == ""
    assert "its NLL is the same" in advice.recommendation(same)


def test_without_any_method_that_says_so(base):
    assert "No method" in advice.recommendation(compared(result("uncalibrated", True, base)))


def test_a_label_of_probability_zero_does_not_break_the_comparison():
    methods = compared(
        result("uncalibrated", True, [np.inf, 0.1]),
        result("MCCT", True, [0.5, 0.1]),
        result("histogram", True, [np.inf, 0.0]),
    )
    assert methods.recommended == "MCCT"
    told = advice.recommendation(methods)
    assert (
        "Against no calibration its NLL is finite: uncalibrated gives a label no probability at all" in told
    )
    assert "nan" not in told


def test_every_method_has_its_place_among_the_simple_and_the_complex():
    assert {info.cls for info in mc.all_calibrators() if not info.published} <= set(SIMPLEST_FIRST)
