"""What structured scaling is a map of: tempered log-probabilities, bounded by a share of the uniform distribution.

    x = log( (1 - e) softmax(z / T) + e / m )

Written for every array library, on any device.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, device_of, exp_

# Beyond this a logit says no more.
_LARGEST = 1e15


def tempered(logits: Array, temperature: float) -> Array:
    """``(z - max z) / T``, not below -1e15 but for classes that are not available; of any array library."""
    xp = array_namespace(logits)
    dtype = compute_dtype(logits)
    with np.errstate(over="ignore"):
        x = xp.astype(logits, dtype, copy=False) - xp.astype(xp.max(logits, axis=1, keepdims=True), dtype)
        x *= 1.0 / temperature
    return xp.where(xp.isinf(logits), x, xp.clip(x, min=-_LARGEST))


def features(logits: Array, temperature: float, floor: float) -> Array:
    """Logarithms of tempered probabilities mixed with a share ``floor`` of the uniform distribution, (n, m).

    Without a floor, up to a shift of the row. NaN for a class that is not available.
    """
    xp = array_namespace(logits)
    x = tempered(logits, temperature)
    if floor:
        with np.errstate(under="ignore"):
            p = exp_(x)
            p *= (1.0 - floor) / xp.sum(p, axis=1, keepdims=True)
            p += floor / logits.shape[1]
            x = xp.log(p)
    return xp.where(xp.isinf(logits), xp.asarray(np.nan, dtype=x.dtype, **device_of(x)), x)
