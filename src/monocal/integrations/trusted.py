"""The types that skops may load in a file of monocal's: every calibrator, and what fitted ones are made of.

skops stores scikit-learn estimators without pickle and loads no type that its reader has not called trusted. These hold numbers
and run no code of a file.
"""

from __future__ import annotations

from ..calibrators import CALIBRATORS, ScoreMap
from ..calibrators.adjustment import Adjustment, GroupScales
from ..calibrators.binary_context import ContextEffect
from ..calibrators.rank_map import RankMap
from ..classifier import CalibratedClassifier, CalibratedModel
from ..core.statistics import Ramp, RampFactors
from ..inputs.context import Column, ContextReader
from ..solver import Solution, Status, Step

_TYPES: tuple[type, ...] = (
    *(*CALIBRATORS.values(), CalibratedClassifier, CalibratedModel),
    *(RankMap, Ramp, RampFactors, Adjustment, GroupScales, ContextEffect, ScoreMap),
    *(Column, ContextReader, Solution, Status, Step),
)

SKOPS_TRUSTED: list[str] = sorted({f"{kind.__module__}.{kind.__qualname__}" for kind in _TYPES})
"""Names for ``skops.io.load(file, trusted=mc.SKOPS_TRUSTED)``; add those of your own estimator, if skops asks for them."""
