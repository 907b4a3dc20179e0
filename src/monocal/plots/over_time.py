"""A stream over time, window by window: over-confidence, ECE against what chance does, and the evidence of a change.

The evidence is the wealth of the bet against calibration (`monocal.monitoring.betting`): above the line it is an alarm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..monitoring import Monitor
from ._axes import AFTER, BAND, BEFORE, LINE, legend, panels, points, tidy


class MonitorDisplay:
    """What a `Monitor` has seen, window by window.

    Parameters
    ----------
    monitor : Monitor
        With at least one window.

    Attributes
    ----------
    ax_ : list of Axes
        Over-confidence, ECE and evidence, from top to bottom.
    figure_ : Figure

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(3000, 4, seed=1)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> monitor = mc.monitor([(data.values, data.labels)], calibrator=cal)
    >>> display = mc.MonitorDisplay(monitor).plot()
    >>> len(display.ax_)
    3
    """

    figure_: Any
    ax_: Any

    def __init__(self, monitor: Monitor):
        if not monitor.windows:
            raise InputError(
                "monitor: no window is full yet, so there is nothing to draw: call finish() first."
            )
        self.monitor = monitor

    def plot(self, ax: Any = None, **kwargs: Any) -> MonitorDisplay:
        """Draw into a new figure, or into the space of ``ax``. Keyword arguments go to the marks."""
        self.figure_, grid = panels(ax, 1, (1.0, 1.0, 1.0), (8.0, 7.5), aside=0.55)
        gap, error, evidence = self.ax_ = [row[0] for row in grid]
        every = self.monitor.windows
        labelled = [w for w in every if w.labelled]
        middle = _middle(labelled)
        self._gaps(gap, middle, labelled, kwargs)
        self._errors(error, middle, labelled, kwargs)
        self._evidence(evidence, every)
        for panel in self.ax_:
            tidy(panel)
            panel.set_xlim(0, every[-1].first_row + every[-1].rows)
            for alarm in self.monitor.alarms:
                panel.axvline(alarm.row, color=BEFORE, linewidth=1.2, linestyle="--")
        for panel in self.ax_[:-1]:
            panel.tick_params(labelbottom=False)
        evidence.set_xlabel("row of the stream" + ("; dashed: alarm" if self.monitor.alarms else ""))
        legend(ax, self.figure_, error)
        return self

    def _gaps(self, ax: Any, x: Any, windows: list[Any], style: dict[str, Any]) -> None:
        low, high, gap = (
            np.array([getattr(w, name) for w in windows], float)
            for name in ("low", "high", "over_confidence")
        )
        ax.axhline(0.0, color=LINE, linewidth=0.8)
        ax.vlines(x, 100 * low, 100 * high, color=AFTER, linewidth=1.5)
        points(ax, x, 100 * gap, (low > 0) | (high < 0), AFTER, markersize=5, **style)
        ax.set_ylabel("over-confidence,\npoints")

    def _errors(self, ax: Any, x: Any, windows: list[Any], style: dict[str, Any]) -> None:
        ece, floor, high = (
            100 * np.array([getattr(w, n) for w in windows], float) for n in ("ece", "floor", "floor_high")
        )
        if len(x):
            ax.fill_between(
                x, floor, high, color=BAND, alpha=0.3, linewidth=0, label="by chance: median to 95 %"
            )
        ax.plot(x, ece, color=AFTER, linewidth=1.2, label="ECE of a window")
        points(ax, x, ece, ece > high, AFTER, markersize=5, **style)
        ax.set_ylim(bottom=0)
        ax.set_ylabel("ECE, %")

    def _evidence(self, ax: Any, windows: list[Any]) -> None:
        x = [w.first_row + w.rows for w in windows]  # it is of all rows up to the end of a window
        limit = -np.log10(self.monitor.alpha / 2)
        value = np.array([w.evidence for w in windows])
        ax.plot(x, value, color=AFTER, linewidth=1.5)
        ax.axhline(limit, color=BEFORE, linewidth=1.0)
        ax.text(
            0.01,
            limit,
            "alarm",
            color=BEFORE,
            va="bottom",
            fontsize="small",
            transform=ax.get_yaxis_transform(),
        )
        ax.set_ylim(min(value.min(), 0.0) - 0.2, max(limit * 1.4, min(value.max(), 4 * limit) * 1.1))
        ax.set_ylabel("evidence against\ncalibration, log10")


def _middle(windows: list[Any]) -> np.ndarray:
    return np.array([w.first_row + w.rows / 2 for w in windows])
