"""Displays draw what their data objects hold, and leave matplotlib as it was."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
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
from monocal.plots.display import AFTER, BEFORE, Display, to_svg

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")

MAKE = {
    "reliability": lambda x, y, ts, cal: ReliabilityDisplay.from_estimator(cal, x, y),
    "margin": lambda x, y, ts, cal: MarginDisplay.from_estimator(cal, x, y),
    "ranks": lambda x, y, ts, cal: RankParametersDisplay.from_estimator(cal, x),
    "effect": lambda x, y, ts, cal: EffectDisplay.from_estimator(cal, x),
    "comparison": lambda x, y, ts, cal: ComparisonDisplay.from_estimator(
        {"TS": ts, "cal": cal}, x, y, n_boot=10
    ),
    "risk": lambda x, y, ts, cal: RiskCoverageDisplay.from_estimator(cal, x, y),
}


@pytest.fixture
def make(fitted):
    data, ts, cal = fitted
    return lambda name: MAKE[name](data.values, data.labels, ts, cal)


def marked(ax):
    """Coordinates of all round markers, by their place from left to right."""
    points = np.concatenate([line.get_xydata() for line in ax.lines if line.get_marker() == "o"])
    return points[np.argsort(points[:, 0])]


def overlap(one, other):
    """Pixels that two boxes share, along the axis on which they share less."""
    across, down = (
        min(one.x1, other.x1) - max(one.x0, other.x0),
        min(one.y1, other.y1) - max(one.y0, other.y0),
    )
    return min(across, down)


@pytest.mark.parametrize("size", [None, (4.0, 3.0), (6.4, 4.8)], ids=str)
@pytest.mark.parametrize("name", MAKE)
def test_every_display_draws_new_or_into_the_callers_axes(make, pyplot, name, size):
    display = make(name)
    assert pyplot.get_fignums() == []  # making a display draws nothing
    given = pyplot.subplots(figsize=size) if size else (None, None)
    assert display.plot(given[1]) is display
    figure = display.figure_
    assert size is None or figure is given[0]
    figure.canvas.draw()
    assert all(
        ax.figure is figure and (ax.get_xlabel() or ax.get_ylabel()) for ax in np.atleast_1d(display.ax_)
    )
    # Legends are off the data, and panels off each other: their labels may touch, and not more.
    panels = [*np.atleast_1d(display.ax_), *getattr(display, "histogram_ax_", ())]
    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    for legend in legends:
        assert all(overlap(legend.get_window_extent(), ax.get_window_extent()) <= 1.0 for ax in panels)
    boxes = [ax.get_tightbbox(figure.canvas.get_renderer()) for ax in panels]
    assert all(overlap(one, other) <= 4.0 for one, other in combinations(boxes, 2))


def test_reliability_points_are_the_bins(make, pyplot):
    display = make("reliability").plot()
    assert display.colours() == {"before": BEFORE, "after": AFTER}
    for ax, bars, curve in zip(display.ax_, display.histogram_ax_, display.curves.values(), strict=True):
        expected = np.stack([curve.confidence, curve.accuracy], axis=1)[curve.weight > 0]
        np.testing.assert_allclose(marked(ax), expected)
        assert sum(step.get_data().values.sum() for step in bars.patches) == pytest.approx(100)


@pytest.mark.parametrize("name", ["reliability", "margin"])
def test_filled_means_more_than_chance(make, pyplot, name):
    display = make(name).plot()
    for ax, curve in zip(np.broadcast_to(display.ax_, 2), display.curves.values(), strict=True):
        lines = [line for line in ax.lines if line.get_marker() == "o"]
        faces = {
            (round(float(y), 9)): line.get_markerfacecolor() != "white"
            for line in lines
            for y in line.get_ydata()
        }
        values, filled = 100 * curve.gap if name == "margin" else curve.accuracy, curve.weight > 0
        for value, out in zip(values[filled], curve.outside[filled], strict=True):
            assert faces[round(float(value), 9)] == out


def test_markers_at_the_edge_are_whole_and_few_rows_do_not_bend_the_line(pyplot):
    display = ReliabilityDisplay.from_predictions([0] * 20, [[1.0, 0.0]] * 20).plot()
    (edge,) = (line for line in display.ax_[0].lines if line.get_marker() == "o")
    assert edge.get_xydata().tolist() == [[0.0, 0.0]]  # P(class 1), which is never the label
    assert not edge.get_clip_on()
    probs = np.repeat([[0.95, 0.05], [0.55, 0.45]], [50, 1], axis=0)
    ax = ReliabilityDisplay.from_predictions([0] * 47 + [1] * 3 + [1], probs).plot().ax_[0]
    assert len(marked(ax)) == 2
    line = next(line for line in ax.lines if line.get_linestyle() == "-" and line.get_marker() == "None")
    assert line.get_xydata()[:, 0].tolist() == pytest.approx([0.05])


def test_several_predictors_over_one_another(fitted, pyplot):
    data, ts, cal = fitted
    both = {"TS": ts, "conditional, of the margin, with a long name": cal}
    display = ReliabilityDisplay.from_estimator(both, data.values, data.labels, strategy="quantile").plot()
    assert len(display.ax_) == 1
    assert [t.get_text().split(":")[0] for t in display.figure_.legends[0].get_texts()] == list(both)
    display.figure_.canvas.draw()
    box = display.figure_.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= display.figure_.bbox.width
    assert all(np.ptp(curve.weight) <= 2 for curve in display.curves.values())  # as many rows in each bin
    assert len(ReliabilityDisplay(display.curves).plot(overlay=False).ax_) == 2


def test_one_after_the_other_into_the_same_axes_with_options_of_its_own(fitted, pyplot):
    data, ts, cal = fitted
    figure, ax = pyplot.subplots(figsize=(3.5, 3))
    for name, model in (("TS", ts), ("conditional", cal)):
        display = ReliabilityDisplay.from_estimator(model, data.values, data.labels, name=name)
        assert list(display.curves) == [name]
        display.plot(ax, histogram=False, linestyle=":", linewidth=3)
        assert display.ax_[0] is ax
    assert sum(line.get_linestyle() == ":" and line.get_linewidth() == 3 for line in ax.lines) == 2
    figure.canvas.draw()
    assert ax.title.get_window_extent().y0 >= ax.get_legend().get_window_extent().y1 - 1


def test_curves_by_class(fitted, pyplot):
    data, ts, _ = fitted
    probs = ts.predict_proba(data.values)
    display = ReliabilityDisplay.from_predictions(data.labels, probs, classes=[0, 3]).plot()
    assert list(display.curves) == ["class 0", "class 3"]
    curve = display.curves["class 3"]
    assert curve.mean_confidence == pytest.approx(probs[:, 3].mean())
    assert curve.mean_accuracy == pytest.approx((data.labels == 3).mean())
    assert display.ax_[0].get_ylabel() == "frequency of the class"
    with pytest.raises(errors.InputError, match="label: expected a class from 0 to 24"):
        ReliabilityDisplay.from_predictions(data.labels, probs, classes=[25])
    with pytest.raises(errors.InputError, match="strategy"):
        ReliabilityDisplay.from_predictions(data.labels, probs, strategy="kmeans")


def test_the_curve_without_bins_is_drawn_with_its_band(fitted, pyplot):
    data, ts, _ = fitted
    display = ReliabilityDisplay.from_estimator(ts, data.values, data.labels, smooth=True).plot()
    for name, ax in zip(display.curves, display.ax_, strict=True):
        assert any(np.array_equal(drawn.get_ydata(), display.smooth[name].accuracy) for drawn in ax.lines)
        assert len(ax.collections) == 1


def test_a_plain_classifier_has_no_before(pyplot):
    x = np.random.default_rng(0).normal(size=(200, 3))
    model = LogisticRegression().fit(x, x[:, 0] > 0)
    for display in (ReliabilityDisplay, MarginDisplay, RiskCoverageDisplay, ComparisonDisplay):
        assert list(display.from_estimator(model, x, x[:, 0] > 0).curves) == ["model"]


def test_comparison_puts_the_best_first(pyplot):
    y = np.array([0, 1, 1, 0])
    both = {"wrong": np.eye(2)[1 - y], "right": np.eye(2)[y] * 0.8 + 0.1}
    display = ComparisonDisplay.from_predictions(y, both, metrics=["accuracy", "nll"], n_boot=5)
    assert display.order("accuracy") == display.order("nll") == ["right", "wrong"]
    assert np.isinf(display.evaluations["wrong"]["nll"].value)
    display.plot()


def test_without_matplotlib_numbers_work_and_drawing_says_what_to_install(monkeypatch):
    code = "import sys, monocal.plots, monocal.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    display = ReliabilityDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(errors.MissingExtraError, match=r"monocal\[plots\]"):
        display.plot()


@pytest.mark.parametrize("display", [ReliabilityDisplay, MarginDisplay, ComparisonDisplay])
def test_every_argument_counts_or_is_refused(display, fitted):
    data, ts, _ = fitted
    x, y = data.values, data.labels
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    cases = ((slice(None), {"sample_weight": weight}), (slice(None), {}), (repeated, {}))

    def value(made):
        of_ts = made.curves["TS"]
        return of_ts["nll"].value if display is ComparisonDisplay else np.nansum(of_ts.accuracy)

    weighted, plain, by_hand = (
        value(display.from_estimator({"TS": ts}, x[rows], y[rows], **options)) for rows, options in cases
    )
    assert weighted != plain
    if display is not MarginDisplay:  # its bins are quantiles of the rows, however often each counts
        assert weighted == pytest.approx(by_hand, abs=1e-9)
    with pytest.raises(TypeError, match="nonsense"):
        display.from_estimator(ts, x, y, nonsense=1)


def test_risk_against_coverage(fitted, pyplot):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    display = RiskCoverageDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y).plot(linestyle=":")
    *lines, best = display.ax_.lines
    for line, (name, curve) in zip(lines, display.curves.items(), strict=True):
        assert line.get_linestyle() == ":"
        np.testing.assert_allclose(line.get_xdata()[1:], 100 * curve.coverage)
        np.testing.assert_allclose(line.get_ydata()[1:], 100 * curve.risk)
        assert line.get_label() == f"{name}: AURC {100 * curve.aurc:.2f} %"
        # No order is better than the best one.
        least = np.interp(line.get_xdata(), best.get_xdata(), best.get_ydata(), left=0)
        assert (least <= line.get_ydata() + 0.02).all()
    assert best.get_ydata()[-1] == pytest.approx(100 * (1 - mc.metrics.accuracy(cal.predict_proba(x), y)))
    named = RiskCoverageDisplay.from_estimator(cal, x, y, name="mine")
    assert named.plot().ax_.lines[0].get_label().startswith("mine: AURC")
    with pytest.raises(mc.InputError, match="at least one"):
        RiskCoverageDisplay({})


def test_margins_of_several_predictors(fitted, pyplot):
    data, ts, cal = fitted
    x, y = data.values, data.labels
    both = MarginDisplay.from_estimator({"TS": ts, "conditional": cal}, x, y, n_bins=5).plot(linewidth=3)
    for title, model in (("TS", ts), ("conditional", cal)):
        alone = MarginDisplay.from_estimator(model, x, y, n_bins=5)
        np.testing.assert_array_equal(both.curves[title].gap, alone.curves["after"].gap)
    assert sum(line.get_linewidth() == 3 for line in both.ax_.lines) == 2
    figure, ax = pyplot.subplots(figsize=(3, 2.5), layout="constrained")
    MarginDisplay.from_estimator(ts, x, y).plot(ax)
    figure.canvas.draw()
    shown = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    assert len(shown) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(shown))  # labels do not touch


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
        assert display.axes == ("P(class 1)", "frequency of class 1")
    assert expected.mean_confidence == pytest.approx(p.mean())
    for other in (RiskCoverageDisplay, MarginDisplay):
        assert list(other.from_predictions(words, p).curves) == ["model"]
    model = LogisticRegression().fit(p[:, None], words)
    assert list(ReliabilityDisplay.from_estimator(model, p[:, None], words).curves) == ["model"]
    with pytest.raises(errors.InputError):
        ReliabilityDisplay(p, words[:10])
    with pytest.raises(errors.InputError, match="such as 'no'"):  # labels come first
        ReliabilityDisplay.from_predictions(p[:2], ["no", "yes"])


def test_the_interval_of_a_calibrated_probability_is_drawn(fitted, pyplot):
    data = mc.data.synthetic(600, 2, seed=4)
    score = data.values[:, 1] - data.values[:, 0]
    cal = mc.BinaryMCCT().fit(score, data.labels)
    display = ReliabilityDisplay.from_estimator(cal, score, data.labels, interval=True)
    assert list(display.curves) == ["before", "after"]
    p, low, high = display.intervals["after"]
    assert ((low <= p) & (p <= high)).all()
    ax = display.plot().ax_[1]
    assert any(c.get_label() == "interval of P(class 1)" for c in ax.collections)
    with pytest.raises(errors.InputError, match="predict_interval"):
        ReliabilityDisplay.from_estimator(fitted[1], fitted[0].values, fitted[0].labels, interval=True)


def test_a_display_as_svg_for_a_page(make, pyplot):
    display = make("reliability")
    svg = to_svg(display, "Reliability <before & after>", overlay=True)
    assert svg.startswith("<svg ")
    assert svg.rstrip().endswith("</svg>")
    assert "http" not in svg
    for words in (
        "&lt;before &amp; after&gt;",
        "confidence</text>",
        "mean confidence",
        "var(--before, #",
        "var(--ink, #",
    ):
        assert words in svg
    assert svg.count("<title>") == sum((curve.weight > 0).sum() for curve in display.curves.values())
    assert to_svg(display, "Reliability <before & after>", overlay=True) == svg


def test_the_monitor_is_drawn_window_by_window(pyplot):
    data = mc.data.synthetic(5000, 4, seed=1)
    cal = mc.MCCT().fit(data.values[:2000], data.labels[:2000])
    late = [(data.values[2000:], data.labels[2000:]), (3 * data.values[2000:], data.labels[2000:])]
    monitor = mc.monitor(late, calibrator=cal)
    display = mc.MonitorDisplay(monitor).plot()
    assert len(display.ax_) == 3
    (line,) = [line for line in display.ax_[2].lines if len(line.get_xdata()) == len(monitor.windows)]
    np.testing.assert_allclose(line.get_ydata(), [w.evidence for w in monitor.windows])
    dashed = [line.get_xdata()[0] for line in display.ax_[0].lines if line.get_linestyle() == "--"]
    assert dashed == [alarm.row for alarm in monitor.alarms]
    without_labels = mc.Monitor().update(np.full((1200, 3), 1 / 3))
    assert len(mc.MonitorDisplay(without_labels).plot().ax_) == 3
    with pytest.raises(mc.InputError, match="no window"):
        mc.MonitorDisplay(mc.Monitor())


def test_every_display_has_the_one_base():
    kinds = [getattr(mc.plots, name) for name in mc.plots.__all__ if name.endswith("Display")]
    assert len(kinds) == 8
    assert all(issubclass(kind, Display) for kind in kinds)
