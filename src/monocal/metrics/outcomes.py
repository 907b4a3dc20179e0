"""What every metric needs of a row, from one pass over the probabilities in blocks that fit the cache.

Of row ``p`` with label ``y``: the top confidence ``max_j p_j`` and whether its class is the label, ``p_y``,
the place of ``y`` in the descending order, ``sum_j p_j^2``, and the few entries above the first bin (``p_j
> 1/K``: fewer than K a row, whatever the number of classes), from which class-wise bins follow without
touching the others again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import to_numpy
from ..errors import InputError
from ..inputs.formats import in_dims_of
from ..inputs.layout import ROWS, Flat, Layout
from ..inputs.names import by_column
from ..inputs.top_k import TopK, TopKProbabilities
from ..inputs.validation import (
    check_count,
    check_labels,
    check_probability_rows,
    check_some_weight,
    check_weights,
    ignored_rows,
    read_floats,
    read_matrix,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Entries of a block of rows in double precision: 1 MiB, so that it stays in cache while it is used.
BLOCK_ENTRIES = 1 << 17


def read_scores(values: Any, name: str, layout: Layout = ROWS) -> tuple[Flat, float]:
    """Rows of at least two classes in numpy, and the machine epsilon of the type they came in."""
    values, eps = read_floats(values, name)
    if values.ndim == 1 or tuple(values.shape[1:]) == (1,):
        raise InputError(
            f"{name}: expected shape (n, m) with m >= 2 classes, got {tuple(values.shape)}: for two classes and "
            f"p = P(class 1) give np.column_stack([1 - {name}, {name}])."
        )
    if values.ndim == 2 or not all(values.shape):
        read_matrix(values, name)  # refuses what is empty
    return layout.flat(to_numpy(values), name), eps


def read_two(
    pair: tuple[Any, Any], names: tuple[str, str], layout: Layout
) -> tuple[tuple[Flat, float], tuple[Flat, float]]:
    """Two predictors of the same rows; see `read_scores`."""
    one, other = (read_scores(values, name, layout) for values, name in zip(pair, names, strict=True))
    shape, found = one[0].array.shape, other[0].array.shape
    if found != shape:
        raise InputError(f"{names[1]}: expected the shape of {names[0]}, {shape}, got {found}.")
    return one, other


def passed_over(block: NDArray[Any], ignored: NDArray[np.bool_] | None) -> NDArray[Any]:
    """A block in which rows that do not count are uniform, whatever stood there: it is not looked at."""
    if ignored is None or not ignored.any():
        return block
    return np.where(ignored[:, None], block.dtype.type(1.0 / block.shape[1]), block)


_SOFTMAX = "Logits need a softmax first, for instance scipy.special.softmax(logits, axis=1)."


def check_probability_block(block: NDArray[Any], eps: float, name: str, first_row: int) -> None:
    """Raise unless every row of a block that begins at ``first_row`` is a vector of probabilities."""
    check_probability_rows(block, eps, name, first_row, _SOFTMAX)


def equal_width_edges(n_bins: int) -> Floats:
    """Edges ``k / K`` of K equal bins of [0, 1], each rounded once."""
    return np.arange(n_bins + 1) / n_bins


def bin_index(values: Floats, edges: Floats) -> Integers:
    """Bin of each value: k where ``edges[k] < value <= edges[k + 1]``; 0 is in the first, 1 in the last."""
    return np.searchsorted(edges[1:-1], values, side="left").astype(np.int64)


def bin_totals(index: Integers, values: Floats, n_bins: int) -> Floats:
    """Sum of the values in each bin."""
    return np.asarray(np.bincount(index, values, minlength=n_bins), dtype=np.float64)


def _row_blocks(n: int, m: int) -> Iterator[slice]:
    """Slices of rows that hold about `BLOCK_ENTRIES` entries each."""
    step = max(1, BLOCK_ENTRIES // m)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


@dataclass(frozen=True)
class Entries:
    """The probabilities above the first class-wise bin, one array element each."""

    row: Integers
    cls: Integers
    bin: Integers
    value: Floats


@dataclass(frozen=True)
class Outcomes:
    """Per-row quantities of (n, m) probabilities and (n,) labels; all arrays have shape (n,).

    Rows of weight zero are left out; `kept` says which of those given are here.
    """

    probs: Flat  # as given, those of weight zero included
    labels: Integers
    weight: Floats
    n_bins: int
    predicted: Integers
    confidence: Floats
    correct: Floats
    label_prob: Floats
    label_rank: Integers
    square_sum: Floats
    entries: Entries | None
    column_totals: Floats  # (m,): sum of weight * probability
    kept: slice | NDArray[np.bool_]
    class_count: int | None = None  # where there are more classes than columns

    @property
    def n_classes(self) -> int:
        return int(self.class_count or self.probs.rows.shape[1])

    def check_ranks(self, k: int) -> None:
        """Refuse to look for labels among the k largest where fewer are known."""
        if self.class_count is not None and k > self.probs.rows.shape[1]:
            raise InputError(
                f"top_k_accuracy: the rows name {self.probs.rows.shape[1]} classes, and {k} are asked for. Ask for fewer."
            )

    @property
    def n_given(self) -> int:
        """Rows given, those of weight zero included."""
        return len(self.labels) if isinstance(self.kept, slice) else len(self.kept)

    @classmethod
    def of(
        cls,
        probs: Any,
        labels: Any,
        sample_weight: Any = None,
        layout: Layout = ROWS,
        *,
        n_bins: int = 15,
        classwise: bool = False,
        names: tuple[str, str] = ("probs", "labels"),
        part: bool = False,
    ) -> Outcomes:
        """Validate and read once; ``classwise`` keeps the entries that class-wise bins need.

        Rows that are a ``part`` of more may all have weight zero.
        """
        if isinstance(probs, TopK | TopKProbabilities):
            from .top_k import outcomes

            return outcomes(
                probs,
                labels,
                sample_weight,
                layout,
                n_bins=n_bins,
                classwise=classwise,
                names=names,
                part=part,
            )
        labels = in_dims_of(probs, labels, layout.class_axis, names[1], names[0])
        labels = by_column(labels, probs, layout.class_axis, layout.ignore_index, names[1])
        sample_weight = in_dims_of(probs, sample_weight, layout.class_axis, "sample_weight", names[0])
        given, eps = read_scores(probs, names[0], layout)
        array = given.rows
        n, m = array.shape
        y = given.column(labels, names[1], names[0])
        w = given.column(sample_weight, "sample_weight", names[0])
        y, w, ignored = ignored_rows(y, w, n, layout.ignore_index)
        y = check_labels(y, array, names[1], rows=names[0])
        weight = check_weights(w, array, first_row=0)
        weight = np.ones(n) if weight is None else weight
        if not part:
            check_some_weight(bool(weight.any()), layout.ignore_index)
        kept: slice | NDArray[np.bool_] = slice(None)
        counts = None
        if not weight.all():
            kept = counts = weight > 0
            y, weight = y[kept], weight[kept]
        n_bins = check_count(n_bins, "n_bins")
        edges = equal_width_edges(n_bins)
        n_kept = len(y)
        confidence, label_prob, square_sum = np.empty(n_kept), np.empty(n_kept), np.empty(n_kept)
        correct, rank = np.empty(n_kept), np.zeros(n_kept, dtype=np.int64)
        predicted = np.empty(n_kept, dtype=np.int64)
        totals = np.zeros(m)
        none = np.zeros(0, dtype=np.int64)
        found: list[tuple[Integers, Integers, Floats]] = [(none, none, np.zeros(0))]
        start = 0
        for block_rows in _row_blocks(n, m):
            block = np.ascontiguousarray(array[block_rows], dtype=np.float64)
            block = passed_over(block, None if ignored is None else ignored[block_rows])
            check_probability_block(block, eps, names[0], block_rows.start)
            if counts is not None:
                block = block[counts[block_rows]]
            rows = slice(start, start + len(block))
            start = rows.stop
            index, label = np.arange(len(block)), y[rows]
            top = predicted[rows] = block.argmax(axis=1)
            confidence[rows], label_prob[rows] = block[index, top], block[index, label]
            correct[rows] = top == label
            square_sum[rows] = np.einsum("ij,ij->i", block, block)
            wrong = np.flatnonzero(top != label)  # the label's place is zero everywhere else
            rank[rows.start + wrong] = _rank_of_label(block[wrong], label[wrong])
            if classwise:
                totals += weight[rows] @ block
                flat = np.flatnonzero(block > edges[1])
                found.append((rows.start + flat // m, flat % m, block.ravel()[flat]))
        entries = None
        if classwise:
            row, column, value = (np.concatenate(part) for part in zip(*found, strict=True))
            entries = Entries(row, column, bin_index(value, edges), value)
        return cls(
            given,
            y,
            weight,
            n_bins,
            predicted,
            confidence,
            correct,
            label_prob,
            rank,
            square_sum,
            entries,
            totals,
            kept,
        )

    def of_class(self, label: int) -> Floats:
        """The probability of one class in each row."""
        return np.asarray(self.probs.rows[:])[:, label][self.kept].astype(np.float64)

    @cached_property
    def top_bin(self) -> Integers:
        """Equal-width bin of the top confidence."""
        return bin_index(self.confidence, equal_width_edges(self.n_bins))

    @cached_property
    def label_bin(self) -> Integers:
        """Equal-width bin of the label's probability."""
        return bin_index(self.label_prob, equal_width_edges(self.n_bins))

    @cached_property
    def by_confidence(self) -> Integers:
        """Rows in ascending order of confidence."""
        return np.argsort(self.confidence, kind="stable")


def _rank_of_label(block: Floats, labels: Integers) -> Integers:
    """Classes ahead of the label: larger probability, or an equal one and a lower class number."""
    own = block[np.arange(len(block)), labels][:, None]
    rank = np.count_nonzero(block > own, axis=1).astype(np.int64)
    tied = np.flatnonzero(np.count_nonzero(block == own, axis=1) > 1)
    ahead = np.arange(block.shape[1]) < labels[tied, None]
    rank[tied] += np.count_nonzero((block[tied] == own[tied]) & ahead, axis=1)
    return rank
