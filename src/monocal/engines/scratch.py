"""Scratch buffers of the calling thread: fresh memory from the system costs as much as the arithmetic.

A buffer is overwritten when the thread asks for one of the same name again, so no caller may keep or return it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

# Bytes of the largest buffer that is kept.
_MOST = 2**23


def scratch_buffer(name: str, shape: tuple[int, int], dtype: Any = np.float64) -> np.ndarray:
    """An uninitialised array; very large ones are fresh."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if size > _MOST:
        return np.empty(shape, dtype)
    kept: np.ndarray | None = getattr(_buffers, name, None)
    if kept is None or kept.nbytes < size:
        kept = np.empty(size, np.uint8)
        setattr(_buffers, name, kept)
    return kept[:size].view(dtype).reshape(shape)


_buffers = threading.local()
