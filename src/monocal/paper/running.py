"""Run the cells of a plan that have no result yet, on all cores.

Every finished cell is a file, so a run that was stopped, even killed, goes on where it was. Workers are processes with
one thread each, also where there is only one: times of different cells can be compared, no core does two things, and no
number depends on how many cores there are. A worker that dies is replaced; all end with the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from monocal.errors import InputError
from monocal.workers import Worker

from .cells import Cell, read_result
from .worker import run_cell

Results = dict[Cell, dict[str, Any]]
Progress = Callable[[int, int, Cell | None], None]


def run_cells(
    cells: Iterable[Cell], folder: Path, jobs: int, progress: Progress | None = None
) -> tuple[Results, int]:
    """Results of all cells, and how many of them were there already.

    ``progress(done, total, cell)`` is called once at the start, with None, and after every cell.
    """
    cells = tuple(cells)
    results = _finished(cells, folder)
    reused = len(results)
    tell = progress or (lambda done, total, cell: None)
    tell(reused, len(cells), None)
    while len(results) < len(cells):
        before = len(results)
        try:
            for cell, result in _run_missing([c for c in cells if c not in results], folder, jobs):
                results[cell] = result
                tell(len(results), len(cells), cell)
        except BrokenExecutor as error:
            results |= _finished((c for c in cells if c not in results), folder)
            if len(results) == before:
                raise InputError(
                    "Worker processes keep being ended by the system, most likely for lack of memory: run it again with "
                    "fewer jobs. What was finished is kept."
                ) from error
    return results, reused


def _finished(cells: Iterable[Cell], folder: Path) -> Results:
    found = ((cell, read_result(folder, cell)) for cell in cells)
    return {cell: result for cell, result in found if result is not None}


def _run_missing(cells: list[Cell], folder: Path, jobs: int) -> Iterator[tuple[Cell, dict[str, Any]]]:
    waiting: SimpleQueue[Cell] = SimpleQueue()
    finished: SimpleQueue[tuple[Cell, dict[str, Any]] | BaseException] = SimpleQueue()
    for cell in cells:
        waiting.put(cell)

    def keep_busy(worker: Worker) -> None:
        try:
            while True:
                cell = waiting.get_nowait()
                finished.put((cell, worker.call(run_cell, cell, folder)))
        except Empty:
            pass
        except BaseException as error:  # raised where the results are taken
            finished.put(error)

    with ExitStack() as workers:
        for _ in range(min(jobs, len(cells))):
            worker = workers.enter_context(Worker(threads=1))
            threading.Thread(target=keep_busy, args=(worker,), daemon=True).start()
        for _ in cells:
            result = finished.get()
            if isinstance(result, BaseException):
                raise result
            yield result
