"""Do two predictors differ beyond chance on the same rows?

    rows        mean(d) ± z sd(d) / sqrt(n)  of the paired row differences d: what is hard for both cancels
                rows that would settle it = n ((z + z_power) sd(d) / sqrt(n) / |mean(d)|)^2
    bootstrap   the same for one metric, rows drawn with replacement, the same ones for both

Calibration errors are no means over rows, and noise makes each larger by another amount: their differences are not
tested.

The price of order is what a method that keeps the order of the classes loses to one that does not, on the same
rows:

    price in NLL = mean_n [ log p_free(y_n) - log p_keep(y_n) ],        price in accuracy = accuracy_free - accuracy_keep

with intervals of the paired differences, and which top classes moved: from what to what, and how many were right
before and after.
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
from .units import count, number, points, with_interval

NEGLIGIBLE = 1e-4  # of a score: four decimals do not show it
_POWER = 0.8
_AT_A_TIME = 1 << 22  # rows drawn at a time


@dataclass(frozen=True)
class Difference:
    """Mean of paired row differences a - b, and its interval.

    Attributes
    ----------
    mean, low, high : float
        The ends are infinite where no interval can be given: of one row, or with labels of probability zero on both sides. Where
        only one side has them, mean and ends are the same infinity.
    n_rows : int
    level : float
    """

    mean: float
    low: float
    high: float
    n_rows: int = 0
    level: float = 0.95

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def rows_to_settle(self) -> float | None:
        """How many rows like these would decide a difference of this size, four times in five; None where it is decided."""
        width = self.high - self.mean
        if self.decided or self.mean == 0 or not np.isfinite([self.mean, width]).all():
            return None
        z = float(ndtri((1 + self.level) / 2))
        return float(self.n_rows * ((z + ndtri(_POWER)) / z * width / abs(self.mean)) ** 2)


def paired_difference(a: np.ndarray, b: np.ndarray, level: float) -> Difference:
    """Of values (n,) of the same rows; two infinite ones do not differ.

    Where a row differs without bound, so does the mean: a label of probability zero decides.
    """
    d = _row_differences(a, b)
    with np.errstate(invalid="ignore"):
        mean = float(d.mean())
    if np.isinf(mean):
        return Difference(mean, mean, mean, len(d), level)
    if len(d) < 2 or np.isnan(mean):
        return Difference(mean, -np.inf, np.inf, len(d), level)
    half = float(ndtri((1 + level) / 2) * d.std(ddof=1) / np.sqrt(len(d)))
    return Difference(mean, mean - half, mean + half, len(d), level)


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
        Interval of the difference. This and what follows is None for metrics that are no means over rows:
        noise makes a calibration error larger, and not by as much for A as for B, so that no test of their
        difference keeps its level.
    probability_a_better : float or None
        Share of the (reflected) replicates in which A is better; ties count half.
    p_value : float or None
        Two-sided, of "no difference".

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

    Notes
    -----
    The replicates are reflected about the difference as the basic interval is. Of calibration errors the
    difference is given but not tested; a proper score (``nll``, ``brier``) decides.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> ts, mcct = (c.fit(data.values, data.labels).predict_proba(data.values) for c in (mc.TemperatureScaling(), mc.MCCT()))
    >>> comparison = mc.metrics.compare(mcct, ts, data.labels, n_boot=200)
    >>> bool(comparison.low <= comparison.difference <= comparison.high)
    True
    """
    if not isinstance(metric, str):
        raise InputError(f"metric: expected one name out of {', '.join(METRICS)}; got {metric!r}")
    chosen(metric)
    n_boot, level = check_count(n_boot, "n_boot"), check_fraction(level, "level")
    options = Options(n_bins, top_k, bin_size, bandwidth).checked()
    kind, layout = METRICS[metric], Layout(class_axis, ignore_index)
    sides = [
        statistics_of(probs, labels, sample_weight, layout, metric, options, (name, "labels"))[0]
        for probs, name in ((probs_a, "probs_a"), (probs_b, "probs_b"))
    ]
    m_a, m_b = (side.rows.n_classes for side in sides)
    if m_a != m_b:
        raise InputError(f"probs_b: expected the {m_a} classes of probs_a, got {m_b}")
    a, b = (float(kind.value(side)) for side in sides)
    difference = float(_row_differences(np.array(a), np.array(b)))
    higher = kind.higher_is_better
    test: tuple[Any, ...] = (None, None, None, None)
    if kind.term is not None:
        of_rows = _row_differences(*(kind.term(side.rows, options) for side in sides))
        test = _test(of_rows, sides[0].rows.weight, difference, higher, n_boot, level, seed)
    low, high, better, p_value = test
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
    value : float
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> import monocal as mc
    >>> price = mc.price_of_order([[0.6, 0.4]] * 50, [[0.3, 0.7]] * 50, [0] * 10 + [1] * 40).accuracy
    >>> round(price.value, 2), price.low > 0
    (0.6, True)
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
    before, after : int
        The two classes.
    rows, right_before, right_after : int

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
    nll : Price
    accuracy : Price
        In shares of the rows: 0.032 are 3.2 points.
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
        if not (self.costs or self.gains):
            between = keeping and f" between {keeping} and {free}"
            return (
                f"Keeping the {order} costs nothing that could be measured here{self._difference(between)}."
            )
        words = [self._cost(self.nll), self._cost(self.accuracy)]
        words.sort(key=lambda one: not one.startswith("costs" if self.costs else "gains"))
        joint = "and" if self.costs == (not self.gains) else "but"
        text = f"Keeping the {order} {words[0]} {joint} {words[1]}".replace(" and costs ", " and ")
        moved = f"{count(self.moved)} of {count(self.n_rows)} top classes move"
        before, after = (f"with {keeping}", f"with {free}") if keeping else ("before", "after")
        right = f", {count(self.right_before)} of them right {before} and {count(self.right_after)} {after}"
        return f"{text.replace(' and gains ', ' and ')} here: {moved}{right if self.moved else ''}."

    def _cost(self, one: Price) -> str:
        """Costs 0.040 NLL (95 % interval 0.025 to 0.054); costs 2.6 points of accuracy (1.1 to 4.1)."""
        verb = "costs" if one.value > 0 else "gains"
        if not (one.measured or one.gained):
            return f"no {'NLL' if one is self.nll else 'accuracy'} that could be measured"
        low, high = sorted((abs(one.low), abs(one.high)))
        if one is self.accuracy:
            ends = f"{number(100 * low, 1)} to {number(100 * high, 1)}"
            return f"{verb} {points(one.value)} of accuracy ({ends})"
        if np.isinf(one.value):
            return f"{verb} infinite NLL"
        return f"{verb} {with_interval(abs(one.value), low, high, self.level, 'NLL')}"

    def _difference(self, between: str) -> str:
        """The differences where no cost was measured."""
        if not np.isfinite([self.nll.low, self.nll.high]).all():
            return ""
        if self.moved == 0 and max(abs(self.nll.low), abs(self.nll.high)) < 1e-6:
            return ": the probabilities are the same"
        nll = with_interval(self.nll.value, self.nll.low, self.nll.high, self.level)
        by = self.accuracy.value
        accuracy = f"{'lower' if by > 0 else 'higher'} by {points(by)}" if by else "the same"
        return f": NLL differs by {nll}{between}, accuracy is {accuracy}"

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
        Probabilities of the same rows, by the method that keeps the order and by the one that does not. Rows that neither was
        fitted on, or the price is too high.
    labels : array-like of shape (n,)
    level : float
    class_axis, ignore_index
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
    nll = paired_difference(nll_keeping, nll_free, level)
    accuracy = paired_difference(right_free.astype(np.float64), right_keeping, level)
    moved = top_keeping != top_free
    pairs, place, rows = np.unique(
        np.stack([top_keeping[moved], top_free[moved]]), axis=1, return_inverse=True, return_counts=True
    )
    right = [np.bincount(place.ravel(), r[moved], minlength=len(rows)) for r in (right_keeping, right_free)]
    moves = [Move(*map(int, numbers)) for numbers in zip(*pairs, rows, *right, strict=True)]
    return PriceOfOrder(
        nll=Price(nll.mean, nll.low, nll.high),
        accuracy=Price(accuracy.mean, accuracy.low, accuracy.high),
        n_rows=len(labels),
        moved=int(moved.sum()),
        right_before=int(right[0].sum()),
        right_after=int(right[1].sum()),
        moves=tuple(sorted(moves, key=lambda move: -move.rows)),
        level=level,
    )
