"""A display as SVG for a page: text stays text, colours follow the style of the page, markers tell their numbers.

matplotlib draws; each colour of the library becomes a CSS variable with that colour as its fallback, and the texts that displays
attach to their markers become ``<title>`` elements, which browsers show when the pointer is over them.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

from .display import AFTER, BAND, BEFORE, GRID, LINE, SERIES, pyplot

_VARIABLES = {
    BEFORE: "before",
    AFTER: "after",
    BAND: "band",
    LINE: "soft",
    GRID: "faint",
    SERIES[2]: "good",
    SERIES[3]: "third",
    SERIES[4]: "fourth",
    "#000000": "ink",
    "#262626": "ink",
    "#ffffff": "paper",
}
_NAMELESS = (
    r' id="(?:figure|axes|patch|line2d|text|matplotlib\.axis|xtick|ytick|legend|[A-Za-z]*Collection)_?\d*"'
)


def to_svg(display: Any, name: str, size: tuple[float, float] | None = None, **options: Any) -> str:
    """The figure of a display as one ``<svg>`` element.

    Parameters
    ----------
    display : Display
    name : str
        What a screen reader says of it.
    size : (width, height), optional
        Inches; those of the display if not given.
    **options
        Of its ``plot``.
    """
    plt = pyplot()
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": True}):
        ax = None if size is None else plt.subplots(figsize=size, layout="constrained")[1]
        figure = display.plot(ax, **options).figure_
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return _for_page(out.getvalue(), name)


def _for_page(text: str, name: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    size = re.search(r'viewBox="([^"]*)"', text)
    assert size is not None
    head = f'<svg class="chart" role="img" aria-label="{escape(name)}" viewBox="{size[1]}">'
    text = head + text[text.index(">") + 1 :]
    text = re.sub(_NAMELESS, "", text).replace("xlink:href", "href")
    text = re.sub(r'<g id="tip:([^"]*)">(.*?)</g>', _with_titles, text, flags=re.DOTALL)
    text = re.sub("#[0-9a-f]{6}", lambda colour: _variable(colour[0]), text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    return re.sub(r"\s*\n\s*", "\n", text)


def _variable(colour: str) -> str:
    return f"var(--{_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour


def _with_titles(group: re.Match[str]) -> str:
    """The k-th marker gets the k-th text."""
    texts = iter(group[1].split("|"))

    def marker(use: re.Match[str]) -> str:
        return f"<use{use[1]}><title>{next(texts, '')}</title></use>"

    return f'<g class="tips">{re.sub(r"<use([^>]*)/>", marker, group[2])}</g>'
