r"""Intervals of metrics: of means from what each row adds, of shares from counts, of calibration errors by an inverted test.

**Means**, and smooth functions of means. A row adds ``d_i`` to the estimate ``v``; of a weighted mean of ``x_i`` that is
``w_i (x_i - v) / sum w``. The standard error is ``s^2 = sum d_i^2``, the skewness ``g = sum d_i^3 / s^3``. Losses of a rare
class are skewed, so the studentized mean is first made symmetric (Hall's cubic),

    t + g t^2 / 3 + g^2 t^3 / 27 + g / 6,         t = (v - truth) / s,

and the ends are the quantiles of Student's t solved for the truth. ``s`` is an estimate too, and with uneven weights a few
rows decide it: the degrees of freedom are those of a chi-squared variable that varies as ``s^2`` does (Satterthwaite) apart
from what goes with the error of ``v``, which the cubic allows for: ``2 / (k - g^2 - 1 / n)`` with ``k = sum d_i^4 / s^4``.

**Shares** are ``A / (A + B)``, the weights of the rows that are right and of those that are not. Of rows of equal weight the
interval is Wilson's. Otherwise the ``a`` rows behind ``A`` count as ``a / (1 + v)`` rows of weight ``(1 + v)`` times their mean,
and those behind ``B`` likewise, as weights that depend on the label differ in more than their number. ``v`` is the relative
variance of the weights, ``var(w) / mean(w)^2``, the larger of both: among few rows there may be no heavy one. The interval is
that of Clopper and Pearson for these counts, turned back into weights.

**Calibration errors** ``T`` are norms of the gaps ``G_k`` between confidence and accuracy in bins, so noise makes
them larger: a calibrated predictor, whose true error is 0, shows ``T > 0``. Let the true gaps be ``t`` times those
observed, from calibrated (t = 0) to as wrong as it looks (t = 1). The sums in each bin are then drawn from gamma
distributions with their mean, variance and skewness, which gives the distribution of ``T`` at each ``t`` at a cost
that does not grow with the rows, and

    low = the smallest true error for which T is not among the largest draws,        high = T + z' sd(T at t = 1)

with ``z'`` the quantile moved by the skewness. Noise hardly ever makes an error smaller, so nothing is taken back
at the high end.

**Too few.** Nothing holds where the rare outcome has hardly been seen: there is no interval unless the rows that
are wrong and those that are right (of metrics of P(class 1): the two classes) count as five or more, with very uneven
weights as twenty or fifty. Samples that happen to hold many of them are shown more often, so the low end allows for that:
with ``K`` a Poisson count its tail is ``P(K >= k)`` where ``P(K >= k | K >= 5)`` is the requested tail.

References
----------
Hall, On the removal of skewness by transformation, JRSS B 54 (1992).
Brown, Cai & DasGupta, Interval estimation for a binomial proportion, Statistical Science 16 (2001).
Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin 2 (1946).
Korn & Graubard, Confidence intervals for proportions with small expected number of positive counts, Survey Methodology 24 (1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, gammainc, logit, ndtri, stdtrit

from ..inputs.validation import effective_rows
from .outcomes import Floats, Integers, Outcomes, bin_totals
from .table import METRICS, GapNorm, Metric, Options

# Effective rows of either outcome, below which a mean of losses has no interval; where weights are uneven, few rows have most.
_FEWEST, _FEWEST_UNEVEN, _FEWEST_OF_TWO = 5.0, 20.0, 50.0
_UPPER = 12.0  # upper confidence limit of a Poisson mean of which five were counted
# Of an error the high end takes no noise back and is missed less often, so the low end gets more of the tails.
_TOWARDS_ZERO = 1.4
# Effective rows a bin, below which its gap says too little: P(class 1) spreads over all bins, and where weights are uneven,
# few rows have most of it.
_ROWS_OF_BIN, _UNEVEN_ROWS_OF_BIN, _UNEVEN_ROWS_OF_TWO = 4.0, 20.0, 100.0
_PRIOR_ROWS = 1.0
_LEAST_DRAWS = 1000  # of bin sums, which cost little
_NODES = np.arange(4) / 3  # the t at which sums are drawn
_STEPS = np.linspace(0, 1, 241)
_LEAST_TAIL = 1e-4


@dataclass(frozen=True)
class Estimate:
    """A value and its interval, where one was requested and the metric has one.

    Attributes
    ----------
    value : float
    low, high : float or None
    reason : str
        Why a requested interval is missing: rows of the rare outcome are too few.

    Examples
    --------
    >>> import monocal as mc
    >>> print(mc.evaluate([0.1, 0.2, 0.7, 0.4], [0, 1, 1, 0], metrics="accuracy", n_boot=10)["accuracy"])
    0.75000  [0.30064, 0.95441]
    """

    value: float
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.5f}" + (f"  no interval: {self.reason}" if self.reason else "")
        return f"{self.value:.5f}  [{self.low:.5f}, {self.high:.5f}]"


class Tails(NamedTuple):
    """Probability outside the interval, below and above."""

    low: float
    high: float


class TooFewRows(Exception):
    """There is no interval; the message says why."""


def estimates(
    rows: Outcomes,
    options: Options,
    values: dict[str, float],
    n_boot: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, Estimate]:
    """The values with their intervals, of those metrics that have one, or why one that usually has an interval has none."""
    result = {}
    for name, value in values.items():
        try:
            ends = _interval(METRICS[name], rows, options, value, n_boot, level, generator)
        except TooFewRows as error:
            result[name] = Estimate(value, reason=str(error))
            continue
        result[name] = Estimate(value, *ends) if ends else Estimate(value)
    return result


def _interval(
    metric: Metric,
    rows: Outcomes,
    options: Options,
    value: float,
    n_boot: int,
    level: float,
    generator: np.random.Generator,
) -> tuple[float, float] | None:
    if not (metric.term or metric.error or metric.influence) or not np.isfinite(value):
        return None
    tails = _tails(rows.positive if metric.binary else rows, level, metric)
    if metric.error:
        rows = rows.positive if metric.error.of == "positive" else rows
        _check_rows_of_bins(rows, metric.error, options.n_bins)
        noise = BinNoise(rows, metric.error, options.n_bins)
        low, high = noise.interval(max(n_boot, _LEAST_DRAWS), tails, generator)
    elif metric.term:
        terms = metric.term(rows, options)
        if metric.share:
            low, high = _share(rows, terms, Tails(tails.high, tails.low))
        else:
            low, high = _from_influence(value, rows.weight * (terms - value) / rows.weight.sum(), tails)
            low = max(metric.lower, low)
    else:
        assert metric.influence is not None
        if metric.logit and value in (0, 1):
            return None
        centre = float(logit(value)) if metric.logit else value
        low, high = _from_influence(centre, metric.influence(rows), tails)
        if metric.logit:
            low, high = float(expit(low)), float(expit(high))
    return min(low, value), max(high, value)


def _counts(rows: Outcomes, terms: Floats) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Effective number of the rows of either outcome, 1 and 0, the weight of each of these, and how uneven weights are."""
    parts = [rows.weight[terms > 0], rows.weight[terms == 0]]
    # Of a few rows the spread of the weights may not be seen: the larger of both.
    spread = 1 + max(float(part.var() / part.mean() ** 2) if len(part) else 0.0 for part in parts)
    means = [float((part if len(part) else rows.weight).mean()) for part in parts]
    return (len(parts[0]) / spread, len(parts[1]) / spread), (means[0] * spread, means[1] * spread), spread


