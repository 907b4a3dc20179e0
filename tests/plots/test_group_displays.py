"""Displays of groups: the worst first, before and after on the same rows, all in one picture."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import monocal as mc
from monocal import errors
from monocal.plots import GroupDisplay, ReliabilityDisplay


@pytest.fixture(scope="module")
def grouped():
    """Labels, probabilities and groups; the first group is far too sure."""
    generator = np.random.default_rng(1)
    confidence = 0.5 + 0.5 * generator.random(900)
    group = np.array(["$bad$", "good", "fine"])[np.arange(900) % 3]
    right = generator.random(900) < np.where(group == "$bad$", confidence - 0.3, confidence)
    return np.where(right, 1, 0), np.stack([1 - confidence, confidence], axis=1), group


def test_reliability_by_group_shows_the_worst_first(grouped, pyplot):
    y, p, group = grouped
    display = ReliabilityDisplay.from_predictions(y, p, groups=group, max_groups=2)
    assert next(iter(display.curves)) == "$bad$"
    evaluation = mc.evaluate(p, y, metrics="ece", groups=group).groups
    for name, curve in display.curves.items():
        assert curve.ece == pytest.approx(evaluation[name].ece)
        expected = mc.metrics.bin_sums(p[group == name], y[group == name], n_bins=5)
        np.testing.assert_allclose(curve.confidence, expected.mean_confidence)
        np.testing.assert_allclose(curve.accuracy, expected.accuracy)
    figure, ax = pyplot.subplots()
    assert display.plot(ax).figure_ is figure
    figure.canvas.draw()
    drawn = display.plot()
    drawn.figure_.canvas.draw()
    assert len(drawn.ax_) == len(display.curves) == 2
    assert drawn.ax_[0].get_ylabel() == "frequency of class 1"
    assert f"{(group == '$bad$').sum()} rows" in drawn.ax_[0].get_title()


def test_groups_before_and_after_are_the_same_rows(fitted, pyplot):
    data, ts, _ = fitted
    x, y, group = data.values, data.labels, np.arange(len(data.labels)) % 4
    display = ReliabilityDisplay.from_estimator(ts, x, y, groups=group)
    result = display.by_group
    assert set(result.before) == set(result.after) == {"0", "1", "2", "3"}
    for name in result.after:
        assert result.before[name].weight.sum() == result.after[name].weight.sum() == 200
    assert len(display.plot().ax_) == 4
    display.figure_.canvas.draw()  # in three columns: two panels stay empty
    assert list(GroupDisplay.from_estimator(ts, x, y, group).evaluations) == ["before", "after"]
    weighted = ReliabilityDisplay.from_estimator(ts, x, y, groups=group, sample_weight=(group > 0) * 1.0)
    assert set(weighted.curves) == {"1", "2", "3"}


def test_all_groups_in_one_picture(grouped, pyplot):
    y, p, group = grouped
    _, ax = pyplot.subplots()
    display = GroupDisplay.from_predictions(y, p, group, max_groups=2).plot(ax)
    assert display.ax_ is ax
    evaluation = display.evaluations["model"]
    labels = [label.get_text().split(" (")[0] for label in ax.get_yticklabels()]
    assert labels == [name.replace("$", r"\$") for name in evaluation.names[:2]]
    filled = next(line for line in ax.lines if "off beyond" in str(line.get_label()))
    assert filled.get_xdata() == pytest.approx([100 * evaluation["$bad$"].over_confidence])
    assert "2 of 3 groups" in ax.get_legend().get_title().get_text()
    by_class = GroupDisplay.from_predictions(y, p, class_names=["cat", "dog"])
    assert by_class.evaluations["model"].names == ("dog",)
    with pytest.raises(errors.InputError, match="max_groups"):
        GroupDisplay.from_predictions(y, p, group, max_groups=0)
    with pytest.raises(errors.InputError, match="before: expected the shape"):
        GroupDisplay.from_predictions(y, p, group, before=p[:, [0, 1, 1]] / [[1, 2, 2]])


def test_the_picture_of_the_documentation_shows_what_its_page_says():
    """After a change ``python tools/draw_examples.py`` draws it again."""
    page = Path(__file__).parents[2] / "docs" / "examples" / "groups.md"
    table = re.search(r"\ngroup .*?\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    shown = [f"{line.split()[0]} ({line.split()[1]})" for line in table[1].strip().splitlines()]
    drawn = re.findall(r">(\w+ \(\d+\))<", page.with_suffix(".svg").read_text(encoding="utf-8"))
    assert drawn == shown
