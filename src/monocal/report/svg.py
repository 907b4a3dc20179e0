"""A small chart: a rectangle with scales and ticks, and marks placed in data units. Colours are left to the page's style.

Parts that have numbers to tell are ``hits``: invisible areas that a pointer, a finger or the keyboard can reach, each with
its text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .markup import Markup, el

Span = tuple[float, float]
Values = Sequence[float] | np.ndarray


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) that cover the inside of [low, high]."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def padded(values: Any, share: float = 0.06) -> Span:
    """A range with some air around all finite values; values that are alike to six digits count as one."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return 0.0, 1.0
    low, high = float(array.min()), float(array.max())
    largest = max(abs(low), abs(high))
    room = (high - low) * share if high - low > 1e-6 * largest else (largest or 1.0) * 0.1
    return low - room, high + room


def tick_labels(at: Sequence[float], unit: float = 1.0) -> list[str]:
    """Short, with the decimals that tell them apart and place them well: 0.25, 15, 1,000, 1.1314; times ``unit``."""
    values = [unit * float(value) for value in at]
    step = (
        (max(values) - min(values)) / (len(values) - 1)
        if len(values) > 1
        else max(map(abs, values), default=1.0)
    )
    labels: list[str] = []
    for decimals in range(10):
        rounded = [round(value, decimals) + 0.0 for value in values]
        labels = [f"{value:,.{decimals}f}".replace("-", "−") for value in rounded]
        off = max((abs(a - b) for a, b in zip(values, rounded, strict=True)), default=0.0)
        if len(set(labels)) == len(set(values)) and off <= 0.1 * step:
            break
    return labels


@dataclass
class Chart:
    """Marks in data units within the box ``left, top, width, height`` of a drawing.

    Attributes
    ----------
    x, y : tuple of float
        Ranges in data units.
    log : bool
        Logarithmic x.
    """

    x: Span
    y: Span
    left: float
    top: float
    width: float
    height: float
    log: bool = False
    marks: list[Markup] = field(default_factory=list)

    def px(self, value: float) -> float:
        """Horizontal place of a value, kept within the box."""
        low, high, v = (math.log(t) if self.log else t for t in (*self.x, value))
        return self.left + self.width * min(max((v - low) / (high - low), 0.0), 1.0)

    def py(self, value: float) -> float:
        """Vertical place of a value, kept within the box."""
        low, high = self.y
        return self.top + self.height * (1 - min(max((value - low) / (high - low), 0.0), 1.0))

    def add(self, tag: str, *children: Any, **attributes: Any) -> None:
        """One SVG element in drawing units."""
        self.marks.append(el(tag, *children, **attributes))

    def line(self, x: Values, y: Values, class_: str) -> None:
        """Connected points."""
        points = " ".join(f"{self.px(a):.1f},{self.py(b):.1f}" for a, b in zip(x, y, strict=True))
        self.add("polyline", points=points, class_=class_)

    def area(self, x: Values, low: Values, high: Values, class_: str) -> None:
        """The region between two lines."""
        there = [f"{self.px(a):.1f},{self.py(b):.1f}" for a, b in zip(x, high, strict=True)]
        back = [f"{self.px(a):.1f},{self.py(b):.1f}" for a, b in zip(x, low, strict=True)]
        self.add("polygon", points=" ".join(there + back[::-1]), class_=class_)

    def box(self, x: Span, y: Span, class_: str, **attributes: Any) -> None:
        """A rectangle, at least a pixel high so that it can be seen."""
        left, right = self.px(x[0]), self.px(x[1])
        top, bottom = self.py(y[1]), self.py(y[0])
        tall = max(bottom - top, 1.0)
        self.add("rect", x=left, y=top, width=right - left, height=tall, class_=class_, **attributes)

    def dot(self, x: float, y: float, class_: str, r: float = 4.5) -> None:
        """A round point."""
        self.add("circle", cx=self.px(x), cy=self.py(y), r=r, class_=class_)

    def text(self, x: float, y: float, words: str, class_: str = "label", anchor: str = "start") -> None:
        """Words at a place in drawing units."""
        self.add("text", words, x=x, y=y, class_=class_, text_anchor=anchor)

    def x_axis(self, at: Sequence[float], labels: Sequence[str], name: str = "", grid: bool = True) -> None:
        """Ticks below the box, with faint lines through it."""
        bottom = self.top + self.height
        for value, words in zip(at, labels, strict=True):
            place = self.px(value)
            if grid:
                self.add("line", x1=place, x2=place, y1=self.top, y2=bottom, class_="grid")
            if words:
                self.text(place, bottom + 16, words, "tick", "middle")
        if name:
            self.text(self.left + self.width / 2, bottom + 34, name, "label", "middle")

    def y_axis(self, at: Sequence[float], labels: Sequence[str], name: str = "") -> None:
        """Ticks left of the box, with faint lines through it; the name stands above the box."""
        for value, words in zip(at, labels, strict=True):
            place = self.py(value)
            self.add("line", x1=self.left, x2=self.left + self.width, y1=place, y2=place, class_="grid")
            self.text(self.left - 7, place + 4, words, "tick", "end")
        if name:
            self.text(self.left - 38, self.top - 12, name)

    def axes(self, x_name: str = "", y_name: str = "", unit: tuple[float, float] = (1.0, 1.0)) -> None:
        """Round ticks on both sides."""
        at = ticks(*self.y)
        self.y_axis(at, tick_labels(at, unit[1]), y_name)
        at = ticks(*self.x)
        self.x_axis(at, tick_labels(at, unit[0]), x_name)

    def hit(self, left: float, top: float, width: float, height: float, told: str) -> None:
        """An area, in drawing units, that tells its numbers."""
        self.marks.append(
            el(
                "rect",
                el("title", told),
                x=left,
                y=top,
                width=width,
                height=height,
                class_="hit",
                role="img",
                aria_label=told.replace("\n", "; "),
                tabindex="-1",
            )
        )


def drawing(width: float, height: float, name: str, *charts: Chart) -> Markup:
    """The SVG element; ``name`` is what a screen reader says of it."""
    return el(
        "svg",
        [chart.marks for chart in charts],
        viewBox=f"0 0 {width:g} {height:g}",
        role="group",
        aria_label=name,
        class_="chart",
    )
