"""Labels as they come -> class numbers 0..m-1.

They come as numbers from 0 (or from 1, where the caller or the columns say so), as one-hot rows, or as names of classes, which
are those of the columns. Every change on the way is stated in ``notes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monocal.data.headers import parses
from monocal.data.naming import classes_of, listing, same_class
from monocal.errors import FileError, spoken


def class_numbers(
    labels: np.ndarray,
    shape: tuple[int, ...],
    where: str,
    notes: list[str],
    *,
    classes: Sequence[str] | None = None,
    first_column: int = 0,
    first_label: int | None = None,
) -> np.ndarray:
    """Labels as int64 of shape (n,), from names or numbers of shape (n,) or (n, 1), or from one-hot rows (n, m).

    ``classes`` are the names of the columns; where columns only number the classes, ``first_column`` is the first number.
    """
    n, m = shape
    labels = np.asarray(labels)
    if labels.dtype.kind not in "fiubUOS":
        raise FileError(f"{where} has dtype {labels.dtype}: expected the number of the class, 0 to {m - 1}.")
    if labels.ndim > 2 or labels.ndim == 0 or (labels.ndim == 2 and labels.shape[1] not in (1, m)):
        raise FileError(
            f"{where} has shape {labels.shape}: expected ({n},), ({n}, 1) or one-hot ({n}, {m})."
            + (how_to_flatten() if labels.ndim > 2 else "")
        )
    if len(labels) != n:
        raise FileError(
            f"{where} has {len(labels)} rows and the values have {n}: expected one label per row."
        )
    if labels.ndim == 2 and labels.shape[1] == m:
        labels = _from_one_hot(labels, where, notes)
    elif labels.ndim == 2:
        notes.append(f"labels of shape {labels.shape} were flattened")
        labels = labels.reshape(-1)
    if labels.dtype.kind in "UOS":
        found = _from_words(labels, where, notes, classes, first_label)
        if found is not None:
            return found
        labels = labels.astype(np.float64)
    elif classes is not None and first_label is None and all(name.isdecimal() for name in classes):
        found = _from_numbered_names(labels, classes)
        if found is not None:
            notes.append("labels are those by which the columns are called")
            return found
    return _from_numbers(labels, m, where, notes, first_column, first_label)


def how_to_flatten() -> str:
    """What to do with a place in an array for every pixel or token."""
    return (
        " Where every pixel or token has a class of its own, a row is one pixel or token: for shape (n, m, h, w) save "
        "values.transpose(0, 2, 3, 1).reshape(-1, m) and labels.reshape(-1), for (n, t, m) values.reshape(-1, m)."
    )


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
        numbers = _numbers_of(texts, classes)
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


def _numbers_of(words: Sequence[str], classes: Sequence[str]) -> list[int | None]:
    """The class that each word names, in its own spelling or, where that is clear, in another."""
    known = {name: number for number, name in enumerate(classes)}
    spelt = {same_class(name): number for number, name in enumerate(classes)}
    other = spelt if len(spelt) == len(known) else {}
    return [known.get(word, other.get(same_class(word))) for word in words]


def by_column(y: Any, frame: Any) -> Any:
    """Labels that name the columns of a frame, as class numbers; any others as they are."""
    if not hasattr(frame, "columns") or hasattr(y, "dask"):
        return y
    words = np.asarray(y)
    if words.ndim != 1 or words.dtype.kind not in "OUT" or not all(isinstance(word, str) for word in words):
        return y
    numbers = _numbers_of(words.tolist(), classes_of(tuple(map(str, frame.columns))))
    return y if None in numbers else np.array(numbers, dtype=np.int64)


def _from_numbered_names(labels: np.ndarray, classes: Sequence[str]) -> np.ndarray | None:
    """Columns called 200, 404, 500 and labels 200, 404, 500."""
    order = np.argsort(np.array([int(name) for name in classes], dtype=np.float64))
    numbers = np.array([int(classes[i]) for i in order], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        place = np.minimum(np.searchsorted(numbers, labels), len(numbers) - 1)
    return order[place].astype(np.int64) if np.array_equal(numbers[place], labels) else None


def _from_numbers(
    labels: np.ndarray,
    m: int,
    where: str,
    notes: list[str],
    first_column: int,
    first_label: int | None,
) -> np.ndarray:
    from_one = labels.size > 0 and not np.isnan(labels).any() and labels.min() >= 1 and labels.max() == m
    if first_label is None and first_column == 1 and from_one:
        notes.append("labels count from 1, as the columns do")
        first_label = 1
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


def places_among(labels: np.ndarray, classes: Any) -> np.ndarray:
    """Position of each label among the classes, which need not be sorted; -1 for one that is none of them."""
    place = {name: number for number, name in enumerate(np.asarray(classes).tolist())}
    return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.intp)