def _tails(rows: Outcomes, level: float, metric: Metric) -> Tails:
    """Tails of the interval of a metric; raises where there is none."""
    (right, wrong), _, spread = _counts(rows, rows.correct)
    tail, k = (1 - level) / 2, min(wrong, right)
    if metric.share and np.ptp(rows.weight) == 0:
        return Tails(tail, tail)
    uneven = _FEWEST_OF_TWO if metric.binary else _FEWEST_UNEVEN
    if k < (uneven if spread > 2 and not metric.share else _FEWEST):
        if metric.binary:
            raise TooFewRows(f"too few rows of one class ({wrong:.3g} of class 0, {right:.3g} of class 1)")
        raise TooFewRows(f"too few rows of the rare class ({wrong:.3g} wrong, {right:.3g} right)")
    if k > 10 * _FEWEST:
        return Tails(tail, tail)

    def excess(count: float) -> float:
        # A true count below about 12 is never missed from above, because no interval is shown for counts below 5.
        allowed = tail * (2 - gammainc(_UPPER, count))
        return float(gammainc(k, count) / gammainc(_FEWEST, count) - allowed)

    if excess(1e-3) > 0:
        return Tails(_LEAST_TAIL, tail)
    return Tails(max(_LEAST_TAIL, float(gammainc(k, brentq(excess, 1e-3, k)))), tail)


