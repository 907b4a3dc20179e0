"""The page: sections of words, diagrams and tables in one HTML text that needs nothing else."""

from __future__ import annotations

import base64
import re
from importlib.resources import files

from ..metrics.units import count, from_to, percent
from . import error_sections, map_sections, method_sections
from .contents import Report
from .markup import Markup, el, join
from .parts import facts, section, shown_as

_MOST_EMBEDDED = 4_000_000  # characters of a calibrator file within the page


def page(report: Report) -> str:
    """The whole report."""
    sections = [
        _head(report),
        error_sections.wrong(report),
        error_sections.metrics(report),
        error_sections.margin(report),
        error_sections.groups(report),
        method_sections.methods(report),
        method_sections.price(report),
        map_sections.order(report),
        map_sections.certificate(report),
        map_sections.parameters(report),
        _load(report),
        _provenance(report),
    ]
    # Nothing may be fetched, by whatever mistake.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content=f"monocal {report.versions['monocal']}"),
        el("link", rel="icon", href="data:,"),
        el("title", report.title),
        el("style", _asset("page.css")),
    )
    tip = el("div", id="tip", role="status", hidden="hidden")
    body = el("body", el("main", *sections), tip, el("script", _asset("page.js")))
    text = f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"
    return re.sub(r"(\d) %", "\\1\u00a0%", text)  # a unit stays with its number


def _asset(name: str) -> Markup:
    return Markup(files("monocal.report").joinpath(name).read_text(encoding="utf-8"))


def _head(report: Report) -> Markup:
    rows = report.audit.all
    order = "kept" if report.audit.preserved else f"kept in {percent(1 - rows.share_inverted)}"
    two = report.n_classes == 2
    of_rows = "kept" if report.calibrator.preserves_ranking else "not guaranteed"
    cards = [
        (
            "calibration error (ECE)" + " of P(class 1)" * two,
            *_card(report, "positive_ece" if two else "ece"),
        ),
        ("NLL", *_card(report, "nll")),
        ("accuracy", *_card(report, "accuracy")),
        ("ranking of the rows (AUC)", of_rows, "by the method")
        if two
        else ("order of the classes", order, f"{count(rows.rows)} rows audited"),
    ]
    return join(
        el(
            "header",
            el("h1", report.title),
            el(
                "p",
                f"{count(report.n_cal)} rows to calibrate on, {count(report.n_classes)} classes. {report.judged_how}",
            ),
        ),
        _verdict(report),
        el(
            "ul",
            [
                el("li", el("span", name, class_="label"), el("b", value), el("small", note))
                for name, value, note in cards
            ],
            class_="cards",
        ),
    )


def _verdict(report: Report) -> Markup:
    """What to think and what to do, first of all."""
    found = report.verdict
    return el(
        "section",
        el("h2", "Verdict", id="verdict", class_="unseen"),
        el("p", found.headline, class_="headline"),
        el("p", found.advice, class_="advice"),
        el("ul", [el("li", detail) for detail in found.details]),
        _button(report),
        class_=f"verdict is-{found.state}",
        aria_labelledby="verdict",
    )


def _button(report: Report) -> Markup | None:
    """Saves the calibrator of the page."""
    if report.saved is None or len(report.saved) > _MOST_EMBEDDED:
        return None
    content = "data:application/json;base64," + base64.b64encode(report.saved.encode()).decode()
    return el(
        "p",
        el("a", "Save calibrator.json", href=content, download="calibrator.json", class_="button"),
        el("small", f"{report.shown}, {len(report.saved) / 1000:,.0f} kB"),
        class_="screen",
    )


def _card(report: Report, name: str) -> tuple[str, str]:
    text = from_to(*error_sections.before_and_after(report, name), shown_as(name)).replace(" % →", " →")
    if name in ("ece", "positive_ece"):
        return text, f"{percent(report.after.floor.median)} if it were perfect"
    return text, error_sections.told_change(report, name)


def _load(report: Report) -> Markup:
    name = type(report.calibrator).__name__
    kind = report.kind
    code = (
        "import monocal as mc\n\n"
        'cal = mc.load("calibrator.json")\n'
        f"probabilities = cal.predict_proba({kind})   # ({kind} of shape (n, {report.n_classes}))\n"
    )
    again = f'cal = mc.{name}(input="{kind}").fit({kind}, labels)\nmc.save(cal, "calibrator.json", data=({kind}, labels))\n'
    return section(
        "How to load it",
        el("p", "The button in the verdict saves the calibrator of this page.", class_="screen")
        if report.saved is not None and len(report.saved) <= _MOST_EMBEDDED
        else None,
        el("pre", el("code", code), tabindex="0"),
        el("p", "To fit and save it again:"),
        el("pre", el("code", again), tabindex="0"),
    )


def _provenance(report: Report) -> Markup:
    mark = report.fingerprint
    shape = " × ".join(f"{n:,}" for n in mark["shape"])
    known = {
        "data": report.data_name,
        "calibration rows × classes": f"{shape}, {mark['dtype']} {report.kind}",
        "fingerprint (SHA-256)": el("code", mark["sha256"]),
        "made": report.created,
        "versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    }
    notes = [el("li", note) for note in report.notes]
    return section("Where this comes from", facts(known), el("ul", notes, class_="muted") if notes else None)
