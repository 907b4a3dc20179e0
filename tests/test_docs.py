"""The documentation says what is true: examples in docstrings run, names and commands are complete. For pages: test_pages.py."""

from __future__ import annotations

import ast
import doctest
import importlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import monocal as mc

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(mc.__file__).parent


def examples_in_docstrings() -> list[Any]:
    """Docstrings with examples, found in the source, so that decorators hide none."""
    result = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node) or ""
                if re.search(r"^\s*>>> ", text, re.MULTILINE):
                    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                    name = f"{module}:{getattr(node, 'name', '')}"
                    result.append(pytest.param(module.removesuffix(".__init__"), text, id=name))
    return result


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
    result = io.StringIO()
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(test, out=result.write)
    assert test.examples
    assert not result.getvalue(), result.getvalue()


def test_readme_names_the_commands_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([\w-]+)", readme))
    assert {"demo", "test", "docs"} <= named <= targets


def test_the_extras_are_listed() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"docs", "test"}
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").split("| extra |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == extras
    line = re.search(
        r"\[Extras\]\(docs/install\.md\): (.*)\.", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert line
    assert set(re.findall(r"`(\w+)`", line[1])) == extras - {"all"}


def test_pages_name_the_wheel_of_this_version() -> None:
    for page in ("README.md", "docs/install.md"):
        named = set(
            re.findall(r"monocal-([\d.]+)-py3-none-any\.whl", (ROOT / page).read_text(encoding="utf-8"))
        )
        assert named == {mc.__version__}


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_changelog_has_this_version() -> None:
    assert f"## [{mc.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
