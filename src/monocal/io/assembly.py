"""Raw arrays of a file -> a `LogitsSet`:  values (n, m) in floating point, labels (n,) in 0..m-1.

Every change on the way (labels from one-hot rows, two classes from one column, probabilities rounded to
few digits) is stated in ``notes``. Values that look like something other than what they are said to be
are refused in commands and warned of in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, KindError, warn, wording
from monocal.inputs.layout import Flat, Layout
from monocal.inputs.names import classes_of, listing, numbered_columns, numbers_of, same_class
from monocal.inputs.validation import check_logits, check_probabilities, check_weights, rounding_of
from monocal.io.columns import CALIBRATED, TWO_CLASSES, Choice, refuse_words
from monocal.io.logits_set import LogitsSet
from monocal.io.named_arrays import is_number

_BLOCK = 1 << 22  # elements checked together, so that checks need little memory apart from the array
_LARGE_LOG_ODDS = 30.0  # P = 1 - 1e-13


class Assembly:
    """Raw arrays on their way to a `LogitsSet`, less rows with missing values.

    Labels are ``own_labels`` of the file, or ``other`` labels and what messages call them.
    """

    def __init__(
        self,
        choice: Choice,
        own_labels: Sequence[str],
        other: tuple[np.ndarray, str] | None,
        classes: Sequence[str] | None,
        many: bool,
        drop_missing: bool,
    ):
        source = choice.source
        self.title, self.notes = source.title, [*source.notes]
        names_of = choice.names_of_classes if not classes and len(choice.names_of_classes) == 1 else []
        names = [*choice.values, *own_labels, *([choice.weights] if choice.weights else []), *names_of]
        arrays = dict(zip(names, source.load(names), strict=True))  # together: a table is parsed once
        one_hot = not choice.pairs or is_one_hot(np.column_stack(source.load(choice.labels))).all()
        self.many = many or not one_hot
        of_rows = {
            n: a for n, a in arrays.items() if n not in names_of and not (self.many and n in own_labels)
        }
        if other is not None:
            of_rows[other[1]] = other[0]
        kept, self.kept = self._complete(of_rows, drop_missing)
        arrays |= kept
        if self.kept is not None and self.many:
            arrays |= {name: arrays[name][self.kept] for name in own_labels}
        if source.table and all(name.endswith(CALIBRATED) for name in choice.values):
            self.notes.append(f"{listing(choice.values, 3)} was read, which apply has calibrated")
        for name in choice.values if source.table else ():  # whole numbers are numbers like others
            arrays[name] = arrays[name].astype(float) if arrays[name].dtype.kind in "iu" else arrays[name]
        self.where = f"{listing(choice.values, 3)} in {self.title}"
        self.values = joined([arrays[name] for name in choice.values], self.where)
        self.labels, self.labels_where = None, f"{listing(own_labels, 3)} in {self.title}"
        if own_labels:
            self.labels = joined([arrays[name] for name in own_labels], self.labels_where)
        elif other is not None:
            self.labels, self.labels_where = arrays[other[1]], other[1]
        self.weights = arrays[choice.weights] if choice.weights else None
        self.weights_where = f"{choice.weights!r} in {self.title}"
        self.class_names = tuple(classes) if classes else choice.class_names
        if names_of:
            self.class_names = tuple(map(str, arrays[names_of[0]].ravel()))

    def _complete(
        self, arrays: dict[str, np.ndarray], drop: bool
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """The arrays without rows in which one of them lacks a value, and which rows are left (None: all)."""
        n = next((len(array) for array in arrays.values() if array.ndim), 0)
        of_rows = {name: array for name, array in arrays.items() if array.ndim and len(array) == n}
        gaps = {name: lacks for name, array in of_rows.items() if (lacks := _missing(array)).any()}
        if not gaps:
            return arrays, None
        rows = np.any(list(gaps.values()), axis=0)
        if rows.all() or not drop:
            each = ", ".join(f"{lacks.sum():,} in {name!r}" for name, lacks in list(gaps.items())[:4])
            raise FileError(
                f"{self.title} has missing values in {rows.sum():,} of {n:,} rows ({each}), first in row "
                f"{int(np.argmax(rows))} (counting from 0): fill them, or leave these rows out with "
                f"{wording('drop_missing=True')}."
            )
        self.notes.append(f"rows with missing values were left out, {n - rows.sum():,} are read")
        left = {name: array[~rows] for name, array in of_rows.items()}
        for name, array in left.items():
            if array.dtype == object and all(map(is_number, array.flat)):  # words stood in such rows alone
                left[name] = array.astype(np.float64)
        return {**arrays, **left}, np.flatnonzero(~rows)

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

        ``kind`` was ``stated`` by the caller, or is what a name says. Of a memory-mapped array only the
        first block is looked at; the rest is checked when a calibrator reads it.
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
                f(one) for one in unknown if str(one) not in (self.class_names or ()) for f in (int, str)
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
            many_labels=self.many,
            kept=self.kept,
        )

    def _flatten(self, class_axis: int | None, ignore_index: int | None) -> Flat | None:
        shape, of_labels = self.values.shape, None if self.labels is None else self.labels.shape
        fitting = [i for i in range(len(shape)) if of_labels == shape[:i] + shape[i + 1 :]]
        if class_axis is None and len(shape) > 2 and fitting != [len(shape) - 1]:
            raise FileError(
                f"{self.where} has shape {shape}: say which axis the classes are in, "
                f"{wording('class_axis=', 1)} for images (n, m, h, w), {wording('class_axis=', -1)} for "
                "sequences (n, t, m)."
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
            raise FileError(f"{self.labels_where}: every label is {ignore_index}, which does not count.")
        if counts.all() or len(counts) != len(self.values):
            return
        self.notes.append(f"{np.count_nonzero(~counts):,} rows with the label {ignore_index} were left out")
        self.values, self.labels = np.asarray(self.values)[counts], labels[counts]
        self.weights = None if self.weights is None else np.ravel(self.weights)[counts]

    # Values

    def _scale(self, kind: str | None, stated: bool, strict: bool) -> str:
        """``logits``, ``probabilities`` or ``percent``, unless the values look like something else."""
        looks = _looks_like(self.values)
        if kind == "percent" and looks == "probabilities":  # of a rare event all may be below 1 %
            warn(
                f"{self.where}: percent lie between 0 and 100, but all values lie between 0 and 1. If they "
                f"are probabilities, say {wording('kind=', 'probabilities')}."
            )
        if looks in (None, kind) or (stated and (kind, looks) != ("probabilities", "percent")):
            return kind or "logits"
        message = (
            f"all values lie between 0 and {1 if looks == 'probabilities' else 100}, as {looks} do. Say "
            f"{wording('kind=', looks)}, or {wording('kind=', 'logits')} if they are logits."
        )
        if strict or kind == "probabilities":
            raise KindError(f"{self.where}: {message}")
        warn(f"{self.where}: it is taken as logits, but {message}")
        return "logits"

    def _as_values(self, scale: str) -> np.ndarray:
        """Rows (n, m) of floating-point numbers; two classes from one column."""
        values, where = self.values, self.where
        mapped = isinstance(values, np.memmap)
        if len(values.shape) and len(values) == 0:
            raise FileError(f"{where} has shape {values.shape}: there are no rows.")
        refuse_words(values, where)
        wrong = FileError(
            f"{where} has shape {values.shape} and dtype {values.dtype}: expected numbers (n, m), one row per "
            "sample and one column per class, with n >= 1 and m >= 2."
        )
        if values.dtype.kind not in "fiu":
            raise wrong
        if scale == "percent":
            self.notes.append("percent were divided by 100")
            values = np.asarray(values) / 100
        column = values.ndim == 1 or values.shape[1:] == (1,)
        if column and not mapped and (values.dtype.kind == "f" or scale != "logits"):
            what, score = ("logit" if scale == "logits" else "probability"), values.reshape(-1)
            self.notes.append(f"one column was read as the {what} of class 1 of two classes")
            values = np.stack([0 * score if scale == "logits" else 1 - score, score], axis=1)
        if values.ndim != 2 or values.shape[1] < 2 - self.many:
            raise wrong
        if mapped:
            return values
        if values.dtype.kind != "f":
            self.notes.append(f"{values.dtype} values were widened to {float_type(values.dtype)}")
        values = values.astype(float_type(values.dtype), copy=False)
        return values if scale == "logits" or self.many else self._renormalised(values)

    def _renormalised(self, values: np.ndarray) -> np.ndarray:
        """Rows over their sum where they miss 1 by the rounding of their entries: m / 200 at two decimals."""
        if values.dtype.itemsize < 4 or not (values.min(initial=0) >= 0):
            return values
        total = values.sum(axis=1, dtype=np.float64)
        off = np.flatnonzero(np.abs(total - 1) > 1e-6)
        off = off[np.abs(total[off] - 1) <= rounding_of(values[off], (1, 2, 3, 4))]
        if off.size:
            self.notes.append(
                f"{off.size:,} rows missed 1 by the rounding of their entries and were divided by their sums"
            )
            values = values.copy()
            values[off] = values[off] / total[off, None]
        return values

    # Labels

    def _name_classes(self, m: int, known_classes: Sequence[str] | None, hidden: set[int | str]) -> None:
        """Names of all classes: those of the fit, if labels are among them; of two, also from labels."""
        names, words = self.class_names, []
        if self.labels is not None and self.labels.ndim == 1 and self.labels.dtype.kind in "OU":
            words = sorted({str(word).strip() for word in self.labels} - hidden)
        fitted = classes_of(known_classes or ())
        if names is None and words and len(fitted) == m and None not in numbers_of(words, fitted):
            names = fitted
        if names is not None and len(names) == 1 and m == 2:  # prob_spam, and labels ham and spam
            others = [word for word in words if same_class(word) != same_class(names[0])]
            names = (others[0], names[0]) if len(words) == 2 and len(others) == 1 else None
        if names is None and m == len(words) == 2:
            by_case = {word.lower(): word for word in words}
            pair = next((pair for pair in TWO_CLASSES if set(pair) == by_case.keys()), None)
            names = pair and (by_case[pair[0]], by_case[pair[1]])
        if names is not None and len(set(names)) != m:
            raise InputError(
                f"{wording('classes=')} gives {len(names)} names, {listing(names)}, and {self.where} has {m} "
                "classes: give a name for each, in the order of the columns."
            )
        self.class_names = names

    def _class_numbers(
        self, labels: np.ndarray, shape: tuple[int, ...], first_label: int | None, hidden: set[int | str]
    ) -> np.ndarray | None:
        """Labels as int64 (n,), from names or numbers (n,) or (n, 1), or from one-hot rows (n, m).

        Those that are ``hidden`` become -1, all of them None.
        """
        (n, m), where = shape, self.labels_where
        if labels.shape not in ((n,), (n, 1), (n, m)) or labels.dtype.kind not in "fiubUOS":
            raise FileError(
                f"{where} has {len(np.atleast_1d(labels))} rows, shape {labels.shape} and dtype {labels.dtype}, "
                f"and the values have {n}: expected ({n},) or one-hot ({n}, {m}); for pixels or tokens say "
                f"{wording('class_axis=')}."
            )
        if labels.shape == (n, m):
            right = is_one_hot(labels)
            if not right.all():
                raise FileError(
                    f"{where} has shape {labels.shape}, so rows must be one-hot, but row "
                    f"{int(np.argmin(right))} is not: expected a single 1 among zeros."
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
        class_of, expected = self._classes_of_labels(known, m, first_label)
        wrong = np.array([one not in class_of and one not in hidden for one in distinct.tolist()])
        if wrong.any():
            row = int(np.argmax(wrong[place]))
            raise FileError(f"{where} has {labels[row].item()!r} in row {row} (counting from 0): {expected}")
        numbers = np.array([class_of.get(one, -1) for one in distinct.tolist()], dtype=np.int64)[place]
        if len(known) < len(distinct):
            self.notes.append(f"{np.count_nonzero(numbers < 0):,} rows have a label that is not known")
        return numbers

    def _classes_of_labels(
        self, labels: list[Any], m: int, first_label: int | None
    ) -> tuple[dict[Any, int], str]:
        """The class of each label that names or numbers one, and what a message says was expected.

        With ``first_label`` labels number the columns, whatever these are called.
        """
        names, where = self.class_names, self.labels_where
        numeric = not isinstance(labels[0], str) or all(map(is_number, labels))
        if isinstance(labels[0], str) and first_label is None and names is not None:
            numbers = numbers_of(labels, names)
            if not numeric or None not in numbers:
                self.notes.append("labels are names of classes, matched with the columns")
                pairs = zip(labels, numbers, strict=True)
                return (
                    {label: number for label, number in pairs if number is not None},
                    f"it is none of the classes {listing(names)}; correct the label, or name the columns of "
                    f"all classes with {wording('values=')}.",
                )
        if not numeric:
            orders = [",".join(order) for order in (labels, labels[::-1])]
            advice = (
                f"{wording('classes=', orders[0])} or {wording('classes=', orders[1])}, last the class that "
            )
            advice += "a large score means"
            raise FileError(
                f"{where} holds names, {listing(labels, 4)}, but no column is called so: say "
                f"{advice if len(labels) == 2 else wording('classes=') + ' in the order of the columns'}."
            )
        columns = None if first_label is not None else numbered_columns(names or ())
        first, values = first_label or 0, list(map(float, labels))
        if columns:
            self.notes.append("labels are the numbers by which the columns are called")
            expected = f"labels are the names of the columns, {listing(columns)}; correct the label, or say "
            expected += f"{wording('first_label=', 0)} if labels count the columns from 0."
        elif m == 2 and not names and first_label is None and set(values) == {-1, 1}:
            self.notes.append("labels -1 and 1 were read as 0 and 1")
            columns, expected = {-1: 0, 1: 1}, ""
        else:
            columns = {first + j: j for j in range(m)}
            expected = f"expected a whole number from {first} to {m - 1 + first}; drop the row or correct it."
            if min(values) >= 1 and max(values) == m:
                expected = f"labels seem to count from 1: if so, say {wording('first_label=', 1)}."
        return {one: columns[int(v)] for one, v in zip(labels, values, strict=True) if v in columns}, expected


def joined(arrays: list[np.ndarray], where: str) -> np.ndarray:
    """One array of columns; a single one stays as it is."""
    if len(arrays) == 1:
        return arrays[0]
    for array in arrays:
        refuse_words(array, where)
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        raise FileError(
            f"{where}: expected columns with one number per row, got shapes {arrays[0].shape}, ..."
        )
    return np.column_stack(arrays)


def _missing(array: np.ndarray) -> np.ndarray:
    """Which rows lack a value: NaN, None or blank text. A mapped array is not looked at."""
    if array.ndim not in (1, 2) or isinstance(array, np.memmap) or array.dtype.kind not in "fOU":
        return np.zeros(0, bool)
    if array.dtype.kind == "f":
        lacks = np.isnan(array)
    else:
        cells = [cell is None or cell != cell or not str(cell).strip() for cell in array.ravel().tolist()]
        lacks = np.array(cells, dtype=bool).reshape(array.shape)
    return lacks if array.ndim == 1 else lacks.any(axis=1)


def _looks_like(values: np.ndarray) -> str | None:
    """What the numbers of the first block look like; None where they may well be logits."""
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
    """Floating type for numbers of a file: in the machine's byte order, of at most 8 bytes."""
    return np.dtype(f"f{min(dtype.itemsize, 8)}") if dtype.kind == "f" else np.result_type(dtype, np.float32)


