"""Displays draw what their data objects hold, and leave matplotlib as it was."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import monocal as mc
from monocal import errors
from monocal.plots import (
    ComparisonDisplay,
    EffectDisplay,
    MarginDisplay,
    RankParametersDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from monocal.plots.display import Display

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")


def displays(fitted):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    return [
        ReliabilityDisplay.from_estimator(cal, x, y),
        MarginDisplay.from_estimator(cal, x, y),
        RankParametersDisplay.from_estimator(cal, x),
        EffectDisplay.from_estimator(cal, x),
        ComparisonDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y, n_boot=10),
        RiskCoverageDisplay.from_estimator(cal, x, y),
    ]


@pytest.mark.parametrize("number", range(6))
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


def marked(ax):
    """Coordinates of all round markers, by their place from left to right."""
    result = [line.get_xydata() for line in ax.lines if line.get_marker() == "o"]
    points = np.concatenate(result)
    return points[np.argsort(points[:, 0])]


def test_reliability_points_are_the_bins(fitted, pyplot):
    display = displays(fitted)[0].plot()
    assert list(display.curves) == ["before", "after"]
    for ax, bars, curve in zip(display.ax_, display.histogram_ax_, display.curves.values(), strict=True):
        filled = curve.weight > 0
        expected = np.stack([curve.confidence, curve.accuracy], axis=1)[filled]
        np.testing.assert_allclose(marked(ax), expected)
        assert sum(step.get_data().values.sum() for step in bars.patches) == pytest.approx(100)


def test_filled_means_more_than_chance_in_every_display(fitted, pyplot):
    for display in displays(fitted)[:2]:
        display.plot()
        for name, curve in display.curves.items():
            axes = np.atleast_1d(display.ax_)
            ax = axes[min(list(display.curves).index(name), len(axes) - 1)]
            values = 100 * curve.gap if isinstance(display, MarginDisplay) else curve.accuracy
            faces = {
                (round(float(y), 9)): line.get_markerfacecolor() != "white"
                for line in ax.lines
                if line.get_marker() == "o"
                for y in line.get_ydata()
            }
            filled = curve.weight > 0
            for value, out in zip(values[filled], curve.outside[filled], strict=True):
                assert faces[round(float(value), 9)] == out


def boxes(figure, axes):
    renderer = figure.canvas.get_renderer()
    return [ax.get_tightbbox(renderer) for ax in axes]


@pytest.mark.parametrize("size", [None, (4.0, 3.0), (6.4, 4.8)], ids=str)
@pytest.mark.parametrize("number", range(5))
def test_legends_are_off_the_data_and_panels_off_each_other(fitted, pyplot, number, size):
    display = displays(fitted)[number]
    if size is None:
        display.plot()
    else:
        _, ax = pyplot.subplots(figsize=size)
        display.plot(ax)
    figure = display.figure_
    figure.canvas.draw()
    panels = [*np.atleast_1d(display.ax_), *getattr(display, "histogram_ax_", ())]
    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    for legend in legends:
        box = legend.get_window_extent()
        for ax in panels:
            inside = ax.get_window_extent()
            across = min(box.x1, inside.x1) - max(box.x0, inside.x0)
            down = min(box.y1, inside.y1) - max(box.y0, inside.y0)
            assert min(across, down) <= 1.0
    result = boxes(figure, panels)
    for i, one in enumerate(result):
        for other in result[i + 1 :]:
            across, down = (
                min(one.x1, other.x1) - max(one.x0, other.x0),
                min(one.y1, other.y1) - max(one.y0, other.y0),
            )
            assert min(across, down) <= 4.0  # pixels: labels may touch, and not more


def test_markers_at_the_edge_are_whole(pyplot):
    display = ReliabilityDisplay.from_predictions([0] * 20, [[1.0, 0.0]] * 20).plot()
    (edge,) = (line for line in display.ax_[0].lines if line.get_marker() == "o")
    assert edge.get_xydata().tolist() == [[0.0, 0.0]]  # P(class 1), which is never the label
    assert not edge.get_clip_on()


def test_bins_of_a_few_rows_do_not_bend_the_line(pyplot):
    probs = np.repeat([[0.95, 0.05], [0.55, 0.45]], [50, 1], axis=0)
    display = ReliabilityDisplay.from_predictions([0] * 47 + [1] * 3 + [1], probs).plot()
    ax = display.ax_[0]
    assert len(marked(ax)) == 2
    line = next(line for line in ax.lines if line.get_linestyle() == "-" and line.get_marker() == "None")
    assert line.get_xydata()[:, 0].tolist() == pytest.approx([0.05])  # P(class 1)


def test_several_predictors_over_one_another(fitted, pyplot):
    data, ts, cal = fitted
    both = {"TS": ts, "conditional": cal}
    display = ReliabilityDisplay.from_estimator(both, data.values, data.labels, strategy="quantile").plot()
    assert len(display.ax_) == 1
    text = [t.get_text() for t in display.figure_.legends[0].get_texts()]
    assert [t.split(":")[0] for t in text] == ["TS", "conditional"]
    for curve in display.curves.values():  # as many rows in each bin
        assert np.ptp(curve.weight) <= 2
    apart = ReliabilityDisplay(display.curves).plot(overlay=False)
    assert len(apart.ax_) == 2


def test_one_after_the_other_into_the_same_axes_with_options_of_its_own(fitted, pyplot):
    data, ts, cal = fitted
    _, ax = pyplot.subplots()
    for name, model in (("TS", ts), ("conditional", cal)):
        display = ReliabilityDisplay.from_estimator(model, data.values, data.labels, name=name)
        assert list(display.curves) == [name]
        display.plot(ax, histogram=False, linestyle=":", linewidth=3)
        assert display.ax_[0] is ax
    assert sum(line.get_linestyle() == ":" and line.get_linewidth() == 3 for line in ax.lines) == 2


def test_curves_by_class(fitted, pyplot):
    data, ts, _ = fitted
    probs = ts.predict_proba(data.values)
    display = ReliabilityDisplay.from_predictions(data.labels, probs, classes=[0, 3]).plot()
    assert list(display.curves) == ["class 0", "class 3"]
    curve = display.curves["class 3"]
    assert curve.mean_confidence == pytest.approx(probs[:, 3].mean())
    assert curve.mean_accuracy == pytest.approx((data.labels == 3).mean())
    with pytest.raises(errors.InputError, match="label: expected a class from 0 to 24"):
        ReliabilityDisplay.from_predictions(data.labels, probs, classes=[25])
    with pytest.raises(errors.InputError, match="strategy"):
        ReliabilityDisplay.from_predictions(data.labels, probs, strategy="kmeans")


def test_ranks_that_coincide_share_a_line_and_its_name(fitted, pyplot):
    display = displays(fitted)[3].plot()
    groups = [
        [tuple(values) for values in display.effect.weight],
        [tuple(values) for values in display.effect.bias],
    ]
    for ax, values in zip(display.ax_, groups, strict=True):
        assert len(ax.lines) == len(set(values))
    named = " ".join(t.get_text() for t in display.figure_.legends[0].get_texts())
    assert all(str(rank) in named for rank in display.effect.ranks)


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
        result, unweighted, expected = (d.evaluations["TS"]["nll"].value for d in (weighted, plain, by_hand))
    else:
        result, unweighted, expected = (
            np.nansum(d.curves["after"].accuracy) for d in (weighted, plain, by_hand)
        )
    assert result != unweighted
    if display is not MarginDisplay:  # its bins are quantiles of the rows, however often each counts
        assert result == pytest.approx(expected, abs=1e-9)
    with pytest.raises(TypeError, match="nonsense"):
        display.from_estimator(who, x, y, nonsense=1)


def test_risk_against_coverage(fitted, pyplot):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    display = RiskCoverageDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y).plot(linestyle=":")
    first, second, best = display.ax_.lines
    for line, name in ((first, "TS"), (second, "conditional")):
        curve = display.curves[name]
        assert line.get_linestyle() == ":"
        np.testing.assert_allclose(line.get_xdata()[1:], 100 * curve.coverage)
        np.testing.assert_allclose(line.get_ydata()[1:], 100 * curve.risk)
        assert line.get_label() == f"{name}: AURC {100 * curve.aurc:.2f} %"
        # No order is better than the best one.
        assert (
            np.interp(line.get_xdata(), best.get_xdata(), best.get_ydata(), left=0) <= line.get_ydata() + 0.02
        ).all()
    assert best.get_ydata()[-1] == pytest.approx(100 * (1 - mc.metrics.accuracy(cal.predict_proba(x), y)))
    alone = RiskCoverageDisplay.from_predictions(y, cal.predict_proba(x))
    assert list(alone.curves) == ["model"]
    # Names and colours are those of the other displays.
    for several in ({"before": ts, "other": cal}, {"after": ts}, {"model": ts, "a": cal}):
        own, other = (one.from_estimator(several, x, y) for one in (RiskCoverageDisplay, ReliabilityDisplay))
        colours = [line.get_color() for line in own.plot().ax_.lines[:-1]]
        assert colours == list(other.colours().values())
    for named in (
        RiskCoverageDisplay.from_estimator(cal, x, y, name="mine"),
        RiskCoverageDisplay.from_predictions(y, cal.predict_proba(x), name="mine"),
    ):
        assert list(named.curves) == ["mine"]
        assert named.plot().ax_.lines[0].get_label().startswith("mine: AURC")
    with pytest.raises(mc.InputError, match="at least one"):
        RiskCoverageDisplay({})


def test_legends_fit_the_width_and_titles_stand_above_them(fitted, pyplot):
    data, ts, cal = fitted
    named = {"temperature scaling of all classes": ts, "conditional, of the margin": cal}
    display = ReliabilityDisplay.from_estimator(named, data.values, data.labels).plot()
    display.figure_.canvas.draw()
    box = display.figure_.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= display.figure_.bbox.width
    figure, ax = pyplot.subplots(figsize=(3.5, 3))
    ReliabilityDisplay.from_estimator(ts, data.values, data.labels, name="TS").plot(ax, histogram=False)
    figure.canvas.draw()
    assert ax.title.get_window_extent().y0 >= ax.get_legend().get_window_extent().y1 - 1


def test_margins_of_several_predictors_and_names(fitted, pyplot):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    both = MarginDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y, n_bins=5).plot(linewidth=3)
    assert list(both.curves) == ["TS", "conditional"]
    for title, model in (("TS", ts), ("conditional", cal)):
        alone = MarginDisplay.from_estimator(model, x, y, n_bins=5)
        np.testing.assert_array_equal(both.curves[title].gap, alone.curves["after"].gap)
    assert sum(line.get_linewidth() == 3 for line in both.ax_.lines) == 2
    assert list(MarginDisplay.from_estimator(ts, x, y, name="mine").curves) == ["mine"]


def test_tick_labels_of_a_small_margin_diagram_do_not_touch(fitted, pyplot):
    data, ts, _ = fitted
    figure, ax = pyplot.subplots(figsize=(3, 2.5), layout="constrained")
    MarginDisplay.from_estimator(ts, data.values, data.labels).plot(ax)
    figure.canvas.draw()
    shown = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    assert len(shown) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(shown))
    assert ax.xaxis.label.get_window_extent().x1 <= figure.bbox.width


def test_axes_say_what_they_show_with_units(fitted, pyplot):
    from monocal.core.statistics import STATISTICS
    from monocal.plots.rank_parameters import _IN_WORDS

    data, ts, cal = fitted
    assert set(_IN_WORDS) == set(STATISTICS)
    assert (
        EffectDisplay.from_estimator(cal, data.values, "entropy").plot().ax_[0].get_xlabel()
        == "entropy, nats"
    )
    probs = ts.predict_proba(data.values)
    one, other = (
        ReliabilityDisplay.from_predictions(data.labels, probs, **options).plot()
        for options in ({}, {"classes": [1]})
    )
    assert (one.ax_[0].get_ylabel(), one.histogram_ax_[0].get_xlabel()) == ("accuracy", "confidence")
    assert other.ax_[0].get_ylabel() == "frequency of the class"
    assert other.histogram_ax_[0].get_xlabel() == "probability of the class"


def test_one_column_of_scores_and_labels_in_words(pyplot):
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = (rng.random(400) < p).astype(int)
    expected = ReliabilityDisplay.from_predictions(y, np.stack([1 - p, p], axis=1)).curves["model"]
    words = np.array(["no", "yes"])[y]
    for display in (
        ReliabilityDisplay(p, y),
        ReliabilityDisplay(p[:, None], words),
        ReliabilityDisplay.from_predictions(words, p),
        ReliabilityDisplay.from_predictions(2 * y - 1, p),
    ):
        np.testing.assert_array_equal(display.curves["model"].accuracy, expected.accuracy)
    assert expected.mean_confidence == pytest.approx(p.mean())
    drawn = ReliabilityDisplay(p, words).plot()
    assert drawn.ax_[0].get_ylabel() == "frequency of class 1"
    for other in (RiskCoverageDisplay, MarginDisplay):
        assert list(other.from_predictions(words, p).curves) == ["model"]
    model = LogisticRegression().fit(p[:, None], words)
    assert list(ReliabilityDisplay.from_estimator(model, p[:, None], words).curves) == ["model"]
    with pytest.raises(errors.InputError):
        ReliabilityDisplay(p, words[:10])


def test_the_interval_of_a_calibrated_probability_is_drawn(fitted, pyplot):
    data = mc.data.synthetic(600, 2, seed=4)
    score = data.values[:, 1] - data.values[:, 0]
    cal = mc.BinaryMCCT().fit(score, data.labels)
    display = ReliabilityDisplay.from_estimator(cal, score, data.labels, interval=True)
    assert list(display.curves) == ["before", "after"]
    p, low, high = display.intervals["after"]
    assert (low <= p).all()
    assert (p <= high).all()
    ax = display.plot().ax_[1]
    assert any(c.get_label() == "interval of P(class 1)" for c in ax.collections)
    with pytest.raises(errors.InputError, match="predict_interval"):
        ReliabilityDisplay.from_estimator(fitted[1], fitted[0].values, fitted[0].labels, interval=True)


def test_colours_of_before_and_after_are_the_same_in_every_display(fitted, pyplot):
    from monocal.plots.display import AFTER, BEFORE

    for display in [*displays(fitted)[:2], displays(fitted)[5]]:
        assert display.colours() == {"before": BEFORE, "after": AFTER}
        colours = {line.get_color() for ax in np.atleast_1d(display.plot().ax_) for line in ax.lines}
        assert {BEFORE, AFTER} <= colours


def test_a_display_as_svg_for_a_page(fitted, pyplot):
    from monocal.plots.svg import to_svg

    display = displays(fitted)[0]
    svg = to_svg(display, "Reliability <before & after>", overlay=True)
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>\n") or svg.endswith("</svg>")
    assert "&lt;before &amp; after&gt;" in svg
    assert "http" not in svg
    assert "confidence</text>" in svg  # text stays text
    for name in ("before", "after", "ink"):
        assert f"var(--{name}, #" in svg
    bins = sum((curve.weight > 0).sum() for curve in display.curves.values())
    assert svg.count("<title>") == bins
    assert "mean confidence" in svg
    assert to_svg(display, "Reliability <before & after>", overlay=True) == svg


@pytest.mark.parametrize("column", [list, np.array, pd.Series])
def test_labels_in_place_of_probabilities_are_called_so(column):
    with pytest.raises(mc.InputError, match="such as 'no': give the labels first"):
        mc.ReliabilityDisplay.from_predictions([0.1, 0.7], column(["no", "yes"]))


def test_every_display_has_the_one_base():
    kinds = [getattr(mc.plots, name) for name in mc.plots.__all__ if name.endswith("Display")]
    assert len(kinds) == 8
    assert all(issubclass(kind, Display) for kind in kinds)
