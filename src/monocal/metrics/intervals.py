r"""Intervals of metrics: of means and shares over rows in closed form, of calibration errors by `inversion`.

A weighted mean ``v`` of ``x_i`` has the standard error ``s^2 = sum d_i^2``, ``d_i = w_i (x_i - v) / sum w``, and the skewness
``g = sum d_i^3 / s^3``. Losses of a rare class are skewed, so the studentized mean is first made symmetric (Hall's cubic),

    t + g t^2 / 3 + g^2 t^3 / 27 + g / 6  ~  N(0, 1),         t = (v - truth) / s,

and the ends are its two quantiles solved for the truth. No interval holds where the large losses have hardly been seen: there
is none unless the rows that are wrong, and those that are right, count as five or more.

A share is ``A / (A + B)``, the weights of the rows that are right and of those that are not. With weights that depend on the
label these two differ in more than their number: ``A`` counts as ``(sum w)^2 / sum w^2`` rows of weight ``sum w^2 / sum w``, over
its own rows, and ``B`` likewise. The interval is Wilson's for the counts, turned back into weights.

References
----------
Hall, On the removal of skewness by transformation, JRSS B 54 (1992).
Brown, Cai & DasGupta, Interval estimation for a binomial proportion, Statistical Science 16 (2001): Wilson's, modified.
Korn & Graubard, Confidence intervals for proportions with small expected number of positive counts, Survey Methodology 24 (1998).
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv, ndtri

from ..inputs.validation import effective_rows
from .inversion import error_intervals, unskewed
from .outcomes import Floats, Outcomes
from .registry import METRICS, Options
from .scores import score_terms

_FEWEST = 5.0  # effective rows of either outcome, below which a mean of losses has no interval


def intervals(
    rows: Outcomes,
    options: Options,
    names: list[str],
    n_boot: int,
    level: float,
    generator: np.random.Generator,
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Ends of the intervals of those of ``names`` that have one, and why others that usually have one have none."""
    terms = score_terms(rows, options.top_k)
    ends, reasons = {}, {}
    too_few, equal = _too_few(rows), bool(np.ptp(rows.weight) == 0)
    errors = [name for name in names if METRICS[name].error is not None]
    for name in names:
        if not METRICS[name].mean or not np.isfinite(terms[name]).all():
            continue
        if too_few and not (METRICS[name].share and equal):
            reasons[name] = too_few
        else:
            of_mean = _share if METRICS[name].share else _mean
            ends[name] = of_mean(terms[name], rows.weight, level)
    if errors and too_few:
        reasons |= dict.fromkeys(errors, too_few)
    elif errors:
        ends |= error_intervals(rows, options, errors, n_boot, level, generator)
    return ends, reasons


def _too_few(rows: Outcomes) -> str | None:
    """Why losses have no interval, if they have none.

    A sample that happens to hold many rows of the rare class would be let through, and its interval be wrong; therefore half of
    what is asked for comes from the number of errors that the confidences announce.
    """
    wrong, right = (effective_rows(rows.weight[rows.correct == outcome]) for outcome in (0, 1))
    announced = float((1 - rows.confidence).sum())
    if min(wrong, right, (wrong + announced) / 2) >= _FEWEST:
        return None
    return f"too few rows of the rare class ({wrong:.3g} wrong, {right:.3g} right)"


def _mean(terms: Floats, weight: Floats, level: float) -> tuple[float, float]:
    total = weight.sum()
    mean = float(weight @ terms / total)
    d = weight * (terms - mean) / total
    error = float(np.sqrt(d @ d))
    if error == 0:
        return mean, mean
    skewness = float(d**2 @ d) / error**3
    z = float(ndtri((1 + level) / 2))
    return max(0.0, mean - error * unskewed(z, skewness)), mean - error * unskewed(-z, skewness)


def _share(terms: Floats, weight: Floats, level: float) -> tuple[float, float]:
    parts = [weight[terms > 0], weight[terms == 0]]
    counts = [effective_rows(part) for part in parts]
    # Of an outcome that was not seen the weights are not known either.
    scales = [part @ part / part.sum() if len(part) else weight @ weight / weight.sum() for part in parts]
    low, high = _wilson(counts[0], sum(counts), level)

    def in_weights(share: float) -> float:
        return float(share * scales[0] / (share * scales[0] + (1 - share) * scales[1]))

    # Rounding must not put the share itself outside.
    share = float(weight @ terms / weight.sum())
    return min(share, in_weights(low)), max(share, in_weights(high))


def _wilson(count: float, total: float, level: float) -> tuple[float, float]:
    """Of ``count`` in ``total``; for counts of one to three a Poisson bound takes the place of an end that is too near."""
    z = float(ndtri((1 + level) / 2))
    share, pull = count / total, z**2 / total
    centre = (share + pull / 2) / (1 + pull)
    half = np.sqrt(pull * (share * (1 - share) + pull / 4)) / (1 + pull)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    few = 3.5 if total >= 50 else 2.5
    if 0 < count < few:
        low = min(low, gammaincinv(count, 1 - level) / total)
    if 0 < total - count < few:
        high = max(high, 1 - gammaincinv(total - count, 1 - level) / total)
    return low, high
