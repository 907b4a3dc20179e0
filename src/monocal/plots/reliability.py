"""Reliability diagrams: accuracy against confidence, the band of perfect calibration, the histogram; and the error by margin.

A point in its grey box is what a perfectly calibrated model would show; below the diagonal the model claims too much. Filled
points lie outside their box: more than chance explains. Two classes show P(class 1) against the frequency of class 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.validation import check_count
from ..metrics.units import count, percent
from .curves import (
    CalibrationCurve,
    SmoothCurve,
    margin_curve,
    margins,
    reliability_curve,
    smooth_reliability_curve,
)
from .display import (
    AFTER,
    BAND,
    BEFORE,
    LINE,
    CurvesDisplay,
    by_name,
    first_of,
    is_calibrator,
    legend,
    panels,
    points,
    tidy,
)
from .group_curves import GroupCurves, group_curves

_FEW = 5  # rows
_NODES = 200  # of an interval that is drawn


class ReliabilityDisplay(CurvesDisplay[CalibrationCurve]):
    """Reliability diagrams side by side or over one another, each with its histogram.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve, or (n,) array of P(class 1)
        By title; see `reliability_curve`. An array has its labels as the second argument, as in
        ``ReliabilityDisplay(p, y)``.
    smooth : dict of str to SmoothCurve, optional
        Curves without bins, drawn in place of the lines between bins; see `smooth_reliability_curve`.
    by_group : GroupCurves, optional
        Where rows are in groups: ``curves`` are then those of the groups, the worst first.
    of_classes : bool
        Whether each curve is that of one class: its probability against how often it is the label.
    intervals : dict of str to (p, low, high), optional
        Intervals of calibrated probabilities, drawn as a band around the diagonal.
    axes : (str, str), optional
        What is claimed, and what is kept of it.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.plots import ReliabilityDisplay
    >>> data = mc.data.synthetic(2000, 10)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> list(ReliabilityDisplay.from_estimator(cal, data.values, data.labels).curves)
    ['before', 'after']
    >>> list(ReliabilityDisplay([0.1, 0.7, 0.4], ["no", "yes", "no"]).curves)
    ['model']
    """

    def __init__(
        self,
        curves: Any,
        smooth: Any = None,
        by_group: GroupCurves | None = None,
        of_classes: bool = False,
        intervals: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None,
        axes: tuple[str, str] | None = None,
    ):
        if not isinstance(curves, Mapping):  # probabilities and labels
            made: ReliabilityDisplay = self.from_predictions(smooth, curves)
            curves, smooth, of_classes = made.curves, None, bool(made.of_classes)
        super().__init__(curves)
        self.smooth: dict[str, SmoothCurve] | None = smooth
        self.by_group = by_group
        self.of_classes: bool = of_classes
        self.intervals = intervals or {}
        if axes is None:  # what is claimed, and what is kept of it
            several = of_classes and by_group is None and any("class" in name for name in self.curves)
            axes = ("P(class 1)", "frequency of class 1") if of_classes else ("confidence", "accuracy")
            axes = ("probability of the class", "frequency of the class") if several else axes
        self.axes = axes

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *args: Any, interval: bool = False, **options: Any
    ) -> ReliabilityDisplay:
        """As in all displays; ``interval`` draws the ``predict_interval`` of an estimator that has one."""
        display = super().from_estimator(estimator, X, y, *args, **options)
        if interval:
            if not hasattr(estimator, "predict_interval"):
                raise InputError(
                    f"interval: {type(estimator).__name__} has no predict_interval; BinaryMCCT has."
                )
            p, low, high = map(np.asarray, (estimator.predict_proba(X), *estimator.predict_interval(X)))
            p = p[:, 1] if p.ndim == 2 else p
            order = np.argsort(p, kind="stable")
            at = order[np.unique(np.linspace(0, len(p) - 1, _NODES).round().astype(int))]
            display.intervals = {list(display.curves)[-1]: (p[at], low[at], high[at])}
        return display

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        before: Any = None,
        name: str | None = None,
        classes: Sequence[int] | None = None,
        smooth: bool = False,
        groups: Any = None,
        max_groups: int = 6,
        class_names: Sequence[str] | None = None,
        **options: Any,
    ) -> ReliabilityDisplay:
        """From labels and probabilities (several of these by name), and those before calibration if there are any.

        Parameters
        ----------
        classes : sequence of int, optional
            A curve for the probability of each of these classes, instead of that of the top class. Of two columns: class 1.
        smooth : bool
            Add a curve without bins.
        groups : (n,) array-like, or "predicted", optional
            One diagram for each of the ``max_groups`` worst groups, in 5 bins, before behind after; see `monocal.evaluate`.
        class_names : sequence of str, optional
            Of predicted classes as groups.
        **options
            Of `reliability_curve`.
        """
        if groups is not None:
            if isinstance(y_prob, Mapping) or classes is not None or smooth or "strategy" in options:
                raise InputError(
                    "groups: expected one predictor, with neither classes, smooth nor a strategy"
                )
            by_group = group_curves(y_true, y_prob, groups, before=before, class_names=class_names, **options)
            worst = by_group.evaluation.names[: check_count(max_groups, "max_groups")]
            curves = {group: by_group.after[group] for group in worst}
            return cls(curves, by_group=by_group, of_classes=by_group.evaluation.two)
        parts = by_name(y_prob, before, name)
        two = classes is None and all(len(np.shape(p)) == 1 or np.shape(p)[1] <= 2 for p in parts.values())
        wanted: list[tuple[str, Any, int | None]] = [(t, p, 1 if two else None) for t, p in parts.items()]
        if classes is not None:
            one = len(parts) == 1
            wanted = [
                (f"class {c}" if one else f"{t}, class {c}", p, c) for t, p in parts.items() for c in classes
            ]
        curves = {title: reliability_curve(p, y_true, label=c, **options) for title, p, c in wanted}
        lines = None
        if smooth:
            same = {key: options[key] for key in ("level", "sample_weight") if key in options}
            lines = {title: smooth_reliability_curve(p, y_true, label=c, **same) for title, p, c in wanted}
        return cls(curves, lines, of_classes=two or classes is not None)

    def plot(
        self, ax: Any = None, *, overlay: bool | None = None, histogram: bool = True, **kwargs: Any
    ) -> ReliabilityDisplay:
        """Draw into a new figure, or into the space of ``ax``.

        Parameters
        ----------
        ax : Axes, optional
        overlay : bool, optional
            All curves in one diagram. By default before and after stand side by side, other curves over one another.
        histogram : bool
            Draw the share of rows below. Without it one diagram is drawn into ``ax`` itself, over what is there.
        **kwargs
            Of the lines, passed on to ``Axes.plot``.
        """
        grouped = self.by_group is not None
        if overlay is None:
            overlay = len(self.curves) > 1 and not (grouped or set(self.curves) <= {"before", "after"})
        diagrams = [list(self.curves)] if overlay else [[name] for name in self.curves]
        columns = min(3, len(diagrams)) if grouped else len(diagrams)
        lines = -(-len(diagrams) // columns)
        heights = ((3.2, 1.0) if histogram else (1.0,)) * lines
        self.figure_, axes = panels(ax, columns, heights, (4.2, (5.4 if histogram else 4.4) * lines))
        step = 2 if histogram else 1
        tops, bottoms = ([one for line in axes[first::step] for one in line] for first in (0, step - 1))
        for unused in tops[len(diagrams) :] + bottoms[len(diagrams) :]:
            unused.set_visible(False)
        tops, bottoms = tops[: len(diagrams)], bottoms[: len(diagrams)]
        colours = dict.fromkeys(self.curves, AFTER) if grouped else self.colours()
        for names, top, bottom in zip(diagrams, tops, bottoms, strict=True):
            top.plot([0, 1], [0, 1], color=LINE, linewidth=1, linestyle="--", zorder=1)
            for name in names:
                self._diagram(top, name, colours[name], alone=len(names) == 1, **kwargs)
            top.set(xlim=(0, 1), ylim=(0, 1), ylabel=self.axes[1])
            if len(names) == 1:
                top.set_title(self._title(names[0]), size=top.xaxis.label.get_size())
            tidy(top)
            if histogram:
                self._histogram(bottom, names, colours, top is tops[0])
            else:
                top.set_xlabel(self.axes[0])
        legend(ax, self.figure_, tops[0])
        self.ax_, self.histogram_ax_ = np.array(tops), np.array(bottoms if histogram else [])
        return self

    def _title(self, name: str) -> str:
        if self.by_group is not None:
            return self.by_group.title(name)
        return f"{name}: ECE {100 * self.curves[name].ece:.2f} %"

    def _diagram(self, ax: Any, name: str, colour: str, *, alone: bool, **kwargs: Any) -> None:
        curve = self.curves[name]
        filled = curve.weight > 0
        if self.by_group is not None and name in self.by_group.before:
            was = self.by_group.before[name]
            style: dict[str, Any] = {"color": BEFORE, "alpha": 0.5, "zorder": 1, "label": "before"}
            ax.plot(was.confidence[was.weight > 0], was.accuracy[was.weight > 0], ".-", **style)
        if alone:  # boxes over one another look like one
            style = {"align": "edge", "color": BAND, "alpha": 0.3}
            style |= {"bottom": curve.low, "label": f"perfectly calibrated, {100 * curve.level:g} %"}
            ax.bar(curve.edges[:-1], curve.high - curve.low, np.diff(curve.edges), **style)
        x, y, out = curve.confidence[filled], curve.accuracy[filled], curve.outside[filled]
        few = curve.weight[filled] < _FEW  # their accuracy is next to nothing: they stay off the line
        line = (x[~few], y[~few])
        band: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0}
        if self.smooth is not None:
            smooth = self.smooth[name]
            ax.fill_between(smooth.confidence, smooth.low, smooth.high, **band)
            line = (smooth.confidence, smooth.accuracy)
        named = None if alone else f"{name}: ECE {100 * curve.ece:.2f} %"
        ax.plot(*line, **{"color": colour, "linewidth": 1.2, "label": named, **kwargs})
        if name in self.intervals:
            ax.fill_between(*self.intervals[name], label="interval of P(class 1)", **band)
        tips = np.array([f"{name}, {self._tip(curve, k)}" for k in np.flatnonzero(filled).tolist()])
        labels = (None, "outside the band" if alone else None)
        points(ax, x[~few], y[~few], out[~few], colour, labels=labels, tips=tips[~few], markersize=5)
        points(ax, x[few], y[few], out[few], colour, tips=tips[few], markersize=3, alpha=0.45)

    def _tip(self, curve: CalibrationCurve, k: int) -> str:
        """What a bin holds."""
        claim, kept = self.axes
        return (
            f"{claim} {curve.edges[k]:.3g} to {curve.edges[k + 1]:.3g}: {count(curve.weight[k])} rows,\n"
            f"mean {claim} {percent(curve.confidence[k])}, {kept} {percent(curve.accuracy[k])},\n"
            f"{'outside' if curve.outside[k] else 'inside'} the band {percent(curve.low[k])} to {percent(curve.high[k])}"
        )

    def _histogram(self, ax: Any, names: list[str], colours: dict[str, str], first: bool) -> None:
        """Share of the rows; where bins differ in width, by width, or every quantile would be as tall as the others."""
        wide = [np.diff(self.curves[name].edges) for name in names]
        even = all(np.allclose(width, width[0]) for width in wide)
        for name, width in zip(names, wide, strict=True):
            curve = self.curves[name]
            share = 100 * curve.weight / curve.weight.sum() / (1.0 if even else 100 * np.maximum(width, 1e-9))
            style = {"fill": True, "edgecolor": "white"} if len(names) == 1 else {"fill": False}
            ax.stairs(share, curve.edges, color=colours[name], **style)
        label = "share of rows, %" if even else "rows, % per 0.01"
        ax.set(xlim=(0, 1), xlabel=self.axes[0], ylabel=label if first else "")
        if even:
            ax.set_ylim(0, None)
        else:  # narrow bins near 1 are a thousand times as dense
            ax.set_yscale("log")
        tidy(ax)


class MarginDisplay(CurvesDisplay[CalibrationCurve]):
    """Calibration error against the margin: confidence minus accuracy in bins with as many rows each.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve
        By name, over the same bins; see `margin_curve`.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> display = mc.MarginDisplay.from_estimator(cal, data.values, data.labels, n_bins=5)
    >>> list(display.curves), len(display.curves["after"].gap)
    (['before', 'after'], 5)
    >>> display.plot().ax_.get_ylabel()
    'over-confidence, points'
    """

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *args: Any, **options: Any) -> MarginDisplay:
        """As in all displays; the margin is that of the input of a calibrator, or of the first of several."""
        one = first_of(estimator)
        if is_calibrator(one) and len(np.shape(X)) == 2 and np.shape(X)[1] > 1:
            options = {"margin": margins(X, input=one.input), **options}
        return super().from_estimator(estimator, X, y, *args, **options)

    @classmethod
    def _curves(
        cls, y_true: Any, parts: dict[str, Any], *, margin: Any = None, **options: Any
    ) -> dict[str, CalibrationCurve]:
        """Rows are binned by their margin before calibration."""
        margin = margins(next(iter(parts.values()))) if margin is None else margin
        return {title: margin_curve(p, y_true, margin, **options) for title, p in parts.items()}

    def plot(self, ax: Any = None, **kwargs: Any) -> MarginDisplay:
        """Draw into a new figure or into ``ax``; keyword arguments go to the lines."""
        self.figure_, [[self.ax_]] = panels(ax, 1, (1.0,), (6.4, 3.8))
        first = next(iter(self.curves.values()))
        slots = np.arange(len(first.weight))
        for name, colour in self.colours().items():
            curve = self.curves[name]
            low, high = curve.confidence - curve.high, curve.confidence - curve.low
            self.ax_.fill_between(slots, 100 * low, 100 * high, color=colour, alpha=0.15, linewidth=0)
            style = {"color": colour, "linewidth": 1.2, "label": name, **kwargs}
            self.ax_.plot(slots, 100 * curve.gap, **style)
            tips = [
                f"{name}, margin {curve.edges[k]:.3g} to {curve.edges[k + 1]:.3g}: {count(curve.weight[k])} rows,\n"
                f"claims {percent(curve.confidence[k])}, right in {percent(curve.accuracy[k])}"
                for k in slots
            ]
            points(self.ax_, slots, 100 * curve.gap, curve.outside, colour, tips=tips, markersize=5)
        self.ax_.axhline(0, color=LINE, linewidth=1)
        self.ax_.set(xlabel="margin, logits (equal-mass bins)", ylabel="over-confidence, points")
        wide = self.ax_.get_window_extent().width / self.figure_.dpi  # inches: a label every half of one
        shown = slice(None, None, max(1, -(-len(slots) // max(2, int(2 * wide)))))
        ticks = np.arange(len(first.edges)) - 0.5
        self.ax_.set_xticks(ticks[shown], [f"{edge:.2g}" for edge in first.edges[shown]])
        legend(ax, self.figure_, self.ax_)
        tidy(self.ax_)
        return self
