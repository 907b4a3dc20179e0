"""Where the order itself is the obstacle: predicted classes whose rows belong more often to another class.

A map that keeps the order gives the predicted class at least the probability of every other class, in every row. If among the
rows that predict ``j`` class ``k`` is the label more often than ``j``, those probabilities cannot be right on average, whatever
the map. Chance may do that too, so the counts are tested (of the rows with label ``j`` or ``k``, is ``k`` more than half?),
corrected for the classes that ``k`` was the largest of, and for the number of predicted classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc

from .chance import adjusted
from .outcomes import Outcomes, bin_totals


def one_line(name: str) -> str:
    """A name on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(name.split()))


def quoted(name: str) -> str:
    """A name in quotes, on one line and not too long for a sentence."""
    line = one_line(name)
    return f"'{line if len(line) <= 60 else line[:59] + '…'}'"


@dataclass(frozen=True)
class Obstacle:
    """A predicted class that is wrong more often than another class would be.

    Attributes
    ----------
    predicted, truth : str
        The class that is predicted, and the one that is the truth more often in these rows.
    rows : int
    accuracy, truth_share : float
        How often each of the two is the truth.
    p_value : float
        That chance alone does it, corrected for the number of classes.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.tile([0.5, 0.4, 0.1], (400, 1))
    >>> labels = np.repeat([0, 1, 2], [120, 240, 40])
    >>> mc.evaluate(probs, labels, metrics="ece", groups="predicted").groups.obstacles[0].truth
    '1'
    """

    predicted: str
    truth: str
    rows: int
    accuracy: float
    truth_share: float
    p_value: float

    def __str__(self) -> str:
        return (
            f"When it says {quoted(self.predicted)} it is right {100 * self.accuracy:.0f} % of the time and "
            f"{quoted(self.truth)} is the truth more often ({100 * self.truth_share:.0f} %): no map that keeps the order can "
            "mend that; see StructuredMCCT."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "sentence": str(self)}


def find_obstacles(rows: Outcomes, names: Sequence[str], alpha: float) -> tuple[Obstacle, ...]:
    """Predicted classes for which another class is the truth more often, beyond chance; those with most rows first."""
    m = rows.n_classes
    # Pairs that occur, not all m^2: a vocabulary may have 10^5 classes.
    pairs, place = np.unique(rows.predicted * m + rows.labels, return_inverse=True)
    share = bin_totals(place.reshape(-1), rows.weight, len(pairs))
    predicted, label = pairs // m, pairs % m
    right, weight, square = np.zeros(m), np.zeros(m), np.zeros(m)
    right[predicted[predicted == label]] = share[predicted == label]
    weight[:], square[:] = (bin_totals(rows.predicted, w, m) for w in (rows.weight, rows.weight**2))
    count = np.bincount(rows.predicted, minlength=m)
    classes = np.flatnonzero(count)
    largest = np.zeros(m)
    rival = np.full(m, -1)
    wrong = predicted != label
    order = np.argsort(share[wrong], kind="stable")  # the largest is written last
    rival[predicted[wrong][order]] = label[wrong][order]
    largest[predicted[wrong][order]] = share[wrong][order]
    # Unequal weights tell as much as fewer equal ones.
    scale = weight[classes] / square[classes]
    k, n = scale * largest[classes], scale * (largest[classes] + right[classes])
    tail = np.where(k > 0, betainc(np.maximum(k, 1e-300), n - k + 1, 0.5), 1.0)  # P(Binomial(n, 1/2) >= k)
    p_value = adjusted(np.minimum(1.0, (m - 1) * tail))
    more = (largest[classes] > right[classes]) & (p_value <= alpha)
    found = [
        Obstacle(
            names[j],
            names[int(rival[j])],
            int(count[j]),
            float(right[j] / weight[j]),
            float(largest[j] / weight[j]),
            float(p),
        )
        for j, p in zip(classes[more].tolist(), p_value[more], strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.rows))
