"""The documentation says what is true: its examples run and print what is shown, names and commands are complete.

In README and the example pages every ``python`` block runs, in order and in one namespace, and a ``text`` block after it is
what it prints. Words must be the same; numbers with decimals may differ by a tenth, since the last digits of a trained
network differ from machine to machine. After a change of the library ``python tests/test_docs.py`` writes the new outputs.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import monocal as mc

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(mc.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "examples").glob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<shown>.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


def printed(code: str, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, namespace)
    return out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_print_what_is_shown(page: Path) -> None:
    namespace: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(page.read_text(encoding="utf-8")))
    assert any(block["shown"] for block in blocks)
    for block in blocks:
        got = printed(block["code"], namespace)
        shown = block["shown"] or ""
        assert NUMBER.sub("#", got) == NUMBER.sub("#", shown)
        numbers = [[float(x) for x in NUMBER.findall(text)] for text in (got, shown)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.002)


def examples_in_docstrings() -> list[Any]:
    """Docstrings with examples, found in the source, so that decorators hide none."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node) or ""
                if re.search(r"^\s*>>> ", text, re.MULTILINE):
                    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                    name = f"{module}:{getattr(node, 'name', '')}"
                    found.append(pytest.param(module.removesuffix(".__init__"), text, id=name))
    return found


@pytest.mark.parametrize(("module", "text"), examples_in_docstrings())
def test_docstring_examples_run(
    module: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    for extra in ("torch", "pandas"):
        if extra in text:
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    names = dict(vars(importlib.import_module(module)))
    test = doctest.DocTestParser().get_doctest(text, names, "example", None, None)
    told = io.StringIO()
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(test, out=told.write)
    assert test.examples
    assert not told.getvalue(), told.getvalue()


def test_readme_names_the_commands_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([\w-]+)", readme))
    assert {"demo", "test", "docs"} <= named <= targets


def test_readme_lists_the_extras() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| extra |")[1].split("\n\n")[0]
    listed = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert listed == set(project["optional-dependencies"]) - {"docs", "test"}


def test_every_command_is_described() -> None:
    typer = pytest.importorskip("typer")
    from monocal.cli.app import app

    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands
    assert len(commands) >= 9
    for name in commands:
        assert f"\n## {name}\n" in page
        assert f"monocal {name}" in page


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_changelog_has_this_version() -> None:
    assert f"## [{mc.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def write_outputs() -> None:
    for page in PAGES:
        namespace: dict[str, Any] = {}

        def shown(block: re.Match[str], namespace: dict[str, Any] = namespace) -> str:
            got = printed(block["code"], namespace)
            if block["shown"] is None:
                return block[0]
            return f"```python\n{block['code']}```\n\n```text\n{got}```"

        page.write_text(BLOCK.sub(shown, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write_outputs())
