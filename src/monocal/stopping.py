"""What a stopped run must not leave behind:  ``with undone_if_stopped(action): ...``.

An error unwinds the stack, and every ``finally`` on the way cleans up. A signal must not be turned into an error: it may arrive
while a module is half imported or while native threads run, and neither survives one. So temporary files and worker processes
are listed here for as long as they exist, and a signal handler that ends the process calls `undo_all` first, then ``os._exit``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_actions: dict[object, Callable[[], object]] = {}
_owner = os.getpid()


@contextmanager
def undone_if_stopped(action: Callable[[], object]) -> Iterator[None]:
    """Call ``action`` if the process is stopped before the block ends; the block itself cleans up in all other cases."""
    key = object()
    _actions[key] = action
    try:
        yield
    finally:
        _actions.pop(key, None)


def undo_all() -> None:
    """Call what is listed, the latest first. A process that was forked lists nothing of its own."""
    if os.getpid() != _owner:
        return
    for action in reversed(list(_actions.values())):
        with contextlib.suppress(Exception):  # the others have to be called too
            action()
