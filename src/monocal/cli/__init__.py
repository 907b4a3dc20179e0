"""The command line: parse, call the library, print. One command a file.

Exit codes: 0 done; 1 something is wrong with the data, the files or the values of options; 2 wrong usage; 3 done, but a check
failed (a fit that did not converge, an order that was not kept); 130 stopped with Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Entry point of the ``monocal`` command."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, _stop)
    from importlib.util import find_spec

    if find_spec("rich") is None or find_spec("typer") is None:
        sys.exit("The monocal command needs typer and rich: run  pip install 'monocal[cli]'")
    from .app import run

    run()


def _stop(number: int, frame: FrameType | None) -> None:
    """Remove what is half-written and go, at once and quietly.

    Not by an exception: it would break modules that are just being loaded, and code that catches all of them would hide it.
    """
    signal.signal(number, signal.SIG_IGN)  # once is enough
    listed = sys.modules.get("monocal.stopping")  # where it is not loaded yet, there is nothing to undo
    getattr(listed, "undo_all", int)()
    if os.isatty(2):
        os.write(2, b"\r\x1b[K\x1b[?25h")  # no half progress bar, and the cursor is back
    os._exit(128 + number)
