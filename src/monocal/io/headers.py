"""Whether the first line of a table names its columns.

Words name columns; numbers among them are data, unless they only count the columns (a frame saved without names) or a word
beside them is one that names labels or values, or stands over numbers. A line of numbers alone names columns where it counts
them, or holds different whole numbers above lines that are none (200, 404, 500 above fractions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from monocal.io.naming import meaning

_NO_VALUE = ("", "na", "null", "n/a", "none")


def parses(cell: object) -> bool:
    """Whether a text is a number."""
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


def is_number(cell: str) -> bool:
    """Whether a cell is a number, or empty, which is no word."""
    return parses(cell) or cell.strip().lower() in _NO_VALUE


def is_row_index(name: str) -> bool:
    """Whether pandas wrote its row index under this name."""
    return re.fullmatch(r"(Unnamed: \d+)?", name) is not None


def lacks_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the first line is data, seen beside some lines below it."""
    words = [i for i, cell in enumerate(first) if not is_number(cell) or cell == ""]
    of_words = set(words)
    numbers = [cell for i, cell in enumerate(first) if i not in of_words]
    counted = numbers == [str(place) for place in range(len(numbers))]
    if not words:
        return len(numbers) < 3 or not (counted or _are_codes(numbers, below))
    if any(meaning(first[i]).role for i in words):
        return False
    under = [[row[i] for row in below if i < len(row)] for i in words]
    again = any(first[i] in cells for i, cells in zip(words, under, strict=True))
    if not numbers:
        return len(first) == 1 and again  # a class in every line
    over_numbers = any(cells and all(map(is_number, cells)) for cells in under)
    return not over_numbers and (again or not counted)


def _are_codes(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a line holds different whole numbers, and no line below it whole numbers alone."""
    whole = [all(re.fullmatch(r"-?\d+", cell.strip()) for cell in row) for row in (first, *below)]
    return whole[0] and len(set(first)) == len(first) and len(below) > 0 and not any(whole[1:])
