"""Which engine takes which arrays: the first of a table that says it does. This is the only place that decides."""

from __future__ import annotations

from ..arrays import Array, compute_dtype
from ..core.engine import Engine
from .array import ARRAY
from .numba_engine import NumbaEngine
from .triton_engine import TritonEngine

__all__ = ["ARRAY", "ENGINES", "NUMBA", "TRITON", "engine_for"]

NUMBA, TRITON = NumbaEngine(), TritonEngine()
# The last takes every array.
ENGINES: list[Engine] = [TRITON, NUMBA, ARRAY]


def engine_for(logits: Array, dtype: object = None) -> Engine:
    """The engine for rows of ``logits`` that are computed in ``dtype`` (default: float32, float64 for float64)."""
    dtype = dtype or compute_dtype(logits)
    return next(engine for engine in ENGINES if engine.takes(logits, dtype))
