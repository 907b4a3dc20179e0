"""Which array or column of a file is what, by its name:  ``y_pred_proba_test`` -> probabilities, test part.

The rules, in order. Where they do not decide, the file is refused, with its columns and the option
that does.

1. **What the caller says**: names, patterns (``p_*``), ``kind``.
2. **Parts.** ``logits_val``, ``y_val`` and ``logits_test``, ``y_test`` are two parts of one file.
3. **Labels** are the one column called ``label``, ``y``, ``y_true``, ... (`ROLES`); else ``outcome``,
   ``actual``, ``truth``, ...
4. **Many labels.** Columns ``p_a, p_b`` with ``y_a, y_b`` are a score and a label of 0, 1 or blank for
   each of many labels. Where every row has a single 1, they are one label out of so many classes.
5. **Values** are columns ``score_calibrated``, which ``apply`` writes; else the columns that labels
   name; else what has the word *logit* or *prob* in its name, one array or a column for each class;
   else all columns of numbers but ids, predictions and whole numbers among fractions; else ``confidence``.
6. **Columns without such a word must each be a class**: the labels name them all, or reach the last of
   them, or every row sums to 1. Two columns of logits are two classes, not the scores of two models,
   where the labels name them.
7. **Numbers as names.** Columns called by whole numbers other than 0 to m-1 are names: a label 2 is
   the column called 2.
8. **Logits or probabilities** is said by the name, or by ``kind``; `monocal.io.assembly` looks at the
   values.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monocal.errors import FileError, InputError, wording
from monocal.inputs.names import (
    PARTS,
    VALUE_WORDS,
    Part,
    classes_of,
    is_around_a_class,
    listing,
    same_class,
)
from monocal.io.named_arrays import NamedArrays, is_number

Kind = Literal["logits", "probabilities"]
Names = str | Sequence[str]

ROLES = {
    "logits": (*VALUE_WORDS["logits"], "log_odds", "logodds"),
    "probabilities": (*VALUE_WORDS["probabilities"], "p", "pr"),
    "values": (*VALUE_WORDS["values"], "score", "output", "margin", "decision", "decision_function"),
    "labels": (
        *("labels", "label", "y", "y_true", "targets", "target", "label_id", "label_ids", "class_id"),
        *("true_labels", "true_label", "true_class", "class", "class_label", "gt", "ground_truth"),
    ),
    # Labels where nothing has a name of the lines above.
    "outcomes": (
        *("outcome", "outcomes", "actual", "actual_label", "truth", "observed", "gold", "gold_label"),
        *("correct", "is_correct"),
    ),
    "classes": ("classes", "class_names", "label_names"),
    "weights": ("weights", "weight", "sample_weights", "sample_weight"),
    # Columns that tables often carry and that are no class: taking one for a class would be wrong.
    "aside": (
        *("id", "ids", "idx", "index", "row", "split", "fold", "part", "confidence"),
        *("pred", "prediction", "predictions", "predicted", "y_pred", "predicted_label"),
        *("predicted_class", "max_prob", "max_proba", "max_probability", "prob_max", "top_prob"),
    ),
}
# Names of two classes, the second of which a score or a label 1 is about.
TWO_CLASSES = (("false", "true"), ("no", "yes"), ("negative", "positive"))
CALIBRATED = "_calibrated"
VALUES = ("logits", "probabilities", "values")
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_PART_OF = {word: part for part, words in PARTS.items() for word in words}
_PART = "|".join(sorted(_PART_OF, key=len, reverse=True))
# The word for logits or probabilities anywhere in a name.
_HELD = re.compile(
    r"(?:^|_)(?P<word>log_?prob[a-z]*|log_softmax|[^_\d]*logits?|softmax"
    r"|[^_\d]*prob(?:s|as?|ability|abilities)?|(?<!.)pr?(?=[_(](?!value)))"
    rf"(?:_(?P<after>{_PART}))?(?=[_(]|\d|$)"
)


# What a name says


@dataclass(frozen=True)
class Meaning:
    """Role, part and number that a name states; ``plain``: it states nothing else."""

    role: str | None = None
    part: Part | None = None
    index: int | None = None
    plain: bool = True

    @property
    def holds_values(self) -> bool:
        return self.role in VALUES


def meaning(name: str) -> Meaning:
    """Read a name, ``[part_] role [_part] [_class]``, less a leading path."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rpartition("/")[2]).lower()
    plain = re.sub(r"[-. ]", "_", plain)
    if plain.endswith(CALIBRATED):
        return Meaning("probabilities", plain=False)
    unnumbered, number = re.fullmatch(r"(.*?)(?:_?(\d{1,9}))?", plain).groups()  # type: ignore[union-attr]
    word, part = split_part(unnumbered)
    role = _ROLE_OF.get(word)
    if role is not None and (number is None or (role in (*VALUES, "labels") and word != "class")):
        return Meaning(role, part, None if number is None else int(number))
    held = None if role is not None else _HELD.search(plain)  # class_3 may well be a column of class 3
    if held is None:
        return Meaning("aside") if plain.endswith("_id") else Meaning()
    part = _PART_OF[held["after"]] if held["after"] else split_part(plain)[1]
    return Meaning("logits" if "log" in held["word"] else "probabilities", part, plain=False)


