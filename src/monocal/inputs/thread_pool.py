"""A thread pool for pieces of a few hundred microseconds.

    run_parallel(work, most):   work() on this thread, and at the same time on as many idle threads as there are, ``most`` in all

Every call of ``work`` takes pieces from one list until none is left, so it does not matter how many threads join, or how late.
The caller starts at once, and waits at the end only for threads that hold a piece. A thread that wakes after that finds nothing
to do and has delayed no one. The executors of `concurrent.futures` create a lock for every piece, and wait for all.

It is safe to call this from several threads, from inside ``work`` (the caller then works alone), after a fork (a child starts
threads of its own), and while the interpreter ends. An exception is raised when all threads have finished their pieces.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable


def run_parallel(work: Callable[[], object], most: int) -> None:
    """``work()`` on this thread and on others, ``most`` in all: returns when all have returned that began."""
    if most <= 1 or at_work():
        work()
        return
    job = _Job(work)
    try:
        _this_thread.at_work = True
        _pool.wake(job, most - 1)
        work()
    finally:
        try:
            job.close()
        finally:
            _this_thread.at_work = False
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # breaks the reference cycle between an error and its frames


def at_work() -> bool:
    """Whether this thread runs a piece of `run_parallel`: it must not wait for others."""
    return getattr(_this_thread, "at_work", False)


class _Job:
    """Work in which other threads than the caller's may take part until it is closed."""

    def __init__(self, work: Callable[[], object]):
        self._work = work
        self._lock = threading.Lock()
        self._busy = 0
        self._closed = False
        self._last_is_done = threading.Lock()
        self._last_is_done.acquire()
        self.error: BaseException | None = None  # of any of these threads

    def join(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._busy += 1
        try:
            self._work()
        except BaseException as error:
            self.error = error
        with self._lock:
            self._busy -= 1
            last = self._closed and not self._busy
        if last:
            self._last_is_done.release()

    def close(self) -> None:
        """Admit no further thread, and wait for those that run, even if interrupted: they write to shared memory."""
        interrupt: BaseException | None = None
        while not self._is_over():
            try:
                self._last_is_done.acquire()
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _is_over(self) -> bool:
        with self._lock:
            self._closed = True
            return self._busy == 0


class _ThreadPool:
    """The threads of one process."""

    def __init__(self) -> None:
        self._free: deque[_Worker] = deque()
        self._lock = threading.Lock()
        self._started = 0

    def wake(self, job: _Job, count: int) -> None:
        """Give a job to ``count`` threads, or to as many as are idle; no more than that are ever started."""
        for _ in range(count):
            worker: _Worker | None = None
            try:
                try:
                    worker = self._free.pop()
                except IndexError:
                    worker = self._start(count)
                    if worker is None:
                        return
                worker.give(job)
                worker = None
            finally:
                if worker is not None:  # an interrupt came in between: it is still idle
                    self._free.append(worker)

    def _start(self, most: int) -> _Worker | None:
        with self._lock:
            if self._started >= most:
                return None
            worker = _Worker(self._free)
            try:
                worker.start()
            except RuntimeError:  # the system has no more, or the interpreter is about to end
                return None
            self._started += 1
            return worker


class _Worker(threading.Thread):
    """Waits for a job, takes part in it, and is idle again."""

    def __init__(self, free: deque[_Worker]):
        # A daemon: while it waits, nothing is lost if the interpreter ends.
        super().__init__(name="monocal", daemon=True)
        self._free = free
        self._wake = threading.Lock()
        self._wake.acquire()
        self._job: _Job | None = None

    def give(self, job: _Job) -> None:
        self._job = job
        self._wake.release()

    def run(self) -> None:
        _this_thread.at_work = True
        while True:
            self._wake.acquire()
            job, self._job = self._job, None
            if job is not None:
                job.join()
            del job  # what it holds may be large
            self._free.append(self)


_this_thread = threading.local()
_pool = _ThreadPool()


def _reset_after_fork() -> None:
    """In a child, after a fork: only the thread that forked exists there, and it is idle."""
    global _pool
    _pool = _ThreadPool()
    _this_thread.at_work = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
