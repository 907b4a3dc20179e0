"""What a fitted rank map computes, as plain numbers: the common ground of all exports.

    f = w_d u + b_d,    w_d = sum_k psi_k sum_{e <= d} scale_steps[k, e],    b_d likewise,

where ``d`` counts the jumps at or below the rank of a class, ``u = z - z_low``, ``psi_0 = 1`` and

    psi_k = clip((q - zero_k) / width_k, 0, 1),    q the statistic of the row that factor k looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError


@dataclass(frozen=True)
class AdjustmentPlan:
    """The numbers of the second stage of a conditional map; see `calibration.adjustment`.

    Attributes
    ----------
    class_scales : ndarray of shape (m,) or None
    column_scales : tuple of ndarray or None
        For every column of the context, the scales of its categories and a last one, 1, for others; None for numbers.
    typical : ndarray of shape (C,)
        What stands for a missing number.
    ramp_statistic, ramp_zero, ramp_width : ndarray of shape (K - 1,)
        As in `Plan`; statistic 0 is the log-odds, then come the columns of numbers.
    steps : ndarray of shape (2, K)
        What each factor adds to the scale, and to the top.
    """

    class_scales: np.ndarray | None
    column_scales: tuple[np.ndarray | None, ...]
    typical: np.ndarray
    ramp_statistic: np.ndarray
    ramp_zero: np.ndarray
    ramp_width: np.ndarray
    steps: np.ndarray


@dataclass(frozen=True)
class Plan:
    """The numbers of a fitted rank map.

    Attributes
    ----------
    n_classes, n_ranks : int
        Columns of the logits, and how many of the largest are sorted.
    jumps : ndarray of shape (J,)
        Ranks, counted from the lowest in use, where weight and bias step up.
    scale_steps, bias_steps : ndarray of shape (K, J + 1)
        Non-negative increments for each factor; the first column holds from the lowest rank on.
    statistics : tuple of str or callable
    ramp_statistic, ramp_zero, ramp_width : ndarray of shape (K - 1,)
        No width is 0; it is negative where the ramp rises towards smaller values.
    smallest_probability : float or None
        For calibrators of probabilities, the smallest positive one of the calibration set; None for logits.
    classes : list of str or None
        Names of the columns, where the calibrator was fitted on columns with names.
    adjustment : AdjustmentPlan or None
        What comes after.
    class_axis : int
        The axis of the classes.
    """

    name: str
    n_classes: int
    n_ranks: int
    jumps: np.ndarray
    scale_steps: np.ndarray
    bias_steps: np.ndarray
    statistics: tuple[str | Callable[..., Any], ...]
    ramp_statistic: np.ndarray
    ramp_zero: np.ndarray
    ramp_width: np.ndarray
    smallest_probability: float | None
    classes: list[str] | None = None
    adjustment: AdjustmentPlan | None = None
    class_axis: int = -1

    @property
    def n_context(self) -> int:
        """Columns of the context that the map takes beside logits."""
        return 0 if self.adjustment is None else len(self.adjustment.column_scales)

    @property
    def input(self) -> str:
        """What the map takes."""
        return "logits" if self.smallest_probability is None else "probabilities"

    @property
    def pieces(self) -> np.ndarray:
        """Which piece each rank, lowest first, belongs to."""
        return np.searchsorted(self.jumps, np.arange(self.n_ranks), side="right")


def plan_of(calibrator: Any) -> Plan:
    """The plan of a fitted calibrator that is a rank map; any other is refused with a sentence."""
    check_is_fitted(calibrator)
    rank_map = getattr(calibrator, "rank_map_", None)
    if rank_map is None:
        raise InputError(
            f"{type(calibrator).__name__} cannot be exported. These can: TemperatureScaling, MCCT, MCCTInverse, "
            "ConditionalMCCT, StructuredScaling, and StructuredMCCT, Stacked and LabelShift made of these; fit one of them, or "
            "call predict_proba."
        )
    m = int(calibrator.n_features_in_)
    r = m if rank_map.top_k is None else min(int(rank_map.top_k), m)
    used = rank_map.starts < r
    factors = rank_map.factors
    ramps = () if factors is None else factors.ramps
    return Plan(
        name=type(calibrator).__name__,
        n_classes=m,
        n_ranks=r,
        jumps=rank_map.starts[used][1:].astype(np.int64),
        scale_steps=np.asarray(rank_map.scale_steps, dtype=np.float64)[:, used],
        bias_steps=np.asarray(rank_map.bias_steps, dtype=np.float64)[:, used],
        statistics=() if factors is None else tuple(factors.statistics),
        ramp_statistic=np.array([ramp.statistic for ramp in ramps], dtype=np.int64),
        ramp_zero=np.zeros(0) if factors is None else factors.zeros,
        ramp_width=np.zeros(0) if factors is None else factors.widths,
        smallest_probability=(
            float(calibrator.smallest_probability_) if calibrator.input == "probabilities" else None
        ),
        classes=class_names(calibrator),
        adjustment=_adjustment(getattr(calibrator, "adjustment_", None)),
        class_axis=int(calibrator.class_axis),
    )


def _adjustment(fitted: Any) -> AdjustmentPlan | None:
    if fitted is None:
        return None
    scales = fitted.class_scales
    return AdjustmentPlan(
        class_scales=None if scales is None or scales.variance == 0 else scales.scales,
        column_scales=tuple(None if c is None else np.append(c.scales, 1.0) for c in fitted.column_scales),
        typical=fitted.typical,
        ramp_statistic=np.array([ramp.statistic for ramp in fitted.factors.ramps], dtype=np.int64),
        ramp_zero=fitted.factors.zeros,
        ramp_width=fitted.factors.widths,
        steps=fitted.steps,
    )


def class_names(calibrator: Any) -> list[str] | None:
    """Names of the columns, where the calibrator was fitted on columns with names."""
    names = getattr(calibrator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]
