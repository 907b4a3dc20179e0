"""Rows measured from their largest logit, ``d = z_max - z >= 0``: finite, shift-invariant, ordered like the logits.

Networks see depths as features: divided by a temperature and squeezed by ``log(1 + d)``, so that no input is far away.
"""

from __future__ import annotations

import numpy as np

from ..arrays import compute_dtype

LARGEST = (
    1e30  # beyond any difference of logits that means anything; finite in single precision with room above
)
_FINITE = 1e37


def depths(logits: np.ndarray) -> np.ndarray:
    """``max z - z`` (n, m) in compute precision, cut at 1e30; what is not available lies at the cut."""
    dtype = compute_dtype(logits)
    with np.errstate(over="ignore"):
        d = logits.max(axis=1, keepdims=True).astype(dtype) - logits.astype(dtype, copy=False)
    return np.minimum(d, LARGEST, out=d)


def squeeze(d: np.ndarray, temperature: float) -> np.ndarray:
    """Features between 0 and about 4 from depths: ``log(1 + d / T)``, cut at ``d = 50 T``."""
    return np.log1p(np.minimum(d / temperature, 50.0)).astype(np.float32)


def lift(f: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Calibrated logits ``f <= 0`` as finite numbers from 0 up, in the same order; -inf where not available."""
    masked = np.isinf(logits)
    f = np.maximum(f, -_FINITE)
    lowest = np.where(masked, 0.0, f).min(axis=1, keepdims=True)
    return mask(f - lowest.astype(f.dtype), logits)


def mask(f: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """``f`` with -inf where the class is not available. In place."""
    f[np.isinf(logits)] = -np.inf
    return f
