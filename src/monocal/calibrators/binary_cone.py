"""Monotone maps of one score as a cone: a line and ramps, fitted by penalised likelihood.

    f = a + b z + sum_k c_k ramp_k(z),      a free,  b >= .01,  c_k >= 0,      z the standardised score

    minimise  sum_i w_i [log(1 + exp f_i) - t_i f_i]  +  1.2 sum_k u_k c_k

A ramp rises from 0 to 1 between two of the knots, which are quantiles of the score, half by rows and half by Fisher information
``w p (1 - p)`` of the line: where one class is rare, what can be learned lies in a few rows. ``u_k`` is the root of the Fisher
information of ramp k that intercept and line leave unexplained, the standard deviation of its gradient if the line is true: a
ramp enters where its gradient passes 1.2 standard errors, at any number of rows.

The targets ``t`` exchange ``k / (k + 4)`` rows between the classes, ``k`` being the rows of the rarer one, which keeps the base
rate. Then 8 rows labelled by the classifier itself are added: at its best temperature, and the more nats a free intercept gains
over the zero of the classifier, with that intercept instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from ..solver import ConeProblem, Expansion, Solution, minimize
from .binary_interval import curve_posterior, knot_weights
from .binary_map import ScoreMap, softened

SHRINKAGE, PRIOR_ROWS = 1.2, 8.0
LEAST_SLOPE = 0.01
# Exchanged rows approach 1 as the rarer class grows past this many.
_EXCHANGE = 4.0
# Softness of the log-odds to choose from, by what scores are.
_SOFTNESS = {"probabilities": (1e-6, 1e-4, 1e-2), "logits": (0.0, 1e-4, 1e-2), "scores": (0.0,)}
# Intervals between knots, up to this many rows of the rarer class; then with their cube root; and at most.
INTERVALS, _FEW_ROWS, _MOST_INTERVALS = 16, 2500.0, 32
# Intervals that a ramp may span.
_SPANS = (2, 4, 8)
# Nats by which a free intercept may beat the classifier's own zero before that is distrusted.
_DOUBT = 4.0
# Information of a ramp that counts as its own at least, as a part of what the intercept leaves.
_LEAST_OWN = 1e-3
# Steps of Newton's method for a line.
_MOST_STEPS = 60
# Strength of the penalty where all values of a score are knots, by cross-validation on stated confidences.
_FEW_VALUES = 0.5


class LogisticCone(ConeProblem):
    """Mean logistic loss of a linear model with soft targets, a ridge, and bounds of the coefficients.

    Parameters
    ----------
    design : ndarray of shape (n, m)
    targets, weight : ndarray of shape (n,)
        Targets between 0 and 1; weights that sum to 1.
    lower, penalty, ridge : ndarray of shape (m,)
    first : ndarray of shape (m,)
        Where to begin.
    offset : ndarray of shape (n,)
        Log-odds to which those of the model are added.
    """

    def __init__(
        self,
        design: np.ndarray,
        targets: np.ndarray,
        weight: np.ndarray,
        lower: np.ndarray,
        penalty: np.ndarray | float = 0.0,
        ridge: np.ndarray | float = 0.0,
        first: np.ndarray | None = None,
        offset: np.ndarray | float = 0.0,
    ):
        m = design.shape[1]
        super().__init__(m, lower=lower, penalty=penalty)
        self.design, self.targets, self.weight, self.offset = design, targets, weight, offset
        self.ridge = np.full(m, ridge, dtype=np.float64)
        self.first = np.where(np.isfinite(self.lower), self.lower, 0.0) if first is None else first
        self.spread = np.sqrt(weight @ design**2)
        self.reach = np.abs(design).max(axis=0, initial=0.0)
        self.n_rows = len(design)

    def start(self) -> np.ndarray:
        return self.first

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        f = self.offset + self.design @ coefficients
        loss, p = _loss(f, self.targets)
        value = float(self.weight @ loss) + 0.5 * float(self.ridge @ coefficients**2)
        gradient = (self.weight * (p - self.targets)) @ self.design + self.ridge * coefficients
        own = self.design if len(working) == self.design.shape[1] else self.design[:, working]
        hessian = (own.T * (self.weight * p * (1.0 - p))) @ own
        hessian[np.diag_indices(len(working))] += self.ridge[working]
        return Expansion(value, gradient, hessian, p)

    def excess(self, coefficients: np.ndarray, here: Expansion) -> float:
        """A dual bound: probabilities that are feasible for the dual problem, near those of the fit.

            max_p  sum_i w_i [H(p_i) + (p_i - t_i) offset_i] + lower . g - sum_k g_k^2 / (2 ridge_k)

        where ``g = design' w (p - t) + penalty >= 0``, with ``g = 0`` where a coefficient is free and has no ridge.
        """
        w, t, p = self.weight, self.targets, here.predicted
        ridged = self.ridge > 0
        tight = ~ridged & (self.penalty == 0) & (coefficients > self.lower)
        base = self.design[:, tight]
        h = p * (1.0 - p)
        wrong = base.T @ (w * (p - t))
        change = base @ np.linalg.lstsq((base.T * (w * h)) @ base, wrong, rcond=None)[0]
        if np.abs(change).max(initial=0.0) > 0.5:
            return np.inf
        residual = p - h * change - t
        slope = self.design.T @ (w * residual)
        bounded = ~ridged & ~tight & (slope < 0)
        shares = self.penalty[bounded] / -slope[bounded]
        share = min(1.0, float(shares.min(initial=1.0)))
        q = np.clip(t + share * residual, 0.0, 1.0)
        entropy = -(xlogy(q, q) + xlogy(1.0 - q, 1.0 - q))
        g = share * slope + self.penalty
        at_bound = ~ridged & ~tight & np.isfinite(self.lower)
        dual = float(w @ (entropy + (q - t) * self.offset)) + float(self.lower[at_bound] @ g[at_bound])
        dual -= float(np.sum(g[ridged] ** 2 / (2.0 * self.ridge[ridged])))
        return max(here.value + float(self.penalty @ coefficients) - dual, 0.0)


def _loss(f: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logistic loss of log-odds, and their probabilities."""
    e = np.exp(-np.abs(f))
    return np.maximum(f, 0.0) + np.log1p(e) - targets * f, np.where(f < 0, e, 1.0) / (1.0 + e)


