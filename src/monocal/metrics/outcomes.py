"""What every metric needs of a row, from one pass over the probabilities in blocks that fit the cache.

Of row ``p`` with label ``y``: the top confidence ``max_j p_j`` and whether its class is the label, ``p_y``, the
rank of ``y`` in descending order, ``sum_j p_j^2``, and the few entries above the first bin (``p_j > 1/K``: fewer
than K a row, whatever the number of classes), from which class-wise bins follow without the others.

With two classes one column is enough, P(class 1). Of `TopK` rows, the k largest probabilities and the mass of the
others,

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
                f"{name}: one column must hold P(class 1), from 0 to 1, but row {row} holds {p[row]}. Log-odds need a sigmoid "
                "first (scipy.special.expit), percentages a division by 100, other scores a calibrator (BinaryMCCT)."
            )
        values = np.column_stack([1 - p, p])
    if values.ndim == 2 or not all(values.shape):
        read_matrix(values, name)  # refuses what is empty
    return layout.flat(to_numpy(values), name), eps


def read_labels(labels: Any, n_classes: int, name: str = "labels", ignore_index: int | None = None) -> Any:
    """Numbers of the classes for labels that are names, or -1 and +1; anything else as it is.

    Names are in the order of the columns of scikit-learn's ``predict_proba``: sorted.
    """
    if labels is None:
        return None
    values = to_numpy(as_array(labels))
    values = values if isinstance(values, np.ndarray) else np.asarray(values)
    if values.dtype.kind in "OUST" and values.size and all(isinstance(v, str | bytes) for v in values.flat):
        names, numbers = np.unique(values.astype(str), return_inverse=True)
        if len(names) != n_classes:
            raise InputError(
                f"{name}: {len(names)} different names for {n_classes} classes. Where some have no rows, number the classes "
                "from 0 in the order of the columns."
            )
        return numbers.reshape(values.shape)
    if n_classes == 2 and ignore_index != -1 and values.dtype.kind in "if":
        negative = values == -1
        if negative.any() and (negative | (values == 1)).all():
            return np.where(negative, 0, 1)
    return labels


def _check_one_column(probs: Any, y: Any, names: tuple[str, str], ignore_index: int | None) -> None:
    """One column is P(class 1): labels of more classes are those of other probabilities."""
    shape = tuple(probs.shape) if hasattr(probs, "shape") else np.shape(probs)
    if len(shape) > 1 and shape[1:] != (1,):
        return
    values = np.asarray(to_numpy(as_array(y)))
    other = values[~(np.isin(values, (0, 1)) | (values == ignore_index))]
    if len(other):
        raise InputError(
            f"{names[0]} has shape {shape}, which is P(class 1) of two classes, but {names[1]} holds {other.flat[0]!s}. "
            "Give 0 and 1, -1 and +1, False and True, or two names; of more classes one column for each, np.column_stack([...])."
        )


def _warn_of_other_names(rows: Any, labels: Any, numbers: Any, name: str) -> None:
    """Warn where labels are two names and probabilities of the second are larger in rows of the first."""
    if numbers is labels or np.shape(numbers) != (len(rows),) or not isinstance(rows, np.ndarray):
        return
    names = np.asarray(to_numpy(as_array(labels)))
    words = np.unique(names.astype(str)) if names.dtype.kind in "OUST" else ()
    if len(words) != 2:
        return
    if rows[numbers == 0, -1].mean() > rows[numbers == 1, -1].mean():
        first, second = map(str, words)
        warn(
            f"{name}: names are taken in alphabetical order, so that P(class 1) is that of {second!r}, but it is larger in rows "
            f"of {first!r}. If it is of {first!r}, pass {name} == {first!r}."
        )


def passed_over(block: NDArray[Any], ignored: NDArray[np.bool_] | None) -> NDArray[Any]:
    """A block in which rows that do not count are uniform, whatever the values there: they are not read."""
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

    Rows of weight zero are left out; `kept` says which of those passed are here.
    """

    probs: Flat  # as passed, rows of weight zero included
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
        """Refuse to look for labels among the k largest where fewer are listed."""
        if self.class_count is not None and k > self.probs.rows.shape[1]:
            raise InputError(
                f"top_k_accuracy: the rows name {self.probs.rows.shape[1]} classes, and {k} are asked for. Ask for fewer."
            )

    @property
    def n_given(self) -> int:
        """Rows passed, those of weight zero included."""
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
        n_bins = check_count(n_bins, "n_bins")
        if isinstance(probs, TopK | TopKProbabilities):
            return _of_top_k(probs, labels, sample_weight, layout, n_bins, classwise, names, part)
        labels = in_dims_of(probs, labels, layout.class_axis, names[1], names[0])
        labels = by_column(labels, probs, layout.class_axis, layout.ignore_index, names[1])
        sample_weight = in_dims_of(probs, sample_weight, layout.class_axis, "sample_weight", names[0])
        flat, eps = read_scores(probs, names[0], layout)
        n, m = flat.rows.shape
        y = read_labels(flat.column(labels, names[1], names[0]), m, names[1], layout.ignore_index)
        _check_one_column(probs, y, names, layout.ignore_index)
        _warn_of_other_names(flat.rows, labels, y, names[1])
        w = flat.column(sample_weight, "sample_weight", names[0])
        y, w, ignored = ignored_rows(y, w, n, layout.ignore_index)
        y = check_labels(y, flat.rows, names[1], rows=names[0])
        weight = check_weights(w, flat.rows, first_row=0)
        weight = np.ones(n) if weight is None else weight
        if not part:
            check_some_weight(bool(weight.any()), layout.ignore_index)
        kept: slice | NDArray[np.bool_] = slice(None)
        if not weight.all():
            kept = weight > 0
            y, weight = y[kept], weight[kept]
        columns = _read_blocks(flat.rows, eps, y, weight, n_bins, classwise, names[0], kept, ignored)
        return cls(probs=flat, labels=y, weight=weight, n_bins=n_bins, kept=kept, **columns)

    def of_class(self, label: int) -> Floats:
        """The probability of one class in each row."""
        return np.asarray(self.probs.rows[:])[:, label][self.kept].astype(np.float64)

    @cached_property
    def positive(self) -> Outcomes:
        """Of two classes: the same rows with P(class 1) as confidence, which is right where the label is 1."""
        return replace(self, confidence=self.of_class(1), correct=(self.labels == 1).astype(np.float64))

    @cached_property
    def top_bin(self) -> Integers:
        """Equal-width bin of the confidence."""
        return bin_index(self.confidence, equal_width_edges(self.n_bins))

    @cached_property
    def label_bin(self) -> Integers:
        """Equal-width bin of the label's probability."""
        return bin_index(self.label_prob, equal_width_edges(self.n_bins))

    @cached_property
    def by_confidence(self) -> Integers:
        """Rows in ascending order of confidence."""
        return np.argsort(self.confidence, kind="stable")


