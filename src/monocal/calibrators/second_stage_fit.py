"""Fitting the second stage (`adjustment`): scales of groups of rows, shrunk towards 1 as far as the rows say, then ramps.

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

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from ..core.block import Block
from ..core.cone import RankCone
from ..core.libraries import HOST
from ..core.point import BIAS, SCALE
from ..core.ramps import RampFactors, choose_ramps
from ..core.second_stage import of_context, second_step, weight_and_lift
from ..inputs.context import NUMBER, ContextReader
from ..solver import minimize
from .adjustment import HIGHEST, LOWEST, Adjustment, GroupScales
from .calibrated_rows import CalibratedRows, squared
from .cone_calibrator import BIAS_EMPHASIS, PSEUDO_ERRORS, SCALE_EMPHASIS

# Of the first stage's shrinkage; chosen by cross-validation on calibration parts (benchmarks/conditional_search.py).
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
) -> Adjustment | None:
    """The second stage for calibrated rows; None where no row has one class on top."""
    rows = rows[rows.n_top == 1]
    if not len(rows):
        return None
    total = float(rows.weight.sum())
    prior_share = prior_rows / (total + prior_rows)
    columns = () if context is None else context.columns
    class_scales = None
    if by_class:
        least = 0.0 if by_class == "auto" else _ASKED_VARIANCE
        class_scales = group_scales(
            rows, rows.top_class, n_classes, prior_share=prior_share, tol=tol, least_variance=least
        )
        rows = rows.scaled(class_scales.of_rows(rows.top_class))
    column_scales: list[GroupScales | None] = []
    typical = np.zeros(len(columns))
    numbers: dict[int, np.ndarray] = {}
    for i, column in enumerate(columns):
        values, scales = rows.context[:, i], None
        if column.kind == NUMBER:
            numbers[i], typical[i] = _centred(values, rows.weight)
        else:
            scales = group_scales(
                rows,
                values,
                len(column.categories),
                prior_share=prior_share,
                tol=tol,
                n_columns=len(columns),
            )
            rows = rows.scaled(scales.of_rows(values))
        column_scales.append(scales)
    values = np.stack([rows.log_odds(), *numbers.values()], axis=1)
    level = level_for(rows, max(len(columns), 1))
    used = [
        0,
        *(k for k, x in enumerate(numbers.values(), 1) if _p_value(rows, x, n_knots, prior_share) <= level),
    ]
    ramps = choose_ramps(values[:, used], rows.weight, n_knots)
    factors = RampFactors(
        ("log_odds", *(columns[i].name for i in numbers)),
        tuple(replace(ramp, statistic=used[ramp.statistic]) for ramp in ramps),
    )
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
    return Adjustment(class_scales, tuple(column_scales), typical, factors, steps, means, solution)


def _centred(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Numbers less their median, which stands for those that are missing; and the median."""
    present = ~np.isnan(values)
    if not present.any():
        return np.zeros(len(values)), 0.0
    median = np.quantile(values[present], 0.5, weights=weight[present], method="inverted_cdf")
    return np.where(present, values - median, 0.0), float(median)


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
    problem = RankCone(
        prepared,
        allowed,
        emphasis=emphasis,
        unit=prepared.sum(Block.information, 1.0).unit(total, PSEUDO_ERRORS),
        mirrors=factors.mirrors,
        scale=1.0,
    )
    return problem.leaning_on(rows.prior_targets(prepared), prior_share) if prior_share else problem


def adjusted_log_odds(adjustment: Adjustment, rows: CalibratedRows) -> np.ndarray:
    """Log-odds (n,) of the top class after the second stage, of rows each with one class on top."""
    static, arrays = second_step(adjustment)
    assert static is not None
    scale, numbers = of_context(rows.context, arrays, static, HOST, np.float64)
    one = np.ones(len(rows))
    if static["by_class"]:
        rows = rows.scaled(arrays["class_scales"][rows.top_class])
    rows = rows if scale is None else rows.scaled(scale)
    weight, lift = weight_and_lift(rows.log_odds() if static["n_ramps"] else None, numbers, arrays, one, HOST)
    odds: np.ndarray = rows.scaled(weight).log_odds() + lift
    return odds


