"""Context of one score: other properties of a row move the curve, as far as the calibration rows ask for it.

    category c     f  ->  (1 + b_c) (f - centre) + centre + a_c,      a_c ~ N(0, s_a^2),   b_c ~ N(0, s_b^2),   1 + b_c > 0
    number v       f  ->  f + line through 9 knots at v,              rises between knots ~ N(0, s^2)

The variances are those of the largest marginal likelihood (EM with Laplace's approximation; empirical Bayes), so that categories
which agree share one intercept. Slopes by category are used where their marginal likelihood beats that of one slope by more than
chance. Intercepts and rises are then fitted together with the curve, in one convex problem; with slopes, a second convex problem
follows for these and the intercepts, the curve being fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import expit

from ..inputs.context import CATEGORY, Column
from ..solver import minimize
from .binary_cone import LogisticCone, RampFit, RampProblem
from .state import expect

# Intervals between the quantiles of a number of the context.
_NUMBER_INTERVALS = 8
# Categories of a column with an effect of their own, the most frequent ones.
_MOST_CATEGORIES = 512
_FIRST_VARIANCE, _LEAST_VARIANCE = 0.1, 1e-6
# Nats by which slopes must raise the marginal likelihood: a false alarm in 2 % of fits (half a chi-squared of one degree).
_SLOPE_EVIDENCE = 2.1
# Slopes of all columns together leave this part of the slope of the curve.
_LEAST_FACTOR = 0.05


@dataclass(frozen=True)
class ContextEffect:
    """What a column of the context does to the log-odds.

    Attributes
    ----------
    knots : ndarray of shape (K,)
        Of a number; empty for a category.
    values, variances : ndarray
        Added at the knots, between which the effect is linear; or for each category.
    spread : float
        Variance of the effects of categories, which is that of one never seen.
    slopes, slope_variances : ndarray
        For each category, by how much the slope differs from 1; empty where all have the same.
    slope_spread : float
    centre : float
        Log-odds at which slopes change nothing.
    """

    knots: ndarray
    values: ndarray
    variances: ndarray
    spread: float
    slopes: ndarray
    slope_variances: ndarray
    slope_spread: float = 0.0
    centre: float = 0.0

    def _at(self, codes: ndarray, values: ndarray, unseen: float) -> ndarray:
        """``values`` (of the effect, or their variances) of rows with these codes."""
        if len(self.knots):
            result: ndarray = np.interp(codes, self.knots, values)
            return np.where(np.isnan(codes), unseen, result)
        return np.append(values, unseen)[codes.astype(np.intp)]  # the last is that of -1

    def on(self, codes: ndarray) -> tuple[ndarray, ndarray]:
        """By how much the slope differs from 1, and what is added to the log-odds after they were multiplied."""
        slope = self._at(codes, self.slopes, 0.0) if len(self.slopes) else np.zeros(len(codes))
        return slope, self._at(codes, self.values, 0.0) - slope * self.centre

    def variance(self, codes: ndarray, log_odds: ndarray) -> ndarray:
        """Of the effect on these log-odds."""
        variance = self._at(codes, self.variances, self.spread)
        if len(self.slopes):
            of_slope = self._at(codes, self.slope_variances, self.slope_spread)
            variance = variance + (log_odds - self.centre) ** 2 * of_slope
        return variance

    def check(self, column: Column) -> None:
        """Raise ValueError unless this can belong to the column."""
        is_category = column.kind == CATEGORY
        size = len(column.categories) if is_category else len(self.knots)
        slopes = size if is_category and len(self.slopes) else 0
        shapes = [np.shape(a) for a in (self.values, self.variances, self.slopes, self.slope_variances)]
        right: Any = shapes == [(size,), (size,), (slopes,), (slopes,)]
        right = right and all(np.isfinite(value).all() for value in vars(self).values())
        right = right and (np.diff(self.knots) > 0).all() and (self.slopes > -1).all()
        expect(right, "effects_", self, "finite numbers, one for each category or knot, and slopes above -1")


def posterior_by_group(
    features: ndarray,
    starts: ndarray,
    offset: ndarray | float,
    targets: ndarray,
    weight: ndarray,
    mean: ndarray | float,
    precision: ndarray,
    effects: ndarray,
) -> tuple[ndarray, ndarray]:
    """Mode (G, k) and covariance (G, k, k) of the coefficients of ``features`` (k, n) in each group, by Newton's method.

    Rows are sorted by group, of which each begins at one of ``starts`` (G,); ``effects`` (G, k) are where the search begins.
    """
    sizes = np.diff(np.append(starts, len(targets)))
    for _ in range(20):
        f = offset + sum(x * np.repeat(e, sizes) for x, e in zip(features, effects.T, strict=True))
        p = expit(f)
        push, curvature = weight * (p - targets), weight * p * (1.0 - p)
        gradient = np.stack([np.add.reduceat(push * x, starts) for x in features], axis=1)
        gradient += (effects - mean) @ precision
        products = [[np.add.reduceat(curvature * x * y, starts) for y in features] for x in features]
        hessian = np.moveaxis(np.array(products), 2, 0) + precision
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        effects = effects - step / np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
        if np.abs(step).max() < 1e-6:
            break
    return effects, np.linalg.inv(hessian)


@dataclass(frozen=True)
class _Block:
    """Columns of the design that belong to one column of the context, with one variance."""

    columns: ndarray  # (n, G)
    basis: ndarray  # (values, G): the values of the effect from the coefficients
    knots: ndarray  # of a number
    rows: ndarray  # those with an effect, by category
    starts: ndarray  # where each category begins among them; one beginning for a number

    @classmethod
    def of(cls, column: Column, codes: ndarray, weight: ndarray) -> _Block:
        if column.kind != CATEGORY:
            return cls._of_number(codes, weight)
        n_categories = len(column.categories)
        counts = np.bincount(codes[codes >= 0].astype(np.intp), weight[codes >= 0], n_categories)
        most = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
        own = np.sort(most[counts[most] > 0])
        rows = np.argsort(codes, kind="stable")
        rows = rows[np.isin(codes[rows], own)]
        starts = np.searchsorted(codes[rows], own)
        columns = (codes[:, None] == own).astype(np.float64)
        return cls(columns, np.eye(n_categories)[:, own], np.zeros(0), rows, starts)

    @classmethod
    def _of_number(cls, codes: ndarray, weight: ndarray) -> _Block:
        there = ~np.isnan(codes)
        numbers = codes[there] if there.any() else np.zeros(1)
        knots = np.unique(
            np.quantile(numbers, np.linspace(0.0, 1.0, _NUMBER_INTERVALS + 1), method="inverted_cdf")
        )
        if len(knots) < 2:
            knots = knots[:1] + np.array([0.0, 1.0])
        low, high = knots[:-1], knots[1:]
        at_rows = np.clip((np.where(there, codes, 0.0)[:, None] - low) / (high - low), 0.0, 1.0)
        mean = (weight * there) @ at_rows / max(float(weight @ there), 1e-300)
        at_rows = np.where(there[:, None], at_rows - mean, 0.0)
        basis = np.clip((knots[:, None] - low) / (high - low), 0.0, 1.0) - mean
        return cls(at_rows, basis, knots, np.arange(len(codes)), np.zeros(1, dtype=np.intp))

    def likeliest(
        self, features: ndarray, offset: ndarray, problem: RampProblem, spread: float | None = None
    ) -> tuple[float, ndarray, float]:
        """The likeliest variance of the coefficients of ``features`` (k, n), these (G, k), and the marginal log-likelihood.

        With ``spread`` the variance of the first feature is that, and the others' is estimated; 0 features: of nothing else.
        """
        x, base = features[:, self.rows], offset[self.rows]
        targets, weight = problem.targets[self.rows], problem.weight[self.rows]
        variance, effects = _FIRST_VARIANCE, np.zeros((len(self.starts), len(x)))
        estimated = slice(0 if spread is None else 1, None)
        for _ in range(100):
            variances = np.full(len(x), variance)
            variances[: estimated.start] = spread or 0.0
            precision = np.diag(1.0 / variances)
            effects, covariance = posterior_by_group(
                x, self.starts, base, targets, weight, 0.0, precision, effects
            )
            before = variance
            own = (effects**2 + np.diagonal(covariance, axis1=1, axis2=2))[:, estimated]
            variance = max(float(np.mean(own)), _LEAST_VARIANCE) if own.size else before
            if abs(variance - before) < 1e-4 * before:
                break
        sizes = np.diff(np.append(self.starts, len(self.rows)))
        f = base + (x * np.repeat(effects, sizes, axis=0).T).sum(axis=0)
        gains = targets * (f - base) - np.logaddexp(0.0, f) + np.logaddexp(0.0, base)
        size = np.linalg.slogdet(covariance @ precision)[1].sum()
        evidence = float(weight @ gains) - 0.5 * float((effects**2 @ precision).sum())
        return variance, effects, evidence + 0.5 * float(size)

    def effect(self, coefficients: ndarray, variances: ndarray, spread: float) -> ContextEffect:
        values, deviations = self.basis @ coefficients, self.basis**2 @ variances
        return ContextEffect(self.knots, values, deviations, spread, np.zeros(0), np.zeros(0))


def with_context(
    problem: RampProblem, plain: RampFit, columns: tuple[Column, ...], codes: ndarray
) -> tuple[RampFit, tuple[ContextEffect, ...]]:
    """The fit with the effects of the context (n, C), from the fit without them."""
    blocks = [_Block.of(column, codes[:, i], problem.weight) for i, column in enumerate(columns)]
    f, variances = plain.hats @ plain.values, []
    for block in blocks:
        features = block.columns.T if len(block.knots) else np.ones((1, len(f)))
        variance, effects, _ = block.likeliest(features, f, problem)
        variances.append(variance)
        f = f + block.columns @ effects.ravel()
    widths = [block.columns.shape[1] for block in blocks]
    fit = problem.fit(
        np.concatenate([block.columns for block in blocks], axis=1),
        np.repeat(1.0 / np.array(variances), widths),
    )
    of_block = (np.split(a, np.cumsum(widths)[:-1]) for a in (fit.effects, fit.effect_variance))
    parts = zip(blocks, *of_block, variances, strict=True)
    effects_of = [block.effect(*rest) for block, *rest in parts]
    return fit, tuple(_with_slopes(problem, fit.hats @ fit.values, blocks, effects_of, codes))


def _with_slopes(
    problem: RampProblem, curve: ndarray, blocks: list[_Block], effects: list[ContextEffect], codes: ndarray
) -> list[ContextEffect]:
    """The effects with slopes by category, for the columns where these are more than chance."""
    added = [effect.on(codes[:, i])[1] for i, effect in enumerate(effects)]
    whole = np.sum([curve, *added], axis=0)
    information = problem.weight * expit(whole) * expit(-whole)
    centre = float(np.average(curve, weights=np.maximum(information, 1e-300)))
    features = np.stack([np.ones(len(curve)), curve - centre])
    spreads = {}
    for i, block in enumerate(blocks):
        if not len(block.knots):
            others, spread = whole - added[i], effects[i].spread
            *_, without = block.likeliest(features[:1], others, problem, spread)
            variance, _, evidence = block.likeliest(features, others, problem, spread)
            if evidence - without > _SLOPE_EVIDENCE:
                spreads[i] = variance
    if not spreads:
        return effects
    chosen = [blocks[i].columns for i in spreads]
    tilted = [(curve - centre)[:, None] * columns for columns in chosen]
    design = np.concatenate([*chosen, *tilted], axis=1)
    widths = np.array([columns.shape[1] for columns in chosen])
    lower = np.repeat([-np.inf, -(1.0 - _LEAST_FACTOR) / len(chosen)], widths.sum())
    prior = [effects[i].spread for i in spreads], list(spreads.values())
    ridge = 1.0 / np.concatenate([np.repeat(variances, widths) for variances in prior])
    total = float(problem.weight.sum())
    fixed = whole - np.sum([added[i] for i in spreads], axis=0)
    cone = LogisticCone(
        design, problem.targets, problem.weight / total, lower, 0.0, ridge / total, offset=fixed
    )
    c = minimize(cone, tol=problem.how[1], max_iter=problem.how[2]).coefficients
    p = expit(fixed + design @ c)
    precision = (design.T * (problem.weight * p * (1.0 - p))) @ design + np.diag(ridge)
    ends = np.cumsum(np.tile(widths, 2))[:-1]
    coefficients, deviations = np.split(c, ends), np.split(np.diag(np.linalg.inv(precision)), ends)
    result = list(effects)
    for j, (i, spread) in enumerate(spreads.items()):
        own = j + len(chosen)
        result[i] = replace(
            blocks[i].effect(coefficients[j], deviations[j], effects[i].spread),
            slopes=blocks[i].basis @ coefficients[own],
            slope_variances=blocks[i].basis ** 2 @ deviations[own],
            slope_spread=spread,
            centre=centre,
        )
    return result
