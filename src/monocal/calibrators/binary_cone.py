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

from dataclasses import dataclass

import numpy as np

from ..solver import ConeProblem, Expansion, Solution, minimize
from .binary_interval import curve_posterior, knot_weights
from .binary_map import TAIL, TAIL_BEGINS, ScoreMap, position

SHRINKAGE, PRIOR_ROWS = 1.2, 8.0
LEAST_SLOPE = 0.01
# Exchanged rows approach 1 as the rarer class grows past this many.
_EXCHANGE = 4.0
# Softness of the log-odds to choose from, by what scores are.
SOFTNESS = {"probabilities": (1e-6, 1e-4, 1e-2), "logits": (0.0, 1e-4, 1e-2), "scores": (0.0,)}
# Intervals between knots, up to this many rows of the rarer class; then with their cube root; and at most.
_INTERVALS, _FEW_ROWS, _MOST_INTERVALS = 16, 2500.0, 32
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


def sigmoid(f: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(f))
    return np.where(f < 0, e, 1.0) / (1.0 + e)


class LogisticCone(ConeProblem):
    """Mean logistic loss of a linear model with soft targets, a ridge, and bounds of the coefficients.

    Parameters
    ----------
    design : ndarray of shape (n, m)
    targets, weight : ndarray of shape (n,)
        Targets between 0 and 1; weights that sum to 1.
    lower, penalty, ridge : ndarray of shape (m,)
    first : ndarray of shape (m,), optional
        Where to begin.
    offset : ndarray of shape (n,), optional
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
        offset: np.ndarray | None = None,
    ):
        m = design.shape[1]
        super().__init__(m, lower=lower, penalty=penalty)
        self.design, self.targets, self.weight = design, targets, weight
        self.offset = np.zeros(len(design)) if offset is None else offset
        self.ridge = np.full(m, ridge, dtype=np.float64)
        self.first = np.where(np.isfinite(self.lower), self.lower, 0.0) if first is None else first
        self.spread = np.sqrt(weight @ design**2)
        self.reach = np.abs(design).max(axis=0, initial=0.0)
        self.n_rows = len(design)

    def start(self) -> np.ndarray:
        return self.first

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        f = self.offset + self.design @ coefficients
        e = np.exp(-np.abs(f))
        p = np.where(f < 0, e, 1.0) / (1.0 + e)
        loss = np.maximum(f, 0.0) + np.log1p(e) - self.targets * f
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
        entropy = -(_xlogx(q) + _xlogx(1.0 - q))
        g = share * slope + self.penalty
        at_bound = ~ridged & ~tight & np.isfinite(self.lower)
        dual = float(w @ (entropy + (q - t) * self.offset)) + float(self.lower[at_bound] @ g[at_bound])
        dual -= float(np.sum(g[ridged] ** 2 / (2.0 * self.ridge[ridged])))
        return max(here.value + float(self.penalty @ coefficients) - dual, 0.0)


def _xlogx(q: np.ndarray) -> np.ndarray:
    return q * np.log(np.maximum(q, 1e-300))


@dataclass(frozen=True)
class Standard:
    """A column standardised: ``z = (x - mean) / sd``."""

    z: np.ndarray
    mean: float
    sd: float

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray) -> Standard:
        largest = float(np.abs(x).max(initial=0.0))
        unit = 1.0 if 1e-100 < largest < 1e100 or largest == 0.0 else largest
        scaled = x / unit
        mean = float(weight @ scaled)
        sd = float(np.sqrt(weight @ (scaled - mean) ** 2))
        sd = sd if sd > 0 else 1.0
        return cls((scaled - mean) / sd, mean * unit, sd * unit)


@dataclass(frozen=True)
class Line:
    """The likeliest line ``a + b z`` with its loss."""

    coefficients: np.ndarray
    loss: float

    @classmethod
    def of(
        cls, z: np.ndarray, targets: np.ndarray, weight: np.ndarray, first: np.ndarray | None = None
    ) -> Line:
        """The slope is at least `LEAST_SLOPE`."""
        if first is None:
            rate = float(weight @ targets)
            first = np.array([np.log(rate / (1.0 - rate)), 1.0])
        one = np.ones(len(z))
        best, loss = likeliest(np.column_stack([one, z]), targets, weight, first)
        if best[1] < LEAST_SLOPE:
            level, loss = likeliest(one[:, None], targets, weight, first[:1], offset=LEAST_SLOPE * z)
            best = np.append(level, LEAST_SLOPE)
        return cls(best, loss)


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
        f = offset + design @ c
        e = np.exp(-np.abs(f))
        loss = weight @ (np.maximum(f, 0.0) + np.log1p(e) - targets * f) + 0.5 * ridge * (c @ c)
        return float(loss), np.where(f < 0, e, 1.0) / (1.0 + e)

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


def soft_targets(labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Labels with part of a row exchanged between the classes, so that neither is certain and the base rate stays."""
    positive = float(weight @ labels)
    negative = float(weight.sum()) - positive
    rarer = min(positive, negative)
    exchanged = rarer / (rarer + _EXCHANGE)
    return np.where(labels == 1, 1.0 - exchanged / positive, exchanged / negative)


