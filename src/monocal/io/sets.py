"""A set of classifier outputs:  values (n, m), labels (n,) in 0..m-1, and whether values are logits.

What files hold is brought to this one form. Every change on the way (labels from one-hot rows, two classes
from one column) is stated in ``notes``; nothing is guessed from the values, but a likely mistake is warned
of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, spoken, warn
from monocal.inputs.layout import Flat, GatheredRows, Layout
from monocal.inputs.names import Part, classes_of, listing, same_class
from monocal.inputs.validation import sum_tolerance
from monocal.io.headers import parses
from monocal.io.labels import class_numbers
from monocal.io.naming import Kind
from monocal.notebook import html_table

_BLOCK = 1 << 22  # elements looked at together, so that checks need little memory beside the array


@dataclass(frozen=True, eq=False)
class LogitsSet:
    """Outputs of a classifier, as read from a file or made by a generator.

    Attributes
    ----------
    values : ndarray of shape (n, m)
        One row per sample, one column per class.
    labels : ndarray of shape (n,) and dtype int64, or None
        Class of each sample, 0 to m-1; -1 where it was said not to be known.
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

    Examples
    --------
    >>> from monocal.io import LogitsSet
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
        here = self._names_beside(names)
        if names is None or here is None:
            return self
        wanted, here = (tuple(map(same_class, classes_of(tuple(ns)))) for ns in (names, here))
        if wanted == here:
            return self
        if sorted(wanted) != sorted(here):
            raise FileError(
                f"{self.path or self.name} has the classes {listing(here)}, expected {listing(names)}: give outputs "
                f"of the same classifier, or name the columns with {spoken('values=')} in the order of the classes."
            )
        places = tuple(here.index(name) for name in wanted)
        labels = (
            None if self.labels is None else np.where(self.labels < 0, -1, np.argsort(places)[self.labels])
        )
        told = f"the columns were put in the order {listing(names)}, by their names"
        return replace(
            self,
            values=self.values[:, places],
            labels=labels,
            notes=(*self.notes, told),
            class_names=None
            if self.class_names is None
            else tuple(self.class_names[place] for place in places),
            places=places,
        )

    def _names_beside(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """Names of the classes to compare with these; numbers of columns are such where these are numbers, too."""
        numbers = names is not None and all(name.isdecimal() for name in classes_of(tuple(names)))
        if self.class_names is not None or self.first_column is None or not numbers:
            return self.class_names
        return tuple(str(self.first_column + j) for j in range(self.n_classes))

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
    >>> from monocal.io import Splits, synthetic
    >>> splits = Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "two parts")
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """

    cal: LogitsSet
    test: LogitsSet
    name: str = "data"


def make_set(
    values: np.ndarray,
    labels: np.ndarray | None,
    *,
    kind: Kind,
    name: str,
    path: Path | None,
    part: Part | None = None,
    notes: tuple[str, ...] = (),
    where: str = "values",
    labels_where: str = "labels",
    class_names: tuple[str, ...] | None = None,
    first_column: int | None = None,
    first_label: int | None = None,
    weights: np.ndarray | None = None,
    weights_where: str = "weights",
    class_axis: int | None = None,
    ignore_index: int | None = None,
    unknown: Sequence[int] = (),
) -> LogitsSet:
    """Bring raw arrays into the one form, or say what is wrong with them.

    An array of more axes becomes rows of its classes, of which those with the label ``ignore_index`` are left out. Labels
    that are ``unknown`` become -1.

    A memory-mapped array is looked at in its first block only; the rest is checked when a calibrator reads
    it.
    """
    stated = list(notes)
    places = None
    layout = Layout(_class_axis(values, labels, class_axis, where), ignore_index)
    if values.ndim > 2 or not layout.is_plain(values):
        places = layout.flat(values, where)
        values = places.rows if isinstance(values, np.memmap) else np.asarray(places.rows)
        labels, weights = (
            places.column(labels, labels_where, where),
            places.column(weights, weights_where, where),
        )
        stated.append(
            f"shape {tuple(places.array.shape)} was read as {len(values):,} rows of {values.shape[1]:,} classes"
        )
    if labels is not None and layout.ignore_index is not None:
        values, labels, weights = _counted(values, np.asarray(labels), weights, layout, labels_where, stated)
    unnamed = [label for label in unknown if str(label) not in (class_names or ())]
    labels, hidden = _known(labels, unnamed, stated)
    values = _as_values(values, kind, where, stated)
    if check_values(values, kind, where) and kind == "logits":
        _warn_of_probabilities(where, "lie in [0, 1] and sum to 1")
    class_names = _both_classes(class_names, labels, values.shape[1], where)
    if labels is not None:
        labels = class_numbers(
            labels,
            values.shape,
            labels_where,
            stated,
            classes=class_names,
            first_column=first_column,
            first_label=first_label,
        )
        labels = labels if hidden is None else np.where(hidden, -1, labels)
    if weights is not None:
        weights = _as_weights(weights, len(values), weights_where)
    found = LogitsSet(values, labels, kind, name, path, part, tuple(stated), class_names, None, weights)
    return replace(found, places_of=places, first_column=first_column)


def _class_axis(values: np.ndarray, labels: np.ndarray | None, class_axis: int | None, where: str) -> int:
    """The axis of the classes: as was said, or the last where labels of that shape leave no doubt."""
    if class_axis is not None or values.ndim < 3:
        return -1 if class_axis is None else class_axis
    shape = values.shape
    given = None if labels is None else labels.shape
    fitting = [i for i in range(len(shape)) if given == shape[:i] + shape[i + 1 :]]
    if fitting == [len(shape) - 1]:
        return -1
    told = f" Labels of shape {given} fit {spoken('class_axis=', fitting[0])}." if fitting else ""
    raise FileError(
        f"{where} has shape {shape}: say which axis the classes are in, {spoken('class_axis=', 1)} for images (n, m, h, w), "
        f"{spoken('class_axis=', -1)} for sequences (n, t, m).{told}"
    )


def _counted(
    values: Any, labels: np.ndarray, weights: Any, layout: Layout, where: str, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows whose label counts."""
    counts = labels.reshape(-1) != layout.ignore_index
    if not counts.any():
        raise FileError(
            f"{where}: every label is {layout.ignore_index}, which {spoken('ignore_index=')} leaves out: give some of classes."
        )
    if counts.all() or len(counts) != len(values):
        return values, labels, weights
    notes.append(f"{np.count_nonzero(~counts):,} rows with the label {layout.ignore_index} were left out")
    weights = weights if weights is None else np.asarray(weights).reshape(-1)[counts]
    return np.asarray(values)[counts], labels.reshape(-1)[counts], weights


