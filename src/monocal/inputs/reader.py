"""The reader: checks rows of logits or probabilities, whatever they come in, and turns them into logits.

    logits = log p,     a probability of zero counts as half the smallest positive one

All rows pass through here once, in memory or block by block, in fitting and in predicting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, beside, device_of, is_torch, ordered_log, row_sums, to_numpy
from ..parallel import available_threads, parallel_sum, row_slices
from .context import ContextReader, check_context_rows
from .layout import ROWS, Layout
from .validation import (
    Given,
    check_label_available,
    check_labels,
    check_logits,
    check_probabilities,
    check_some_weight,
    check_weights,
    ignored_rows,
    read_matrix,
    sum_of_all,
)

# Rows of probabilities that sum to one but for more than this were rounded to a few decimals.
_ROUNDED = 1e-3
# Numbers that one thread adds up about as fast as others can be woken.
_WORTH_SHARING = 2**20


@dataclass(frozen=True)
class Checked:
    """Checked rows with their labels, and weights where some were given."""

    logits: Array  # (n, m)
    labels: Array  # (n,)
    weight: Array | None  # (n,)
    context: np.ndarray | None = None  # (n, C), on the host wherever the logits are

    def __getitem__(self, index: Any) -> Checked:
        weight = None if self.weight is None else self.weight[index]
        context = (
            None if self.context is None else self.context[to_numpy(index) if is_torch(index) else index]
        )
        return Checked(self.logits[index], self.labels[index], weight, context)

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @property
    def n_rows(self) -> int:
        return len(self)

    @property
    def that_count(self) -> Checked:
        """The rows that have a weight."""
        if self.weight is None or bool(array_namespace(self.weight).all(self.weight > 0)):
            return self
        return self[self.weight > 0]

    def on_host(self) -> Checked:
        """The same as numpy arrays."""
        weight = None if self.weight is None else to_numpy(self.weight)
        return Checked(to_numpy(self.logits), to_numpy(self.labels), weight, self.context)


def _shared_total(z: Array) -> float:
    """`validation.sum_of_all` as a number, on threads where there is much to add."""
    if not isinstance(z, np.ndarray) or z.size < _WORTH_SHARING:
        return float(sum_of_all(z))
    # Two for each thread: threads that call Python often wait for one another.
    size = -(-len(z) // (2 * available_threads()))
    # Python's own numbers overflow without a warning.
    return parallel_sum(lambda block: float(sum_of_all(z[block])), row_slices(z, size))


@dataclass(frozen=True)
class Reader:
    """How rows are read.

    Attributes
    ----------
    input : {"logits", "probabilities"}
    smallest : float
        The smallest positive probability of the calibration rows.
    context : ContextReader or None
        How what is known of rows beside their logits is read; None where nothing is.
    layout : Layout
        Where the classes are, and which labels do not count.
    """

    input: str = "logits"
    smallest: float = np.inf
    context: ContextReader | None = None
    layout: Layout = ROWS

    def values(self, X: Any, first_row: int = 0) -> Given:
        """Checked values in the caller's library. Rows may be a part of more that begins at ``first_row``."""
        if self.input == "probabilities":
            return check_probabilities(X, first_row=first_row)
        return check_logits(X, first_row=first_row, total=_shared_total)

    def checked(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        first_row: int | None = None,
        context: np.ndarray | None = None,
        *,
        learning: bool = True,
    ) -> tuple[Reader, Checked]:
        """Rows as logits, with their labels, weights, and context as `ContextReader.codes` gives it; and the reader that has
        seen them.

        Rows may be a part of more that begins at ``first_row``; then all may be without weight. Without ``learning`` the reader
        stays as it is, and a label may be of a masked class: its likelihood is 0.
        """
        begin = first_row or 0
        given = read_matrix(X)
        n = given.values.shape[0]
        y, sample_weight, ignored = ignored_rows(y, sample_weight, n, self.layout.ignore_index)
        if ignored is not None:
            given = self.without(given, ignored)
        given = self.values(given, begin)
        values = given.values
        learnt = self.having_seen(values) if learning else self
        labels = check_labels(y, values, first_row=begin)
        weight = check_weights(sample_weight, values, first_row=begin)
        if first_row is None and weight is not None:
            check_some_weight(bool(array_namespace(weight).any(weight > 0)), self.layout.ignore_index)
        logits = learnt.logits(values)
        if learning and not given.finite:
            check_label_available(logits, labels, weight, first_row=begin)
        check_context_rows(context, n, begin)
        return learnt, Checked(logits, labels, weight, context)

    def without(self, given: Given, ignored: np.ndarray) -> Given:
        """The same rows with something harmless where they are ignored: whatever stood there, it is not looked at."""
        values = given.values
        xp = array_namespace(values)
        harmless = 1.0 / values.shape[1] if self.input == "probabilities" else 0.0
        fill = xp.asarray(harmless, dtype=values.dtype, **device_of(values))
        return given._replace(values=xp.where(beside(ignored, values)[:, None], fill, values))

    def having_seen(self, values: Array) -> Reader:
        """The reader that knows these rows are among those of the calibration set."""
        if self.input != "probabilities":
            return self
        xp = array_namespace(values)
        p = xp.astype(values, xp.float64)
        least = float(xp.min(_positive(p) / _off_one(p)))
        return replace(self, smallest=min(least, self.smallest))

    def logits(self, values: Array) -> Array:
        """Logarithms of probabilities; logits as they are.

        A zero is no mask here but an underflow or an empty count: it stands for half the smallest positive probability of the
        calibration set (or of its own row, if that is smaller). Rows of rounded numbers are made to sum to one.
        """
        if self.input != "probabilities":
            return values
        xp = array_namespace(values)
        narrow = values.dtype != xp.float64
        p = xp.astype(values, xp.float64)
        total = _off_one(p)
        row_least = xp.min(_positive(p), axis=1, keepdims=True)
        least = xp.where(row_least > self.smallest * total, self.smallest * total, row_least)
        filled = xp.where(p > 0, p, least)
        # Neighbours in a narrower type are so far apart that the double logarithm cannot swap them.
        logs = xp.log(filled) if narrow else xp.asarray(ordered_log(to_numpy(filled)), **device_of(p))
        return xp.where(p > 0, logs, logs - np.log(2.0)) - xp.log(total)


def _positive(p: Array) -> Array:
    """Probabilities, those of zero as infinity."""
    xp = array_namespace(p)
    return xp.where(p > 0, p, xp.asarray(np.inf, dtype=p.dtype, **device_of(p)))


def _off_one(p: Array) -> Array:
    """What rows of probabilities sum to, (n, 1), where that is more than rounding errors off one; else 1."""
    xp = array_namespace(p)
    total = row_sums(p)
    return xp.where(abs(total - 1.0) > _ROUNDED, total, xp.ones_like(total))