def _blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, _BLOCK // max(1, values.shape[1]))
    last = step if isinstance(values, np.memmap) else len(values)
    for start in range(0, last, step):
        yield start, np.asarray(values[start : start + step])


def check_values(values: np.ndarray, kind: str, where: str, *, sums: bool = True) -> None:
    """Refuse what no calibrator takes: nan, +inf, and probabilities that are none."""
    advice = (
        f"If these are logits, say {wording('kind=', 'logits')}; else correct the row, or name the columns "
        f"of the classes with {wording('values=')}."
    )
    for start, block in _blocks(values):
        try:
            if kind == "probabilities" and sums:
                check_probabilities(block, where, start, advice)
            else:
                check_logits(block, where, start)
        except InputError as error:
            raise FileError(str(error)) from error
        if kind == "probabilities" and not sums and not ((block >= 0) & (block <= 1)).all():
            raise FileError(f"{where} has values that are not between 0 and 1. {advice}")


def is_one_hot(labels: np.ndarray) -> np.ndarray:
    """Which rows have a single 1 among zeros."""
    if labels.dtype.kind not in "fiub":
        return np.zeros(len(labels), bool)
    return np.asarray(((labels == 0) | (labels == 1)).all(axis=1) & (labels.sum(axis=1) == 1))


def _zeros_and_ones(labels: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Many labels: 0, 1, and -1 where it is not known whether a row has a label."""
    numbers = np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels
    if numbers.dtype.kind not in "fiub" or not np.isin(numbers, (-1, 0, 1)).all() or numbers.shape != shape:
        raise FileError(f"{where} must hold 0, 1 or blank for each of {shape[1]} labels.")
    return numbers.astype(np.int64)
