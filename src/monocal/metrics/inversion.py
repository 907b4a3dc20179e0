"""Intervals of calibration errors of the top label: the true errors that would show what was seen.

An error ``T`` is a norm of the gaps between confidence and accuracy, so noise makes it larger: a calibrated
predictor, whose true error is 0, shows ``T > 0``. With ``g(c)`` the mean gap seen in the bin of ``c``, let a
row of confidence ``c`` be right with probability

    q_t(c) = c - t g(c),        t = 0: calibrated,        t = 1: as wrong as it looks

and draw rows, and outcomes from ``q_t``, at a few ``t``. That gives the mean ``m_t`` and the standard
deviation ``s_t`` of ``T``, and without any draw the true error ``e_t``, which is ``T`` of ``q_t`` itself. Then

    low = the smallest e_t for which T is not among the largest draws,        high = T + z s_1

The low end takes the noise back; it is 0 where a calibrated predictor could show ``T``. The high end need not,
for noise hardly ever makes an error smaller, so the interval always holds its own estimate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from .outcomes import Floats, Outcomes, bin_totals
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
    true, draws = [], []
    for t in _NODES:
        right = np.clip(rows.confidence - t * gap, 0, 1)
        true.append(errors(replace(rows, correct=right)))
        draws.append([errors(_drawn(rows, right, generator)) for _ in range(size)])
    true_errors, drawn = np.array(true), np.array(draws)  # (nodes, names), (nodes, size, names)
    ends = zip(names, seen, true_errors.T, np.moveaxis(drawn, 2, 0), strict=True)
    return {name: _ends(value, e, d, level, METRICS[name].upper) for name, value, e, d in ends}


def _gap(rows: Outcomes) -> Floats:
    """Mean of ``confidence - correct`` in the bin of each row."""
    weight = bin_totals(rows.top_bin, rows.weight, rows.n_bins)
    total = bin_totals(rows.top_bin, rows.weight * (rows.confidence - rows.correct), rows.n_bins)
    return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)[rows.top_bin]


def _drawn(rows: Outcomes, right: Floats, generator: np.random.Generator) -> Outcomes:
    """As many rows, drawn with replacement, each with an outcome of its own."""
    n = len(right)
    pick = np.repeat(np.arange(n), np.bincount(generator.integers(n, size=n), minlength=n))
    outcome = (generator.random(n) < right[pick]).astype(np.float64)
    return replace(
        rows,
        predicted=rows.predicted[pick],
        confidence=rows.confidence[pick],
        correct=outcome,
        weight=rows.weight[pick],
    )


def _ends(seen: float, true: Floats, drawn: Floats, level: float, most: float) -> tuple[float, float]:
    """The interval, from the true error at each node and the draws (nodes, size) there."""
    mean, spread = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    by_chance = spread > 0
    if not by_chance.any():
        return seen, seen
    tail = (1 - level) / 2
    # A predictor that is always sure leaves nothing to chance if it is right, and much if it is not.
    largest = np.quantile((drawn - mean[:, None])[by_chance] / spread[by_chance, None], 1 - tail)
    # Squares, because noise adds to the square of a norm: they are all but parabolas in t.
    mean_square = np.polyval(np.polyfit(_NODES, mean**2, 2), _STEPS)
    variance = np.polyval(np.polyfit(_NODES, spread**2, 1), _STEPS)
    reach = np.sqrt(np.maximum(mean_square, 0)) + largest * np.sqrt(np.maximum(variance, 0))
    possible = np.append(reach >= seen, True)
    low = float(np.interp(np.append(_STEPS, 1.0)[possible.argmax()], _NODES, true))
    return min(low, seen), min(seen - float(ndtri(tail)) * float(spread[-1]), most)
