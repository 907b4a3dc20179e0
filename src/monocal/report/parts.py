"""Pieces of the page that its sections share: headings, tables, lists of facts, keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..metrics import Estimate
from ..metrics.units import count, number, percent
from ..plots import CalibrationCurve
from .markup import Markup, el, join

_SCORES = ("nll", "brier")  # the other metrics are shares


def shown_as(name: str) -> Callable[[float], str]:
    """How the values of a metric are written."""
    return number if name in _SCORES else percent


def section(title: str, *children: Any) -> Markup:
    """A section with its heading."""
    name = title.lower().replace(" ", "-")
    return el("section", el("h2", title, id=name), *children, aria_labelledby=name)


def symbol(class_: str) -> Markup:
    """A mark of the diagrams, for the key beneath them."""
    if class_.startswith(("band", "cell")):
        mark = el("rect", x=1, y=3, width=14, height=10, class_=class_, fill_opacity=0.6)
    else:
        mark = el("circle", cx=8, cy=8, r=3 if "few" in class_ else 5, class_=class_)
    return el("svg", mark, viewBox="0 0 16 16", aria_hidden="true")


def bin_table(curve: CalibrationCurve) -> Markup:
    """The bins of a reliability diagram in numbers."""
    rows = [
        (
            f"{curve.edges[k]:.2f} to {curve.edges[k + 1]:.2f}",
            count(curve.weight[k]),
            percent(curve.confidence[k]),
            percent(curve.accuracy[k]),
            f"{percent(curve.low[k])} to {percent(curve.high[k])}",
        )
        for k in range(len(curve.weight))
        if curve.weight[k] > 0
    ]
    head = ("confidence", "rows", "mean confidence", "accuracy", "band")
    return details("The numbers", table("Bins of the reliability diagram", head, rows))


def details(summary: str, *children: Any) -> Markup:
    """What is shown when asked for."""
    return el("details", el("summary", summary), *children)


def table(name: str, head: tuple[str, ...], rows: Any, chosen: int | None = None) -> Markup:
    """A table whose first column names its rows; where it is too wide it scrolls, under a line that says so."""
    body = [
        el(
            "tr",
            el("th", row[0], scope="row"),
            [el("td", cell) for cell in row[1:]],
            class_="chosen" if i == chosen else None,
        )
        for i, row in enumerate(rows)
    ]
    return el(
        "div",
        el(
            "table",
            el("thead", el("tr", [el("th", name, scope="col") for name in head])),
            el("tbody", body),
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=f"Table: {name}",
    )


def value(name: str, estimate: Estimate) -> Markup:
    """A metric with its interval beneath."""
    show = shown_as(name)
    if estimate.low is None or estimate.high is None or not np.isfinite(estimate.value):
        return join(
            show(estimate.value), el("small", f"no interval: {estimate.reason}") if estimate.reason else ""
        )
    span = f"{show(estimate.low)} – {show(estimate.high)}".replace(" % –", " –")
    return join(show(estimate.value), el("small", span))


def facts(facts: dict[str, Any]) -> Markup:
    """Names and what they are."""
    return el("dl", [join(el("dt", name), el("dd", value)) for name, value in facts.items()])
