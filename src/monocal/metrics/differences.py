"""Do two predictors differ beyond chance on the same rows?

    rows        mean(d) ± z sd(d) / sqrt(n)  of the paired row differences d: what is hard for both cancels
    bootstrap   the same for one metric, rows drawn with replacement, the same ones for both

Calibration errors are no means over rows, and noise makes each larger by another amount: their differences are not tested.

The price of order is what a method that keeps the order of the classes loses to one that does not, on the same rows:

    price in NLL = mean_n [ log p_free(y_n) - log p_keep(y_n) ],        price in accuracy = accuracy_free - accuracy_keep

with intervals of the paired differences, and which top classes moved, and how many of these rows were right before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import bootstrap

from ..errors import InputError
from ..inputs.layout import Layout
from ..inputs.validation import check_count, check_fraction
from .functions import statistics_of
from .outcomes import Floats, Outcomes
from .table import METRICS, Options, chosen
from .units import number, points, with_interval

NEGLIGIBLE = 1e-4  # of a score: four decimals do not show it
_AT_A_TIME = 1 << 22  # rows drawn at a time


@dataclass(frozen=True)
class Difference:
    """Mean of paired row differences a - b, and its interval.

    The ends are infinite where no interval can be computed: of one row, or with labels of probability zero on both sides. Where
    only one side has them, mean and ends are the same infinity.
    """

    mean: float
    low: float
    high: float
    level: float = 0.95

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(a: np.ndarray, b: np.ndarray, level: float) -> Difference:
    """Of values (n,) of the same rows; two infinite ones do not differ, one alone decides the mean."""
    d = _row_differences(a, b)
    with np.errstate(invalid="ignore"):
        mean = float(d.mean())
    half = np.inf
    if np.isinf(mean):
        half = 0.0
    elif len(d) > 1 and not np.isnan(mean):
        half = float(ndtri((1 + level) / 2) * d.std(ddof=1) / np.sqrt(len(d)))
    low, high = (mean - half, mean + half) if np.isfinite(half) else (-np.inf, np.inf)
    return Difference(mean, low, high, level)


def _row_differences(a: np.ndarray, b: np.ndarray) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, np.subtract(a, b, dtype=np.float64))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Is A better than B? ``difference = a - b``, its interval, and how far the data decide.

    Attributes
    ----------
    metric : str
    a, b, difference : float
    low, high : float or None
        Interval of the difference. This and what follows is None for metrics that are no means over rows.
    probability_a_better : float or None
        Share of the (reflected) replicates in which A is better; ties count half.
    p_value : float or None
        Two-sided, of "no difference".
    higher_is_better : bool
    n_boot : int
    level : float

    Examples
    --------
    >>> import monocal as mc
    >>> comparison = mc.metrics.compare([0.05, 0.1, 0.8, 0.3], [0.1, 0.2, 0.7, 0.4], [0, 1, 1, 0], n_boot=100)
    >>> round(comparison.difference, 3), comparison.higher_is_better
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
        """``"A is better"``, ``"B is better"``, ``"undecided"`` if the interval holds zero, ``"not tested"`` without one."""
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

    The replicates are reflected about the difference as the basic interval is. Of calibration errors the difference is not
    tested; a proper score (``nll``, ``brier``) decides.

    Parameters
    ----------
    probs_a, probs_b : (n, m) arrays
        Probabilities of the same rows by the two predictors.
    labels : (n,) array
    metric : str
        A name of `METRICS`. ``nll``, ``brier`` and the accuracies are tested.
    n_boot, level, n_bins, top_k, bin_size, bandwidth, sample_weight, seed, class_axis, ignore_index
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.compare([0.05, 0.1, 0.8], [0.1, 0.2, 0.7], [0, 1, 1], metric="auc").verdict
    'not tested'
    """
    if not isinstance(metric, str):
        raise InputError(f"metric: expected one name out of {', '.join(METRICS)}; got {metric!r}")
    chosen(metric)
    n_boot, level = check_count(n_boot, "n_boot"), check_fraction(level, "level")
    options = Options(n_bins, top_k, bin_size, bandwidth).checked()
    kind, layout = METRICS[metric], Layout(class_axis, ignore_index)
    one, other = (
        statistics_of(probs, labels, sample_weight, layout, metric, options, (name, "labels"))[0]
        for probs, name in ((probs_a, "probs_a"), (probs_b, "probs_b"))
    )
    if one.rows.n_classes != other.rows.n_classes:
        raise InputError(
            f"probs_b: expected the {one.rows.n_classes} classes of probs_a, got {other.rows.n_classes}"
        )
    a, b = float(kind.value(one)), float(kind.value(other))
    difference = float(_row_differences(np.array(a), np.array(b)))
    low = high = better = p_value = None
    if kind.term is not None:
        d = _row_differences(kind.term(one.rows, options), kind.term(other.rows, options))
        test = _test(d, one.rows.weight, difference, kind.higher_is_better, n_boot, level, seed)
        low, high, better, p_value = test
    higher = kind.higher_is_better
    return Comparison(metric, a, b, difference, low, high, better, p_value, higher, n_boot, level)


