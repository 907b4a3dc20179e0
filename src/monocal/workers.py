"""A second Python process that computes one call at a time, and can be ended at any moment.

    with Worker() as worker:
        worker.call(function, *arguments, seconds=10)

No computation can be stopped safely from within: an exception that is thrown into it may hit a module that is half imported, and
native threads outlive it. A process can be ended. It also ends by itself when this one is gone, even by SIGKILL, because its
stdin closes then.

Requests and answers are pickles, each after its length in 8 bytes. What the caller's script defines is sent by value, so the
script is not run again and needs no guard.
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
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from typing import IO, Any

from .stopping import undone_if_stopped

# Read by numerical libraries when they are loaded.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from monocal.workers import serve; serve()"


class WorkerDied(BrokenExecutor):
    """The process ended before it answered: the system ended it, or native code did."""


def packed(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A call as bytes; raises what pickling raises where something in it cannot be sent."""
    from joblib import wrap_non_picklable_objects

    return pickle.dumps(wrap_non_picklable_objects((function, arguments), keep_wrapper=False))


class Worker:
    """A process for calls, one after the other; a context manager that ends it.

    Parameters
    ----------
    threads : int, optional
        How many threads numerical libraries may use there. Results then do not depend on the number of cores.
    """

    def __init__(self, threads: int | None = None):
        limits = {} if threads is None else dict.fromkeys(_THREADS, str(threads))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **limits},
            start_new_session=True,  # Ctrl-C at a terminal reaches every process of the session: only this one may answer it
        )
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
        lock, state = threading.Lock(), {"answered": False, "late": False}

        def end() -> None:
            with lock:
                if not state["answered"]:
                    state["late"] = True
                    self._process.kill()

        timer = threading.Timer(min(seconds or 0.0, threading.TIMEOUT_MAX), end)
        timer.daemon = True
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, request)
            _receive(self._process.stdout)  # it has begun: starting Python is not counted
            if seconds is not None:
                timer.start()
            answer = _receive(self._process.stdout)
            with lock:
                state["answered"] = True
        except (EOFError, OSError) as gone:
            self.close()
            if not state["late"]:
                code = self._process.returncode
                raise WorkerDied(
                    f"its process was ended ({code}), most likely by the system for lack of memory"
                ) from gone
        except (
            BaseException
        ):  # an interrupt, say: what the process still has to say would answer the next call
            self.close()
            raise
        finally:
            timer.cancel()
        if state["late"]:
            self.close()
            raise TimeoutError(f"stopped after {seconds:.1f} seconds")
        result, error, messages = pickle.loads(answer)
        for category, text in messages:
            warnings.warn(text, category, stacklevel=3)
        if error is not None:
            raise error
        return result


# In the worker.


def serve() -> None:
    """Answer requests until stdin ends. What anything prints goes to stderr: stdout is for answers."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    while True:
        request = waiting.get()
        _send(answers, b"")
        _send(answers, _answer(request))


def _listen(requests: IO[bytes], waiting: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            waiting.put(_receive(requests))
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


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "big"))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    return _exactly(pipe, int.from_bytes(_exactly(pipe, 8), "big"))


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    message = pipe.read(count)
    if len(message) < count:
        raise EOFError
    return message
