"""The calibrators that keep the order: temperature scaling, MCCT and the conditional family, one family a file."""

from .base import Calibrator
from .conditional import ConditionalMCCT
from .mcct import MCCT, MCCTInverse
from .published import Published
from .temperature import TemperatureScaling

__all__ = ["MCCT", "Calibrator", "ConditionalMCCT", "MCCTInverse", "Published", "TemperatureScaling"]
