"""What looks wrong in a labelled set, in one sentence that says what to check.

A classifier is right more often than one that guesses, wrong now and then, and has seen more than one class. Where it is not so,
labels and columns are mostly of different rows or counted differently.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from ..errors import spoken
from ..io import LogitsSet

_FEW_ROWS = 50
_CHANCE = 1e-3  # how rarely luck alone may do what is called wrong


def suspicion(data: LogitsSet) -> str | None:
    """The first thing that looks wrong, or None."""
    labels, n, m = data.labels, data.n_samples, data.n_classes
    if labels is None:
        return None
    where, largest = str(data.path or data.name), np.asarray(data.values).argmax(axis=1)
    right, shifted = int(np.sum(largest == labels)), int(np.sum(largest == labels - 1))
    if shifted > 2 * right and labels.min() >= 1 and _too_rare(n - shifted, n, 1 - 1 / m):
        return (
            f"The largest value of {where} names the label in {right / n:.0%} of the rows, and in {shifted / n:.0%} if labels "
            f"count from 1: if they do, say {spoken('first_label=', 1)}."
        )
    if labels.min() == labels.max():
        called = data.class_names[labels[0]] if data.class_names else int(labels[0])
        return f"All {n:,} labels of {where} are {called!r}: with one class there is little to learn; check the labels."
    if _too_rare(right, n, 1 / m):
        return (
            f"The largest value of {where} names the label in {right / n:.1%} of the rows, less than guessing would "
            f"({1 / m:.1%}): check that rows and columns are in the order of the labels."
        )
    if right == n:
        return (
            f"The largest value of {where} names the label in all {n:,} rows: were these rows seen in training? Calibrate on "
            "others."
        )
    if n < _FEW_ROWS:
        return f"{where} has {n} rows, few to learn from: a few hundred give more reliable probabilities."
    return None


def _too_rare(successes: int, n: int, chance: float) -> bool:
    """Whether so few successes are rarer than luck."""
    return bool(binom.cdf(successes, n, chance) < _CHANCE)
