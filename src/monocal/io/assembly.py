"""Raw arrays of a file -> a `LogitsSet`:  values (n, m) as floating-point numbers, labels (n,) in 0..m-1.

Every change on the way (labels from one-hot rows, two classes from one column, probabilities rounded to few digits) is stated in
``notes``. Values that look like something other than what they are said to be are refused in commands and warned of in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, KindError, warn, wording
from monocal.inputs.layout import Flat, Layout
from monocal.inputs.names import classes_of, listing, numbered_columns, numbers_of, same_class
from monocal.inputs.validation import check_logits, check_probabilities, check_weights, rounding_of
from monocal.io.columns import TWO_CLASSES, refuse_words
from monocal.io.logits_set import LogitsSet
from monocal.io.named_arrays import is_number

_BLOCK = 1 << 22  # elements checked together, so that checks need little memory apart from the array
_LARGE_LOG_ODDS = 30.0  # P = 1 - 1e-13


@dataclass
class Assembly:
    """Raw arrays on their way to a `LogitsSet`; ``where`` and the like are what messages call them."""

    values: np.ndarray
    where: str
    labels: np.ndarray | None = None
    labels_where: str = ""
    weights: np.ndarray | None = None
    weights_where: str = "weights"
    class_names: tuple[str, ...] | None = None
    first_column: int | None = None
    many: bool = False
    notes: list[str] = field(default_factory=list)

    def finish(
        self,
        kind: str | None,
        *,
        stated: bool,
        strict: bool,
        first_label: int | None = None,
        known_classes: Sequence[str] | None = None,
        class_axis: int | None = None,
        ignore_index: int | None = None,
        unknown: Sequence[int] = (),
    ) -> LogitsSet:
        """Bring the arrays into the one form, or say what is wrong with them.

        ``kind`` was ``stated`` by the caller, or is what a name says. An array of more axes becomes rows of its classes, of which
        those with the label ``ignore_index`` are left out. Labels that are ``unknown`` become -1. A memory-mapped array is looked
        at in its first block only; the rest is checked when a calibrator reads it.
        """
        places = self._flatten(class_axis, ignore_index)
        if self.labels is not None and ignore_index is not None:
            self._leave_out(ignore_index)
        scale = self._scale(kind, stated, strict)
        values = self._as_values(scale)
        kind = "logits" if scale == "logits" else "probabilities"
        check_values(values, kind, self.where, sums=not self.many)
        labels = self.labels
        if not self.many:
            hidden = {
                form(one)
                for one in unknown
                if str(one) not in (self.class_names or ())
                for form in (int, str)
            }
            self._name_classes(values.shape[1], known_classes, hidden)
            labels = (
                None if labels is None else self._class_numbers(labels, values.shape, first_label, hidden)
            )
        elif labels is not None:
            labels = _zeros_and_ones(labels, values.shape, self.labels_where)
        try:
            flat = None if self.weights is None else np.ravel(self.weights)
            weights = check_weights(flat, values, name=self.weights_where)
        except InputError as error:
            raise FileError(str(error)) from error
        return LogitsSet(
            values,
            labels,
            kind,  # type: ignore[arg-type]  # one of the two
            notes=tuple(self.notes),
            class_names=self.class_names,
            weights=weights,
            places_of=places,
            first_column=self.first_column,
            many_labels=self.many,
        )

    def _flatten(self, class_axis: int | None, ignore_index: int | None) -> Flat | None:
        shape, of_labels = self.values.shape, None if self.labels is None else self.labels.shape
        fitting = [i for i in range(len(shape)) if of_labels == shape[:i] + shape[i + 1 :]]
        if class_axis is None and len(shape) > 2 and fitting != [len(shape) - 1]:
            raise FileError(
                f"{self.where} has shape {shape}: say which axis the classes are in, {wording('class_axis=', 1)} for images "
                f"(n, m, h, w), {wording('class_axis=', -1)} for sequences (n, t, m)."
            )
        layout = Layout(-1 if class_axis is None else class_axis, ignore_index)
        if len(shape) <= 2 and layout.is_plain(self.values):
            return None
        places = layout.flat(self.values, self.where)
        self.values = places.rows if isinstance(self.values, np.memmap) else np.asarray(places.rows)
        self.labels = places.column(self.labels, self.labels_where, self.where)
        self.weights = places.column(self.weights, self.weights_where, self.where)
        n, m = self.values.shape
        self.notes.append(f"shape {shape} was read as {n:,} rows of {m:,} classes")
        return places

    def _leave_out(self, ignore_index: int) -> None:
        labels = np.asarray(self.labels).reshape(-1)
        counts = labels != ignore_index
        if not counts.any():
            raise FileError(
                f"{self.labels_where}: every label is {ignore_index}, which {wording('ignore_index=')} leaves out: give some of "
                "classes."
            )
        if counts.all() or len(counts) != len(self.values):
            return
        self.notes.append(f"{np.count_nonzero(~counts):,} rows with the label {ignore_index} were left out")
        self.values, self.labels = np.asarray(self.values)[counts], labels[counts]
        if self.weights is not None:
            self.weights = np.asarray(self.weights).reshape(-1)[counts]

    # Values

    def _scale(self, kind: str | None, stated: bool, strict: bool) -> str:
        """What values are, ``logits``, ``probabilities`` or ``percent``, unless they look like something else."""
        looks = _looks_like(self.values)
        if kind == "percent" and looks == "probabilities":  # of a rare event all may be below 1 %
            warn(
                f"{self.where}: percent lie between 0 and 100, but all values lie between 0 and 1. If they are probabilities, "
                f"say {wording('kind=', 'probabilities')}."
            )
        if looks in (None, kind) or (stated and (kind, looks) != ("probabilities", "percent")):
            return kind or "logits"
        span = "0 and 1, as probabilities do" if looks == "probabilities" else "0 and 100, as percent do"
        message = (
            f"all values lie between {span}. Say {wording('kind=', looks)}, or {wording('kind=', 'logits')} if they are logits"
            f"{' (log-odds)' * _is_column(self.values)}."
        )
        if strict or kind == "probabilities":
            raise KindError(f"{self.where}: {message}")
        warn(f"{self.where}: it is taken as logits, but {message}")
        return "logits"

    def _as_values(self, scale: str) -> np.ndarray:
        """Rows (n, m) of floating-point numbers; two classes from one column."""
        values, where = self.values, self.where
        mapped = isinstance(values, np.memmap)
        if values.ndim and len(values) == 0:
            raise FileError(f"{where} has shape {values.shape}: there are no rows.")
        refuse_words(values, where)
        if values.dtype.kind not in "fiu":
            raise FileError(
                f"{where} has dtype {values.dtype}: expected numbers of type float16, float32 or float64."
            )
        if scale == "percent":
            self.notes.append("percent were divided by 100")
            values = np.asarray(values) / 100
        if _is_column(values) and not mapped and (values.dtype.kind == "f" or scale != "logits"):
            what, score = ("logit" if scale == "logits" else "probability"), values.reshape(-1)
            self.notes.append(f"one column was read as the {what} of class 1 of two classes")
            values = np.stack([0 * score if scale == "logits" else 1 - score, score], axis=1)
        if values.ndim != 2 or values.shape[1] < 2 - self.many:
            raise FileError(
                f"{where} has shape {values.shape} and dtype {values.dtype}: expected (n, m), one row per sample and one column "
                "per class, with n >= 1 and m >= 2."
            )
        if mapped:
            return values
        if values.dtype.kind != "f":
            self.notes.append(f"{values.dtype} values were widened to {float_type(values.dtype)}")
        values = values.astype(float_type(values.dtype), copy=False)
        return values if scale == "logits" or self.many else _renormalised(values, self.notes)

    # Labels

    def _name_classes(self, m: int, known_classes: Sequence[str] | None, hidden: set[int | str]) -> None:
        """Names of all classes: those of the fit, if labels are among them; of two in one column (``prob_spam``), or of no and
        yes, from the labels.
        """
        names, words = self.class_names, []
        if self.labels is not None and self.labels.ndim == 1 and self.labels.dtype.kind in "OU":
            words = sorted({str(word).strip() for word in self.labels} - hidden)
        fitted = classes_of(known_classes or ())
        if names is None and words and len(fitted) == m and None not in numbers_of(words, fitted):
            names = fitted
        if names is not None and len(names) == 1 and m == 2:
            others = [word for word in words if same_class(word) != same_class(names[0])]
            names = (others[0], names[0]) if len(words) == 2 and len(others) == 1 else None
        if names is None and m == len(words) == 2:
            by_case = {word.lower(): word for word in words}
            pair = next((pair for pair in TWO_CLASSES if set(pair) == by_case.keys()), None)
            names = pair and (by_case[pair[0]], by_case[pair[1]])
        if names is not None and len(names) != m:
            raise InputError(
                f"{wording('classes=')} gives {len(names)} names, {listing(names)}, and {self.where} has {m} classes: give one "
                "for each, in the order of the columns."
            )
        self.class_names = names

    def _class_numbers(
        self, labels: np.ndarray, shape: tuple[int, ...], first_label: int | None, hidden: set[int | str]
    ) -> np.ndarray | None:
        """Labels as int64 of shape (n,), from names or numbers of shape (n,) or (n, 1), or from one-hot rows (n, m).

        Those that are ``hidden`` become -1, all of them None.
        """
        (n, m), where = shape, self.labels_where
        if labels.dtype.kind not in "fiubUOS" or labels.ndim == 0 or labels.shape[1:] not in ((), (1,), (m,)):
            raise FileError(
                f"{where} has shape {labels.shape} and dtype {labels.dtype}: expected class numbers ({n},), ({n}, 1) or one-hot "
                f"({n}, {m}); for labels of pixels or tokens say {wording('class_axis=')}, the axis of the classes."
            )
        if len(labels) != n:
            raise FileError(
                f"{where} has {len(labels)} rows and the values have {n}: expected one label per row."
            )
        if labels.shape[1:] == (m,):
            right = is_one_hot(labels)
            if not right.all():
                raise FileError(
                    f"{where} has shape {labels.shape}, so rows must be one-hot, but row {int(np.argmin(right))} is not: "
                    "expected a single 1 among zeros, or plain class numbers."
                )
            self.notes.append(f"one-hot labels of shape {labels.shape} were read as class numbers")
            return labels.argmax(axis=1)
        if labels.ndim == 2:
            self.notes.append(f"labels of shape {labels.shape} were flattened")
            labels = labels.reshape(-1)
        if labels.dtype.kind in "OUS":
            labels = np.array([str(word).strip() for word in labels], dtype=str)
        distinct, place = np.unique(labels, return_inverse=True)
        known = [label for label in distinct.tolist() if label not in hidden]
        if not known:
            return None
        class_of = self._classes_of_labels(known, m, first_label)
        numbers = np.array([class_of.get(label, -1) for label in distinct.tolist()], dtype=np.int64)
        wrong = [label not in class_of and label not in hidden for label in distinct.tolist()]
        if any(wrong):
            row = int(np.argmax(np.array(wrong)[place]))
            raise FileError(
                f"{where} has {labels[row].item()!r} in row {row}{self._expected(known, m, first_label)}"
            )
        numbers = numbers[place.reshape(-1)]
        if len(known) < len(distinct):
            self.notes.append(f"{np.count_nonzero(numbers < 0):,} rows have a label that is not known")
        return numbers

    def _classes_of_labels(self, labels: list[Any], m: int, first_label: int | None) -> dict[Any, int]:
        """The class of each label that names or numbers one.

        Where columns only number the classes, ``first_column`` is the first number. With ``first_label`` labels number the
        columns, whatever these are called.
        """
        names, where = self.class_names, self.labels_where
        if isinstance(labels[0], str):
            numbers = [None] if names is None or first_label is not None else numbers_of(labels, names)
            if None not in numbers:
                self.notes.append("labels are names of classes, matched with the columns")
            if not all(map(is_number, labels)):
                if first_label is not None:
                    raise FileError(
                        f"{where} holds names such as {labels[-1]!r}: leave {wording('first_label=')} out."
                    )
                if names is None:
                    ways = [wording("classes=", ",".join(order)) for order in (labels, labels[::-1])]
                    advice = f"say {' or '.join(ways)}, last the class that a large score means"
                    if len(labels) != 2:
                        advice = f"name the classes in the order of the columns with {wording('classes=')}"
                    raise FileError(
                        f"{where} holds names, {listing(labels, 4)}, but no column is called so: {advice}."
                    )
            if None not in numbers or not all(map(is_number, labels)):
                pairs = zip(labels, numbers, strict=True)
                return {label: number for label, number in pairs if number is not None}
        columns = self._numbered_columns(m, first_label)
        if columns is None:
            signs = m == 2 and not names and first_label is None and {-1, 1} == set(map(float, labels))
            if signs:
                self.notes.append("labels -1 and 1 were read as 0 and 1")
            columns = {-1: 0, 1: 1} if signs else {(first_label or 0) + j: j for j in range(m)}
        else:
            self.notes.append("labels are the numbers by which the columns are called")
        return {label: columns[int(float(label))] for label in labels if float(label) in columns}

    def _numbered_columns(self, m: int, first_label: int | None) -> dict[int, int] | None:
        first = self.first_column
        names = self.class_names or ([] if first is None else [str(first + j) for j in range(m)])
        return None if first_label is not None else numbered_columns(names)

    def _expected(self, labels: list[Any], m: int, first_label: int | None) -> str:
        """What labels should have been, for messages."""
        names, first = self.class_names, first_label or 0
        numbers = [float(label) for label in labels if is_number(label)]
        if len(numbers) < len(labels):
            return (
                f" (counting from 0), which is none of the classes {listing(names or ())}: correct the label, or name the "
                f"columns of all classes with {wording('values=')}."
            )
        columns = self._numbered_columns(m, first_label)
        if columns is not None:
            return (
                f", and the columns are called {listing(columns)}: labels are the names of the columns where these are whole "
                f"numbers. Correct the label, or say {wording('first_label=', 0)} if labels count the columns from 0."
            )
        hint = "drop the row or correct the label"
        if min(numbers) >= 1 and max(numbers) == m:
            hint = f"they seem to count from 1: if so, say {wording('first_label=', 1)}"
        return f": expected a whole number from {first} to {m - 1 + first}; {hint}."


def _is_column(values: np.ndarray) -> bool:
    return values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)


def _looks_like(values: np.ndarray) -> str | None:
    """What the numbers themselves look like, by the first block; None where they may well be logits."""
    if values.dtype.kind not in "fiu" or values.ndim not in (1, 2) or 0 in values.shape:
        return None
    block = next(_blocks(values if values.ndim == 2 else values.reshape(-1, 1)))[1].astype(np.float64)
    low, high = float(block.min()), float(block.max())
    if not low >= 0 or low == high or high > 101:
        return None
    if high <= 1:
        return "probabilities"
    if block.shape[1] == 1:
        return "percent" if high > _LARGE_LOG_ODDS else None
    off = np.abs(block.sum(axis=1) - 100)
    return "percent" if bool((off <= min(5.0, block.shape[1] / 2)).all()) else None


def float_type(dtype: np.dtype) -> np.dtype:
    """In which type numbers from a file are handled: floating, in the machine's byte order, of at most 8 bytes."""
    if dtype.kind != "f":
        return np.result_type(dtype, np.float32)
    return np.dtype(f"f{min(dtype.itemsize, 8)}")


