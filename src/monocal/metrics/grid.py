"""Weights of points shared linearly between the two nearest nodes of a grid: ``sum_i w_i hat((x - x_i) /
step)``.

The result is linear in the points, so the grids of two sets of rows add; smoothing a grid afterwards is off
by ``O(step^2)``.
"""

from __future__ import annotations

import numpy as np

from .outcomes import Floats, bin_totals


def deposit(points: Floats, weights: Floats, low: float, high: float, n_nodes: int) -> Floats:
    """Grid of (n_nodes,) nodes from ``low`` to ``high``; points must lie within."""
    place = (points - low) * ((n_nodes - 1) / (high - low))
    left = np.clip(place.astype(np.int64), 0, n_nodes - 2)
    part = place - left
    lower = bin_totals(left, weights * (1 - part), n_nodes)
    upper = bin_totals(left + 1, weights * part, n_nodes)
    return lower + upper
