"""Labels as they come -> class numbers 0..m-1.

They come as numbers from 0 (or from 1, where the caller says so), as one-hot rows, or as names of classes, which are those of the
columns. Columns whose names are whole numbers other than 0..m-1 in order are such names: labels 2, 0, 1 are the columns called
2, 0 and 1, wherever they stand. Every change on the way is stated in ``notes``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monocal.errors import FileError, spoken
from monocal.inputs.names import listing, numbered_columns, numbers_of, places_by_column
from monocal.io.headers import parses


def class_numbers(
    labels: np.ndarray,
    shape: tuple[int, ...],
    where: str,
    notes: list[str],
    *,
    classes: Sequence[str] | None = None,
    first_column: int | None = None,
    first_label: int | None = None,
) -> np.ndarray:
    """Labels as int64 of shape (n,), from names or numbers of shape (n,) or (n, 1), or from one-hot rows (n, m).

    ``classes`` are the names of the columns; where columns only number the classes, ``first_column`` is the first number. With
    ``first_label`` labels number the columns, whatever these are called.
    """
    n, m = shape
    labels = np.asarray(labels)
    if labels.dtype.kind not in "fiubUOS":
        raise FileError(f"{where} has dtype {labels.dtype}: expected the number of the class, 0 to {m - 1}.")
    if labels.ndim > 2 or labels.ndim == 0 or (labels.ndim == 2 and labels.shape[1] not in (1, m)):
        raise FileError(
            f"{where} has shape {labels.shape}: expected ({n},), ({n}, 1) or one-hot ({n}, {m})."
            + (
                f" Labels of pixels or tokens go with values of one axis more: say {spoken('class_axis=')} where the classes are."
                if labels.ndim > 2
                else ""
            )
        )
    if len(labels) != n:
        raise FileError(
            f"{where} has {len(labels)} rows and the values have {n}: expected one label per row."
        )
    if labels.ndim == 2 and labels.shape[1] == m:
        return _from_one_hot(labels, where, notes)
    if labels.ndim == 2:
        notes.append(f"labels of shape {labels.shape} were flattened")
        labels = labels.reshape(-1)
    if labels.dtype.kind in "UOS":
        found = _from_words(labels, where, notes, classes, first_label)
        if found is not None:
            return found
        labels = labels.astype(np.float64)
    names = classes or ([] if first_column is None else [str(first_column + j) for j in range(m)])
    columns = None if first_label is not None else numbered_columns(names)
    if columns is None:
        return _from_numbers(labels, m, where, first_label)
    places, row = places_by_column(labels, columns)
    if row is not None:
        raise FileError(
            f"{where} has {labels[row]:g} in row {row}, and the columns are called {listing(names)}: labels are the names of the "
            f"columns where these are whole numbers. Correct the label, or say {spoken('first_label=', 0)} if labels count the "
            "columns from 0."
        )
    notes.append(
        "labels count from 1, as the columns do"
        if first_column == 1
        else "labels are those by which the columns are called"
    )
    return places


def _from_one_hot(labels: np.ndarray, where: str, notes: list[str]) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        hot = labels.astype(np.float64) if labels.dtype.kind not in "UOS" else np.full(labels.shape, np.nan)
        not_hot = ((hot != 0) & (hot != 1)).any(axis=1) | (hot.sum(axis=1) != 1)
    if not_hot.any():
        row = int(np.argmax(not_hot))
        raise FileError(
            f"{where} has shape {labels.shape}, so rows must be one-hot, but row {row} is not: expected "
            f"a single 1 among zeros, or plain class numbers."
        )
    notes.append(f"one-hot labels of shape {labels.shape} were read as class numbers")
    return hot.argmax(axis=1)


def _from_words(
    labels: np.ndarray, where: str, notes: list[str], classes: Sequence[str] | None, first_label: int | None
) -> np.ndarray | None:
    """Numbers of the classes that words name; None where the words are numbers."""
    words, place = np.unique(np.array([str(word).strip() for word in labels], dtype=str), return_inverse=True)
    texts = [str(word) for word in words]
    if classes is not None:
        numbers = numbers_of(texts, classes)
        if None not in numbers and first_label is None:
            notes.append("labels are names of classes, matched with the columns")
            return np.array(numbers, dtype=np.int64)[place.reshape(-1)]
    if all(map(parses, texts)):
        return None
    if first_label is not None:
        raise FileError(f"{where} holds names such as {texts[-1]!r}: leave {spoken('first_label=')} out.")
    if classes is None:
        raise FileError(
            f"{where} holds names, {listing(texts, 4)}, but no column is called so: name the classes in the order of the columns "
            f"with {spoken('classes=')}."
        )
    stranger = texts[numbers.index(None)]
    row = int(np.argmax(place.reshape(-1) == texts.index(stranger)))
    told = f"{stranger!r}" if stranger else "nothing"
    raise FileError(
        f"{where} has {told} in row {row} (counting from 0), which is none of the classes {listing(classes)}: mend the "
        f"label, or name the columns of all classes with {spoken('values=')}."
    )


def _from_numbers(labels: np.ndarray, m: int, where: str, first_label: int | None) -> np.ndarray:
    from_one = labels.size > 0 and not np.isnan(labels).any() and labels.min() >= 1 and labels.max() == m
    first = first_label or 0
    with np.errstate(invalid="ignore"):
        bad = ~((labels >= first) & (labels < m + first) & (labels == np.floor(labels)))
    if bad.any():
        row = int(np.argmax(bad))
        hint = (
            f"they seem to count from 1: if so, say {spoken('first_label=', 1)}"
            if from_one
            else "drop the row or mend the label"
        )
        raise FileError(
            f"{where} has {labels[row]} in row {row}: expected a whole number from {first} to {m - 1 + first}; {hint}."
        )
    return labels.astype(np.int64) - first
