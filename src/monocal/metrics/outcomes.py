"""What every metric needs of a row, from one pass over the probabilities in blocks that fit the cache.

Of row ``p`` with label ``y``: the top confidence ``max_j p_j`` and whether its class is the label, ``p_y``, the rank of ``y`` in
descending order and ``sum_j p_j^2``. Class-wise bins are summed in the same pass from the few entries above the first bin
(``p_j > 1/K``: fewer than K a row, whatever the number of classes).

With two classes one column is enough, P(class 1). Of `TopK` rows, the k largest probabilities and the mass of the others,

    p_y = p_each  where the label is not listed,      sum_j p_j^2 = sum over the listed + N p_each^2

give everything but ranks below the k-th and errors by class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import to_numpy
from ..errors import InputError, warn
from ..inputs.formats import as_array, in_dims_of
from ..inputs.layout import ROWS, Flat, Layout
from ..inputs.names import by_column
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
from ..llm.top_k import TopK, TopKProbabilities

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Entries of a block of rows in double precision: 1 MiB, so that it stays in cache while it is used.
BLOCK_ENTRIES = 1 << 17
_SOFTMAX = "Logits need a softmax first, for instance scipy.special.softmax(logits, axis=1)."


def read_scores(values: Any, name: str, layout: Layout = ROWS) -> tuple[Flat, float]:
    """Rows of at least two classes in numpy, and the machine epsilon of the type they came in."""
    values, eps = read_floats(values, name)
    if values.ndim == 1 or tuple(values.shape[1:]) == (1,):
        p = to_numpy(values).reshape(-1)
        with np.errstate(invalid="ignore"):
            outside = np.flatnonzero(~((p >= 0) & (p <= 1)))
        if len(outside):
            row = int(outside[0])
            raise InputError(
                f"{name}: one column must hold P(class 1), from 0 to 1, but row {row} holds {p[row]}. Log-odds need a "
                "sigmoid first (scipy.special.expit), percentages a division by 100, other scores a calibrator (BinaryMCCT)."
            )
        values = np.column_stack([1 - p, p])
    if values.ndim == 2 or not all(values.shape):
        read_matrix(values, name)  # refuses what is empty
    return layout.flat(to_numpy(values), name), eps


def _read_labels(labels: Any, flat: Flat, name: str, layout: Layout) -> Any:
    """Class numbers for labels that are names, in sorted order as in scikit-learn, or -1 and +1; others as they are."""
    if labels is None:
        return None
    n_classes = flat.rows.shape[1]
    values = np.asarray(to_numpy(as_array(labels)))
    if values.dtype.kind in "OUST" and values.size and all(isinstance(v, str | bytes) for v in values.flat):
        names, numbers = np.unique(values.astype(str), return_inverse=True)
        if len(names) != n_classes:
            raise InputError(
                f"{name}: {len(names)} different names for {n_classes} classes. Where some have no rows, number the "
                "classes from 0 in the order of the columns."
            )
        numbers = numbers.reshape(values.shape)
        if n_classes == 2 and numbers.shape == (len(flat.rows),):
            _warn_of_reversed_names(flat.rows, numbers, names, name)
        return numbers
    if n_classes == 2 and layout.ignore_index != -1 and values.dtype.kind in "if":
        negative = values == -1
        if negative.any() and (negative | (values == 1)).all():
            return np.where(negative, 0, 1)
    return labels


def _warn_of_reversed_names(rows: Any, numbers: Integers, names: Any, name: str) -> None:
    """Warn where the probabilities of the second name are larger in rows of the first."""
    p = np.asarray(rows[:])[:, 1]
    if p[numbers == 0].mean() > p[numbers == 1].mean():
        first, second = map(str, names)
        warn(
            f"{name}: names are taken in alphabetical order, so that P(class 1) is that of {second!r}, but it is larger in "
            f"rows of {first!r}. If it is of {first!r}, pass {name} == {first!r}."
        )


def _check_one_column(probs: Any, y: Any, names: tuple[str, str], ignore_index: int | None) -> None:
    """One column is P(class 1): labels of more classes belong to other probabilities."""
    shape = tuple(probs.shape) if hasattr(probs, "shape") else np.shape(probs)
    if len(shape) > 1 and shape[1:] != (1,):
        return
    values = np.asarray(to_numpy(as_array(y)))
    other = values[~(np.isin(values, (0, 1)) | (values == ignore_index))]
    if len(other):
        raise InputError(
            f"{names[0]} has shape {shape}, which is P(class 1) of two classes, but {names[1]} holds {other.flat[0]!s}. Give "
            "0 and 1, -1 and +1, False and True, or two names; of more classes one column for each, np.column_stack([...])."
        )


def without_ignored(block: NDArray[Any], ignored: NDArray[np.bool_] | None) -> NDArray[Any]:
    """A block in which rows that do not count are uniform, whatever their values are."""
    if ignored is None or not ignored.any():
        return block
    return np.where(ignored[:, None], block.dtype.type(1.0 / block.shape[1]), block)


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
    return np.asarray(np.bincount(index, values, minlength=n_bins), dtype=np.float64)


@dataclass(frozen=True)
class Outcomes:
    """Numbers of every row of (n, m) probabilities and (n,) labels; rows of weight zero are left out."""

    probs: Flat  # as passed, rows of weight zero included
    labels: Integers
    weight: Floats
    n_bins: int
    kept: slice | NDArray[np.bool_]  # which of the rows passed have a weight
    predicted: Integers
    confidence: Floats
    correct: Floats
    label_prob: Floats
    label_rank: Integers
    square_sum: Floats
    classwise: Floats | None = None  # (4, m, K): sums in bins of every class, see `BinSums`
    class_count: int | None = None  # of rows that list their largest probabilities only

    @property
    def n_classes(self) -> int:
        return int(self.class_count or self.probs.rows.shape[1])

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes with both probabilities, so that errors are those of P(class 1)."""
        return self.n_classes == 2 and self.class_count is None

    @property
    def n_passed(self) -> int:
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
        """Validate and read once; ``classwise`` also sums the bins of every class.

        Rows that are a ``part`` of more may all have weight zero.
        """
        n_bins = check_count(n_bins, "n_bins")
        if isinstance(probs, TopK | TopKProbabilities):
            if classwise:
                raise InputError(
                    f"{names[0]}: the rows name their largest probabilities alone (TopK), and metrics by class need all. Leave "
                    "out those by class: classwise_ece, brier_calibration, brier_refinement and those of two classes."
                )
            return cls._of_top_k(probs, labels, sample_weight, layout, n_bins, names, part)
        labels = in_dims_of(probs, labels, layout.class_axis, names[1], names[0])
        labels = by_column(labels, probs, layout.class_axis, layout.ignore_index, names[1])
        sample_weight = in_dims_of(probs, sample_weight, layout.class_axis, "sample_weight", names[0])
        flat, eps = read_scores(probs, names[0], layout)
        y = _read_labels(flat.column(labels, names[1], names[0]), flat, names[1], layout)
        _check_one_column(probs, y, names, layout.ignore_index)
        w = flat.column(sample_weight, "sample_weight", names[0])
        y, w, ignored = ignored_rows(y, w, len(flat.rows), layout.ignore_index)
        y = check_labels(y, flat.rows, names[1], rows=names[0])
        weight, kept = _weights(w, flat.rows, layout, part)
        y = y[kept]
        bins = n_bins if classwise else 0
        columns = _read_blocks(flat.rows, eps, y, weight, kept, ignored, names[0], bins)
        return cls(flat, y, weight, n_bins, kept, *columns)

    @classmethod
    def _of_top_k(
        cls,
        probs: TopK | TopKProbabilities,
        labels: Any,
        sample_weight: Any,
        layout: Layout,
        n_bins: int,
        names: tuple[str, str],
        part: bool,
    ) -> Outcomes:
        listed = probs.probabilities() if isinstance(probs, TopK) else probs
        rows = listed.rows
        labels, sample_weight, _ = ignored_rows(labels, sample_weight, len(rows), layout.ignore_index)
        y = rows.class_numbers(labels, names[1], names[0])
        weight, kept = _weights(sample_weight, rows.values, layout, part)
        p, index, column = listed.probabilities, np.arange(len(y)), rows.label_column(y)
        is_listed = column < p.shape[1]
        label_prob = np.where(is_listed, p[index, np.minimum(column, p.shape[1] - 1)], listed.each)
        top = p.argmax(axis=1)
        predicted = listed.ids[index, top].astype(np.int64)
        # Ahead of the label: more probable, or as probable with a lower number; all that are listed, where the label is not.
        ahead = (p > label_prob[:, None]) | ((p == label_prob[:, None]) & (listed.ids < y[:, None]))
        ahead = (ahead | ~is_listed[:, None]) & np.isfinite(rows.values)
        columns: dict[str, Any] = {
            "predicted": predicted,
            "confidence": p[index, top],
            "correct": (predicted == y).astype(np.float64),
            "label_prob": label_prob,
            "label_rank": np.count_nonzero(ahead, axis=1).astype(np.int64),
            "square_sum": np.square(p).sum(axis=1) + rows.rest_count * listed.each**2,
        }
        columns = {name: column[kept] for name, column in columns.items()}
        largest = int(max(y.max(initial=0), listed.ids.max(initial=0))) + 1
        classes = rows.n_classes or largest
        return cls(ROWS.flat(p), y[kept], weight, n_bins, kept, **columns, class_count=classes)

    def of_class(self, label: int) -> Floats:
        """The probability of one class in each row."""
        return np.asarray(self.probs.rows[:])[:, label][self.kept].astype(np.float64)

    @cached_property
    def positive(self) -> Outcomes:
        """Of two classes: the same rows with P(class 1) as confidence, which is right where the label is 1."""
        return replace(self, confidence=self.of_class(1), correct=(self.labels == 1).astype(np.float64))

    @cached_property
    def top_bin(self) -> Integers:
        return bin_index(self.confidence, equal_width_edges(self.n_bins))

    @cached_property
    def by_confidence(self) -> Integers:
        return np.argsort(self.confidence, kind="stable")