def _known(
    labels: Any, unknown: Sequence[int], notes: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels with one that is known in the place of those that are not, and which these are; None where all, or none, are."""
    if labels is None or not unknown:
        return labels, None
    given = np.asarray(labels)
    if given.ndim == 2 and given.shape[1] > 1:  # one-hot rows
        return given, None
    given = given.reshape(-1)
    words = {str(label) for label in unknown}
    numbers = given.dtype.kind in "fiub"
    hidden = np.isin(given, unknown) if numbers else np.array([str(word).strip() in words for word in given])
    if not hidden.any():
        return labels, None
    notes.append(f"{np.count_nonzero(hidden):,} rows have a label that is not known")
    return (None, None) if hidden.all() else (np.where(hidden, given[~hidden][0], given), hidden)


def _both_classes(
    names: tuple[str, ...] | None, labels: np.ndarray | None, m: int, where: str
) -> tuple[str, ...] | None:
    """Names of all classes; of two in one column (``prob_spam``) the labels tell the other."""
    if names is None or len(names) == m:
        return names
    if len(names) == 1 and m == 2:
        words = (
            sorted({str(word).strip() for word in labels}) if labels is not None and labels.ndim == 1 else []
        )
        others = [word for word in words if same_class(word) != same_class(names[0])]
        return (others[0], names[0]) if len(words) == 2 and len(others) == 1 else None
    raise InputError(
        f"{spoken('classes=')} gives {len(names)} names, {listing(names)}, and {where} has {m} classes: give one for each, in "
        "the order of the columns."
    )


def _as_weights(weights: np.ndarray, n: int, where: str) -> np.ndarray:
    if weights.dtype.kind not in "fiub" or weights.size != n:
        raise FileError(
            f"{where} has shape {weights.shape} and dtype {weights.dtype}: expected {n} numbers, one per row."
        )
    weights = weights.reshape(-1).astype(np.float64)
    bad = ~((weights == 0) | ((weights >= 1e-30) & (weights <= 1e30)))
    if bad.any() or not weights.any():
        row = int(np.argmax(bad))
        raise FileError(
            f"{where} has {weights[row]:g} in row {row}: expected weights of 0, or between 1e-30 and 1e30, and not all 0."
        )
    return weights


def _as_values(values: np.ndarray, kind: Kind, where: str, notes: list[str]) -> np.ndarray:
    mapped = isinstance(values, np.memmap | GatheredRows)
    refuse_words(values, where)
    if values.dtype.kind not in "fiu":
        raise FileError(
            f"{where} has dtype {values.dtype}: expected numbers of type float16, float32 or float64."
        )
    one_column = values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)
    if one_column and values.dtype.kind == "f" and not mapped and values.size:
        score = values.reshape(-1)
        if kind == "probabilities":
            notes.append("one column was read as the probability of class 1 of two classes")
            values = np.stack([1 - score, score], axis=1)
        else:
            if score.min() >= 0 and score.max() <= 1:
                _warn_of_probabilities(where, "lie in [0, 1]")
            notes.append("one column was read as the logit of class 1 of two classes, with class 0 at 0")
            values = np.stack([np.zeros_like(score), score], axis=1)
    if values.ndim != 2 or values.shape[1] < 2 or values.shape[0] < 1:
        raise FileError(
            f"{where} has shape {values.shape} and dtype {values.dtype}: expected (n, m), one row per "
            f"sample and one column per class, with n >= 1 and m >= 2."
        )
    if mapped:
        return values
    if values.dtype.kind != "f":
        notes.append(f"{values.dtype} values were widened to {float_type(values.dtype)}")
    return values.astype(float_type(values.dtype), copy=False)


def refuse_words(values: np.ndarray, where: str) -> None:
    """Name the first cell of a column of a table that is no number, if there is one."""
    if values.dtype == object and values.ndim and len(values):
        row, cell = next(((i, c) for i, c in enumerate(values) if not parses(c)), (0, values[0]))
        raise FileError(
            f"{where} has {str(cell)[:40]!r} in row {row} (counting from 0): expected numbers, and one column "
            "per class (a list of numbers in one column is read from Parquet)."
        )


def float_type(dtype: np.dtype) -> np.dtype:
    """In which type numbers from a file are handled: floating, in the machine's byte order, of at most 8 bytes."""
    if dtype.kind != "f":
        return np.result_type(dtype, np.float32)
    return np.dtype(f"f{min(dtype.itemsize, 8)}")


def _blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, _BLOCK // values.shape[1])
    last = step if isinstance(values, np.memmap | GatheredRows) else len(values)
    for start in range(0, last, step):
        yield start, np.asarray(values[start : start + step])


def check_values(values: np.ndarray, kind: Kind, where: str) -> bool:
    """Refuse what no calibrator takes: nan, +inf, and probabilities that are none; whether all rows could be probabilities."""
    tolerance = sum_tolerance(float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0)
    suspicious = True  # until a row is seen that cannot be probabilities
    for start, block in _blocks(values):
        unusable = ~(block < np.inf)
        if unusable.any():
            row, column = np.argwhere(unusable)[0]
            raise FileError(
                f"{where} has {block[row, column]} in row {start + row}, column {column}: expected finite "
                f"numbers (-inf for a class that is not available); drop the row or mend what wrote it."
            )
        empty = np.isneginf(block.max(axis=1)) if block.dtype.kind == "f" else np.zeros(len(block), bool)
        if empty.any():
            raise FileError(
                f"{where} has -inf for every class in row {start + int(np.argmax(empty))}: leave at least one class "
                "available, or drop the row."
            )
        if kind == "probabilities" or suspicious:
            total = block.sum(axis=1, dtype=np.float64)
            off = (block < 0).any(axis=1) | ~(np.abs(total - 1) <= tolerance)
            suspicious = suspicious and not off.any()
        if kind == "probabilities" and off.any():
            row = int(np.argmax(off))
            raise FileError(
                f"{where} was said to be probabilities, but row {start + row} has minimum "
                f"{block[row].min():.6g} and sum {total[row]:.6g}: expected no negative values and sum 1; "
                f"if these are logits, say {spoken('kind=', 'logits')}."
            )
    return suspicious


def _warn_of_probabilities(where: str, because: str) -> None:
    warn(
        f"{where} is taken as logits, but all rows looked at {because}: if these are probabilities, say "
        f"{spoken('kind=', 'probabilities')}.",
    )
