"""Data of the command line's tests, and the command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from monocal.data import synthetic

Run = Callable[..., Any]
CAL, TEST = synthetic(500, 5, seed=1), synthetic(400, 5, seed=2)


def monocal(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "monocal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def result_of(run: Run, command: str, *more: object, code: int = 0) -> Any:
    """What a command gives as JSON."""
    return json.loads(run(command, *more, "--json", code=code).stdout)
