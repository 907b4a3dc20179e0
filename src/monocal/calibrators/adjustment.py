"""The second stage: how sure a row is, by the class on its top and by its context.

    f' = W f - A 1[not top],     W = s_class s_column ... (sum_k psi_k c_k) > 0,      A = sum_k psi_k d_k >= 0,

for calibrated logits ``f`` of the first stage, 0 at the top of a row. ``s`` are scales of groups of rows: of those with one class
on top, and of those with one category of a column. ``psi`` are the constant 1 and ramps, of the log-odds of the
top class after those scales, and of numbers of the context. ``W`` and ``A`` are constants within a row, so the order
stands: a larger ``f`` stays larger, and only the top is lifted above the others. Where several classes share the top, no class is
predicted: the row takes the scale 1 and is not lifted, and it teaches nothing about rows that have a top.

Scales come first and ramps last. A scale by class corrects each class alone, so errors of several classes that cancelled before
may no longer cancel. The ramps then make the confidence right on average, at every level of it.

The scales of groups are shrunk towards 1:

    s_g ~ N(1, variance),      minimise  sum_n weight_n NLL_n(s_g(n) f)  +  (s_g - 1)^2 / (2 variance)      for every g

is one convex problem in one unknown for each group. ``f`` are the rows at one common scale, about 1 because they are calibrated.
There the first step of group g is ``-G / I``, slope over curvature, and its noise depends on how unequal weights are:

    G_g = sum weight_n slope_n,   I_g = sum weight_n curvature_n,   V_g = scatter * sum square_n curvature_n,
    -G_g / I_g  ~  N(0, variance + 1 / J_g),      J_g = I_g^2 / V_g,

where ``square`` is ``weight^2``, or ``weight`` if that is less than 1 (`squared`), and ``scatter`` is 1 if the rows
are calibrated, larger if their slopes scatter more than that. Groups differ by more than chance if Cochran's
``Q = sum_g J_g (step_g - mean step)^2`` is beyond its upper tail: chi-squared with G - 1 degrees of freedom, widened by the
kurtosis of the slopes where groups are small. With few errors the level is lower, and several columns share it. If they do not
differ, all scales are 1. If they do, the variance is the most likely one (empirical Bayes), and the weights of each group count
as ``I_g / sum square_n curvature_n`` times themselves, which is 1 for weights of 1: their effective number of rows.

The ramps are one more cone of rank atoms (`core.cone`), with a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from ..core.cone import RankCone
from ..core.engine import BIAS, SCALE
from ..core.statistics import RampFactors, choose_ramps
from ..inputs.context import NUMBER, ContextReader
from ..solver import Solution, minimize
from .calibrated_rows import CalibratedRows, squared
from .cone_calibrator import BIAS_EMPHASIS, PSEUDO_ERRORS, SCALE_EMPHASIS
from .rank_map import check_ramps
from .state import expect

# Scales of groups stay within these bounds.
LOWEST, HIGHEST = 0.02, 50.0
# Of the first stage's shrinkage; chosen by cross-validation on calibration parts of real sets.
_SHARE = 0.75
# The variance of scales by class where they are asked for, whatever the evidence: they differ by 5 %.
_ASKED_VARIANCE = 0.05**2
# Information below which a group says nothing.
_NOTHING = 1e-9
# The least and the largest variance to consider: scales about 1 % apart, and a factor of several.
_LEAST, _LARGEST = 1e-5, 4.0
# A step never changes a scale by more than this factor.
_STRIDE, _MOST_STEPS = 3.0, 100
# The p-value at which groups differ: of simulated columns of noise 2 to 5 % are then used, at 1,000 to 60,000 rows. And the
# (effective) number of errors below which it must be smaller.
_LEVEL, _FEW_ERRORS = 0.04, 50.0


@dataclass(frozen=True)
class GroupScales:
    """The scales of groups and the evidence for them."""

    scales: np.ndarray  # (G,)
    variance: float  # of the scales, as the rows suggest it; 0: the groups differ by no more than chance
    p_value: float  # how often chance alone makes groups differ as much
    rows: np.ndarray  # (G,), weight of each group
    residual: float  # largest violation of the optimality conditions, a row of the calibration set
    level: float  # the largest p-value at which scales are used

    def __str__(self) -> str:
        """What was decided, and why, where the groups are classes."""
        if self.variance == 0:
            return "one scale for all: scales of classes differ by no more than chance"
        scales = self.scales[self.rows > 0]
        why = "classes differ by more than chance" if self.p_value <= self.level else "asked for in any case"
        return f"scales from {scales.min():.3g} to {scales.max():.3g}: {why} (p = {self.p_value:.1g})"


@dataclass(frozen=True)
class Adjustment:
    """The second stage, fitted."""

    class_scales: GroupScales | None  # by top class; None where they were not asked for
    column_scales: tuple[
        GroupScales | None, ...
    ]  # by category of each column of the context; None for numbers
    typical: np.ndarray  # (C,), the median, which stands for a missing number; 0 for categories
    factors: RampFactors  # of the log-odds and of the columns of numbers, less what is typical
    steps: np.ndarray  # (2, K), ``c`` and ``d``, by factor
    factor_means: np.ndarray  # (K,)
    solution: Solution  # with the certificate for ``steps``

    @property
    def residual(self) -> float:
        """Largest violation of the optimality conditions by the scales of any group."""
        groups = [g for g in (self.class_scales, *self.column_scales) if g is not None]
        return max((g.residual for g in groups), default=0.0)


def check_adjustment(calibrator: Any, value: Any, name: str) -> None:
    """Rule of `state`: nothing, or scales and ramps for the classes and the context of the calibrator."""
    if value is None:
        return
    expect(isinstance(value, Adjustment), name, value, "a second stage")
    columns = getattr(getattr(calibrator, "context_", None), "columns", ())
    fits = isinstance(value.column_scales, tuple) and len(value.column_scales) == len(columns)
    expect(fits, f"{name}.column_scales", value.column_scales, "one entry for each column of context")
    expect(np.shape(value.typical) == (len(columns),), f"{name}.typical", value.typical)
    of_numbers = [column.kind == NUMBER for column in columns]
    none = [scales is None for scales in value.column_scales]
    expect(none == of_numbers, f"{name}.column_scales", value.column_scales, "none for numbers alone")
    sizes = [calibrator.n_features_in_, *(len(column.categories) for column in columns)]
    for groups, size in zip((value.class_scales, *value.column_scales), sizes, strict=True):
        if groups is not None:
            scales = np.asarray(groups.scales) if isinstance(groups, GroupScales) else np.zeros(0)
            right = scales.shape == (size,) and ((scales >= LOWEST) & (scales <= HIGHEST)).all()
            expect(right, f"{name}.scales", groups, f"{size} scales from {LOWEST} to {HIGHEST}")
    expect(isinstance(value.factors, RampFactors), f"{name}.factors", value.factors, "ramps")
    check_ramps(value.factors, 1 + sum(of_numbers), f"{name}.factors")
    steps = np.asarray(value.steps)
    right = steps.shape == (2, value.factors.n_factors) and (steps >= 0).all() and steps[0, 0] > 0
    expect(right, f"{name}.steps", steps, "numbers not below 0, and a scale above 0")


def fit_second_stage(
    rows: CalibratedRows,
    context: ContextReader | None,
    n_classes: int,
    *,
    by_class: bool | str,
    n_knots: int,
    shrinkage: float,
    prior_rows: float,
    tol: float,
    max_iter: int,
) -> tuple[Adjustment, np.ndarray]:
    """The second stage for calibrated rows, each of which has one class on top; and their log-odds (n,) after it."""
    total = float(rows.weight.sum())
    prior_share = prior_rows / (total + prior_rows)
    columns = () if context is None else context.columns
    how: dict[str, Any] = {"prior_share": prior_share, "tol": tol}
    class_scales = None
    if by_class:
        least = 0.0 if by_class == "auto" else _ASKED_VARIANCE
        class_scales, rows = scaled_by_group(rows, rows.top_class, n_classes, least_variance=least, **how)
    column_scales: list[GroupScales | None] = [None] * len(columns)
    typical = np.zeros(len(columns))
    numbers: list[np.ndarray] = []
    for i, column in enumerate(columns):
        values = rows.context[:, i]
        if column.kind == NUMBER:
            there = ~np.isnan(values)
            if there.any():
                median = {"weights": rows.weight[there], "method": "inverted_cdf"}
                typical[i] = np.quantile(values[there], 0.5, **median)
            numbers.append(np.where(there, values - typical[i], 0.0))
        else:
            size = len(column.categories)
            column_scales[i], rows = scaled_by_group(rows, values, size, n_columns=len(columns), **how)
    values = np.stack([rows.log_odds(), *numbers], axis=1)
    used = [0]
    if numbers:  # those with which scales change by more than chance: the scales of their quantiles as groups
        level, moments = level_for(rows, len(columns)), rows.moments(1.0, prior_share)
        for k, x in enumerate(numbers, 1):
            groups = _quantile_groups(x, rows.weight, n_knots)
            if spread_of_groups(rows.weight, moments, *groups)[1] <= level:
                used.append(k)
    names = ("log_odds", *(column.name for column in columns if column.kind == NUMBER))
    ramps = choose_ramps(values[:, used], rows.weight, n_knots)
    factors = RampFactors(names, tuple(replace(ramp, statistic=used[ramp.statistic]) for ramp in ramps))
    problem = _ramp_problem(rows, values, factors, total, prior_share)
    solution = minimize(
        problem.with_strength(_SHARE * shrinkage, tol),
        start=problem.start(),
        tol=tol,
        gap_tol=100.0 * tol,
        max_iter=max_iter,
    )
    steps = problem.grid(solution.coefficients).sum(axis=2)
    means = problem.totals.mean[BIAS, :, 0] / problem.totals.weight
    weight, lift = steps @ factors.of_statistics(values).T
    fitted = Adjustment(class_scales, tuple(column_scales), typical, factors, steps, means, solution)
    return fitted, rows.scaled(weight).log_odds() + lift


def _ramp_problem(
    rows: CalibratedRows, values: np.ndarray, factors: RampFactors, total: float, prior_share: float
) -> RankCone:
    """Scales of whole rows and biases of the top, each times a ramp."""
    prepared = rows.for_solver(values, factors.of_statistics)
    allowed = np.zeros((2, factors.n_factors, prepared.n_ranks), dtype=bool)
    allowed[SCALE, :, 0] = True
    allowed[BIAS, :, -1] = True
    emphasis = np.ones((2, factors.n_factors, 1))
    emphasis[:, 1:] = np.reshape([SCALE_EMPHASIS, BIAS_EMPHASIS], (2, 1, 1))
    unit = prepared.sum("information", 1.0).unit(total, PSEUDO_ERRORS)
    problem = RankCone(prepared, allowed, emphasis=emphasis, unit=unit, mirrors=factors.mirrors, scale=1.0)
    return problem.leaning_on(rows.prior_targets(prepared), prior_share) if prior_share else problem


def scaled_by_group(
    rows: CalibratedRows,
    group: np.ndarray,
    n_groups: int,
    *,
    prior_share: float,
    tol: float,
    least_variance: float = 0.0,
    n_columns: int = 1,
) -> tuple[GroupScales, CalibratedRows]:
    """Scales of groups (n,), numbered from 0, and the rows multiplied by them; rows of group -1 take no part."""
    member = group >= 0
    own, number = rows[member], group[member].astype(np.intp)
    scales, residual = np.ones(n_groups), 0.0
    variance, p_value, level = 0.0, 1.0, 0.0
    if len(number):
        own = own.scaled(_common_scale(own, prior_share))
        moments = own.moments(1.0, prior_share)
        variance, p_value = spread_of_groups(own.weight, moments, number, n_groups)
        level = level_for(own, n_columns)
        variance = max(variance if p_value <= level else 0.0, least_variance)
    if variance > 0.0:
        # Weights under which the curvature of a group is the variance of its slope, as it is for weights of 1.
        plain, square = (
            np.bincount(number, w * moments[1], n_groups) for w in (own.weight, squared(own.weight))
        )
        weight = own.weight * np.divide(plain, square, out=np.ones(n_groups), where=square > 0)[number]
        scales, residual = _shrunk_scales(own, weight, number, scales, variance, prior_share, tol)
    counts = np.bincount(number, own.weight, n_groups)
    fitted = GroupScales(scales, variance, p_value, counts, residual, level)
    return fitted, rows.scaled(np.append(scales, 1.0)[group.astype(np.intp)])


def _shrunk_scales(
    rows: CalibratedRows,
    weight: np.ndarray,
    group: np.ndarray,
    scales: np.ndarray,
    variance: float,
    prior_share: float,
    tol: float,
) -> tuple[np.ndarray, float]:
    """The scale of every group by Newton's method, and the largest violation of its conditions."""
    total, residual, n_groups = float(weight.sum()), np.inf, len(scales)
    for _ in range(_MOST_STEPS):
        slope, bend = (
            np.bincount(group, weight * x, n_groups) for x in rows.moments(scales[group], prior_share)
        )
        curvature = bend + 1.0 / variance
        moved = _moved(scales, (slope + (scales - 1.0) / variance) / curvature)
        residual = float((abs(scales - moved) * curvature).max()) / total
        if residual <= tol:
            break
        scales = moved
    return scales, residual