def _check_rows_of_bins(rows: Outcomes, norm: GapNorm, n_bins: int) -> None:
    n, positive = effective_rows(rows.weight), norm.of == "positive"
    if n < len(rows.weight) / 2:
        least = _UNEVEN_ROWS_OF_TWO if positive else _UNEVEN_ROWS_OF_BIN
    else:
        least = _ROWS_OF_BIN if positive else 0.0
    if n < n_bins * least:
        raise TooFewRows(f"too few rows for {n_bins} bins")


def unskewed(t: float, skewness: float) -> float:
    """The ``u`` with ``((1 + g u / 3)^3 - 1) / g + g / 6 = t`` (Hall's cubic); without skewness ``t``."""
    if abs(skewness) < 1e-6:
        return t
    return float(3 / skewness * (np.cbrt(1 + skewness * (t - skewness / 6)) - 1))


def _from_influence(value: float, d: Floats, tails: Tails) -> tuple[float, float]:
    """Interval of an estimate to which each row adds ``d``."""
    error = float(np.sqrt(d @ d))
    if error == 0:
        return value, value
    skewness = float(d**2 @ d) / error**3
    spread = float(d**2 @ d**2) / error**4 - skewness**2 - 1 / len(d)
    degrees = 2 / max(spread, 1e-9)
    low, high = (unskewed(float(stdtrit(degrees, p)), skewness) for p in (1 - tails.low, tails.high))
    return value - error * low, value - error * high


def _share(rows: Outcomes, terms: Floats, tails: Tails) -> tuple[float, float]:
    """Interval of the share of ones; of equal weights Wilson's, of others Clopper and Pearson's."""
    (ones, zeros), (of_one, of_zero), _ = _counts(rows, terms)
    if np.ptp(rows.weight) == 0:
        n = ones + zeros
        return float(wilson(ones / n, n, ndtri(tails.low))), float(wilson(ones / n, n, -ndtri(tails.high)))
    least = float(betaincinv(ones, zeros + 1, tails.low)) if ones else 0.0
    most = float(betaincinv(ones + 1, zeros, 1 - tails.high)) if zeros else 1.0
    low, high = (share * of_one / (share * of_one + (1 - share) * of_zero) for share in (least, most))
    return low, high


def wilson(share: Floats | float, n: Floats | float, z: float) -> Floats:
    """An end of Wilson's interval of shares of ``n`` rows, the low one for ``z < 0``; scipy's needs whole numbers of rows."""
    pull = z**2 / np.asarray(n, dtype=np.float64)
    half = np.sqrt(pull * (share * (1 - share) + pull / 4))
    return np.clip((share + pull / 2 + np.sign(z) * half) / (1 + pull), 0, 1)


class Moments(NamedTuple):
    """Of the sums in every unit: of weights, and of weighted gaps given these; variances and third moments."""

    weight: Floats
    gap: Floats
    of_weight: tuple[Floats, Floats]
    of_gap: tuple[Floats, Floats]


