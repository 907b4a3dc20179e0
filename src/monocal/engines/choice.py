"""Which engine takes which arrays: the first of a table that says it does. This is the only place that decides."""

from __future__ import annotations

from ..arrays import Array, compute_dtype
from .array import ArrayEngine
from .compiled_engine import CompiledEngine
from .interface import Engine
from .rank_major import RankMajorEngine
from .triton_engine import TritonEngine

ARRAY, COMPILED, RANK_MAJOR, TRITON = ArrayEngine(), CompiledEngine(), RankMajorEngine(), TritonEngine()
# The last takes every array.
ENGINES: list[Engine] = [TRITON, COMPILED, RANK_MAJOR, ARRAY]


def engine_for(logits: Array, dtype: object = None) -> Engine:
    """The engine for rows of ``logits`` that are computed in ``dtype`` (default: float32, float64 for float64)."""
    dtype = dtype or compute_dtype(logits)
    return next(engine for engine in ENGINES if engine.takes(logits, dtype))