def with_prior(
    v: np.ndarray, targets: np.ndarray, weight: np.ndarray, prior_rows: float, input: str
) -> tuple[np.ndarray, Line]:
    """Targets of which a share goes to what the classifier says itself, and the likeliest line without that share.

    The classifier speaks at its best temperature, which for log-odds is at least 1; and as far as its zero is wrong by more than
    chance, with the intercept that keeps the base rate.
    """
    total = float(weight.sum())
    share = weight / total
    v = softened(v, input, SOFTNESS[input][0])
    standard = Standard.of(v, share)
    line = Line.of(standard.z, targets, share)
    size = max(abs(standard.mean), standard.sd)
    steepest = np.inf if input == "scores" else size  # of log-odds, in the unit of v / size
    # The ridge is a bound for scores that all agree with their labels.
    own, loss = likeliest((v / size)[:, None], targets, share, np.zeros(1), ridge=1e-6 / total)
    if own[0] < 0:
        own, loss = np.zeros(1), float(np.log(2.0))
    trust = float(np.exp(-max(total * (loss - line.loss) - _DOUBT, 0.0)))
    prior = trust * sigmoid(min(own[0], steepest) / size * v)
    if trust < 1.0:
        slope = line.coefficients[1]
        at_line = line.coefficients[0] + slope * standard.z
        if slope * size > steepest * standard.sd:
            at_line = at_line + (steepest * standard.sd / size - slope) * standard.z
            at_line = (
                at_line + likeliest(np.ones((len(v), 1)), targets, share, np.zeros(1), offset=at_line)[0]
            )
        prior = prior + (1.0 - trust) * sigmoid(at_line)
    part = prior_rows / (total + prior_rows)
    return (1.0 - part) * targets + part * prior, line


def quantile_knots(x: np.ndarray, weight: np.ndarray, intervals: int) -> tuple[np.ndarray, bool]:
    """Quantiles of ``x``, each a value that occurs; all values where there are few, and whether that is so."""
    order = np.argsort(x, kind="stable")
    ordered = x[order]
    new = np.concatenate([[True], ordered[1:] > ordered[:-1]])
    if new.sum() <= intervals + 1:
        return ordered[new], True
    mass = np.cumsum(weight[order])
    at = np.searchsorted(mass, np.linspace(0.0, 1.0, intervals + 1) * mass[-1] * (1.0 - 1e-12))
    return np.unique(ordered[np.minimum(at, len(x) - 1)]), False


def informative_knots(
    x: np.ndarray, share: np.ndarray, p: np.ndarray, intervals: int
) -> tuple[np.ndarray, bool]:
    """`quantile_knots`, half by rows and half by Fisher information at probabilities ``p``."""
    information = share * np.maximum(
        p * (1.0 - p), 1e-200
    )  # not zero where all probabilities are exactly 0 or 1
    return quantile_knots(x, 0.5 * information / information.sum() + 0.5 * share, intervals)


