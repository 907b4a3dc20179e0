"""What a fitted calibrator of several steps computes, as plain numbers: rank maps and affine maps, one after another.

    affine:   x = (z - max z) / T,  or with a floor e > 0   x = log( (1 - e) softmax(z / T) + e / m )
              f = coef x + intercept       (a matrix, or a weight for every class)

A class that is not available stays so; where others look at it, ``centre`` stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..structured import LabelShift, Stacked, StructuredScaling
from .plan import Plan, class_names, plan_of


@dataclass(frozen=True)
class AffinePlan:
    """The numbers of an affine map of log-probabilities.

    Attributes
    ----------
    scale : float
        ``1 / T``.
    floor : float
        ``e`` above.
    coef : ndarray of shape (m,) or (m, m)
    intercept, centre : ndarray of shape (m,)
    """

    scale: float
    floor: float
    coef: np.ndarray
    intercept: np.ndarray
    centre: np.ndarray


@dataclass(frozen=True)
class Chain:
    """Steps to take one after another, the first first.

    Attributes
    ----------
    name : str
    n_classes : int
    steps : tuple of Plan or AffinePlan
    smallest_probability : float or None
        As in `Plan`, for the input of the first step.
    classes : list of str or None
    class_axis : int
        As in `Plan`.
    """

    name: str
    n_classes: int
    steps: tuple[Plan | AffinePlan, ...]
    smallest_probability: float | None
    classes: list[str] | None = None
    class_axis: int = -1

    @property
    def input(self) -> str:
        """What the first step takes."""
        return "logits" if self.smallest_probability is None else "probabilities"

    @property
    def n_context(self) -> int:
        """Columns of context: none, since stages are given logits alone."""
        return 0

    @property
    def statistics(self) -> tuple[Any, ...]:
        return tuple(s for step in self.steps if isinstance(step, Plan) for s in step.statistics)


def chain_of(calibrator: Any) -> Plan | Chain:
    """The plan of a rank map, or the chain of a calibrator made of rank maps and affine maps; others are refused."""
    if not isinstance(calibrator, Stacked | LabelShift | StructuredScaling):
        return plan_of(calibrator)
    check_is_fitted(calibrator)
    return Chain(
        name=type(calibrator).__name__,
        n_classes=int(calibrator.n_features_in_),
        steps=tuple(_steps(calibrator)),
        smallest_probability=(
            float(calibrator.smallest_probability_) if calibrator.input == "probabilities" else None
        ),
        classes=class_names(calibrator),
        class_axis=int(calibrator.class_axis),
    )


def _steps(calibrator: Any) -> list[Plan | AffinePlan]:
    if isinstance(calibrator, Stacked):
        return [step for stage in calibrator.stages_ for step in _steps(stage)]
    if isinstance(calibrator, LabelShift):
        ones = np.ones(len(calibrator.prior_))
        return [
            *_steps(calibrator.calibrator_),
            AffinePlan(1.0, 0.0, ones, calibrator.log_ratio_, 0.0 * ones),
        ]
    if isinstance(calibrator, StructuredScaling):
        c = calibrator
        return [AffinePlan(1.0 / c.temperature_, c.floor_, c.coef_, c.intercept_, c.centre_)]
    return [plan_of(calibrator)]
