"""Numbers first, then pictures: data objects that need numpy only, and displays that draw them with matplotlib.

A display stores its values when made (`from_estimator`, `from_predictions`) and draws them when asked (`plot`), into a
new figure or the caller's axes. Nothing is shown, and no setting of matplotlib is changed.
"""

from .comparison import ComparisonDisplay
from .curves import CalibrationCurve, Stretch, margin_curve, margins, reliability_curve
from .groups import GroupCurves, GroupDisplay, group_curves
from .margin import MarginDisplay
from .over_time import MonitorDisplay
from .parameters import EffectCurve, RankParameters, effect_curve, rank_parameters
from .ranks import EffectDisplay, RankParametersDisplay
from .reliability import ReliabilityDisplay
from .selective import RiskCoverageDisplay
from .smooth_curve import SmoothCurve, smooth_reliability_curve

__all__ = [
    "CalibrationCurve",
    "ComparisonDisplay",
    "EffectCurve",
    "EffectDisplay",
    "GroupCurves",
    "GroupDisplay",
    "MarginDisplay",
    "MonitorDisplay",
    "RankParameters",
    "RankParametersDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "SmoothCurve",
    "Stretch",
    "effect_curve",
    "group_curves",
    "margin_curve",
    "margins",
    "rank_parameters",
    "reliability_curve",
    "smooth_reliability_curve",
]
