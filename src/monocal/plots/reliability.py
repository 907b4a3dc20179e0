"""Reliability diagrams, before and after: accuracy against confidence, the band of perfect calibration, the histogram.

A point in its grey box is what a perfectly calibrated model would show; below the diagonal the model claims too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..metrics.within import GROUP_BINS
from ..validation import check_count
from ._axes import AFTER, BAND, BEFORE, LINE, panels, tidy
from .curves import CalibrationCurve, margin_curve, margins, reliability_curve
from .groups import GroupCurves, group_curves


class _CurvesDisplay:
    """Named calibration curves, drawn later; see scikit-learn's displays."""

    def __init__(self, curves: dict[str, CalibrationCurve]):
        if not curves:
            raise InputError("curves: expected at least one, by name")
        self.curves = curves

    figure_: Any
    ax_: Any


class ReliabilityDisplay(_CurvesDisplay):
    """Reliability diagrams side by side, each with its confidence histogram.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve
        By title; see `reliability_curve`.
    by_group : GroupCurves, optional
        Where rows are in groups: ``curves`` are then those of the groups, the worst first.

    Attributes
    ----------
    ax_ : ndarray of Axes
        One diagram a curve.
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
    """

    def __init__(self, curves: dict[str, CalibrationCurve], by_group: GroupCurves | None = None):
        super().__init__(curves)
        self.by_group = by_group

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int | None = None,
        level: float = 0.95,
        sample_weight: Any = None,
        groups: Any = None,
        max_groups: int = 6,
        class_names: Sequence[str] | None = None,
    ) -> ReliabilityDisplay:
        """From a fitted calibrator (before and after it) or any fitted classifier with ``predict_proba``."""
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            before=_before_probabilities(estimator, X),
            n_bins=n_bins,
            level=level,
            sample_weight=sample_weight,
            groups=groups,
            max_groups=max_groups,
            class_names=class_names,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        before: Any = None,
        n_bins: int | None = None,
        level: float = 0.95,
        sample_weight: Any = None,
        groups: Any = None,
        max_groups: int = 6,
        class_names: Sequence[str] | None = None,
    ) -> ReliabilityDisplay:
        """From labels (n,) and probabilities (n, m), and those before calibration if given.

        With ``groups`` (one value per row, or ``"predicted"``; see `monocal.evaluate`) one diagram for each of the ``max_groups``
        worst groups, with 5 bins unless ``n_bins`` says otherwise (15 without groups).
        """
        if groups is not None:
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
            return cls(by_group.first(check_count(max_groups, "max_groups")), by_group)
        n_bins = 15 if n_bins is None else n_bins
        parts = {"model": y_prob} if before is None else {"before": before, "after": y_prob}
        curves = {
            name: reliability_curve(probs, y_true, n_bins=n_bins, level=level, sample_weight=sample_weight)
            for name, probs in parts.items()
        }
        return cls(curves)

    def plot(self, ax: Any = None) -> ReliabilityDisplay:
        """Draw into a new figure, or into the space of ``ax``."""
        columns = len(self.curves) if self.by_group is None else min(3, len(self.curves))
        lines = -(-len(self.curves) // columns)
        self.figure_, axes = panels(ax, columns, (3.2, 1.0) * lines, (4.2, 5.2 * lines))
        tops, bottoms = ([a for line in axes[start::2] for a in line] for start in (0, 1))
        for unused in (*tops[len(self.curves) :], *bottoms[len(self.curves) :]):
            unused.set_visible(False)
        tops, bottoms = tops[: len(self.curves)], bottoms[: len(self.curves)]
        for (name, curve), top, bottom in zip(self.curves.items(), tops, bottoms, strict=True):
            colour = BEFORE if name == "before" and self.by_group is None else AFTER
            _diagram(top, curve, colour)
            top.set_title(
                f"{name}: ECE {curve.ece:.2%}" if self.by_group is None else self.by_group.title(name)
            )
            if self.by_group is not None and name in self.by_group.before:
                _line(top, self.by_group.before[name], BEFORE, "before")
            if self.by_group is not None:  # one legend for all
                top.get_legend().remove()
                if top is tops[0]:
                    top.legend(loc="lower right", frameon=False, fontsize="small")
            share = curve.weight / curve.weight.sum()
            bottom.bar(
                curve.edges[:-1], share, np.diff(curve.edges), align="edge", color=colour, edgecolor="white"
            )
            bottom.set(xlim=(0, 1), ylim=(0, None), xlabel="confidence", ylabel="share of rows")
            tidy(bottom)
        self.ax_, self.histogram_ax_ = np.array(tops), np.array(bottoms)
        return self


def _diagram(ax: Any, curve: CalibrationCurve, colour: str) -> None:
    ax.bar(
        curve.edges[:-1],
        curve.high - curve.low,
        np.diff(curve.edges),
        bottom=curve.low,
        align="edge",
        color=BAND,
        alpha=0.3,
        label=f"perfectly calibrated, {curve.level:.0%}",
    )
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=1, linestyle="--")
    filled = curve.weight > 0
    ax.plot(curve.confidence[filled], curve.accuracy[filled], color=colour, linewidth=1.2, alpha=0.6)
    for outside, face in ((False, "white"), (True, colour)):
        some = filled & (curve.outside == outside)
        ax.plot(
            curve.confidence[some],
            curve.accuracy[some],
            "o",
            color=colour,
            markerfacecolor=face,
            label="outside the band" if outside else "inside the band",
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    tidy(ax)


def _line(ax: Any, curve: CalibrationCurve, colour: str, name: str) -> None:
    """A second curve in the same diagram, behind the first."""
    filled = curve.weight > 0
    ax.plot(
        curve.confidence[filled], curve.accuracy[filled], ".-", color=colour, alpha=0.5, zorder=1, label=name
    )


class MarginDisplay(_CurvesDisplay):
    """Calibration error against the margin: confidence minus accuracy in bins with as many rows each.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve
        By name, over the same bins; see `margin_curve`.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    """

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int = 15,
        level: float = 0.95,
        sample_weight: Any = None,
    ) -> MarginDisplay:
        """From a fitted calibrator (before and after it) or any fitted classifier with ``predict_proba``."""
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            before=_before_probabilities(estimator, X),
            margin=margins(X, input=estimator.input) if _is_calibrator(estimator) else None,
            n_bins=n_bins,
            level=level,
            sample_weight=sample_weight,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        before: Any = None,
        margin: Any = None,
        n_bins: int = 15,
        level: float = 0.95,
        sample_weight: Any = None,
    ) -> MarginDisplay:
        """From labels and probabilities; rows are binned by their margin before calibration."""
        if margin is None:
            margin = margins(y_prob if before is None else before)
        parts = {"model": y_prob} if before is None else {"before": before, "after": y_prob}
        curves = {
            name: margin_curve(probs, y_true, margin, n_bins=n_bins, level=level, sample_weight=sample_weight)
            for name, probs in parts.items()
        }
        return cls(curves)

    def plot(self, ax: Any = None) -> MarginDisplay:
        """Draw into a new figure or into ``ax``."""
        self.figure_, [[self.ax_]] = panels(ax, 1, (1.0,), (6.4, 3.8))
        first = next(iter(self.curves.values()))
        slots = np.arange(len(first.weight))
        for name, curve in self.curves.items():
            colour = BEFORE if name == "before" else AFTER
            room = np.stack([curve.confidence - curve.high, curve.confidence - curve.low])
            self.ax_.fill_between(slots, *(100 * room), color=colour, alpha=0.15, linewidth=0)
            self.ax_.plot(slots, 100 * curve.gap, "o-", color=colour, label=name)
        self.ax_.axhline(0, color=LINE, linewidth=1)
        self.ax_.set(xlabel="margin (bins with as many rows each)", ylabel="over-confidence, points")
        step = max(1, len(slots) // 6)
        self.ax_.set_xticks(
            (np.arange(len(first.edges)) - 0.5)[::step], [f"{e:.2g}" for e in first.edges[::step]]
        )
        self.ax_.legend(frameon=False)
        tidy(self.ax_)
        return self


def _is_calibrator(estimator: Any) -> bool:
    """Whether it maps scores to probabilities, so that there is a before to show."""
    return hasattr(estimator, "preserves_order") and hasattr(estimator, "input")


def _before_probabilities(estimator: Any, X: Any) -> Any:
    """What a calibrator was given, as probabilities; None for a classifier."""
    if not _is_calibrator(estimator):
        return None
    if estimator.input == "probabilities":
        return X
    from scipy.special import softmax

    from ..arrays import to_numpy
    from ..validation import check_logits

    return softmax(to_numpy(check_logits(X).values).astype(np.float64), axis=1)
