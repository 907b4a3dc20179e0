"""Do two sets of labels come from one population? What a calibrator learnt of the frequencies fails where they differ.

Pearson's chi-squared of the 2 x m table of counts, with its usual distribution where every expected count is at least 5, else
with that of tables of the same margins drawn at random (a permutation test; the seed is fixed, so it says the same again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..core.contingency import chi_squared
from ..errors import InputError
from .units import percent, probability

_LEVEL = 1e-3


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