def ramp_ends(n_knots: int, few: bool) -> tuple[np.ndarray, np.ndarray]:
    """Knots where each ramp begins and ends, by number."""
    pairs = set()
    for span in (1, *_SPANS) if few else _SPANS:
        for i in range(1 - span, n_knots - 1):
            low, high = max(i, 0), min(i + span, n_knots - 1)
            if high > low and (span == 1 or high - low >= span / 2):
                pairs.add((low, high))
    if n_knots < 3:
        pairs = set()
    ends = np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def ramps(z: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Each ramp at ``z``, (n, K)."""
    return np.clip((z[:, None] - low) / (high - low), 0.0, 1.0)


def unexplained(
    base: np.ndarray, columns: np.ndarray, curvature: np.ndarray, ridge: np.ndarray
) -> np.ndarray:
    """Root of the Fisher information of each column that the base columns leave unexplained."""
    inner = (base.T * curvature) @ base + np.diag(ridge + 1e-9)
    cross = (base.T * curvature) @ columns
    total = curvature @ columns**2
    without_level = total - (curvature @ columns) ** 2 / curvature.sum()
    left = total - (cross * np.linalg.solve(inner, cross)).sum(axis=0)
    return np.sqrt(np.maximum(np.maximum(left, _LEAST_OWN * without_level), 1e-12))


@dataclass(frozen=True)
class Score:
    """One score made ready: standardised position, knots, and the ramps between them.

    Attributes
    ----------
    softness : float
    standard : Standard
    knots : ndarray of shape (K,)
        In the unit of the standardised position.
    low, high : ndarray of int
        The knots where each ramp begins and ends.
    line : Line
        The fit of intercept and line alone.
    strength : float
        Of the penalty, relative to others: half where a score has few values, each with many rows.
    """

    softness: float
    standard: Standard
    knots: np.ndarray
    low: np.ndarray
    high: np.ndarray
    line: Line
    strength: float = 1.0

    @classmethod
    def of(
        cls,
        v: np.ndarray,
        targets: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray,
        input: str,
        first: np.ndarray | None = None,
    ) -> Score:
        """``first`` is where the search for the line begins."""
        total = float(weight.sum())
        share = weight / total
        tried = []
        for softness in SOFTNESS[input]:
            standard = Standard.of(softened(v, input, softness), share)
            tried.append((Line.of(standard.z, targets, share, first), softness, standard))
        line, softness, standard = min(tried, key=lambda one: one[0].loss)
        p = sigmoid(line.coefficients[0] + line.coefficients[1] * standard.z)
        positive = float(weight @ labels)
        rarer = min(positive, total - positive)
        intervals = int(np.clip(_INTERVALS * (rarer / _FEW_ROWS) ** (1 / 3), _INTERVALS, _MOST_INTERVALS))
        knots, few = informative_knots(standard.z, share, p, intervals)
        place = knots * standard.sd + standard.mean
        knots = knots[np.concatenate([[True], np.diff(place) > 0])]
        return cls(softness, standard, knots, *ramp_ends(len(knots), few), line, _FEW_VALUES if few else 1.0)

    def columns(self, z: np.ndarray) -> np.ndarray:
        """Line and ramps at ``z``, (n, 1 + ramps)."""
        return np.column_stack([z, ramps(z, self.knots[self.low], self.knots[self.high])])

    def map(self, input: str, intercept: float, c: np.ndarray) -> ScoreMap:
        """The broken line with coefficients ``c`` of `columns`, in the unit of the score."""
        place = self.knots * self.standard.sd + self.standard.mean
        values = np.maximum.accumulate(intercept + self.columns(self.knots) @ c)
        least = c[0] / self.standard.sd
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
    mean, covariance : ndarray
        Of the log-odds at the knots of each map, one after another, as `curve_posterior` has them.
    at_bound : bool
        Whether the line alone has its slope at the lower bound, for some score.
    effects, effect_variance : ndarray
        Coefficients of the other columns, and their variances.
    """

    maps: tuple[ScoreMap, ...]
    solution: Solution
    mean: np.ndarray
    covariance: np.ndarray
    at_bound: bool
    effects: np.ndarray
    effect_variance: np.ndarray


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
        *,
        shrinkage: float = SHRINKAGE,
        prior_rows: float = PRIOR_ROWS,
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> RampProblem:
        """``columns`` are scores, or log-odds of probabilities; labels are 0 and 1."""
        targets = soft_targets(labels, weight)
        first = None
        if len(columns) == 1:
            targets, line = with_prior(columns[0], targets, weight, prior_rows, input)
            first = line.coefficients
        scores = [Score.of(v, targets, labels, weight, input, first) for v in columns]
        return cls(scores, labels, targets, weight, input, shrinkage, tol, max_iter)

    def fit(self, extra: np.ndarray | None = None, ridge: np.ndarray | None = None) -> RampFit:
        """The certified optimum; the ``extra`` columns have free coefficients with a ridge (rows' worth)."""
        n, total = len(self.targets), float(self.weight.sum())
        share = self.weight / total
        more = np.zeros((n, 0)) if extra is None else extra
        ridge = np.zeros(0) if ridge is None else ridge
        hats = [knot_weights(score.standard.z, score.knots) for score in self.scores]
        # A ramp is linear between knots, so its values there give those at the rows.
        blocks = [
            np.column_stack([score.standard.z, weights @ score.columns(score.knots)[:, 1:]])
            for score, weights in zip(self.scores, hats, strict=True)
        ]
        design = np.column_stack([np.ones(n), *blocks, more])
        size = design.shape[1]
        starts = np.cumsum([1, *(block.shape[1] for block in blocks)])
        lines, effects = starts[:-1], np.arange(starts[-1], size)
        base = np.concatenate([[0], lines, effects])
        lower, ridges, units = np.zeros(size), np.zeros(size), np.zeros(size)
        lower[0], lower[lines], lower[effects] = -np.inf, LEAST_SLOPE, -np.inf
        ridges[effects] = ridge / total
        start = lower.copy()
        start[base] = self._line(design[:, base], share, lower[base], ridges[base])
        p = sigmoid(design[:, base] @ start[base])
        is_ramp = np.ones(size, dtype=bool)
        is_ramp[base] = False
        units[is_ramp] = unexplained(
            design[:, base], design[:, is_ramp], self.weight * p * (1.0 - p), total * ridges[base]
        )
        for score, at, end in zip(self.scores, starts[:-1], starts[1:], strict=True):
            units[at:end] *= score.strength
        problem = LogisticCone(
            design, self.targets, share, lower, self.shrinkage * units / total, ridges, start
        )
        solution = minimize(problem, tol=self.tol, max_iter=self.max_iter, gap_tol=100.0 * self.tol)
        c = solution.coefficients
        maps = tuple(
            score.map(self.input, c[0] if i == 0 else 0.0, c[at : at + block.shape[1]])
            for i, (score, at, block) in enumerate(zip(self.scores, lines, blocks, strict=True))
        )
        p = sigmoid(design @ c)
        curvature = self.weight * p * (1.0 - p)
        mean, covariance = curve_posterior(
            [score.knots for score in self.scores],
            np.concatenate([one.values for one in maps]),
            np.concatenate(hats, axis=1),
            self.weight * (self.labels - p),
            curvature,
            more,
            ridge,
        )
        variance = np.zeros(0)
        if len(effects):  # the precision of every ramp counts, whether it is used or not
            precision = (design.T * curvature) @ design
            precision[np.diag_indices(size)] += (self.shrinkage * units) ** 2 + total * ridges + 1e-6
            variance = np.diag(np.linalg.inv(precision))[effects]
        at_bound = any(score.line.coefficients[1] <= LEAST_SLOPE for score in self.scores)
        return RampFit(maps, solution, mean, covariance, at_bound, c[effects], variance)

    def log_odds(self, maps: tuple[ScoreMap, ...]) -> np.ndarray:
        """Of the rows of the fit, by its maps."""
        terms = (
            knot_weights(score.standard.z, score.knots) @ one.values
            for score, one in zip(self.scores, maps, strict=True)
        )
        return sum(terms, np.zeros(len(self.targets)))

    def _line(self, base: np.ndarray, share: np.ndarray, lower: np.ndarray, ridge: np.ndarray) -> np.ndarray:
        """Intercept, lines and effects without ramps."""
        line = self.scores[0].line.coefficients
        if base.shape[1] == 2:
            return line
        first = np.zeros(base.shape[1])
        first[0], first[1 : 1 + len(self.scores)] = line[0], LEAST_SLOPE
        first[1] = line[1]
        return minimize(
            LogisticCone(base, self.targets, share, lower, 0.0, ridge, first), tol=1e-7
        ).coefficients


def softened(v: np.ndarray, input: str, softness: float) -> np.ndarray:
    """``x`` of scores, or of log-odds of probabilities."""
    if input == "probabilities":
        soft = np.log((sigmoid(v) + softness) / (sigmoid(-v) + softness))
        return soft + TAIL * (np.maximum(v - TAIL_BEGINS, 0.0) + np.minimum(v + TAIL_BEGINS, 0.0))
    return position(v, input, softness, np)
