"""Probabilities before and after a calibrator, for files of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import ordered_softmax
from ..calibration import Calibrator

_BLOCK = 1 << 23  # logits handled at a time


def uncalibrated(values: np.ndarray, kind: str) -> np.ndarray:
    """What logits (their softmax) or probabilities (themselves) say without calibration."""
    if kind == "probabilities":
        return np.asarray(values)
    # Halves are too coarse to sum a thousand of them to one.
    return ordered_softmax(np.asarray(values, dtype=np.promote_types(values.dtype, np.float32)))


def by_blocks(
    function: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    out: np.ndarray,
    update: Callable[[int], Any] = lambda done: None,
) -> None:
    """Fill ``out`` with the function of ``values``, some rows at a time; ``update`` hears how many are done."""
    step = max(1, _BLOCK // values.shape[1])
    for start in range(0, len(values), step):
        out[start : start + step] = function(np.asarray(values[start : start + step]))
        update(min(start + step, len(values)))


def before_and_after(calibrator: Calibrator, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities without and with the calibrator."""
    before = uncalibrated(values, calibrator.input)
    after = np.empty_like(before)
    by_blocks(calibrator.predict_proba, values.astype(before.dtype, copy=False), after)
    return before, after
