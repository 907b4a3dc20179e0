"""Reading and writing files of classifier outputs.

``read`` gives one set, ``read_splits`` a calibration and a test set, ``find`` every such pair in a folder, ``read_columns`` and
``find_columns`` further columns of the rows; ``write`` and ``atomic_path`` put results on disk whole or not at all.
"""

from __future__ import annotations

from monocal.io.logits_set import LogitsSet, Splits
from monocal.io.read import Location, find, find_columns, read, read_columns, read_splits
from monocal.io.write import atomic_path, check_writable, write

__all__ = [
    "Location",
    "LogitsSet",
    "Splits",
    "atomic_path",
    "check_writable",
    "find",
    "find_columns",
    "read",
    "read_columns",
    "read_splits",
    "write",
]
