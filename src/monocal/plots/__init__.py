"""Numbers first, then pictures: data objects that need numpy only, and displays that draw them with matplotlib.

A display stores its values when made (`from_estimator`, `from_predictions`) and draws them when asked (`plot`), into a
new figure or the caller's axes. Nothing is shown, and no setting of matplotlib is changed.
"""

from .curves import (
    CalibrationCurve,
    SmoothCurve,
    Stretch,
    margin_curve,
    margins,
    reliability_curve,
    smooth_reliability_curve,
)
from .group_curves import GroupCurves, GroupDisplay, group_curves
from .metric_displays import ComparisonDisplay, MonitorDisplay, RiskCoverageDisplay
from .rank_parameters import (
    EffectCurve,
    EffectDisplay,
    RankParameters,
    RankParametersDisplay,
    effect_curve,
    rank_parameters,
)
from .reliability import MarginDisplay, ReliabilityDisplay

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
