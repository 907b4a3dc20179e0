"""Run the cells of a plan that have no result yet, on all cores.

Every finished cell is a file, so a run that was stopped, even killed, goes on where it was. Workers are processes with
one thread each: times of different cells can be compared, and no core does two things. A worker that dies is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import joblib

from monocal.errors import InputError

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
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        yield from run(joblib.delayed(_run)(cell, folder) for cell in cells)


def _run(cell: Cell, folder: Path) -> tuple[Cell, dict[str, Any]]:
    return cell, run_cell(cell, folder)
