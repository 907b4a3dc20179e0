"""A folder of files to run commands on, and a way to run them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import CAL, TEST
from typer.testing import CliRunner

from monocal.cli.app import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """cal.npz, test.npz, both.npz (four arrays), unlabelled.npz; the current folder."""
    np.savez(tmp_path / "cal.npz", logits=CAL.values, labels=CAL.labels)
    np.savez(tmp_path / "test.npz", logits=TEST.values, labels=TEST.labels)
    np.savez(tmp_path / "unlabelled.npz", logits=TEST.values)
    parts = {"logits_val": CAL.values, "y_val": CAL.labels, "logits_test": TEST.values, "y_test": TEST.labels}
    np.savez(tmp_path / "both.npz", **parts)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals that a shell lets its jobs ignore (nohup, a job in the background) end processes started here, as in a terminal."""
    before = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(folder: Path) -> Callable[..., Any]:
    """``run("fit", "cal.npz", ...)``: the result of a command run in this process."""

    def invoke(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.output
        return result

    return invoke
