"""Every method that monocal is compared with, one family a file."""

from .affine import DirichletCalibration, MatrixScaling, VectorScaling
from .bayesian_binning import BayesianBinning
from .ensemble_temperature import EnsembleTemperatureScaling
from .histogram import HistogramBinning
from .intra_order_preserving import IntraOrderPreserving
from .isotonic import IsotonicCalibration
from .parameterized_temperature import ParameterizedTemperatureScaling
from .scaling_binning import ScalingBinning
from .spline import SplineCalibration

__all__ = [
    "BayesianBinning",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "HistogramBinning",
    "IntraOrderPreserving",
    "IsotonicCalibration",
    "MatrixScaling",
    "ParameterizedTemperatureScaling",
    "ScalingBinning",
    "SplineCalibration",
    "VectorScaling",
]
