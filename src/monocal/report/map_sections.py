"""Sections of the page about the map: the order it keeps, its certificate, and what it does."""

from __future__ import annotations

from typing import Any

from ..metrics.units import count, number, small
from . import figures, words
from .contents import Report
from .markup import Markup, el
from .parts import details, facts, section, table


def order(report: Report) -> Markup:
    """What became of the order of the classes."""
    audit = report.audit
    parts = (
        ("all rows", audit.all),
        (f"uncertain rows (top confidence below {audit.uncertain_below:g})", audit.uncertain),
    )
    rows = [
        (
            name,
            count(part.rows),
            count(part.rows_inverted),
            count(part.inverted_pairs),
            count(part.top1_changed),
            count(part.ties_broken),
            count(part.ties_made),
        )
        for name, part in parts
    ]
    head = (
        "",
        "rows",
        "rows with an inversion",
        "inverted pairs",
        "top class changed",
        "ties broken",
        "ties made",
    )
    told = words.order_in_words(audit, report.calibrator.preserves_order)
    return section("Order of the classes", el("p", " ".join(told)), table("Changes of the order", head, rows))


def certificate(report: Report) -> Markup | None:
    """How far the fit is from the optimum; None where nothing says so."""
    solution = report.solution
    if solution is None:
        return None
    known = {
        "largest violation of the optimality conditions": small(solution.kkt),
        "distance from the optimum at most": small(solution.duality_gap),
        "objective": number(solution.objective),
        "iterations": count(solution.n_iter),
    }
    shrinkage = getattr(report.calibrator, "shrinkage_", None)
    if shrinkage:
        known["shrinkage towards temperature scaling"] = f"{shrinkage:g}"
    return section(
        "Certificate",
        el("p", words.certificate_in_words(solution, getattr(report.calibrator, "tol", None))),
        facts(known),
    )


def parameters(report: Report) -> Markup:
    """What the map does to a row, and its parameters."""
    change = el(
        "figure",
        figures.confidence(report.confidence),
        el(
            "figcaption",
            None
            if report.confidence.one_curve
            else "The line is the median of rows alike in confidence; the shade holds the middle 80 % of them.",
        ),
    )
    told = [el("p", words.confidence_in_words(report.confidence))]
    shown = report.parameters
    if shown is None or report.n_classes == 2:  # with two classes the one curve is all there is
        if shown is not None and shown.constant_from == 1 and not shown.varies:
            told += [el("p", sentence) for sentence in words.parameters_in_words(shown)]
        inside: list[Any] = []
    else:
        told += [el("p", sentence) for sentence in words.parameters_in_words(shown)]
        inside = _by_rank(report)
    if report.explanation:
        inside.append(details("What each part does", el("pre", el("code", report.explanation), tabindex="0")))
    settings = {name: repr(value) for name, value in report.calibrator.get_params(deep=False).items()}
    return section(
        "What it does",
        el("div", change, el("div", told), class_="pair"),
        *inside,
        details("Settings of the calibrator", facts(settings)),
    )


def _by_rank(report: Report) -> list[Any]:
    """Weights and biases by rank, and what they depend on; only what there is to see."""
    shown = report.parameters
    assert shown is not None
    children: list[Any] = []
    if shown.constant_from > 1 or shown.varies:
        drawn = [el("figure", figures.by_rank(shown, which)) for which in ("weight", "bias")]
        children += [el("h3", "Correction by rank"), el("div", drawn, class_="pair")]
        if shown.varies:
            children.append(
                el(
                    "p",
                    "Lines are means over the calibration rows; the shade holds the middle 80 % of them.",
                    class_="muted",
                )
            )
    pieces = [
        (
            f"{first:,}" if first == last else f"{first:,} to {last:,}",
            number(weight),
            number(bias),
        )
        for first, last, weight, bias in shown.pieces()
    ]
    if len(pieces) > 1 or shown.varies:
        head = ("rank from the top", "weight", "bias")
        children.append(
            details("Weights and biases as a table", table("Weights and biases by rank", head, pieces))
        )
    for curve in report.effects:
        drawn = [
            el("figure", figures.effect(curve, which)) for which in ("weight", "bias") if curve.varies(which)
        ]
        name = curve.statistic.replace("_", " ")
        if drawn:
            children += [
                el("h3", f"Correction of the top ranks against the {name}"),
                el("div", drawn, class_="pair"),
            ]
    return children
