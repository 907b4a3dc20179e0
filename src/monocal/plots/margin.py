"""Calibration error against the margin: where the top class is barely ahead, and where it is far ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._axes import LINE, legend, panels, points, tidy
from ._predictors import CurvesDisplay, by_name, is_calibrator, predicted
from .curves import CalibrationCurve, margin_curve, margins


class MarginDisplay(CurvesDisplay[CalibrationCurve]):
    """Calibration error against the margin: confidence minus accuracy in bins with as many rows each.

    Parameters
    ----------
    curves : dict of str to CalibrationCurve
        By name, over the same bins; see `margin_curve`.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure

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
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        name: str | None = None,
        n_bins: int = 15,
        level: float = 0.95,
        sample_weight: Any = None,
    ) -> MarginDisplay:
        """From a fitted calibrator (before and after it), any fitted classifier with ``predict_proba``, or several by name."""
        y_prob, before = predicted(estimator, X, name)
        one = next(iter(estimator.values())) if isinstance(estimator, Mapping) else estimator
        return cls.from_predictions(
            y,
            y_prob,
            before=before,
            name=name,
            margin=margins(X, input=one.input) if is_calibrator(one) else None,
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
        name: str | None = None,
        margin: Any = None,
        n_bins: int = 15,
        level: float = 0.95,
        sample_weight: Any = None,
    ) -> MarginDisplay:
        """From labels and probabilities, or several by name; rows are binned by their margin before calibration."""
        parts = by_name(y_prob, before, name)
        if margin is None:
            margin = margins(next(iter(parts.values())))
        curves = {
            name: margin_curve(probs, y_true, margin, n_bins=n_bins, level=level, sample_weight=sample_weight)
            for name, probs in parts.items()
        }
        return cls(curves)

    def plot(self, ax: Any = None, **kwargs: Any) -> MarginDisplay:
        """Draw into a new figure or into ``ax``; keyword arguments go to the lines."""
        self.figure_, [[self.ax_]] = panels(ax, 1, (1.0,), (6.4, 3.8))
        first = next(iter(self.curves.values()))
        slots = np.arange(len(first.weight))
        for name, colour in self._colours().items():
            curve = self.curves[name]
            room = np.stack([curve.confidence - curve.high, curve.confidence - curve.low])
            self.ax_.fill_between(slots, *(100 * room), color=colour, alpha=0.15, linewidth=0)
            self.ax_.plot(
                slots, 100 * curve.gap, **{"color": colour, "linewidth": 1.2, "label": name, **kwargs}
            )
            points(self.ax_, slots, 100 * curve.gap, curve.outside, colour, markersize=5)
        self.ax_.axhline(0, color=LINE, linewidth=1)
        self.ax_.set(xlabel="margin, logits (equal-mass bins)", ylabel="over-confidence, points")
        wide = self.ax_.get_window_extent().width / self.figure_.dpi  # inches: a label every half of one
        step = max(1, -(-len(slots) // max(2, int(2 * wide))))
        self.ax_.set_xticks(
            (np.arange(len(first.edges)) - 0.5)[::step], [f"{e:.2g}" for e in first.edges[::step]]
        )
        legend(ax, self.figure_, self.ax_)
        tidy(self.ax_)
        return self
