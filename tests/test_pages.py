"""Every block of code in the README and in docs/ runs as pasted, from the top of its page to the end, and prints what is shown.

Words must be the same; numbers with decimals may differ by a tenth, since the last digits of a trained network differ from
machine to machine. After a change of the library ``python tests/test_pages.py`` writes the new outputs into the pages.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import monocal as mc
from page_code import NUMBER, PAGES, ROOT, RUN, SHOWN, PageRun, blocks

ALL = {str(page.relative_to(ROOT)): blocks(page.read_text(encoding="utf-8")) for page in PAGES}
CODE = {page: result for page, result in ALL.items() if any(block.kind in RUN for block in result)}
NOT_RUN = [(page, block) for page, result in CODE.items() for block in result if block.reason]


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    # Methods are compared in this process, and the quick ones alone: what a comparison says is tested in tests/report.
    monkeypatch.setattr(
        "monocal.report.trial.TimedTrial.judge", lambda self, method, seconds: self._trial.judge(method)
    )

    def few(kind="logits", n_classes=3, **rest):
        return {"temperature scaling": mc.TemperatureScaling(input=kind)}

    for place in ("monocal.report.comparison", "monocal.report"):
        monkeypatch.setattr(f"{place}.default_methods", few)
    yield
    pyplot.close("all")


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.parametrize("page", CODE)
def test_a_page_runs_as_pasted(page: str) -> None:
    run = PageRun()
    for block in CODE[page]:
        if block.kind in (*RUN, "set-up") and block.runs:
            got = run.output(block)
            if block.kind == "python" or block.shown is not None:
                same(got, block.shown or "", f"{page}, line {block.line}")


def same(got: str, shown: str, where: str) -> None:
    assert NUMBER.sub("#", got) == NUMBER.sub("#", shown), where
    numbers = [[float(x) for x in NUMBER.findall(text)] for text in (got, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.002), where


def test_every_block_is_of_a_known_kind() -> None:
    kinds = [(page, block.line, block.kind) for page, result in ALL.items() for block in result]
    assert [result for result in kinds if result[2] not in (*RUN, *SHOWN, "set-up")] == []


def test_few_blocks_do_not_run_and_each_says_why() -> None:
    assert len(NOT_RUN) <= 7, [(page, block.line, block.reason) for page, block in NOT_RUN]
    for _, block in NOT_RUN:
        if block.kind == "python":
            ast.parse(block.code)
        assert len(block.reason.split()) >= 2


@pytest.mark.parametrize(
    ("page", "runs"),
    [
        ("```python\nx = 1\n```\n\ntext\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n", True),
        (
            "<!-- set-up\nx = 1\n-->\n\n1. so\n\n    ```python\n    print(x)\n    ```\n\n    ```text\n    1\n    ```\n",
            True,
        ),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", False),
        ("```python\nprint(1)\n```\n", False),
        ("```python\nprint(1.0)\n```\n\n```text\n1.2\n```\n", False),
        ("<!-- not run: needs another_world -->\n\n```python\nprint(unknown)\n```\n", True),
        ("<!-- not run: needs numpy -->\n\n```python\nprint(unknown)\n```\n", False),
        ("```console\n$ monocal --version   # tells it\n```\n", True),
        ("```console\n$ monocal fit nothing.csv -o cal.json\n```\n", False),
        ("```console\n$ make nothing\n```\n", False),
        ("```console\n$ python benchmarks/speed.py --nothing\n```\n", False),
        ("```console\n$ python benchmarks/speed.py --threads 1 2\n```\n", True),
        ("```console\n$ pip install 'monocal[nothing]'\n```\n", False),
        ("```console\n$ rm -rf monocal\n```\n", False),
    ],
)
@pytest.mark.usefixtures("in_a_folder")
def test_a_block_that_lies_is_found(page: str, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODE, "page", blocks(page))
    with contextlib.nullcontext() if runs else pytest.raises((AssertionError, NameError, OSError)):
        test_a_page_runs_as_pasted("page")


def write_outputs(names: list[str]) -> None:
    """Run pages, all of them by default, and put what is printed below its block."""
    for page in [ROOT / name for name in names] or [ROOT / name for name in CODE]:
        text = page.read_text(encoding="utf-8")
        run, parts, done = PageRun(), [], 0
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for block in blocks(text):
                if block.kind not in (*RUN, "set-up") or not block.runs:
                    continue
                got = run.output(block)
                if block.shown is not None:
                    start, end = block.shown_at
                    indent = re.match(" *", text[start:])[0]
                    parts += [text[done:start], textwrap.indent(got, indent)]
                    done = end
        page.write_text("".join(parts) + text[done:], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write_outputs(sys.argv[1:]))
