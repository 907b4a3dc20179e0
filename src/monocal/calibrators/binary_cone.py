"""Monotone maps of one score as a cone: a line and ramps, fitted by penalised likelihood.

    f = a + b z + sum_k c_k ramp_k(z),      a free,  b >= .01,  c_k >= 0,      z the standardised score

    minimise  sum_i w_i [log(1 + exp f_i) - t_i f_i]  +  1.2 sum_k u_k c_k

A ramp rises from 0 to 1 between two of the knots, which are quantiles of the score, half by rows and half by Fisher information
``w p (1 - p)`` of the line: where one class is rare, what can be learned lies in a few rows. ``u_k`` is the root of the Fisher
information of ramp k that intercept and line leave unexplained, the standard deviation of its gradient if the line is true: a
ramp enters where its gradient passes 1.2 standard errors, at any number of rows.

The targets ``t`` exchange ``k / (k + 4)`` rows between the classes, ``k`` being the rows of the rarer one, which keeps the base
rate. Then 8 rows labelled by the classifier itself are added: at its best temperature, and the more nats a free intercept gains
over the zero of the classifier, with that intercept instead. One more row is undecided (t = 1/2) at zero log-odds, times the
likelihood ratio of that zero and a free intercept: a few rows of which all but one are nearly certain would ask for a steep line,
which is far off for the uncertain rows that are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import expit, xlogy

from ..solver import ConeProblem, Expansion, Solution, minimize
from .binary_map import ScoreMap, softened

SHRINKAGE, PRIOR_ROWS = 1.2, 8.0
LEAST_SLOPE = 0.01
# Exchanged rows approach 1 as the rarer class grows past this many.
_EXCHANGE = 4.0
# Softness of the log-odds to choose from, by what scores are.
_SOFTNESS = {
    "probabilities": (1e-9, 1e-6, 1e-4, 1e-2),
    "logits": (0.0, 1e-4, 1e-2),
    "scores": (0.0,),
}
# Intervals between knots, up to this many rows of the rarer class; then with their cube root; and at most.
INTERVALS, _FEW_ROWS, _MOST_INTERVALS = 16, 2500.0, 32
# Intervals that a ramp may span.
_SPANS = (2, 4, 8)
# Nats by which a free intercept may beat the classifier's own zero before that is distrusted.
_DOUBT = 4.0
# Information of a ramp that counts as its own at least, as a part of what the intercept leaves.
_LEAST_OWN = 1e-3
# Weight of the undecided row for each prior row.
_UNDECIDED = 1 / 8
# Steps of Newton's method for a line.
_MOST_STEPS = 60
# Strength of the penalty where all values of a score are knots, by cross-validation on stated confidences.
_FEW_VALUES = 0.5


Rows = tuple[ndarray, ndarray, ndarray]  # labels, targets and weights


class LogisticCone(ConeProblem):
    """Mean logistic loss of a linear model with soft targets, a ridge, and lower bounds of the coefficients.

    ``weight`` sums to 1; ``first`` is where to begin, ``offset`` (n,) log-odds to which those of the model are added.
    """

    def __init__(
        self,
        design: ndarray,
        targets: ndarray,
        weight: ndarray,
        lower: ndarray,
        penalty: ndarray | float = 0.0,
        ridge: ndarray | float = 0.0,
        first: ndarray | None = None,
        offset: ndarray | float = 0.0,
    ):
        m = design.shape[1]
        super().__init__(m, lower=lower, penalty=penalty)
        self.design, self.targets, self.weight, self.offset = design, targets, weight, offset
        self.ridge = np.full(m, ridge, dtype=np.float64)
        self.first = np.where(np.isfinite(self.lower), self.lower, 0.0) if first is None else first
        self.spread = np.sqrt(weight @ design**2)
        self.reach = np.abs(design).max(axis=0, initial=0.0)
        self.n_rows = len(design)

    def start(self) -> ndarray:
        return self.first

    def evaluate(self, coefficients: ndarray, working: ndarray) -> Expansion:
        f = self.offset + self.design @ coefficients
        loss, p = _loss(f, self.targets)
        value = float(self.weight @ loss) + 0.5 * float(self.ridge @ coefficients**2)
        gradient = (self.weight * (p - self.targets)) @ self.design + self.ridge * coefficients
        own = self.design if len(working) == self.design.shape[1] else self.design[:, working]
        hessian = (own.T * (self.weight * p * (1.0 - p))) @ own
        hessian[np.diag_indices(len(working))] += self.ridge[working]
        return Expansion(value, gradient, hessian, p)

    def excess(self, coefficients: ndarray, here: Expansion) -> float:
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
        dual = float(w @ (entropy + (q - t) * self.offset))
        dual += float(self.lower[at_bound] @ g[at_bound])
        dual -= float(np.sum(g[ridged] ** 2 / (2.0 * self.ridge[ridged])))
        return max(here.value + float(self.penalty @ coefficients) - dual, 0.0)


def _loss(f: ndarray, targets: ndarray) -> tuple[ndarray, ndarray]:
    """Logistic loss of log-odds, and their probabilities."""
    e = np.exp(-np.abs(f))
    return np.maximum(f, 0.0) + np.log1p(e) - targets * f, np.where(f < 0, e, 1.0) / (1.0 + e)


def _fit_line(
    x: ndarray,
    targets: ndarray,
    share: ndarray,
    start: tuple[float, float],
    free: tuple[bool, bool] = (True, True),
    ridge: float = 0.0,
) -> tuple[float, float, float]:
    """Intercept and slope of the least mean logistic loss, and that loss, by Newton's method; what is not free stays at its
    start. The ridge is one of the slope."""
    level, slope = start
    loss, p = _loss(level + slope * x, targets)
    value = float(share @ loss) + 0.5 * ridge * slope**2
    for _ in range(_MOST_STEPS):
        residual, h = share * (p - targets), share * p * (1.0 - p)
        g0, g1 = free[0] * float(residual.sum()), free[1] * (float(residual @ x) + ridge * slope)
        h0, h01, h1 = float(h.sum()), float(h @ x) * (free[0] and free[1]), float(h @ x**2) + ridge
        damping = 1e-12 * (1.0 + h0 + h1)
        h0, h1 = h0 + damping, h1 + damping
        determinant = h0 * h1 - h01**2
        step0, step1 = (h1 * g0 - h01 * g1) / determinant, (h0 * g1 - h01 * g0) / determinant
        decrease = step0 * g0 + step1 * g1
        if decrease < 1e-14 * (1.0 + abs(value)):
            break
        size = 1.0
        while size > 1e-9:
            to_level, to_slope = level - size * step0, slope - size * step1
            loss, p = _loss(to_level + to_slope * x, targets)
            to_value = float(share @ loss) + 0.5 * ridge * to_slope**2
            if to_value <= value - 1e-4 * size * decrease:
                break
            size /= 2.0
        else:
            break
        level, slope, value = to_level, to_slope, to_value
    return level, slope, value


def _rising_line(
    z: ndarray, targets: ndarray, share: ndarray, start: ndarray | None
) -> tuple[ndarray, float]:
    """Intercept and slope, at least `LEAST_SLOPE`, of the likeliest line, and its loss."""
    if start is None:
        rate = float(share @ targets)
        start = np.array([np.log(rate / (1.0 - rate)), 1.0 if z.any() else LEAST_SLOPE])
    level, slope, loss = _fit_line(z, targets, share, (start[0], start[1]))
    if slope < LEAST_SLOPE:
        level, slope, loss = _fit_line(z, targets, share, (start[0], LEAST_SLOPE), (True, False))
    return np.array([level, slope]), loss


def _standardised(x: ndarray, share: ndarray) -> tuple[ndarray, float, float]:
    """``z = (x - mean) / sd``, mean and sd; of a constant 0, itself and 1."""
    if x.min() == x.max():  # its mean may differ from it by rounding
        return np.zeros(len(x)), float(x[0]), 1.0
    largest = float(np.abs(x).max(initial=0.0))
    unit = 1.0 if 1e-100 < largest < 1e100 or largest == 0.0 else largest
    scaled = x / unit
    mean = float(share @ scaled)
    sd = float(np.sqrt(share @ (scaled - mean) ** 2))
    return (scaled - mean) / sd, mean * unit, sd * unit


def _soft_targets(labels: ndarray, weight: ndarray) -> ndarray:
    """Labels with part of a row exchanged between the classes, so that neither is certain and the base rate stays."""
    positive = float(weight @ labels)
    negative = float(weight.sum()) - positive
    rarer = min(positive, negative)
    exchanged = rarer / (rarer + _EXCHANGE)
    return np.where(labels == 1, 1.0 - exchanged / positive, exchanged / negative)


def _with_prior(
    v: ndarray, targets: ndarray, weight: ndarray, prior_rows: float, input: str
) -> tuple[ndarray, ndarray, float]:
    """Targets mixed with the probabilities of the classifier itself, the likeliest line without these, and the weight of the
    undecided row.

    They are taken at its best temperature, which for log-odds is at least 1; and as far as its zero is wrong by more than chance,
    with the intercept that keeps the base rate.
    """
    total = float(weight.sum())
    share = weight / total
    v = softened(v, input, _SOFTNESS[input][0])
    z, mean, sd = _standardised(v, share)
    line, line_loss = _rising_line(z, targets, share, None)
    size = max(abs(mean), sd)
    steepest = np.inf if input == "scores" else size  # of log-odds, in the unit of v / size
    # The ridge is a bound for scores that all agree with their labels.
    slope_alone = (0.0, 0.0), (False, True)
    _, slope, loss = _fit_line(v / size, targets, share, *slope_alone, ridge=1e-6 / total)
    if slope < 0:
        slope, loss = 0.0, float(np.log(2.0))
    against = max(total * (loss - line_loss), 0.0)
    trust = float(np.exp(-max(against - _DOUBT, 0.0)))
    prior = trust * expit(min(slope, steepest) / size * v)
    if trust < 1.0:
        level, slope = line[0], min(line[1], steepest * sd / size)
        if slope < line[1]:
            level, *_ = _fit_line(z, targets, share, (level, slope), (True, False))
        prior = prior + (1.0 - trust) * expit(level + slope * z)
    part = prior_rows / (total + prior_rows)
    undecided = 0.0 if input == "scores" else _UNDECIDED * prior_rows * float(np.exp(-against))
    return (1.0 - part) * targets + part * prior, line, undecided


@dataclass(frozen=True)
class Score:
    """One score made ready: ``z = (x - mean) / sd`` (n,), intercept and slope of the ``line`` alone, knots (K,) in the unit of
    ``z``, and the two knots ``low`` and ``high`` of each ramp.

    ``strength`` is that of the penalty, less where a score has few values, each with many rows; ``zero`` (1,) is where the
    classifier is undecided.
    """

    z: ndarray
    line: ndarray
    knots: ndarray
    low: ndarray
    high: ndarray
    strength: float = 1.0
    softness: float = 0.0
    mean: float = 0.0
    sd: float = 1.0
    zero: ndarray = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, v: ndarray, rows: Rows, input: str, start: Any, undecided: float) -> Score:
        """Of the softness whose line is the likeliest; ``start`` is where the search for the line begins."""
        labels, targets, weight = rows
        total = float(weight.sum())
        with_zero = np.append(targets, 0.5), np.append(weight, undecided) / (total + undecided)
        lines = []
        for softness in _SOFTNESS[input]:
            z, mean, sd = _standardised(softened(v, input, softness), weight / total)
            zero = (softened(np.zeros(1), input, softness) - mean) / sd
            line, loss = _rising_line(np.append(z, zero), *with_zero, start)
            lines.append((loss, z, line, (softness, mean, sd), zero))
        _, z, line, unit, zero = min(lines, key=lambda one: one[0])
        positive = float(weight @ labels)
        rarer = min(positive, total - positive)
        most = INTERVALS * (rarer / _FEW_ROWS) ** (1 / 3)
        intervals = int(np.clip(most, INTERVALS, _MOST_INTERVALS))
        score = cls.at_quantiles(z, weight / total, line, intervals, _FEW_VALUES, unit)
        return replace(score, zero=zero)

    @classmethod
    def at_quantiles(
        cls,
        z: ndarray,
        share: ndarray,
        line: ndarray,
        intervals: int,
        few_values: float = 1.0,
        unit: tuple[float, float, float] = (0.0, 0.0, 1.0),
    ) -> Score:
        """With knots at quantiles by rows and by information; at all values where these are few, with that strength."""
        p = expit(line[0] + line[1] * z)
        information = share * np.maximum(p * (1.0 - p), 1e-200)  # not zero anywhere
        order = np.argsort(z, kind="stable")
        knots = z[order]
        new = np.concatenate([[True], knots[1:] > knots[:-1]])
        few = bool(new.sum() <= intervals + 1)
        if few:
            knots = knots[new]
        else:
            mass = np.cumsum((0.5 * information / information.sum() + 0.5 * share)[order])
            ends = np.linspace(0.0, 1.0, intervals + 1) * mass[-1] * (1.0 - 1e-12)
            at = np.searchsorted(mass, ends)
            knots = np.unique(knots[np.minimum(at, len(z) - 1)])
        knots = knots[np.concatenate([[True], np.diff(knots * unit[2] + unit[1]) > 0])]
        return cls(z, line, knots, *_ramps(len(knots) - 1, few), few_values if few else 1.0, *unit)

    def columns(self, z: ndarray) -> ndarray:
        """Line and ramps at ``z``, (n, 1 + ramps)."""
        low, high = self.knots[self.low], self.knots[self.high]
        return np.column_stack([z, np.clip((z[:, None] - low) / (high - low), 0.0, 1.0)])

    def map(self, input: str, intercept: float, c: ndarray) -> ScoreMap:
        """The broken line with coefficients ``c`` of `columns`, in the unit of the score."""
        place = self.knots * self.sd + self.mean
        values = np.maximum.accumulate(intercept + self.columns(self.knots) @ c)
        least = c[0] / self.sd
        inner = np.maximum(np.diff(values) / np.diff(place), least)
        slopes = np.concatenate([[least], inner, [least]])
        return ScoreMap(input, self.softness, place, values, slopes)


@cache
def _ramps(last: int, few: bool) -> tuple[ndarray, ndarray]:
    """The knots, 0 to ``last``, where each ramp begins and ends: some begin before the first knot, or end beyond the last."""
    pairs = {
        (max(i, 0), min(i + span, last))
        for span in ((1, *_SPANS) if few else _SPANS)
        for i in range(1 - span, last)
        if span == 1 or min(i + span, last) - max(i, 0) >= span / 2
    }
    low, high = np.array(sorted(pairs) if last > 1 else [], dtype=np.intp).reshape(-1, 2).T
    return low, high


def knot_weights(x: ndarray, knots: ndarray) -> ndarray:
    """Hat functions of the knots at ``x``, (n, K): linear between the knots, and beyond them as between the last two."""
    weights = np.zeros((len(x), len(knots)))
    if len(knots) == 1:
        weights[:] = 1.0
        return weights
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    part = (x - knots[left]) / (knots[left + 1] - knots[left])
    rows = np.arange(len(x))
    weights[rows, left], weights[rows, left + 1] = 1.0 - part, part
    return weights


@dataclass(frozen=True)
class RampFit:
    """Fitted maps of one score or several (log-odds are their sum), with their certificate.

    At the rows, by the whole fit: hat functions of the knots (n, K), residuals and Fisher information (n,), both weighted. The
    ``extra`` columns (n, G), their ridge (G,), their coefficients ``effects`` (G,), and the variances of these. ``at_bound``
    says whether some score is constant, or its line alone has its slope at the lower bound.
    """

    maps: tuple[ScoreMap, ...]
    solution: Solution
    at_bound: bool
    hats: ndarray
    residual: ndarray
    information: ndarray
    extra: ndarray
    ridge: ndarray
    effects: ndarray
    effect_variance: ndarray

    @property
    def values(self) -> ndarray:
        """Of all maps at their knots, one after another."""
        return np.concatenate([one.values for one in self.maps])


@dataclass(frozen=True)
class RampProblem:
    """Rows, and everything about the cone that does not depend on columns other than the scores."""

    scores: list[Score]
    labels: ndarray
    targets: ndarray
    weight: ndarray
    input: str
    how: tuple[float, float, int]  # shrinkage, tolerance and iterations
    undecided: float = 0.0

    @classmethod
    def of(
        cls, columns: ndarray, labels: ndarray, weight: ndarray, input: str, prior_rows: float, how: Any
    ) -> RampProblem:
        """``columns`` (J, n) are scores, or log-odds of probabilities; labels are 0 and 1."""
        targets, start, undecided = _soft_targets(labels, weight), None, 0.0
        if len(columns) == 1:
            targets, start, undecided = _with_prior(columns[0], targets, weight, prior_rows, input)
        scores = [Score.of(v, (labels, targets, weight), input, start, undecided) for v in columns]
        return cls(scores, labels, targets, weight, input, how, undecided)

    def fit(self, extra: Any = None, ridge: Any = None, prior: Any = None) -> RampFit:
        """The certified optimum.

        The ``extra`` columns have free coefficients with a ridge (rows' worth). ``prior`` holds mean and covariance of intercept
        and slope: with ``C`` upper triangular and ``C C'`` the covariance, ``(a, b) = C e`` turns it into a ridge around
        ``C^-1 mean``, and leaves the bound of the slope a bound of one coefficient. It counts like one row.
        """
        n, (shrinkage, tol, max_iter) = len(self.weight), self.how
        extra = np.zeros((n, 0)) if extra is None else extra
        hats = [knot_weights(score.z, score.knots) for score in self.scores]
        design, targets, weight = self._rows(hats, extra)
        total = float(weight.sum()) + (prior is not None)
        share = weight / total
        ends = np.cumsum([1, *(1 + len(score.low) for score in self.scores)])
        lines, effects = ends[:-1], np.arange(ends[-1], design.shape[1])
        base = np.concatenate([[0], lines, effects])
        lower, ridges, penalty, start = np.zeros((4, design.shape[1]))
        lower[base], lower[lines], start[lines] = -np.inf, LEAST_SLOPE, LEAST_SLOPE
        ridges[effects] = 0.0 if ridge is None else ridge / total
        start[:2], factor = self.scores[0].line, np.eye(2)
        if prior is not None:
            factor = np.linalg.cholesky(prior[1][::-1, ::-1])[::-1, ::-1]
            design[:, :2] = design[:, :2] @ factor
            lower[1] /= factor[1, 1]
            ridges[:2] = 1.0 / total
            penalty[:2] = -np.linalg.solve(factor, prior[0]) / total
            start[:2] = np.maximum(np.linalg.solve(factor, start[:2]), lower[:2])
        if len(base) > 2 or prior is not None:
            rest = (lower[base], penalty[base], ridges[base], start[base])
            line = LogisticCone(design[:, base], targets, share, *rest)
            start[base] = minimize(line, tol=min(tol / 10, 1e-7)).coefficients
        units = _units(design, weight, base, start[base], total * ridges[base])
        for score, at, end in zip(self.scores, lines, ends[1:], strict=True):
            units[at:end] *= shrinkage * score.strength
        cone = LogisticCone(design, targets, share, lower, penalty + units / total, ridges, start)
        solution = minimize(cone, tol=tol, max_iter=max_iter, gap_tol=100.0 * tol)
        c = solution.coefficients.copy()
        c[:2] = factor @ c[:2]
        c[1] = max(c[1], LEAST_SLOPE)
        maps = tuple(
            score.map(self.input, c[0] if i == 0 else 0.0, c[at:end])
            for i, (score, at, end) in enumerate(zip(self.scores, lines, ends[1:], strict=True))
        )
        p = expit(design @ solution.coefficients)
        information, variance = weight * p * (1.0 - p), np.zeros(0)
        if len(effects):  # the precision of every ramp counts, whether it is used or not
            precision = (design.T * information) @ design
            precision[np.diag_indices(len(c))] += units**2 + total * ridges + 1e-6
            variance = np.diag(np.linalg.inv(precision))[effects]
        at_bound = any(score.line[1] <= LEAST_SLOPE or not score.z.any() for score in self.scores)
        at_rows = np.concatenate(hats, axis=1), self.weight * (self.labels - p[:n]), information[:n]
        of_effects = total * ridges[effects], c[effects], variance
        return RampFit(maps, solution, at_bound, *at_rows, extra, *of_effects)

    def _rows(self, hats: list[ndarray], extra: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """The design, targets and weights of all rows, the undecided one the last."""
        # A ramp is linear between knots, so its values there give those at the rows.
        blocks = [
            np.column_stack([score.z, hat @ score.columns(score.knots)[:, 1:]])
            for score, hat in zip(self.scores, hats, strict=True)
        ]
        design = np.column_stack([np.ones(len(extra)), *blocks, extra])
        if not self.undecided:
            return design, self.targets, self.weight
        zero = self.scores[0].columns(self.scores[0].zero)
        last = np.column_stack([np.ones(1), zero, np.zeros((1, extra.shape[1]))])
        weight = np.append(self.weight, self.undecided)
        return np.concatenate([design, last]), np.append(self.targets, 0.5), weight


def _units(design: ndarray, weight: ndarray, base: ndarray, at: ndarray, ridge: ndarray) -> ndarray:
    """Root of the Fisher information of each ramp that the ``base`` columns, with coefficients ``at``, leave unexplained."""
    p = expit(design[:, base] @ at)
    information = np.maximum(weight * p * (1.0 - p), 1e-200)
    weighted = design[:, base].T * information
    inner = weighted @ design[:, base] + np.diag(ridge + 1e-9)
    cross, total = weighted @ design, information @ design**2
    without_level = total - (information @ design) ** 2 / information.sum()
    left = total - (cross * np.linalg.solve(inner, cross)).sum(axis=0)
    units = np.sqrt(np.maximum(np.maximum(left, _LEAST_OWN * without_level), 1e-12))
    units[base] = 0.0
    return units
