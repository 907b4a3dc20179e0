"""Displays draw what their data objects hold, and leave matplotlib as it was."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import monocal as mc
from monocal import errors
from monocal.calibration import ConditionalMCCT
from monocal.plots import (
    ComparisonDisplay,
    EffectDisplay,
    GroupDisplay,
    MarginDisplay,
    RankParametersDisplay,
    ReliabilityDisplay,
)

matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")


@pytest.fixture
def pyplot():
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = dict(matplotlib.rcParams)
    yield plt
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    data = mc.data.synthetic(800, 25, seed=2)
    ts = mc.TemperatureScaling().fit(data.values, data.labels)
    return data, ts, ConditionalMCCT(n_knots=3).fit(data.values, data.labels)


def displays(fitted):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    return [
        ReliabilityDisplay.from_estimator(cal, x, y),
        MarginDisplay.from_estimator(cal, x, y),
        RankParametersDisplay.from_estimator(cal, x),
        EffectDisplay.from_estimator(cal, x),
        ComparisonDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y, n_boot=10),
    ]


@pytest.mark.parametrize("number", range(5))
def test_every_display_draws_new_or_into_the_callers_axes(fitted, pyplot, number, tmp_path):
    open_before = pyplot.get_fignums()
    display = displays(fitted)[number]
    assert pyplot.get_fignums() == open_before  # making a display draws nothing
    assert display.plot() is display
    display.figure_.savefig(tmp_path / "new.png")
    figure, ax = pyplot.subplots()
    assert display.plot(ax).figure_ is figure
    figure.savefig(tmp_path / "given.png")
    for drawn in np.atleast_1d(display.ax_):
        assert drawn.figure is figure
        assert drawn.get_xlabel() or drawn.get_ylabel()


def test_reliability_points_are_the_bins(fitted, pyplot):
    display = displays(fitted)[0].plot()
    assert list(display.curves) == ["before", "after"]
    for ax, bars, curve in zip(display.ax_, display.histogram_ax_, display.curves.values(), strict=True):
        points = np.concatenate([line.get_xydata() for line in ax.lines[-2:]])
        filled = curve.weight > 0
        expected = np.stack([curve.confidence, curve.accuracy], axis=1)[filled]
        np.testing.assert_allclose(points[np.argsort(points[:, 0])], expected)
        assert sum(bar.get_height() for bar in bars.patches) == pytest.approx(1)


def test_a_plain_classifier_has_no_before(pyplot):
    x = np.random.default_rng(0).normal(size=(200, 3))
    model = LogisticRegression().fit(x, x[:, 0] > 0)
    display = ReliabilityDisplay.from_estimator(model, x, (x[:, 0] > 0).astype(int)).plot()
    assert list(display.curves) == ["model"]
    assert list(MarginDisplay.from_estimator(model, x, (x[:, 0] > 0).astype(int)).plot().curves) == ["model"]


def test_comparison_puts_the_best_first(pyplot):
    y = np.array([0, 1, 1, 0])
    right, wrong = np.eye(2)[y] * 0.8 + 0.1, np.eye(2)[1 - y]
    display = ComparisonDisplay.from_predictions(
        y, {"wrong": wrong, "right": right}, metrics=["accuracy", "nll"], n_boot=5
    )
    assert display.order("accuracy") == display.order("nll") == ["right", "wrong"]
    assert np.isinf(display.evaluations["wrong"]["nll"].value)
    display.plot()


def test_without_matplotlib_numbers_work_and_drawing_says_what_to_install(monkeypatch):
    display = ReliabilityDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(errors.MissingExtraError, match=r"monocal\[plots\]"):
        display.plot()


def test_importing_the_plots_loads_no_matplotlib():
    code = "import sys, monocal.plots, monocal.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("display", [ReliabilityDisplay, MarginDisplay, ComparisonDisplay])
def test_every_argument_counts_or_is_refused(display, fitted):
    data, ts, _ = fitted
    x, y = data.values, data.labels
    who = {"TS": ts} if display is ComparisonDisplay else ts
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted, plain, by_hand = (
        display.from_estimator(who, x[rows], y[rows], **options)
        for rows, options in ((slice(None), {"sample_weight": weight}), (slice(None), {}), (repeated, {}))
    )
    if display is ComparisonDisplay:
        found, unweighted, expected = (d.evaluations["TS"]["nll"].value for d in (weighted, plain, by_hand))
    else:
        found, unweighted, expected = (
            np.nansum(d.curves["after"].accuracy) for d in (weighted, plain, by_hand)
        )
    assert found != unweighted
    if display is not MarginDisplay:  # its bins are quantiles of the rows, however often each counts
        assert found == pytest.approx(expected, abs=1e-9)
    with pytest.raises(TypeError, match="nonsense"):
        display.from_estimator(who, x, y, nonsense=1)


def test_the_comparison_passes_on_its_seed(fitted):
    data, ts, _ = fitted
    x, y = data.values, data.labels
    first, again, other = (
        ComparisonDisplay.from_estimator({"TS": ts}, x, y, n_boot=20, seed=seed).evaluations["TS"]["ece"].high
        for seed in (1, 1, 2)
    )
    assert first == again != other


def grouped(n=900, seed=1):
    """Rows of three groups, the first of which is far too sure."""
    generator = np.random.default_rng(seed)
    confidence = 0.5 + 0.5 * generator.random(n)
    group = np.array(["$bad$", "good", "fine"])[np.arange(n) % 3]
    right = generator.random(n) < np.where(group == "$bad$", confidence - 0.3, confidence)
    return np.where(right, 0, 1), np.stack([confidence, 1 - confidence], axis=1), group


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
    assert f"{(group == '$bad$').sum()} rows" in drawn.ax_[0].get_title()
    figure, ax = pyplot.subplots()
    assert display.plot(ax).figure_ is figure
    figure.savefig(tmp_path / "given.png")


def test_groups_before_and_after_are_the_same_rows(fitted, pyplot, tmp_path):
    data, ts, _ = fitted
    group = np.arange(len(data.labels)) % 4
    display = ReliabilityDisplay.from_estimator(ts, data.values, data.labels, groups=group)
    found = display.by_group
    assert set(found.before) == set(found.after) == {"0", "1", "2", "3"}
    for name in found.after:
        assert found.before[name].weight.sum() == found.after[name].weight.sum() == 200
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
    assert by_class.evaluations["model"].names == ("cat",)
