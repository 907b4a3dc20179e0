"""``--context``: what is known of each row beside its logits, from columns of the file or of another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FileError
from .output import note

if TYPE_CHECKING:
    from ..io import LogitsSet

Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "--context-columns",
        metavar="NAMES_OR_FILE",
        help="What is known of each row beside its logits: columns or arrays of the file, commas between, or another file "
        "(FILE:NAME,NAME if it holds several). Floating-point columns are numbers, others are categories.",
    ),
]


def find_context(wanted: str | None, data: LogitsSet, path: Path, group: str | None) -> Any:
    """Columns by name, one value per row; None where none is asked for."""
    from ..io import find_columns

    if wanted is None:
        return None
    return find_columns(wanted, path, part=data.part, group=group, argument="context=")


def context_for(calibrator: Any, wanted: str | None, data: LogitsSet, path: Path, group: str | None) -> Any:
    """The context that a fitted calibrator takes: what is asked for, or else columns of the file with the names it knows."""
    from ..io import read_columns

    known = getattr(calibrator, "context_", None)
    if wanted is not None or known is None or not known.named:
        return find_context(wanted, data, path, group)
    # Columns of a table go by its name and a number.
    names = [re.sub(r" \d+$", "", column.name) for column in known.columns]
    exact = [column.name for column in known.columns]
    try:
        return read_columns(path, exact, part=data.part, group=group)
    except FileError:
        return read_columns(path, list(dict.fromkeys(names)), part=data.part, group=group)


def say_unseen(calibrator: Any, n_rows: int) -> None:
    """Say of how many rows the context was not known."""
    unseen = getattr(calibrator, "unseen_", 0)
    if unseen:
        note(
            f"{unseen:,} of {n_rows:,} rows have a context that no calibration row had: they take the shared scale."
        )
