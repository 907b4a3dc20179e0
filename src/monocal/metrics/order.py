"""What a calibrator did to the order of the classes, pair by pair.

For classes i, j of a row: *inverted* if ``before_i < before_j`` and ``after_i > after_j``; a tie is
*broken* if it was equal before only, *made* if it is equal after only. Sort a row by (before, after):
inverted pairs are then the inversions of the ``after`` sequence, counted bit by bit in O(m log m) (all rows
of a block at once), and ties are runs of equal neighbours.

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
from numpy.typing import NDArray
from scipy.special import softmax

from ..arrays import to_numpy, widened
from ..errors import InputError
from ..inputs.layout import Flat, Layout
from ..inputs.names import by_column
from ..inputs.validation import (
    check_choice,
    check_fraction,
    check_labels,
    check_logits,
    check_some_weight,
    ignored_rows,
)
from .differences import NEGLIGIBLE, Difference, paired_difference
from .outcomes import Integers, check_probability_block, passed_over, read_labels, read_two
from .units import count, number, points, with_interval

_BLOCK_ENTRIES = 1 << 19


@dataclass(frozen=True)
class OrderCounts:
    """Changes of order among some rows.

    Attributes
    ----------
    rows : int
        Rows looked at.
    rows_inverted, top1_changed : int
        Rows with at least one inverted pair; rows whose first largest class is another one.
    inverted_pairs, ties_broken, ties_made : int
        Pairs of classes, over all rows.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]]).all
    OrderCounts(rows=1, rows_inverted=1, inverted_pairs=1, ties_broken=0, ties_made=0, top1_changed=0)
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
        return self.rows_inverted / self.rows if self.rows else 0.0

    @property
    def share_top1_changed(self) -> float:
        """Share of rows whose top class changed; 0 when there are no rows."""
        return self.top1_changed / self.rows if self.rows else 0.0

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
    >>> audit = mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]])
    >>> audit.preserved, audit.all.inverted_pairs
    (False, 1)
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
        parts = {"all": self.all, "uncertain": self.uncertain}
        shares = {
            key: {
                **part.__dict__,
                "share_inverted": part.share_inverted,
                "share_top1_changed": part.share_top1_changed,
            }
            for key, part in parts.items()
        }
        return {**shares, "uncertain_below": self.uncertain_below, "preserved": self.preserved}

    def __repr__(self) -> str:
        kept = "kept" if self.preserved else "not kept"
        return (
            f"Order {kept}\n  all        {self.all}\n"
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

    Parameters
    ----------
    before, after : (n, m) arrays
        Scores of the same rows and classes.
    input : {"probabilities", "logits"}
        What both are. Logits see what probabilities lose: softmax rounds far-apart logits to equal zeros.
    uncertain_below : float
        Rows whose top confidence before is below this are also reported apart.
    class_axis : int
        The axis of the classes.
    labels, ignore_index : optional
        Rows with the label ``ignore_index``, such as padding, are left out.

    Returns
    -------
    OrderAudit

    Notes
    -----
    Values are compared as they come: audit in the precision that will be used. The top class is the first
    of the largest ones, so a tie made at the top can change it.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.order_audit([[0.5, 0.3, 0.2]], [[0.5, 0.2, 0.3]]).all.inverted_pairs
    1
    """
    check_choice(input, "input", ("probabilities", "logits"))
    layout = Layout(class_axis, ignore_index)
    (one, old_eps), (other, new_eps) = read_two((before, after), ("before", "after"), layout)
    old, new = one.rows, other.rows
    n, m = old.shape
    counted = _counted(one, labels, layout)
    counts = np.zeros((3, n), dtype=np.int64)
    top_changed, uncertain = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    step = max(1, _BLOCK_ENTRIES // m)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        was, now = (passed_over(x[rows], ~counted[rows]) for x in (old, new))
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
        inverted, broken, made = (int(c[mask].sum()) for c in counts)
        with_inversion = int(np.count_nonzero(counts[0, mask]))
        top = int(np.count_nonzero(top_changed[mask]))
        return OrderCounts(int(np.count_nonzero(mask)), with_inversion, inverted, broken, made, top)

    return OrderAudit(part(counted), part(uncertain & counted), uncertain_below)


def _counted(given: Flat, labels: Any, layout: Layout) -> NDArray[np.bool_]:
    """Which rows count."""
    if (labels is None) != (layout.ignore_index is None):
        raise InputError(
            "labels and ignore_index go together: give both, or leave both out to look at all rows."
        )
    if labels is None:
        return np.ones(len(given.rows), dtype=bool)
    counted = to_numpy(given.column(labels, "labels", "before")) != layout.ignore_index
    if counted.shape != (len(given.rows),):
        raise InputError(f"labels: expected one for each of the {len(given.rows)} rows, got {counted.shape}.")
    check_some_weight(bool(counted.any()), layout.ignore_index)
    return np.asarray(counted)


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
    some = np.flatnonzero(equal.any(axis=1))
    if len(some):
        place = np.arange(1, equal.shape[1] + 1)
        last_break = np.maximum.accumulate(np.where(equal[some], 0, place), axis=1)
        pairs[some] = (place - last_break).sum(axis=1)
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
class Price:
    """A mean of paired differences and its interval; positive where keeping the order costs something.

    Attributes
    ----------
    value : float
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> kept, moved = np.array([[0.6, 0.4]] * 50), np.array([[0.3, 0.7]] * 50)
    >>> price = mc.price_of_order(kept, moved, np.repeat([0, 1], [10, 40])).accuracy
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
    >>> import numpy as np
    >>> import monocal as mc
    >>> kept, moved = np.array([[0.6, 0.4]] * 50), np.array([[0.3, 0.7]] * 50)
    >>> mc.price_of_order(kept, moved, np.repeat([0, 1], [10, 40])).moves[0]
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
    >>> import numpy as np
    >>> import monocal as mc
    >>> kept, moved = np.array([[0.6, 0.4]] * 50), np.array([[0.3, 0.7]] * 50)
    >>> price = mc.price_of_order(kept, moved, np.repeat([0, 1], [10, 40]))
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
        if not (self.costs or self.gains):
            return f"Keeping the order costs nothing that could be measured here{self._difference()}."
        words = [self._nll_in_words(), self._accuracy_in_words()]
        words.sort(key=lambda one: not one.startswith("costs" if self.costs else "gains"))
        joint = "and" if self.costs == (not self.gains) else "but"
        text = f"Keeping the order {words[0]} {joint} {words[1]}".replace(" and costs ", " and ")
        moved = f"{count(self.moved)} of {count(self.n_rows)} top classes move"
        right = f", {count(self.right_before)} of them right before and {count(self.right_after)} after"
        return f"{text.replace(' and gains ', ' and ')} here: {moved}{right if self.moved else ''}."

    def _nll_in_words(self) -> str:
        """Costs 0.040 NLL (95 % interval 0.025 to 0.054)."""
        one, verb = self.nll, "costs" if self.nll.value > 0 else "gains"
        if not (one.measured or one.gained):
            return "no NLL that could be measured"
        if np.isinf(one.value):
            return f"{verb} infinite NLL"
        low, high = sorted((abs(one.low), abs(one.high)))
        return f"{verb} {with_interval(abs(one.value), low, high, self.level, 'NLL')}"

    def _accuracy_in_words(self) -> str:
        """Costs 2.6 points of accuracy (1.1 to 4.1)."""
        one, verb = self.accuracy, "costs" if self.accuracy.value > 0 else "gains"
        if not (one.measured or one.gained):
            return "no accuracy that could be measured"
        low, high = sorted((abs(one.low), abs(one.high)))
        return f"{verb} {points(one.value)} of accuracy ({number(100 * low, 1)} to {number(100 * high, 1)})"

    def _difference(self) -> str:
        """What differs where nothing was measured."""
        if not np.isfinite([self.nll.low, self.nll.high]).all():
            return ""
        if self.moved == 0 and max(abs(self.nll.low), abs(self.nll.high)) < 1e-6:
            return ": the probabilities are the same"
        nll = with_interval(self.nll.value, self.nll.low, self.nll.high, self.level)
        by = self.accuracy.value
        accuracy = f"{'lower' if by > 0 else 'higher'} by {points(by)}" if by else "the same"
        return f": NLL differs by {nll}, accuracy is {accuracy}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {**self.__dict__, "moves": [move.__dict__ for move in self.moves]}
        prices = {name: _finite(getattr(self, name).__dict__) for name in ("nll", "accuracy")}
        return plain | prices | {"sentence": str(self)}


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no infinity."""
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def price_of_order(
    keeping: Any,
    free: Any,
    labels: Any,
    *,
    level: float = 0.95,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> PriceOfOrder:
    """Compare probabilities that keep the order of the classes with some that do not.

    Parameters
    ----------
    keeping, free : array-like of shape (n, m)
        Probabilities of the same rows, by the method that keeps the order and by the one that does not. Rows that neither was
        fitted on, or the price is too high.
    labels : array-like of shape (n,)
    level : float
    class_axis, ignore_index
        As in `evaluate`.

    Returns
    -------
    PriceOfOrder
        With ``str``, a sentence.

    Examples
    --------
    >>> import monocal as mc
    >>> keeping = [[0.6, 0.4]] * 50
    >>> mc.price_of_order(keeping, keeping, [0, 1] * 25).costs
    False
    """
    check_fraction(level, "level")
    layout = Layout(class_axis, ignore_index)
    (one, p_eps), (other, q_eps) = read_two((keeping, free), ("keeping", "free"), layout)
    p, q = (np.asarray(flat.rows) for flat in (one, other))
    labels = by_column(labels, keeping, class_axis, ignore_index, "labels")
    y = read_labels(one.column(labels, "labels", "keeping"), p.shape[1], "labels", ignore_index)
    y, weight, ignored = ignored_rows(y, None, len(p), ignore_index)
    y = np.asarray(check_labels(y, p))
    for block, eps, name in ((p, p_eps, "keeping"), (q, q_eps, "free")):
        check_probability_block(passed_over(block, ignored), eps, name, 0)
    if ignored is not None:
        check_some_weight(bool(weight.any()), ignore_index)
        p, q, y = p[~ignored], q[~ignored], y[~ignored]
    at_label = (np.arange(len(y)), y)
    with np.errstate(divide="ignore"):
        row_nll = [-np.log(x[at_label].astype(np.float64)) for x in (p, q)]
    return price_of_rows(row_nll[0], row_nll[1], p.argmax(axis=1), q.argmax(axis=1), y, level)


def price_of_rows(
    nll_keeping: np.ndarray,
    nll_free: np.ndarray,
    top_keeping: np.ndarray,
    top_free: np.ndarray,
    labels: np.ndarray,
    level: float,
) -> PriceOfOrder:
    """The same from what it takes of each row (n,): NLL and top class by both methods, and the label."""
    y, top = labels, (top_keeping, top_free)
    right = top[0] == y, top[1] == y
    moved = top[0] != top[1]
    return PriceOfOrder(
        nll=_price(paired_difference(nll_keeping, nll_free, level)),
        accuracy=_price(paired_difference(right[1].astype(np.float64), right[0], level)),
        n_rows=len(y),
        moved=int(moved.sum()),
        right_before=int(right[0][moved].sum()),
        right_after=int(right[1][moved].sum()),
        moves=_moves(top[0][moved], top[1][moved], right[0][moved], right[1][moved]),
        level=level,
    )


def _price(difference: Difference) -> Price:
    return Price(difference.mean, difference.low, difference.high)


def _moves(
    before: np.ndarray, after: np.ndarray, right_before: np.ndarray, right_after: np.ndarray
) -> tuple[Move, ...]:
    pairs, of, rows = np.unique(np.stack([before, after]), axis=1, return_inverse=True, return_counts=True)
    was, became = (
        np.bincount(of.ravel(), right, minlength=len(rows)) for right in (right_before, right_after)
    )
    found = [
        Move(int(a), int(b), int(n), int(r), int(s))
        for a, b, n, r, s in zip(*pairs, rows, was, became, strict=True)
    ]
    return tuple(sorted(found, key=lambda move: -move.rows))
