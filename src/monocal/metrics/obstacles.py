"""Where the order itself is the obstacle: predicted classes whose rows belong more often to another class.

A map that keeps the order gives the predicted class at least the probability of every other class, in every row. If among rows
that predict ``j`` another class is the label more often than ``j``, those probabilities cannot be right on average, whatever the
map. Two such counts are tested (of the rows where one of the two is the label, is it the other in more than half?):

    all rows that predict ``j``, against the class that is their label most often, corrected for those it was chosen from;
    their least confident 1/8, 1/4, 1/2 and all, against the class that each row ranks second.

A bias for a class shows in the second: it turns the order round where the margin is smaller than the bias. P-values are corrected
for all of these, and for the number of predicted classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc

from ..calibrators.fit_checks import SHARES, LowRows, least_confident
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
        How often the predicted class is the truth, and how often the other one; of the least confident rows, how often the
        class ranked second is.
    p_value : float
        That chance alone does it, corrected for the number of classes.
    at_most : float
        The confidence of these rows is at most this; 1 where they are all that predict the class.
    remedy : str
        What may change the order.

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
    at_most: float = 1.0
    remedy: str = "StructuredMCCT"

    def __str__(self) -> str:
        said, right = quoted(self.predicted), f"it is right {100 * self.accuracy:.0f} % of the time and"
        if self.at_most < 1:
            said += f" with a confidence of at most {100 * self.at_most:.0f} %"
            more = f"the class it ranks second, mostly {quoted(self.truth)}, is the truth more often"
        else:
            more = f"{quoted(self.truth)} is the truth more often"
        return (
            f"When it says {said} {right} {more} ({100 * self.truth_share:.0f} %): no map that keeps the order can "
            f"mend that; see {self.remedy}."
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
    whole = np.where(largest[classes] > right[classes], np.minimum(1.0, (m - 1) * tail), 1.0)
    first, second = (rows.label_rank == rank for rank in (0, 1))
    lows = least_confident(rows.predicted, rows.confidence, first, second, rows.weight, rows.weight**2, m)
    tails = np.stack([low.tail()[classes] for low in lows])
    p_value = adjusted(np.minimum(1.0, 2.0 * np.minimum(whole, len(SHARES) * tails.min(axis=0))))
    remedy = "BinaryMCCT" if m == 2 else "StructuredMCCT"
    found = []
    for i in np.flatnonzero(p_value <= alpha):
        j, p = int(classes[i]), float(p_value[i])
        if 2.0 * whole[i] <= alpha:
            shares = float(right[j] / weight[j]), float(largest[j] / weight[j])
            found.append(Obstacle(names[j], names[int(rival[j])], int(count[j]), *shares, p, remedy=remedy))
        else:
            found.append(_of_low_rows(rows, lows[int(np.argmin(tails[:, i]))], j, names, p, remedy))
    return tuple(sorted(found, key=lambda one: -one.rows))


def _of_low_rows(
    rows: Outcomes, low: LowRows, j: int, names: Sequence[str], p_value: float, remedy: str
) -> Obstacle:
    second = low.members & (rows.predicted == j) & (rows.label_rank == 1)
    labels, place = np.unique(rows.labels[second], return_inverse=True)
    truth = int(labels[np.argmax(np.bincount(place, rows.weight[second]))])
    shares = float(low.first[j] / low.total[j]), float(low.second[j] / low.total[j])
    return Obstacle(
        names[j], names[truth], int(low.rows[j]), *shares, p_value, min(float(low.highest[j]), 1.0), remedy
    )
