"""Do two things differ beyond chance: two predictors on the same rows, or two sets of labels?

    rows        mean(d) ± z sd(d) / sqrt(n)  of the paired row differences d: what is hard for both cancels
                rows that would settle it = n ((z + z_power) sd(d) / sqrt(n) / |mean(d)|)^2
    bootstrap   the same for one metric, rows drawn with replacement, the same ones for both
    labels      Pearson's chi-squared of the 2 x m table of counts, with its usual distribution where every expected count is at
                least 5, else with that of tables of the same margins drawn at random

Calibration errors are no means over rows, and noise makes each larger by another amount: their differences are not
tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import bootstrap

from ..arrays import to_numpy
from ..core.contingency import chi_squared
from ..errors import InputError
from ..inputs.layout import Layout
from ..inputs.validation import check_count, check_fraction
from .functions import statistics_of
from .outcomes import Floats
from .table import METRICS, Options, chosen
from .units import percent, probability

NEGLIGIBLE = 1e-4  # of a score: what four decimals do not show matters to nobody, however sure it is
_POWER = 0.8
_LEVEL = 1e-3  # of the test of label frequencies
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

    Where a row differs without bound, so does the mean: whoever gave that label probability zero is surely worse.
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
    test: tuple[Any, ...] = (None, None, None, None)
    if kind.term is not None:
        of_rows = _row_differences(*(kind.term(side.rows, options) for side in sides))
        test = _test(of_rows, sides[0].rows.weight, difference, kind.higher_is_better, n_boot, level, seed)
    low, high, better, p_value = test
    return Comparison(
        metric, a, b, difference, low, high, better, p_value, kind.higher_is_better, n_boot, level
    )


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
    found = bootstrap(
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
    reflected = 2 * mean - found.bootstrap_distribution
    # Sums of the same numbers in another order are the same.
    reflected[np.abs(reflected) <= 1e-15 * np.abs(d).max()] = 0.0
    above = (np.count_nonzero(reflected > 0) + np.count_nonzero(reflected == 0) / 2) / n_boot
    tail = min(np.count_nonzero(reflected >= 0), np.count_nonzero(reflected <= 0))
    low, high = (float(end) for end in found.confidence_interval)
    return low, high, float(above if higher_is_better else 1 - above), min(1.0, 2 * (1 + tail) / (1 + n_boot))


@dataclass(frozen=True)
class LabelShiftTest:
    """Whether class frequencies differ between calibration and test labels.

    Attributes
    ----------
    statistic, p_value : float
    distance : float
        Half the sum of the absolute differences of the frequencies: the share of labels that would have to change.
    shifted : bool
        Whether ``p_value`` is below 0.001.
    calibration, test : tuple of float
        Frequencies of the classes.

    Examples
    --------
    >>> import monocal as mc
    >>> found = mc.label_shift_test([0, 1] * 500, [0] * 900 + [1] * 100)
    >>> found.shifted, round(found.distance, 2)
    (True, 0.4)
    """

    statistic: float
    p_value: float
    distance: float
    shifted: bool
    calibration: tuple[float, ...]
    test: tuple[float, ...]

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, class_names: Sequence[str] | None = None) -> str:
        """What was found, and the remedy; with the names of the classes, if given."""
        p = probability(self.p_value)
        if not self.shifted:
            return f"No label shift that could be measured between calibration and test rows ({p})."
        name = f"class {self.most}" if class_names is None else class_names[self.most]
        most = f"{percent(self.calibration[self.most])} there and {percent(self.test[self.most])} here"
        return (
            f"The class frequencies of calibration and test rows differ, for {100 * self.distance:.0f} % of the labels ({p}; "
            f"most for {name}, {most}), and what was learnt of them does not carry over: wrap the calibrator as "
            "LabelShift(calibrator, prior=...), or let LabelShift.adapt estimate the frequencies from rows without labels."
        )

    @property
    def most(self) -> int:
        """The class whose frequency changed most."""
        return int(np.argmax(np.abs(np.subtract(self.test, self.calibration))))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "sentence": str(self)}


def label_shift_test(
    calibration: Any, test: Any, *, n_classes: int | None = None, seed: int = 0
) -> LabelShiftTest:
    """Test whether two sets of labels have the same class frequencies.

    Parameters
    ----------
    calibration, test : array-like of shape (n,)
        Labels, 0..m-1.
    n_classes : int, optional
        By default as many as the labels show.
    seed : int
        Of the permutations, where counts are small.

    Returns
    -------
    LabelShiftTest

    Examples
    --------
    >>> import monocal as mc
    >>> test = mc.label_shift_test([0] * 90 + [1] * 10, [0] * 50 + [1] * 50)
    >>> test.shifted, round(test.distance, 2)
    (True, 0.4)
    """
    labels = [_check(given, name) for given, name in ((calibration, "calibration"), (test, "test"))]
    m = max(int(y.max()) for y in labels) + 1
    if n_classes is not None:
        if n_classes < m:
            raise InputError(f"n_classes is {n_classes}, but there is a label {m - 1}.")
        m = n_classes
    counts = [np.bincount(y, minlength=m) for y in labels]
    return label_shift_of_counts(counts[0], counts[1], seed)


def label_shift_of_counts(calibration: np.ndarray, test: np.ndarray, seed: int = 0) -> LabelShiftTest:
    """The same from the counts (m,) of each class."""
    counts = np.stack([calibration, test])
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    statistic, p_value = chi_squared(counts[:, counts.any(axis=0)], seed)
    return LabelShiftTest(
        statistic=statistic,
        p_value=p_value,
        distance=float(np.abs(frequencies[0] - frequencies[1]).sum() / 2),
        shifted=p_value < _LEVEL,
        calibration=tuple(frequencies[0].tolist()),
        test=tuple(frequencies[1].tolist()),
    )


def _check(given: Any, name: str) -> np.ndarray:
    y = np.asarray(to_numpy(given))
    if y.ndim != 1 or not len(y):
        raise InputError(f"{name}: expected labels of shape (n,) with n >= 1, got shape {y.shape}.")
    if y.dtype.kind not in "iub" and not (y.dtype.kind == "f" and np.equal(y, np.round(y)).all()):
        raise InputError(f"{name}: labels must be whole numbers 0..m-1, got {y.dtype}.")
    y = y.astype(np.int64)
    if y.min() < 0:
        raise InputError(f"{name}: labels must be 0..m-1, got {y.min()}.")
    return y
