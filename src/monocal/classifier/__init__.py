"""scikit-learn classifiers with calibrated probabilities."""

from .calibrated import CalibratedClassifier
from .scores import RESOLUTION, resolvable, scores_of

__all__ = ["RESOLUTION", "CalibratedClassifier", "resolvable", "scores_of"]
