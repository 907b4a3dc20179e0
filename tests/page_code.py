"""The code of a page of documentation: its blocks in order, and how each kind is run or checked.

```python               runs, all blocks of a page in one namespace and in one empty folder
```console              a line "$ monocal ..." runs in this process; any other command is checked against the repository
```text                 straight after one of these: what it prints
<!-- set-up ... -->     Python that makes the files which the commands of a page read, hidden from readers
<!-- not run: ... -->   straight before a block: why it cannot run here. "needs netcal" runs it where netcal is installed
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "console")
SHOWN = ("text", "bibtex", "csv", "json")  # for the eye
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<code>.*?)^(?P=indent)```$"
    r"|^<!-- set-up\n(?P<setup>.*?)^-->$"
    r"|^<!-- not run: (?P<reason>.+?) -->$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


@dataclass
class Block:
    """One block of code, with what the page shows below it and the reason it gives for not running it."""

    kind: str
    code: str
    line: int
    reason: str = ""
    shown: str | None = None
    shown_at: tuple[int, int] = (0, 0)  # where, in the text of the page

    @property
    def runs(self) -> bool:
        needed = re.match(r"needs (\w+)", self.reason)
        return not self.reason or bool(needed and find_spec(needed[1]))


def blocks(text: str) -> list[Block]:
    """What stands in a page, in order. A ``text`` block straight after another belongs to it."""
    result: list[Block] = []
    reason, end = "", -1
    for match in BLOCK.finditer(text):
        adjoins = not text[end : match.start()].strip() if end >= 0 else False
        end = match.end()
        if match["reason"]:
            reason = match["reason"]
            continue
        kind = "set-up" if match["setup"] is not None else match["kind"]
        code = textwrap.dedent(match["setup"] if match["setup"] is not None else match["code"])
        if kind == "text" and adjoins and result and result[-1].kind in RUN:
            result[-1].shown, result[-1].shown_at = code, match.span("code")
            continue
        result.append(Block(kind, code, text.count("\n", 0, match.start()) + 1, reason))
        reason = ""
    return result


@dataclass
class PageRun:
    """Runs the blocks of one page, one after the other, in the current folder."""

    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def output(self, block: Block) -> str:
        """What the block prints."""
        if block.kind == "console":
            return "".join(self.command(line) for line in commands(block.code))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block.code, f"<line {block.line}>", "exec"), self.namespace)
        return out.getvalue()

    def command(self, words: list[str]) -> str:
        if words[0] != "monocal":
            check(words)
            return ""
        from typer.testing import CliRunner

        from monocal.cli.app import app

        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{shlex.join(words)}: {result.output}"
        return result.stdout


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command; lines without a ``$`` are what a command prints."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            yield shlex.split(line[2:], comments=True)


def check(words: list[str]) -> None:
    """A command that a test cannot run names what is there: a target, a script and its options, an extra, a page of the site."""
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets), words
    elif program in ("python", "python3") and rest[0].endswith(".py"):
        script = (ROOT / rest[0]).read_text(encoding="utf-8")
        for option in (word.split("=")[0] for word in rest if word.startswith("--")):
            assert f'"{option}"' in script, f"{rest[0]} has no option {option}"
    elif program == "pip" or words[1:3] == ["-m", "pip"]:
        for extras in re.findall(r"\[([\w,]+)\]", " ".join(rest)):
            assert set(extras.split(",")) <= set(extras_of_the_package()), words
    else:
        assert program in ("git", "cd", "open", "source"), f"neither run nor checked: {shlex.join(words)}"


@cache
def extras_of_the_package() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"]
