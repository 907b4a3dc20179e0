r"""A table as Markdown, LaTeX and HTML: the same values, bold where best, ``±`` spread where there were several runs."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable

import numpy as np

from .tables import Table

NOT_RUN = "–"
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: "\\" + sign for sign in "&%$#_{}"
}
_LATEX |= {"±": r"$\pm$", "∞": r"$\infty$", "–": "--", "†": r"$\dagger$", "‡": r"$\ddagger$", "−": "$-$"}
_LATEX |= {"≥": r"$\geq$", "≤": r"$\leq$", "<": r"$<$", ">": r"$>$"}


def number(value: float, decimals: int = 2) -> str:
    """A value as shown."""
    if math.isnan(value):
        return NOT_RUN
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))


def escape_latex(text: str) -> str:
    """Text that LaTeX shows as it is."""
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _lines(table: Table) -> list[tuple[str, list[str], list[bool]]]:
    """Every row as shown: name, texts, which are bold."""
    best = table.best()
    lines = []
    for i, name in enumerate(table.rows):
        texts = []
        for j in range(len(table.columns)):
            text = number(table.mean[i, j], table.decimals)
            if np.isfinite(table.spread[i, j]):
                text += f" ± {number(table.spread[i, j], table.decimals)}"
            texts.append(text + table.marks.get((i, j), ""))
        lines.append((name, texts, best[i].tolist()))
    for line in table.summary():
        lines.append((line.name, [number(v, line.decimals) for v in line.values], line.best.tolist()))
    return lines


def to_markdown(table: Table) -> str:
    """A Markdown table."""
    out = ["| set | " + " | ".join(map(escape_markdown, table.columns)) + " |"]
    out.append("|---|" + "---:|" * len(table.columns))
    for name, texts, bold in _lines(table):
        cells = (f"**{t}**" if b else t for t, b in zip(texts, bold, strict=True))
        out.append(f"| {escape_markdown(name)} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def to_latex(table: Table, label: str) -> str:
    """A ``table*`` with a ``tabular`` in it."""

    def row(name: str, texts: list[str], bold: list[bool]) -> str:
        cells = (
            rf"\textbf{{{escape_latex(t)}}}" if b else escape_latex(t)
            for t, b in zip(texts, bold, strict=True)
        )
        return escape_latex(name) + " & " + " & ".join(cells) + r" \\"

    lines = [row(*line) for line in _lines(table)]
    head = row("", list(table.columns), [True] * len(table.columns))
    n = len(table.rows)
    return "\n".join(
        [
            r"\begin{table*}[ht]",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\hline",
            head,
            r"\hline",
            *lines[:n],
            r"\hline",
            *lines[n:],
            r"\hline",
            r"\end{tabular}",
            rf"\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)}}}",
            rf"\label{{{label}}}",
            r"\end{table*}",
        ]
    )


def to_html(table: Table) -> str:
    """An HTML ``table``; what is below the line is in its foot."""
    escape: Callable[[str], str] = html.escape

    def row(name: str, texts: list[str], bold: list[bool]) -> str:
        cells = (
            f"<td>{'<b>' if b else ''}{escape(t)}{'</b>' if b else ''}</td>"
            for t, b in zip(texts, bold, strict=True)
        )
        return f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'

    lines = [row(*line) for line in _lines(table)]
    n = len(table.rows)
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in table.columns)
    return (
        f"<table><thead><tr><th>set</th>{head}</tr></thead>"
        f"<tbody>{''.join(lines[:n])}</tbody><tfoot>{''.join(lines[n:])}</tfoot></table>"
    )
