"""The built documentation works without a network, shows maths as maths, and has its tutorials as notebooks that ran.

`make docs` builds it and makes the same checks of the whole site (tools/site_hooks.py).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
pytest.importorskip("mkdocs")
pytest.importorskip("latex2mathml")

from maths import with_mathml  # noqa: E402
from notebooks import TUTORIALS, write_notebook  # noqa: E402
from site_hooks import what_is_fetched  # noqa: E402


def test_formulas_become_mathml_and_code_stays() -> None:
    page = "Let $`x_i \\ge 0`$.\n\n```math\n\\sum_i x_i^2\n```\n\n```python\ncost = '$`x`$'\n```\n\nIt costs $5 to $6.\n"
    made = with_mathml(page)
    assert made.count("<math") == 2
    assert "<msubsup>" in made or "<munder>" in made or "<mo>&#x02211;</mo>" in made
    assert "cost = '$`x`$'" in made
    assert "It costs $5 to $6." in made
    assert "\\ge" not in made


@pytest.mark.parametrize(
    ("html", "fetches"),
    [
        ('<script src="https://cdn.example/x.js"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', True),
        ("<img src=https://example.org/x.png>", True),
        (
            '<a href="https://example.org">elsewhere</a><link rel="canonical" href="https://example.org/x">',
            False,
        ),
        (
            '<script src="assets/x.js"></script><img src="data:image/png;base64,AA"><img src="../x.svg">',
            False,
        ),
    ],
)
def test_what_comes_from_elsewhere_is_found(html: str, fetches: bool, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    assert bool(what_is_fetched(tmp_path)) == fetches


def test_the_site_searches_from_the_disk() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"plugins:\n  - search\n  - offline", settings)
    assert "use_directory_urls: false" in settings
    assert "font: false" in settings
    (script,) = re.findall(r"polyfills: \[(\S+)\]", settings)
    assert (ROOT / "docs" / script).exists()


def test_a_frame_does_the_work_of_a_worker(tmp_path: Path) -> None:
    """What search needs of a page that was opened from the disk: a script beside it that takes messages and answers."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium here: apt-get install chromium lets the page be opened in a browser")
    shutil.copy(ROOT / "docs" / "style" / "iframe-worker.js", tmp_path)
    (tmp_path / "more.js").write_text("var factor = 3")
    (tmp_path / "worker.js").write_text(
        "addEventListener('message', async (e) => { await importScripts('more.js'); postMessage(factor * e.data) })"
    )
    (tmp_path / "page.html").write_text(
        "<body><pre></pre><script src=iframe-worker.js></script><script>const w = new Worker('worker.js');"
        "w.addEventListener('message', (e) => document.querySelector('pre').textContent += e.data + ' ');"
        "w.postMessage(14); w.postMessage(5)</script></body>"
    )
    run = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=3000", "--dump-dom", (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert sorted(re.search(r"<pre>(.*?)</pre>", run.stdout)[1].split()) == ["15", "42"]


def test_a_page_becomes_a_notebook_with_what_it_gave(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nSee [metrics](../metrics.md).\n\n```python\nx = 2\nprint(x + 1)\n```\n\n```text\n3\n```\n\n"
        "```python\nimport matplotlib.pyplot as plt\nplt.plot([x, 1])\n```\n\nEnd.\n",
        encoding="utf-8",
    )
    write_notebook(page, tmp_path / "page.ipynb")
    cells = json.loads((tmp_path / "page.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code", "markdown"]
    assert "".join(cells[0]["source"]).endswith("See metrics.")
    assert cells[1]["outputs"][0]["text"] == ["3\n"]
    assert "image/png" in cells[2]["outputs"][0]["data"]
    page.write_text("# Title\n\n```python\nraise ValueError('no')\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no"):
        write_notebook(page, tmp_path / "page.ipynb")


def test_the_tutorials_are_there() -> None:
    assert len(TUTORIALS) >= 2
    for tutorial in TUTORIALS:
        assert "```python" in (ROOT / "docs" / tutorial).read_text(encoding="utf-8")
