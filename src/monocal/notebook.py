"""A short table for notebooks, which show ``_repr_html_`` of an object where it has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def html_table(title: str, rows: Iterable[Sequence[Any]]) -> str:
    """A table with the first cell of each row as its heading; numbers have six digits."""

    def text(value: Any) -> str:
        return escape(f"{value:.6g}" if isinstance(value, float) else str(value))

    lines = (
        f"<tr><th>{text(row[0])}</th>{''.join(f'<td>{text(value)}</td>' for value in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(lines)}</tbody></table>"
