"""One atom: the root of an increasing function, bracketed, so that it cannot be missed.

    minimise F(c) + penalty c  over c >= lower:      g(c) = F'(c) + penalty = 0,   or g(lower) >= 0.

Far out ``g`` rises to its ``worth`` like an exponential, so Newton's step is taken for ``log(worth - g)``. Where that leaves the
bracket, or the gradient does not fall, the bracket is cut in half, by ratio: from any start to any root in double precision
takes a few dozen evaluations, and mostly five.
"""

from __future__ import annotations

import numpy as np

FARTHEST = 64.0  # the largest factor of one step where nothing is known of the other side


def newton_step(c: float, g: float, curvature: float, worth: float) -> float:
    """Where ``log(worth - g)`` meets ``log(worth)`` if it goes on straight; infinity where there is no telling."""
    left = worth - g
    if not (curvature > 0 and left > 0 and worth > 0):
        return float("inf") if g < 0 else 0.0
    return float(c + left / curvature * np.log(left / worth))


def middle(low: float, high: float) -> float:
    """Half-way by ratio; a fixed factor farther where there is no end."""
    if low <= 0.0:  # no ratio leads away from 0
        return high / FARTHEST if np.isfinite(high) else 1.0
    return float(np.sqrt(low) * np.sqrt(high)) if np.isfinite(high) else FARTHEST * low
