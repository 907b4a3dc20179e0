"""``monocal reproduce``: the MCCT paper's experiments on a folder of logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..stopping import undone_if_stopped
from .output import CHECK_FAILED, Force, Json, Seed, check_not_read, note, print_json

if TYPE_CHECKING:
    from ..paper.beside import Beside
    from ..paper.cells import Cell


def reproduce(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Folder (or file) with logits and labels; without it, example data is made."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for results; one of an earlier run is gone on with.")
    ] = Path("monocal-results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, sizes and sets in the figures.")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", help="Names with commas between, such as ts,mcct-published; without it, all."
        ),
    ] = None,
    seed: Seed = 0,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, help="Worker processes; without it, one per core."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", help="Write the page as Markdown here too, its figures in a folder beside it."
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run the MCCT paper's experiments on your own logits.

    Fits every method on every set found, over seeds, calibration-set sizes and top-k, on all cores, and writes results.csv,
    tables in Markdown and LaTeX, figures and a page, index.html. A run that was stopped goes on where it was when started
    again with the same folder.
    """
    from ..data.sources import READABLE
    from ..paper import reproduce as run

    check_not_read(out, data)
    if markdown is not None:
        check_not_read(markdown, data, extensions=(".npy", *READABLE))
    chosen = None if methods is None else [_method(name) for name in methods.split(",")]
    told = partial(note, f"Stopped. The same command goes on with what is in {out}.")
    with undone_if_stopped(told), _progress() as progress:
        outcome = run(
            data,
            out,
            quick=quick,
            methods=chosen,
            seed=seed,
            jobs=jobs,
            markdown=markdown,
            force=force,
            progress=progress,
        )
    if as_json:
        print_json(vars(outcome) | {"published": [beside.to_dict() for beside in outcome.published]})
    else:
        for why in outcome.left_out:
            note(why)
        for beside in outcome.published:
            _show_beside(beside)
        typer.echo(
            f"{outcome.n_cells:,} fits on {outcome.n_sets} sets in {outcome.seconds / 60:.1f} minutes "
            f"({outcome.n_reused:,} were there already, {outcome.n_failed:,} failed).\n"
            f"Open the page in a browser: {outcome.page.resolve().as_uri()}"
        )
    if outcome.n_failed:
        raise typer.Exit(CHECK_FAILED)


_COLOURS = {"same": "green", "near": "yellow", "different": "red"}


def _show_beside(beside: Beside) -> None:
    """Published and ours on a terminal: coloured where there are colours, with signs everywhere."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in beside.header[:-1]:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for label, pairs, _ in beside.rows:
        table.add_row(label, *(Text(pair.text, style=_COLOURS[pair.match]) for pair in pairs))
    console.print(beside.text, soft_wrap=True)
    console.print(table)


def _method(name: str) -> str:
    """A column of the tables by its name in any spelling: mcct-published, mcct_published, MCCT published."""
    from ..paper.columns import METHODS
    from ..registry import letters

    plain = letters(name)
    found = [key for key, method in METHODS.items() if plain in (letters(key), letters(method.label))]
    if not found:
        known = ", ".join(key.replace("_", "-") for key in METHODS)
        raise InputError(f"There is no method {name.strip()!r}: choose of {known}.")
    return found[0]


@contextmanager
def _progress() -> Iterator[Callable[[int, int, Cell | None], None]]:
    """A bar on a terminal; elsewhere a line now and then, so that a log shows how far the run is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("Reading the data", total=None)

        def update(done: int, total: int, cell: Cell | None) -> None:
            last = "Fitting" if cell is None else f"{cell.label} on {cell.dataset.name}"
            if done == total:
                last = "Drawing tables and figures"
            bars.update(task, completed=done, total=total, description=last)
            if not console.is_terminal and (cell is None or done % max(1, total // 20) == 0):
                note(f"{done} of {total} fits done")

        yield update
