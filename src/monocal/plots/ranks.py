"""Pictures of a fitted rank map: weights and biases by rank, and their dependence on the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._axes import AFTER, LINE, SERIES, legend, panels, tidy
from .parameters import EffectCurve, RankParameters, effect_curve, rank_parameters

_LOG_FROM = 20  # classes
# Statistics as labels of an axis, with their units.
_IN_WORDS = {
    "margin": "margin, logits",
    "mean_gap": "gap to the mean, logits",
    "spread": "spread, logits",
    "entropy": "entropy, nats",
    "log_odds": "log-odds of the top class",
}


class RankParametersDisplay:
    """Weights and biases by rank, the top rank on the left.

    Parameters
    ----------
    parameters : RankParameters

    Attributes
    ----------
    ax_ : ndarray of two Axes
        Weights and biases.
    figure_ : Figure

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> display = mc.RankParametersDisplay.from_estimator(cal, data.values)
    >>> display.plot().ax_[0].get_xlabel()
    'rank from the top'
    """

    figure_: Any
    ax_: Any

    def __init__(self, parameters: RankParameters):
        self.parameters = parameters

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None) -> RankParametersDisplay:
        """From a fitted calibrator, with rows to take means over where its parameters depend on the sample."""
        return cls(rank_parameters(estimator, X))

    def plot(self, ax: Any = None, **kwargs: Any) -> RankParametersDisplay:
        """Draw into a new figure, or into the space of ``ax``; keyword arguments go to the lines."""
        self.figure_, [axes] = panels(ax, 2, (1.0,), (4.4, 3.6))
        p = self.parameters
        for panel, values, spread, name in (
            (axes[0], p.weight, p.weight_range, "weight, times the logit"),
            (axes[1], p.bias, p.bias_range, "bias, logits above the lowest rank"),
        ):
            if p.constant_from <= p.n_classes:
                panel.axvspan(
                    p.constant_from - 0.5,
                    p.n_classes + 0.5,
                    color=LINE,
                    alpha=0.08,
                    linewidth=0,
                    label=f"the same from rank {p.constant_from} down",
                )
            if spread is not None:
                middle = "middle 80 % of the rows"
                panel.fill_between(
                    p.rank, *spread, color=AFTER, alpha=0.2, step="mid", linewidth=0, label=middle
                )
            panel.step(p.rank, values, where="mid", **{"color": AFTER, **kwargs})
            panel.plot(p.rank[:10], values[:10], "s", color=AFTER, markersize=3, clip_on=False)
            panel.set(xlabel="rank from the top", ylabel=name)
            if p.n_classes > _LOG_FROM:
                panel.set_xscale("log")
            panel.set_xlim(0.5 if p.n_classes <= _LOG_FROM else 0.9, p.n_classes + 0.5)
            tidy(panel)
        legend(ax, self.figure_, axes[0])
        self.ax_ = np.array(axes)
        return self


class EffectDisplay:
    """Weights and biases of the top ranks against a statistic of the sample.

    Parameters
    ----------
    effect : EffectCurve

    Attributes
    ----------
    ax_ : ndarray of two Axes
    figure_ : Figure

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> display = mc.EffectDisplay.from_estimator(cal, data.values, "entropy")
    >>> display.plot().ax_[0].get_xlabel()
    'entropy, nats'
    """

    figure_: Any
    ax_: Any

    def __init__(self, effect: EffectCurve):
        self.effect = effect

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        statistic: str | Callable[[Any], Any] = "margin",
        *,
        ranks: Sequence[int] = (1, 2, 3),
        n_bins: int = 20,
    ) -> EffectDisplay:
        """From a fitted calibrator and rows to look at; see `effect_curve`."""
        return cls(effect_curve(estimator, X, statistic, ranks=ranks, n_bins=n_bins))

    def plot(self, ax: Any = None, **kwargs: Any) -> EffectDisplay:
        """Draw into a new figure, or into the space of ``ax``; ranks that coincide share a line and its name.

        Keyword arguments go to the lines.
        """
        self.figure_, [axes] = panels(ax, 2, (1.0,), (4.4, 3.6))
        e = self.effect
        for panel, values, spread, name in (
            (axes[0], e.weight, e.weight_range, "weight, times the logit"),
            (axes[1], e.bias, e.bias_range, "bias, logits above the lowest rank"),
        ):
            for i, group in enumerate(alike(values)):
                colour = SERIES[i % len(SERIES)]
                ranks = ", ".join(str(e.ranks[j]) for j in group)
                label = f"rank{'s' if len(group) > 1 else ''} {ranks} from the top"
                panel.fill_between(e.x, *spread[:, group[0]], color=colour, alpha=0.15, linewidth=0)
                panel.plot(e.x, values[group[0]], **{"color": colour, "label": label, **kwargs})
            panel.set(xlabel=_IN_WORDS.get(e.statistic, e.statistic.replace("_", " ")), ylabel=name)
            tidy(panel)
        legend(ax, self.figure_, axes[1])
        self.ax_ = np.array(axes)
        return self


def alike(values: np.ndarray) -> list[list[int]]:
    """Rows of (R, B) that are equal, as lists of their places."""
    groups: list[list[int]] = []
    for i, row in enumerate(values):
        same = next((group for group in groups if np.array_equal(values[group[0]], row)), None)
        groups.append([i]) if same is None else same.append(i)
    return groups