def _moved(scale: Any, step: Any) -> Any:
    """``scale - step``, no more than a stride away and within the bounds."""
    low, high = np.maximum(scale / _STRIDE, LOWEST), np.minimum(scale * _STRIDE, HIGHEST)
    return np.clip(scale - step, low, high)


def level_for(rows: CalibratedRows, n_columns: int) -> float:
    """The p-value at which groups count as different; smaller where errors are few, which a scale would fit one by one."""
    weight = rows.weight[rows.label_place > 0]
    errors = float(weight.sum() ** 2 / squared(weight).sum()) if weight.any() else 0.0
    return _LEVEL / n_columns * min(1.0, errors / _FEW_ERRORS) ** 3


def _quantile_groups(values: np.ndarray, weight: np.ndarray, n_knots: int) -> tuple[np.ndarray, int]:
    """Rows by the quantiles of a number, (n,), and how many groups these are."""
    levels = np.linspace(0.0, 1.0, n_knots + 2)
    edges = np.unique(np.quantile(values, levels, weights=weight, method="inverted_cdf"))
    # A group begins at each edge but the lowest, so that few different values are groups of their own.
    return np.searchsorted(edges[1:], values, side="right"), len(edges)


def spread_of_groups(
    w: np.ndarray, moments: tuple[np.ndarray, np.ndarray], group: np.ndarray, n_groups: int
) -> tuple[float, float]:
    """The most likely variance of the groups' scales, and the p-value of none; 0 and 1 where fewer than two groups count."""
    (slopes, curvatures), w2 = moments, squared(w)
    noise = w2 * curvatures
    slope, curvature, squares = (np.bincount(group, x, n_groups) for x in (w * slopes, w * curvatures, noise))
    informative = curvature > _NOTHING
    degrees = int(informative.sum()) - 1
    if degrees < 1:
        return 0.0, 1.0
    # A fit follows rows of large weight closely: their slopes scatter less than those of the others.
    scatter = max(1.0, float(slopes @ slopes / curvatures.sum()), float(w2 @ slopes**2 / noise.sum()))
    step, variance = -slope[informative] / curvature[informative], scatter * squares[informative]
    information = curvature[informative] ** 2 / variance
    q = float(information @ (step - information @ step / information.sum()) ** 2)
    normal = float(noise @ noise)
    kurtosis = max(float(w2**2 @ slopes**4) / (scatter**2 * normal) - 3.0, 0.0)
    of_group = kurtosis * scatter**2 * np.bincount(group, noise**2, n_groups)[informative] / variance**2
    widened = 1.0 + float(of_group.sum()) * degrees / (2.0 * (degrees + 1) ** 2)
    p_value = float(chi2.sf(q / widened, degrees / widened))

    def loss(log_variance: float) -> float:
        both = np.exp(log_variance) + 1.0 / information
        return float(0.5 * (np.log(both * information) + step**2 * (1.0 / both - information)).sum())

    best = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_LARGEST)), method="bounded")
    return (float(np.exp(best.x)) if best.fun < 0 else 0.0), p_value


def _common_scale(rows: CalibratedRows, prior_share: float) -> float:
    """One scale for all rows: about 1, since they are calibrated; one or two steps will do."""
    scale = 1.0
    for _ in range(_MOST_STEPS):
        slope, curvature = (float(rows.weight @ x) for x in rows.moments(scale, prior_share))
        if curvature <= _NOTHING:
            break
        moved = float(_moved(scale, slope / curvature))
        if abs(moved - scale) < 1e-6:
            break
        scale = moved
    return scale
