"""Pages become notebooks that hold what their code gave; `make docs` makes those of the tutorials and a sample report."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))


def test_a_page_becomes_a_notebook_with_what_it_gave(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nSee [metrics](../metrics.md).\n\n```python\nx = 2\nprint(x + 1)\n```\n\n```text\n3\n```\n\n"
        "```python\nimport matplotlib.pyplot as plt\nplt.plot([x, 1])\n```\n\nEnd.\n",
        encoding="utf-8",
    )
    TOOL["write_notebook"](page, tmp_path / "page.ipynb")
    notebook = json.loads((tmp_path / "page.ipynb").read_text(encoding="utf-8"))
    cells = notebook["cells"]
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code", "markdown"]
    assert "".join(cells[0]["source"]).endswith("See metrics.")
    assert cells[1]["outputs"][0]["text"] == ["3\n"]
    assert "image/png" in cells[2]["outputs"][0]["data"]
    page.write_text("# Title\n\n```python\nraise ValueError('no')\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no"):
        TOOL["write_notebook"](page, tmp_path / "page.ipynb")


def test_the_tutorials_are_there_and_the_hook_is_used() -> None:
    assert "tools/notebooks.py" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for tutorial in TOOL["TUTORIALS"]:
        assert "```python" in (ROOT / "docs" / tutorial).read_text(encoding="utf-8")
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert f'href="{TOOL["REPORT"]}"' in gallery
