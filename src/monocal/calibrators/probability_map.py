"""Calibrators that work on probabilities: softmax first, then a map from probabilities to probabilities.

    p = softmax(z),    q = map(p),    transform(X) = log q.

A class that is not available (logit ``-inf``) has ``p = 0`` and keeps ``q = 0``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..arrays import compute_dtype, ordered_log, ordered_softmax
from ..parallel import map_rows
from .base import Calibrator

# exp(-1000) is zero in every precision: a class of probability 0 that is available has a finite logit all the same.
_LOG_ZERO = -1000.0


class ProbabilityCalibrator(Calibrator):
    """Base: a family writes `_remap`, from a block of logits to calibrated probabilities."""

    @abstractmethod
    def _remap(self, logits: np.ndarray) -> np.ndarray:
        """Calibrated probabilities (n, m) of a block of rows, summing to one, 0 where not available."""

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return map_rows(self._remap, logits)

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        def one(z: np.ndarray) -> np.ndarray:
            f = np.maximum(ordered_log(self._remap(z)), _LOG_ZERO)
            return np.where(np.isinf(z), -np.inf, f).astype(compute_dtype(z))

        return map_rows(one, logits)


def softmax(logits: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Probabilities in compute precision (or ``dtype``), ordered exactly like the logits."""
    with np.errstate(over="ignore"):
        return ordered_softmax(logits.astype(dtype or compute_dtype(logits), copy=False))


def normalise(q: np.ndarray, p: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Rows of ``q >= 0`` that sum to one, 0 where not available; a row with no mass at all keeps ``p``."""
    q = np.where(available, q, 0.0)
    total = q.sum(axis=1, keepdims=True)
    empty = ~(total[:, 0] > 0)
    if empty.any():
        q[empty] = p[empty]
        total[empty] = 1.0
    q *= 1.0 / total
    return q
