"""Calibrators: one family a file, all with the same few methods."""

from .affine import DirichletCalibration, MatrixScaling, VectorScaling
from .base import Calibrator
from .bayesian_binning import BayesianBinning
from .conditional import ConditionalMCCT
from .ensemble_temperature import EnsembleTemperatureScaling
from .histogram import HistogramBinning
from .intra_order_preserving import IntraOrderPreserving
from .isotonic import IsotonicCalibration
from .label_shift import LabelShift
from .mcct import MCCT, MCCTInverse
from .parameterized_temperature import ParameterizedTemperatureScaling
from .published import Published
from .registry import CalibratorInfo, calibrators
from .scaling_binning import ScalingBinning
from .spline import SplineCalibration
from .stacked import Stacked
from .structured import StructuredScaling
from .structured_mcct import StructuredMCCT
from .temperature import TemperatureScaling
from .top_k_outputs import TopK, TopKProbabilities

__all__ = [
    "MCCT",
    "BayesianBinning",
    "Calibrator",
    "CalibratorInfo",
    "ConditionalMCCT",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "HistogramBinning",
    "IntraOrderPreserving",
    "IsotonicCalibration",
    "LabelShift",
    "MCCTInverse",
    "MatrixScaling",
    "ParameterizedTemperatureScaling",
    "Published",
    "ScalingBinning",
    "SplineCalibration",
    "Stacked",
    "StructuredMCCT",
    "StructuredScaling",
    "TemperatureScaling",
    "TopK",
    "TopKProbabilities",
    "VectorScaling",
    "calibrators",
]
