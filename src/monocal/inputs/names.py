"""Names of columns and labels that are names:  ``prob_cat, prob_dog`` are the classes ``cat, dog``; label ``dog`` is class 1.

Columns whose names are whole numbers other than 0..m-1 in order are names as well: labels 2, 0, 1 are the columns called 2, 0
and 1, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from ..arrays import to_numpy
from ..errors import InputError
from .formats import as_array, as_text, class_names

Part = Literal["cal", "test"]

# Words for the values of a row, by what they are.
VALUE_WORDS: dict[str, tuple[str, ...]] = {
    "logits": (
        *(
            "logits",
            "logit",
            "log_probs",
            "log_prob",
            "log_probabilities",
            "log_probas",
            "logprobs",
            "logprob",
        ),
        "log_softmax",
    ),
    "probabilities": ("probabilities", "probability", "probs", "prob", "probas", "proba", "softmax"),
    "values": ("values", "outputs", "scores"),  # says neither logits nor probabilities
}
# Words for the parts of a data set.
PARTS: dict[Part, tuple[str, ...]] = {
    "cal": ("cal", "calib", "calibration", "val", "valid", "validation"),
    "test": ("test",),
}
# Words before or after the class in the name of a column that are no part of the class.
_AROUND_A_CLASS = {
    *(word for words in (*VALUE_WORDS.values(), *PARTS.values()) for word in words),
    *("class", "p", "pr", "y", "pred", "predicted", "score", "output", "value", "log"),
}
_WORD = re.compile(r"[^\W\d_]+|\d+")


def classes_of(columns: Sequence[str]) -> tuple[str, ...]:
    """What columns call their classes: ``prob_cat, prob_dog`` -> ``cat, dog``."""
    words = [[(m.start(), m.end(), m[0].lower()) for m in _WORD.finditer(name)] for name in columns]
    most = max(0, min((len(parts) for parts in words), default=0) - 1)  # a word is left for the class
    front = _count_around(words, range(most))
    back = _count_around(words, range(-1, front - most - 1, -1))
    short = [
        name[parts[front][0] if front else 0 : parts[-1 - back][1] if back else len(name)].strip(" ()[]")
        for name, parts in zip(columns, words, strict=True)
    ]
    return tuple(short) if all(short) and len(set(short)) == len(short) else tuple(columns)


def _count_around(words: Sequence[Sequence[tuple[int, int, str]]], places: Iterable[int]) -> int:
    """How many of these places, in all names alike, go up to a word that is no part of a class."""
    end = 0
    for count, place in enumerate(places, 1):
        here = {parts[place][2] for parts in words}
        if len(here) > 1:
            break
        if here <= _AROUND_A_CLASS:
            end = count
    return end


def is_around_a_class(name: str) -> bool:
    """Whether a name is a word of values, such as proba, and no class."""
    return name.lower() in _AROUND_A_CLASS


def same_class(name: str) -> str:
    """A name of a class as it is compared where spellings differ: ``New York`` and ``new_york`` are one."""
    return re.sub(r"[-. _]+", "_", name.strip().lower())


def listing(names: Iterable[object], limit: int = 8) -> str:
    """``'a', 'b' and 12 more``."""
    names = list(names)
    shown = ", ".join(repr(str(name)) for name in names[:limit])
    return (shown or "nothing") + (f" and {len(names) - limit} more" if len(names) > limit else "")


def by_column(y: Any, X: Any, class_axis: int = -1, ignore_index: int | None = None, name: str = "y") -> Any:
    """Labels that name the columns of a frame (the coordinates of a labelled array) as class numbers; any others as they are."""
    names = None if y is None else class_names(X, class_axis)
    if names is None:
        return y
    classes = classes_of(names)
    columns = numbered_columns(classes)
    if hasattr(y, "dask"):
        if columns is None:
            return y
        raise InputError(
            f"X: its columns are called {listing(names)}, so that labels are names of columns, and {name} is a Dask collection. "
            "Put the columns in order, and number classes and columns 0..m-1."
        )
    labels = np.asarray(to_numpy(as_array(y)))
    words = labels.dtype.kind in "OUT" and all(isinstance(word, str) for word in labels.flat)
    if columns is None and not words:
        return y
    try:
        distinct, which = np.unique(labels if words else labels.astype(np.float64), return_inverse=True)
    except (TypeError, ValueError):
        return y  # refused where labels are checked
    keys = list(map(as_text, distinct.tolist()))
    # A label whose column stands where ``ignore_index`` points would be ignored as well.
    numbers = [None if number == ignore_index else number for number in numbers_of(keys, classes)]
    if ignore_index is not None:
        numbers = [ignore_index if k == str(ignore_index) else n for k, n in zip(keys, numbers, strict=True)]
    if None in numbers:
        wrong = numbers.index(None)
        if columns is None and re.fullmatch(r"\s*-?[\d.]+\s*", keys[wrong]):
            return y
        row = int(np.argmax(which.reshape(-1) == wrong))
        shown = repr(keys[wrong]) if words else keys[wrong]
        raise InputError(
            f"{name}: label {shown} in row {row} is none of the columns {listing(names)}. Correct the label, or give a column "
            "for its class; where labels count the columns, pass an array without names."
        )
    return np.array(numbers, dtype=np.int64)[which.reshape(-1)].reshape(labels.shape)


def numbers_of(words: Sequence[str], classes: Sequence[str]) -> list[int | None]:
    """The class that each word names, in its own spelling or, where that is clear, in another."""
    exact = {name: number for number, name in enumerate(classes)}
    spelt = {same_class(name): number for number, name in enumerate(classes)}
    other = spelt if len(spelt) == len(exact) else {}
    return [exact.get(word, other.get(same_class(word))) for word in words]


def numbered_columns(classes: Sequence[str]) -> dict[int, int] | None:
    """The place of each column by its number, where names are whole numbers other than 0..m-1 in order."""
    if not all(re.fullmatch(r"-?\d{1,15}", name) for name in classes):
        return None
    columns = {int(name): place for place, name in enumerate(classes)}
    in_order = all(number == place for number, place in columns.items())
    return None if in_order or len(columns) < len(classes) else columns


def places_among(labels: np.ndarray, classes: Any) -> np.ndarray:
    """Position of each label among the classes, which need not be sorted; -1 for one that is none of them."""
    place = {name: number for number, name in enumerate(np.asarray(classes).tolist())}
    return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.intp)
