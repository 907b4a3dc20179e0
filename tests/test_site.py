"""The tools behind the site: formulas become MathML, and pages that load something from another site are found."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECK = runpy.run_path(str(ROOT / "tools" / "check_site.py"))
DRAW = runpy.run_path(str(ROOT / "tools" / "mathml.py"))["on_page_content"]
DISPLAY = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml")
    drawn = DRAW(
        '<p>With <span class="arithmatex">\\(a_i &lt; b\\)</span></p><div class="arithmatex">\\[\\frac{1}{n}\\]</div>'
    )
    assert "arithmatex" not in drawn
    assert drawn.count("<math ") == 2
    assert "<msub>" in drawn
    assert '<div class="formula"><math' in drawn
    assert "<mfrac>" in drawn


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_every_formula_of_the_pages_can_be_drawn(page: Path) -> None:
    convert = pytest.importorskip("latex2mathml.converter").convert
    text = page.read_text(encoding="utf-8")
    without_code = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    formulas = DISPLAY.findall(without_code)
    formulas += re.findall(r"\$([^$\n]+)\$", DISPLAY.sub("", without_code))
    for formula in formulas:
        assert "\\" not in re.sub(r"<[^>]*>", "", convert(formula)), (
            formula
        )  # a sign it does not know stays as it is written


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<script src='bundle.js'></script>", None),
        ('<a href="https://example.org">elsewhere</a>', None),
        ('<script src="https://example.org/x.js"></script>', "from another site"),
        ('<link rel="stylesheet" href="https://example.org/x.css">', "from another site"),
        ('<span class="arithmatex">\\(x\\)</span>', "was not drawn"),
    ],
)
def test_what_a_page_asks_for_is_found(tmp_path: Path, page: str, said: str | None) -> None:
    (tmp_path / "index.html").write_text(page)
    result = CHECK["complaints"](tmp_path)
    assert len(result) == (said is not None)
    assert said is None or said in result[0]


def test_the_picture_of_the_first_page_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "draw_overview.py"))
    before, after, labels = tool["data"]()
    for name in ("overview.svg", "overview-dark.svg"):
        drawn = (ROOT / "docs" / name).read_text(encoding="utf-8")
        for when, probs in {"before": before, "after": after}.items():
            assert tool["title"](when, probs, labels) in drawn, "run  python tools/draw_overview.py"


def test_a_site_without_pages_is_no_site(tmp_path: Path) -> None:
    assert "holds no page" in CHECK["complaints"](tmp_path)[0]


def test_a_search_that_finds_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here: apt-get install chromium lets the site be opened in a browser")
    search = CHECK["complaints_of_a_browser"]
    monkeypatch.setitem(search.__globals__, "WORDS", {"CSV": ["files"]})
    (tmp_path / "index.html").write_text("<!doctype html><title>x</title><p>No search here.</p>")
    assert "finds nothing" in search(tmp_path, chromium)[0]
