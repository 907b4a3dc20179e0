"""The page in a browser: wide and narrow, light and dark, folded and open, in print."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")

SCREENS = pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)], ids=str
)


def luminance(colour):
    channel = np.array([float(c) for c in re.findall(r"[\d.]+", colour)[:3]]) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    light, shade = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (shade + 0.05)


@SCREENS
def test_the_page_in_a_browser(report, visit, width, dark):
    seen = visit(report.to_html(), width, dark)
    assert seen["failures"] == []
    assert seen["console"] == []
    assert seen["width"] == width
    assert seen["scroll_width"] <= width, "the page must not scroll sideways"
    assert seen["headings"][0] == report.title
    assert seen["folded"]
    assert seen["height"] < (1700 if width > 1000 else 2600)  # half of what it was
    paper = seen["colours"][0][2]
    for name, ink, behind in seen["colours"]:
        assert contrast(ink, behind) >= 4.5, name
    assert (luminance(paper) < 0.1) == dark
    assert len(seen["charts"]) >= 4
    for chart in seen["charts"]:
        left, _, wide, tall = chart["box"]
        assert wide > 300
        assert tall > 100
        assert 0 <= left <= left + wide <= width
        assert contrast(chart["ink"], paper) >= 4.5
        assert min(chart["text"]) >= 8  # letters, in pixels
    curves = report.before.curve, report.after.curve
    assert seen["charts"][0]["titles"] == sum((curve.weight > 0).sum() for curve in curves)


@SCREENS
def test_the_verdict_comes_first_and_the_calibrator_can_be_saved(report, visit, width, dark):
    seen = visit(report.to_html(), width, dark)
    for words in (report.verdict.headline, report.verdict.advice, *report.verdict.details):
        assert words in seen["verdict"]["text"].replace("\u00a0", " ")
    left, top, wide, _ = seen["verdict"]["box"]
    assert top < 300
    assert 0 <= left <= left + wide <= width
    assert seen["button"] == {"shown": True, "download": "calibrator.json"}
    assert (
        abs(luminance(seen["verdict"]["edge"]) - (0.1 if dark else 0.9)) > 0.1
    )  # the edge is there to be seen


def test_wide_tables_scroll_by_themselves(report, visit):
    for table in visit(report.to_html(), 390, False)["tables"]:
        assert table["scrolls"] == "auto"
        assert table["box"][0] + table["box"][2] <= 390
        assert table["name"].removeprefix("Table: ")[:1].isupper()


def test_in_print_no_button_is_left(report, visit):
    page = report.to_html().replace("@media print", "@media all")  # what a printer is given
    seen = visit(page, 720, False)
    assert not seen["button"]["shown"]
    assert seen["verdict"]["text"].startswith("Verdict")