def _weights(
    sample_weight: Any, like: Any, layout: Layout, part: bool
) -> tuple[Floats, slice | NDArray[np.bool_]]:
    """Weights of the rows that count, and which these are."""
    weight = check_weights(sample_weight, like, first_row=0)
    weight = np.ones(len(like)) if weight is None else weight
    if not part:
        check_some_weight(bool(weight.any()), layout.ignore_index)
    if weight.all():
        return weight, slice(None)
    return weight[weight > 0], weight > 0


def _read_blocks(
    array: Any,
    eps: float,
    y: Integers,
    weight: Floats,
    kept: slice | NDArray[np.bool_],
    ignored: NDArray[np.bool_] | None,
    name: str,
    n_bins: int,
) -> tuple[Any, ...]:
    """The numbers of every row, in the order of the fields of `Outcomes`; with ``n_bins`` also the class-wise sums."""
    n, m = array.shape
    confidence, correct, label_prob, square_sum = np.empty((4, len(y)))
    predicted, rank = np.zeros((2, len(y)), dtype=np.int64)
    column_totals, entries, stop = np.zeros(m), [], 0
    step = max(1, BLOCK_ENTRIES // m)
    for first in range(0, n, step):
        passed = slice(first, min(first + step, n))
        block = np.ascontiguousarray(array[passed], dtype=np.float64)
        block = without_ignored(block, None if ignored is None else ignored[passed])
        check_probability_block(block, eps, name, first)
        if not isinstance(kept, slice):
            block = block[kept[passed]]
        rows = slice(stop, stop + len(block))
        stop = rows.stop
        index, label = np.arange(len(block)), y[rows]
        top = predicted[rows] = block.argmax(axis=1)
        confidence[rows], label_prob[rows] = block[index, top], block[index, label]
        correct[rows] = top == label
        square_sum[rows] = np.einsum("ij,ij->i", block, block)
        wrong = np.flatnonzero(top != label)  # the label's rank is zero everywhere else
        rank[rows.start + wrong] = _rank_of_label(block[wrong], label[wrong])
        if n_bins:
            column_totals += weight[rows] @ block
            cell = np.flatnonzero(block > 1 / n_bins)
            entries.append((rows.start + cell // m, cell % m, block.ravel()[cell]))
    sums = None
    if n_bins:
        sums = _classwise_sums(entries, column_totals, y, label_prob, weight, n_bins)
    return predicted, confidence, correct, label_prob, rank, square_sum, sums


def _classwise_sums(
    entries: list[Any], column_totals: Floats, y: Integers, label_prob: Floats, weight: Floats, n_bins: int
) -> Floats:
    """(4, m, K): entries above the first bin are summed, the first is what is left."""
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    m, edges, w = len(column_totals), equal_width_edges(n_bins), weight[row]
    cell = column * n_bins + bin_index(value, edges)
    sums = [bin_totals(cell, one, m * n_bins).reshape(m, n_bins) for one in (w, w**2, w * value)]
    totals = (weight.sum(), weight @ weight, column_totals)
    for one, total in zip(sums, totals, strict=True):
        one[:, 0] = total - one[:, 1:].sum(axis=1)
    correct = bin_totals(y * n_bins + bin_index(label_prob, edges), weight, m * n_bins)
    return np.stack([*sums, correct.reshape(m, n_bins)])


def _rank_of_label(block: Floats, labels: Integers) -> Integers:
    """Classes ahead of the label: larger probability, or an equal one and a lower class number."""
    own = block[np.arange(len(block)), labels][:, None]
    rank = np.count_nonzero(block > own, axis=1).astype(np.int64)
    tied = np.flatnonzero(np.count_nonzero(block == own, axis=1) > 1)
    ahead = np.arange(block.shape[1]) < labels[tied, None]
    rank[tied] += np.count_nonzero((block[tied] == own[tied]) & ahead, axis=1)
    return rank
