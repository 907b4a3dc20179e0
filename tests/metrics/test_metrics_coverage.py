"""Intervals hold the truth about as often as they say; tests reject it about as rarely. Small and seeded.

`benchmarks/statistics_check.py` does the same at length; its worlds and its truths are used here.
"""

from __future__ import annotations

import numpy as np
import pytest

import monocal as mc
import statistics_check as coverage

TRIALS = 80
# Of 80 trials that cover with 95 %, fewer than 69 succeed once in a thousand times.
LEAST = 69


@pytest.mark.parametrize(
    ("kind", "m"), [("calibrated", 10), ("almost", 2), ("a little too sure", 100), ("too sure", 10)]
)
def test_intervals_cover(kind, m):
    covered = coverage.cover(coverage.World(kind, m), 500, coverage.COLUMNS, TRIALS, 60)
    for name, (shown, truth, own) in covered.items():
        assert shown == 1, name
        assert truth * TRIALS >= LEAST, name
        assert own == 1, name


@pytest.mark.parametrize(("kind", "rare", "n"), [("calibrated", 0.1, 400), ("too sure", 0.4, 400)])
def test_intervals_of_two_classes_cover(kind, rare, n):
    world = coverage.World(kind, rare=rare, varied=True)
    for name, (shown, truth, own) in coverage.cover(world, n, coverage.COLUMNS_OF_TWO, TRIALS, 60).items():
        assert (shown, own) == (1, 1), name
        assert truth * TRIALS >= LEAST, name


def test_intervals_of_errors_are_not_all_of_the_line():
    """An interval of a large error excludes 0, and more rows make it narrower."""
    widths = []
    for n in (1000, 4000):
        probs, _, labels, _ = coverage.draw(coverage.World("too sure", 10), n, np.random.default_rng(0))
        ece = mc.evaluate(probs, labels, metrics="ece", n_boot=100)["ece"]
        assert ece.low > 0.05
        widths.append(ece.high - ece.low)
    assert widths[1] < 0.7 * widths[0] < 0.06


def test_paired_tests_keep_their_level():
    names = ["nll", "brier"]
    rejected = coverage.reject(coverage.World("too sure", 5), 300, names, 150, 100)
    for name in names:
        assert rejected[name] <= 0.1, name
    assert max(rejected.values()) > 0


def test_a_predictor_that_is_always_sure():
    generator = np.random.default_rng(0)
    p = np.tile([1.0, 0.0], (200, 1))
    covered = 0
    for _ in range(20):
        y = (generator.random(200) < 0.2).astype(int)
        estimate = mc.evaluate(p, y, metrics="ece", n_boot=100)["ece"]
        covered += estimate.low <= 0.2 <= estimate.high
    assert covered >= 16
