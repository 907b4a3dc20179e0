"""Risk against coverage: how often the answers are wrong when only the surest rows are answered.

The lower the curve, the better the confidence tells right answers from wrong ones. The dashed line is the best order there could
be with the same accuracy: all right answers first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics import ReviewRule, RiskCoverage, risk_coverage_curve
from ._axes import LINE, legend, panels, tidy
from ._predictors import CurvesDisplay, by_name, predicted


class RiskCoverageDisplay(CurvesDisplay[RiskCoverage]):
    """Risk-coverage curves over one another.

    Parameters
    ----------
    curves : dict of str to RiskCoverage
        By name; see `monocal.metrics.risk_coverage_curve`.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure

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
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, sample_weight: Any = None
    ) -> RiskCoverageDisplay:
        """From a fitted calibrator (before and after it), any fitted classifier with ``predict_proba``, or several by name.

        Labels are the numbers of the columns; ``name`` is the title of the one curve there is.
        """
        y_prob, before = predicted(estimator, X, name)
        return cls.from_predictions(y, y_prob, before=before, name=name, sample_weight=sample_weight)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        before: Any = None,
        name: str | None = None,
        sample_weight: Any = None,
    ) -> RiskCoverageDisplay:
        """From labels (n,) and probabilities (n, m), several of these by name, and those before calibration if given."""
        return cls(
            {
                title: risk_coverage_curve(probs, y_true, sample_weight=sample_weight)
                for title, probs in by_name(y_prob, before, name).items()
            }
        )

    @classmethod
    def from_rule(cls, rule: ReviewRule) -> RiskCoverageDisplay:
        """From a rule of `monocal.metrics.review_rule`, with what goes out and the error that was allowed."""
        display = cls({"answers": rule.curve})
        display.rule = rule
        return display

    def plot(self, ax: Any = None, **kwargs: Any) -> RiskCoverageDisplay:
        """Draw into a new figure or into ``ax``; keyword arguments go to the lines."""
        self.figure_, ((self.ax_,),) = panels(ax, 1, (1.0,), (5.2, 4.0))
        colours = self._colours()
        for name, curve in self.curves.items():
            style = {
                "color": colours[name],
                "linewidth": 1.4,
                "label": f"{name}: AURC {100 * curve.aurc:.2f} %",
                **kwargs,
            }
            # From the first row on the risk is that of the surest group.
            x, y = np.append(0.0, curve.coverage), np.append(curve.risk[0], curve.risk)
            self.ax_.plot(100 * x, 100 * y, **style)
        self._best()
        if self.rule is not None:
            self._mark(self.rule)
        self.ax_.set(
            xlim=(0, 100),
            ylim=(0, None),
            xlabel="rows answered, the surest first, %",
            ylabel="answers wrong, %",
        )
        tidy(self.ax_)
        legend(ax, self.figure_, self.ax_)
        return self

    def _mark(self, rule: ReviewRule) -> None:
        share = 100 * rule.automated
        self.ax_.axvline(share, color=LINE, linewidth=1, label=f"go out without review: {share:.1f} %")
        if rule.max_error is not None:
            allowed = 100 * rule.max_error
            self.ax_.axhline(
                allowed, color=LINE, linewidth=1, linestyle=":", label=f"allowed: {allowed:g} % wrong"
            )

    def _best(self) -> None:
        """What the best order of the most accurate predictor would show."""
        error = min(curve.risk[-1] for curve in self.curves.values())
        x = np.linspace(1 - error, 1, 200)
        y = np.divide(x - (1 - error), x, out=np.zeros_like(x), where=x > 0)
        self.ax_.plot(
            100 * x, 100 * y, color=LINE, linewidth=1, linestyle="--", label="the best order", zorder=1
        )
