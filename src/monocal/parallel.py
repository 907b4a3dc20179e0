"""Work on rows block by block, on threads: bounded memory, whatever the number of classes.

    run_parallel(work, most)      work() on this thread, and at the same time on idle ones, ``most`` in all
    parallel_sum(f, items)        f(item) added up from first to last: the same bits on any number of threads

Every call of ``work`` takes pieces from one list until none is left. So the caller begins at once, and waits at the end only for
threads that hold a piece. numpy and compiled loops release the interpreter's lock. BLAS uses only the thread that calls it.

All this is safe from several threads at once, from inside ``work`` (the caller then works alone) and after a fork. numba's own
threads are not: ``fork`` after OpenMP ends a process, and its other pool admits one caller at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial, reduce
from itertools import chain, count, islice
from operator import add
from typing import Any, TypeVar

import numpy as np
import threadpoolctl

from .arrays import Array, array_namespace, device_of, is_torch, on_host

T = TypeVar("T")

# Elements of a block: small enough for the cache of one core, large enough to amortise the cost of the calls.
CPU_BLOCK = 2**18
GPU_BLOCK = 2**26
# Terms of a sum that each thread computes before they are added up.
_TERMS = 16


# How rows are cut.


def block_rows(logits: Array) -> int:
    """Rows of a block for an array like this."""
    return rows_of_size(CPU_BLOCK if on_host(logits) else GPU_BLOCK, logits.shape[1])


def rows_of_size(elements: int, n_classes: int) -> int:
    """Rows of a block with so many elements, at least a few."""
    return max(16, elements // max(1, n_classes))


def row_slices(rows: Any, size: int | None = None) -> list[slice]:
    """Blocks of ``size`` rows, or of as many as fit the cache; at least one block."""
    n, size = rows.shape[0], size or block_rows(rows)
    return [slice(i, min(i + size, n)) for i in range(0, max(n, 1), size)]


def map_rows(
    function: Callable[..., Array], rows: Array, size: int | None = None, aligned: Any = None
) -> Array:
    """``function(rows)`` block by block, for a function that treats every row alone and returns as many; any array library."""

    def of(block: slice) -> Array:
        return function(rows[block]) if aligned is None else function(rows[block], aligned[block])

    return map_blocks(of, row_slices(rows, size), serial=is_torch(rows))


def map_blocks(function: Callable[[slice], Array], blocks: list[slice], serial: bool = False) -> Array:
    """``function(block)`` of all blocks of rows, one below the other in one array."""
    first = function(blocks[0])
    if len(blocks) == 1:
        return first
    xp = array_namespace(first)
    out = xp.empty((blocks[-1].stop, *first.shape[1:]), dtype=first.dtype, **device_of(first))
    out[blocks[0]] = first

    def one(block: slice) -> None:
        out[block] = function(block)

    parallel_map(one, blocks[1:], serial)
    return out


# Threads.


def available_threads() -> int:
    """OMP_NUM_THREADS where it is set, else the cores this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(work: Callable[[], object], most: int) -> None:
    """``work()`` on this thread and on others, ``most`` in all: returns when all have returned that began.

    An exception is raised when all threads have finished their pieces: they write to shared memory.
    """
    if most <= 1 or at_work():
        work()
        return
    others: list[Future[object]] = []
    with one_blas_thread:
        try:
            _this_thread.at_work = True
            others += _pool.begin(work, most - 1)
            work()
        finally:
            # Those that have not begun will find nothing to do. The others are waited for, even if interrupted.
            begun, interrupt = [other for other in others if not other.cancel()], None
            while begun:
                try:
                    begun = list(wait(begun).not_done)
                except BaseException as error:
                    interrupt = error
            _this_thread.at_work = False
            if interrupt is not None:
                raise interrupt
    for other in others:
        if not other.cancelled():
            other.result()


