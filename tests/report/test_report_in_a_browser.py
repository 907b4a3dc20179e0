"""The page in a browser: wide and narrow, light and dark, in print, by pointer and by keyboard."""

from __future__ import annotations

import re

import numpy as np
import pytest


def luminance(colour):
    channel = np.array([float(c) for c in re.findall(r"[\d.]+", colour)[:3]]) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(report, visit, width, dark):
    seen = visit(report.to_html(), width, dark)
    assert seen["failures"] == []
    assert seen["console"] == []
    assert seen["width"] == width
    assert seen["scroll_width"] <= width, "the page must not scroll sideways"
    assert seen["headings"][0] == report.title
    assert len(seen["charts"]) == report.to_html().count('class="chart"') > 6
    for chart in seen["charts"]:
        left, _, wide, tall = chart["box"]
        assert wide > 300
        assert tall > 100
        assert left >= 0
        assert left + wide <= width
        assert chart["hits"] > 1
        assert chart["stops"] == 1
    for name, ink, paper in seen["colours"]:
        light, shade = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (light + 0.05) / (shade + 0.05) >= 4.5, name
    assert (luminance(seen["colours"][0][2]) < 0.1) == dark


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_verdict_comes_first_and_saves_the_calibrator(report, visit, width, dark):
    seen = visit(report.to_html(), width, dark)["verdict"]
    for words in (report.verdict.headline, report.verdict.advice, *report.verdict.details):
        assert words in seen["text"].replace("\u00a0", " ")
    left, top, wide, _ = seen["box"]
    assert top < 300
    assert 0 <= left <= left + wide <= width
    assert seen["button"]
    assert seen["download"] == "calibrator.json"
    paper = 0.1 if dark else 0.9
    assert abs(luminance(seen["edge"]) - paper) > 0.1  # the edge is there to be seen


def test_no_column_is_off_the_phone_without_a_hint(report, visit):
    seen = visit(report.to_html(), 390, False)["tables"]
    assert any(table["cut"] for table in seen)
    for table in seen:
        assert ("More columns" in table["hint"]) == table["cut"], table["name"]
        assert table["name"].removeprefix("Table: ")[:1].isupper()


def test_in_print_nothing_is_cut_and_nothing_waits_for_a_click(report, visit):
    page = report.to_html().replace(
        "@media print", "@media all"
    )  # what a printer is given, at the width of its paper
    seen = visit(page, 720, False)
    assert not any(table["cut"] for table in seen["tables"])
    assert max(table["right"] for table in seen["tables"]) <= 720
    assert not seen["verdict"]["button"]
    assert seen["verdict"]["text"].startswith("Verdict")


def test_a_bin_tells_its_numbers_to_pointer_and_keyboard(report, visit):
    seen = visit(report.to_html(), 390, False)
    curve = report.before.curve
    bins = np.flatnonzero(curve.weight > 0)

    def numbers(k):
        return f"Confidence {curve.edges[k]:.2f} to {curve.edges[k + 1]:.2f}\n{curve.weight[k]:,.0f} rows"

    assert seen["hover"].startswith(numbers(bins[1]))
    assert seen["left"] is None
    assert seen["end"].startswith(numbers(bins[-1]))
    assert seen["before_end"].startswith(numbers(bins[-2]))
    assert seen["escaped"] is None
    left, top, wide, tall = seen["tip"]
    assert min(left, top) >= 0
    assert left + wide <= 390
    assert top + tall <= 900
