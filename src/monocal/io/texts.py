"""Plain text: a label in each line, or rows of numbers with spaces or commas between, as ``numpy.savetxt`` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from monocal.errors import FileError
from monocal.io.naming import meaning
from monocal.io.sources import NamedArrays, check_magic, reading

_WORD = re.compile(r"[^\s,]+")


def open_text(path: Path) -> NamedArrays:
    """One array called ``labels``, unless lines hold several numbers: then one for each column, by its place."""
    what = "a text file"
    check_magic(path, what)
    with reading(path, what):
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines or not lines:
        row = lines.index("") if lines else 0
        raise FileError(
            f"{path} has an empty line, row {row} (counting from 0): expected one label in every line."
        )
    if len(_WORD.findall(lines[0])) > 1 and _numbers(_WORD.findall(lines[0])) is not None:
        rows = [_numbers(_WORD.findall(line)) for line in lines]
        uneven = next(
            (i for i, row in enumerate(rows) if row is None or len(row) != len(rows[0] or ())), None
        )
        if uneven is not None:
            raise FileError(
                f"{path} has {lines[uneven][:40]!r} in row {uneven} (counting from 0): expected {len(rows[0] or ())} numbers "
                "with spaces between, as in row 0."
            )
        columns = np.array(rows, dtype=np.float64).T
        names = tuple(str(place) for place in range(len(columns)))
        return NamedArrays(
            path,
            names,
            lambda wanted: [columns[int(name)] for name in wanted],
            table=True,
            notes=("the file has no line of names; columns are called '0', '1', ...",),
            headless=True,
        )
    if meaning(lines[0]).role == "labels" and len(lines) > 1:
        del lines[0]
    numbers = _numbers(lines)
    labels = np.array(lines, dtype=str) if numbers is None else np.array(numbers)
    return NamedArrays(path, ("labels",), lambda wanted: [labels for _ in wanted])


def _numbers(words: list[str]) -> list[float] | None:
    try:
        return [float(word) for word in words]
    except ValueError:
        return None
