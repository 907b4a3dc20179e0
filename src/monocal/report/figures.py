"""The report's diagrams, drawn from data objects."""

from __future__ import annotations

import numpy as np

from ..metrics.units import count, counted, number, percent, points
from ..plots import CalibrationCurve, EffectCurve, RankParameters
from ..plots.rank_map import _alike as alike
from .confidence import ConfidenceChange
from .markup import Markup
from .svg import Chart, drawing, padded, tick_labels, ticks
from .words import direction

WIDTH = 440.0
_LOG_FROM = 20  # classes
_FEW = 5  # rows of a bin, below which its accuracy says next to nothing


def reliability(curve: CalibrationCurve, name: str) -> Markup:
    """Accuracy against confidence with the band of perfect calibration, above the histogram; ``name`` is before or after."""
    top = Chart((0, 1), (0, 1), 44, 30, 384, 300)
    share = curve.weight / curve.weight.sum()
    most = float(share.max())
    bottom = Chart((0, 1), (0, most), 44, 376, 384, 64)
    at = [0, 0.2, 0.4, 0.6, 0.8, 1]
    top.x_axis(at, [f"{t:g}" for t in at])
    top.y_axis(at, [f"{t:g}" for t in at], "accuracy")
    filled = np.flatnonzero(curve.weight > 0)
    for k in filled:
        top.box((curve.edges[k], curve.edges[k + 1]), (curve.low[k], curve.high[k]), "band")
    top.line([0, 1], [0, 1], "diagonal")
    many = filled[curve.weight[filled] >= _FEW]
    top.line(curve.confidence[many], curve.accuracy[many], f"line {name}")
    bottom.x_axis(at, [""] * 6)
    bottom.text(236, 458, "confidence", "label", "middle")
    bottom.y_axis([0, most], ["0", f"{100 * most:.0f} %"], "share of rows")
    for k in filled:
        bottom.box((curve.edges[k] + 0.004, curve.edges[k + 1] - 0.004), (0, share[k]), f"bar {name}")
    for k in filled:
        state = ("out" if curve.outside[k] else "in") + (" few" if curve.weight[k] < _FEW else "")
        top.dot(curve.confidence[k], curve.accuracy[k], f"dot {name} {state}", 3.0 if "few" in state else 4.5)
    for k in filled:
        left, right = top.px(curve.edges[k]), top.px(curve.edges[k + 1])
        told = f"Confidence {curve.edges[k]:.2f} to {curve.edges[k + 1]:.2f}\n{_bin_numbers(curve, k)}"
        top.hit(left, 30, right - left, 410, told)
    words = f"Reliability diagram {name} calibration, ECE {percent(curve.ece)}"
    return drawing(WIDTH, 464, words, bottom, top)


def _bin_numbers(curve: CalibrationCurve, k: int | np.integer) -> str:
    """What a bin holds, in lines."""
    gap = curve.gap[k]
    share = curve.weight[k] / curve.weight.sum()
    verdict = "outside" if curve.outside[k] else "inside"
    return (
        f"{counted(curve.weight[k], 'row')} ({100 * share:.1f} %)\n"
        f"mean confidence {percent(curve.confidence[k])}\n"
        f"accuracy {percent(curve.accuracy[k])}\n{direction(gap)} by {points(gap)}\n"
        f"{verdict} the band {percent(curve.low[k])} to {percent(curve.high[k])}"
    )


def margin(before: CalibrationCurve, after: CalibrationCurve) -> Markup:
    """Confidence minus accuracy against the margin, in bins of equal mass, for the same rows before and after."""
    kept = np.flatnonzero(before.weight > 0)
    slots = np.arange(len(kept)) + 0.5
    bands = {
        name: (100 * (c.confidence - c.high)[kept], 100 * (c.confidence - c.low)[kept])
        for name, c in (("before", before), ("after", after))
    }
    gaps = {"before": 100 * before.gap[kept], "after": 100 * after.gap[kept]}
    reach = np.concatenate([*gaps.values(), *bands["before"], *bands["after"], [0.0]])
    chart = Chart((0, len(kept)), padded(reach), 52, 30, WIDTH - 64, 290)
    at = ticks(*chart.y)
    chart.y_axis(at, tick_labels(at), "over-confidence, points")
    edges = [before.edges[k] for k in kept] + [before.edges[kept[-1] + 1]]
    step = max(1, round(len(edges) / 6))
    chart.x_axis(
        range(len(edges))[::step],
        tick_labels([float(e) for e in edges[::step]]),
        "margin, in bins with as many rows each",
    )
    for name in ("before", "after"):
        chart.area(slots, *bands[name], f"ribbon {name}")
    chart.line([0, len(kept)], [0, 0], "zero")
    for name in ("before", "after"):
        chart.line(slots, gaps[name], f"line {name}")
        curve = before if name == "before" else after
        for x, y, k in zip(slots, gaps[name], kept, strict=True):
            chart.dot(x, y, f"dot {name} {'out' if curve.outside[k] else 'in'}")
    for i, k in enumerate(kept):
        told = f"Margin {edges[i]:.3g} to {edges[i + 1]:.3g}, {count(before.weight[k])} rows\n" + "\n".join(
            f"{name}: claims {percent(c.confidence[k])}, right in {percent(c.accuracy[k])}"
            for name, c in (("before", before), ("after", after))
        )
        chart.hit(chart.px(i), chart.top, chart.px(i + 1) - chart.px(i), chart.height, told)
    return drawing(WIDTH, 372, "Calibration error against the margin, before and after calibration", chart)


