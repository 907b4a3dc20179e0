"""Calibrators: one family a file, all with the same few methods."""

from .base import Calibrator
from .conditional import ConditionalMCCT
from .mcct import MCCT, MCCTInverse
from .published import Published
from .temperature import TemperatureScaling

__all__ = ["MCCT", "Calibrator", "ConditionalMCCT", "MCCTInverse", "Published", "TemperatureScaling"]
