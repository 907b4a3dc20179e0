"""Data of the command line's tests, and the command in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from monocal.data import synthetic

CAL, TEST = synthetic(500, 5, seed=1), synthetic(400, 5, seed=2)


def monocal(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "monocal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)
