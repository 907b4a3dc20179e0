"""How much memory a piece of work leaves behind."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_below(most: int) -> Iterator[None]:
    """What is done within leaves fewer than ``most`` bytes behind.

    A thread that took part lets go of its last piece when it is next given time, which a busy machine may not do at once.
    """
    tracemalloc.start()
    try:
        yield
        end = time.monotonic() + 60
        while (kept := tracemalloc.get_traced_memory()[0]) >= most and time.monotonic() < end:
            time.sleep(0.01)
            gc.collect()
    finally:
        tracemalloc.stop()
    assert kept < most
