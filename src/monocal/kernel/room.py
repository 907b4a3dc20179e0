"""Room for arrays that belongs to the thread: fresh memory from the system costs as much as the arithmetic.

What is written there is gone when the thread asks for room of the same name again: nobody may keep it, or hand it on.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

# Bytes of an array for which room is kept.
_MOST = 2**23


def room(name: str, shape: tuple[int, int], dtype: Any = np.float64) -> np.ndarray:
    """An array with anything in it; very large ones are fresh."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if size > _MOST:
        return np.empty(shape, dtype)
    known: np.ndarray | None = getattr(_rooms, name, None)
    if known is None or known.nbytes < size:
        known = np.empty(size, np.uint8)
        setattr(_rooms, name, known)
    own: np.ndarray = known[:size].view(dtype).reshape(shape)
    return own


_rooms = threading.local()
