"""Every benchmark says in ``--help`` what it does, and what each of its options is."""

import runpy
import sys
from itertools import pairwise
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_tells_what_a_benchmark_does(script, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which some of them set
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(script), run_name="__main__")
    result = capsys.readouterr().out
    text = script.read_text(encoding="utf-8").split('"""')[1]
    assert text.strip() in result
    # The help of an option stands behind it, or below it if there is no room.
    lines = [*result.splitlines(), ""]
    bare = [
        line
        for line, below in pairwise(lines)
        if line.startswith("  -") and "  " not in line.strip() and not below.startswith(" " * 10)
    ]
    assert bare == []