def _test(
    d: Floats,
    weight: Floats,
    mean: float,
    higher_is_better: bool,
    n_boot: int,
    level: float,
    seed: int | None,
) -> tuple[float, float, float, float]:
    """Ends of the interval of the mean of ``d``, how probably A is better, p-value."""
    if np.isinf(mean):
        return mean, mean, float((mean > 0) == higher_is_better), 1 / (1 + n_boot)
    if np.isnan(mean) or len(d) < 2:
        return -np.inf, np.inf, 0.5, 1.0
    drawn = bootstrap(
        (weight * d, weight),
        lambda total, mass, axis: total.sum(axis=axis) / mass.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=n_boot,
        batch=max(1, _AT_A_TIME // len(d)),
        confidence_level=level,
        method="basic",
        random_state=np.random.default_rng(seed),
    )
    reflected = 2 * mean - drawn.bootstrap_distribution
    # Sums of the same numbers in another order are the same.
    reflected[np.abs(reflected) <= 1e-15 * np.abs(d).max()] = 0.0
    above = (np.count_nonzero(reflected > 0) + np.count_nonzero(reflected == 0) / 2) / n_boot
    tail = min(np.count_nonzero(reflected >= 0), np.count_nonzero(reflected <= 0))
    low, high = (float(end) for end in drawn.confidence_interval)
    return low, high, float(above if higher_is_better else 1 - above), min(1.0, 2 * (1 + tail) / (1 + n_boot))


@dataclass(frozen=True)
class Price:
    """A mean of paired differences and its interval; positive where keeping the order costs something.

    Attributes
    ----------
    value, low, high : float

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.Price(0.02, 0.01, 0.03).measured
    True
    """

    value: float
    low: float
    high: float

    @property
    def measured(self) -> bool:
        """Whether the interval excludes zero, on the side of a cost that can be seen in four decimals."""
        return self.low > 0 and self.value >= NEGLIGIBLE

    @property
    def gained(self) -> bool:
        """Whether it excludes zero on the other side: keeping the order is better."""
        return self.high < 0 and self.value <= -NEGLIGIBLE


@dataclass(frozen=True)
class Move:
    """Rows whose top class went from ``before`` to ``after``, and how many of them were right before and after.

    Attributes
    ----------
    before, after, rows, right_before, right_after : int

    Examples
    --------
    >>> import monocal as mc
    >>> mc.price_of_order([[0.6, 0.4]] * 50, [[0.3, 0.7]] * 50, [0] * 10 + [1] * 40).moves[0]
    Move(before=0, after=1, rows=50, right_before=10, right_after=40)
    """

    before: int
    after: int
    rows: int
    right_before: int
    right_after: int


@dataclass(frozen=True)
class PriceOfOrder:
    """What keeping the order costs.

    Attributes
    ----------
    nll, accuracy : Price
        The accuracy in shares of the rows: 0.032 are 3.2 points.
    n_rows, moved : int
        All rows, and those whose top class changed.
    right_before, right_after : int
        How many of the rows that moved were right.
    moves : tuple of Move
        The most frequent first.
    level : float

    Examples
    --------
    >>> import monocal as mc
    >>> price = mc.price_of_order([[0.6, 0.4]] * 50, [[0.3, 0.7]] * 50, [0] * 10 + [1] * 40)
    >>> price.moved, price.right_before, price.right_after
    (50, 10, 40)
    """

    nll: Price
    accuracy: Price
    n_rows: int
    moved: int
    right_before: int
    right_after: int
    moves: tuple[Move, ...]
    level: float

    @property
    def costs(self) -> bool:
        """Whether a cost was measured, in NLL or in accuracy."""
        return self.nll.measured or self.accuracy.measured

    @property
    def gains(self) -> bool:
        """Whether keeping the order is better beyond chance, in NLL or in accuracy."""
        return self.nll.gained or self.accuracy.gained

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, keeping: str = "", free: str = "", order: str = "order") -> str:
        """The result in a sentence, with the names of both methods, and which order is kept."""
        nll, accuracy = self.nll, self.accuracy
        if not (self.costs or self.gains):
            text = f"Keeping the {order} costs nothing that could be measured here"
            if not np.isfinite([nll.low, nll.high]).all():
                return f"{text}."
            differs = with_interval(nll.value, nll.low, nll.high, self.level)
            return f"{text}: NLL differs by {differs}, accuracy by {points(accuracy.value)}."
        parts = []
        for price in (nll, accuracy):
            if not (price.measured or price.gained):
                continue
            low, high = sorted((abs(price.low), abs(price.high)))
            amount = f"{points(price.value)} of accuracy ({number(100 * low, 1)} to {number(100 * high, 1)})"
            if price is nll:
                amount = with_interval(abs(price.value), low, high, self.level, "NLL")
            parts.append(f"{'costs' if price.measured else 'gains'} {amount}")
        before, after = (f"with {keeping}", f"with {free}") if keeping else ("before", "after")
        return (
            f"Keeping the {order} {' and '.join(parts)} here: {self.moved:,} of {self.n_rows:,} top classes move, "
            f"{self.right_before:,} of them right {before} and {self.right_after:,} {after}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, which has no infinity."""
        plain = {**self.__dict__, "moves": [move.__dict__ for move in self.moves], "sentence": str(self)}
        for name in ("nll", "accuracy"):
            ends = getattr(self, name).__dict__.items()
            plain[name] = {key: value if np.isfinite(value) else None for key, value in ends}
        return plain


def price_of_order(
    keeping: Any,
    free: Any,
    labels: Any,
    *,
    level: float = 0.95,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> PriceOfOrder:
    """Compare probabilities that keep the order of the classes with those of a method that need not.

    Parameters
    ----------
    keeping, free : array-like of shape (n, m)
        Probabilities of the same rows, on which neither method may have been fitted, or the price is too high.
    labels, level, class_axis, ignore_index
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> keeping = [[0.6, 0.4]] * 50
    >>> mc.price_of_order(keeping, keeping, [0, 1] * 25).costs
    False
    """
    check_fraction(level, "level")
    layout = Layout(class_axis, ignore_index)
    kept, freed = (
        Outcomes.of(probs, labels, None, layout, names=(name, "labels"))
        for probs, name in ((keeping, "keeping"), (free, "free"))
    )
    if kept.n_classes != freed.n_classes:
        raise InputError(f"free: expected the {kept.n_classes} classes of keeping, got {freed.n_classes}.")
    with np.errstate(divide="ignore"):
        losses = -np.log(kept.label_prob), -np.log(freed.label_prob)
    return price_of_rows(*losses, kept.predicted, freed.predicted, kept.labels, level)


def price_of_rows(
    nll_keeping: np.ndarray,
    nll_free: np.ndarray,
    top_keeping: np.ndarray,
    top_free: np.ndarray,
    labels: np.ndarray,
    level: float,
) -> PriceOfOrder:
    """The same from NLL and top class of each row (n,) by both methods, and the labels."""
    right_keeping, right_free = top_keeping == labels, top_free == labels
    differences = (
        paired_difference(nll_keeping, nll_free, level),
        paired_difference(right_free.astype(np.float64), right_keeping, level),
    )
    moved = top_keeping != top_free
    pairs, place, rows = np.unique(
        np.stack([top_keeping[moved], top_free[moved]]), axis=1, return_inverse=True, return_counts=True
    )
    before, after = (
        np.bincount(place.ravel(), r[moved], minlength=len(rows)).astype(int)
        for r in (right_keeping, right_free)
    )
    moves = [Move(*map(int, numbers)) for numbers in zip(*pairs, rows, before, after, strict=True)]
    moves.sort(key=lambda move: -move.rows)
    nll, accuracy = (Price(d.mean, d.low, d.high) for d in differences)
    right = int(before.sum()), int(after.sum())
    return PriceOfOrder(nll, accuracy, len(labels), int(moved.sum()), *right, tuple(moves), level)
