"""How sure a metric is, and whether one predictor beats another: rows drawn with replacement, again and
again.

A replicate is the same rows with the number of times each was drawn as weight, so it costs sums over (n,)
vectors and, for class-wise metrics, one matrix product shared by a batch of replicates. Comparing two
predictors draws the same rows for both: what is hard for both cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..validation import check_count, check_fraction
from .registry import METRICS, Options, Statistics, chosen, make_options
from .rows import Floats, Rows

_BATCH_ENTRIES = 1 << 21  # weights of one batch of replicates: 16 MiB


def replicates(
    rows: Rows, options: Options, names: list[str], n_boot: int, generator: np.random.Generator
) -> Floats:
    """Metrics of ``n_boot`` replicates: (n_boot, len(names)). Equal generators draw equal rows."""
    n = len(rows.labels)
    batch = max(1, min(n_boot, _BATCH_ENTRIES // n))
    classwise = any(METRICS[name].classwise for name in names)
    drawn = np.empty((n_boot, len(names)))
    for start in range(0, n_boot, batch):
        size = min(batch, n_boot - start)
        weights = np.stack([_draw(rows, generator) for _ in range(size)])
        totals = rows.column_totals_for(weights) if classwise else None
        for i, weight in enumerate(weights):
            statistics = Statistics(rows, options, weight, None if totals is None else totals[i])
            drawn[start + i] = [METRICS[name].value(statistics) for name in names]
    return drawn


def _draw(rows: Rows, generator: np.random.Generator) -> Floats:
    n = len(rows.labels)
    return rows.weight * np.bincount(generator.integers(n, size=n), minlength=n)


def interval(value: float, draws: Floats, level: float, least: float, most: float) -> tuple[float, float]:
    """Basic bootstrap interval within [least, most]; percentiles where a value is infinite."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    if not (np.isfinite(value) and np.isfinite(draws).all()):
        low, high = np.quantile(draws, tails, method="inverted_cdf")
    else:
        high, low = 2 * value - np.quantile(draws, tails)
    return float(np.clip(low, least, most)), float(np.clip(high, least, most))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Is A better than B? ``difference = a - b``, its interval, and how far the data decide.

    Attributes
    ----------
    metric : str
    a, b, difference : float
    low, high : float
        Interval of the difference.
    probability_a_better : float
        Share of the (reflected) replicates in which A is better; ties count half.
    p_value : float
        Two-sided, of "no difference".
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    probability_a_better: float
    p_value: float
    higher_is_better: bool
    n_boot: int
    level: float

    @property
    def verdict(self) -> str:
        """``"A is better"``, ``"B is better"`` or ``"undecided"``, by whether the interval excludes zero."""
        if self.low <= 0 <= self.high:
            return "undecided"
        return "A is better" if (self.difference > 0) == self.higher_is_better else "B is better"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "verdict": self.verdict}

    def __repr__(self) -> str:
        return (
            f"{self.metric}: A {self.a:.5f}, B {self.b:.5f}, A - B {self.difference:+.5f} "
            f"[{self.low:+.5f}, {self.high:+.5f}] ({self.level:.0%}): {self.verdict}, p = {self.p_value:.3g}"
        )


def compare(
    probs_a: Any,
    probs_b: Any,
    labels: Any,
    metric: str = "nll",
    *,
    n_boot: int = 1000,
    level: float = 0.95,
    n_bins: int = 15,
    top_k: int = 5,
    bin_size: int = 1000,
    bandwidth: str | float = "authors",
    sample_weight: Any = None,
    seed: int | None = 0,
) -> Comparison:
    """Paired bootstrap of the difference of one metric between two predictors on the same rows.

    Parameters
    ----------
    probs_a, probs_b : (n, m) arrays
        Probabilities of the same rows by the two predictors.
    labels : (n,) array
        True classes.
    metric : str
        A name of `METRICS`.
    n_boot, level, n_bins, top_k, bin_size, bandwidth, sample_weight, seed
        As in `evaluate`.

    Returns
    -------
    Comparison

    Notes
    -----
    The replicates are reflected about the difference as the basic interval is. Proper scores (``nll``,
    ``brier``) decide with far fewer rows than calibration errors do.
    """
    if not isinstance(metric, str):
        raise InputError(f"metric: expected one name out of {', '.join(METRICS)}; got {metric!r}")
    names = chosen(metric)
    n_boot, level = check_count(n_boot, "n_boot"), check_fraction(level, "level")
    options = make_options(n_bins, top_k, bin_size, bandwidth)
    kind = METRICS[metric]
    sides = [
        Rows.of(probs, labels, sample_weight, n_bins=n_bins, classwise=kind.classwise, names=(name, "labels"))
        for probs, name in ((probs_a, "probs_a"), (probs_b, "probs_b"))
    ]
    if sides[0].n_classes != sides[1].n_classes:
        raise InputError(
            f"probs_b: expected the {sides[0].n_classes} classes of probs_a, got {sides[1].n_classes}"
        )
    a, b = (kind.value(Statistics(rows, options)) for rows in sides)
    entropy = np.random.SeedSequence(seed).entropy  # one entropy, so both sides draw the same rows
    draws_a, draws_b = (
        replicates(rows, options, names, n_boot, np.random.default_rng(entropy))[:, 0] for rows in sides
    )
    difference, draws = _difference(a, b), _difference(draws_a, draws_b)
    low, high = interval(difference, draws, level, -np.inf, np.inf)
    reflected = 2 * difference - draws if np.isfinite(difference) and np.isfinite(draws).all() else draws
    above = (np.count_nonzero(reflected > 0) + np.count_nonzero(reflected == 0) / 2) / n_boot
    tail = min(np.count_nonzero(reflected >= 0), np.count_nonzero(reflected <= 0))
    return Comparison(
        metric=metric,
        a=a,
        b=b,
        difference=float(difference),
        low=low,
        high=high,
        probability_a_better=float(above if kind.higher_is_better else 1 - above),
        p_value=min(1.0, 2 * (1 + tail) / (1 + n_boot)),
        higher_is_better=kind.higher_is_better,
        n_boot=n_boot,
        level=level,
    )


def _difference(a: Any, b: Any) -> Any:
    """``a - b``, where two infinite values do not differ."""
    with np.errstate(invalid="ignore"):
        return np.where(np.asarray(a) == np.asarray(b), 0.0, np.subtract(a, b))
