"""A scale for each group of rows, shrunk towards 1 as far as the rows themselves say: empirical Bayes.

    s_g ~ N(1, variance),      minimise  sum_n weight_n NLL_n(s_g(n) f)  +  (s_g - 1)^2 / (2 variance)      for every g

One convex problem in one unknown for each group. The variance is that under which the groups' first steps are most likely: at
a common scale, the step of group g is ``-G / I`` (slope over curvature) and has, beside the true effect, the variance ``1 / I``,

    -G_g / I_g  ~  N(0, variance + 1 / I_g).

Groups that differ by no more than chance give a variance of 0, and all scales are 1: a column of noise does nothing. The
evidence is twice the gain in log-likelihood over that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from ..objective.short import ShortRows

# Information below which a group says nothing.
_NOTHING = 1e-9
# The least and the largest variance to consider: scales between about 1 % apart and a factor of several.
_LEAST, _LARGEST = 1e-5, 4.0
# A step never changes a scale by more than this factor, and no scale leaves these bounds.
_STRIDE, LOWEST, HIGHEST = 3.0, 0.02, 50.0
_MOST_STEPS = 100


@dataclass(frozen=True)
class GroupScales:
    """The scales of groups and what spoke for them.

    Attributes
    ----------
    scales : ndarray of shape (G,)
    variance : float
        Of the scales, as the rows suggest it; 0: the groups differ by no more than chance.
    evidence : float
        Twice the log-likelihood that the variance gains over none.
    rows : ndarray of shape (G,)
        Weight of each group.
    residual : float
        Largest violation of the optimality conditions, a row of the calibration set.
    """

    scales: np.ndarray
    variance: float
    evidence: float
    rows: np.ndarray
    residual: float


def group_scales(
    rows: ShortRows, group: np.ndarray, n_groups: int, tol: float, least_evidence: float
) -> GroupScales:
    """Scales of groups (n,), numbered from 0; rows of group -1 take no part. Without enough evidence, all are 1."""
    rows = rows.of(group >= 0)
    group = group[group >= 0].astype(np.intp)

    def by_group(values: np.ndarray) -> np.ndarray:
        return np.bincount(group, rows.weight * values, n_groups)

    total = float(rows.weight.sum())
    counts = by_group(np.ones(len(group)))
    scales = np.ones(n_groups)
    common = _common_scale(rows)
    slope, curvature = (by_group(x) for x in rows.scaled(np.full(len(group), common)).moments(scales[group]))
    variance, evidence = _variance(slope, curvature)
    if evidence < least_evidence:
        return GroupScales(scales, 0.0, evidence, counts, 0.0)
    rows = rows.scaled(np.full(len(group), common))
    for _ in range(_MOST_STEPS):
        slope, curvature = (by_group(x) for x in rows.moments(scales[group]))
        gradient = slope + (scales - 1.0) / variance
        step = gradient / (curvature + 1.0 / variance)
        moved = np.clip(
            scales - step, np.maximum(scales / _STRIDE, LOWEST), np.minimum(scales * _STRIDE, HIGHEST)
        )
        residual = float(abs((scales - moved) * (curvature + 1.0 / variance)).max(initial=0.0)) / total
        if residual <= tol:
            break
        scales = moved
    return GroupScales(scales, variance, evidence, counts, residual)


def _common_scale(rows: ShortRows) -> float:
    """One scale for all rows: about 1, since they are calibrated; one or two steps will do."""
    scale = 1.0
    for _ in range(_MOST_STEPS):
        slope, curvature = (float(rows.weight @ x) for x in rows.moments(np.full(len(rows), scale)))
        if curvature <= _NOTHING:
            return scale
        moved = float(np.clip(scale - slope / curvature, scale / _STRIDE, scale * _STRIDE))
        moved = min(max(moved, LOWEST), HIGHEST)
        if abs(moved - scale) < 1e-6:
            break
        scale = moved
    return scale


def _variance(slope: np.ndarray, curvature: np.ndarray) -> tuple[float, float]:
    """The most likely variance of the groups' scales, and its evidence; 0 and 0 where fewer than two groups say anything."""
    told = curvature > _NOTHING
    if told.sum() < 2:
        return 0.0, 0.0
    step, noise = -slope[told] / curvature[told], 1.0 / curvature[told]

    def loss(variance: float) -> float:
        both = variance + noise
        return float(0.5 * (np.log(both / noise) + step**2 * (1.0 / both - 1.0 / noise)).sum())

    found = minimize_scalar(
        lambda x: loss(np.exp(x)), bounds=(np.log(_LEAST), np.log(_LARGEST)), method="bounded"
    )
    evidence = -2.0 * float(found.fun)
    return (float(np.exp(found.x)), evidence) if evidence > 0 else (0.0, 0.0)
