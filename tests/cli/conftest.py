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

import monocal as mc
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
def calibrator(folder: Path) -> mc.MCCT:
    """Saved as cal.json."""
    fitted = mc.MCCT().fit(CAL.values, CAL.labels)
    fitted.save("cal.json")
    return fitted


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are judged in this process, which needs no time to start."""
    monkeypatch.setattr(
        "monocal.report.trial.TimedTrial.judge", lambda self, method, seconds: self._trial.judge(method)
    )


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals that a shell lets its jobs ignore (nohup, a job in the background) end processes started here, as in a terminal."""
    before = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(folder: Path) -> Callable[..., Any]:
    """``run("fit cal.npz -o", path)``: the result of a command run in this process; text without quotes is split at spaces."""

    def invoke(command: object, *more: object, code: int = 0) -> Any:
        words = [*(command.split() if isinstance(command, str) else [str(command)]), *map(str, more)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.output
        return result

    return invoke
