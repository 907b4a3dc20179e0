"""How large the package is, and how long the way through it: one table.

    python benchmarks/size.py                 this checkout
    python benchmarks/size.py --root PATH     another checkout, for instance a git worktree of an older commit

Lines are counted after ``ruff format --line-length 100``, so that long lines do not count less. The call path is that of
``ConditionalMCCT`` on 500 x 5 logits, measured with the package of the checkout in a process of its own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from shutil import copytree

from command_line import parser_of

HERE = Path(__file__).parents[1]
PATH = """
import json, sys
sys.path.insert(0, sys.argv[1])
from call_path import called, count_calls
import monocal as mc
from monocal.data import synthetic
data = synthetic(500, 5, seed=0)
model = mc.ConditionalMCCT().fit(data.values, data.labels)
model.predict_proba(data.values), model.predict_proba(data.values[:1])
paths = called(lambda: model.fit(data.values, data.labels)), called(lambda: model.predict_proba(data.values))
one = count_calls(lambda: model.predict_proba(data.values[:1]))
print(json.dumps([len(paths[0]), len({f for f, _ in paths[0]}), len(paths[1]), len({f for f, _ in paths[1]}), one]))
"""


def formatted_lines(folder: Path) -> int:
    """Lines of all Python files of a folder, formatted to 100 columns."""
    with tempfile.TemporaryDirectory() as copy:
        there = Path(copy) / "code"
        copytree(folder, there, ignore=lambda _, names: [n for n in names if n == "__pycache__"])
        command = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "-q",
            "--isolated",
            "--line-length",
            "100",
            str(there),
        ]
        subprocess.run(command, check=True)
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


def call_path(root: Path) -> list[int]:
    """Functions and files of a fit, functions and files of a prediction, calls for one row."""
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-c", PATH, str(HERE / "benchmarks")]
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


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
    fit, fit_files, predict, predict_files, one_row = call_path(root)
    experiments = root / "experiments"
    return {
        "lines under src/, formatted to 100 columns": f"{formatted_lines(source):,}",
        "files / functions / classes": f"{len(files)} / {len(functions):,} / {len(classes)}",
        "functions / files of ConditionalMCCT().fit": f"{fit} / {fit_files}",
        "functions / files of predict_proba": f"{predict} / {predict_files}",
        "calls for one row": f"{one_row}",
        "methods of the engine protocol": f"{engine_methods(source)}",
        "file names / class names that occur twice": f"{repeated(names)} / {repeated(classes)}",
        "lines of tests": f"{formatted_lines(root / 'tests'):,}",
        "lines of experiments": f"{formatted_lines(experiments):,}" if experiments.is_dir() else "0",
        "words of documentation": f"{words(root):,}",
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--root", type=Path, default=HERE, help="the checkout to measure")
    rows = measure(parser.parse_args().root.resolve())
    width = max(map(len, rows))
    print(*(f"{name:{width}}  {value}" for name, value in rows.items()), sep="\n")


if __name__ == "__main__":
    main()
