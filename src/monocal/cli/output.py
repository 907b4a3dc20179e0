"""What the commands share in telling results: tables and JSON to stdout; notes, warnings and progress to stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FileError

if TYPE_CHECKING:
    from ..metrics import Estimate, Evaluation

Out = Annotated[Path, typer.Option("-o", "--out", help="File to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Boot = Annotated[
    int,
    typer.Option("--n-boot", min=0, max=100_000, help="Draws behind the intervals; 0 for none."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of everything random.")]

CHECK_FAILED = 3

# Metrics that are shares, shown in per cent.
_SHARES = (
    "accuracy",
    "top_k_accuracy",
    "ece",
    "mce",
    "top_label_ece",
    "classwise_ece",
    "adaptive_ece",
    "kde_ece",
    "smooth_ece",
    "debiased_ece",
)


def one_line(text: object) -> str:
    """A message of the library on one line."""
    return " ".join(str(text).split())


def check_extension(out: Path, *known: str) -> None:
    """Refuse a name that says another format than the one written, before any work is done."""
    if out.suffix.lower() not in known and not out.is_dir():
        raise FileError(
            f"{out} has another extension than what is written: give a name that ends in {' or '.join(known)}."
        )


def check_not_read(out: Path, *given: Path | None, extensions: Sequence[str] = (".npy",)) -> None:
    """Refuse to write over what is being read, by whatever name or link, ``--force`` or not.

    Of a folder, the files with these ``extensions`` are read.
    """
    for path in given:
        if path is None or not out.exists() or not path.exists():
            continue
        inside = path.rglob("*") if path.is_dir() and not out.is_dir() else ()
        read = (file for file in inside if file.suffix.lower() in extensions and file.exists())
        if any(out.samefile(file) for file in (path, *read)):
            raise FileError(
                f"{out} is what is being read: name another file to write, so that nothing is lost."
            )


def note(text: str) -> None:
    """Something to know, on stderr."""
    typer.secho(text, err=True, dim=True)


def print_json(result: Mapping[str, Any]) -> None:
    """JSON that any parser takes: infinity and nan, which JSON lacks, are the strings "Infinity" and "NaN"."""
    typer.echo(json.dumps(_plain(result), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, Path) else value


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", mark: str = ""
) -> None:
    """A table; the row whose first cell is ``mark`` is bold."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row, style="bold" if mark and row[0] == mark else None)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 120
    if title:
        console.print(title)
    console.print(table)


def show(name: str, estimate: Estimate, *, interval: bool = True) -> str:
    """A metric with its interval, shares in per cent."""

    def one(value: float) -> str:
        return f"{100 * value:.2f}" if name in _SHARES else f"{value:.4f}"

    text = one(estimate.value) + (" %" if name in _SHARES else "")
    if estimate.low is None or estimate.high is None or not interval:
        return text
    return f"{text} [{one(estimate.low)}, {one(estimate.high)}]"


def print_evaluations(evaluations: Mapping[str, Evaluation], title: str = "") -> None:
    """Metrics down, predictors across."""
    names = list(next(iter(evaluations.values())).estimates)
    rows = [[name, *(show(name, e[name]) for e in evaluations.values())] for name in names]
    print_table(["", *evaluations], rows, title)


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """A bar (a spinner when the total is not known) on stderr, on a terminal only; gives ``update(done, text)``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    if total is None:
        del columns[2]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(text, total=total)

        def update(done: int = 0, text: str = text) -> None:
            bars.update(task, completed=done, description=text)

        yield update
