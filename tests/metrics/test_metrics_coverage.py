"""Intervals hold the truth about as often as they say; tests reject it about as rarely. Small and seeded.

`benchmarks/statistics_check.py` does the same at length; its worlds and its truths are used here.
"""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc
from statistics_check import COLUMNS, COLUMNS_OF_TWO, World, cover, draw, reject

TRIALS = 60
# Of 60 trials that cover with 95 %, fewer than 51 succeed once in a thousand times.
LEAST = 51 / 60
HEAVY = World("too sure", rare=0.1, weights="twenty", varied=True)


@pytest.mark.parametrize(
    ("world", "n", "columns"),
    [
        (World("calibrated", 10), 500, COLUMNS),
        (World("almost", 2), 500, COLUMNS),
        (World("a little too sure", 100), 500, COLUMNS),
        (World("too sure", 10), 500, COLUMNS),
        (World("too sure", 10, weights="twenty"), 500, COLUMNS[:3]),
        (World("calibrated", rare=0.02), 1000, COLUMNS),
        (World("calibrated", rare=0.02, weights="class"), 2000, COLUMNS),
        (World("calibrated", rare=0.1, varied=True), 400, COLUMNS_OF_TWO),
        (World("too sure", rare=0.4, varied=True), 400, COLUMNS_OF_TWO),
        (HEAVY, 2000, COLUMNS[:3]),
    ],
)
def test_intervals_cover(world, n, columns):
    for name, (shown, truth, own) in cover(world, n, columns, TRIALS, 60, 1_000_000).items():
        assert (shown, own) == (1, 1), name
        assert truth >= LEAST, name


def test_a_gap_above_the_probability_of_most_rows_makes_no_interval_too_wide():
    """In a bin of rare positives the mean may be off by more than most of its rows say."""
    p = np.repeat([0.0005, 0.05], [18_000, 2_000])
    labels = (np.arange(len(p)) % 1000 == 0).astype(int)
    probs = np.column_stack([1 - p, p])
    error = mc.evaluate(probs, labels, metrics="positive_ece", n_boot=100)["positive_ece"]
    assert error.value == pytest.approx(p.mean() - 0.001)
    deviation = np.sqrt(0.001 / len(p))  # of the frequency, which alone is left to chance
    assert 1.5 * deviation < error.value - error.low < 2.5 * deviation
    assert 1.5 * deviation < error.high - error.value < 2.5 * deviation


@pytest.mark.parametrize(
    ("world", "n"),
    [
        *((World("calibrated", rare=rare), n) for rare, n in ((0.01, 100), (0.001, 1000), (0.05, 50))),
        (HEAVY, 400),  # the few rows of the rare class that decide are seldom in a sample
    ],
)
def test_hardly_seen_losses_have_no_interval(world, n):
    """The interval of their mean would hold it in 35 to 78 % of samples."""
    for shown, *_ in cover(world, n, ["nll", "brier", "ece"], 60, 40, 1_000_000).values():
        assert shown <= 0.15


def test_intervals_of_errors_are_not_all_of_the_line():
    """An interval of a large error excludes 0, and more rows make it narrower."""
    widths = []
    for n in (1000, 4000):
        probs, _, labels, _ = draw(World("too sure", 10), n, np.random.default_rng(0))
        ece = mc.evaluate(probs, labels, metrics="ece", n_boot=100)["ece"]
        assert ece.low > 0.05
        widths.append(ece.high - ece.low)
    assert widths[1] < 0.7 * widths[0] < 0.06


def test_paired_tests_keep_their_level():
    rejected = reject(World("too sure", 5), 300, ["nll", "brier"], 150, 100)
    assert 0 < max(rejected.values()) <= 0.1


def test_a_predictor_that_is_always_sure():
    generator = np.random.default_rng(0)
    p = np.tile([1.0, 0.0], (200, 1))
    labels = (generator.random((20, 200)) < 0.2).astype(int)
    estimates = [mc.evaluate(p, y, metrics="ece", n_boot=100)["ece"] for y in labels]
    assert sum(e.low <= 0.2 <= e.high for e in estimates) >= 16
