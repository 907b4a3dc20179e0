"""What a calibrator does to the confidence: that of the class on top, before and after, in bins with as many rows each.

Every calibrator has this picture, whatever it is made of; with two classes it is all there is to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.outcomes import bin_index
from ..plots.curves import quantile_edges

_MOST_ROWS = 5000  # enough for a picture
_BINS = 20


@dataclass(frozen=True)
class ConfidenceChange:
    """Arrays of shape (B,): median confidence before and after, and the first and last decile after."""

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def one_curve(self) -> bool:
        """Whether the confidence before decides that after."""
        return bool((self.high - self.low).max() < 0.02)


def confidence_change(model: Any, values: np.ndarray, before: np.ndarray) -> ConfidenceChange:
    """Of a fitted calibrator on rows (n, m) with the probabilities they have without it."""
    some = slice(None, None, -(-len(values) // _MOST_ROWS))
    before, after = before[some], np.asarray(model.predict_proba(values[some]))
    top = np.argmax(before, axis=1)[:, None]
    old, new = (np.take_along_axis(p, top, axis=1)[:, 0].astype(np.float64) for p in (before, after))
    edges = quantile_edges(old, _BINS)
    index = bin_index(old, edges)
    parts = [(old[index == k], new[index == k]) for k in np.unique(index)]
    low, middle, high = np.array([np.quantile(b, [0.1, 0.5, 0.9]) for _, b in parts]).T
    return ConfidenceChange(np.array([np.median(a) for a, _ in parts]), middle, low, high)
