"""How long work on all rows will take:  twenty times what a twentieth of them takes."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

_LARGE = 5_000_000  # numbers, below which it takes a moment
_SHARE = 20


def forecast(work: Callable[[slice], Any], shape: tuple[int, ...]) -> float | None:
    """Seconds for all rows of an array of this shape; None where it is small, nobody looks, or a part of the rows will not do."""
    if shape[0] * shape[1] < _LARGE or shape[0] < 100 * _SHARE or not sys.stderr.isatty():
        return None
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work(slice(None, None, _SHARE))
    except Exception:  # what is wrong with the rows is told by the work itself
        return None
    return _SHARE * (time.perf_counter() - begin)