def confidence(change: ConfidenceChange) -> Markup:
    """Confidence after against confidence before."""
    low = float(min(change.x.min(), change.low.min(), 0.9))
    low = np.floor(10 * low) / 10
    chart = Chart((low, 1.0), (low, 1.0), 52, 30, WIDTH - 66, 250)
    chart.axes("confidence before", "confidence after")
    chart.line([low, 1], [low, 1], "diagonal")
    if not change.one_curve:
        chart.area(change.x, change.low, change.high, "ribbon after")
    chart.line(change.x, change.middle, "line after")
    middle = (change.x[1:] + change.x[:-1]) / 2
    edges = np.concatenate(([low], middle, [1.0]))
    for k in range(len(change.x)):
        chart.dot(change.x[k], change.middle[k], "dot after out", 2.5)
        told = f"confidence before {percent(change.x[k])}\nafter {percent(change.middle[k])}"
        if not change.one_curve:
            told += f"\nmiddle 80 % of the rows: {percent(change.low[k])} to {percent(change.high[k])}"
        left, right = chart.px(edges[k]), chart.px(edges[k + 1])
        chart.hit(left, chart.top, max(right - left, 2.0), chart.height, told)
    return drawing(WIDTH, 322, "Confidence of the top class after calibration against before", chart)


def by_rank(parameters: RankParameters, which: str) -> Markup:
    """Weight or bias against the rank from the top; the grey part is where it stays constant."""
    p = parameters
    values = p.weight if which == "weight" else p.bias
    spread = p.weight_range if which == "weight" else p.bias_range
    reach = [values] if spread is None else [values, *spread]
    log = p.n_classes > _LOG_FROM
    edge = 0.85 if log else 0.5
    chart = Chart((edge, p.n_classes + 0.5), padded(np.concatenate(reach)), 56, 30, WIDTH - 70, 210, log=log)
    at = ticks(*chart.y)
    chart.y_axis(at, tick_labels(at), which if which == "weight" else "bias, from the lowest rank's")
    places = _rank_ticks(p.n_classes, log)
    chart.x_axis(places, [count(t) for t in places], "rank from the top")
    chart.box((p.constant_from - 0.5, p.n_classes + 0.5), chart.y, "constant")
    # Stairs: a rank reaches half way to its neighbours; only corners are drawn, however many ranks there are.
    begins, ends, firsts = _runs(values if spread is None else np.stack([values, *spread]))
    last = np.where(ends == len(values), p.n_classes, ends)
    xs = np.stack([begins + 0.5, last + 0.5], axis=1).ravel()
    if spread is not None:
        low, high = (np.repeat(s[firsts], 2) for s in spread)
        chart.area(xs, low, high, "ribbon after")
    chart.line(xs, np.repeat(values[firsts], 2), "line after")
    for i, (begin, end) in enumerate(zip(begins, last, strict=True)):
        told = f"Rank {begin + 1}" if end == begin + 1 else f"Ranks {begin + 1} to {end}"
        told += f" from the top\n{which} {number(values[firsts[i]])}"
        if spread is not None:
            told += (
                f"\nmiddle 80 % of the rows: {number(spread[0][firsts[i]])} to {number(spread[1][firsts[i]])}"
            )
        left, right = chart.px(begin + 0.5), chart.px(end + 0.5)
        chart.hit(left, chart.top, max(right - left, 3.0), chart.height, told)
    return drawing(WIDTH, 292, f"{which.capitalize()} by rank, the top rank on the left", chart)


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Begin and end (exclusive) of each run of equal columns, and an index into it."""
    rows = np.atleast_2d(values)
    begins = np.concatenate(([0], np.flatnonzero((np.diff(rows, axis=1) != 0).any(axis=0)) + 1))
    return begins, np.append(begins[1:], rows.shape[1]), begins


def _rank_ticks(n: int, log: bool) -> list[float]:
    if not log:
        return [float(t) for t in range(1, n + 1, max(1, n // 10))]
    return [k * 10.0**e for e in range(7) for k in (1, 2, 5) if k * 10**e <= n]


def effect(curve: EffectCurve, which: str) -> Markup:
    """Weight or bias of the top ranks against a statistic of the sample."""
    values = curve.weight if which == "weight" else curve.bias
    spread = curve.weight_range if which == "weight" else curve.bias_range
    chart = Chart(padded(curve.x, 0.02), padded(np.concatenate([values, *spread])), 56, 54, WIDTH - 70, 210)
    chart.axes(curve.statistic.replace("_", " "))
    chart.text(18, 16, which if which == "weight" else "bias, from the lowest rank's")
    # Ranks that share their values, as weights often do, are one line.
    groups = alike(values)
    names = []
    for i, group in enumerate(groups):
        low, high = spread[:, group[0]]
        chart.area(curve.x, low, high, f"ribbon series{i}")
        chart.line(curve.x, values[group[0]], f"line series{i}")
        names.append(f"rank {', '.join(str(curve.ranks[j]) for j in group)}")
        x = chart.left + 96 * i
        chart.add("line", x1=x, x2=x + 18, y1=36, y2=36, class_=f"line series{i}")
        chart.text(x + 24, 40, names[i], "tick")
    middle = (curve.x[1:] + curve.x[:-1]) / 2
    edges = np.concatenate(([chart.x[0]], middle, [chart.x[1]]))
    for b in range(len(curve.x)):
        told = f"{curve.statistic.replace('_', ' ')} about {curve.x[b]:.3g}\n" + "\n".join(
            f"{name}: {which} {number(values[group[0], b])}"
            for name, group in zip(names, groups, strict=True)
        )
        left, right = chart.px(edges[b]), chart.px(edges[b + 1])
        chart.hit(left, chart.top, right - left, chart.height, told)
    words = f"{which.capitalize()} of the top ranks against the {curve.statistic.replace('_', ' ')}"
    return drawing(WIDTH, 316, words, chart)
