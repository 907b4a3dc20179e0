"""Reliability diagrams: accuracy against confidence, the band of perfect calibration, the histogram.

A point in its grey box is what a perfectly calibrated model would show; below the diagonal the model claims too much. Filled
points lie outside their box: more than chance explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.validation import check_count
from ..metrics.within import GROUP_BINS
from ._axes import AFTER, BAND, BEFORE, LINE, legend, panels, points, tidy
from ._predictors import CurvesDisplay, by_name, predicted
from .curves import CalibrationCurve, reliability_curve
from .groups import GroupCurves, group_curves
from .smooth_curve import SmoothCurve, smooth_reliability_curve

_FEW = 5  # rows


class ReliabilityDisplay(CurvesDisplay[CalibrationCurve]):
    """Reliability diagrams side by side or over one another, each with its confidence histogram.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve
        By title; see `reliability_curve`.
    smooth : dict of str to SmoothCurve, optional
        Curves without bins, drawn in place of the lines between bins; see `smooth_reliability_curve`.
    by_group : GroupCurves, optional
        Where rows are in groups: ``curves`` are then those of the groups, the worst first.
    of_classes : bool
        Whether each curve is that of one class: its probability against how often it is the label.

    Attributes
    ----------
    ax_ : ndarray of Axes
        One diagram a curve, or one for all.
    histogram_ax_ : ndarray of Axes
    figure_ : Figure

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.plots import ReliabilityDisplay
    >>> data = mc.data.synthetic(2000, 10)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> display = ReliabilityDisplay.from_estimator(cal, data.values, data.labels)
    >>> list(display.curves)
    ['before', 'after']
    >>> both = {"TS": mc.TemperatureScaling().fit(data.values, data.labels), "MCCT": cal}
    >>> display = ReliabilityDisplay.from_estimator(both, data.values, data.labels, strategy="quantile")
    >>> list(display.curves)
    ['TS', 'MCCT']
    """

    def __init__(
        self,
        curves: dict[str, CalibrationCurve],
        smooth: dict[str, SmoothCurve] | None = None,
        by_group: GroupCurves | None = None,
        of_classes: bool = False,
    ):
        super().__init__(curves)
        self.smooth = smooth
        self.by_group = by_group
        self.of_classes = of_classes

    @property
    def _axes(self) -> tuple[str, str]:
        """What is claimed, and what is kept of it."""
        if self.of_classes:
            return "probability of the class", "frequency of the class"
        return "confidence", "accuracy"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **options: Any
    ) -> ReliabilityDisplay:
        """From a fitted calibrator (before and after it), any fitted classifier with ``predict_proba``, or several by name.

        ``options`` are those of `from_predictions`.
        """
        y_prob, before = predicted(estimator, X, name)
        return cls.from_predictions(y, y_prob, before=before, name=name, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        before: Any = None,
        name: str | None = None,
        n_bins: int | None = None,
        strategy: str = "uniform",
        classes: Sequence[int] | None = None,
        smooth: bool = False,
        level: float = 0.95,
        sample_weight: Any = None,
        groups: Any = None,
        max_groups: int = 6,
        class_names: Sequence[str] | None = None,
    ) -> ReliabilityDisplay:
        """From labels (n,) and probabilities (n, m), and those before calibration if given.

        Parameters
        ----------
        y_true : (n,) array
        y_prob : (n, m) array, or mapping of names to such arrays
            Of several predictors each has its curve.
        before : (n, m) array, optional
        name : str, optional
            Title of the one curve there is.
        n_bins : int, optional
            Default: 15, and 5 in groups.
        strategy, level, sample_weight
            As in `reliability_curve`.
        classes : sequence of int, optional
            A curve for the probability of each of these classes, instead of that of the top class.
        smooth : bool
            Add a curve without bins.
        groups : (n,) array-like, or "predicted", optional
            One diagram for each of the ``max_groups`` worst groups, before behind after; see `monocal.evaluate`.
        max_groups : int
        class_names : sequence of str, optional
            Of predicted classes as groups.
        """
        if groups is not None:
            if isinstance(y_prob, Mapping) or classes is not None or smooth or strategy != "uniform":
                raise InputError("groups: expected one predictor, with neither classes, smooth nor quantiles")
            by_group = group_curves(
                y_true,
                y_prob,
                groups,
                before=before,
                n_bins=GROUP_BINS if n_bins is None else n_bins,
                level=level,
                sample_weight=sample_weight,
                class_names=class_names,
            )
            return cls(by_group.first(check_count(max_groups, "max_groups")), by_group=by_group)
        n_bins = 15 if n_bins is None else n_bins
        parts = by_name(y_prob, before, name)
        asked: list[tuple[str, Any, int | None]] = [(title, probs, None) for title, probs in parts.items()]
        if classes is not None:
            asked = [
                (f"class {c}" if len(parts) == 1 else f"{title}, class {c}", probs, c)
                for title, probs in parts.items()
                for c in classes
            ]
        same: dict[str, Any] = {"level": level, "sample_weight": sample_weight}
        curves = {
            title: reliability_curve(probs, y_true, n_bins=n_bins, strategy=strategy, label=c, **same)
            for title, probs, c in asked
        }
        lines = None
        if smooth:
            lines = {
                title: smooth_reliability_curve(probs, y_true, label=c, **same) for title, probs, c in asked
            }
        return cls(curves, lines, of_classes=classes is not None)

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
        if overlay is None:
            side_by_side = set(self.curves) <= {"before", "after"} or self.by_group is not None
            overlay = len(self.curves) > 1 and not side_by_side
        diagrams = [list(self.curves)] if overlay else [[name] for name in self.curves]
        columns = len(diagrams) if self.by_group is None else min(3, len(diagrams))
        lines = -(-len(diagrams) // columns)
        heights = ((3.2, 1.0) if histogram else (1.0,)) * lines
        self.figure_, axes = panels(ax, columns, heights, (4.2, (5.4 if histogram else 4.4) * lines))
        step = 2 if histogram else 1
        tops, bottoms = ([one for line in axes[first::step] for one in line] for first in (0, step - 1))
        for unused in (*tops[len(diagrams) :], *bottoms[len(diagrams) :]):
            unused.set_visible(False)
        tops, bottoms = tops[: len(diagrams)], bottoms[: len(diagrams)]
        colours = self._colours() if self.by_group is None else dict.fromkeys(self.curves, AFTER)
        for names, top, bottom in zip(diagrams, tops, bottoms, strict=True):
            top.plot([0, 1], [0, 1], color=LINE, linewidth=1, linestyle="--", zorder=1)
            for name in names:
                self._diagram(top, name, colours[name], alone=len(names) == 1, **kwargs)
            top.set(xlim=(0, 1), ylim=(0, 1), ylabel=self._axes[1])
            if len(names) == 1:
                top.set_title(self._title(names[0]), size=top.xaxis.label.get_size())
            tidy(top)
            if histogram:
                self._histogram(bottom, names, colours, top is tops[0])
            else:
                top.set_xlabel(self._axes[0])
        legend(ax, self.figure_, tops[0])
        self.ax_, self.histogram_ax_ = np.array(tops), np.array(bottoms if histogram else [])
        return self

    def _title(self, name: str) -> str:
        if self.by_group is not None:
            return self.by_group.title(name)
        return f"{name}: ECE {100 * self.curves[name].ece:.2f} %"

    def _diagram(self, ax: Any, name: str, colour: str, *, alone: bool, **kwargs: Any) -> None:
        curve = self.curves[name]
        if self.by_group is not None and name in self.by_group.before:
            _behind(ax, self.by_group.before[name])
        filled = curve.weight > 0
        x, y, out = curve.confidence[filled], curve.accuracy[filled], curve.outside[filled]
        if alone:  # boxes over one another could not be told apart
            ax.bar(
                curve.edges[:-1],
                curve.high - curve.low,
                np.diff(curve.edges),
                bottom=curve.low,
                align="edge",
                color=BAND,
                alpha=0.3,
                label=f"perfectly calibrated, {100 * curve.level:g} %",
            )
        label = None if alone else f"{name}: ECE {100 * curve.ece:.2f} %"
        style = {"color": colour, "linewidth": 1.2, "label": label, **kwargs}
        few = curve.weight[filled] < _FEW  # their accuracy is next to nothing: they stay off the line
        if self.smooth is None:
            ax.plot(x[~few], y[~few], **style)
        else:
            line = self.smooth[name]
            ax.fill_between(line.confidence, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(line.confidence, line.accuracy, **style)
        label = "outside the band" if alone else None
        points(ax, x[~few], y[~few], out[~few], colour, label, markersize=5)
        points(ax, x[few], y[few], out[few], colour, markersize=3, alpha=0.45)

    def _histogram(self, ax: Any, names: list[str], colours: dict[str, str], first: bool) -> None:
        """Share of the rows; where bins differ in width, by width, or every quantile would be as tall as the others."""
        wide = [np.diff(self.curves[name].edges) for name in names]
        even = all(np.allclose(width, width[0]) for width in wide)
        for name, width in zip(names, wide, strict=True):
            curve = self.curves[name]
            share = 100 * curve.weight / curve.weight.sum() / (1.0 if even else 100 * np.maximum(width, 1e-9))
            style = {
                "color": colours[name],
                "fill": len(names) == 1,
                "edgecolor": "white" if len(names) == 1 else None,
            }
            ax.stairs(share, curve.edges, **{k: v for k, v in style.items() if v is not None})
        label = "share of rows, %" if even else "rows, % per 0.01"
        ax.set(xlim=(0, 1), xlabel=self._axes[0], ylabel=label if first else "")
        if even:
            ax.set_ylim(0, None)
        else:  # narrow bins near 1 are a thousand times as dense
            ax.set_yscale("log")
        tidy(ax)


def _behind(ax: Any, curve: CalibrationCurve) -> None:
    """The curve before calibration, behind the one after it."""
    filled = curve.weight > 0
    style = {"color": BEFORE, "alpha": 0.5, "zorder": 1, "label": "before"}
    ax.plot(curve.confidence[filled], curve.accuracy[filled], ".-", **style)
