"""What a fitted rank map does, as numbers and pictures: weight and bias by rank, and how both move with a statistic of the row.

    f_(i) = w_i u_(i) + b_i,       w, b constant from some rank down

Ranks are counted from the top here (1 is the largest logit), as a reader counts them. Biases are measured from the lowest
rank's. Where weights depend on the sample (the conditional family), means over the given rows stand for them, with the
range that the middle 80 % of the rows have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..core.ranked import rank_rows
from ..core.statistics import STATISTICS, compute, statistic_name
from ..errors import InputError
from ..metrics.outcomes import Floats, bin_index
from .curves import finite, quantile_edges
from .display import AFTER, LINE, SERIES, Display, legend, panels, tidy

_SPREAD = (0.1, 0.9)
_MOST_ROWS = 20_000  # enough for means and deciles of a picture
_LOG_FROM = 20  # classes
# Statistics as labels of an axis, with their units.
_IN_WORDS = {
    "margin": "margin, logits",
    "mean_gap": "gap to the mean, logits",
    "spread": "spread, logits",
    "entropy": "entropy, nats",
    "log_odds": "log-odds of the top class",
}


@dataclass(frozen=True)
class RankParameters:
    """Weight and bias by rank; arrays of shape (r,), the top rank first.

    Attributes
    ----------
    rank : ndarray of int
        1 is the largest logit.
    weight, bias : ndarray
        Of a sample; means over samples where they depend on it.
    weight_range, bias_range : ndarray of shape (2, r) or None
        First and last decile over samples; None where all samples share them.
    constant_from : int
        This rank and all below it share one weight and bias: 1 for temperature scaling.
    n_classes : int

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> found = mc.plots.rank_parameters(mc.TemperatureScaling().fit(data.values, data.labels))
    >>> found.constant_from, found.varies
    (1, False)
    """

    rank: np.ndarray
    weight: Floats
    bias: Floats
    weight_range: Floats | None
    bias_range: Floats | None
    constant_from: int
    n_classes: int

    @property
    def varies(self) -> bool:
        """Whether weights or biases depend on the sample by more than a picture can show: a hundredth."""
        if self.weight_range is None or self.bias_range is None:
            return False
        weight, bias = np.ptp(self.weight_range, axis=0), np.ptp(self.bias_range, axis=0)
        return bool((weight > 0.01 * np.abs(self.weight)).any() or (bias > 0.01).any())


@dataclass(frozen=True)
class EffectCurve:
    """Weight and bias of the top ranks against a statistic of the sample, in bins of equal mass.

    Attributes
    ----------
    statistic : str
    ranks : tuple of int
        Counted from the top.
    x : ndarray of shape (B,)
        Median of the statistic in each bin.
    weight, bias : ndarray of shape (R, B)
        Means over the rows of the bin.
    weight_range, bias_range : ndarray of shape (2, R, B)
        First and last decile over the rows of the bin: wide where other statistics matter too.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> curve = mc.plots.effect_curve(cal, data.values, ranks=(1,), n_bins=4)
    >>> curve.statistic, curve.ranks, curve.x.shape
    ('margin', (1,), (4,))
    """

    statistic: str
    ranks: tuple[int, ...]
    x: Floats
    weight: Floats
    bias: Floats
    weight_range: Floats
    bias_range: Floats


def rank_parameters(calibrator: Any, X: Any = None) -> RankParameters:
    """Weights and biases by rank of a fitted calibrator.

    Parameters
    ----------
    calibrator : fitted calibrator with a ``rank_map_``
        `TemperatureScaling`, `MCCT`, `MCCTInverse`, `ConditionalMCCT`.
    X : (n, m) array, optional
        Rows to take means over, where the parameters depend on the sample.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> ts = mc.TemperatureScaling().fit(data.values, data.labels)
    >>> mc.plots.rank_parameters(ts).constant_from
    1
    """
    rank_map = _rank_map(calibrator)
    n_classes = int(calibrator.n_features_in_)
    n_ranks = n_classes if rank_map.top_k is None else min(rank_map.top_k, n_classes)
    starts = np.asarray(rank_map.starts)
    piece = np.searchsorted(starts, np.arange(n_ranks), side="right")[::-1] - 1
    # A map without factors is the same for every row.
    weights, biases, _ = _by_row(calibrator, None if rank_map.factors is None else X)
    values = weights, biases
    means = [v.mean(axis=0)[piece] for v in values]
    ranges: list[Any] = [None, None]
    if rank_map.factors is not None:
        ranges = [np.quantile(v, _SPREAD, axis=0)[:, piece] for v in values]
    constant_from = 1 if len(starts) == 1 else n_ranks - int(starts[1]) + 1
    rank = np.arange(1, n_ranks + 1)
    return RankParameters(rank, means[0], means[1], ranges[0], ranges[1], constant_from, n_classes)


def effect_curve(
    calibrator: Any,
    X: Any,
    statistic: str | Callable[[Any], Any] = "margin",
    *,
    ranks: Sequence[int] = (1, 2, 3),
    n_bins: int = 20,
) -> EffectCurve:
    """How the correction of the top ranks depends on a statistic of the sample.

    Parameters
    ----------
    calibrator, X
        As in `rank_parameters`.
    statistic : str or callable
        ``"margin"``, ``"mean_gap"``, ``"entropy"``, ``"log_odds"``, or a function of the sorted, anchored logits.
    ranks : sequence of int
        Counted from the top.
    n_bins : int

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> curve = mc.plots.effect_curve(cal, data.values, "margin", ranks=(1, 2), n_bins=5)
    >>> curve.weight.shape
    (2, 5)
    """
    if not callable(statistic) and statistic not in STATISTICS:
        names = ", ".join(STATISTICS)
        raise InputError(
            f"statistic: expected one of {names}, or a function of the sorted logits, got {statistic!r}"
        )
    rank_map = _rank_map(calibrator)
    weights, biases, rows = _by_row(calibrator, X)
    n_ranks = rows.depth.shape[1]
    kept = tuple(int(rank) for rank in ranks if 1 <= rank <= n_ranks)
    if not kept:
        raise InputError(
            f"ranks: expected some from 1 to {n_ranks}, counted from the top, got {tuple(ranks)}"
        )
    piece = np.searchsorted(rank_map.starts, [n_ranks - rank for rank in kept], side="right") - 1
    values = finite(np.asarray(compute([statistic], rows)[0], dtype=np.float64))
    index = bin_index(values, quantile_edges(values, n_bins))
    bins = [index == k for k in np.unique(index)]
    of_ranks = [np.broadcast_to(a, (len(values), a.shape[1]))[:, piece] for a in (weights, biases)]
    return EffectCurve(
        statistic_name(statistic),
        kept,
        np.array([np.median(values[rows]) for rows in bins]),
        *(np.stack([a[rows].mean(axis=0) for rows in bins], axis=-1) for a in of_ranks),
        *(np.stack([np.quantile(a[rows], _SPREAD, axis=0) for rows in bins], axis=-1) for a in of_ranks),
    )


def _rank_map(calibrator: Any) -> Any:
    rank_map = getattr(calibrator, "rank_map_", None)
    if rank_map is None:
        raise InputError(
            f"calibrator: expected a fitted one that works by rank (MCCT, ConditionalMCCT, TemperatureScaling), got "
            f"{type(calibrator).__name__}, which is not fitted or has no weights by rank"
        )
    return rank_map


def _by_row(calibrator: Any, X: Any) -> tuple[Floats, Floats, Any]:
    """Weight and bias of each piece of ranks for each row, (n, D) or (1, D), and the ranked rows."""
    rank_map = _rank_map(calibrator)
    rows, psi = None, np.ones((1, len(rank_map.scale_steps)))
    if X is not None:
        values = to_numpy(calibrator.reader.values(X).values)
        values = values[:: -(-len(values) // _MOST_ROWS)]
        rows = rank_rows(calibrator.reader.logits(values), rank_map.top_k, np.float64)
        psi = psi if rank_map.factors is None else np.asarray(rank_map.factors(rows))
    elif rank_map.factors is not None:
        raise InputError(
            "X: the weights of this calibrator depend on the sample; give rows to take means over"
        )
    weights, biases = (
        np.cumsum(psi @ steps, axis=1) for steps in (rank_map.scale_steps, rank_map.bias_steps)
    )
    return weights, biases - biases[:, :1], rows


class _WeightsAndBiases(Display):
    """Two panels: weights on the left, biases on the right, or weights above biases."""

    def _panels(self, ax: Any, xlabel: str, stacked: bool = False) -> list[Any]:
        shape = (1, (1.0, 1.0), (4.4, 5.6)) if stacked else (2, (1.0,), (4.4, 3.6))
        self.figure_, rows = panels(ax, *shape)
        axes = [panel for row in rows for panel in row]
        names = ("weight, times the logit", "bias, logits above the lowest rank")
        for panel, name in zip(axes, names, strict=True):
            panel.set(xlabel=xlabel, ylabel=name)
            tidy(panel)
        self.ax_ = np.array(axes)
        return axes


class RankParametersDisplay(_WeightsAndBiases):
    """Weights and biases by rank, the top rank on the left.

    Parameters
    ----------
    parameters : RankParameters

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> display = mc.RankParametersDisplay.from_estimator(cal, data.values)
    >>> display.plot().ax_[0].get_xlabel()
    'rank from the top'
    """

    def __init__(self, parameters: RankParameters):
        self.parameters = parameters

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None) -> RankParametersDisplay:
        """From a fitted calibrator, with rows to take means over where its parameters depend on the sample."""
        return cls(rank_parameters(estimator, X))

    def plot(self, ax: Any = None, *, stacked: bool = False, **kwargs: Any) -> RankParametersDisplay:
        """Draw into a new figure, or into the space of ``ax``; keyword arguments go to the lines.

        ``stacked`` puts the biases below the weights.
        """
        axes, p = self._panels(ax, "rank from the top", stacked), self.parameters
        parts = ((p.weight, p.weight_range), (p.bias, p.bias_range))
        for panel, (values, spread) in zip(axes, parts, strict=True):
            if p.constant_from <= p.n_classes:
                style = {"color": LINE, "alpha": 0.08, "linewidth": 0}
                label = f"the same from rank {p.constant_from} down"
                panel.axvspan(p.constant_from - 0.5, p.n_classes + 0.5, label=label, **style)
            if spread is not None:
                style = {"color": AFTER, "alpha": 0.2, "step": "mid", "linewidth": 0}
                panel.fill_between(p.rank, *spread, label="middle 80 % of the rows", **style)
            panel.step(p.rank, values, where="mid", **{"color": AFTER, **kwargs})
            panel.plot(p.rank[:10], values[:10], "s", color=AFTER, markersize=3, clip_on=False)
            if p.n_classes > _LOG_FROM:
                panel.set_xscale("log")
            panel.set_xlim(0.5 if p.n_classes <= _LOG_FROM else 0.9, p.n_classes + 0.5)
        legend(ax, self.figure_, axes[0])
        return self


class EffectDisplay(_WeightsAndBiases):
    """Weights and biases of the top ranks against a statistic of the sample.

    Parameters
    ----------
    effect : EffectCurve

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 10)
    >>> cal = mc.ConditionalMCCT(n_knots=3).fit(data.values, data.labels)
    >>> display = mc.EffectDisplay.from_estimator(cal, data.values, "entropy")
    >>> display.plot().ax_[0].get_xlabel()
    'entropy, nats'
    """

    def __init__(self, effect: EffectCurve):
        self.effect = effect

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, statistic: str | Callable[[Any], Any] = "margin", **options: Any
    ) -> EffectDisplay:
        """From a fitted calibrator and rows to look at; ``options`` are those of `effect_curve`."""
        return cls(effect_curve(estimator, X, statistic, **options))

    def plot(self, ax: Any = None, **kwargs: Any) -> EffectDisplay:
        """Draw into a new figure, or into the space of ``ax``; ranks that coincide share a line and its name.

        Keyword arguments go to the lines.
        """
        e = self.effect
        axes = self._panels(ax, _IN_WORDS.get(e.statistic, e.statistic.replace("_", " ")))
        parts = ((e.weight, e.weight_range), (e.bias, e.bias_range))
        for panel, (values, spread) in zip(axes, parts, strict=True):
            # Rows of (R, B) that are equal, as lists of their places.
            _, place = np.unique(values, axis=0, return_inverse=True)
            alike = sorted(np.flatnonzero(place.reshape(-1) == k).tolist() for k in range(place.max() + 1))
            for i, group in enumerate(alike):
                colour = SERIES[i % len(SERIES)]
                ranks = ", ".join(str(e.ranks[j]) for j in group)
                label = f"rank{'s' if len(group) > 1 else ''} {ranks} from the top"
                panel.fill_between(e.x, *spread[:, group[0]], color=colour, alpha=0.15, linewidth=0)
                panel.plot(e.x, values[group[0]], **{"color": colour, "label": label, **kwargs})
        legend(ax, self.figure_, axes[1])
        return self
