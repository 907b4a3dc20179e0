"""Displays of groups: the worst first, before and after on the same rows, all in one picture."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import monocal as mc
from monocal import errors
from monocal.plots import GroupDisplay, ReliabilityDisplay


def grouped(n=900, seed=1):
    """Rows of three groups, the first of which is far too sure."""
    generator = np.random.default_rng(seed)
    confidence = 0.5 + 0.5 * generator.random(n)
    group = np.array(["$bad$", "good", "fine"])[np.arange(n) % 3]
    right = generator.random(n) < np.where(group == "$bad$", confidence - 0.3, confidence)
    return np.where(right, 1, 0), np.stack([1 - confidence, confidence], axis=1), group


def test_reliability_by_group_shows_the_worst_first(pyplot, tmp_path):
    y, p, group = grouped()
    display = ReliabilityDisplay.from_predictions(y, p, groups=group, max_groups=2)
    assert next(iter(display.curves)) == "$bad$"
    assert len(display.curves) == 2
    evaluation = mc.evaluate(p, y, metrics="ece", groups=group).groups
    for name, curve in display.curves.items():
        assert curve.ece == pytest.approx(evaluation[name].ece)
        rows = group == name
        expected = mc.metrics.bin_sums(p[rows], y[rows], n_bins=5)
        np.testing.assert_allclose(curve.sums.confidence, expected.confidence)
        np.testing.assert_allclose(curve.sums.correct, expected.correct)
    drawn = display.plot()
    drawn.figure_.savefig(tmp_path / "new.png")
    assert len(drawn.ax_) == 2
    assert drawn.ax_[0].get_ylabel() == "frequency of class 1"
    assert f"{(group == '$bad$').sum()} rows" in drawn.ax_[0].get_title()
    figure, ax = pyplot.subplots()
    assert display.plot(ax).figure_ is figure
    figure.savefig(tmp_path / "given.png")


def test_groups_before_and_after_are_the_same_rows(fitted, pyplot, tmp_path):
    data, ts, _ = fitted
    group = np.arange(len(data.labels)) % 4
    display = ReliabilityDisplay.from_estimator(ts, data.values, data.labels, groups=group)
    result = display.by_group
    assert set(result.before) == set(result.after) == {"0", "1", "2", "3"}
    for name in result.after:
        assert result.before[name].weight.sum() == result.after[name].weight.sum() == 200
    assert len(display.plot().ax_) == 4
    display.figure_.savefig(tmp_path / "four.png")  # in three columns: two panels stay empty
    forest = GroupDisplay.from_estimator(ts, data.values, data.labels, group)
    assert list(forest.evaluations) == ["before", "after"]
    weighted = ReliabilityDisplay.from_estimator(
        ts, data.values, data.labels, groups=group, sample_weight=(group > 0).astype(float)
    )
    assert set(weighted.curves) == {"1", "2", "3"}


def test_all_groups_in_one_picture(pyplot, tmp_path):
    y, p, group = grouped()
    display = GroupDisplay.from_predictions(y, p, group, max_groups=2)
    display.plot().figure_.savefig(tmp_path / "new.png")
    evaluation = display.evaluations["model"]
    assert [label.get_text().split(" (")[0] for label in display.ax_.get_yticklabels()] == [
        name.replace("$", r"\$") for name in evaluation.names[:2]
    ]
    filled = next(line for line in display.ax_.lines if "off beyond" in str(line.get_label()))
    assert filled.get_xdata() == pytest.approx([100 * evaluation["$bad$"].over_confidence])
    assert "2 of 3 groups" in display.ax_.get_legend().get_title().get_text()
    figure, ax = pyplot.subplots()
    assert display.plot(ax).figure_ is figure
    with pytest.raises(errors.InputError, match="max_groups"):
        GroupDisplay.from_predictions(y, p, group, max_groups=0)
    with pytest.raises(errors.InputError, match="before: expected the shape"):
        GroupDisplay.from_predictions(y, p, group, before=p[:, [0, 1, 1]] / [[1, 2, 2]])
    by_class = GroupDisplay.from_predictions(y, p, class_names=["cat", "dog"])
    assert by_class.evaluations["model"].names == ("dog",)


def test_the_picture_of_the_documentation_shows_what_its_page_says():
    """After a change ``python tools/draw_examples.py`` draws it again."""
    page = Path(__file__).parents[2] / "docs" / "examples" / "groups.md"
    table = re.search(r"\ngroup .*?\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert table is not None
    shown = [f"{line.split()[0]} ({line.split()[1]})" for line in table[1].strip().splitlines()]
    drawn = re.findall(r">(\w+ \(\d+\))<", page.with_suffix(".svg").read_text(encoding="utf-8"))
    assert drawn == shown
