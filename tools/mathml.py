"""A hook of mkdocs: formulas, written as ``$...$`` and ``$$...$$``, become MathML, which browsers draw without a script or a
font from another site. In docs/ the pages stay readable on GitHub, which draws the same signs."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **rest: Any) -> str:
    """Called by mkdocs with the content of every page."""
    return FORMULA.sub(_as_mathml, html)


def _as_mathml(formula: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    kind = "block" if formula[2] == "[" else "inline"
    mathml = convert(unescape(formula[3]).strip(), display=kind)
    return f'<div class="formula">{mathml}</div>' if kind == "block" else mathml