def split_part(name: str) -> tuple[str, Part | None]:
    """``resnet_test`` and ``test_resnet`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    for pattern in (rf"(?P<part>{_PART})(?:[-. _](?P<rest>.+))?", rf"(?P<rest>.+)[-. _](?P<part>{_PART})"):
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match is not None:
            return match["rest"] or "", _PART_OF[match["part"].lower()]
    return name, None


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is not None and part not in _PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return None if part is None else _PART_OF[part]


def aside(names: Iterable[str]) -> list[str]:
    """Names that say neither outputs nor labels."""
    return [name for name in names if meaning(name).role in (None, "aside")]


def choose_group(source: NamedArrays, group: str | None) -> tuple[str, tuple[str, ...]]:
    """The group asked for, or the only one that holds values: ``(group, names)``."""
    groups = source.groups()
    if not groups:
        raise FileError(f"{source.title} holds no arrays: write logits and labels into it.")
    if group is None:
        with_values = [g for g, names in groups.items() if any(meaning(n).holds_values for n in names)]
        candidates = with_values or list(groups)
        group = "" if "" in candidates or len(candidates) != 1 else candidates[0]
    if group.strip("/") not in groups:
        raise FileError(
            f"{source.title} holds the sets {listing(groups)}: say which with {wording('group=')}."
        )
    return group.strip("/"), groups[group.strip("/")]


def find_names(names: Sequence[str], request: Names, argument: str, where: str) -> tuple[str, ...]:
    """The names that a caller means by names and patterns."""
    present, chosen = set(names), dict[str, None]()
    for one in map(str.strip, (request,) if isinstance(request, str) else request):
        tails = [one] if one in present else [n for n in names if n.rpartition("/")[2] == one]
        matched = tails if len(tails) == 1 else fnmatch.filter(names, one)
        if not matched:
            option = f" (asked for by {wording(f'{argument}=')})" if argument else ""
            raise FileError(f"{where} has no {one!r}{option}: it holds {listing(names)}.")
        chosen |= dict.fromkeys(matched)
    if not chosen:
        raise InputError(f"{argument} must name at least one array or column, got none.")
    return tuple(chosen)


def labels_of(names: Sequence[str], part: Part | None, where: str) -> tuple[str, ...]:
    """The one name that says labels, of this part, else of none, else (if none is asked for) of any."""
    for role in ("labels", "outcomes"):
        for one in dict.fromkeys((part, None, *([] if part else PARTS))):
            matched = tuple(n for n in names if meaning(n) == Meaning(role, one))
            if len(matched) > 1:
                raise FileError(
                    f"{where} has several arrays of labels, {listing(matched)}: say which with "
                    f"{wording('labels=')}."
                )
            if matched:
                return matched
    return ()


# The choice


class Choice:
    """What each of the names in a file is; ``where`` is the file, for messages.

    ``values`` and ``labels`` are one array of all classes, or a column for each; ``kind`` is None where
    no name says it; ``class_names`` are those that columns give their classes; ``aside`` are columns that
    go with the rows; ``pairs``: each column of labels belongs to the column of values at its place.
    """

    def __init__(
        self,
        source: NamedArrays,
        names: Sequence[str],
        where: str,
        *,
        values: Names | None = None,
        labels: Names | None = None,
        weights: str | None = None,
        kind: Kind | None = None,
        part: Part | None = None,
        classes: Sequence[str] | None = None,
        label_values: np.ndarray | None = None,
    ):
        self.source, self.where, self.part, self.classes = source, where, part, classes
        self.kind, self.label_values = kind, label_values  # labels of another file
        self.meanings = {name: meaning(name) for name in names}
        self.weights = None if weights is None else find_names(names, weights, "weights", where)[0]
        self.labels = () if labels is None else find_names(names, labels, "labels", where)
        free = [name for name in names if name not in {*self.labels, self.weights}]
        paired = _pairs(free, kind) if source.table and values is labels is label_values is None else None
        self.pairs = paired is not None
        if paired is not None:
            self.values, self.labels = paired
        elif values is not None:
            self.values = find_names(free, values, "values", where)
            if isinstance(values, str):  # a pattern
                self.values = _in_order(self.values) or self.values
            self.part = part or self.meanings[self.values[0]].part
        else:
            self.part = self._which_part()
            self.labels = self.labels or labels_of(free, self.part, where)
            if label_values is None and source.table and len(self.labels) == 1:
                (self.label_values,) = source.load(self.labels)
            self.values = self._find_values([n for n in free if n not in self.labels])
        roles = {self.meanings[name].role for name in self.values}
        self.kind = self.kind or next((k for k in ("logits", "probabilities") if roles == {k}), None)
        used = {*self.values, *self.labels, self.weights}
        rest = [n for n in names if n not in used]
        if not source.table:  # what stands in another group belongs to other values
            rest = [n for n in rest if n.rpartition("/")[0] == self.values[0].rpartition("/")[0]]
        if labels is None and not self.labels:
            self.labels = labels_of(rest, self.part, where)
        self.names_of_classes = [n for n in rest if self.meanings[n].role == "classes" and not source.table]
        along = [n for n in rest if source.table or self.meanings[n].role in ("aside", "weights")]
        self.aside = [n for n in along if self.meanings[n].part in (self.part, None) and n not in self.labels]
        self.class_names = self._class_names()

    def _which_part(self) -> Part | None:
        parts = {m.part for m in self.meanings.values() if m.holds_values}
        if self.part is not None and self.part not in parts:
            raise FileError(f"{self.where} has no {self.part} part: it holds {listing(self.meanings)}.")
        if self.part is None and len(parts) > 1 and None not in parts:
            raise FileError(
                f"{self.where} holds a calibration part and a test part: say {wording('part=', 'cal')} or "
                f"{wording('part=', 'test')}."
            )
        return self.part or (next(iter(parts)) if len(parts) == 1 else None)

    def _find_values(self, names: list[str]) -> tuple[str, ...]:
        """Rule 5."""
        table, text = self.source.table, self.source.text
        here = {n: self.meanings[n] for n in names if self.meanings[n].part in (self.part, None)}
        calibrated = tuple(n for n in here if n.lower().endswith(CALIBRATED))
        if calibrated and self.kind != "logits":
            return calibrated
        here = {n: m for n, m in here.items() if n not in calibrated}
        named = self._named([n for n, m in here.items() if n not in text and m.role != "aside"])
        if named:
            return named
        of_part = {n: m for n, m in here.items() if m.part == self.part}
        for role in (self.kind, "values") if self.kind else VALUES:
            columns = self._of_role({n: m for n, m in of_part.items() if m.role == role}, str(role))
            if columns:
                return columns
        silent = {None} if table else {None, "aside"}
        others = tuple(n for n, m in of_part.items() if m.role in silent and n not in text)
        if len(others) == 1 or (table and others):
            return self._checked(others)
        confidence = tuple(n for n in of_part if table and same_class(n) == "confidence" and n not in text)
        if len(confidence) == 1:  # of the answer that is right or wrong
            self.kind = "probabilities"
            return confidence
        raise FileError(
            f"{self.where} has no {'column' if table else 'array'} of {self.kind or 'logits or probabilities'}: it "
            f"holds {listing(self.meanings)}. Say which one with {wording('values=')}; a file of labels is "
            f"given with {wording('labels_file=')}."
        )

    def _named(self, names: list[str]) -> tuple[str, ...]:
        """The columns that are called by the classes; none where a class has no column."""
        words = self._words() if self.classes is None else self.classes
        spelt = {same_class(n): n for n in names} if self.source.table else {}
        chosen = {spelt.get(same_class(word)) for word in words}
        if None in chosen or not 1 < len(chosen) == len(words):
            return ()
        named = tuple(n for n in names if n in chosen)
        if self.classes is not None or self._sum_to_one(named):
            return named
        return self._checked(tuple(n for n in names if n in chosen or not self.meanings[n].role), named)

    def _words(self) -> list[str]:
        """The different labels where they are words."""
        labels = self.label_values
        if labels is None or labels.ndim != 1 or labels.dtype.kind not in "OUb":
            return []
        words = {str(word).strip() for word in labels.tolist() if word is not None and word == word}
        return [] if all(map(is_number, words - {""})) else sorted(words - {""})

    def _of_role(self, members: dict[str, Meaning], role: str) -> tuple[str, ...]:
        """The one array of a role, or its columns in the order of the classes."""
        table = self.source.table
        numbered = {n: m.index is not None or (table and not m.plain) for n, m in members.items()}
        columns = tuple(n for n in members if numbered[n])
        whole = [n for n in members if not numbered[n]]
        plain = [n for n in whole if members[n].plain]
        # Where each class has a column, one more is of another kind, such as the largest.
        whole = [] if table and len(columns) > 1 else plain or whole or list(columns[: len(columns) == 1])
        ordered = _in_order(columns)
        gaps = not ordered and bool(columns) and all(name.isdecimal() for name in classes_of(columns))
        if len(whole) > 1 or (gaps and not whole):
            what = "columns of all classes, without gaps," if gaps else "one array"
            raise FileError(
                f"{self.where} has the {role} {listing(members)}: expected {what} or the names with "
                f"{wording('values=')}."
            )
        if len(columns) == 2 and not whole:
            self._checked(columns)
        return tuple(whole) or ordered or columns

    def _checked(self, columns: tuple[str, ...], named: Sequence[str] = ()) -> tuple[str, ...]:
        """Rule 6: the columns, less whole numbers among fractions; ``named`` are those that labels name."""
        classes = classes_of(columns)
        stated = all(map(is_number, classes)) or len(self.classes or ()) == len(columns)
        if len(columns) < 2 or self.label_values is None or stated:
            return _in_order(columns) or columns
        labels = _as_numbers(self.label_values)
        least = 0 if labels is None else int(labels.max() + (labels.min() == 0))  # classes labels count
        values = self._numbers(columns)
        whole = ((values == np.floor(values)) | ~np.isfinite(values)).all(axis=0)
        whole &= (values != values[:1]).any(axis=0)  # a constant is no count
        silent = {n for n in columns if n not in named and self.meanings[n].role is None}
        kept = tuple(n for n, w in zip(columns, whole, strict=True) if not (w and n in silent))
        columns = kept if kept and least <= max(2, len(kept)) else columns
        classes = tuple(map(same_class, classes_of(columns)))
        if (
            len(columns) == 1
            or classes in TWO_CLASSES
            or set(map(same_class, self._words())) == set(classes)
            or 2 < len(columns) <= least
            or self._sum_to_one(columns)
        ):
            return columns
        example = named or (columns[:least] if least > 2 else columns[-1:])
        raise FileError(
            f"{self.where} has the columns {listing(columns)}, and neither names nor labels say whether "
            f"each is of a class. Say {wording('values=', ','.join(example))} for "
            f"{'one score' if len(example) == 1 else 'these classes'}, or "
            f"{wording('values=', ','.join(columns))} if all are classes."
        )

    def _sum_to_one(self, columns: Sequence[str]) -> bool:
        values = self._numbers(columns)
        values = values[~np.isnan(values).any(axis=1)]
        values = values / (100 if values.max(initial=0) > 2 else 1)  # percent
        return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) < 0.05).all())

    def _numbers(self, columns: Sequence[str]) -> np.ndarray:
        """The columns as numbers, or the first cell that is none."""
        arrays = self.source.load(columns)
        for name, array in zip(columns, arrays, strict=True):
            refuse_words(array, f"{self.source.title}, column {name!r}")
        return np.column_stack(arrays).astype(float)

    def _class_names(self) -> tuple[str, ...] | None:
        """Names that columns give their classes; None where they only number them from 0."""
        columns = self.values
        names = classes_of([re.sub(f"{CALIBRATED}$", "", name) for name in columns])
        if len(columns) == 1:
            plain = self.meanings[columns[0]].plain or is_around_a_class(names[0])
            return None if plain or columns[0].endswith(CALIBRATED) else names
        return None if names == tuple(map(str, range(len(names)))) else names


def _pairs(names: Sequence[str], kind: Kind | None) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Columns ``p_a, p_b`` and ``y_a, y_b``: values and labels of many labels, or of one-hot classes."""
    spelt = {same_class(n): n for n in names}
    calibrated = kind != "logits" and any(n.endswith(CALIBRATED) for n in spelt)
    for word in ROLES["labels"]:
        endings = [n.removeprefix(f"{word}_") for n in spelt if n.startswith(f"{word}_")]
        if len(endings) < 2 or not _PART_OF.keys().isdisjoint(endings):
            continue
        for before in (word for role in VALUES[::-1] for word in ROLES[role]):
            values = [n for n in spelt if n.startswith(f"{before}_") and n.endswith(CALIBRATED) == calibrated]
            expected = [f"{before}_{ending}{CALIBRATED * calibrated}" for ending in endings]
            if sorted(values) == sorted(expected):
                return tuple(spelt[n] for n in expected), tuple(spelt[f"{word}_{e}"] for e in endings)
    return None


