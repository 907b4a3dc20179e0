"""The page: one jinja2 template, tables of texts, and displays as SVG; it needs nothing else."""

from __future__ import annotations

import base64
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import sklearn

from .. import persistence
from ..errors import MissingExtraError, require
from ..metrics import METRICS as ALL_METRICS
from ..metrics import Estimate
from ..metrics.units import count, from_to, number, percent, small
from ..plots import (
    GroupDisplay,
    MarginDisplay,
    RankParametersDisplay,
    ReliabilityDisplay,
    rank_parameters,
)
from ..plots.display import to_svg
from . import sentences as say
from .collect import METRICS, METRICS_OF_TWO, LabelReport, Report
from .comparison import UNCALIBRATED, MethodComparison, MethodResult

_MOST_EMBEDDED = 4_000_000  # characters of a calibrator file within the page
_NAMES = {
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "positive_ece": "ECE of P(class 1)",
    "positive_brier": "Brier score of P(class 1)",
    "adaptive_ece": "ECE, bins of equal mass",
    "classwise_ece": "class-wise ECE",
    "accuracy": "accuracy",
}


def page(report: Any) -> str:
    """The whole report."""
    jinja2 = require("jinja2", "cli")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("monocal.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": percent, "number": number, "count": count, "small": small}
    displays = (ReliabilityDisplay, MarginDisplay, GroupDisplay, RankParametersDisplay)
    environment.globals |= {one.__name__: one for one in displays}
    environment.globals |= {"chart": _chart, "from_to": from_to, "percent": percent, "number": number}
    many = isinstance(report, LabelReport)
    content = (report.saved or "").encode()
    text: str = environment.get_template("page.html").render(
        report=report,
        cal=report.cal,
        verdict=report.verdict,
        name=type(report.calibrator).__name__,
        file=base64.b64encode(content).decode() if len(content) <= _MOST_EMBEDDED else "",
        fingerprint=persistence.fingerprint(report.cal.values, report.cal.labels),
        settings=report.calibrator.get_params(deep=False),
        versions=_versions(),
        many=many,
        **({} if many else _of_classes(report)),
    )
    return text.replace(" %", "\u00a0%")  # a unit stays with its number


def _versions() -> str:
    from .. import __version__

    libraries = [f"{lib.__name__} {lib.__version__}" for lib in (np, scipy, sklearn)]
    return ", ".join([f"monocal {__version__}", *libraries, f"Python {platform.python_version()}"])


def _chart(display: Any, name: str, **options: Any) -> Any:
    """The display on the page; without matplotlib, how to install it."""
    from markupsafe import Markup

    try:
        return Markup(to_svg(display, name, **options))
    except MissingExtraError as error:
        return f"{name} is left out. {error}"


def _of_classes(report: Report) -> dict[str, Any]:
    """What the template needs besides the report, where a row has one label."""
    two, methods, calibrator = report.cal.n_classes == 2, report.methods, report.calibrator
    parameters = None
    if not two and getattr(calibrator, "rank_map_", None) is not None and not report.context:
        parameters = rank_parameters(calibrator, report.cal.values)
    return {
        "two": two,
        "claim": "P(class 1)" if two else "confidence",
        "kept": "frequency of class 1" if two else "accuracy",
        "vetoed": methods is not None and methods.asked is None and methods.recommended == UNCALIBRATED,
        "what_is_wrong": say.what_is_wrong,
        "curves": {"before": report.before.curve, "after": report.after.curve},
        "by_margin": {"before": report.before.margin, "after": report.after.margin},
        "metrics": _metric_rows(report, METRICS_OF_TWO if two else METRICS),
        "method_rows": [] if methods is None else _method_rows(report, methods),
        "recommendation": methods and say.recommendation(methods),
        "parameters": parameters,
        "ranking": _ranking(calibrator.preserves_ranking, report.context),
    }


def _shown_as(name: str) -> Callable[[float], str]:
    """How the values of a metric are written: scores with four decimals, shares in per cent."""
    return number if name in ("nll", "brier", "positive_brier") else percent


def _metric_rows(report: Report, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """By metric: its title, before and after with intervals, both in one text, and whether it changed."""
    rows = {}
    for name in names:
        old, new = (side.evaluation[name] for side in (report.before, report.after))
        show, better = _shown_as(name), ALL_METRICS[name].higher_is_better
        rows[name] = {
            "title": _NAMES[name],
            "before": _with_interval(name, old),
            "after": _with_interval(name, new),
            "text": from_to(old.value, new.value, show).replace(" % →", " →"),
            "change": say.change_in_words(old.value, new.value, show, report.changes.get(name), better),
        }
    return rows


def _with_interval(name: str, estimate: Estimate) -> tuple[str, str]:
    show = _shown_as(name)
    if estimate.low is None or estimate.high is None or not np.isfinite(estimate.value):
        return show(estimate.value), "no interval" if estimate.reason else ""
    return show(estimate.value), f"{show(estimate.low)} – {show(estimate.high)}".replace(" % –", " –")


def _method_rows(report: Report, methods: MethodComparison) -> list[tuple[MethodResult, tuple[Any, ...]]]:
    """Each method that was judged, and its cells."""
    # One interval for one number: that of the other table.
    sides = {UNCALIBRATED: report.before.evaluation, report.shown: report.after.evaluation}
    names = "nll", "positive_ece" if methods.two else "ece", "accuracy"
    comparable = report.shown in [one.name for one in methods.judged]
    rows = []
    for one in methods.judged:
        evaluation = sides.get(one.name, one.evaluation)
        assert evaluation is not None
        figures = [_with_interval(name, evaluation[name]) for name in names]
        difference: Any = "–"
        if comparable and one.name != report.shown:
            d = methods.difference(one.name, report.shown)
            difference = number(d.mean), f"{number(d.low)} – {number(d.high)}"
        seconds = "–" if one.audit is None else f"{one.seconds:.2f} s"
        rows.append((one, (*figures, difference, _order(report, one), seconds)))
    return rows


def _order(report: Report, one: MethodResult) -> str:
    """What a method guarantees for the order of the rows (two classes), or did to that of the classes."""
    if report.cal.n_classes == 2:
        context = report.context and one.name == report.shown
        return f"ranking {_ranking(one.keeps_order, context)}"
    if one.audit is None:
        return "–"
    if not one.audit.preserved:
        return f"changed in {percent(one.audit.all.share_inverted)}"
    return "kept" if one.keeps_order else "kept here"


def _ranking(kept: bool, context: bool) -> str:
    """Groups that are the context of a method may pass one another."""
    return "not guaranteed" if not kept else "kept within each group" if context else "kept"
