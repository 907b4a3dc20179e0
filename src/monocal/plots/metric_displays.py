"""One number for each predictor, or for each moment: metrics side by side, risk against coverage, a stream over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..metrics import METRICS, Evaluation, ReviewRule, RiskCoverage, evaluate, risk_coverage_curve
from ..monitoring import Monitor
from .display import (
    AFTER,
    BAND,
    BEFORE,
    LINE,
    CurvesDisplay,
    Display,
    legend,
    panels,
    points,
    tidy,
    tip,
)

_NAMES = {"nll": "NLL, nats per row", "brier": "Brier score", "ece": "ECE", "mce": "largest gap of a bin"}


class ComparisonDisplay(CurvesDisplay[Evaluation]):
    """Metrics of several predictors on the same rows: a dot for the value, a line for its interval.

    Parameters
    ----------
    curves : dict of str to Evaluation
        By the name of the predictor, all with the same metrics.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.plots import ComparisonDisplay
    >>> data = mc.data.synthetic(1000, 5)
    >>> ts, mcct = (c.fit(data.values, data.labels) for c in (mc.TemperatureScaling(), mc.MCCT()))
    >>> display = ComparisonDisplay.from_estimator({"TS": ts, "MCCT": mcct}, data.values, data.labels, n_boot=20)
    >>> display.order("nll")[0] in ("TS", "MCCT")
    True
    """

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """By name."""
        return self.curves

    @classmethod
    def _curves(
        cls,
        y_true: Any,
        parts: dict[str, Any],
        *,
        metrics: Any = ("nll", "ece"),
        n_boot: int = 200,
        **options: Any,
    ) -> dict[str, Evaluation]:
        """Options are those of `monocal.evaluate`."""
        options |= {"metrics": list(metrics), "n_boot": n_boot}
        return {title: evaluate(p, y_true, **options) for title, p in parts.items()}

    def order(self, metric: str) -> list[str]:
        """Names, the best by this metric first."""
        sign = -1 if METRICS[metric].higher_is_better else 1
        return sorted(self.evaluations, key=lambda name: sign * self.evaluations[name][metric].value)

    def plot(self, ax: Any = None, **kwargs: Any) -> ComparisonDisplay:
        """Draw into a new figure, or into the space of ``ax``; the best by the first metric on top.

        Keyword arguments go to the marks.
        """
        metrics = list(next(iter(self.evaluations.values())).estimates)
        names = self.order(metrics[0])[::-1]
        aside = 0.07 * max(map(len, names))  # inches of the longest name
        self.figure_, [axes] = panels(ax, len(metrics), (1.0,), (4.0, 1.2 + 0.4 * len(names)), aside)
        for i, (panel, metric) in enumerate(zip(axes, metrics, strict=True)):
            for place, name in enumerate(names):
                e = self.evaluations[name][metric]
                if e.low is not None and e.high is not None and np.isfinite(e.high):
                    panel.plot([e.low, e.high], [place, place], color=AFTER, linewidth=3, alpha=0.35)
                if np.isfinite(e.value):
                    style = {"marker": "D", "color": AFTER, "markersize": 5, **kwargs}
                    panel.plot(e.value, place, gid=tip([f"{name}: {e.value:.4g}"]), **style)
            better = "higher" if METRICS[metric].higher_is_better else "lower"
            label = _NAMES.get(metric, metric.replace("_", " ").replace("ece", "ECE").replace("kde", "KDE"))
            panel.set(xlabel=f"{label} ({better} is better)", ylim=(-0.6, len(names) - 0.4))
            panel.set_yticks(range(len(names)), names if i == 0 else [""] * len(names))
            tidy(panel)
        self.ax_ = np.array(axes)
        return self


class RiskCoverageDisplay(CurvesDisplay[RiskCoverage]):
    """Risk against coverage: how often answers are wrong when only the rows of highest confidence are answered.

    The lower the curve, the better the confidence tells right answers from wrong ones. The dashed line is the best order there
    could be with the same accuracy: all right answers first.

    Parameters
    ----------
    curves : dict of str to RiskCoverage
        By name; see `monocal.metrics.risk_coverage_curve`.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 10)
    >>> cal = mc.ConditionalMCCT().fit(data.values, data.labels)
    >>> display = mc.RiskCoverageDisplay.from_estimator(cal, data.values, data.labels)
    >>> list(display.curves)
    ['before', 'after']
    """

    rule: ReviewRule | None = None

    @classmethod
    def _curves(cls, y_true: Any, parts: dict[str, Any], **options: Any) -> dict[str, RiskCoverage]:
        return {title: risk_coverage_curve(p, y_true, **options) for title, p in parts.items()}

    @classmethod
    def from_rule(cls, rule: ReviewRule) -> RiskCoverageDisplay:
        """From a rule of `monocal.metrics.review_rule`, with what goes out and the error that was allowed."""
        display = cls({"answers": rule.curve})
        display.rule = rule
        return display

    def plot(self, ax: Any = None, **kwargs: Any) -> RiskCoverageDisplay:
        """Draw into a new figure or into ``ax``; keyword arguments go to the lines."""
        self.figure_, ((self.ax_,),) = panels(ax, 1, (1.0,), (5.2, 4.0))
        colours = self.colours()
        for name, curve in self.curves.items():
            style = {
                "color": colours[name],
                "linewidth": 1.4,
                "label": f"{name}: AURC {100 * curve.aurc:.2f} %",
            }
            x, y = np.append(0.0, curve.coverage), np.append(curve.risk[0], curve.risk)
            self.ax_.plot(100 * x, 100 * y, **style | kwargs)
        error = min(curve.risk[-1] for curve in self.curves.values())
        x = np.linspace(1 - error, 1, 200)  # the best order of the most accurate predictor
        y = np.divide(x - (1 - error), x, out=np.zeros_like(x), where=x > 0)
        style = {"color": LINE, "linewidth": 1, "linestyle": "--", "zorder": 1}
        self.ax_.plot(100 * x, 100 * y, label="the best order", **style)
        if self.rule is not None:
            share, allowed = 100 * self.rule.automated, self.rule.max_error
            self.ax_.axvline(share, color=LINE, linewidth=1, label=f"go out without review: {share:.1f} %")
            if allowed is not None:
                label = f"allowed: {100 * allowed:g} % wrong"
                self.ax_.axhline(100 * allowed, color=LINE, linewidth=1, linestyle=":", label=label)
        self.ax_.set(xlabel="rows answered, the highest confidence first, %", ylabel="answers wrong, %")
        self.ax_.set(xlim=(0, 100), ylim=(0, None))
        tidy(self.ax_)
        legend(ax, self.figure_, self.ax_)
        return self


class MonitorDisplay(Display):
    """A `Monitor` window by window: over-confidence, ECE against what chance does, and the evidence of a change.

    The evidence is the wealth of the bet against calibration (`monocal.monitoring`): above the line it is an alarm.

    Parameters
    ----------
    monitor : Monitor
        With at least one window.

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
        windows, alarms = self.monitor.windows, self.monitor.alarms
        labelled = [w for w in windows if w.labelled]
        x = np.array([w.first_row + w.rows / 2 for w in labelled])
        names = ("over_confidence", "low", "high", "ece", "floor", "floor_high")
        values, low, high, ece, floor, most = (
            100 * np.array([getattr(w, name) for w in labelled], float) for name in names
        )
        gap.axhline(0.0, color=LINE, linewidth=0.8)
        gap.vlines(x, low, high, color=AFTER, linewidth=1.5)
        points(gap, x, values, (low > 0) | (high < 0), AFTER, markersize=5, **kwargs)
        gap.set_ylabel("over-confidence,\npoints")
        if len(x):
            style = {"color": BAND, "alpha": 0.3, "linewidth": 0}
            error.fill_between(x, floor, most, label="by chance: median to 95 %", **style)
        error.plot(x, ece, color=AFTER, linewidth=1.2, label="ECE of a window")
        points(error, x, ece, ece > most, AFTER, markersize=5, **kwargs)
        error.set_ylim(bottom=0)
        error.set_ylabel("ECE, %")
        self._evidence(evidence)
        for panel in self.ax_:
            tidy(panel)
            panel.set_xlim(0, windows[-1].first_row + windows[-1].rows)
            panel.tick_params(labelbottom=panel is evidence)
            for alarm in alarms:
                panel.axvline(alarm.row, color=BEFORE, linewidth=1.2, linestyle="--")
        evidence.set_xlabel("row of the stream" + ("; dashed: alarm" if alarms else ""))
        legend(ax, self.figure_, error)
        return self

    def _evidence(self, ax: Any) -> None:
        x = [
            w.first_row + w.rows for w in self.monitor.windows
        ]  # it is of all rows up to the end of a window
        value = np.array([w.evidence for w in self.monitor.windows])
        limit = -np.log10(self.monitor.alpha / 2)
        ax.plot(x, value, color=AFTER, linewidth=1.5)
        ax.axhline(limit, color=BEFORE, linewidth=1.0)
        style = {"color": BEFORE, "va": "bottom", "fontsize": "small"}
        ax.text(0.01, limit, "alarm", transform=ax.get_yaxis_transform(), **style)
        ax.set_ylim(min(value.min(), 0.0) - 0.2, max(limit * 1.4, min(value.max(), 4 * limit) * 1.1))
        ax.set_ylabel("evidence against\ncalibration, log10")
