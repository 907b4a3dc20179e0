"""Many labels, and the frequencies of labels.

Of many labels: how good P(label) is, label by label and over all, and which labels are off beyond chance.

    macro   mean over labels: a rare label counts as much as a frequent one
    micro   over all entries (row, label) together

A label is off beyond chance where its ECE is larger than that of perfect calibration: labels drawn with these probabilities, in
the same bins. p-values are corrected for the number of labels (Benjamini and Hochberg).

Two sets of labels have the same frequencies, or a shift: Pearson's chi-squared of the 2 x m table of counts, with its usual
distribution where every expected count is at least 5, else with that of tables of the same margins drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from ..arrays import to_numpy
from ..core.contingency import chi_squared
from ..errors import InputError
from ..inputs.formats import class_names
from ..inputs.validation import check_many_labels, read_numbers
from .chance import ece_by_chance
from .units import percent

_BINS = 15
_LEAST = 1e-15  # a probability of zero for what happens costs this much and no more
_LEVEL = 1e-3  # of the test of label frequencies
_COLUMNS = ("rows", "positives", "mean", "nll", "brier", "ece", "floor", "p_value")
_SCORES = ("nll", "brier", "ece")


@dataclass(frozen=True)
class LabelEvaluation:
    """Metrics of many labels; arrays have one entry for each label.

    Attributes
    ----------
    names : tuple of str
    rows, positives : ndarray of int
        Rows in which the label is known, and in which it holds.
    mean : ndarray
        Mean P(label).
    nll, brier, ece, floor : ndarray
        ECE is that of P(label), with 15 bins of equal mass; its floor the median under perfect calibration.
    p_value : ndarray
        Of "calibrated for this label", corrected for the number of labels.
    micro : dict
        NLL, Brier score and ECE of all entries together.
    level : float
        One minus the share of false alarms among the labels called off.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=(2000, 3))
    >>> y = rng.uniform(size=(2000, 3)) < p * [1.0, 1.0, 0.7]
    >>> mc.metrics.evaluate_labels(p, y, names=["edema", "nodule", "fracture"]).off
    ('fracture',)
    """

    names: tuple[str, ...]
    rows: np.ndarray
    positives: np.ndarray
    mean: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    ece: np.ndarray
    floor: np.ndarray
    p_value: np.ndarray
    micro: dict[str, float]
    level: float

    @property
    def macro(self) -> dict[str, float]:
        """NLL, Brier score and ECE, the mean over labels that are known in some row."""
        return {name: float(np.nanmean(getattr(self, name))) for name in _SCORES}

    @property
    def off(self) -> tuple[str, ...]:
        """Labels that are off beyond chance, the largest ECE above its floor first."""
        off = self.p_value <= 1 - self.level + 1e-12
        return tuple(self.names[i] for i in self._worst_first if off[i])

    @property
    def _worst_first(self) -> list[int]:
        order: list[int] = np.argsort(self.floor - self.ece, kind="stable").tolist()
        return order

    @property
    def verdict(self) -> str:
        """One sentence: how many labels are off beyond chance, and the worst."""
        if not self.off:
            return f"None of {len(self.names)} labels is off beyond chance."
        i, are = self.names.index(self.off[0]), "is" if len(self.off) == 1 else "are"
        return (
            f"{len(self.off)} of {len(self.names)} labels {are} off beyond chance; the worst is {self.off[0]!r} "
            f"(ECE {100 * self.ece[i]:.1f} %, {100 * self.floor[i]:.1f} % by chance; mean probability "
            f"{100 * self.mean[i]:.1f} %, share {100 * self.positives[i] / self.rows[i]:.1f} %)."
        )

    def __str__(self) -> str:
        width = max(5, *(len(name) for name in self.names))
        head = f"{'label':<{width}}{'rows':>9}{'positive':>9}{'mean %':>8}{'NLL':>9}{'ECE %':>7}{'floor':>7}"
        lines = [self.verdict, "", head]
        off = self.off
        for i in self._worst_first:
            lines.append(
                f"{self.names[i]:<{width}}{self.rows[i]:>9,}{self.positives[i]:>9,}{100 * self.mean[i]:>8.2f}{self.nll[i]:>9.4f}"
                f"{100 * self.ece[i]:>7.2f}{100 * self.floor[i]:>7.2f}{'*' if self.names[i] in off else ''}"
            )
        for name, values in (("macro", self.macro), ("micro", self.micro)):
            lines.append(f"{name:<{width}}{'':>26}{values['nll']:>9.4f}{100 * values['ece']:>7.2f}")
        return "\n".join([*lines, "", "floor: the ECE of perfect calibration; *: off beyond chance."])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        labels = {
            name: {column: getattr(self, column)[i].item() for column in _COLUMNS}
            for i, name in enumerate(self.names)
        }
        return {"micro": self.micro, "macro": self.macro, "off": list(self.off), "labels": labels}


def evaluate_labels(
    probs: Any,
    labels: Any,
    *,
    names: Any = None,
    level: float = 0.95,
    n_draws: int = 999,
    random_state: int = 0,
) -> LabelEvaluation:
    """Metrics of the probabilities of many labels.

    Parameters
    ----------
    probs : array-like of shape (n, L)
        P(label).
    labels : array-like of shape (n, L)
        0, 1, and -1 or NaN where it is not known whether the row has the label.
    names : list of str, optional
        Names of the labels; those of the columns of ``probs`` where it is a frame.
    level : float
        One minus the share of false alarms among the labels called off.
    n_draws, random_state : int
        Of the draws from perfect calibration.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.evaluate_labels([[0.9, 0.2], [0.1, 0.3]], [[1, 0], [0, 0]]).verdict
    'None of 2 labels is off beyond chance.'
    """
    p = to_numpy(read_numbers(probs, "probs", "one number for each label")).astype(np.float64)
    if p.ndim != 2 or not p.size:
        raise InputError(f"probs has shape {p.shape}: expected (n, L), a column for each label.")
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError("probs: expected probabilities, between 0 and 1.")
    own = class_names(probs)
    y, present = check_many_labels(labels, p.shape, own, "labels", "probs")
    columns = own or tuple(map(str, range(p.shape[1]))) if names is None else names
    if len(columns) != p.shape[1]:
        raise InputError(f"names: expected {p.shape[1]}, one for each label, but got {len(columns)}.")
    rng = np.random.default_rng(random_state)
    rows = [_of_label(p[present[:, i], i], y[present[:, i], i], n_draws, rng) for i in range(p.shape[1])]
    table = {name: np.array([row[name] for row in rows]) for name in _COLUMNS}
    tested = ~np.isnan(table["p_value"])
    if tested.any():
        table["p_value"][tested] = false_discovery_control(table["p_value"][tested])
    micro = _of_label(p[present], y[present], 1, rng)
    scores = {name: float(micro[name]) for name in _SCORES}
    return LabelEvaluation(tuple(map(str, columns)), **table, micro=scores, level=level)


def _of_label(p: np.ndarray, y: np.ndarray, n_draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """The numbers of one label, or of all entries."""
    n = len(p)
    if not n:
        return {"rows": 0, "positives": 0, **dict.fromkeys(_COLUMNS[2:], np.nan)}
    cell = np.empty(n, dtype=np.int64)
    for k, rows in enumerate(np.array_split(np.argsort(p, kind="stable"), min(_BINS, n))):
        cell[rows] = k
    ece, chance = ece_by_chance(p, y, np.ones(n), cell, n_draws, rng)
    q = np.clip(np.where(y == 1, p, 1.0 - p), _LEAST, 1.0)
    return {
        "rows": n,
        "positives": int(y.sum()),
        "mean": float(p.mean()),
        "nll": float(-np.log(q).mean()),
        "brier": float(((p - y) ** 2).mean()),
        "ece": ece,
        "floor": float(np.median(chance)),
        "p_value": (1 + (chance >= ece - 1e-12).sum()) / (n_draws + 1),
    }


@dataclass(frozen=True)
class LabelShiftTest:
    """Whether class frequencies differ between calibration and test labels.

    Attributes
    ----------
    statistic, p_value : float
    distance : float
        The share of labels that would have to change: half the sum of the absolute differences of the frequencies.
    shifted : bool
        Whether ``p_value`` is below 0.001.
    calibration, test : tuple of float
        Frequencies of the classes.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.label_shift_test([0, 1] * 500, [0] * 900 + [1] * 100).most
    0
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
        """The result and the remedy, with the names of the classes."""
        p = "p < 0.001" if self.p_value < 1e-3 else f"p = {self.p_value:.2g}"
        if not self.shifted:
            return f"No label shift that could be measured between calibration and test rows ({p})."
        name = f"class {self.most}" if class_names is None else class_names[self.most]
        return (
            f"The class frequencies of calibration and test rows differ, for {100 * self.distance:.0f} % of the labels ({p}; "
            f"most for {name}, {percent(self.calibration[self.most])} there and {percent(self.test[self.most])} here), and what "
            "was learnt of them does not carry over: wrap the calibrator as LabelShift(calibrator, prior=...), or let "
            "LabelShift.adapt estimate the frequencies from rows without labels."
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
        By default one more than the largest label.
    seed : int
        Of the permutations, where counts are small.

    Examples
    --------
    >>> import monocal as mc
    >>> test = mc.label_shift_test([0] * 90 + [1] * 10, [0] * 50 + [1] * 50)
    >>> test.shifted, round(test.distance, 2)
    (True, 0.4)
    """
    labels = [_whole_labels(y, name) for y, name in ((calibration, "calibration"), (test, "test"))]
    m = max(int(y.max()) for y in labels) + 1
    if n_classes is not None and n_classes < m:
        raise InputError(f"n_classes is {n_classes}, but there is a label {m - 1}.")
    counts = np.stack([np.bincount(y, minlength=n_classes or m) for y in labels])
    before, after = counts / counts.sum(axis=1, keepdims=True)
    statistic, p_value = chi_squared(counts[:, counts.any(axis=0)], seed)
    distance = float(np.abs(before - after).sum() / 2)
    frequencies = tuple(before.tolist()), tuple(after.tolist())
    return LabelShiftTest(statistic, p_value, distance, p_value < _LEVEL, *frequencies)


def _whole_labels(labels: Any, name: str) -> np.ndarray:
    y = np.asarray(to_numpy(labels))
    if y.ndim != 1 or not len(y):
        raise InputError(f"{name}: expected labels of shape (n,) with n >= 1, got shape {y.shape}.")
    if y.dtype.kind not in "iub" and not (y.dtype.kind == "f" and np.equal(y, np.round(y)).all()):
        raise InputError(f"{name}: labels must be whole numbers 0..m-1, got {y.dtype}.")
    if y.min() < 0:
        raise InputError(f"{name}: labels must be 0..m-1, got {y.astype(np.int64).min()}.")
    return y.astype(np.int64)
