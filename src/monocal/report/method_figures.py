"""Diagrams of the comparison of methods: paired differences of NLL, ECE, and which top classes move with the order given up.

Methods that cannot be told apart form a shaded group. The scale is that of this group: a method far outside is an arrow at the
edge with its number, so that one outlier does not squash all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..metrics import Move
from ..metrics.units import count, counted, number, percent, with_interval
from .figures import WIDTH
from .markup import Markup
from .selection import MethodComparison, MethodResult
from .svg import Chart, Span, drawing, padded, tick_labels, ticks

_ROW, _HEAD = 34.0, 48.0


@dataclass(frozen=True)
class _Row:
    """A method with the number to draw, its interval, and what a pointer is told."""

    method: MethodResult
    value: float
    low: float | None
    high: float | None
    told: str


def _ordered(methods: MethodComparison) -> list[MethodResult]:
    """Those within noise of the best first, the simplest on top, then the others by NLL."""
    tied = methods.alike(keeping=True)
    names = {one.name for one in tied}
    return [*tied, *(one for one in methods.judged if one.name not in names)]


def differences(methods: MethodComparison, shown: str) -> Markup:
    """NLL of each method minus that of the one shown, paired by row."""
    tied = len(methods.alike(keeping=True))
    rows = []
    for one in _ordered(methods):
        d = methods.difference(one.name, shown)
        known = bool(np.isfinite([d.low, d.high]).all())
        told = [one.name, f"NLL {number(one.nll)}"]
        if one.name == shown:
            told.append("the method of this page")
        elif known:
            told.append(f"difference {with_interval(d.mean, d.low, d.high, d.level)}")
            told.append("more than chance" if d.decided else "which may be chance")
        low, high = (d.low, d.high) if known else (None, None)
        rows.append(_Row(one, d.mean, low, high, "\n".join(told)))
    near = [v for row in rows[:tied] for v in (row.value, row.low, row.high) if v is not None]
    begin, end = padded([*near, 0.0], 0.3)
    room = 2 * (end - begin)
    far = [row.value for row in rows if begin - room <= row.value <= end + room]
    span = padded([begin, end, *far], 0.05)
    name = f"NLL of each method minus that of {shown}, with intervals; indistinguishable ones come first"
    return _forest(name, f"NLL minus that of {shown}", rows, shown, span, 1.0, _nats, tied)


def errors(methods: MethodComparison, shown: str) -> Markup:
    """ECE of each method with its interval, in the order of the differences."""
    rows = []
    for one in _ordered(methods):
        assert one.evaluation is not None
        e = one.evaluation["ece"]
        told = f"{one.name}\nECE {percent(e.value)}"
        if e.low is not None and e.high is not None:
            told += f"\ninterval {percent(e.low)} to {percent(e.high)}"
        rows.append(_Row(one, e.value, e.low, e.high, told))
    most = 4 * float(np.median([row.value for row in rows]))
    ends = [v for row in rows for v in (row.value, row.high) if v is not None and v <= most]
    span = (0.0, padded([0.0, *ends], 0.05)[1])
    return _forest("ECE of each method with its interval", "ECE, %", rows, shown, span, 100.0, percent, 0)


def _nats(value: float) -> str:
    return number(value, 3)


def _forest(
    name: str,
    title: str,
    rows: Sequence[_Row],
    shown: str,
    span: Span,
    unit: float,
    show: Callable[[float], str],
    tied: int,
) -> Markup:
    """A line of text, a dot and an interval for each method; ``tied`` of them, from the top, in a shaded group."""
    tall = _ROW * len(rows)
    chart = Chart(span, (0, len(rows)), 16, _HEAD, WIDTH - 32, tall)
    if tied > 1:
        chart.add("rect", x=4, y=_HEAD - 1, width=WIDTH - 8, height=_ROW * tied + 1, rx=6, class_="group")
    at = ticks(*chart.x)
    chart.x_axis(at, tick_labels(at, unit))
    chart.text(16, 16, title)
    chart.text(16, 34, "less is better; hollow: may change the order", "tick")
    if span[0] < 0 < span[1]:
        chart.add("line", x1=chart.px(0), x2=chart.px(0), y1=_HEAD, y2=_HEAD + tall, class_="zero")
    for i, row in enumerate(rows):
        y, method, chosen = _HEAD + _ROW * i, row.method, row.method.name == shown
        kind, face = ("after" if chosen else "other"), ("out" if method.keeps_order else "in")
        chart.text(16, y + 13, method.name + (" ★" if chosen else ""), "name strong" if chosen else "name")
        if row.value > span[1]:
            chart.text(WIDTH - 16, y + 27, f"{show(row.value)} →", "tick", "end")
        elif row.value < span[0]:
            chart.text(16, y + 27, f"← {show(row.value)}", "tick")
        else:
            if row.low is not None and row.high is not None:
                ends = chart.px(row.low), chart.px(row.high)
                chart.add("line", x1=ends[0], x2=ends[1], y1=y + 23, y2=y + 23, class_=f"whisker {kind}")
            chart.add("circle", cx=chart.px(row.value), cy=y + 23, r=5, class_=f"dot {kind} {face}")
        told = row.told if method.keeps_order else f"{row.told}\nmay change the order of the classes"
        chart.hit(0, y, WIDTH, _ROW, told)
    return drawing(WIDTH, _HEAD + tall + 26, name, chart)


def moves(found: Sequence[Move], names: Sequence[str]) -> Markup:
    """Which top classes moved: from the row's class to the column's, as many rows as the number says; ``names`` by class."""
    used = sorted({c for move in found for c in (move.before, move.after)})
    cell = min(46.0, 330.0 / len(used))
    left, top = 104.0, 92.0
    chart = Chart((0, len(used)), (0, len(used)), left, top, cell * len(used), cell * len(used))
    chart.text(left, 16, "to: the top class with the order given up")
    chart.text(left - 6, top - 8, "from", "label", "end")
    place = {c: i for i, c in enumerate(used)}
    for c, i in place.items():
        middle = cell * (i + 0.5)
        chart.text(left - 6, top + middle + 4, _short(names[c]), "tick", "end")
        x, y = left + middle, top - 6
        chart.add(
            "text",
            _short(names[c]),
            x=x,
            y=y,
            class_="tick",
            text_anchor="start",
            transform=f"rotate(-45 {x:.1f} {y:.1f})",
        )
        for j in range(len(used)):
            chart.add(
                "rect", x=left + cell * i, y=top + cell * j, width=cell - 1, height=cell - 1, class_="cell"
            )
    most = max(move.rows for move in found)
    for move in found:
        x, y = left + cell * place[move.after], top + cell * place[move.before]
        gained = move.right_after - move.right_before
        kind = "gain" if gained > 0 else "loss" if gained < 0 else "even"
        share = 0.15 + 0.4 * move.rows / most
        chart.add(
            "rect", x=x, y=y, width=cell - 1, height=cell - 1, class_=f"cell {kind}", fill_opacity=share
        )
        chart.add(
            "text",
            count(move.rows),
            x=x + cell / 2,
            y=y + cell / 2 + 4,
            class_="name strong",
            text_anchor="middle",
        )
        told = (
            f"from {names[move.before]} to {names[move.after]}\n{counted(move.rows, 'row')}\n"
            f"{count(move.right_before)} right before, {count(move.right_after)} right after"
        )
        chart.hit(x, y, cell, cell, told)
    return drawing(
        WIDTH,
        top + cell * len(used) + 8,
        "Which class was on top, and which is with the order given up",
        chart,
    )


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"
