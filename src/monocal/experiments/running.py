"""Run the cells of a plan that have no result yet, on all cores.

Every finished cell is a file, so a run that was stopped, even killed, goes on where it was. Workers are processes with
one thread each: times of different cells can be compared, and no core does two things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]

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
    found = {cell: read_result(folder, cell) for cell in cells}
    results: Results = {cell: result for cell, result in found.items() if result is not None}
    missing = [cell for cell in cells if cell not in results]
    reused = len(results)
    tell = progress or (lambda done, total, cell: None)
    tell(reused, len(cells), None)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        for cell, result in run(joblib.delayed(_run)(cell, folder) for cell in missing):
            results[cell] = result
            tell(len(results), len(cells), cell)
    return results, reused


def _run(cell: Cell, folder: Path) -> tuple[Cell, dict[str, Any]]:
    return cell, run_cell(cell, folder)
