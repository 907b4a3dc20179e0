"""The price of order: what a method that keeps the order of the classes loses to one that does not, on the same rows.

    price in NLL = mean_n [ log p_free(y_n) - log p_keep(y_n) ],        price in accuracy = accuracy_free - accuracy_keep

with intervals ``mean ± z sd / sqrt(n)`` of the paired differences. Beside it, which top classes moved: from what to what, and how
many were right before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from ..errors import InputError
from ..validation import check_fraction, check_labels
from .outcomes import check_probability_block, read_scores


@dataclass(frozen=True)
class Price:
    """A mean of paired differences and its interval; positive where keeping the order costs something."""

    value: float
    low: float
    high: float

    @property
    def measured(self) -> bool:
        """Whether the interval excludes zero, on the side of a cost."""
        return self.low > 0


@dataclass(frozen=True)
class Move:
    """Rows whose top class went from ``before`` to ``after``, and how many of them were right before and after."""

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
        within = f"{100 * self.level:g} % interval"
        if not self.costs:
            return (
                f"Keeping the order costs nothing that could be measured here (NLL {self.nll.value:+.4f}, {within} "
                f"{self.nll.low:+.4f} to {self.nll.high:+.4f}; accuracy {100 * self.accuracy.value:+.1f} points)."
            )
        return (
            f"Keeping the order costs {self.nll.value:.3f} NLL ({within} {self.nll.low:.3f} to {self.nll.high:.3f}) and "
            f"{100 * self.accuracy.value:.1f} points of accuracy ({100 * self.accuracy.low:.1f} to "
            f"{100 * self.accuracy.high:.1f}) here: {self.moved} of {self.n_rows} top classes move, {self.right_before} of them "
            f"right before and {self.right_after} after."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {**self.__dict__, "moves": [move.__dict__ for move in self.moves]}
        prices = {name: _finite(getattr(self, name).__dict__) for name in ("nll", "accuracy")}
        return plain | prices | {"sentence": str(self)}


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no infinity."""
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def price_of_order(keeping: Any, free: Any, labels: Any, *, level: float = 0.95) -> PriceOfOrder:
    """Compare probabilities that keep the order of the classes with some that do not.

    Parameters
    ----------
    keeping, free : array-like of shape (n, m)
        Probabilities of the same rows, by the method that keeps the order and by the one that does not. Rows that neither was
        fitted on, or the price is too high.
    labels : array-like of shape (n,)
    level : float

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
    (p, p_eps), (q, q_eps) = read_scores(keeping, "keeping"), read_scores(free, "free")
    if p.shape != q.shape:
        raise InputError(f"free: expected the shape of keeping, {p.shape}, got {q.shape}.")
    for block, eps, name in ((p, p_eps, "keeping"), (q, q_eps, "free")):
        check_probability_block(block, eps, name, 0)
    y = np.asarray(check_labels(labels, p))
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
    with np.errstate(invalid="ignore"):
        cost = np.where(nll_keeping == nll_free, 0.0, nll_keeping - nll_free)
    right = top[0] == y, top[1] == y
    moved = top[0] != top[1]
    return PriceOfOrder(
        nll=_price(cost, level),
        accuracy=_price(right[1].astype(np.float64) - right[0], level),
        n_rows=len(y),
        moved=int(moved.sum()),
        right_before=int(right[0][moved].sum()),
        right_after=int(right[1][moved].sum()),
        moves=_moves(top[0][moved], top[1][moved], right[0][moved], right[1][moved]),
        level=level,
    )


def _price(difference: np.ndarray, level: float) -> Price:
    with np.errstate(invalid="ignore"):
        mean = float(difference.mean())
    if (
        len(difference) < 2 or not np.isfinite(difference).all()
    ):  # a label with probability zero: the sign is all there is
        return Price(mean, -np.inf, np.inf)
    room = float(norm.ppf((1 + level) / 2) * difference.std(ddof=1) / np.sqrt(len(difference)))
    return Price(mean, mean - room, mean + room)


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