class BinNoise:
    """The distribution of a calibration error where the true gaps are ``t`` times those observed.

    Units are bins, and groups of equal confidences that lie in several bins of equal mass, in proportion.
    """

    def __init__(self, rows: Outcomes, norm: GapNorm, n_bins: int) -> None:
        self.norm = norm.norm
        self.c, self.w, self.a = rows.confidence, rows.weight, rows.correct
        unit, share = _units(rows, norm.bins, n_bins)
        filled, self.unit = np.unique(unit, return_inverse=True)
        self.share = share[filled]
        self.n = len(self.share)
        weight, gap = self._sum(self.w), self._sum(self.w * (self.c - self.a))
        self.observed = float(self._value(gap, weight))
        in_bins, mass = gap @ self.share, weight @ self.share
        of_bin = _ratio(in_bins, mass)
        if norm.of == "positive":  # many bins of few rows, whose gaps are mostly noise
            n = _ratio(weight**2, self._sum(self.w**2)) @ self.share
            of_bin = of_bin * n / (n + _PRIOR_ROWS)
        gap = (self.share @ of_bin)[self.unit]
        # A gap that exceeds what a probability can change is in proportion to what each row can, so that the mean keeps it.
        room = np.where(gap > 0, self.c, 1 - self.c)
        beyond = self._sum((np.abs(gap) > room).astype(np.float64))[self.unit] > 0
        mean_room = (self._sum(self.w * room) / weight)[self.unit]
        self.gap = np.divide(gap * room, mean_room, out=gap.copy(), where=beyond & (mean_room > 0))
        # Means of w, w^2 and w^3 of the rows of a unit that are right, and wrong.
        self.powers = [[self._power(k, outcome) for k in (1, 2, 3)] for outcome in (1, 0)]

    def _sum(self, values: Floats) -> Floats:
        return bin_totals(self.unit, values, self.n)

    def _power(self, k: int, outcome: int) -> Floats:
        if np.ptp(self.w) == 0:
            return np.full(self.n, self.w[0] ** k)
        rows = self.a == outcome
        total, count = self._sum(np.where(rows, self.w**k, 0.0)), self._sum(rows.astype(np.float64))
        overall = (self.w[rows] ** k).mean() if rows.any() else (self.w**k).mean()
        return np.divide(total, count, out=np.full(self.n, overall), where=count > 0)

    def _value(self, gap: Floats, weight: Floats) -> Floats:
        """The norm, of sums (..., units)."""
        gap, weight = gap @ self.share, weight @ self.share
        if self.norm == 1:
            return np.abs(gap).sum(axis=-1) / weight.sum(axis=-1)
        return np.sqrt(_ratio(gap**2, weight).sum(axis=-1) / weight.sum(axis=-1))

    def moments(self, t: float) -> Moments:
        (right, right2, right3), (wrong, wrong2, wrong3) = self.powers
        q, u, c = np.clip(self.c - t * self.gap, 0, 1), self.unit, self.c
        # In weights a row is right with probability q, so its outcome has other odds.
        p = q * wrong[u] / (q * wrong[u] + (1 - q) * right[u])
        of_right, of_wrong = self._sum(p), self._sum(1 - p)
        weight = right * of_right + wrong * of_wrong
        gap = self._sum(p * right[u] * (c - 1) + (1 - p) * wrong[u] * c)
        centre = _ratio(gap, weight)[u]
        second, third = (
            self._sum(p * r[u] * (c - 1 - centre) ** k + (1 - p) * w[u] * (c - centre) ** k)
            for k, r, w in ((2, right2, wrong2), (3, right3, wrong3))
        )
        of_weight = (right2 * of_right + wrong2 * of_wrong, right3 * of_right + wrong3 * of_wrong)
        return Moments(weight, gap, of_weight, (second, third))

    def draw(self, m: Moments, normals: Floats) -> Floats:
        """Errors (size,) from standard normal numbers (2, size, units), the same at every ``t``."""
        weight = np.maximum(m.weight + _skewed(*m.of_weight, normals[0]), 0)
        ratio, share = _ratio(m.gap, m.weight), _ratio(weight, m.weight)
        return self._value(ratio * weight + np.sqrt(share) * _skewed(*m.of_gap, normals[1]), weight)

    def interval(self, size: int, tails: Tails, generator: np.random.Generator) -> tuple[float, float]:
        at = [self.moments(t) for t in _NODES]
        true = np.array([self._value(m.gap, m.weight) for m in at])
        normals = generator.standard_normal((2, size, self.n))
        drawn = np.stack([self.draw(m, normals) for m in at])
        mean, spread = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
        by_chance = spread > 1e-12
        if not by_chance.any():
            return self.observed, self.observed
        # A predictor that is always sure leaves nothing to chance if it is right, and much if it is not.
        standard = (drawn - mean[:, None])[by_chance] / spread[by_chance, None]
        largest = np.quantile(standard, 1 - _TOWARDS_ZERO * tails.low)
        # Squares, because noise adds to the square of a norm: they are all but parabolas in t.
        mean_square = np.polyval(np.polyfit(_NODES, mean**2, 2), _STEPS)
        variance = np.polyval(np.polyfit(_NODES, spread**2, 1), _STEPS)
        reach = np.sqrt(np.maximum(mean_square, 0)) + largest * np.sqrt(np.maximum(variance, 0))
        possible = np.append(reach >= self.observed, True)
        low = float(np.interp(np.append(_STEPS, 1.0)[possible.argmax()], _NODES, true))
        second, third = at[-1].of_gap
        skewness = float(np.sign(at[-1].gap) @ third / max(second.sum(), 1e-300) ** 1.5)
        z = float(ndtri((2 - _TOWARDS_ZERO) * tails.high))
        high = self.observed - unskewed(z, skewness) * float(spread[-1])
        return min(low, self.observed), min(high, 1.0)


