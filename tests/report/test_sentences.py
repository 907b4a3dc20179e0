"""Sentences from known numbers: over a grid of cases each says what its numbers show, and no more."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Floor, OrderAudit, OrderCounts, units
from monocal.metrics.differences import Difference
from monocal.plots import RankParameters, reliability_curve
from monocal.report import MethodComparison, MethodResult
from monocal.report import sentences as say
from monocal.report.comparison import ece_raised, harm_of
from monocal.selection import recommend
from monocal.solver import Solution


def curve_of(confidence, accuracy, count, n_bins=10, label=None):
    probs = np.repeat([[c, 1 - c] for c in confidence], count, axis=0)
    labels = np.concatenate(
        [np.arange(n) >= round(a * n) for a, n in zip(accuracy, count, strict=True)]
    ).astype(int)
    return reliability_curve(probs, labels, n_bins=n_bins, label=label)


def floor(observed, p_value, high=0.012):
    return Floor(0.008, 0.0, high, observed, p_value, 0.95, np.zeros(1))


BETTER, UNCLEAR, WORSE = (
    Difference(-0.1, -0.12, -0.08),
    Difference(-0.1, -0.3, 0.1),
    Difference(0.1, 0.08, 0.12),
)


def test_over_and_under_confidence_with_place_size_and_weight():
    curve = curve_of([0.55, 0.75, 0.85, 0.95], [0.75, 0.67, 0.77, 0.95], [400, 300, 300, 1000])
    assert say.what_is_wrong(curve) == [
        "Under-confident by 20 points between 0.50 and 0.60 (400 rows, 20 % of all).",
        "Over-confident by 8.0 points between 0.70 and 0.90 (600 rows, 30 % of all).",
    ]
    assert say.what_is_wrong(curve_of([0.95], [0.8], [1000])) == [
        "Over-confident by 15 points above 0.90 (1,000 rows, 100 % of all)."
    ]
    low = reliability_curve([[0.06] * 16 + [0.04]] * 500, [0] * 250 + [1] * 250, n_bins=10)
    assert say.what_is_wrong(low) == ["Under-confident by 44 points below 0.10 (500 rows, 100 % of all)."]
    assert say.what_is_wrong(low, two=True)[0].startswith("P(class 1) is too low by 44 points below 0.10")
    fine = curve_of([0.65, 0.95], [0.62, 0.94], [100, 100])
    assert say.what_is_wrong(fine) == [
        "In no bin does the accuracy leave the 95 % band of perfect calibration."
    ]


def test_many_stretches_are_cut_to_those_that_matter():
    # Alternating signs, so that every bin is a stretch of its own; the lightest is left out.
    curve = curve_of([0.55, 0.65, 0.75, 0.85, 0.95], [0.75, 0.45, 0.95, 0.65, 1.0], [900, 900, 900, 900, 300])
    sentences = say.what_is_wrong(curve)
    assert len(sentences) == 5
    assert sentences[-1].startswith("1 smaller stretch is left out")
    assert not any("above 0.90" in sentence for sentence in sentences)


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


def test_on_average():
    curve = curve_of([0.95], [0.8], [1000])
    claim = "It claims 95.00 % on average and is right in 80.00 % of the rows: over-confident by 15 points"
    assert say.on_average(curve, floor(0.15, 0.001)) == f"{claim}."
    assert say.on_average(curve, floor(0.15, 0.4)) == f"{claim}, and chance alone may explain its errors."
    # Errors beyond chance that cancel: the mean of all rows is within chance.
    cancel = curve_of([0.55, 0.95], [0.75, 0.76], [500, 500])
    assert say.on_average(cancel, floor(0.2, 0.001)).endswith(
        "under-confident by 0.5 points, which chance alone may explain."
    )


@pytest.mark.parametrize("observed", [0.0, 0.01, 0.029999, 0.03, 0.030001, 0.1131, 0.3])
@pytest.mark.parametrize("high", [0.012, 0.03, 0.1165])
def test_more_than_chance_is_said_of_what_exceeds_the_most_that_chance_does(observed, high):
    p = 0.001 if observed > high else 0.3  # as `ece_floor` has it: one test, one end
    text = say.against_floor(floor(observed, p, high), 2500)
    assert ("more than chance" in text) == (observed > high)
    assert ("chance alone may explain it" in text) == (observed <= high)
    seen, most = (float(x) for x in re.findall(r"([\d.]+) %", text)[:2])
    assert np.sign(seen - most) == np.sign(observed - high)


@pytest.mark.parametrize(
    ("old", "new", "difference", "more_is_better", "says"),
    [
        ("0.3", "0.2", BETTER, False, "better"),
        ("0.2", "0.3", WORSE, False, "worse"),
        ("80 %", "81 %", WORSE, True, "better"),
        ("80 %", "79 %", BETTER, True, "worse"),
        ("0.2", "0.3", UNCLEAR, False, "no clear difference"),
        ("0.06 %", "0.06 %", Difference(-1e-6, -2e-6, -1e-7), False, "better, by less than is shown"),
        ("80 %", "80 %", Difference(0.0, 0.0, 0.0), True, "unchanged"),
        ("∞", "0.6465", Difference(-np.inf, -np.inf, np.inf), False, "better"),
        ("0.6", "∞", Difference(np.inf, -np.inf, np.inf), False, "worse"),
        ("∞", "∞", Difference(np.nan, -np.inf, np.inf), False, "unchanged"),
        ("0.06 %", "0.06 %", None, False, "unchanged"),
        ("0.07 %", "0.06 %", None, False, "lower"),
        ("0.06 %", "0.07 %", None, False, "higher"),
    ],
)
def test_changes(old, new, difference, more_is_better, says):
    lower = new < old if difference is None else difference.mean < 0
    assert say.change_in_words(old, new, lower, difference, more_is_better) == says


@pytest.mark.parametrize(
    ("accuracy", "p", "nll", "high", "state", "says"),
    [
        (0.8, 0.001, BETTER, 0.012, "bad", "Not trustworthy as it is: over-confident by 15 points."),
        (0.999, 0.001, BETTER, 0.012, "bad", "Not trustworthy as it is: under-confident by 4.9 points."),
        (
            0.945,
            0.001,
            UNCLEAR,
            0.003,
            "fair",
            "Nearly trustworthy as it is: over-confident by 0.5 points, more",
        ),
        (0.95, 0.4, UNCLEAR, 0.012, "good", "Trustworthy as it is: on 1,000 rows, no error beyond chance."),
        (0.95, 0.4, BETTER, 0.012, "fair", "but calibration clearly lowers the NLL."),
        (0.95, 0.4, UNCLEAR, 0.14, "few", "an ECE of up to 14.00 % would be within chance."),
    ],
)
def test_trust(accuracy, p, nll, high, state, says):
    actual = say.trust(curve_of([0.95], [accuracy], [1000]), floor(0.01, p, high), nll)
    assert actual[0] == state
    assert says in actual[1]


GRID = list(
    product([20, 60, 199, 200, 5000], [-0.3, -0.1, -0.02, 0.0, 0.02, 0.1, 0.3], [BETTER, UNCLEAR, WORSE])
)


@pytest.mark.parametrize("two", [False, True])
def test_the_verdict_says_what_the_evidence_shows(two):
    for rows, gap, nll in GRID:
        curve = curve_of([0.7], [0.7 - gap], [rows], label=0)
        for high in (0.005, 0.02, 0.08):
            more = curve.ece > high
            state, headline = say.trust(curve, floor(curve.ece, 0.001 if more else 0.5, high), nll, two)
            # "Not trustworthy" is said of errors beyond chance, and of few rows only where calibration clearly helps.
            assert ("Not trustworthy" in headline) == (state == "bad")
            assert state != "bad" or more
            assert state != "bad" or rows >= 200 or nll is BETTER
            assert state != "good" or (not more and rows >= 200 and not curve.outside.any())
            assert (state == "few") == headline.startswith("Too few rows to say")
            if rows < 200 and nll is not BETTER:
                assert state == "few"
            if state == "bad":
                size = units.points(curve.mean_confidence - curve.mean_accuracy)
                assert size in headline
                too = "too high" if gap > 0 else "too low"
                over = "over-confident" if gap > 0 else "under-confident"
                assert (too if two else over) in headline


def test_nothing_is_called_fine_above_a_bin_that_is_off():
    curve = curve_of([0.55, 0.95], [0.75, 0.95], [60, 5000])
    assert curve.outside.any()
    state, headline = say.trust(curve, floor(curve.ece, 0.3), UNCLEAR)
    assert state == "fair"
    assert "one bin leaves the band" in headline


def test_errors_of_both_signs_are_not_called_one_of_them():
    curve = curve_of([0.55, 0.95], [0.75, 0.75], [500, 500])
    headline = say.trust(curve, floor(0.2, 0.001), BETTER)[1]
    assert headline.endswith("off by 20 points on average, over-confident here and under-confident there.")
    # One bin alone leaves the band, and the others cancel it: the mean says nothing of the size.
    curve = curve_of([0.55, 0.65, 0.95], [0.75, 0.62, 0.93], [300, 800, 500])
    assert {stretch.gap > 0 for stretch in curve.stretches()} == {False}
    assert say.trust(curve, floor(curve.ece, 0.001), BETTER)[1].endswith("off by 5.9 points on average.")


@pytest.mark.parametrize("floor_p", [0.001, 0.5])
@pytest.mark.parametrize(
    ("before", "after", "change", "says"),
    [
        (0.9, 0.6, BETTER, "a better NLL"),
        (0.9, 0.8, UNCLEAR, "no clear change of the NLL"),
        (0.6, 0.9, WORSE, "calibration made the NLL worse"),
        (np.inf, 0.6465, Difference(-np.inf, -np.inf, np.inf), "NLL ∞ → 0.6465: a better NLL"),
        (0.6, np.inf, Difference(np.inf, -np.inf, np.inf), "it gives a label no probability at all"),
    ],
)
def test_outcome(before, after, change, says, floor_p):
    text = say.outcome("MCCT", (0.1, 0.02), (before, after), change, floor(0.02, floor_p), 1000)
    assert says in text
    if "better" in says or "no clear" in says:
        assert ("the ECE is still more than chance" in text) == (floor_p == 0.001)
        assert ("the ECE is then within chance on 1,000 rows" in text) == (floor_p == 0.5)


@pytest.mark.parametrize("end", [1.0, 1 - 1e-9, 0.99996, 0.9995, 0.99, 0.7])
@pytest.mark.parametrize("new_end", [1.0, 0.99996, 0.99, 0.97, 0.5])
def test_what_becomes_of_the_confidence(end, new_end):
    old, new = np.linspace(0.5, end, 10), np.linspace(0.45, new_end, 10)
    text = say.confidence_in_words(list(zip(old, new, strict=True)))
    claims = re.findall(r"of (\S+ %|over \S+ %) becomes", text)
    assert len(set(claims)) == len(claims)
    for value, shown in zip((old[-1], new[-1]), re.findall(r"(?:over )?[\d.]+ %", text)[:2], strict=True):
        assert shown.startswith("100") == (value == 1)
        assert float(shown.removeprefix("over ")[:-2]) == pytest.approx(100 * value, abs=0.51)


def test_equal_claims_are_said_once():
    text = say.confidence_in_words([(1.0, 0.97)] * 3 + [(1.0, 0.99)])
    assert text == "A claim of 100 % becomes 99.0 %."
    assert say.confidence_in_words([(0.5, 0.5), (0.8, 0.8)]).startswith("It leaves the confidence as it is")
    assert (
        say.confidence_in_words([(0.1, 0.02), (0.8, 0.3)], True)
        == "P(class 1) of 80 % becomes 30 %, one of 10 % becomes 2 %."
    )


def counts(**changes):
    return replace(OrderCounts(200, 0, 0, 0, 0, 0), **changes)


def test_order():
    fine = OrderCounts(100, 0, 0, 0, 0, 0)
    text = " ".join(say.order_in_words(OrderAudit(fine, fine, 0.7), True))
    assert "In none of the 100 rows" in text
    assert "guarantees the order" in text
    worse = OrderCounts(200, 10, 35, 2, 7, 4)
    text = " ".join(say.order_in_words(OrderAudit(worse, fine, 0.7), False))
    assert (
        "In 10 of 200 rows (5.00 %) at least two classes changed places: 35 pairs, and 2 ties broken." in text
    )
    assert "The predicted class changed in 4 rows (2.00 %)." in text
    assert "7 pairs" in text
    assert "does not guarantee" in text


def test_certificate():
    proven = Solution(np.ones(1), True, "converged", 3e-7, 1.5e-6, 0.4, 5)
    text = say.certificate_in_words(proven, 1e-6)
    assert "global optimum" in text
    assert "3.0 × 10⁻⁷ (tolerance 1.0 × 10⁻⁶)" in text
    stopped = Solution(np.ones(1), False, "stopped: the iteration limit", 3e-3, 0.1, 0.4, 100)
    assert say.certificate_in_words(stopped, None).startswith("Not certified: stopped")


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
    assert says in " ".join(say.parameters_in_words(parameters))


@pytest.mark.parametrize("value", [0.0, -1e-9, 1e-9, -4e-5, 3e-4, -0.01, 12.0])
@pytest.mark.parametrize("width", [0.0, 1e-9, 2e-4, 0.05])
def test_no_interval_is_all_zeros_with_a_minus(value, width):
    text = units.with_interval(value, value - width, value + width, 0.95)
    assert not re.search(r"−0\.0+\b", text)
    if width > 1e-6 and abs(value) > 1e-5:  # the ends differ from the middle, and nothing is rounded away
        assert len({*re.findall(r"−?\d+\.\d+", text)}) == 3


def result(name, keeps, row_nll, complexity=0):
    probs = np.exp(-np.asarray(row_nll))
    rows = np.stack([probs, 1 - probs], axis=1)
    evaluation = mc.evaluate(rows, np.zeros(len(probs), dtype=int), metrics=["nll"])
    top = np.where(probs < 0.5, 1, 0)
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
    assert text.startswith("Use temperature scaling: indistinguishable from two others, and the simplest.")
    assert "Against no calibration its NLL is lower by 0.200 (95 % interval 0.190 to 0.210)" in text
    assert text.endswith("Not judged: slow.")
    winner = compared(
        result("uncalibrated", True, base + 0.2),
        result("temperature scaling", True, base + 0.01, complexity=0),
        result("conditional MCCT", True, base, complexity=4),
    )
    assert (
        say.advice(winner) == "Use conditional MCCT: clearly better than the one other that keeps the order."
    )
    harmful = compared(
        result("uncalibrated", True, base),
        result("MCCT", True, base + 0.1),
        result("isotonic", True, base + 0.2),
    )
    assert harmful.recommended == "uncalibrated"
    assert say.advice(harmful) == "Leave the model as it is: both methods tried make its NLL clearly worse."


def test_the_recommended_method_is_not_the_winner_of_the_rows_that_judge(base):
    data = mc.data.synthetic(400, 4)
    advised = recommend(data.values, data.labels)
    rows = [
        result("uncalibrated", True, base + 0.2),
        result("conditional MCCT", True, base, complexity=8),
        result("spline", True, base - 0.05, complexity=19),
    ]
    methods = compared(*rows, default="conditional MCCT", recommendation=advised)
    assert methods.recommended == "conditional MCCT"
    assert say.advice(methods) == f"Use conditional MCCT: {advised.reason}"
    assert "On these rows spline has a lower NLL, by 0.0500" in say.recommendation(methods)
    vetoed = replace(methods, harm=("raises the ECE from 4.30 % to 8.52 %",))
    assert vetoed.recommended == "uncalibrated"
    assert say.advice(vetoed) == (
        "Leave the model as it is: here conditional MCCT raises the ECE from 4.30 % to 8.52 %."
    )
    alike = compared(rows[0], rows[1], result("spline", True, base + noise(0.1)), default="conditional MCCT")
    assert say.lower_still(alike) == ""


def test_where_the_order_costs_both_methods_are_named(base):
    methods = compared(
        result("MCCT", True, base, complexity=2),
        result("Dirichlet", False, base - 0.1 + noise(0.01), complexity=9),
        result("vector scaling", False, base - 0.1 + noise(0.01, 2), complexity=7),
    )
    assert (methods.recommended, methods.recommended_free) == ("MCCT", "vector scaling")
    text = say.recommendation(methods)
    assert text.startswith("Use MCCT: the only method judged that keeps the order.")
    assert "Keeping the order costs 0.100 NLL (97.5 % interval 0.099 to 0.101)" in text
    assert "Where the order may change, use vector scaling." in text
    free = compared(result("MCCT", True, base), result("matrix", False, base + noise(0.1)))
    assert free.recommended_free is None
    assert (
        "Keeping the order costs nothing that could be measured here: NLL differs by"
        in say.recommendation(free)
    )
    assert "between MCCT and matrix" in say.recommendation(free)
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
        ("temperature scaling", "Temperature scaling, as asked for. Use temperature scaling: indistinguishable from one"),
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
    if asked == "MCCT":
        assert "may be chance" in text


def test_how_many_rows_would_settle_it(base):
    close = compared(result("uncalibrated", True, base + 0.004 + noise(0.1)), result("MCCT", True, base))
    assert (
        say.rows_to_see_a_change(close) == "About 4,900 rows would tell whether calibration changes anything."
    )
    # As many rows of this kind do tell: 80 times in 100, and the other way round with a fifth of them.
    needed = close.difference("MCCT", "uncalibrated").rows_to_settle
    rng = np.random.default_rng(5)
    for rows, share in ((needed, 0.8), (needed / 5, 0.25)):
        drawn = rng.normal(-0.004, 0.1, size=(400, round(rows)))
        ends = drawn.mean(axis=1) + 1.96 * drawn.std(axis=1) / np.sqrt(round(rows))
        assert np.mean(ends < 0) == pytest.approx(share, abs=0.06)
    same = compared(result("uncalibrated", True, base), result("MCCT", True, base))
    assert say.rows_to_see_a_change(same) == ""
    assert "its NLL is the same" in say.recommendation(same)


def test_a_label_of_probability_zero_does_not_break_the_comparison(base):
    methods = compared(
        result("uncalibrated", True, [np.inf, 0.1]),
        result("MCCT", True, [0.5, 0.1]),
        result("histogram", True, [np.inf, 0.0]),
    )
    assert methods.recommended == "MCCT"
    text = say.recommendation(methods)
    assert "Against no calibration its NLL is finite (0.3000); the other gives a label no probability" in text
    assert "nan" not in text
    assert "No method" in say.recommendation(compared(result("uncalibrated", True, base)))


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
