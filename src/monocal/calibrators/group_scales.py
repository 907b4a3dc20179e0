"""A scale for each group of rows, shrunk towards 1 as far as the rows themselves say: a test, then empirical Bayes.

    s_g ~ N(1, variance),      minimise  sum_n weight_n NLL_n(s_g(n) f)  +  (s_g - 1)^2 / (2 variance)      for every g

One convex problem in one unknown for each group. ``f`` are the rows at one common scale, which is about 1 because they are
calibrated. There the first step of group g is ``-G / I``, slope over curvature, and its noise depends on how unequal weights are:

    G_g = sum weight_n slope_n,   I_g = sum weight_n curvature_n,   V_g = scatter * sum square_n curvature_n,
    -G_g / I_g  ~  N(0, variance + 1 / J_g),      J_g = I_g^2 / V_g,

where ``square`` is ``weight^2``, or ``weight`` if that is less than 1 (`squared`), and ``scatter`` is 1 if the rows
are calibrated, larger if their slopes scatter more than that. Groups differ by more than chance if Cochran's
``Q = sum_g J_g (step_g - mean step)^2`` is beyond the upper 5 % of chi-squared with G - 1 degrees of freedom, widened by the
kurtosis of the slopes where groups are small. With few errors the level is lower, and several columns share it. If they do not
differ, all scales are 1. If they do, the variance is the most likely one, and the weights of each group count as
``I_g / sum square_n curvature_n`` times themselves, which is 1 for weights of 1: their effective number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from ..arrays import to_numpy
from ..objective.short import ShortRows, squared

# Information below which a group says nothing.
_NOTHING = 1e-9
# The least and the largest variance to consider: scales about 1 % apart, and a factor of several.
_LEAST, _LARGEST = 1e-5, 4.0
# A step never changes a scale by more than this factor, and no scale leaves these bounds.
_STRIDE, LOWEST, HIGHEST = 3.0, 0.02, 50.0
_MOST_STEPS = 100
# How often groups that do not differ may seem to; and the (effective) number of errors below which it must be less often.
_LEVEL, _FEW_ERRORS = 0.05, 50.0


@dataclass(frozen=True)
class GroupScales:
    """The scales of groups and what spoke for them.

    Attributes
    ----------
    scales : ndarray of shape (G,)
    variance : float
        Of the scales, as the rows suggest it; 0: the groups differ by no more than chance.
    p_value : float
        How often chance alone makes groups differ as much.
    rows : ndarray of shape (G,)
        Weight of each group.
    residual : float
        Largest violation of the optimality conditions, a row of the calibration set.
    level : float
        The largest p-value at which scales are used.
    """

    scales: np.ndarray
    variance: float
    p_value: float
    rows: np.ndarray
    residual: float
    level: float

    def of(self, chosen: np.ndarray) -> GroupScales:
        """Those of the groups where ``chosen`` (G,) is true."""
        return replace(self, scales=self.scales[chosen], rows=self.rows[chosen])

    def in_words(self, groups: str) -> str:
        """What was decided about these groups (in the plural), and why."""
        if self.variance == 0:
            return f"one scale for all: scales of {groups} differ by no more than chance"
        scales = self.scales[self.rows > 0]
        why = f"{groups} differ by more than chance" if self.p_value <= self.level else "wanted in any case"
        return f"scales from {scales.min():.3g} to {scales.max():.3g}: {why} (p = {self.p_value:.1g})"


def group_scales(
    rows: ShortRows,
    group: np.ndarray,
    n_groups: int,
    *,
    own_share: float,
    tol: float,
    least_variance: float = 0.0,
    n_columns: int = 1,
) -> GroupScales:
    """Scales of groups (n,), numbered from 0; rows of group -1 take no part. With a variance of 0, all scales are 1."""
    known = group >= 0
    rows, group = rows.of(known), group[known].astype(np.intp)
    counts = np.bincount(group, rows.weight, n_groups)
    scales = np.ones(n_groups)
    if not len(rows):
        return GroupScales(scales, 0.0, 1.0, counts, 0.0, 0.0)
    rows = rows.scaled(_common_scale(rows, own_share))
    variance, p_value = spread_of_groups(rows, group, n_groups, own_share)
    level = level_for(rows, n_columns)
    variance = max(variance if p_value <= level else 0.0, least_variance)
    if variance == 0.0:
        return GroupScales(scales, 0.0, p_value, counts, 0.0, level)
    weight = _effective_weight(rows, group, n_groups, own_share)
    total = float(weight.sum())
    residual = np.inf
    for _ in range(_MOST_STEPS):
        slope, bend = (
            np.bincount(group, weight * x, n_groups) for x in rows.moments(scales[group], own_share)
        )
        curvature = bend + 1.0 / variance
        step = (slope + (scales - 1.0) / variance) / curvature
        low, high = np.maximum(scales / _STRIDE, LOWEST), np.minimum(scales * _STRIDE, HIGHEST)
        moved = np.clip(scales - step, low, high)
        residual = float((abs(scales - moved) * curvature).max()) / total
        if residual <= tol:
            break
        scales = moved
    return GroupScales(scales, variance, p_value, counts, residual, level)


def level_for(rows: ShortRows, n_columns: int) -> float:
    """The p-value at which groups count as different; smaller where errors are few, which a scale would fit one by one."""
    weight = rows.weight[to_numpy(rows.label_depth > 0)]
    errors = float(weight.sum() ** 2 / squared(weight).sum()) if weight.any() else 0.0
    return _LEVEL / n_columns * min(1.0, errors / _FEW_ERRORS) ** 3


def spread_of_groups(
    rows: ShortRows, group: np.ndarray, n_groups: int, own_share: float
) -> tuple[float, float]:
    """The most likely variance of the groups' scales, and the p-value of none; 0 and 1 where fewer than two groups count."""
    slopes, curvatures = rows.moments(1.0, own_share)
    w, w2 = rows.weight, squared(rows.weight)
    noise = w2 * curvatures
    slope, curvature, squares = (np.bincount(group, x, n_groups) for x in (w * slopes, w * curvatures, noise))
    some = curvature > _NOTHING
    degrees = int(some.sum()) - 1
    if degrees < 1:
        return 0.0, 1.0
    # A fit follows rows of large weight closely: their slopes scatter less than those of the others.
    scatter = max(1.0, float(slopes @ slopes / curvatures.sum()), float(w2 @ slopes**2 / noise.sum()))
    step, variance = -slope[some] / curvature[some], scatter * squares[some]
    information = curvature[some] ** 2 / variance
    q = float(information @ (step - information @ step / information.sum()) ** 2)
    normal = float(noise @ noise)
    kurtosis = max(float(w2**2 @ slopes**4) / (scatter**2 * normal) - 3.0, 0.0)
    of_group = kurtosis * scatter**2 * np.bincount(group, noise**2, n_groups)[some] / variance**2
    widened = 1.0 + float(of_group.sum()) * degrees / (2.0 * (degrees + 1) ** 2)
    p_value = float(chi2.sf(q / widened, degrees / widened))

    def loss(log_variance: float) -> float:
        both = np.exp(log_variance) + 1.0 / information
        return float(0.5 * (np.log(both * information) + step**2 * (1.0 / both - information)).sum())

    found = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_LARGEST)), method="bounded")
    return (float(np.exp(found.x)) if found.fun < 0 else 0.0), p_value


def _effective_weight(rows: ShortRows, group: np.ndarray, n_groups: int, own_share: float) -> np.ndarray:
    """Weights (n,) under which the curvature of a group is the variance of its slope, as it is for weights of 1."""
    curvature = rows.moments(1.0, own_share)[1]
    plain, square = (np.bincount(group, w * curvature, n_groups) for w in (rows.weight, squared(rows.weight)))
    factor = np.divide(plain, square, out=np.ones(n_groups), where=square > 0)
    effective: np.ndarray = rows.weight * factor[group]
    return effective


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
