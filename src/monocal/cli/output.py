"""What the commands share in showing results: text, tables and JSON to stdout; notes, warnings and progress to stderr.

Prose wraps at words on a terminal; a command to copy is never broken. The library names Python's arguments (``X``, ``y``); here
they are the file that was read last.
"""

from __future__ import annotations

import json
import math
import re
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

_FILE: ContextVar[str] = ContextVar("file", default="the data")
# As a word by itself: not in quotes, in a path, or in a piece of Python.
_WORDS = tuple(
    (re.compile(rf"(?<![\w'\"/.=-]){name}(?![\w'\"/=(\[-]|\.\w)"), words)
    for name, words in (
        ("X", "{file}"),
        ("y", "the labels of {file}"),
        ("sample_weight", "the weights of {file}"),
    )
)
_PYTHON = re.compile(r"\binput='(\w+)'| \(n_features = \d+\)")


def set_message_file(path: Path | None) -> None:
    """The file that messages are about, from now on."""
    _FILE.set("the data" if path is None else str(path))


def in_words(message: str) -> str:
    """A message without the names of arguments in Python."""
    for name, words in _WORDS:
        message = name.sub(words.format(file=_FILE.get()).replace("\\", r"\\"), message)
    return _PYTHON.sub(lambda match: f"--kind {match[1]}" if match[1] else "", message)


def one_line(text: object) -> str:
    """A message of the library on one line."""
    return " ".join(str(text).split())


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Prose, wrapped at words where it is shown on a terminal."""
    from rich.console import Console

    console = Console(stderr=err)
    if console.is_terminal:
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        text = "\n".join(textwrap.fill(line, console.width, **options) for line in text.splitlines())
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


def check_not_read(out: Path, *inputs: Path | None, extensions: Sequence[str] = (".npy",)) -> None:
    """Refuse to write over what is being read, by whatever name or link, ``--force`` or not.

    Of a folder, the files with these ``extensions`` are read.
    """
    for path in inputs:
        if path is None or not out.exists() or not path.exists():
            continue
        inside = path.rglob("*") if path.is_dir() and not out.is_dir() else ()
        read = (file for file in inside if file.suffix.lower() in extensions and file.exists())
        if any(out.samefile(file) for file in (path, *read)):
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
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    width = console.width if console.is_terminal and not wide else None
    held = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
    drop = [name for name in drop if name in {columns[i] for i in held}]
    dropped: list[str] = []
    while True:
        kept = [i for i in held if columns[i] not in dropped]
        table = _table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], mark)
        needed = console.measure(table, options=console.options.update(max_width=100_000)).maximum
        if width is None or needed <= width or len(dropped) == len(drop):
            break
        dropped.append(drop[len(dropped)])
    if title:
        say(title)
    console.width = max(needed, 1)  # a narrower terminal folds lines; rich would cut numbers
    console.print(table)
    return dropped


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], mark: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), show_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row, style="bold" if mark and row[0] == mark else None)
    return table


def show(name: str, estimate: Estimate, *, interval: bool = True) -> str:
    """A metric with its interval, shares in per cent."""
    text = f"{100 * estimate.value:.2f} %" if _is_share(name) else f"{estimate.value:.4f}"
    return f"{text} {show_interval(name, estimate)}".strip() if interval else text


def show_interval(name: str, estimate: Estimate) -> str:
    """Its interval alone; nothing where it has none."""
    if estimate.low is None or estimate.high is None:
        return ""
    if _is_share(name):
        return f"[{100 * estimate.low:.2f}, {100 * estimate.high:.2f} %]"
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def metrics_to_show(n_classes: int, everything: bool) -> list[str]:
    """The six figures that matter, or all that say something of so many classes."""
    from ..metrics.table import Options, available, main_metrics

    return available(n_classes, Options()) if everything else main_metrics(n_classes)


def print_evaluations(
    evaluations: Mapping[str, Evaluation], title: str = "", *, explain: bool = False
) -> None:
    """Metrics down, predictors across; below, what each metric is, where asked."""
    from ..metrics import METRICS

    names = list(next(iter(evaluations.values())).estimates)
    rows = [[name, *(show(name, e[name]) for e in evaluations.values())] for name in names]
    print_table(["", *evaluations], rows, title)
    if explain:
        for name in names:
            typer.echo(f"{name:<{max(map(len, names))}}  {METRICS[name].sentence}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for side, e in evaluations.items():
        for name in names:
            if e[name].reason:
                reasons.setdefault((side, e[name].reason), []).append(name)
    for (side, reason), without in reasons.items():
        of_side = "" if len(evaluations) == 1 else f" {side}"
        say(f"No interval of {', '.join(without)}{of_side}: {reason}.")


def _is_share(name: str) -> bool:
    from ..metrics import METRICS

    return METRICS[name].unit == "share"


def show_p(p_value: float) -> str:
    """``p = 0.04``, or ``p < 0.001``."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[..., None]]:
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
