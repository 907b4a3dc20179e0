"""The price of order: what a method that keeps the order of the classes loses to one that does not, on the same rows.

    price in NLL = mean_n [ log p_free(y_n) - log p_keep(y_n) ],        price in accuracy = accuracy_free - accuracy_keep

with intervals ``mean ± z sd / sqrt(n)`` of the paired differences. Beside it, which top classes moved: from what to what, and how
many were right before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inputs.layout import Layout
from ..inputs.names import by_column
from ..inputs.validation import check_fraction, check_labels, check_some_weight, ignored_rows
from .outcomes import check_probability_block, passed_over, read_two
from .paired import NEGLIGIBLE, Difference, paired_difference
from .units import count, number, points, with_interval


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

    def __str__(self) -> str:
        if not self.costs:
            return f"Keeping the order costs nothing that could be measured here{self._difference()}."
        costs = []
        if self.nll.measured:
            costs.append(with_interval(self.nll.value, self.nll.low, self.nll.high, self.level, "NLL"))
        if self.accuracy.measured:
            low, high = (number(100 * end, 1) for end in (self.accuracy.low, self.accuracy.high))
            costs.append(f"{points(self.accuracy.value)} of accuracy ({low} to {high})")
        else:
            costs.append("no accuracy that could be measured")
        moved = f"{count(self.moved)} of {count(self.n_rows)} top classes move"
        right = f", {count(self.right_before)} of them right before and {count(self.right_after)} after"
        return f"Keeping the order costs {' and '.join(costs)} here: {moved}{right if self.moved else ''}."

    def _difference(self) -> str:
        """What was found where no cost was measured."""
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
    y, weight, ignored = ignored_rows(one.column(labels, "labels", "keeping"), None, len(p), ignore_index)
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


def _price(found: Difference) -> Price:
    return Price(found.mean, found.low, found.high)


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
