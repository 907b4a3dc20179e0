"""The command as a whole: help, documentation, version, start-up time, and the package without its extra."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_helpers import monocal

import monocal as mc
from monocal.cli.app import app

Run = Callable[..., Any]
COMMANDS = typer.main.get_command(app).commands
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_all_commands_are_there() -> None:
    assert set(COMMANDS) == {
        "fit",
        "apply",
        "evaluate",
        "compare",
        "report",
        "check",
        "audit",
        "review",
        "monitor",
        "export",
        "demo",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help_and_documentation(run: Run, name: str) -> None:
    text = run(name, "--more").stdout
    short = run(name, "--help").stdout
    assert ("More options:" in short) == (len(short) < len(text))
    command = COMMANDS[name]
    assert len(command.get_short_help_str(60)) > 20
    assert "..." not in command.get_short_help_str(60)
    page = PAGE.read_text()
    assert f"## {name}\n" in page
    for parameter in command.params:
        assert parameter.name == "help" or parameter.help, parameter.name
        if parameter.param_type_name == "option" and parameter.name != "help":
            assert parameter.opts[0] in text
            assert parameter.opts[0] in page, f"{parameter.opts[0]} of {name} is not in docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_results_has_json(name: str) -> None:
    assert "--json" in [option for parameter in COMMANDS[name].params for option in parameter.opts]


def test_help_tells_the_exit_codes(run: Run) -> None:
    text = " ".join(run("--help").stdout.split())
    assert "0 done; 1 something is wrong" in text
    assert "130 stopped with Ctrl-C" in text


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"monocal {mc.__version__}\n"


def test_help_is_light() -> None:
    """What takes long is loading modules; how long depends on the machine."""
    script = (
        "import sys, atexit\n"
        "sys.argv = ['monocal', '--help']\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'scipy', 'matplotlib', 'pandas', 'onnx', 'dask'}\n"
        "atexit.register(lambda: print('LOADED', sorted(heavy & set(sys.modules)), len(sys.modules)))\n"
        "from monocal.cli import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    loaded, _, count = done.stdout.splitlines()[-1].rpartition(" ")
    assert loaded == "LOADED []"
    assert int(count) < 500  # typer and rich are most of them


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from monocal.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "The monocal command needs typer and rich: run  pip install 'monocal[cli]'"


def test_commands_do_not_load_torch(folder: Path) -> None:
    script = (
        "import sys\n"
        "from monocal.cli.app import app\n"
        "for arguments in (['fit', 'cal.npz', '-o', 'cal.json'], ['apply', 'cal.json', 'test.npz', '-o', 'p.npz'],\n"
        "                  ['evaluate', 'test.npz', '-c', 'cal.json', '--n-boot', '0'], ['audit', 'test.npz', 'p.npz']):\n"
        "    app(arguments, standalone_mode=False)\n"
        "assert not {'torch', 'matplotlib', 'dask', 'onnx'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_module_is_the_command() -> None:
    assert monocal("--version").stdout == f"monocal {mc.__version__}\n"
