"""Calibrators: one family a file, all with the same few methods."""

from .affine import DirichletCalibration, MatrixScaling, VectorScaling
from .base import Calibrator
from .conditional import ConditionalMCCT
from .ensemble_temperature import EnsembleTemperatureScaling
from .mcct import MCCT, MCCTInverse
from .published import Published
from .temperature import TemperatureScaling

__all__ = [
    "MCCT",
    "Calibrator",
    "ConditionalMCCT",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "MCCTInverse",
    "MatrixScaling",
    "Published",
    "TemperatureScaling",
    "VectorScaling",
]
