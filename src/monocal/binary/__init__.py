"""Calibrators of two classes by one score, and of many labels: they keep the order of the rows, and leave the threshold free."""

from .binary_map import ScoreMap
from .binary_mcct import BinaryMCCT
from .multilabel import MultilabelMCCT
from .one_score import BetaCalibration, PlattScaling, ScoreIsotonic, VennAbers

__all__ = [
    "BetaCalibration",
    "BinaryMCCT",
    "MultilabelMCCT",
    "PlattScaling",
    "ScoreIsotonic",
    "ScoreMap",
    "VennAbers",
]
