"""Run a function for a limited time: in a thread of its own, stopped at its next step in Python once the time is over."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class _Stop(BaseException):
    """Raised inside the function; no ``except Exception`` there can swallow it."""


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """``function()``, or TimeoutError once ``seconds`` are over.

    A single long call into compiled code is not interrupted: the function ends after it.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except _Stop:
            pass
        except BaseException as error:  # handed to the caller
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(seconds, 0.0))
    while thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stop))
        thread.join(1.0)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(f"stopped after {seconds:.1f} seconds")
    return results[0]
