"""A progress bar for a run, with rich."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from monocal.errors import require

from .cells import Cell
from .methods import METHODS
from .running import Progress


@contextmanager
def progress_bar(console: Any = None) -> Iterator[Progress]:
    """Give a callback for `reproduce` that shows how far the run is."""
    rich = require("rich.progress", "cli")
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console) as bar:
        task = bar.add_task("reading data", total=None)

        def show(done: int, total: int, cell: Cell | None) -> None:
            last = "fitting" if cell is None else f"{METHODS[cell.method].label} on {cell.dataset.name}"
            bar.update(task, completed=done, total=total, description=last)

        yield show
