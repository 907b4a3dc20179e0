"""A set of classifier outputs:  values (n, m), labels (n,) in 0..m-1, and whether values are logits.

What files hold is brought to this one form. Every change on the way (labels from one-hot rows, two classes from one column,
probabilities rounded to few digits) is stated in ``notes``. Values that look like something other than what they are said to be
are refused in commands and warned of in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from monocal.errors import FileError, InputError, KindError, warn, wording
from monocal.inputs.layout import Flat, GatheredRows, Layout
from monocal.inputs.names import (
    Part,
    classes_of,
    listing,
    numbered_columns,
    numbers_of,
    places_by_column,
    same_class,
)
from monocal.inputs.validation import check_logits, check_probabilities, check_weights, rounding_of
from monocal.io.column_choice import refuse_words
from monocal.io.column_names import Kind
from monocal.io.named_arrays import is_number
from monocal.notebook import html_table

_BLOCK = 1 << 22  # elements checked together, so that checks need little memory apart from the array
_PAIRS = (
    *(("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("negative", "positive"), ("neg", "pos")),
    *(("incorrect", "correct"), ("wrong", "right")),
)
_FEW = 10  # rows of logits that may all lie in [0, 1] by chance
_LARGE_LOG_ODDS = 30.0  # P = 1 - 1e-13


@dataclass(frozen=True, eq=False)
class LogitsSet:
    """Outputs of a classifier, as read from a file or made by a generator.

    Attributes
    ----------
    values : ndarray of shape (n, m)
        One row per sample, one column per class.
    labels : ndarray of shape (n,) and dtype int64, or None
        Class of each sample, 0 to m-1; -1 where it was said not to be known. Of many labels an array (n, m) of 0, 1 and -1.
    kind : {"logits", "probabilities"}
        What ``values`` are; pass it on as ``input=`` of a calibrator.
    name : str
        Short name for tables and titles.
    path : Path or None
        Where it came from.
    part : {"cal", "test"} or None
        Which part of its file it is.
    notes : tuple of str
        What was done to bring the file into this form.
    class_names : tuple of str or None
        Names of the classes in the order of the columns, where the file has a column for each or names them.
    first_column : int or None
        The number of the first column, where the columns of the file only number the classes.
    places : tuple of int or None
        Which column of the file each column of ``values`` was, after `in_order_of`.
    weights : ndarray of shape (n,), or None
        Of the rows; pass them on as ``sample_weight=``.
    aside : tuple of str
        Other columns that go with the rows, such as ids: see `read_columns`.
    taken : str
        What was taken for what, in one line.
    places_of : Flat or None
        Of values that had more axes than two: the array as it was, and how results get its shape. Rows are then pixels or tokens.
    ragged : bool
        Whether rows may lack classes at the end, as questions with different numbers of options do.
    columns : tuple of str
        Names of the columns of a table that hold the values.
    kept : ndarray or None
        Which rows of the file these are, where rows with missing values were left out.
    many_labels : bool
        Whether a row may have any number of the labels, each with a score of its own.

    Examples
    --------
    >>> from monocal.data import LogitsSet
    >>> import numpy as np
    >>> data = LogitsSet(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1]), class_names=("cat", "dog"))
    >>> data.n_samples, data.n_classes, data.kind
    (2, 2, 'logits')
    """

    values: np.ndarray
    labels: np.ndarray | None
    kind: Kind = "logits"
    name: str = "data"
    path: Path | None = None
    part: Part | None = None
    notes: tuple[str, ...] = field(default=())
    class_names: tuple[str, ...] | None = None
    places: tuple[int, ...] | None = None
    weights: np.ndarray | None = None
    aside: tuple[str, ...] = ()
    taken: str = ""
    places_of: Flat | None = None
    ragged: bool = False
    first_column: int | None = None
    columns: tuple[str, ...] = ()
    kept: np.ndarray | None = None
    many_labels: bool = False

    def _repr_html_(self) -> str:
        names = ("kind", "n_samples", "n_classes", "class_names", "notes")
        return html_table(self.name, [(name.replace("_", " "), getattr(self, name)) for name in names])

    def with_classes(self, m: int) -> LogitsSet:
        """The same with classes that no row has, up to ``m``, where rows may lack some at the end; else as it is."""
        lacking = m - self.n_classes
        if not self.ragged or lacking <= 0:
            return self
        return replace(self, values=np.pad(self.values, ((0, 0), (0, lacking)), constant_values=-np.inf))

    def in_order_of(self, names: Sequence[str] | None) -> LogitsSet:
        """The same with the classes, and so the labels, in the order of ``names``; as it is where one side has no names."""
        here = self.class_names
        numbers = names is not None and all(name.isdecimal() for name in classes_of(tuple(names)))
        if here is None and self.first_column is not None and numbers:
            here = tuple(str(self.first_column + j) for j in range(self.n_classes))
        if names is None or here is None:
            return self
        target, here = (tuple(map(same_class, classes_of(tuple(ns)))) for ns in (names, here))
        if target == here:
            return self
        if sorted(target) != sorted(here):
            raise FileError(
                f"{self.path or self.name} has the classes {listing(here)}, expected {listing(names)}: give outputs "
                f"of the same classifier, or name the columns with {wording('values=')} in the order of the classes."
            )
        places = tuple(here.index(name) for name in target)
        labels = self.labels
        if labels is not None and self.many_labels:
            labels = labels[:, places]
        elif labels is not None:
            labels = np.where(labels < 0, -1, np.argsort(places)[labels])
        note = f"the columns were put in the order {listing(names)}, by their names"
        own = self.class_names and tuple(self.class_names[place] for place in places)
        return replace(
            self,
            values=self.values[:, places],
            labels=labels,
            notes=(*self.notes, note),
            class_names=own,
            places=places,
        )

    @property
    def n_samples(self) -> int:
        """Number of rows, n."""
        return self.values.shape[0]

    @property
    def n_classes(self) -> int:
        """Number of classes, m."""
        return self.values.shape[1]


@dataclass(frozen=True, eq=False)
class Splits:
    """A set to calibrate on and a set to judge on, with the same classes.

    Attributes
    ----------
    cal, test : LogitsSet
    name : str

    Examples
    --------
    >>> from monocal.data import Splits, synthetic
    >>> splits = Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "two parts")
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """

    cal: LogitsSet
    test: LogitsSet
    name: str = "data"


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
    first_label: int | None = None
    known_classes: Sequence[str] | None = None
    many: bool = False
    of_columns: bool = False
    notes: list[str] = field(default_factory=list)

    def finish(
        self,
        kind: str | None,
        *,
        stated: bool,
        strict: bool,
        class_axis: int | None = None,
        ignore_index: int | None = None,
        unknown: Sequence[int] = (),
    ) -> LogitsSet:
        """Bring the arrays into the one form, or say what is wrong with them.

        ``kind`` was ``stated`` by the caller, or is what a name says. An array of more axes becomes rows of its classes, of which
        those with the label ``ignore_index`` are left out. Labels that are ``unknown`` become -1. A memory-mapped array is looked
        at in its first block only; the rest is checked when a calibrator reads it.
        """
        layout = Layout(self._class_axis(class_axis), ignore_index)
        places = self._flatten(layout)
        if self.labels is not None and ignore_index is not None:
            self._leave_out(ignore_index)
        hidden = self._hide([label for label in unknown if str(label) not in (self.class_names or ())])
        scale = self._scale(kind, stated, strict)
        values = self._as_values(scale)
        kind = "logits" if scale == "logits" else "probabilities"
        check_values(values, kind, self.where, sums=not self.many)
        if not self.many:
            self._name_classes(values.shape[1])
            if -1 not in unknown:
                self._zero_and_one(values.shape[1])
        numbers = None if self.labels is None else self._class_numbers(values.shape)
        if numbers is not None and hidden is not None:
            numbers = np.where(hidden, -1, numbers)
        return LogitsSet(
            values,
            numbers,
            kind,  # type: ignore[arg-type]  # one of the two
            notes=tuple(self.notes),
            class_names=self.class_names,
            weights=self._as_weights(values),
            places_of=places,
            first_column=self.first_column,
            many_labels=self.many,
        )

    # The layout

    def _class_axis(self, class_axis: int | None) -> int:
        """The axis of the classes: as stated, or the last where labels of that shape leave no doubt."""
        shape = self.values.shape
        if class_axis is not None or len(shape) < 3:
            return -1 if class_axis is None else class_axis
        of_labels = None if self.labels is None else self.labels.shape
        fitting = [i for i in range(len(shape)) if of_labels == shape[:i] + shape[i + 1 :]]
        if fitting == [len(shape) - 1]:
            return -1
        hint = f" Labels of shape {of_labels} fit {wording('class_axis=', fitting[0])}." if fitting else ""
        raise FileError(
            f"{self.where} has shape {shape}: say which axis the classes are in, {wording('class_axis=', 1)} for images "
            f"(n, m, h, w), {wording('class_axis=', -1)} for sequences (n, t, m).{hint}"
        )

    def _flatten(self, layout: Layout) -> Flat | None:
        if self.values.ndim <= 2 and layout.is_plain(self.values):
            return None
        places = layout.flat(self.values, self.where)
        self.values = places.rows if isinstance(self.values, np.memmap) else np.asarray(places.rows)
        self.labels = places.column(self.labels, self.labels_where, self.where)
        self.weights = places.column(self.weights, self.weights_where, self.where)
        shape, (n, m) = tuple(places.array.shape), self.values.shape
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

    def _hide(self, unknown: Sequence[int]) -> np.ndarray | None:
        """Which labels are not known, and in their place one that is; None where all are."""
        if self.labels is None or not unknown or (self.labels.ndim == 2 and self.labels.shape[1] > 1):
            return None
        labels = np.asarray(self.labels).reshape(-1)
        if labels.dtype.kind in "fiub":
            hidden = np.isin(labels, unknown)
        else:
            hidden = np.isin([str(word).strip() for word in labels], [str(label) for label in unknown])
        if not hidden.any():
            return None
        self.notes.append(f"{np.count_nonzero(hidden):,} rows have a label that is not known")
        self.labels = None if hidden.all() else np.where(hidden, labels[~hidden][0], labels)
        return hidden

    # Values

    def _scale(self, kind: str | None, stated: bool, strict: bool) -> str:
        """What values are, ``logits``, ``probabilities`` or ``percent``, unless they look like something else."""
        looks = _looks_like(self.values, _FEW if kind else 0)
        if kind == "percent" and looks == "probabilities":
            text = f"{self.where}: percent lie between 0 and 100, but all values lie between 0 and 1. "
            text += f"If they are probabilities, say {wording('kind=', 'probabilities')}."
            if not _is_column(self.values):
                raise KindError(text)
            warn(text)  # of a rare event all may be below 1 %
        if stated and not (kind == "probabilities" and looks == "percent"):
            return str(kind)
        if looks is None or (looks == kind == "probabilities"):
            return kind or "logits"
        span = "0 and 1, as probabilities do" if looks == "probabilities" else "0 and 100, as percent do"
        message = (
            f"{self.where}: all values lie between {span}. Say {wording('kind=', looks)}, or "
            f"{wording('kind=', 'logits')} if they are logits{' (log-odds)' * _is_column(self.values)}."
        )
        if strict or kind == "probabilities":
            raise KindError(message)
        warn(message.replace("all values", "it is taken as logits, but all values", 1))
        return "logits"

    def _as_values(self, scale: str) -> np.ndarray:
        """Rows (n, m) of floating-point numbers; two classes from one column."""
        values, where = self.values, self.where
        mapped = isinstance(values, np.memmap | GatheredRows)
        refuse_words(values, where)
        if values.dtype.kind not in "fiu":
            raise FileError(
                f"{where} has dtype {values.dtype}: expected numbers of type float16, float32 or float64."
            )
        if values.ndim and len(values) == 0:
            raise FileError(f"{where} has shape {values.shape}: there are no rows.")
        if scale == "percent":
            self.notes.append("percent were divided by 100")
            values = np.asarray(values) / 100
        if _is_column(values) and not mapped and (values.dtype.kind == "f" or scale != "logits"):
            values = self._two_classes(values.reshape(-1), scale)
        if values.ndim != 2 or values.shape[1] < 2 - self.many:
            raise FileError(
                f"{where} has shape {values.shape} and dtype {values.dtype}: expected (n, m), one row per "
                f"sample and one column per class, with n >= 1 and m >= 2."
            )
        if mapped:
            return values
        if values.dtype.kind != "f":
            self.notes.append(f"{values.dtype} values were widened to {float_type(values.dtype)}")
        values = values.astype(float_type(values.dtype), copy=False)
        return values if scale == "logits" or self.many else _renormalised(values, self.notes)

    def _two_classes(self, score: np.ndarray, scale: str) -> np.ndarray:
        if scale == "logits":
            self.notes.append("one column was read as the logit of class 1 of two classes, with class 0 at 0")
            return np.stack([np.zeros_like(score), score], axis=1)
        outside = ~((score >= 0) & (score <= 1))
        if outside.any():
            row = int(np.argmax(outside))
            raise FileError(
                f"{self.where} was taken for probabilities, but has {score[row]:.6g} in row {row}: expected values between 0 "
                f"and 1; if these are log-odds, say {wording('kind=', 'logits')}."
            )
        self.notes.append("one column was read as the probability of class 1 of two classes")
        return np.stack([1 - score, score], axis=1)

    def _as_weights(self, values: np.ndarray) -> np.ndarray | None:
        if self.weights is None:
            return None
        try:
            return check_weights(np.ravel(self.weights), values, name=self.weights_where)
        except InputError as error:
            raise FileError(str(error)) from error

    # Labels

    def _name_classes(self, m: int) -> None:
        """Names of all classes: those of the fit, if labels are among them; of two in one column (``prob_spam``), or of no and
        yes, from the labels.
        """
        names, words = self.class_names, []
        if self.labels is not None and self.labels.ndim == 1 and self.labels.dtype.kind in "OU":
            words = sorted({str(word).strip() for word in self.labels})
        fitted = classes_of(self.known_classes or ())
        if names is None and words and len(fitted) == m and None not in numbers_of(words, fitted):
            names = fitted
        if names is not None and len(names) == 1 and m == 2:
            others = [word for word in words if same_class(word) != same_class(names[0])]
            names = (others[0], names[0]) if len(words) == 2 and len(others) == 1 else None
        if names is None and m == 2:
            lower = [word.lower() for word in words]
            pair = next((pair for pair in _PAIRS if sorted(lower) == sorted(pair)), None)
            names = pair and tuple(words[lower.index(word)] for word in pair)
        if names is not None and len(names) != m:
            raise InputError(
                f"{wording('classes=')} gives {len(names)} names, {listing(names)}, and {self.where} has {m} classes: give one "
                "for each, in the order of the columns."
            )
        self.class_names = names

    def _zero_and_one(self, m: int) -> None:
        """Labels -1 and 1 of two classes without names become 0 and 1."""
        labels = self.labels
        if labels is None or m != 2 or self.class_names is not None or self.first_label is not None:
            return
        if labels.dtype.kind in "fi" and set(np.unique(labels).tolist()) == {-1, 1}:
            self.notes.append("labels -1 and 1 were read as 0 and 1")
            self.labels = (labels > 0).astype(np.int64)

    def _class_numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        """Labels as int64 of shape (n,), from names or numbers of shape (n,) or (n, 1), or from one-hot rows (n, m).

        Where columns only number the classes, ``first_column`` is the first number. With ``first_label`` labels number the
        columns, whatever these are called.
        """
        (n, m), where, labels = shape, self.labels_where, np.asarray(self.labels)
        if self.many:
            return _zeros_and_ones(labels, shape, where)
        if labels.dtype.kind not in "fiubUOS":
            raise FileError(
                f"{where} has dtype {labels.dtype}: expected the number of the class, 0 to {m - 1}."
            )
        if labels.ndim > 2 or labels.ndim == 0 or (labels.ndim == 2 and labels.shape[1] not in (1, m)):
            hint = (
                " Labels of pixels or tokens go with values of one axis more: say {} where the classes are."
            )
            hint = hint.format(wording("class_axis=")) if labels.ndim > 2 else ""
            raise FileError(
                f"{where} has shape {labels.shape}: expected ({n},), ({n}, 1) or one-hot ({n}, {m}).{hint}"
            )
        if len(labels) != n:
            raise FileError(
                f"{where} has {len(labels)} rows and the values have {n}: expected one label per row."
            )
        if labels.ndim == 2 and labels.shape[1] == m:
            self.notes.append(f"one-hot labels of shape {labels.shape} were read as class numbers")
            return _from_one_hot(labels, where)
        if labels.ndim == 2:
            self.notes.append(f"labels of shape {labels.shape} were flattened")
            labels = labels.reshape(-1)
        if labels.dtype.kind in "UOS":
            numbers = self._from_words(labels)
            if numbers is not None:
                return numbers
            labels = labels.astype(np.float64)
        first = self.first_column
        names = self.class_names or ([] if first is None else [str(first + j) for j in range(m)])
        columns = None if self.first_label is not None else numbered_columns(names)
        if columns is None:
            return _from_numbers(labels, m, where, self.first_label)
        places, row = places_by_column(labels, columns)
        if row is not None:
            raise FileError(
                f"{where} has {labels[row]:g} in row {row}, and the columns are called {listing(names)}: labels are the names of "
                f"the columns where these are whole numbers. Correct the label, or say {wording('first_label=', 0)} if labels "
                "count the columns from 0."
            )
        self.notes.append(
            "labels count from 1, as the columns do"
            if first == 1
            else "labels are those by which the columns are called"
        )
        return places

    def _from_words(self, labels: np.ndarray) -> np.ndarray | None:
        """Numbers of the classes that words name; None where the words are numbers."""
        classes, where = self.class_names, self.labels_where
        cells = np.array([str(word).strip() for word in labels], dtype=str)
        words, place = np.unique(cells, return_inverse=True)
        texts = words.tolist()
        numbers = [None] if classes is None else numbers_of(texts, classes)
        if None not in numbers and self.first_label is None:
            self.notes.append("labels are names of classes, matched with the columns")
            return np.array(numbers, dtype=np.int64)[place.reshape(-1)]
        if all(map(is_number, texts)):
            return None
        if self.first_label is not None:
            raise FileError(
                f"{where} holds names such as {texts[-1]!r}: leave {wording('first_label=')} out."
            )
        if classes is None:
            advice = f"name the classes in the order of the columns with {wording('classes=')}"
            if len(texts) == 2:
                ways = [wording("classes=", ",".join(order)) for order in (texts, texts[::-1])]
                advice = f"say {' or '.join(ways)}, last the class that a large score means"
            raise FileError(
                f"{where} holds names, {listing(texts, 4)}, but no column is called so: {advice}."
            )
        stranger = texts[numbers.index(None)]
        raise FileError(
            f"{where} has {stranger!r} in row {int(np.argmax(cells == stranger))} (counting from 0), which is none of the "
            f"classes {listing(classes)}: correct the label, or name the columns of all classes with {wording('values=')}."
        )


def _is_column(values: np.ndarray) -> bool:
    return values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)


def _looks_like(values: np.ndarray, least_rows: int) -> str | None:
    """What the numbers themselves look like, by the first block; None where they may well be logits."""
    if values.dtype.kind not in "fiu" or values.ndim not in (1, 2) or 0 in values.shape:
        return None
    block = next(_blocks(values if values.ndim == 2 else values.reshape(-1, 1)))[1].astype(np.float64)
    low, high = float(block.min()), float(block.max())
    if not low >= 0 or low == high or high > 101:
        return None
    total, column = block.sum(axis=1), _is_column(values)
    if high <= 1:
        one = not column and bool((np.abs(total - 1) < 0.02).all())
        return "probabilities" if one or len(block) >= least_rows else None
    if column:
        return "percent" if high > _LARGE_LOG_ODDS else None
    return "percent" if bool((np.abs(total - 100) <= min(5.0, block.shape[1] / 2)).all()) else None


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
    last = step if isinstance(values, np.memmap | GatheredRows) else len(values)
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
            raise FileError(
                f"{where}: row {start + int(np.argmax(outside))} has values that are not between 0 and 1. {advice}"
            )


def missing(array: np.ndarray) -> np.ndarray | None:
    """Which rows lack a value: NaN, None or blank text; None where the type has none of these."""
    if array.ndim not in (1, 2) or isinstance(array, np.memmap) or array.dtype.kind not in "fOU":
        return None
    if array.dtype.kind == "f":
        lacks = np.isnan(array)
    else:
        cells = [cell is None or cell != cell or not str(cell).strip() for cell in array.ravel().tolist()]
        lacks = np.array(cells, dtype=bool).reshape(array.shape)
    return lacks if array.ndim == 1 else lacks.any(axis=1)


def is_one_hot(labels: np.ndarray) -> bool:
    """Whether every row has a single 1 among zeros."""
    if labels.dtype.kind not in "fiub":
        return False
    return bool((((labels == 0) | (labels == 1)).all(axis=1) & (labels.sum(axis=1) == 1)).all())


def _from_one_hot(labels: np.ndarray, where: str) -> np.ndarray:
    if not is_one_hot(labels):
        row = next((i for i in range(len(labels)) if not is_one_hot(labels[i : i + 1])), 0)
        raise FileError(
            f"{where} has shape {labels.shape}, so rows must be one-hot, but row {row} is not: expected "
            f"a single 1 among zeros, or plain class numbers."
        )
    return labels.argmax(axis=1)


def _zeros_and_ones(labels: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Many labels: 0, 1, and -1 where it is not known whether a row has a label."""
    numbers = np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels
    if numbers.dtype.kind not in "fiub" or not np.isin(numbers, (-1, 0, 1)).all() or numbers.shape != shape:
        raise FileError(
            f"{where} holds other things than 0, 1 and blank: expected these for each of {shape[1]} labels."
        )
    return numbers.astype(np.int64)


def _from_numbers(labels: np.ndarray, m: int, where: str, first_label: int | None) -> np.ndarray:
    first = first_label or 0
    with np.errstate(invalid="ignore"):
        bad = ~((labels >= first) & (labels < m + first) & (labels == np.floor(labels)))
    if bad.any():
        row = int(np.argmax(bad))
        from_one = not np.isnan(labels).any() and labels.min() >= 1 and labels.max() == m
        hint = (
            f"they seem to count from 1: if so, say {wording('first_label=', 1)}"
            if from_one
            else "drop the row or correct the label"
        )
        raise FileError(
            f"{where} has {labels[row]} in row {row}: expected a whole number from {first} to {m - 1 + first}; {hint}."
        )
    return labels.astype(np.int64) - first