def likeliest(
    design: np.ndarray,
    targets: np.ndarray,
    weight: np.ndarray,
    first: np.ndarray,
    ridge: float = 0.0,
    offset: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, float]:
    """Coefficients of the least mean logistic loss, and that loss: Newton's method for one or two columns."""

    def loss_of(c: np.ndarray) -> tuple[float, np.ndarray]:
        loss, p = _loss(offset + design @ c, targets)
        return float(weight @ loss) + 0.5 * ridge * float(c @ c), p

    c = first
    loss, p = loss_of(c)
    for _ in range(_MOST_STEPS):
        gradient = (weight * (p - targets)) @ design + ridge * c
        hessian = (design.T * (weight * p * (1.0 - p))) @ design
        hessian[np.diag_indices(len(c))] += ridge + 1e-12 * (1.0 + np.trace(hessian))
        step = np.linalg.solve(hessian, gradient)
        decrease = float(step @ gradient)
        if decrease < 1e-14 * (1.0 + abs(loss)):
            break
        size = 1.0
        while size > 1e-9:
            new, at_new = loss_of(c - size * step)
            if new <= loss - 1e-4 * size * decrease:
                break
            size /= 2.0
        else:
            break
        c, loss, p = c - size * step, new, at_new
    return c, loss


def _line(
    z: np.ndarray, targets: np.ndarray, share: np.ndarray, first: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """The likeliest ``a + b z`` with a slope of at least `LEAST_SLOPE`, and its loss."""
    if first is None:
        rate = float(share @ targets)
        first = np.array([np.log(rate / (1.0 - rate)), 1.0])
    one = np.ones((len(z), 1))
    best, loss = likeliest(np.column_stack([one, z]), targets, share, first)
    if best[1] < LEAST_SLOPE:
        level, loss = likeliest(one, targets, share, first[:1], offset=LEAST_SLOPE * z)
        best = np.append(level, LEAST_SLOPE)
    return best, loss


def _standardised(x: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float, float]:
    """``z = (x - mean) / sd``, mean and sd."""
    largest = float(np.abs(x).max(initial=0.0))
    unit = 1.0 if 1e-100 < largest < 1e100 or largest == 0.0 else largest
    scaled = x / unit
    mean = float(share @ scaled)
    sd = float(np.sqrt(share @ (scaled - mean) ** 2)) or 1.0
    return (scaled - mean) / sd, mean * unit, sd * unit


def soft_targets(labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Labels with part of a row exchanged between the classes, so that neither is certain and the base rate stays."""
    positive = float(weight @ labels)
    negative = float(weight.sum()) - positive
    rarer = min(positive, negative)
    exchanged = rarer / (rarer + _EXCHANGE)
    return np.where(labels == 1, 1.0 - exchanged / positive, exchanged / negative)


def _with_prior(
    v: np.ndarray, targets: np.ndarray, weight: np.ndarray, prior_rows: float, input: str
) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which a share goes to what the classifier says itself, and the likeliest line without that share.

    That is at its best temperature, which for log-odds is at least 1; and as far as its zero is wrong by more than chance, with
    the intercept that keeps the base rate.
    """
    total = float(weight.sum())
    share = weight / total
    v = softened(v, input, _SOFTNESS[input][0])
    z, mean, sd = _standardised(v, share)
    line, line_loss = _line(z, targets, share, None)
    size = max(abs(mean), sd)
    steepest = np.inf if input == "scores" else size  # of log-odds, in the unit of v / size
    # The ridge is a bound for scores that all agree with their labels.
    own, loss = likeliest((v / size)[:, None], targets, share, np.zeros(1), ridge=1e-6 / total)
    if own[0] < 0:
        own, loss = np.zeros(1), float(np.log(2.0))
    trust = float(np.exp(-max(total * (loss - line_loss) - _DOUBT, 0.0)))
    prior = trust * expit(min(own[0], steepest) / size * v)
    if trust < 1.0:
        slope = min(line[1], steepest * sd / size)
        level = line[:1]
        if slope < line[1]:
            level, _ = likeliest(np.ones((len(v), 1)), targets, share, level, offset=slope * z)
        prior = prior + (1.0 - trust) * expit(level[0] + slope * z)
    part = prior_rows / (total + prior_rows)
    return (1.0 - part) * targets + part * prior, line


@dataclass(frozen=True)
class Score:
    """One score made ready: standardised position, knots, and the ramps between them.

    Attributes
    ----------
    z : ndarray of shape (n,)
        ``(x - mean) / sd``.
    knots : ndarray of shape (K,)
        In the unit of ``z``.
    low, high : ndarray of int
        The knots where each ramp begins and ends.
    line : ndarray of shape (2,)
        The fit of intercept and line alone.
    softness, mean, sd : float
    strength : float
        Of the penalty, relative to others: half where a score has few values, each with many rows.
    """

    z: np.ndarray
    knots: np.ndarray
    low: np.ndarray
    high: np.ndarray
    line: np.ndarray
    softness: float = 0.0
    mean: float = 0.0
    sd: float = 1.0
    strength: float = 1.0

    @classmethod
    def of(
        cls,
        v: np.ndarray,
        targets: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray,
        input: str,
        first: np.ndarray | None,
    ) -> Score:
        """Of the softness whose line is the likeliest; ``first`` is where the search for the line begins."""
        total = float(weight.sum())
        lines = []
        for softness in _SOFTNESS[input]:
            z, mean, sd = _standardised(softened(v, input, softness), weight / total)
            line, loss = _line(z, targets, weight / total, first)
            lines.append((loss, z, line, softness, mean, sd))
        _, z, line, *unit = min(lines, key=lambda one: one[0])
        positive = float(weight @ labels)
        rarer = min(positive, total - positive)
        intervals = int(np.clip(INTERVALS * (rarer / _FEW_ROWS) ** (1 / 3), INTERVALS, _MOST_INTERVALS))
        return cls.at_quantiles(z, weight / total, line, intervals, _FEW_VALUES, *unit)

    @classmethod
    def at_quantiles(
        cls,
        z: np.ndarray,
        share: np.ndarray,
        line: np.ndarray,
        intervals: int,
        few_values: float = 1.0,
        softness: float = 0.0,
        mean: float = 0.0,
        sd: float = 1.0,
    ) -> Score:
        """With knots at quantiles by rows and by information; at all values where these are few, with that strength."""
        p = expit(line[0] + line[1] * z)
        information = share * np.maximum(p * (1.0 - p), 1e-200)  # not zero where all probabilities are 0 or 1
        order = np.argsort(z, kind="stable")
        knots = z[order]
        new = np.concatenate([[True], knots[1:] > knots[:-1]])
        few = bool(new.sum() <= intervals + 1)
        if few:
            knots = knots[new]
        else:
            mass = np.cumsum((0.5 * information / information.sum() + 0.5 * share)[order])
            at = np.searchsorted(mass, np.linspace(0.0, 1.0, intervals + 1) * mass[-1] * (1.0 - 1e-12))
            knots = np.unique(knots[np.minimum(at, len(z) - 1)])
        knots = knots[np.concatenate([[True], np.diff(knots * sd + mean) > 0])]
        last = len(knots) - 1
        pairs = {
            (max(i, 0), min(i + span, last))
            for span in ((1, *_SPANS) if few else _SPANS)
            for i in range(1 - span, last)
            if span == 1 or min(i + span, last) - max(i, 0) >= span / 2
        }
        low, high = np.array(sorted(pairs) if last > 1 else [], dtype=np.intp).reshape(-1, 2).T
        return cls(z, knots, low, high, line, softness, mean, sd, few_values if few else 1.0)

    def columns(self, z: np.ndarray) -> np.ndarray:
        """Line and ramps at ``z``, (n, 1 + ramps)."""
        low, high = self.knots[self.low], self.knots[self.high]
        return np.column_stack([z, np.clip((z[:, None] - low) / (high - low), 0.0, 1.0)])

    def map(self, input: str, intercept: float, c: np.ndarray) -> ScoreMap:
        """The broken line with coefficients ``c`` of `columns`, in the unit of the score."""
        place = self.knots * self.sd + self.mean
        values = np.maximum.accumulate(intercept + self.columns(self.knots) @ c)
        least = c[0] / self.sd
        inner = np.maximum(np.diff(values) / np.diff(place), least)
        return ScoreMap(input, self.softness, place, values, np.concatenate([[least], inner, [least]]))


@dataclass(frozen=True)
class RampFit:
    """Fitted maps of one score or several, with their certificate.

    Attributes
    ----------
    maps : tuple of ScoreMap
        One for each score; log-odds are their sum.
    solution : Solution
    log_odds : ndarray of shape (n,)
        Of the rows, by the maps alone.
    at_bound : bool
        Whether the line alone has its slope at the lower bound, for some score.
    effects, effect_variance : ndarray
        Coefficients of the other columns, and their variances.
    curve : callable
        Gives mean and covariance of the log-odds at the knots of each map, one after another (`curve_posterior`).
    """

    maps: tuple[ScoreMap, ...]
    solution: Solution
    log_odds: np.ndarray
    at_bound: bool
    effects: np.ndarray
    effect_variance: np.ndarray
    curve: Callable[[], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class RampProblem:
    """Rows, and everything about the cone that does not depend on columns other than the scores."""

    scores: list[Score]
    labels: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    input: str
    shrinkage: float
    tol: float
    max_iter: int

    @classmethod
    def of(
        cls,
        columns: list[np.ndarray],
        labels: np.ndarray,
        weight: np.ndarray,
        input: str,
        prior_rows: float,
        *rest: Any,
    ) -> RampProblem:
        """``columns`` are scores, or log-odds of probabilities; labels are 0 and 1; ``rest`` are shrinkage, tol, max_iter."""
        targets, first = soft_targets(labels, weight), None
        if len(columns) == 1:
            targets, first = _with_prior(columns[0], targets, weight, prior_rows, input)
        scores = [Score.of(v, targets, labels, weight, input, first) for v in columns]
        return cls(scores, labels, targets, weight, input, *rest)

    def fit(
        self,
        extra: np.ndarray | None = None,
        ridge: np.ndarray | None = None,
        prior: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> RampFit:
        """The certified optimum.

        The ``extra`` columns have free coefficients with a ridge (rows' worth). ``prior`` holds mean and covariance of intercept
        and slope: with ``C`` upper triangular and ``C C'`` the covariance, ``(a, b) = C e`` turns it into a ridge around
        ``C^-1 mean``, and leaves the bound of the slope a bound of one coefficient. It counts like one row.
        """
        total = float(self.weight.sum()) + (prior is not None)
        share = self.weight / total
        more = np.zeros((len(share), 0)) if extra is None else extra
        # A ramp is linear between knots, so its values there give those at the rows.
        hats = [knot_weights(score.z, score.knots) for score in self.scores]
        blocks = [
            np.column_stack([score.z, weights @ score.columns(score.knots)[:, 1:]])
            for score, weights in zip(self.scores, hats, strict=True)
        ]
        design = np.column_stack([np.ones(len(share)), *blocks, more])
        size = design.shape[1]
        starts = np.cumsum([1, *(block.shape[1] for block in blocks)])
        lines, effects = starts[:-1], np.arange(starts[-1], size)
        base = np.concatenate([[0], lines, effects])
        lower, ridges, penalty = np.zeros((3, size))
        lower[0], lower[lines], lower[effects] = -np.inf, LEAST_SLOPE, -np.inf
        ridges[effects] = 0.0 if ridge is None else ridge / total
        start = np.where(np.isfinite(lower), lower, 0.0)
        start[:2], factor = self.scores[0].line, np.eye(2)
        if prior is not None:
            factor = np.linalg.cholesky(prior[1][::-1, ::-1])[::-1, ::-1]
            design[:, :2] = design[:, :2] @ factor
            lower[1] /= factor[1, 1]
            ridges[:2] = 1.0 / total
            penalty[:2] = -np.linalg.solve(factor, prior[0]) / total
            start[:2] = np.maximum(np.linalg.solve(factor, start[:2]), lower[:2])
        if len(base) > 2 or prior is not None:
            only_base = (lower[base], penalty[base], ridges[base], start[base])
            line = LogisticCone(design[:, base], self.targets, share, *only_base)
            start[base] = minimize(line, tol=min(self.tol / 10, 1e-7)).coefficients
        p = expit(design[:, base] @ start[base])
        is_ramp = np.ones(size, dtype=bool)
        is_ramp[base] = False
        curvature = np.maximum(self.weight * p * (1.0 - p), 1e-200)
        units = np.zeros(size)
        units[is_ramp] = _unexplained(design[:, base], design[:, is_ramp], curvature, total * ridges[base])
        for score, at, end in zip(self.scores, lines, starts[1:], strict=True):
            units[at:end] *= score.strength
        units *= self.shrinkage
        problem = LogisticCone(design, self.targets, share, lower, penalty + units / total, ridges, start)
        solution = minimize(problem, tol=self.tol, max_iter=self.max_iter, gap_tol=100.0 * self.tol)
        c = solution.coefficients.copy()
        c[:2] = factor @ c[:2]
        c[1] = max(c[1], LEAST_SLOPE)
        maps = tuple(
            score.map(self.input, c[0] if i == 0 else 0.0, c[at:end])
            for i, (score, at, end) in enumerate(zip(self.scores, lines, starts[1:], strict=True))
        )
        values, hat = np.concatenate([one.values for one in maps]), np.concatenate(hats, axis=1)
        p = expit(design @ solution.coefficients)
        curvature = self.weight * p * (1.0 - p)
        knots, residual = [score.knots for score in self.scores], self.weight * (self.labels - p)
        curve = partial(
            curve_posterior, knots, values, hat, residual, curvature, more, total * ridges[effects]
        )
        variance = np.zeros(0)
        if len(effects):  # the precision of every ramp counts, whether it is used or not
            precision = (design.T * curvature) @ design
            precision[np.diag_indices(size)] += units**2 + total * ridges + 1e-6
            variance = np.diag(np.linalg.inv(precision))[effects]
        at_bound = any(score.line[1] <= LEAST_SLOPE for score in self.scores)
        return RampFit(maps, solution, hat @ values, at_bound, c[effects], variance, curve)


def _unexplained(
    base: np.ndarray, columns: np.ndarray, curvature: np.ndarray, ridge: np.ndarray
) -> np.ndarray:
    """Root of the Fisher information of each column that the base columns leave unexplained."""
    inner = (base.T * curvature) @ base + np.diag(ridge + 1e-9)
    cross = (base.T * curvature) @ columns
    total = curvature @ columns**2
    without_level = total - (curvature @ columns) ** 2 / curvature.sum()
    left = total - (cross * np.linalg.solve(inner, cross)).sum(axis=0)
    return np.sqrt(np.maximum(np.maximum(left, _LEAST_OWN * without_level), 1e-12))
