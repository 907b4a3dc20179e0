"""Edges of bins of equal mass: the values at which the running sum of the weights reaches its K-th parts.

    e_k = min { v : sum of weights of values <= v  >=  k/K of all },     k = 1 .. K - 1

A bin holds its upper edge and not its lower one. Equal values are never separated, so there may be fewer than K bins.
"""

from __future__ import annotations

import numpy as np

# Whole weights sum exactly, other weights nearly: a part that is reached up to rounding is reached.
_ROUNDING = 1e-12


def equal_mass_edges(
    values: np.ndarray,
    bins: int,
    weight: np.ndarray | None = None,
    *,
    between: bool = True,
    own_last: bool = False,
    rounding: float = _ROUNDING,
) -> np.ndarray:
    """Interior edges, rising, that cut ``values`` (n,) into at most so many bins of equal weight.

    Parameters
    ----------
    between : bool
        An edge lies half-way between the last value of its bin and the next value; else on the last value.
    own_last : bool
        The largest value has a bin of its own, or with its equals, where it alone outweighs a bin; else it then takes what is
        below it into its bin.
    rounding : float
        By how much of itself a sum may miss its part.
    """
    order = np.argsort(values)
    values = values[order]
    mass = np.arange(1.0, len(values) + 1) if weight is None else np.cumsum(weight[order])
    parts = mass[-1] * np.linspace(0.0, 1.0, bins + 1)[1:-1]
    last = np.searchsorted(mass, parts * (1.0 - rounding))
    if own_last:
        last = np.minimum(last, max(len(values) - 2, 0))
    ends = np.unique(values[last])
    if not between:
        return ends
    cuts = np.searchsorted(values, ends, side="right")
    cuts = cuts[cuts < len(values)]
    return halfway(values[cuts - 1], values[cuts])


def halfway(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A number between two neighbours that separates them: not below ``low``, below ``high``."""
    middle = low + (high - low) / 2.0
    return np.where(middle < high, middle, low)
