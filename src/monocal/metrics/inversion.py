"""Intervals of calibration errors of the top label: the true errors that would show what was seen.

An error ``T`` is a norm of the gaps between confidence and accuracy, so noise makes it larger: a calibrated
predictor, whose true error is 0, shows ``T > 0``. With ``g(c)`` the mean gap seen in the bin of ``c``, let a
row of confidence ``c`` be right with probability

    q_t(c) = c - t g(c),        t = 0: calibrated,        t = 1: as wrong as it looks

and draw rows, and outcomes from ``q_t``, at a few ``t``. That gives the mean ``m_t`` and the standard
deviation ``s_t`` of ``T``, and without any draw the true error ``e_t``, which is ``T`` of ``q_t`` itself. Then

    low = the smallest e_t for which T is not among the largest draws,        high = T + z' s_1

with ``z'`` the quantile moved by the skewness of the sum (`unskewed`).

The low end takes the noise back; it is 0 where a calibrated predictor could show ``T``. The high end need not,
for noise hardly ever makes an error smaller, so the interval always holds its own estimate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from .outcomes import Floats, Integers, Outcomes, bin_totals
from .registry import METRICS, Options, Statistics

_NODES = np.arange(4) / 3  # the t at which outcomes are drawn
_LEAST = 8  # draws at a node, for a standard deviation
_STEPS = np.linspace(0, 1, 241)


def error_intervals(
    rows: Outcomes,
    options: Options,
    names: list[str],
    n_boot: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, tuple[float, float]]:
    """Intervals of the errors ``names`` from about ``n_boot`` draws in all."""
    plug_ins = [METRICS[name].error for name in names]

    def errors(some: Outcomes) -> list[float]:
        statistics = Statistics(some, options)
        return [plug_in(statistics) for plug_in in plug_ins if plug_in is not None]

    seen, gap = errors(rows), _gap(rows)
    size = max(_LEAST, n_boot // len(_NODES))
    drawer = _Drawer(rows)
    true, draws = [], []
    for t in _NODES:
        right = np.clip(rows.confidence - t * gap, 0, 1)
        true.append(errors(replace(rows, correct=right)))
        draws.append([errors(drawer.draw(right, generator)) for _ in range(size)])
    true_errors, drawn = np.array(true), np.array(draws)  # (nodes, names), (nodes, size, names)
    ends = zip(names, seen, true_errors.T, np.moveaxis(drawn, 2, 0), strict=True)
    skew = _skewness(rows, gap)
    return {name: _ends(value, e, d, level, METRICS[name].upper, skew) for name, value, e, d in ends}


def _gap(rows: Outcomes) -> Floats:
    """Mean of ``confidence - correct`` in the bin of each row."""
    weight = bin_totals(rows.top_bin, rows.weight, rows.n_bins)
    total = bin_totals(rows.top_bin, rows.weight * (rows.confidence - rows.correct), rows.n_bins)
    return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)[rows.top_bin]


def _skewness(rows: Outcomes, gap: Floats) -> float:
    """Of the error as a sum over rows: each adds its own gap, less the mean one of its bin, with the sign of that."""
    d = rows.weight * np.sign(gap) * (rows.confidence - rows.correct - gap)
    spread = float(d @ d)
    return float(d**2 @ d) / spread**1.5 if spread > 0 else 0.0


def unskewed(t: float, skewness: float) -> float:
    """The ``u`` with ``((1 + g u / 3)^3 - 1) / g + g / 6 = t`` (Hall's cubic); without skewness ``t``."""
    if abs(skewness) < 1e-6:
        return t
    return float(3 / skewness * (np.cbrt(1 + skewness * (t - skewness / 6)) - 1))


class _Drawer:
    """Draws as many rows with replacement, each with an outcome, and a weight as rows of its bin with that outcome have.

    A class weight makes errors heavy or light: the odds of an error count among weights as often as their mean weight says, so
    that the outcome itself is drawn with odds ``A / (1 - A) * w_wrong / w_right`` for an accuracy ``A`` in weights.
    """

    def __init__(self, rows: Outcomes) -> None:
        self.rows = rows
        self.equal = np.ptp(rows.weight) == 0
        if self.equal:
            return
        cell = 2 * rows.top_bin + rows.correct.astype(np.int64)
        overall = _mean_by(rows.correct.astype(np.int64), rows.weight, np.full(2, rows.weight.mean()))
        self.order = np.argsort(cell, kind="stable")
        self.count = np.bincount(cell, minlength=2 * rows.n_bins)
        self.start = np.cumsum(self.count) - self.count
        wrong, right = _mean_by(cell, rows.weight, np.tile(overall, rows.n_bins)).reshape(-1, 2).T
        self.odds = (wrong / right)[rows.top_bin]

    def draw(self, right: Floats, generator: np.random.Generator) -> Outcomes:
        rows, n = self.rows, len(right)
        pick = np.repeat(np.arange(n), np.bincount(generator.integers(n, size=n), minlength=n))
        chance = right[pick]
        if not self.equal:
            chance = chance * self.odds[pick] / (chance * self.odds[pick] + 1 - chance)
        outcome = generator.random(n) < chance
        weight = rows.weight[pick]
        if not self.equal:
            cell = 2 * rows.top_bin[pick] + outcome
            one = self.start[cell] + (generator.random(n) * self.count[cell]).astype(np.int64)
            seen = self.count[cell] > 0
            weight[seen] = rows.weight[self.order[one[seen]]]
        return replace(
            rows,
            predicted=rows.predicted[pick],
            confidence=rows.confidence[pick],
            correct=outcome.astype(np.float64),
            weight=weight,
        )


def _mean_by(cell: Integers, values: Floats, otherwise: Floats) -> Floats:
    """Mean of the values in each cell; of an empty one ``otherwise``."""
    count = np.bincount(cell, minlength=len(otherwise))
    return np.divide(bin_totals(cell, values, len(otherwise)), count, out=otherwise.copy(), where=count > 0)


def _ends(
    seen: float, true: Floats, drawn: Floats, level: float, most: float, skew: float
) -> tuple[float, float]:
    """The interval, from the true error at each node and the draws (nodes, size) there."""
    mean, spread = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    by_chance = spread > 0
    if not by_chance.any():
        return seen, seen
    tail = (1 - level) / 2
    # A predictor that is always sure leaves nothing to chance if it is right, and much if it is not.
    largest = np.quantile(
        (drawn - mean[:, None])[by_chance] / spread[by_chance, None], 1 - tail, method="weibull"
    )
    # Squares, because noise adds to the square of a norm: they are all but parabolas in t.
    mean_square = np.polyval(np.polyfit(_NODES, mean**2, 2), _STEPS)
    variance = np.polyval(np.polyfit(_NODES, spread**2, 1), _STEPS)
    reach = np.sqrt(np.maximum(mean_square, 0)) + largest * np.sqrt(np.maximum(variance, 0))
    possible = np.append(reach >= seen, True)
    low = float(np.interp(np.append(_STEPS, 1.0)[possible.argmax()], _NODES, true))
    # Few draws make the spread itself uncertain.
    above = unskewed(float(stdtrit(drawn.shape[1] - 1, tail)), skew)
    return min(low, seen), min(seen - above * float(spread[-1]), most)