def _renormalised(values: np.ndarray, notes: list[str]) -> np.ndarray:
    """Rows divided by their sum where they miss 1 by no more than the rounding of their entries: m / 200 at two decimals."""
    if values.dtype.itemsize < 4 or not (values.min(initial=0) >= 0):
        return values
    total = values.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(np.abs(total - 1) > 1e-6)
    off = off[np.abs(total[off] - 1) <= rounding_of(values[off], (1, 2, 3, 4))]
    if not off.size:
        return values
    notes.append(
        f"{off.size:,} rows missed 1 by the rounding of their entries and were divided by their sums"
    )
    values = values.copy()
    values[off] = values[off] / total[off, None]
    return values


def _blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, _BLOCK // max(1, values.shape[1]))
    last = step if isinstance(values, np.memmap) else len(values)
    for start in range(0, last, step):
        yield start, np.asarray(values[start : start + step])


def check_values(values: np.ndarray, kind: str, where: str, *, sums: bool = True) -> None:
    """Refuse what no calibrator takes: nan, +inf, and probabilities that are none."""
    advice = (
        f"If these are logits, say {wording('kind=', 'logits')}; else correct the row, or name the columns of the classes with "
        f"{wording('values=')}."
    )
    for start, block in _blocks(values):
        try:
            if kind == "probabilities" and sums:
                check_probabilities(block, where, start, advice)
                continue
            check_logits(block, where, start)
        except InputError as error:
            raise FileError(str(error)) from error
        outside = ~((block >= 0) & (block <= 1)).all(axis=1)
        if kind == "probabilities" and outside.any():
            row = start + int(np.argmax(outside))
            raise FileError(f"{where}: row {row} has values that are not between 0 and 1. {advice}")


def is_one_hot(labels: np.ndarray) -> np.ndarray:
    """Which rows have a single 1 among zeros."""
    if labels.dtype.kind not in "fiub":
        return np.zeros(len(labels), bool)
    return np.asarray(((labels == 0) | (labels == 1)).all(axis=1) & (labels.sum(axis=1) == 1))


def _zeros_and_ones(labels: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Many labels: 0, 1, and -1 where it is not known whether a row has a label."""
    numbers = np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels
    if numbers.dtype.kind not in "fiub" or not np.isin(numbers, (-1, 0, 1)).all() or numbers.shape != shape:
        raise FileError(
            f"{where} holds other things than 0, 1 and blank: expected these for each of {shape[1]} labels."
        )
    return numbers.astype(np.int64)
