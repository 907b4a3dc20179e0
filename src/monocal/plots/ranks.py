"""Pictures of a fitted rank map: weights and biases by rank, and their dependence on the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._axes import AFTER, LINE, SERIES, panels, tidy
from .parameters import EffectCurve, RankParameters, effect_curve, rank_parameters

_LOG_FROM = 20  # classes


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
    """

    figure_: Any
    ax_: Any

    def __init__(self, parameters: RankParameters):
        self.parameters = parameters

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None) -> RankParametersDisplay:
        """From a fitted calibrator, with rows to take means over where its parameters depend on the sample."""
        return cls(rank_parameters(estimator, X))

    def plot(self, ax: Any = None) -> RankParametersDisplay:
        """Draw into a new figure, or into the space of ``ax``."""
        self.figure_, [axes] = panels(ax, 2, (1.0,), (4.4, 3.4))
        p = self.parameters
        for panel, values, spread, name in (
            (axes[0], p.weight, p.weight_range, "weight"),
            (axes[1], p.bias, p.bias_range, "bias, from the lowest rank's"),
        ):
            if p.constant_from <= p.n_classes:
                panel.axvspan(p.constant_from - 0.5, p.n_classes + 0.5, color=LINE, alpha=0.08, linewidth=0)
            if spread is not None:
                panel.fill_between(p.rank, *spread, color=AFTER, alpha=0.2, step="mid", linewidth=0)
            panel.step(p.rank, values, where="mid", color=AFTER)
            panel.plot(p.rank[:10], values[:10], "o", color=AFTER, markersize=4)
            panel.set(xlabel="rank from the top", ylabel=name)
            if p.n_classes > _LOG_FROM:
                panel.set_xscale("log")
            panel.set_xlim(0.5 if p.n_classes <= _LOG_FROM else 0.9, p.n_classes + 0.5)
            tidy(panel)
        axes[0].set_title(f"constant from rank {p.constant_from} down", fontsize="medium")
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

    def plot(self, ax: Any = None) -> EffectDisplay:
        """Draw into a new figure, or into the space of ``ax``."""
        self.figure_, [axes] = panels(ax, 2, (1.0,), (4.4, 3.4))
        e = self.effect
        for panel, values, spread, name in (
            (axes[0], e.weight, e.weight_range, "weight"),
            (axes[1], e.bias, e.bias_range, "bias, from the lowest rank's"),
        ):
            for i, rank in enumerate(e.ranks):
                colour = SERIES[i % len(SERIES)]
                panel.fill_between(e.x, *spread[:, i], color=colour, alpha=0.15, linewidth=0)
                panel.plot(e.x, values[i], color=colour, label=f"rank {rank}")
            panel.set(xlabel=e.statistic, ylabel=name)
            tidy(panel)
        axes[0].legend(frameon=False, title="from the top")
        self.ax_ = np.array(axes)
        return self
