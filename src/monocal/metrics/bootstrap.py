"""Whether one predictor beats another by a mean over rows: rows drawn with replacement, again and again.

A replicate is the same rows with the number of times each was drawn as weight. Both predictors get the same
rows: what is hard for both cancels. Calibration errors are no means and are not tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.layout import Layout
from ..inputs.validation import check_count, check_fraction
from .outcomes import Floats, Outcomes
from .registry import METRICS, Options, Statistics, chosen, make_options


def replicates(
    rows: Outcomes, options: Options, names: list[str], n_boot: int, generator: np.random.Generator
) -> Floats:
    """Means of ``n_boot`` replicates: (n_boot, len(names)). Equal generators draw equal rows."""
    n = len(rows.labels)
    drawn = np.empty((n_boot, len(names)))
    for values in drawn:
        count = np.bincount(generator.integers(n, size=n), minlength=n)
        statistics = Statistics(rows, options, rows.weight * count)
        values[:] = [METRICS[name].value(statistics) for name in names]
    return drawn


def interval(value: float, draws: Floats, level: float) -> tuple[float, float]:
    """Basic bootstrap interval ``[2v - q_high, 2v - q_low]``; percentiles where a value is infinite."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    if not (np.isfinite(value) and np.isfinite(draws).all()):
        low, high = np.quantile(draws, tails, method="inverted_cdf")
    else:
        high, low = 2 * value - np.quantile(draws, tails)
    return float(low), float(high)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Is A better than B? ``difference = a - b``, its interval, and how far the data decide.

    Attributes
    ----------
    metric : str
    a, b, difference : float
    low, high : float or None
        Interval of the difference. This and what follows is None for metrics that are no means over rows:
        noise makes a calibration error larger, and not by as much for A as for B, so that no test of their
        difference keeps its level.
    probability_a_better : float or None
        Share of the (reflected) replicates in which A is better; ties count half.
    p_value : float or None
        Two-sided, of "no difference".

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> sharper = np.array([[0.95, 0.05], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    >>> found = mc.metrics.compare(sharper, probs, labels, n_boot=100)
    >>> round(found.difference, 3), found.higher_is_better
    (0.088, False)
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    probability_a_better: float | None
    p_value: float | None
    higher_is_better: bool
    n_boot: int
    level: float

    @property
    def verdict(self) -> str:
        """``"A is better"``, ``"B is better"`` or ``"undecided"``, by whether the interval excludes zero.

        ``"not tested"`` where there is none.
        """
        if self.low is None or self.high is None:
            return "not tested"
        if self.low <= 0 <= self.high:
            return "undecided"
        return "A is better" if (self.difference > 0) == self.higher_is_better else "B is better"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "verdict": self.verdict}

    def __repr__(self) -> str:
        values = f"{self.metric}: A {self.a:.5f}, B {self.b:.5f}, A - B {self.difference:+.5f}"
        if self.low is None:
            return f"{values}: {self.verdict}"
        return f"{values} [{self.low:+.5f}, {self.high:+.5f}] ({self.level:.0%}): {self.verdict}, p = {self.p_value:.3g}"


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
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> Comparison:
    """Difference of one metric between two predictors on the same rows, tested by a paired bootstrap if it is a mean.

    Parameters
    ----------
    probs_a, probs_b : (n, m) arrays
        Probabilities of the same rows by the two predictors.
    labels : (n,) array
        True classes.
    metric : str
        A name of `METRICS`. ``nll``, ``brier`` and the accuracies are tested.
    n_boot, level, n_bins, top_k, bin_size, bandwidth, sample_weight, seed, class_axis, ignore_index
        As in `evaluate`.

    Returns
    -------
    Comparison

    Notes
    -----
    The replicates are reflected about the difference as the basic interval is. Of calibration errors the
    difference is given but not tested; a proper score (``nll``, ``brier``) decides.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> ts, mcct = (c.fit(data.values, data.labels).predict_proba(data.values) for c in (mc.TemperatureScaling(), mc.MCCT()))
    >>> found = mc.metrics.compare(mcct, ts, data.labels, n_boot=200)
    >>> bool(found.low <= found.difference <= found.high)
    True
    """
    if not isinstance(metric, str):
        raise InputError(f"metric: expected one name out of {', '.join(METRICS)}; got {metric!r}")
    chosen(metric)
    n_boot, level = check_count(n_boot, "n_boot"), check_fraction(level, "level")
    options = make_options(n_bins, top_k, bin_size, bandwidth)
    kind = METRICS[metric]
    sides = [
        Outcomes.of(
            probs,
            labels,
            sample_weight,
            n_bins=n_bins,
            classwise=kind.classwise,
            names=(name, "labels"),
            layout=Layout(class_axis, ignore_index),
        )
        for probs, name in ((probs_a, "probs_a"), (probs_b, "probs_b"))
    ]
    if sides[0].n_classes != sides[1].n_classes:
        raise InputError(
            f"probs_b: expected the {sides[0].n_classes} classes of probs_a, got {sides[1].n_classes}"
        )
    a, b = (kind.value(Statistics(rows, options)) for rows in sides)
    difference = float(_difference(a, b))
    low = high = better = p_value = None
    if kind.mean:
        low, high, better, p_value = _test(sides, options, metric, difference, n_boot, level, seed)
    return Comparison(
        metric=metric,
        a=a,
        b=b,
        difference=difference,
        low=low,
        high=high,
        probability_a_better=better,
        p_value=p_value,
        higher_is_better=kind.higher_is_better,
        n_boot=n_boot,
        level=level,
    )


def _test(
    sides: list[Outcomes],
    options: Options,
    metric: str,
    difference: float,
    n_boot: int,
    level: float,
    seed: int | None,
) -> tuple[float, float, float, float]:
    """Ends of the interval, how probably A is better, p-value."""
    entropy = np.random.SeedSequence(seed).entropy  # one entropy, so both sides draw the same rows
    draws_a, draws_b = (
        replicates(rows, options, [metric], n_boot, np.random.default_rng(entropy))[:, 0] for rows in sides
    )
    draws = _difference(draws_a, draws_b)
    low, high = interval(difference, draws, level)
    reflected = 2 * difference - draws if np.isfinite(difference) and np.isfinite(draws).all() else draws
    above = (np.count_nonzero(reflected > 0) + np.count_nonzero(reflected == 0) / 2) / n_boot
    tail = min(np.count_nonzero(reflected >= 0), np.count_nonzero(reflected <= 0))
    better = float(above if METRICS[metric].higher_is_better else 1 - above)
    return low, high, better, min(1.0, 2 * (1 + tail) / (1 + n_boot))


def _difference(a: Any, b: Any) -> Any:
    """``a - b``, where two infinite values do not differ."""
    with np.errstate(invalid="ignore"):
        return np.where(np.asarray(a) == np.asarray(b), 0.0, np.subtract(a, b))
