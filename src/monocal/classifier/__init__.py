"""scikit-learn classifiers with calibrated probabilities."""

from .calibrated import CalibratedClassifier
from .members import CalibratedModel
from .scores import RESOLUTION, resolvable, scores_pairs, scoring_estimator

__all__ = [
    "RESOLUTION",
    "CalibratedClassifier",
    "CalibratedModel",
    "resolvable",
    "scores_pairs",
    "scoring_estimator",
]
