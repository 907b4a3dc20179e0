"""Judge methods for a limited time each, in a process beside this one, which is ended when the time is over.

The rows are sent once; a process that had to be ended is replaced, and gets them again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..workers import Worker, WorkerDied, packed
from .trial import Judged, Trial


class TimedTrial:
    """``judge(method, seconds)`` as `Trial.judge`, without the fitted model; a context manager.

    A method that cannot be pickled is judged in this process, where nothing can stop it.

    Attributes
    ----------
    starting : float
        Seconds that went into starting processes, which are no method's.
    ended : bool
        Whether a process had to be ended, so that the next method has to wait for a new one.
    """

    def __init__(self, trial: Trial):
        self.starting = 0.0
        self.ended = False
        self._trial = trial
        self._worker: Worker | None = None

    def __enter__(self) -> TimedTrial:
        return self

    def __exit__(self, *rest: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def judge(self, method: Any, seconds: float) -> Judged:
        """What the method does to the rows to judge on, or TimeoutError once ``seconds`` are over."""
        try:
            request = packed(_judge, method)
        except Exception:  # pickling anybody's class may raise anything
            return self._trial.judge(method)
        try:
            return self._ready().answer(request, seconds)
        except (
            TimeoutError,
            WorkerDied,
        ):  # a method may raise TimeoutError, too: then the process is still there
            if self._worker is not None:
                self._worker.close()
            self._worker = None
            self.ended = True
            raise

    def _ready(self) -> Worker:
        if self._worker is None:
            begin = time.perf_counter()
            worker = Worker()
            worker.call(_keep, self._trial)
            self._worker = worker
            self.ended = False
            self.starting += time.perf_counter() - begin
        return self._worker


# In the worker.

_kept: list[Trial] = []


def _keep(trial: Trial) -> None:
    _kept[:] = [trial]


def _judge(method: Any) -> Judged:
    return replace(_kept[0].judge(method), model=None)
