"""Intervals hold the truth about as often as they say; tests reject it about as rarely. Small and seeded.

`benchmarks/statistics_check.py` does the same at length; its worlds and its truths are used here.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import monocal as mc
import pages
import statistics_check
from statistics_check import COLUMNS, COLUMNS_OF_TWO, World, cover, draw, reject

TRIALS = 80
# Of 80 trials that cover with 95 %, fewer than 69 succeed once in a thousand times.
LEAST = 69 / 80
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
    covered = 0
    for _ in range(20):
        y = (generator.random(200) < 0.2).astype(int)
        estimate = mc.evaluate(p, y, metrics="ece", n_boot=100)["ece"]
        covered += estimate.low <= 0.2 <= estimate.high
    assert covered >= 16


@pytest.mark.parametrize("there", [True, False])
def test_a_line_measured_again_replaces_its_own_alone(there, tmp_path, monkeypatch):
    lines = (pages.ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines()
    start = "| `LabelShift.adapt` finds a shift | 2,000 | equal | "
    rest = [line for line in lines if not line.startswith(start)]
    assert len(rest) == len(lines) - 1
    page = tmp_path / "docs" / "guarantees.md"
    page.parent.mkdir()
    page.write_text("\n".join(lines if there else rest), encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    options = ["--only", "alarms", "--docs", "--trials", "1", "--lines"]
    monkeypatch.setattr(sys, "argv", ["statistics_check.py", *options, "finds a shift | 2,000 | equal"])
    if not there:
        with pytest.raises(SystemExit, match="no line that begins with '`LabelShift"):
            statistics_check.main()
        return
    statistics_check.main()
    after = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in after if not line.startswith(start)] == rest
    (measured,) = (line for line in after if line.startswith(start))
    assert measured.endswith(" | 5 |")
