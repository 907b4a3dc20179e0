"""monocal in CalArena, the benchmark of calibrators (arXiv 2605.30188): objects with ``fit(p, y)`` and ``predict_proba(p)``.

In CalArena's ``custom_calibrators.py``:

    from monocal.integrations.calarena import CUSTOM_CALIBRATORS

then ``python run_benchmark.py --benchmark cv-multiclass --calibrator monocal-MCCT``. Its files hold probabilities, of one
column in the binary benchmarks, rounded to single precision or less. Here rows are made to sum to one again, a single
column p becomes (1 - p, p), and zeros stand for half the smallest positive probability.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ..calibrators import Calibrator
from ..calibrators.affine import StructuredScaling
from ..calibrators.binary_mcct import BinaryMCCT
from ..calibrators.conditional import ConditionalMCCT
from ..calibrators.mcct import MCCT
from ..calibrators.stacked import StructuredMCCT
from ..calibrators.temperature import TemperatureScaling
from ..classifier import resolvable
from ..errors import InputError

# Rows further from one than rounding to half precision explains are not probabilities.
_TOLERANCE = 0.02


class ArenaCalibrator(BaseEstimator):
    """A calibrator of probabilities, one or more columns.

    Parameters
    ----------
    calibrator : Calibrator
        Any of monocal's; a copy of it gets ``input="probabilities"``.

    Attributes
    ----------
    calibrator_ : Calibrator
    classes_ : ndarray of shape (m,)
    """

    def __init__(self, calibrator: Calibrator):
        self.calibrator = calibrator

    def fit(self, p_cal: Any, y_cal: Any) -> ArenaCalibrator:
        """Learn from probabilities (n,), (n, 1) or (n, m) and labels 0..m-1."""
        p = _rows(p_cal)
        self.calibrator_ = clone(self.calibrator).set_params(input="probabilities").fit(p, y_cal)
        self.classes_ = np.arange(p.shape[1])
        return self

    def predict_proba(self, p_test: Any) -> np.ndarray:
        """Calibrated probabilities (n, m), double precision; two columns in the binary case."""
        check_is_fitted(self)
        return self.calibrator_.predict_proba(_rows(p_test))

    def predict(self, p_test: Any) -> np.ndarray:
        """The most probable class."""
        return np.argmax(self.predict_proba(p_test), axis=1)


# Display name -> a function that makes a fresh calibrator, as CalArena registers them.
CUSTOM_CALIBRATORS: dict[str, Callable[[], ArenaCalibrator]] = {
    f"monocal-{name}": partial(ArenaCalibrator, calibrator)
    for name, calibrator in {
        "TS": TemperatureScaling(),
        "MCCT": MCCT(),
        "MCCT-cv": MCCT(shrinkage="cv"),
        "Conditional": ConditionalMCCT(),
        "Binary": BinaryMCCT(),  # for two classes: it keeps the order of the rows
        # These may change the order of the classes.
        "SVS": StructuredScaling(kind="vector"),
        "SMS": StructuredScaling(),
        "Structured": StructuredMCCT(),
    }.items()
}


def _rows(probabilities: Any) -> np.ndarray:
    """Probabilities (n, m) in double precision whose rows sum to one."""
    p = np.asarray(probabilities, dtype=np.float64)
    p = p[:, None] if p.ndim == 1 else p
    if p.ndim != 2 or not p.size:
        raise InputError(f"probabilities must have shape (n,), (n, 1) or (n, m), but have {p.shape}.")
    if p.shape[1] == 1:
        p = np.hstack([1.0 - p, p])
    off = ~(p >= -_TOLERANCE).all(axis=1) | ~(np.abs(p.sum(axis=1) - 1.0) <= _TOLERANCE)
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"probabilities: row {row} holds {p[row].min():.6g} to {p[row].max():.6g} and sums to {p[row].sum():.6g}, expected "
            "numbers of 0 to 1 that sum to 1."
        )
    p = np.clip(p, 0.0, 1.0)
    return resolvable(p / p.sum(axis=1, keepdims=True))
