"""Every calibrator, one family a file: those that keep the order of classes or of rows, and those to compare with."""

from .affine import DirichletCalibration, MatrixScaling, StructuredScaling, VectorScaling
from .base import Calibrator
from .binary_map import ScoreMap
from .binary_mcct import BinaryMCCT
from .binning import (
    BayesianBinning,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from .conditional import ConditionalMCCT
from .label_shift import LabelShift
from .mcct import MCCT, MCCTInverse, Published
from .multilabel import MultilabelMCCT
from .networks import IntraOrderPreserving, ParameterizedTemperatureScaling
from .one_score import BetaCalibration, PlattScaling, ScoreIsotonic, VennAbers
from .stacked import Stacked, StructuredMCCT
from .temperature import TemperatureScaling

__all__ = [
    "MCCT",
    "BayesianBinning",
    "BetaCalibration",
    "BinaryMCCT",
    "Calibrator",
    "ConditionalMCCT",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "HistogramBinning",
    "IntraOrderPreserving",
    "IsotonicCalibration",
    "LabelShift",
    "MCCTInverse",
    "MatrixScaling",
    "MultilabelMCCT",
    "ParameterizedTemperatureScaling",
    "PlattScaling",
    "Published",
    "ScalingBinning",
    "ScoreIsotonic",
    "ScoreMap",
    "SplineCalibration",
    "Stacked",
    "StructuredMCCT",
    "StructuredScaling",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbers",
]
