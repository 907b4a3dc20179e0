"""What a person sees: tables that fit 80 columns with every number whole, a gloss for each metric, what is left of the time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monocal.cli.app import app
from monocal.metrics import METRICS

Run = Callable[..., Any]
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(width: int, *arguments: str) -> list[str]:
    """The lines of a command in this process, whose output says that it is a terminal of this width."""
    env = {"COLUMNS": str(width), "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}
    result = CliRunner(env=env).invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return ANSI.sub("", result.stdout).splitlines()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("width", [80, 40])
def test_compare_fits_and_cuts_no_number(folder: Path, width: int) -> None:
    few = ("compare", "cal.npz", "--test", "test.npz", "--methods", "ts,vector,ensemble", "--n-boot", "20")
    lines = on_a_terminal(width, *few)
    table = lines[1 : next(i for i, line in enumerate(lines) if line.startswith("Left out"))]
    assert "…" not in "".join(lines)
    assert width < 60 or max(len(line.rstrip()) for line in table) <= width
    row = next(line for line in table if line.lstrip().startswith("temperature scaling"))
    assert re.search(r" \d\.\d{4}\b", row)
    left = " ".join(lines[lines.index(next(line for line in lines if line.startswith("Left out"))) :])
    assert left.startswith("Left out, the terminal is narrow: ECE, 95 %; fit, s; Brier")  # in this order
    assert lines[-1].startswith("Next: monocal fit cal.npz -m ")
    wide = on_a_terminal(width, *few, "--wide")
    assert not any(line.startswith("Left out") for line in wide)
    head = next(line for line in wide if "NLL" in line)
    columns = ("NLL, 95 %", "ECE, 95 %", "Brier", "accuracy", "rows re-ordered", "fit, s")
    assert [name for name in columns if name not in head] == []


# Runs commands one after another on the terminal that it has.
ON_A_TERMINAL = """
import sys
from monocal.cli.app import app
for command in sys.argv[1:]:
    app(command.split(), standalone_mode=False)
"""


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_a_real_terminal_of_80_columns(folder: Path) -> None:
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    commands = [
        "fit cal.npz -m ts -o cal.json",
        "evaluate test.npz -c cal.json --n-boot 20 --all --explain",
        "audit test.npz -c cal.json",
        "compare cal.npz --test test.npz --methods ts,vector --n-boot 20",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, *commands],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**env, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # how a terminal ends
        pass
    os.close(ours)
    assert process.wait() == 0, shown
    lines = [line.rstrip() for line in ANSI.sub("", shown.decode()).splitlines()]
    assert "…" not in "".join(lines)
    assert any(line.lstrip().startswith("temperature scaling") for line in lines)
    tables = [
        line
        for line in lines
        if re.match(r" *[\w ]+?  +\S", line) and not re.match(r" *(Use|Next|Perfectly)", line)
    ]
    assert len(tables) > 20
    assert max(map(len, tables)) <= 80
    assert max(map(len, lines)) <= 80  # prose is wrapped
    assert lines[-1].startswith("Next: monocal fit cal.npz -m ")


def test_evaluate_shows_six_figures_and_the_rest_where_asked(run: Run) -> None:
    def names(*options: str) -> list[str]:
        lines = run("evaluate", "test.npz", "--n-boot", 20, *options).stdout.splitlines()
        return [line.split()[0] for line in lines if line.split() and line.split()[0] in METRICS]

    assert names() == ["accuracy", "nll", "brier", "ece", "classwise_ece", "smooth_ece"]
    assert "top_k_accuracy" not in names("--all")  # of five classes
    assert len(names("--all")) >= 14
    text = run("evaluate", "test.npz", "--n-boot", 20, "--explain").stdout
    assert "95 % intervals" in text
    assert f"accuracy       {METRICS['accuracy'].sentence}" in text
    assert "(p < 0.001)" in text


def test_no_time_limit(run: Run) -> None:
    text = run(
        "compare", "cal.npz", "--test", "test.npz", "--methods", "ts", "--n-boot", 0, "--time-limit", "inf"
    ).stdout
    assert text.splitlines()[-1] == "Next: monocal fit cal.npz -m temperature-scaling -o cal.json"
    assert "NLL, 95 %" not in text


@pytest.mark.usefixtures("here")
def test_the_last_line_of_compare_can_be_pasted(run: Run, folder: Path) -> None:
    os.rename("both.npz", "both parts.npz")
    names = ("--logits-name", "logits_val", "--labels-name", "y_val")
    command = ("compare", "both parts.npz", *names, "--kind", "logits")
    text = run(*command, "--methods", "mcct", "--n-boot", 0).stdout
    last = text.splitlines()[-1].removeprefix("Next: ")
    assert last == (
        "monocal fit 'both parts.npz' --kind logits --labels-name y_val --logits-name logits_val -m mcct -o cal.json"
    )
    run("fit", "both parts.npz", *names, "-m", "mcct", "-o", "cal.json")
