"""What the commands share in showing results: text, tables and JSON to stdout; notes, warnings and progress to stderr.

Prose wraps at words on a terminal; a command to copy is never broken.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import FileError

if TYPE_CHECKING:
    from ..metrics import Estimate, Evaluation

CHECK_FAILED = 3

# The file that was read last: what messages of the library are about that name no file.
message_file: ContextVar[Path | None] = ContextVar("message_file", default=None)


def one_line(text: object) -> str:
    """A message of the library on one line."""
    return " ".join(str(text).split())


def _terminal_width(err: bool = False) -> int | None:
    """Columns of the terminal that is written to, if it is one."""
    from rich.console import Console

    console = Console(stderr=err)
    return console.width if console.is_terminal else None


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Prose, wrapped at words where it is shown on a terminal."""
    width = _terminal_width(err)
    if width is not None:
        wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(wrap.fill(line) for line in text.splitlines())
    typer.secho(text, err=err, **style)


def note(text: str) -> None:
    """Something to know, on stderr."""
    say(text, err=True, dim=True)


def next_command(command: str) -> None:
    """A command to copy, on a line of its own."""
    typer.echo(f"Next: {command}")


def check_extension(out: Path, *extensions: str) -> None:
    """Refuse a name that says another format than the one written, before any work is done."""
    if out.suffix.lower() not in extensions and not out.is_dir():
        raise FileError(
            f"{out} has another extension than what is written: give a name that ends in {' or '.join(extensions)}."
        )


def check_not_read(out: Path, *inputs: Path | None) -> None:
    """Refuse to write over what is being read, by whatever name or link, ``--force`` or not."""
    for path in inputs:
        if path is None or not out.exists() or not path.exists():
            continue
        inside = path.rglob("*.npy") if path.is_dir() and not out.is_dir() else ()
        if any(file.exists() and out.samefile(file) for file in (path, *inside)):
            raise FileError(
                f"{out} is what is being read: name another file to write, so that nothing is lost."
            )


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
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    mark: str = "",
    *,
    drop: Sequence[str] = (),
    wide: bool = False,
) -> list[str]:
    """A table; the row whose first cell is ``mark`` is bold. No cell is ever cut, and a column without any is left out.

    On a terminal that is too narrow the columns of ``drop`` are left out, in this order and no more than needed, unless the table
    is to be ``wide``; gives those left out.
    """
    table = [columns, *rows]
    shown = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    width = None if wide else _terminal_width()
    dropped: list[str] = []
    for name in drop:
        if width is None or sum(widths[i] + 2 for i in shown) - 2 <= width:
            break
        place = columns.index(name)
        if place in shown:
            shown.remove(place)
            dropped.append(name)
    if title:
        say(title)
    for number, row in enumerate(table):
        first, *rest = (row[i].rjust(widths[i]) if i else row[i].ljust(widths[i]) for i in shown)
        typer.secho("  ".join([first, *rest]).rstrip(), bold=number > 0 and row[0] == mark)
        if number == 0:
            typer.echo("-" * (sum(widths[i] + 2 for i in shown) - 2))
    return dropped


def show(name: str, estimate: Estimate) -> str:
    """A metric, shares in per cent."""
    return f"{100 * estimate.value:.2f} %" if _is_share(name) else f"{estimate.value:.4f}"


def show_interval(name: str, estimate: Estimate) -> str:
    """Its interval; nothing where it has none."""
    if estimate.low is None or estimate.high is None:
        return ""
    if _is_share(name):
        return f"[{100 * estimate.low:.2f}, {100 * estimate.high:.2f} %]"
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def _is_share(name: str) -> bool:
    from ..metrics import METRICS

    return METRICS[name].unit == "share"


def print_evaluations(evaluations: Mapping[str, Evaluation], title: str, *, explain: bool = False) -> None:
    """Metrics down, predictors across; below, what each metric is, where asked."""
    from ..metrics import METRICS

    names = list(next(iter(evaluations.values())).estimates)
    rows = [
        [
            name,
            *(f"{show(name, e[name])} {show_interval(name, e[name])}".strip() for e in evaluations.values()),
        ]
        for name in names
    ]
    print_table(["", *evaluations], rows, title)
    if explain:
        for name in names:
            typer.echo(f"{name:<{max(map(len, names))}}  {METRICS[name].sentence}")
    for side, evaluation in evaluations.items():
        reasons = {evaluation[name].reason: name for name in names if evaluation[name].reason}
        for reason in reasons:
            without = [name for name in names if evaluation[name].reason == reason]
            of_side = "" if len(evaluations) == 1 else f" {side}"
            say(f"No interval of {', '.join(without)}{of_side}: {reason}.")


def show_p(p_value: float) -> str:
    """``p = 0.04``, or ``p < 0.001``."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner with a text on stderr, on a terminal only; gives a function that changes the text."""
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield status.update