def at_work() -> bool:
    """Whether this thread runs a piece of `run_parallel`: it must not wait for others."""
    return getattr(_this_thread, "at_work", False)


class _Pool:
    """The threads of one process other than the callers', as many as were ever of use at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def begin(self, work: Callable[[], object], count: int) -> list[Future[object]]:
        """``work()`` on so many threads; fewer where the system has no more, or the interpreter is about to end."""
        with self._lock:
            if self._pool is None or self._size < count:
                if self._pool is not None:
                    self._pool.shutdown(wait=False)
                marked = partial(setattr, _this_thread, "at_work", True)
                self._pool, self._size = ThreadPoolExecutor(count, "monocal", initializer=marked), count
            begun: list[Future[object]] = []
            with contextlib.suppress(RuntimeError):
                for _ in range(count):
                    begun.append(self._pool.submit(work))
            return begun


_this_thread = threading.local()
_pool = _Pool()


def parallel_map(
    function: Callable[[Any], T], items: Sequence[Any], serial: bool = False, most: int | None = None
) -> list[T]:
    """``[function(x) for x in items]`` on at most ``most`` threads (unless ``serial``); one item is not threaded."""
    if len(items) == 1:
        return [function(items[0])]
    results: dict[int, T] = {}
    numbers, errors = count(), dict[int, BaseException]()

    def work() -> None:
        i = 0
        try:
            while not errors and (i := next(numbers)) < len(items):
                results[i] = function(items[i])
        except BaseException as error:  # an interrupt, too, is a reason for all to stop
            errors[i] = error

    run_parallel(work, 1 if serial or at_work() else min(available_threads(), len(items), most or len(items)))
    if errors:
        try:
            raise errors[min(errors, key=lambda i: (isinstance(errors[i], Exception), i))]
        finally:
            errors.clear()  # breaks the reference cycle between an error and its frame
    return [results[i] for i in range(len(items))]


def parallel_sum(
    function: Callable[[Any], T], items: Sequence[Any], serial: bool = False, most: int | None = None
) -> T:
    """The sum of ``function(x)``, from first to last, on at most ``most`` threads; few terms are held at a time."""
    if len(items) == 1:
        return function(items[0])
    size = _TERMS * available_threads()
    rounds = (items[i : i + size] for i in range(0, len(items), size))
    return reduce(add, chain.from_iterable(parallel_map(function, some, serial, most) for some in rounds))


class _OneBlasThread:
    """Keep BLAS to the thread that calls it. The limit is for the process: the first to enter sets it, the last lifts it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """No thread is inside: the state of a child after a fork, where the threads of the parent do not exist."""
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _forget_controlling_thread()
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _forget_controlling_thread()  # it need not be the one that came first
                self._limit.restore_original_limits()
                _forget_controlling_thread()


def _forget_controlling_thread() -> None:
    """Newer versions of threadpoolctl obey only the first thread that sets a limit, until this is cleared."""
    openblas = getattr(threadpoolctl, "OpenBLASController", None)
    forget = getattr(openblas, "clear_controlling_thread", None)
    if forget is not None:
        forget(force=True)


@cache
def _blas() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()  # looks through all loaded libraries, so once only


one_blas_thread = _OneBlasThread()


def _reset_after_fork() -> None:
    """In a child only the thread that forked exists, and it is idle."""
    global _pool
    one_blas_thread.reset()
    _pool = _Pool()
    _this_thread.at_work = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def map_in_order(function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """``map(function, items)`` on threads, reading only a few items ahead."""
    threads = available_threads()
    items = iter(items)
    first = list(islice(items, 2))
    items = chain(first, items)
    if threads == 1 or len(first) < 2:  # nothing to share
        yield from map(function, items)
        return
    with one_blas_thread, ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[T]] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@cache
def keep_freed_memory() -> None:
    """Let the C library of Linux reuse freed arrays of a few megabytes instead of handing their pages back to the system."""
    np.empty(2**21)
