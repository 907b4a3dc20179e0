"""Calibrators: one family a file, all with the same few methods."""

from .affine import DirichletCalibration, MatrixScaling, VectorScaling
from .base import Calibrator
from .bayesian_binning import BayesianBinning
from .conditional import ConditionalMCCT
from .ensemble_temperature import EnsembleTemperatureScaling
from .histogram import HistogramBinning
from .isotonic import IsotonicCalibration
from .mcct import MCCT, MCCTInverse
from .published import Published
from .scaling_binning import ScalingBinning
from .spline import SplineCalibration
from .temperature import TemperatureScaling

__all__ = [
    "MCCT",
    "BayesianBinning",
    "Calibrator",
    "ConditionalMCCT",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "HistogramBinning",
    "IsotonicCalibration",
    "MCCTInverse",
    "MatrixScaling",
    "Published",
    "ScalingBinning",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
]