def refuse_words(values: np.ndarray, where: str) -> None:
    """Name the first cell of a column of a table that is no number, if there is one."""
    if values.dtype != object or not values.ndim or not len(values):
        return
    cells = enumerate(values)
    row, cell = next(((i, c) for i, c in cells if c is not None and not is_number(c)), (0, values[0]))
    advice = "expected numbers, a column for each class"
    if str(cell).rstrip().endswith("%"):
        advice = f"leave the % signs out and say {wording('kind=', 'percent')}"
    raise FileError(f"{where} has {str(cell)[:40]!r} in row {row} (counting from 0): {advice}.")


def _as_numbers(labels: np.ndarray) -> np.ndarray | None:
    try:
        numbers = labels.astype(float).ravel()
    except (TypeError, ValueError):
        return None
    numbers = numbers[~np.isnan(numbers)]
    return numbers if numbers.size else None


def _in_order(columns: Sequence[str]) -> tuple[str, ...] | None:
    """Columns that are numbered 0 to m-1 or 1 to m, in this order; None for others."""
    numbers = {
        int(c): n for c, n in zip(classes_of(columns), columns, strict=True) if re.fullmatch(r"\d{1,9}", c)
    }
    first = min(numbers, default=0)
    if first > 1 or sorted(numbers) != list(range(first, first + len(columns))):
        return None
    return tuple(numbers[number] for number in sorted(numbers)) or None
