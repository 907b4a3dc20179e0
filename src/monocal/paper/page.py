"""The results as a page: one sequence of blocks, written as Markdown and as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monocal.data import atomic_path

from .beside import Beside
from .curves import Picture
from .findings import Finding
from .formats import escape_markdown, to_html, to_markdown
from .tables import Table

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem 1.5rem 4rem;
  color: #1a1a1a; background: #fff; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; } h3 { margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; }
th[scope=row], td:first-child { text-align: left; font-weight: normal; }
thead th { border-bottom: 1px solid #888; text-align: right; } thead th:first-child { text-align: left; }
tfoot tr:first-child > * { border-top: 1px solid #888; }
.plain td, .plain th { text-align: left; white-space: normal; } .plain td:first-child { white-space: nowrap; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; }
figcaption, .caption { color: #555; font-size: .9rem; max-width: 48rem; }
nav a { margin-right: 1rem; }
td.pair { text-align: right !important; white-space: nowrap !important; }
.same { background: #d7efdb; } .near { background: #fbf0cd; } .different { background: #f8dcd6; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } h2 { border-color: #444; } figcaption, .caption { color: #aaa; }
  a { color: #8ab4f8; }
  .same { background: #1c4227; } .near { background: #4b3d0d; } .different { background: #55251c; }
  figure img { filter: invert(.91) hue-rotate(180deg); } /* white paper becomes the page, colours keep their hue */
}
"""


@dataclass(frozen=True)
class Page:
    """Everything a run shows."""

    title: str
    summary: Sequence[str]
    sets: Finding
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    findings: Sequence[Finding]
    published: Sequence[Beside] = ()


def write_markdown(page: Page, path: Path, figures: str) -> None:
    """Write the page as Markdown; ``figures`` is where its figures are, as seen from it."""
    parts = [f"# {escape_markdown(page.title)}", *map(escape_markdown, page.summary)]
    parts += [escape_markdown(page.sets.text), _plain_markdown(page.sets), "## Findings"]
    for finding in page.findings:
        parts += [
            f"### {escape_markdown(finding.title)}",
            escape_markdown(finding.text),
            _plain_markdown(finding),
        ]
    if page.published:
        parts.append("## Beside the published numbers")
    for beside in page.published:
        parts += [f"### {escape_markdown(beside.title)}", escape_markdown(beside.text)]
        shown = tuple((label, *(pair.text for pair in pairs), why) for label, pairs, why in beside.rows)
        parts.append(_plain_markdown(Finding(beside.title, "", beside.header, shown)))
    parts.append("## Tables")
    for table in page.tables:
        parts += [f"### {escape_markdown(table.title)}", escape_markdown(table.caption), to_markdown(table)]
    parts.append("## Figures")
    for picture in page.pictures:
        parts += [f"### {escape_markdown(picture.title)}", escape_markdown(picture.caption)]
        parts.append(f"![{escape_markdown(picture.title)}]({figures}/{picture.name}.svg)")
    _write(path, "\n\n".join(part for part in parts if part) + "\n")


def _plain_markdown(finding: Finding) -> str:
    if not finding.rows:
        return ""
    lines = [finding.header, ("---",) * len(finding.header)]
    lines += finding.rows
    return "\n".join(
        "| " + " | ".join(t if set(t) == {"-"} else escape_markdown(t) for t in line) + " |" for line in lines
    )


def write_html(page: Page, path: Path, figures: Path) -> None:
    """Write the page as one file with its figures inside."""
    escape = html.escape
    body = [f"<h1>{escape(page.title)}</h1>"]
    body += [f"<p>{escape(sentence)}</p>" for sentence in page.summary]
    parts = {"findings": "Findings", "published": "Published", "tables": "Tables", "figures": "Figures"}
    if not page.published:
        del parts["published"]
    links = (f'<a href="#{name}">{text}</a>' for name, text in parts.items())
    body.append(f"<nav>{''.join(links)}</nav>")
    body += [f"<p>{escape(page.sets.text)}</p>", _plain_html(page.sets), '<h2 id="findings">Findings</h2>']
    for finding in page.findings:
        body += [f"<h3>{escape(finding.title)}</h3><p>{escape(finding.text)}</p>", _plain_html(finding)]
    if page.published:
        body.append('<h2 id="published">Beside the published numbers</h2>')
    for beside in page.published:
        body += [f"<h3>{escape(beside.title)}</h3><p>{escape(beside.text)}</p>", _beside_html(beside)]
    body.append('<h2 id="tables">Tables</h2>')
    for table in page.tables:
        body.append(f'<h3>{escape(table.title)}</h3><p class="caption">{escape(table.caption)}</p>')
        body.append(f'<div class="scroll">{to_html(table)}</div>')
    body.append('<h2 id="figures">Figures</h2>')
    for picture in page.pictures:
        drawn = base64.b64encode((figures / f"{picture.name}.svg").read_bytes()).decode()
        body.append(
            f'<figure><h3>{escape(picture.title)}</h3><img alt="{escape(picture.title)}" '
            f'src="data:image/svg+xml;base64,{drawn}"><figcaption>{escape(picture.caption)}</figcaption></figure>'
        )
    _write(
        path,
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(page.title)}</title><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n",
    )


def _plain_html(finding: Finding) -> str:
    if not finding.rows:
        return ""
    rows = ("<tr>" + "".join(f"<td>{html.escape(t)}</td>" for t in row) + "</tr>" for row in finding.rows)
    return _plain_table(finding.header, rows)


def _beside_html(beside: Beside) -> str:
    rows = []
    for label, pairs, why in beside.rows:
        cells = (f'<td class="pair {pair.match}">{html.escape(pair.text)}</td>' for pair in pairs)
        rows.append(f"<tr><td>{html.escape(label)}</td>{''.join(cells)}<td>{html.escape(why)}</td></tr>")
    return _plain_table(beside.header, rows)


def _plain_table(header: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in header)
    return (
        f'<div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _write(path: Path, text: str) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
