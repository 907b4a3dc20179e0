"""A hook of mkdocs: the tutorials as notebooks with their text, their code, and what the code gave; and a sample report.

Running the code is part of making a notebook, so that one which fails cannot be published.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # where the code of pages is read, for tests too

from page_code import BLOCK, Block, PageRun, blocks  # noqa: E402  it stands in tests

REPORT = "sample-report.html"
TUTORIALS = ("examples/digits.md", "examples/language-model.md")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A link to the notebook below the title of a tutorial."""
    if page.file.src_uri not in TUTORIALS:
        return markdown
    name = Path(page.file.src_uri).with_suffix(".ipynb").name
    title, _, rest = markdown.partition("\n")
    return f'{title}\n\n<p><a href="{name}" download>Download this page as a notebook</a>, as it ran.</p>\n{rest}'


def on_post_build(config: Any, **_: Any) -> None:
    """Run the tutorials, and write the report of ``monocal demo``."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for tutorial in TUTORIALS:
        write_notebook(docs / tutorial, (site / tutorial).with_suffix(".ipynb"))
    import monocal as mc

    digits = mc.data.digits_example()
    title = "A network that reads digits"
    mc.write_report(site / REPORT, digits.cal, digits.test, title=title, force=True)


def write_notebook(page: Path, target: Path) -> None:
    """Run the page from top to bottom and write it as an ``.ipynb`` file."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    text = page.read_text(encoding="utf-8")
    code = {block.line: block for block in blocks(text)}
    run, cells, end = PageRun(), [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for match in BLOCK.finditer(text):
            cells.append(_words(text[end : match.start()]))
            end = match.end()
            block = code.get(text.count("\n", 0, match.start()) + 1)
            if block is not None and block.kind in ("python", "console"):
                cells.append(_code(block, run, len(cells)))
            elif block is not None and block.kind != "set-up":
                cells.append(_words(match[0]))
        cells.append(_words(text[end:]))
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        },
        "cells": [{"id": f"cell-{i}", **cell} for i, cell in enumerate(filter(None, cells))],
    }
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _words(text: str) -> dict[str, Any] | None:
    """Text between blocks; links to other pages become their words, for a notebook stands alone."""
    plain = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    plain = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)(\{[^}]*\})?", "", plain).strip()
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(plain)} if plain else None


def _code(block: Block, run: PageRun, number: int) -> dict[str, Any]:
    printed = run.output(block) if block.runs else ""
    source = block.code.rstrip()
    if block.kind == "console":
        source = re.sub(r"^\$ ", "!", source, flags=re.MULTILINE)
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
    outputs += [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": picture}}
        for picture in _drawn()
    ]
    return {
        "cell_type": "code",
        "execution_count": number,
        "metadata": {},
        "source": _lines(source),
        "outputs": outputs,
    }


def _drawn() -> list[str]:
    """What the last block has drawn."""
    import matplotlib.pyplot as plt

    pictures = []
    for number in plt.get_fignums():
        out = io.BytesIO()
        plt.figure(number).savefig(out, format="png", dpi=90)
        pictures.append(base64.b64encode(out.getvalue()).decode())
    plt.close("all")
    return pictures


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
