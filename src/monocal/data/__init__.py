"""Logits in files, and example logits.

``read`` gives one set, ``read_splits`` a calibration and a test set, ``find`` every such pair in a folder, ``read_columns``
what else goes with the rows, ``find_columns`` the same by what a person writes;
``write`` and ``atomic_path`` put results on disk whole or not at all; ``digits_example`` and ``synthetic``
make data to try things on.
"""

from __future__ import annotations

from monocal.data.atomic import atomic_path
from monocal.data.columns import find_columns, read_columns
from monocal.data.examples import digits_example
from monocal.data.finding import Location, find
from monocal.data.generator import Synthetic, synthetic
from monocal.data.reading import read, read_splits
from monocal.data.sets import LogitsSet, Splits
from monocal.data.writing import check_writable, write

__all__ = [
    "Location",
    "LogitsSet",
    "Splits",
    "Synthetic",
    "atomic_path",
    "check_writable",
    "digits_example",
    "find",
    "find_columns",
    "read",
    "read_columns",
    "read_splits",
    "synthetic",
    "write",
]
