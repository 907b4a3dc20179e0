"""When the order may change: structured scaling, stages one after another, and class frequencies that have shifted."""

from .label_shift import LabelShift
from .scaling import StructuredScaling
from .stacked import Stacked
from .structured_mcct import StructuredMCCT

__all__ = ["LabelShift", "Stacked", "StructuredMCCT", "StructuredScaling"]
