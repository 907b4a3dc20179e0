"""How large the package is, and how long the way through it: one table.

    python benchmarks/size.py                 this checkout
    python benchmarks/size.py --root PATH     another checkout, for instance a git worktree of an older commit
    python benchmarks/size.py --calls         the functions on the way of a fit and a prediction, in the order of the first calls

Lines are counted after ``ruff format --line-length 100``, so that long lines do not count less. The call path is that of
``ConditionalMCCT`` on 500 x 5 logits, measured with the package of the checkout in a process of its own: functions and methods
with a name, while lambdas and comprehensions belong to the function they stand in.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from types import FrameType
from typing import Any

import pages

HERE = Path(__file__).parents[1]


def trace(work: Callable[[], Any], root: Path) -> Counter[tuple[str, str]]:
    """File and qualified name of every function below ``root`` that ``work`` calls, first calls first, and how often."""
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and not code.co_name.startswith("<") and path.is_relative_to(root):
            calls[str(path.relative_to(root)), code.co_qualname] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # None removes it
    return calls


def print_calls() -> None:
    """One line of JSON: the functions of a fit and of a prediction, and the number of calls for one row."""
    import monocal as mc
    from monocal.data import synthetic

    data, root = synthetic(500, 5, seed=0), Path(mc.__file__).parent
    model = mc.ConditionalMCCT().fit(data.values, data.labels)
    model.predict_proba(data.values)  # modules that load on first use have loaded now
    model.predict_proba(data.values[:1])
    fit = trace(lambda: model.fit(data.values, data.labels), root)
    predict = trace(lambda: model.predict_proba(data.values), root)
    one = trace(lambda: model.predict_proba(data.values[:1]), root)
    print(json.dumps([list(fit), list(predict), one.total()]))


def formatted_lines(folder: Path) -> int:
    """Lines of all Python files of a folder, formatted to 100 columns."""
    with tempfile.TemporaryDirectory() as copy:
        there = Path(copy) / "code"
        copytree(folder, there, ignore=lambda _, names: [n for n in names if n == "__pycache__"])
        ruff = [sys.executable, "-m", "ruff", "format", "-q", "--isolated"]
        subprocess.run([*ruff, "--line-length", "100", str(there)], check=True)
        return sum(len(path.read_text().splitlines()) for path in there.rglob("*.py"))


def definitions(folder: Path) -> tuple[list[str], list[str]]:
    """Names of all functions and of all classes of a folder."""
    functions, classes = [], []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(node.name)
            elif isinstance(node, ast.ClassDef):
                classes.append(node.name)
    return functions, classes


def repeated(names: list[str]) -> int:
    """How many names occur more than once."""
    return sum(count > 1 for count in Counter(names).values())


def call_path(root: Path) -> tuple[list[list[str]], list[list[str]], int]:
    """What `print_calls` prints for the package of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    command = [sys.executable, __file__, "--child"]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    fit, predict, one_row = json.loads(result.stdout)
    return fit, predict, one_row


def engine_methods(source: Path) -> int | None:
    """Methods of the class `Engine`, which is what an engine must provide; None where there is no such class."""
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name == "Engine":
                return sum(isinstance(part, ast.FunctionDef) for part in node.body)
    return None


def words(root: Path) -> int:
    """Words of README and docs, without the tables that commands write (between ``<!-- name -->`` and ``<!-- /name -->``)."""
    written = re.compile(r"^<!-- (\w+) -->$.*?^<!-- /\1 -->$", re.DOTALL | re.MULTILINE)
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    return sum(len(written.sub("", path.read_text()).split()) for path in pages)


def measure(root: Path) -> dict[str, str]:
    """The table, row by row."""
    source = root / "src" / "monocal"
    files = list(source.rglob("*.py"))
    functions, classes = definitions(source)
    names = [path.name for path in files if path.name != "__init__.py"]
    fit, predict, one_row = call_path(root)
    passed = (f"{len(calls)} / {len({file for file, _ in calls})}" for calls in (fit, predict))
    experiments = root / "experiments"
    return {
        "lines under src/, formatted to 100 columns": f"{formatted_lines(source):,}",
        "files / functions / classes": f"{len(files)} / {len(functions):,} / {len(classes)}",
        "functions / files of ConditionalMCCT().fit": next(passed),
        "functions / files of predict_proba": next(passed),
        "calls for one row": f"{one_row}",
        "methods of the engine protocol": f"{engine_methods(source)}",
        "file names / class names that occur twice": f"{repeated(names)} / {repeated(classes)}",
        "lines of tests": f"{formatted_lines(root / 'tests'):,}",
        "lines of experiments": f"{formatted_lines(experiments):,}" if experiments.is_dir() else "0",
        "words of documentation": f"{words(root):,}",
    }


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("--root", type=Path, default=HERE, help="the checkout to measure")
    parser.add_argument("--calls", action="store_true", help="list the functions of the call path instead")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print_calls()
        return
    root = options.root.resolve()
    if options.calls:
        for title, calls in zip(("fit", "predict_proba"), call_path(root), strict=False):
            print(f"\n{title}:", *(f"{file:36} {name}" for file, name in calls), sep="\n")
        return
    rows = measure(root)
    width = max(map(len, rows))
    print(*(f"{name:{width}}  {value}" for name, value in rows.items()), sep="\n")


if __name__ == "__main__":
    main()
