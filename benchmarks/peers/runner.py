"""Cells, one after another, each in a process with one thread, a time limit and a memory limit; what is done is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from .environment import ONE_THREAD
from .methods import METHODS


@dataclass(frozen=True)
class Runner:
    """Runs cells, or reads those that were run before.

    Attributes
    ----------
    folder : Path
        Where a file for every finished cell is kept, with its date and monocal's version; remove one to run it again.
    limit : float
        Seconds for a whole cell.
    memory_gb : float
        0: as much as there is.
    missing : dict
        Reason for every library that could not be installed.
    """

    folder: Path
    limit: float
    memory_gb: float
    missing: dict[str, str]

    def cell(self, name: str, n: int, m: int) -> dict[str, Any]:
        library, method = name.split("/", 1)
        row = {"library": library, "method": method, "rows": n, "classes": m}
        reason = METHODS[name].left_out(m)
        if reason:
            return row | {"failed": f"left out: {reason}"}
        if library in self.missing:
            return row | {"failed": f"not installable: {self.missing[library]}"}
        folder = self.folder / "cells" / f"{n}x{m}"
        file = folder / f"{name.replace('/', '.').replace(' ', '_')}.json"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            row |= {"date": str(date.today()), "version": metadata.version("monocal")}
            row |= self._run({"method": name, "rows": n, "classes": m}, file.with_suffix(".part"))
            file.write_text(json.dumps(row, indent=1))
        return json.loads(file.read_text())

    def _run(self, spec: dict[str, Any], part: Path) -> dict[str, Any]:
        part.unlink(missing_ok=True)
        spec |= {"file": str(part), "memory_gb": self.memory_gb}
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "peers.cell", json.dumps(spec)]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=self.limit,
                check=False,
            )
            wrong = ending(done.returncode, done.stderr)
        except subprocess.TimeoutExpired:
            wrong = f"over {self.limit:g} s"
        row: dict[str, Any] = {}
        if part.exists():
            for line in part.read_text().splitlines():
                row |= json.loads(line)
            part.unlink()
        if wrong and "failed" not in row:
            row["not_judged" if "fit" in row else "failed"] = wrong
        return row


def ending(code: int, stderr: str) -> str:
    """In words how a process ended, or nothing where it ended well."""
    if code == 0:
        return ""
    if code == -signal.SIGKILL or "bad_alloc" in stderr or "MemoryError" in stderr:
        return "out of memory"
    last = (stderr.strip().splitlines() or [""])[-1]
    return f"ended with status {code}: {last[:160]}"