def _read_blocks(
    array: Any,
    eps: float,
    y: Integers,
    weight: Floats,
    n_bins: int,
    classwise: bool,
    name: str,
    kept: slice | NDArray[np.bool_],
    ignored: NDArray[np.bool_] | None,
) -> dict[str, Any]:
    """The fields of `Outcomes` that are read off the probabilities."""
    (n, m), n_kept, edges = array.shape, len(y), equal_width_edges(n_bins)
    confidence, label_prob, square_sum, correct = np.empty((4, n_kept))
    rank, predicted = np.zeros((2, n_kept), dtype=np.int64)
    totals, parts, start = np.zeros(m), [], 0
    step = max(1, BLOCK_ENTRIES // m)
    for block_rows in (slice(first, min(first + step, n)) for first in range(0, n, step)):
        block = np.ascontiguousarray(array[block_rows], dtype=np.float64)
        block = passed_over(block, None if ignored is None else ignored[block_rows])
        check_probability_block(block, eps, name, block_rows.start)
        if not isinstance(kept, slice):
            block = block[kept[block_rows]]
        rows = slice(start, start + len(block))
        start = rows.stop
        index, label = np.arange(len(block)), y[rows]
        top = predicted[rows] = block.argmax(axis=1)
        confidence[rows], label_prob[rows] = block[index, top], block[index, label]
        correct[rows] = top == label
        square_sum[rows] = np.einsum("ij,ij->i", block, block)
        wrong = np.flatnonzero(top != label)  # the label's rank is zero everywhere else
        rank[rows.start + wrong] = _rank_of_label(block[wrong], label[wrong])
        if classwise:
            totals += weight[rows] @ block
            cell = np.flatnonzero(block > edges[1])
            parts.append((rows.start + cell // m, cell % m, block.ravel()[cell]))
    entries = None
    if classwise:
        row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        entries = Entries(row, column, bin_index(value, edges), value)
    return {
        "predicted": predicted,
        "confidence": confidence,
        "correct": correct,
        "label_prob": label_prob,
        "label_rank": rank,
        "square_sum": square_sum,
        "entries": entries,
        "column_totals": totals,
    }


def _rank_of_label(block: Floats, labels: Integers) -> Integers:
    """Classes ahead of the label: larger probability, or an equal one and a lower class number."""
    own = block[np.arange(len(block)), labels][:, None]
    rank = np.count_nonzero(block > own, axis=1).astype(np.int64)
    tied = np.flatnonzero(np.count_nonzero(block == own, axis=1) > 1)
    ahead = np.arange(block.shape[1]) < labels[tied, None]
    rank[tied] += np.count_nonzero((block[tied] == own[tied]) & ahead, axis=1)
    return rank


def _of_top_k(
    probs: TopK | TopKProbabilities,
    labels: Any,
    sample_weight: Any,
    layout: Layout,
    n_bins: int,
    classwise: bool,
    names: tuple[str, str],
    part: bool,
) -> Outcomes:
    if classwise:
        raise InputError(
            f"{names[0]}: the rows name their largest probabilities alone (TopK), and metrics by class need all. Leave out those "
            "by class: classwise_ece, brier_calibration, brier_refinement and those of two classes."
        )
    listed = probs.probabilities() if isinstance(probs, TopK) else probs
    rows = listed.rows
    labels, sample_weight, _ = ignored_rows(labels, sample_weight, len(rows), layout.ignore_index)
    y = rows.class_numbers(labels, names[1], names[0])
    weight = check_weights(sample_weight, rows.values, first_row=0)
    weight = np.ones(len(y)) if weight is None else weight
    if not part:
        check_some_weight(bool(weight.any()), layout.ignore_index)
    p, index = listed.probabilities, np.arange(len(y))
    column = rows.label_column(y)
    is_listed = column < p.shape[1]
    label_prob = np.where(is_listed, p[index, np.minimum(column, p.shape[1] - 1)], listed.each)
    top = p.argmax(axis=1)
    predicted = listed.ids[index, top].astype(np.int64)
    # Ahead of the label: more probable, or as probable and with a lower number; all listed ones, where the label is not listed.
    ahead = (p > label_prob[:, None]) | ((p == label_prob[:, None]) & (listed.ids < y[:, None]))
    ahead = np.where(is_listed[:, None], ahead, np.isfinite(rows.values)) & np.isfinite(rows.values)
    kept = slice(None) if weight.all() else weight > 0
    largest = int(max(y.max(initial=0), listed.ids.max(initial=0))) + 1
    return Outcomes(
        probs=ROWS.flat(p),
        labels=y[kept],
        weight=weight[kept],
        n_bins=n_bins,
        predicted=predicted[kept],
        confidence=p[index, top][kept],
        correct=(predicted == y).astype(np.float64)[kept],
        label_prob=label_prob[kept],
        label_rank=np.count_nonzero(ahead, axis=1).astype(np.int64)[kept],
        square_sum=(np.square(p).sum(axis=1) + rows.other_count * listed.each**2)[kept],
        entries=None,
        column_totals=np.zeros(0),
        kept=kept,
        class_count=rows.n_classes or largest,
    )
