"""A scale for each group of rows, shrunk towards 1 as far as the rows themselves say: empirical Bayes.

    s_g ~ N(1, variance),      minimise  sum_n weight_n NLL_n(s_g(n) f)  +  (s_g - 1)^2 / (2 variance)      for every g

One convex problem in one unknown for each group. The variance is that under which the groups' first steps are most likely: at
a common scale, the step of group g is ``-G / I`` (slope over curvature) and has, beside the true effect, the variance of noise,

    -G_g / I_g  ~  N(0, variance + noise / I_g),          noise = sum_n slope_n^2 / sum_n curvature_n,

where ``noise`` is 1 if the rows are calibrated, and larger if their slopes scatter more than that. Groups that differ by no more
than chance give a variance of 0, and all scales are 1: a column of noise is almost always left out. The evidence is twice the
gain in log-likelihood over that; of few rows, of few errors and of many columns more of it is asked. ``f`` are the rows at one
common scale, which is about 1 because they are calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from ..arrays import to_numpy
from ..objective.short import ShortRows

# Information below which a group says nothing.
_NOTHING = 1e-9
# The least and the largest variance to consider: scales about 1 % apart, and a factor of several.
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
    asked : float
        The evidence that was asked for.
    """

    scales: np.ndarray
    variance: float
    evidence: float
    rows: np.ndarray
    residual: float
    asked: float = 0.0

    def of(self, chosen: np.ndarray) -> GroupScales:
        """Those of the groups where ``chosen`` (G,) is true."""
        return replace(self, scales=self.scales[chosen], rows=self.rows[chosen])

    def in_words(self, groups: str) -> str:
        """What was decided about these groups (in the plural), and why."""
        if self.variance == 0:
            return f"one scale for all: {groups} differ by no more than chance"
        told = self.scales[self.rows > 0]
        why = f"{groups} differ by more than chance" if self.evidence >= self.asked else "wanted in any case"
        return f"scales from {told.min():.3g} to {told.max():.3g}: {why} (evidence {self.evidence:.1f}, {self.asked:.1f} asked)"


def group_scales(
    rows: ShortRows,
    group: np.ndarray,
    n_groups: int,
    *,
    own_share: float,
    tol: float,
    least_variance: float = 0.0,
    more_evidence: float = 0.0,
) -> GroupScales:
    """Scales of groups (n,), numbered from 0; rows of group -1 take no part. With a variance of 0, all scales are 1.

    ``more_evidence`` is asked for beyond what few rows and few errors ask.
    """
    known = group >= 0
    rows, group = rows.of(known), group[known].astype(np.intp)
    counts = np.bincount(group, rows.weight, n_groups)
    scales = np.ones(n_groups)
    if not len(rows):
        return GroupScales(scales, 0.0, 0.0, counts, 0.0)
    rows = rows.scaled(_common_scale(rows, own_share))
    variance, evidence = spread_of_groups(rows, group, n_groups, own_share)
    total = float(rows.weight.sum())
    asked = _asked(total, float(rows.weight @ to_numpy(rows.label_depth > 0))) + more_evidence
    if evidence < asked:
        variance = 0.0
    variance = max(variance, least_variance)
    if variance == 0.0:
        return GroupScales(scales, 0.0, evidence, counts, 0.0, asked)
    residual = np.inf
    for _ in range(_MOST_STEPS):
        slope, bend = (
            np.bincount(group, rows.weight * x, n_groups) for x in rows.moments(scales[group], own_share)
        )
        curvature = bend + 1.0 / variance
        step = (slope + (scales - 1.0) / variance) / curvature
        low, high = np.maximum(scales / _STRIDE, LOWEST), np.minimum(scales * _STRIDE, HIGHEST)
        moved = np.clip(scales - step, low, high)
        residual = float((abs(scales - moved) * curvature).max()) / total
        if residual <= tol:
            break
        scales = moved
    return GroupScales(scales, variance, evidence, counts, residual, asked)


def _asked(n_rows: float, n_errors: float) -> float:
    """The evidence that is asked for: a few hundred rows, or a few errors among any number, often look as if groups differed."""
    return max(min(4.0, 1000.0 / n_rows), min(10.0, 150.0 / max(n_errors, 1.0)))


def spread_of_groups(
    rows: ShortRows, group: np.ndarray, n_groups: int, own_share: float
) -> tuple[float, float]:
    """The most likely variance of the groups' scales, and its evidence; 0 and 0 where fewer than two groups say anything."""
    slopes, curvatures = rows.moments(1.0, own_share)
    slope, curvature = (np.bincount(group, rows.weight * x, n_groups) for x in (slopes, curvatures))
    told = curvature > _NOTHING
    if told.sum() < 2:
        return 0.0, 0.0
    scatter = float(rows.weight @ slopes**2) / float(rows.weight @ curvatures)
    step, noise = -slope[told] / curvature[told], max(scatter, 1.0) / curvature[told]

    def loss(log_variance: float) -> float:
        both = np.exp(log_variance) + noise
        return float(0.5 * (np.log(both / noise) + step**2 * (1.0 / both - 1.0 / noise)).sum())

    found = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_LARGEST)), method="bounded")
    evidence = -2.0 * float(found.fun)
    return (float(np.exp(found.x)), evidence) if evidence > 0 else (0.0, 0.0)


def _common_scale(rows: ShortRows, own_share: float) -> float:
    """One scale for all rows: about 1, since they are calibrated; one or two steps will do."""
    scale = 1.0
    for _ in range(_MOST_STEPS):
        slope, curvature = (float(rows.weight @ x) for x in rows.moments(scale, own_share))
        if curvature <= _NOTHING:
            return scale
        low, high = max(scale / _STRIDE, LOWEST), min(scale * _STRIDE, HIGHEST)
        moved = float(np.clip(scale - slope / curvature, low, high))
        if abs(moved - scale) < 1e-6:
            break
        scale = moved
    return scale
