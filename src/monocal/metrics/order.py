"""What a calibrator did to the order of the classes, pair by pair, and where the order itself is the obstacle.

For classes i, j of a row: *inverted* if ``before_i < before_j`` and ``after_i > after_j``; a tie is *broken* if it was equal
before only, *made* if it is equal after only. Sort a row by (before, after): inverted pairs are then the inversions of the
``after`` sequence, counted bit by bit in O(m log m) (all rows of a block at once), and ties are runs of equal neighbours.

Obstacles: a map that keeps the order gives the predicted class at least the probability of every other class, in every row. If
among rows that predict ``j`` another class is the label more often than ``j``, those probabilities cannot be right on average.
Three such counts are tested (of the rows where one of the two is the label, is it the other in more than half?):

    all rows that predict ``j``, against the class that is their label most often, corrected for those it was chosen from;
    their least confident 1/8, 1/4, 1/2 and all, against the class that each row ranks second;
    rows where shifted log-probabilities name another class, against that class. Shifts b give each class its frequency, by steps
    ``b_j += log(labels_j / sum_i p_ij(b))``; half of the rows are judged by the shifts of the other half.

A bias for a class shows in the second, a bias against one in the third: it reverses the order where the margin is smaller than
the bias. P-values are corrected for all of these, and for the number of predicted classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import false_discovery_control, norm

from ..arrays import to_numpy, widened
from ..calibrators.fit_checks import SHARES, least_confident, second_by_chance
from ..errors import InputError
from ..inputs.layout import Flat, Layout
from ..inputs.validation import check_choice, check_logits, check_some_weight
from .outcomes import Integers, Outcomes, bin_totals, check_probability_block, read_scores, without_ignored
from .units import quoted

_BLOCK_ENTRIES = 1 << 19
# Classes that are predicted too rarely: about how many probabilities are examined, of how many rows at least; steps that fit the
# shifts of classes; and the share of all rows that must be gained.
_SHIFTED_ENTRIES, _SHIFTED_ROWS, _SHIFTS, _CLEAR_GAIN = 2**22, 100, 10, 0.01


@dataclass(frozen=True)
class OrderCounts:
    """Changes of order in a set of rows.

    Attributes
    ----------
    rows, rows_inverted, top1_changed : int
        Rows; those with at least one inverted pair; those whose first largest class is another one.
    inverted_pairs, ties_broken, ties_made : int
        Pairs of classes, over all rows.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]]).all.inverted_pairs
    1
    """

    rows: int
    rows_inverted: int
    inverted_pairs: int
    ties_broken: int
    ties_made: int
    top1_changed: int

    @property
    def share_inverted(self) -> float:
        """Share of rows with an inversion; 0 when there are no rows."""
        return self.rows_inverted / max(1, self.rows)

    @property
    def share_top1_changed(self) -> float:
        """Share of rows whose top class changed; 0 when there are no rows."""
        return self.top1_changed / max(1, self.rows)

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, ready for JSON."""
        shares = {"share_inverted": self.share_inverted, "share_top1_changed": self.share_top1_changed}
        return {**self.__dict__, **shares}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows: {self.share_inverted:.2%} with an inversion "
            f"({self.inverted_pairs:,} pairs), top class changed in {self.share_top1_changed:.2%}, "
            f"ties broken {self.ties_broken:,}, made {self.ties_made:,}"
        )


@dataclass(frozen=True, repr=False)
class OrderAudit:
    """Counts of all rows and of the uncertain ones: top confidence before below ``uncertain_below``.

    Attributes
    ----------
    all, uncertain : OrderCounts
    uncertain_below : float

    Examples
    --------
    >>> import monocal as mc
    >>> mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]]).preserved
    False
    """

    all: OrderCounts
    uncertain: OrderCounts
    uncertain_below: float

    @property
    def preserved(self) -> bool:
        """No pair inverted and no tie broken: larger stayed at least as large, equal stayed equal."""
        return self.all.inverted_pairs == 0 and self.all.ties_broken == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        parts = {"all": self.all.to_dict(), "uncertain": self.uncertain.to_dict()}
        return {**parts, "uncertain_below": self.uncertain_below, "preserved": self.preserved}

    def __repr__(self) -> str:
        return (
            f"Order {'kept' if self.preserved else 'not kept'}\n  all        {self.all}\n"
            f"  uncertain  {self.uncertain} (top confidence below {self.uncertain_below})"
        )