def _ratio(a: Floats, b: Floats) -> Floats:
    """``a / b``, and 0 where ``b`` is 0."""
    result: Floats = np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)
    return result


def _skewed(variance: Floats, third: Floats, normal: Floats) -> Floats:
    """Standard normal numbers (size, units) as numbers with mean 0, these variances and third moments.

    They follow shifted gamma distributions (Wilson and Hilferty's cubes).
    """
    sd = np.sqrt(np.maximum(variance, 0))
    skewness = _ratio(third, sd**3)
    size = np.maximum(np.abs(skewness), 1e-3)  # two over the root of the shape
    sign = np.where(skewness < 0, -1.0, 1.0)
    cube = np.maximum(1 - size**2 / 36 + sign * normal * size / 6, 0) ** 3
    return sd * sign * (cube - 1) * 2 / size


def _units(rows: Outcomes, bins: str, n_bins: int) -> tuple[Integers, Floats]:
    """The unit of each row, and the share of every unit that lies in each bin, (units, bins)."""
    if bins == "width":
        return rows.top_bin, np.eye(n_bins)
    order = rows.by_confidence
    confidence = rows.confidence[order]
    group = np.cumsum(np.append(0, confidence[1:] != confidence[:-1]))
    mass = np.append(0.0, np.cumsum(bin_totals(group, rows.weight[order], group[-1] + 1)))
    edges = mass[-1] * np.arange(n_bins + 1) / n_bins
    first = np.clip(np.searchsorted(edges, mass[:-1] * (1 + 1e-12), side="right") - 1, 0, n_bins - 1)
    last = np.clip(np.searchsorted(edges, mass[1:] * (1 - 1e-12), side="left") - 1, 0, n_bins - 1)
    crossing = np.flatnonzero(first < last)
    of_group = first.copy()
    of_group[crossing] = n_bins + np.arange(len(crossing))
    start, stop = (np.clip(mass[crossing + k][:, None], edges[:-1], edges[1:]) for k in (0, 1))
    share = np.vstack([np.eye(n_bins), (stop - start) / (mass[crossing + 1] - mass[crossing])[:, None]])
    unit = np.empty(len(order), dtype=np.int64)
    unit[order] = of_group[group]
    return unit, share