def group_scales(
    rows: CalibratedRows,
    group: np.ndarray,
    n_groups: int,
    *,
    prior_share: float,
    tol: float,
    least_variance: float = 0.0,
    n_columns: int = 1,
) -> GroupScales:
    """Scales of groups (n,), numbered from 0; rows of group -1 take no part. With a variance of 0, all scales are 1."""
    member = group >= 0
    rows, group = rows[member], group[member].astype(np.intp)
    counts = np.bincount(group, rows.weight, n_groups)
    scales = np.ones(n_groups)
    if not len(rows):
        return GroupScales(scales, 0.0, 1.0, counts, 0.0, 0.0)
    rows = rows.scaled(_common_scale(rows, prior_share))
    variance, p_value = spread_of_groups(rows, group, n_groups, prior_share)
    level = level_for(rows, n_columns)
    variance = max(variance if p_value <= level else 0.0, least_variance)
    if variance == 0.0:
        return GroupScales(scales, 0.0, p_value, counts, 0.0, level)
    weight = _effective_weight(rows, group, n_groups, prior_share)
    total = float(weight.sum())
    residual = np.inf
    for _ in range(_MOST_STEPS):
        slope, bend = (
            np.bincount(group, weight * x, n_groups) for x in rows.moments(scales[group], prior_share)
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


def level_for(rows: CalibratedRows, n_columns: int) -> float:
    """The p-value at which groups count as different; smaller where errors are few, which a scale would fit one by one."""
    weight = rows.weight[~rows.right]
    errors = float(weight.sum() ** 2 / squared(weight).sum()) if weight.any() else 0.0
    return _LEVEL / n_columns * min(1.0, errors / _FEW_ERRORS) ** 3


def _p_value(rows: CalibratedRows, values: np.ndarray, n_knots: int, prior_share: float) -> float:
    """How often chance alone makes scales change as much with a number: those of its quantiles as groups."""
    levels = np.linspace(0.0, 1.0, n_knots + 2)
    edges = np.unique(np.quantile(values, levels, weights=rows.weight, method="inverted_cdf"))
    # A group begins at each edge but the lowest, so that few different values are groups of their own.
    group = np.searchsorted(edges[1:], values, side="right")
    return spread_of_groups(rows, group, len(edges), prior_share)[1]


def spread_of_groups(
    rows: CalibratedRows, group: np.ndarray, n_groups: int, prior_share: float
) -> tuple[float, float]:
    """The most likely variance of the groups' scales, and the p-value of none; 0 and 1 where fewer than two groups count."""
    slopes, curvatures = rows.moments(1.0, prior_share)
    w, w2 = rows.weight, squared(rows.weight)
    noise = w2 * curvatures
    slope, curvature, squares = (np.bincount(group, x, n_groups) for x in (w * slopes, w * curvatures, noise))
    known = curvature > _NOTHING
    degrees = int(known.sum()) - 1
    if degrees < 1:
        return 0.0, 1.0
    # A fit follows rows of large weight closely: their slopes scatter less than those of the others.
    scatter = max(1.0, float(slopes @ slopes / curvatures.sum()), float(w2 @ slopes**2 / noise.sum()))
    step, variance = -slope[known] / curvature[known], scatter * squares[known]
    information = curvature[known] ** 2 / variance
    q = float(information @ (step - information @ step / information.sum()) ** 2)
    normal = float(noise @ noise)
    kurtosis = max(float(w2**2 @ slopes**4) / (scatter**2 * normal) - 3.0, 0.0)
    of_group = kurtosis * scatter**2 * np.bincount(group, noise**2, n_groups)[known] / variance**2
    widened = 1.0 + float(of_group.sum()) * degrees / (2.0 * (degrees + 1) ** 2)
    p_value = float(chi2.sf(q / widened, degrees / widened))

    def loss(log_variance: float) -> float:
        both = np.exp(log_variance) + 1.0 / information
        return float(0.5 * (np.log(both * information) + step**2 * (1.0 / both - information)).sum())

    best = minimize_scalar(loss, bounds=(np.log(_LEAST), np.log(_LARGEST)), method="bounded")
    return (float(np.exp(best.x)) if best.fun < 0 else 0.0), p_value


def _effective_weight(
    rows: CalibratedRows, group: np.ndarray, n_groups: int, prior_share: float
) -> np.ndarray:
    """Weights (n,) under which the curvature of a group is the variance of its slope, as it is for weights of 1."""
    curvature = rows.moments(1.0, prior_share)[1]
    plain, square = (np.bincount(group, w * curvature, n_groups) for w in (rows.weight, squared(rows.weight)))
    factor = np.divide(plain, square, out=np.ones(n_groups), where=square > 0)
    effective: np.ndarray = rows.weight * factor[group]
    return effective


def _common_scale(rows: CalibratedRows, prior_share: float) -> float:
    """One scale for all rows: about 1, since they are calibrated; one or two steps will do."""
    scale = 1.0
    for _ in range(_MOST_STEPS):
        slope, curvature = (float(rows.weight @ x) for x in rows.moments(scale, prior_share))
        if curvature <= _NOTHING:
            return scale
        low, high = max(scale / _STRIDE, LOWEST), min(scale * _STRIDE, HIGHEST)
        moved = float(np.clip(scale - slope / curvature, low, high))
        if abs(moved - scale) < 1e-6:
            break
        scale = moved
    return scale
