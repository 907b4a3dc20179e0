"""The command line: parse, call the library, print. One command a file.

Exit codes: 0 done; 1 something is wrong with the data, the files or the values of options; 2 wrong usage; 3 done, but a check
failed (a fit that did not converge, an order that was not kept); 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from types import FrameType


def main() -> None:
    """Entry point of the ``monocal`` command."""
    # Stopped by the system like by a person: clean up what is half-written, then go.
    signal.signal(signal.SIGTERM, _stop)
    if find_spec("rich") is None or find_spec("typer") is None:
        sys.exit("The monocal command needs typer and rich: run  pip install 'monocal[cli]'")
    try:
        from .app import app

        app()
    except KeyboardInterrupt:  # before or after the command itself
        sys.exit(130)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
