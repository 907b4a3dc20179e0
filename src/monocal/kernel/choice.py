"""Which engine takes which arrays. This is the only place that decides."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, takes_triton
from . import compiled
from .array import ArrayEngine
from .compiled_engine import CompiledEngine
from .interface import Engine
from .triton_engine import TritonEngine

ARRAY, COMPILED, TRITON = ArrayEngine(), CompiledEngine(), TritonEngine()


def engine_for(logits: Array, dtype: object = None) -> Engine:
    """The engine for rows of ``logits`` that are computed in ``dtype`` (default: float32, float64 for float64)."""
    if (dtype or compute_dtype(logits)) == array_namespace(logits).float32:
        if takes_triton(logits):
            return TRITON
        if isinstance(logits, np.ndarray) and compiled.available():
            return COMPILED
    return ARRAY
