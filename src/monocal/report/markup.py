"""Elements of HTML and SVG as nested calls; every plain string is escaped on its way in, so no user text becomes markup.

>>> el("p", "1 < 2", el("b", "so"), class_="note")
'<p class="note">1 &lt; 2<b>so</b></p>'
"""

from __future__ import annotations

from html import escape
from typing import Any

_VOID = frozenset({"br", "hr", "meta", "link"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def el(tag: str, *children: Any, **attributes: Any) -> Markup:
    """One element. ``class_`` means class, ``aria_label`` aria-label; None attributes and children are left out."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is not None:
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"')
    if tag in _VOID:
        return Markup("".join(parts) + ">")
    return Markup("".join(parts) + ">" + join(*children) + f"</{tag}>")


def join(*children: Any) -> Markup:
    """Children side by side, plain ones escaped, lists flattened."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(join(*child))
        elif child is not None:
            parts.append(child if isinstance(child, Markup) else escape(_plain(child)))
    return Markup("".join(parts))


def _plain(value: Any) -> str:
    """Numbers short: coordinates need two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
