"""Sections of the page about other methods: how they compare, and what keeping the order costs."""

from __future__ import annotations

from ..metrics import PriceOfOrder
from ..metrics.units import count, in_words, percent
from . import advice, method_figures
from .contents import Report
from .markup import Markup, el, join
from .parts import section, symbol, table, value

_WORTH_A_PICTURE = 3  # rows of the most frequent move
_MOST_CLASSES = 8  # of the picture of classes that moved


def methods(report: Report) -> Markup | None:
    """How the methods compare; None where only one was fitted."""
    comparison = report.methods
    if comparison is None:
        return None
    judged = comparison.judged
    shown = report.shown
    rows = []
    for result in judged:
        found = result.evaluation
        assert found is not None
        if result.audit is None:
            order = "–"
        elif result.audit.preserved:
            order = "kept" if result.keeps_order else "kept here"
        else:
            order = f"changed in {percent(result.audit.all.share_inverted)}"
        rows.append(
            (
                result.name,
                *(value(name, found[name]) for name in ("nll", "ece", "brier", "accuracy")),
                order,
                f"{result.seconds:.2f}\u00a0s" if result.audit is not None else "–",
            )
        )
    names = [result.name for result in judged]
    notes = [el("li", note) for note in advice.notes(comparison)]
    charts: list[Markup] = []
    if shown in names and len(names) > 1:
        drawn = (method_figures.differences(comparison, shown), method_figures.errors(comparison, shown))
        charts = [el("figure", figure) for figure in drawn]
    return section(
        "Methods compared",
        el("p", advice.recommendation(comparison)),
        el(
            "p",
            "Shaded: methods that keep the order and are indistinguishable from the best of them. Differences are paired by row: "
            "what is hard for one method is hard for the other, so these intervals decide, not whether those of the table "
            "overlap.",
            class_="muted",
        )
        if charts
        else None,
        el("div", charts, class_="pair") if charts else None,
        table(
            "Methods compared",
            ("method", "NLL", "ECE", "Brier", "accuracy", "order", "fit"),
            rows,
            names.index(shown) if shown in names else None,
        ),
        el("ul", notes, class_="muted") if notes else None,
    )


def price(report: Report) -> Markup | None:
    """What keeping the order costs, and which classes are concerned."""
    found = report.methods.price if report.methods is not None else None
    if found is None:
        return None
    free, price = found
    best = report.methods.best(keeping=True) if report.methods is not None else None
    assert best is not None
    assert report.methods is not None
    others = sum(1 for one in report.methods.judged if not one.keeps_order)
    kind = "which may change it"
    if others > 1:
        kind = f"the best of {in_words(others)} that may change it, for which the interval allows"
    told = [el("p", f"{price} Compared are {best.name}, the best that keeps the order, and {free}, {kind}.")]
    if not price.moved or price.moves[0].rows < _WORTH_A_PICTURE:
        return section("Price of order", *told)
    names = report.class_names or tuple(f"class {c}" for c in range(report.n_classes))
    return section("Price of order", *told, _moves(price, names, free))


def _moves(price: PriceOfOrder, names: tuple[str, ...], free: str) -> Markup:
    listed = price.moves[:_MOST_CLASSES]
    rows = [
        (f"{names[m.before]} → {names[m.after]}", count(m.rows), count(m.right_before), count(m.right_after))
        for m in listed
    ]
    classes: list[int] = []
    drawn = []
    for move in price.moves:  # the most frequent first, as long as the picture has room
        new = [c for c in (move.before, move.after) if c not in classes]
        if len(classes) + len(new) <= _MOST_CLASSES:
            classes += new
            drawn.append(move)
    left_out = len(price.moves) - len(listed)
    rest = f" The {count(left_out)} rarest moves are left out of the table." if left_out else ""
    key = el(
        "ul",
        el("li", symbol("cell gain"), "more right than before"),
        el("li", symbol("cell loss"), "fewer right than before"),
        el("li", symbol("cell even"), "as many"),
        class_="key",
    )
    return join(
        el(
            "div",
            el("figure", method_figures.moves(drawn, names), key),
            el(
                "div",
                table(
                    "Top classes that move",
                    ("top class with the order kept → given up", "rows", "right before", "right after"),
                    rows,
                ),
                el("p", f"With {free} instead of the order kept.{rest}", class_="muted"),
            ),
            class_="pair",
        )
    )
