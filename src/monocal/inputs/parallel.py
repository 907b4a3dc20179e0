"""Work on rows block by block, on threads: bounded memory, whatever the number of classes.

numpy releases the interpreter's lock, so threads are enough. They come from `thread_pool`, and BLAS uses only the thread that
calls it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, count, islice
from typing import Any, TypeVar, cast

import numpy as np
import threadpoolctl

from ..arrays import Array, array_namespace, device_of, is_torch, on_host
from .thread_pool import at_work, run_parallel
from .validation import sum_of_all

T = TypeVar("T")
B = TypeVar("B", bound=Array)

# Elements of a block: small enough for the cache of one core, large enough to amortise the cost of the calls.
CPU_BLOCK = 2**18
GPU_BLOCK = 2**26
# Numbers that one thread adds up about as fast as others can be woken.
_WORTH_SHARING = 2**20


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


def map_rows(function: Callable[..., B], rows: Array, size: int | None = None, beside: Any = None) -> B:
    """``function(rows)`` block by block, for a function that treats every row alone and returns as many; any array library.

    With an array ``beside`` that has as many rows: ``function(rows, beside)``.
    """
    blocks = row_slices(rows, size)

    def of(block: slice) -> B:
        return function(rows[block]) if beside is None else function(rows[block], beside[block])

    first = of(blocks[0])
    if len(blocks) == 1:
        return first
    xp = array_namespace(first)
    out: Any = xp.empty((rows.shape[0], *first.shape[1:]), dtype=first.dtype, **device_of(first))
    out[blocks[0]] = first

    def one(block: slice) -> None:
        out[block] = of(block)

    parallel_map(one, blocks[1:], serial=is_torch(rows))
    done: B = out
    return done


def sum_rows(function: Callable[[slice], T], rows: np.ndarray) -> T:
    """``function(block)`` added up over the blocks of rows, in a fixed order."""
    return parallel_sum(function, row_slices(rows))


def shared_total(z: Array) -> float:
    """`validation.sum_of_all` as a number, on threads where there is much to add."""
    if not isinstance(z, np.ndarray) or z.size < _WORTH_SHARING:
        return float(sum_of_all(z))
    # Two for each thread: threads that call Python often wait for one another.
    size = -(-len(z) // (2 * available_threads()))
    # Python's own numbers overflow without a warning.
    return parallel_sum(lambda block: float(sum_of_all(z[block])), row_slices(z, size))


# Threads.


def available_threads() -> int:
    """OMP_NUM_THREADS where it is set, else the cores this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(function: Callable[[Any], T], items: Sequence[Any], serial: bool = False) -> list[T]:
    """``[function(x) for x in items]`` on threads (unless ``serial``), with BLAS held to one thread each."""
    found: dict[int, T] = {}
    _each(function, items, serial, None, found.__setitem__)
    return [found[i] for i in range(len(items))]


def parallel_sum(
    function: Callable[[Any], T], items: Sequence[Any], serial: bool = False, most: int | None = None
) -> T:
    """The sum of ``function(x)``, from first to last, on at most ``most`` threads; later terms are computed meanwhile."""
    if not items:
        raise ValueError("There is nothing to add up.")
    added = _AddedInOrder()
    _each(function, items, serial, most, added.take)
    return cast(T, added.total())


def _each(
    function: Callable[[Any], T],
    items: Sequence[Any],
    serial: bool,
    most: int | None,
    take: Callable[[int, T], None],
) -> None:
    """``take(i, function(items[i]))`` for all i, in any order. Where several fail, the first error is raised."""
    numbers, errors = count(), dict[int, BaseException]()

    def work() -> None:
        i = 0
        try:
            while not errors:  # whatever comes before one that fails has begun, and is finished
                i = next(numbers)
                if i >= len(items):
                    return
                take(i, function(items[i]))
        except BaseException as error:  # an interrupt, too, is a reason for all to stop
            errors[i] = error

    threads = 1 if serial or at_work() else min(available_threads(), len(items), most or len(items))
    if threads > 1:
        with one_blas_thread:
            run_parallel(work, threads)
    else:
        work()
    if errors:
        try:
            # An interrupt before all, then what comes first.
            raise errors[min(errors, key=lambda i: (isinstance(errors[i], Exception), i))]
        finally:
            errors.clear()  # breaks the reference cycle between an error and its frame


class Shared:
    """All threads there are; implements `kernel.run.Threads`."""

    def share(self, work: Callable[[], object], pieces: int) -> None:
        with one_blas_thread:
            run_parallel(work, min(available_threads(), pieces))

    def sum(self, function: Callable[[Any], T], items: Sequence[Any]) -> T:
        return parallel_sum(function, items)

    def count(self) -> int:
        return available_threads()


SHARED = Shared()


class _AddedInOrder:
    """What comes in any order, added up from first to last."""

    def __init__(self) -> None:
        self._waits: dict[int, Any] = {}
        self._next = 0
        self._total: Any = None
        self._lock = threading.Lock()

    def take(self, i: int, more: Any) -> None:
        self._waits[i] = more
        if self._lock.acquire(blocking=False):  # else another thread adds, and there is no need to wait
            try:
                self.total()
            finally:
                self._lock.release()

    def total(self) -> Any:
        while self._next in self._waits:
            more = self._waits.pop(self._next)
            self._total = self._total + more if self._next else more
            self._next += 1
        return self._total


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
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_blas_thread.reset)


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