def order_audit(
    before: Any,
    after: Any,
    *,
    input: str = "probabilities",
    uncertain_below: float = 0.7,
    class_axis: int = -1,
    labels: Any = None,
    ignore_index: int | None = None,
) -> OrderAudit:
    """Compare the order of the classes before and after a calibrator.

    Values are compared as they come: audit in the precision that will be used. The top class is the first of the largest
    ones, so a tie made at the top can change it.

    Parameters
    ----------
    before, after : (n, m) arrays
        Scores of the same rows and classes.
    input : {"probabilities", "logits"}
        What both are. Logits keep what probabilities lose: softmax rounds far-apart logits to equal zeros.
    uncertain_below : float
        Rows whose top confidence before is below this are also counted apart.
    class_axis : int
        The axis of the classes.
    labels, ignore_index : optional
        Rows with the label ``ignore_index``, such as padding, are left out.

    Examples
    --------
    >>> import monocal as mc
    >>> print(mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]]).all)
    1 rows: 100.00% with an inversion (1 pairs), top class changed in 0.00%, ties broken 0, made 0
    """
    check_choice(input, "input", ("probabilities", "logits"))
    layout = Layout(class_axis, ignore_index)
    (one, old_eps), (other, new_eps) = (
        read_scores(before, "before", layout),
        read_scores(after, "after", layout),
    )
    if other.array.shape != one.array.shape:
        raise InputError(f"after: expected the shape of before, {one.array.shape}, got {other.array.shape}.")
    old, new = one.rows, other.rows
    n, m = old.shape
    counted = _counted(one, labels, layout)
    counts = np.zeros((3, n), dtype=np.int64)
    top_changed, uncertain = np.zeros((2, n), dtype=bool)
    step = max(1, _BLOCK_ENTRIES // m)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        was, now = (without_ignored(x[rows], ~counted[rows]) for x in (old, new))
        for block, eps, name in ((was, old_eps, "before"), (now, new_eps, "after")):
            if input == "probabilities":
                check_probability_block(block, eps, name, start)
            else:
                check_logits(block, name, start)
        probs = was if input == "probabilities" else softmax(was.astype(np.float64), axis=1)
        uncertain[rows] = probs.max(axis=1) < uncertain_below
        top_changed[rows] = was.argmax(axis=1) != now.argmax(axis=1)
        counts[:, rows] = _count_pairs(was, now)

    def part(mask: NDArray[np.bool_]) -> OrderCounts:
        rows_inverted, top1 = np.count_nonzero(counts[0, mask]), np.count_nonzero(top_changed[mask])
        return OrderCounts(*map(int, (mask.sum(), rows_inverted, *counts[:, mask].sum(axis=1), top1)))

    return OrderAudit(part(counted), part(uncertain & counted), uncertain_below)


def _counted(before: Flat, labels: Any, layout: Layout) -> NDArray[np.bool_]:
    n = len(before.rows)
    if (labels is None) != (layout.ignore_index is None):
        raise InputError("labels and ignore_index go together: give both, or neither to examine all rows.")
    if labels is None:
        return np.ones(n, dtype=bool)
    counted = np.asarray(to_numpy(before.column(labels, "labels", "before")) != layout.ignore_index)
    if counted.shape != (n,):
        raise InputError(f"labels: expected one for each of the {n} rows, got {counted.shape}.")
    check_some_weight(bool(counted.any()), layout.ignore_index)
    return counted


def _count_pairs(before: NDArray[Any], after: NDArray[Any]) -> Integers:
    """Per row: inverted pairs, ties broken, ties made: (3, n)."""
    order = np.argsort(before, axis=1)
    start = np.take_along_axis(before, order, axis=1)
    moved = np.take_along_axis(after, order, axis=1)
    equal_before = start[:, 1:] == start[:, :-1]
    # Rows that ascend already after a sort by `before` alone have nothing inverted and need no second key.
    descends = (moved[:, 1:] < moved[:, :-1]).any(axis=1)
    tied = np.flatnonzero(descends & equal_before.any(axis=1))
    if len(tied):
        order[tied] = np.lexsort((after[tied], before[tied]), axis=1)
        moved[tied] = np.take_along_axis(after[tied], order[tied], axis=1)
    inverted = np.zeros(len(before), dtype=np.int64)
    ranked = moved.copy()
    if descends.any():
        inverted[descends] = _inversions(np.argsort(moved[descends], axis=1, kind="stable"))
        ranked[descends] = np.sort(widened(moved[descends]), axis=1)
    ties_both = _tie_pairs(equal_before & (moved[:, 1:] == moved[:, :-1]))
    broken = _tie_pairs(equal_before) - ties_both
    made = _tie_pairs(ranked[:, 1:] == ranked[:, :-1]) - ties_both
    return np.stack((inverted, broken, made))


def _tie_pairs(equal: NDArray[np.bool_]) -> Integers:
    """Pairs within runs of equal neighbours: place r of a run (from 0) makes r pairs with those before it."""
    pairs = np.zeros(len(equal), dtype=np.int64)
    tied = np.flatnonzero(equal.any(axis=1))
    if len(tied):
        place = np.arange(1, equal.shape[1] + 1)
        last_break = np.maximum.accumulate(np.where(equal[tied], 0, place), axis=1)
        pairs[tied] = (place - last_break).sum(axis=1)
    return pairs


def _inversions(permutations: Integers) -> Integers:
    """Inversions of each row, a permutation of 0 .. m - 1.

    From the highest bit down: among numbers that agree in the bits above, a one before a zero is one
    inversion. Moving the zeros to the front of such a group, in order, undoes them, so they number how far
    the zeros move in all. Padded to a power of two, every group has as many zeros as ones.
    """
    n, m = permutations.shape
    bits = (m - 1).bit_length()
    numbers = np.broadcast_to(np.arange(1 << bits, dtype=np.int32), (n, 1 << bits)).copy()
    numbers[:, :m] = permutations
    inversions = np.zeros(n, dtype=np.int64)
    for bit in reversed(range(bits)):
        is_one = (numbers & (1 << bit)).astype(bool)
        zeros, ones = np.flatnonzero(~is_one), np.flatnonzero(is_one)
        slots = np.arange(numbers.size).reshape(-1, 2, 1 << bit)
        inversions += zeros.reshape(n, -1).sum(axis=1) - slots[:, 0].reshape(n, -1).sum(axis=1)
        halves = (numbers.ravel()[part].reshape(-1, 1, 1 << bit) for part in (zeros, ones))
        numbers = np.concatenate(list(halves), axis=1).reshape(n, -1)
    return inversions


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
    rarely : bool
        Whether ``truth`` is predicted too rarely: the rows, which predict mostly ``predicted``, are those that it should have.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs, labels = np.tile([0.5, 0.4, 0.1], (400, 1)), np.repeat([0, 1, 2], [120, 240, 40])
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
    rarely: bool = False

    def __str__(self) -> str:
        when, more = quoted(self.predicted), quoted(self.truth)
        share, accuracy = f"{100 * self.truth_share:.0f} %", f"{100 * self.accuracy:.0f} %"
        end = f"no map that keeps the order can correct that; see {self.remedy}."
        if self.rarely:
            return (
                f"{more} is predicted too rarely: in {self.rows:,} rows (most predict {when}) it is the truth of {share}, and "
                f"the predicted class of {accuracy}; {end}"
            )
        if self.at_most < 1:
            when += f" with a confidence of at most {100 * self.at_most:.0f} %"
            more = f"the class it ranks second, mostly {more},"
        return f"When it says {when} it is right {accuracy} of the time and {more} is the truth more often ({share}): {end}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "sentence": str(self)}


def find_obstacles(rows: Outcomes, names: Sequence[str], alpha: float) -> tuple[Obstacle, ...]:
    """Predicted classes for which another class is the truth more often, beyond chance; those with most rows first."""
    m, weight = rows.n_classes, rows.weight
    right, largest, rival = _label_counts(rows)
    count = np.bincount(rows.predicted, minlength=m)
    classes = np.flatnonzero(count)
    total, square = (bin_totals(rows.predicted, w, m) for w in (weight, weight**2))
    # Unequal weights tell as much as fewer equal ones.
    scale = total[classes] / square[classes]
    tail = second_by_chance(right[classes], largest[classes], scale, 0.5)
    whole = np.where(largest[classes] > right[classes], np.minimum(1.0, (m - 1) * tail), 1.0)
    first, second = (rows.label_rank == rank for rank in (0, 1))
    lows = least_confident(rows.predicted, rows.confidence, first, second, weight, weight**2, m)
    tails = lows.tails(0.5)[:, classes]
    p = np.minimum(1.0, 2.0 * np.minimum(whole, len(SHARES) * tails.min(axis=0)))
    p = np.minimum(1.0, 2.0 * false_discovery_control(p))
    remedy = "BinaryMCCT" if m == 2 else "StructuredMCCT"
    obstacles = []
    for i in np.flatnonzero(p <= alpha):
        j = int(classes[i])
        if 2.0 * whole[i] <= alpha:
            shares = float(right[j] / total[j]), float(largest[j] / total[j])
            truth, n_rows, at_most = int(rival[j]), int(count[j]), 1.0
        else:
            low = int(np.argmin(tails[:, i])), j
            of_second = lows.members[low[0]] & (rows.predicted == j) & second
            truth = int(np.argmax(np.bincount(rows.labels[of_second], weight[of_second])))
            shares = float(lows.first[low] / lows.total[low]), float(lows.second[low] / lows.total[low])
            n_rows, at_most = int(lows.rows[low]), min(float(lows.highest[low]), 1.0)
        obstacles.append(Obstacle(names[j], names[truth], n_rows, *shares, float(p[i]), at_most, remedy))
    rare = _predicted_too_rarely(rows, names, alpha, remedy)
    if rare and rare.predicted not in {one.predicted for one in obstacles}:
        obstacles.append(rare)
    return tuple(sorted(obstacles, key=lambda one: -one.rows))


def _label_counts(rows: Outcomes) -> tuple[Any, Any, Any]:
    """Of the rows that predict each class (m,): weight of those that are right, of the most frequent other label, and which."""
    m = rows.n_classes
    # Pairs that occur, not all m^2: a vocabulary may have 10^5 classes.
    pairs, place = np.unique(rows.predicted * m + rows.labels, return_inverse=True)
    share = bin_totals(place.reshape(-1), rows.weight, len(pairs))
    predicted, label = pairs // m, pairs % m
    right, largest, rival = np.zeros(m), np.zeros(m), np.full(m, -1)
    hit = predicted == label
    right[predicted[hit]] = share[hit]
    missed = np.flatnonzero(~hit)
    missed = missed[np.argsort(share[missed], kind="stable")]  # the largest is written last
    rival[predicted[missed]], largest[predicted[missed]] = label[missed], share[missed]
    return right, largest, rival


def _predicted_too_rarely(rows: Outcomes, names: Sequence[str], alpha: float, remedy: str) -> Obstacle | None:
    """The class that gains most where shifted log-probabilities name another class."""
    m = rows.n_classes
    step = -(-len(rows.labels) * m // _SHIFTED_ENTRIES)
    if rows.class_count is not None or m == 2 or step > len(rows.labels) // _SHIFTED_ROWS:
        return None  # the largest probabilities alone; two classes, whose least confident rows say the same; or too many
    part = slice(None, None, step)
    x = np.log(np.maximum(np.stack([rows.of_class(j)[part] for j in range(m)], axis=1), 1e-300))
    y, top, w = rows.labels[part], rows.predicted[part], rows.weight[part]
    first, shifted = np.arange(len(y)) % 2 == 0, np.empty_like(y)
    for half in (first, ~first):
        shift, observed = np.zeros(m), np.bincount(y[half], w[half], m) + 0.5
        for _ in range(_SHIFTS):
            shift += np.log(observed / (w[half] @ softmax(x[half] + shift, axis=1) + 0.5))
        shifted[~half] = (x[~half] + shift).argmax(axis=1)
    moved = shifted != top
    gain = np.where(moved, w * ((shifted == y) * 1.0 - (top == y)), 0.0)
    p_value = min(1.0, 2.0 * float(norm.sf(gain.sum() / np.sqrt(max(float(gain @ gain), 1e-300)))))
    if p_value > alpha or gain.sum() < _CLEAR_GAIN * w.sum():
        return None
    j = int(np.argmax(np.bincount(shifted, gain, m)))
    here = moved & (shifted == j)
    accuracy, share = (float(np.average(c[here] == y[here], weights=w[here])) for c in (top, shifted))
    mostly = names[int(np.argmax(np.bincount(top[here])))]
    return Obstacle(mostly, names[j], int(here.sum()) * step, accuracy, share, p_value, 1.0, remedy, True)
