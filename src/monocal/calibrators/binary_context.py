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

import numpy as np

from ..inputs.context import CATEGORY, Column
from ..solver import minimize
from .binary_cone import LogisticCone, RampFit, RampProblem, sigmoid

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

    knots: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    spread: float
    slopes: np.ndarray
    slope_variances: np.ndarray
    slope_spread: float = 0.0
    centre: float = 0.0

    def at(self, codes: np.ndarray, values: np.ndarray, unseen: float) -> np.ndarray:
        """``values`` (of the effect, or their variances) of rows with these codes."""
        if len(self.knots):
            result: np.ndarray = np.interp(codes, self.knots, values)
            return np.where(np.isnan(codes), unseen, result)
        index = codes.astype(np.intp)
        return np.where(index < 0, unseen, values[index])

    def added(self, codes: np.ndarray) -> np.ndarray:
        """What is added to the log-odds after they were multiplied by 1 and the `slope` of all columns."""
        return self.at(codes, self.values, 0.0) - self.slope(codes) * self.centre

    def slope(self, codes: np.ndarray) -> np.ndarray:
        """By how much the slope differs from 1."""
        return self.at(codes, self.slopes, 0.0) if len(self.slopes) else np.zeros(len(codes))

    def variance(self, codes: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
        """Of the effect on these log-odds."""
        variance = self.at(codes, self.variances, self.spread)
        if len(self.slopes):
            of_slope = self.at(codes, self.slope_variances, self.slope_spread)
            variance = variance + (log_odds - self.centre) ** 2 * of_slope
        return variance

    def check(self, column: Column) -> None:
        """Raise ValueError unless this can belong to the column."""
        is_category = column.kind == CATEGORY
        size = len(column.categories) if is_category else len(self.knots)
        slopes = size if is_category and len(self.slopes) else 0
        numbers = (self.knots, self.spread, self.slope_spread, self.centre)
        right = all(np.shape(array) == (size,) for array in (self.values, self.variances))
        right &= all(np.shape(array) == (slopes,) for array in (self.slopes, self.slope_variances))
        finite = (*numbers, self.values, self.variances, self.slopes, self.slope_variances)
        right = right and all(np.isfinite(a).all() for a in finite)
        if not right or (np.diff(self.knots) <= 0).any() or not (self.slopes > -1).all():
            raise ValueError(
                "effects_ cannot be this: expected finite numbers, one for each category or knot, and slopes above -1"
            )


@dataclass(frozen=True)
class _Block:
    """Columns of the design that belong to one column of the context, with one variance."""

    columns: np.ndarray  # (n, G)
    basis: np.ndarray  # (values, G): the values of the effect from the coefficients
    knots: np.ndarray
    group: np.ndarray  # (n,): the column of a category, -1 where it has none; 0 for a number

    @classmethod
    def of(cls, column: Column, codes: np.ndarray, weight: np.ndarray) -> _Block:
        return (
            cls._of_category(column, codes, weight)
            if column.kind == CATEGORY
            else cls._of_number(codes, weight)
        )

    @classmethod
    def _of_category(cls, column: Column, codes: np.ndarray, weight: np.ndarray) -> _Block:
        n_categories = len(column.categories)
        counts = np.bincount(codes[codes >= 0].astype(np.intp), weight[codes >= 0], n_categories)
        own = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES])
        place = np.full(n_categories + 1, -1)  # the last is that of a category never seen, -1
        place[own] = np.arange(len(own))
        columns = (codes[:, None] == own).astype(np.float64)
        return cls(columns, np.eye(n_categories)[:, own], np.zeros(0), place[codes.astype(np.intp)])

    @classmethod
    def _of_number(cls, codes: np.ndarray, weight: np.ndarray) -> _Block:
        there = ~np.isnan(codes)
        numbers = codes[there] if there.any() else np.zeros(1)
        knots = np.unique(
            np.quantile(numbers, np.linspace(0.0, 1.0, _NUMBER_INTERVALS + 1), method="inverted_cdf")
        )
        if len(knots) < 2:
            knots = knots[:1] + np.array([0.0, 1.0])
        low, high = knots[:-1], knots[1:]
        at_rows = np.clip((codes[:, None] - low) / (high - low), 0.0, 1.0)
        mean = (
            np.average(at_rows[there], axis=0, weights=weight[there]) if there.any() else np.zeros(len(low))
        )
        at_rows = np.where(there[:, None], at_rows - mean, 0.0)
        basis = np.clip((knots[:, None] - low) / (high - low), 0.0, 1.0) - mean
        return cls(at_rows, basis, knots, np.zeros(len(codes), dtype=np.intp))

    @property
    def is_category(self) -> bool:
        return not len(self.knots)

    @property
    def n_groups(self) -> int:
        return self.columns.shape[1] if self.is_category else 1

    def variance(self, offset: np.ndarray, problem: RampProblem) -> tuple[float, np.ndarray]:
        """The likeliest variance of the effects, and what these add to the log-odds of the rows."""
        features = np.ones((len(offset), 1)) if self.is_category else self.columns
        variance, effects = _FIRST_VARIANCE, np.zeros((self.n_groups, features.shape[1]))
        for _ in range(100):
            precision = np.full(features.shape[1], 1.0 / variance)
            effects, covariance, _ = self._posterior(features, offset, problem, precision, effects)
            before = variance
            own = effects**2 + np.diagonal(covariance, axis1=1, axis2=2)
            variance = max(float(np.mean(own)), _LEAST_VARIANCE)
            if abs(variance - before) < 1e-4 * before:
                break
        return variance, self.columns @ effects.ravel()

    def slope_variance(
        self, away: np.ndarray, offset: np.ndarray, problem: RampProblem, spread: float
    ) -> tuple[float, float]:
        """The likeliest variance of slopes with intercepts of variance ``spread``, and the evidence for them in nats."""
        features = np.stack([np.ones(len(away)), away], axis=1)
        none = np.zeros((self.n_groups, 2))
        *_, without = self._posterior(features[:, :1], offset, problem, np.array([1.0 / spread]), none[:, :1])
        variance, effects, evidence = _FIRST_VARIANCE, none, 0.0
        for _ in range(100):
            precision = np.array([1.0 / spread, 1.0 / variance])
            effects, covariance, evidence = self._posterior(features, offset, problem, precision, effects)
            before = variance
            variance = max(float(np.mean(effects[:, 1] ** 2 + covariance[:, 1, 1])), _LEAST_VARIANCE)
            if abs(variance - before) < 1e-3 * before:
                break
        return variance, evidence - without

    def _posterior(
        self,
        features: np.ndarray,
        offset: np.ndarray,
        problem: RampProblem,
        precision: np.ndarray,
        effects: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mode (G, k) and covariance (G, k, k) of the coefficients of ``features`` (n, k) in each group, with the marginal
        log-likelihood above that of no effects."""
        there = self.group >= 0
        group, x, base = self.group[there], features[there], offset[there]
        weight, targets = problem.weight[there], problem.targets[there]

        def by_group(values: np.ndarray) -> np.ndarray:
            return np.bincount(group, values, self.n_groups)

        for _ in range(15):
            p = sigmoid(base + (x * effects[group]).sum(axis=1))
            push, curvature = weight * (p - targets), weight * p * (1.0 - p)
            gradient = np.stack([by_group(push * column) for column in x.T], axis=1) + precision * effects
            products = [[by_group(curvature * a * b) for b in x.T] for a in x.T]
            hessian = np.moveaxis(np.array(products), 2, 0) + np.diag(precision)
            step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
            effects = effects - step / np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
            if np.abs(step).max() < 1e-6:
                break
        f = base + (x * effects[group]).sum(axis=1)
        gain = float(weight @ (targets * (f - base) - np.logaddexp(0.0, f) + np.logaddexp(0.0, base)))
        size = np.linalg.slogdet(hessian / precision)[1].sum()
        evidence = gain - 0.5 * float((precision * effects**2).sum()) - 0.5 * float(size)
        return effects, np.linalg.inv(hessian), evidence

    def effect(self, coefficients: np.ndarray, variances: np.ndarray, spread: float) -> ContextEffect:
        none = np.zeros(0)
        return ContextEffect(
            self.knots, self.basis @ coefficients, self.basis**2 @ variances, spread, none, none
        )


def with_context(
    problem: RampProblem, plain: RampFit, columns: tuple[Column, ...], codes: np.ndarray
) -> tuple[RampFit, tuple[ContextEffect, ...]]:
    """The fit with the effects of the context (n, C), from the fit without them."""
    blocks = [_Block.of(column, codes[:, i], problem.weight) for i, column in enumerate(columns)]
    f = problem.log_odds(plain.maps)
    variances = []
    for block in blocks:
        variance, added = block.variance(f, problem)
        variances.append(variance)
        f = f + added
    widths = [block.columns.shape[1] for block in blocks]
    fit = problem.fit(
        np.concatenate([block.columns for block in blocks], axis=1),
        np.repeat(1.0 / np.array(variances), widths),
    )
    ends = np.cumsum(widths)[:-1]
    parts = zip(
        blocks, np.split(fit.effects, ends), np.split(fit.effect_variance, ends), variances, strict=True
    )
    effects = tuple(block.effect(values, deviations, spread) for block, values, deviations, spread in parts)
    return fit, _with_slopes(problem, fit, blocks, effects, codes)


def _with_slopes(
    problem: RampProblem,
    fit: RampFit,
    blocks: list[_Block],
    effects: tuple[ContextEffect, ...],
    codes: np.ndarray,
) -> tuple[ContextEffect, ...]:
    """The effects with slopes by category, for the columns where these are more than chance."""
    curve = problem.log_odds(fit.maps)
    rest = sum((effect.added(codes[:, i]) for i, effect in enumerate(effects)), np.zeros(len(curve)))
    information = problem.weight * sigmoid(curve + rest) * sigmoid(-curve - rest)
    centre = float(np.average(curve, weights=np.maximum(information, 1e-300)))
    spreads = {}
    for i, block in enumerate(blocks):
        if block.is_category:
            others = curve + rest - effects[i].added(codes[:, i])
            spread, gain = block.slope_variance(curve - centre, others, problem, effects[i].spread)
            if gain > _SLOPE_EVIDENCE:
                spreads[i] = spread
    if not spreads:
        return effects
    chosen = [blocks[i] for i in spreads]
    away = (curve - centre)[:, None]
    design = np.concatenate([b.columns for b in chosen] + [away * b.columns for b in chosen], axis=1)
    widths = np.array([b.columns.shape[1] for b in chosen])
    least = -(1.0 - _LEAST_FACTOR) / len(chosen)
    lower = np.repeat([-np.inf, least], widths.sum())
    prior = np.array([effects[i].spread for i in spreads]), np.array(list(spreads.values()))
    ridge = 1.0 / np.concatenate([np.repeat(variance, widths) for variance in prior])
    total = float(problem.weight.sum())
    fixed = curve + sum(
        (effect.added(codes[:, i]) for i, effect in enumerate(effects) if i not in spreads),
        np.zeros(len(curve)),
    )
    cone = LogisticCone(
        design, problem.targets, problem.weight / total, lower, 0.0, ridge / total, offset=fixed
    )
    c = minimize(cone, tol=problem.tol, max_iter=problem.max_iter).coefficients
    p = sigmoid(fixed + design @ c)
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
    return tuple(result)
