"""A second Python process that computes one call at a time, and can be ended at any moment.

    with Worker() as worker:
        worker.call(function, *arguments, seconds=10)

No computation can be stopped safely from within: an exception that is thrown into it may hit a module that is half imported, and
native threads outlive it. A process can be ended. It also ends by itself when this one is gone, even by SIGKILL, because its
stdin closes then. What the caller's script defines is sent by value, so the script is not run again and needs no guard.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any

from .stopping import undone_if_stopped

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from monocal.workers import serve; serve()"


class WorkerDied(BrokenExecutor):
    """The process ended before it answered: the system ended it, or native code did."""


def packed(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A call as bytes; raises what pickling raises where something in it cannot be sent."""
    from joblib import wrap_non_picklable_objects

    return pickle.dumps(wrap_non_picklable_objects((function, arguments), keep_wrapper=False))


class Worker:
    """A process for calls, one after the other; a context manager that ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a terminal reaches every process of the session: only this one may answer it
        )
        self._reader = ThreadPoolExecutor(1)
        self._listed = ExitStack()
        self._listed.enter_context(undone_if_stopped(self._process.kill))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._reader.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # it may not have read all that was sent
                pipe.close()
        self._listed.close()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
        """``function(*arguments)``, computed there; its errors and warnings appear here.

        Raises
        ------
        TimeoutError
            It took longer than ``seconds``. The process has been ended.
        WorkerDied
            The process ended before it answered.
        """
        return self.answer(packed(function, *arguments), seconds)

    def answer(self, request: bytes, seconds: float | None = None) -> Any:
        """The answer to a `packed` call; see `call`."""
        assert self._process.stdin is not None
        try:
            _send(self._process.stdin, request)
            self._next(None)  # it has begun: starting Python is not counted
            answer = self._next(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        except TimeoutError:
            self.close()
            raise TimeoutError(f"stopped after {seconds:.1f} seconds") from None
        except (EOFError, OSError) as gone:
            self.close()
            code = self._process.returncode
            raise WorkerDied(
                f"its process was ended ({code}), most likely by the system for lack of memory"
            ) from gone
        except (
            BaseException
        ):  # an interrupt, say: what the process still has to say would answer the next call
            self.close()
            raise
        result, error, messages = pickle.loads(answer)
        for category, text in messages:
            warnings.warn(text, category, stacklevel=3)
        if error is not None:
            raise error
        return result

    def _next(self, seconds: float | None) -> Any:
        """What the process sends next, read in a thread, which a process that is ended lets go."""
        assert self._process.stdout is not None
        return self._reader.submit(pickle.load, self._process.stdout).result(seconds)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


# In the worker.


def serve() -> None:
    """Answer requests until stdin ends. What anything prints goes to stderr: stdout is for answers."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    while True:
        request = waiting.get()
        _send(answers, b"")
        _send(answers, _answer(request))


def _listen(requests: IO[bytes], waiting: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            waiting.put(pickle.load(requests))
    finally:  # there is no caller any more
        os._exit(0)


def _answer(request: bytes) -> bytes:
    """``(result, error, warnings)`` of a call, packed."""
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function, arguments = pickle.loads(request)
            result = function(*arguments)
        except BaseException as raised:  # handed to the caller
            error = _sendable(raised)
    messages = [(w.category, str(w.message)) for w in caught]
    try:
        return pickle.dumps((result, error, messages))
    except Exception as refused:
        return pickle.dumps((None, _sendable(refused), messages))


def _sendable(error: BaseException) -> BaseException:
    """The error, or one that says the same where it cannot be pickled there and back."""
    try:
        return pickle.loads(pickle.dumps(error.with_traceback(None)))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
