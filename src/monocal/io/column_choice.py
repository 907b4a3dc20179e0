"""Which column is what. The rules, on one page:

1. **What the caller says goes first**: names, places (``-1`` is the last column of a table), patterns (``p_*``), ``kind``.
2. **Parts.** ``logits_val``, ``y_val`` and ``logits_test``, ``y_test`` are two parts of one file.
3. **Labels** are the column called ``label``, ``y``, ``y_true``, ``target``, ``class``, ``gt``, ... (`ROLES`); without one of
   these, the column called ``outcome``, ``actual``, ``correct``, ``truth``, ...
4. **Many labels.** Columns ``p_a, p_b`` with ``y_a, y_b`` are a score and a label of 0, 1 or blank for each of many labels. Where
   every row has a single 1, they are one label out of so many classes.
5. **Values** are what has the word *logit* or *prob* in its name: one array, or a column for each class. ``score_calibrated`` and
   the like, which ``apply`` writes, hold probabilities and go before others.
6. **Classes are the columns that the labels name.** With labels cat, dog and owl, a column ``age`` is none. A further column that
   may be a class without a label (fractions, as the others are, and rows that do not sum to 1 without it) is asked about.
7. Where labels are numbers, every column of numbers is a class, but ids, predictions, weights and the like. A column of whole
   numbers among fractions that no label needs is none; classes that no label has, in many rows, are asked about.
8. **Numbers as names.** Columns called by whole numbers other than 0 to m-1 in order are names: a label 2 is the column called 2.
9. **Logits or probabilities** is said by the name, or by ``kind``. Where neither does, values are logits, unless they look like
   probabilities or percent: these are asked about, never fitted.
10. **Missing values** are counted and refused; with ``drop_missing`` these rows are left out.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, KindError, spoken
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
        *("labels", "label", "y", "y_true", "targets", "target"),
        *("true_labels", "true_label", "true_class", "class", "class_label", "gt", "ground_truth"),
    ),
    # Labels where nothing has a name of the line above.
    "outcomes": (
        *("outcome", "outcomes", "actual", "actuals", "y_actual", "truth", "true", "observed"),
        *("correct", "is_correct", "correctness", "gold", "gold_label"),
    ),
    "classes": ("classes", "class_names", "label_names"),
    "weights": ("weights", "weight", "sample_weights", "sample_weight"),
    # Columns that tables often carry and that are no class: taking one for a class would be silent and wrong.
    "aside": (
        *("id", "ids", "idx", "index", "row", "split", "fold", "part"),
        *("pred", "prediction", "predictions", "predicted", "y_pred", "predicted_label", "predicted_class"),
        *("max_prob", "max_proba", "max_probability", "prob_max", "top_prob", "confidence"),
    ),
}
CALIBRATED = "_calibrated"
_VALUES = ("logits", "probabilities", "values")
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_PART_OF = {word: part for part, words in PARTS.items() for word in words}
_ENOUGH = 20  # rows for each class, in which every class should be the label of one


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_NAME = re.compile(
    rf"(?:(?P<before>{_either(_PART_OF)})_)?(?P<role>{_either(_ROLE_OF)})"
    rf"(?:_(?P<after>{_either(_PART_OF)}))?(?:_?(?P<index>\d{{1,9}}))?"
)
_GROUPED = re.compile(rf"(?P<group>.+?)_(?P<name>{_NAME.pattern})")
_STEM = re.compile(rf"(?:(?P<set>.*?)_)?(?P<part>{_either(_PART_OF)})")
# The word for logits or probabilities anywhere in a name.
_HELD = re.compile(
    r"(?:^|_)(?P<word>log_?prob[a-z]*|log_softmax|[^_\d]*logits?|[^_\d]*prob(?:s|as?|ability|abilities)?|softmax"
    rf"|(?<!.)pr?(?=[_(](?!value)))(?:_(?P<after>{_either(_PART_OF)}))?(?=[_(]|\d|$)"
)


@dataclass(frozen=True)
class Meaning:
    """Role, part and number that a name states; None where it is silent. ``plain``: it states nothing else."""

    role: str | None = None
    part: Part | None = None
    index: int | None = None
    plain: bool = True

    @property
    def holds_values(self) -> bool:
        return self.role in _VALUES


def meaning(name: str) -> Meaning:
    """Read a name, ``[part_] role [_part] [_class]``; a leading path (``dataset/model/``) is left aside."""
    plain = _plain(name.rpartition("/")[2])
    if plain.endswith(CALIBRATED):
        return Meaning("probabilities", plain=False)
    match = _NAME.fullmatch(plain)
    if match is not None:
        if match["before"] and match["after"]:
            return Meaning()
        part, role = match["before"] or match["after"], _ROLE_OF[match["role"]]
        index = int(match["index"]) if match["index"] else None
        if index is not None and (role not in (*_VALUES, "labels") or match["role"] == "class"):
            return Meaning()  # class_3 may well be a column of class 3
        return Meaning(role, _PART_OF[part] if part else None, index)
    held = _HELD.search(plain)
    if held is None:
        return Meaning()
    words = plain.split("_")
    part = held["after"] or next((word for word in (words[0], words[-1]) if word in _PART_OF), None)
    kind = "logits" if "log" in held["word"] else "probabilities"
    return Meaning(kind, _PART_OF[part] if part else None, plain=False)


def _plain(name: str) -> str:
    return re.sub(r"[-. ]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def split_group(stem: str) -> str:
    """``resnet_logits_val`` -> ``resnet/logits_val``; a name without a set before it stays as it is."""
    plain = _plain(stem)
    match = None if _NAME.fullmatch(plain) else _GROUPED.fullmatch(plain)
    if match is None or len(plain) != len(stem):
        return stem
    return f"{stem[: match.end('group')]}/{stem[match.start('name') :]}"


def split_part(stem: str) -> tuple[str, Part | None]:
    """``resnet_test`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    match = _STEM.fullmatch(re.sub(r"[-. ]", "_", stem.lower()))
    if match is None:
        return stem, None
    return stem[: match.end("set")] if match["set"] else "", _PART_OF[match["part"]]


def without_part(name: str) -> tuple[str, Part | None]:
    """``context_test`` and ``test_context`` -> ``("context", "test")``; ``context`` -> ``("context", None)``."""
    for pattern in (
        rf"(?P<part>{_either(_PART_OF)})[-. _](?P<base>.+)",
        rf"(?P<base>.+)[-. _](?P<part>{_either(_PART_OF)})",
    ):
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match is not None:
            return match["base"], _PART_OF[match["part"].lower()]
    return name, None


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is None:
        return None
    if part not in _PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return _PART_OF[part]


def choose_group(source: NamedArrays, group: str | None) -> tuple[str, tuple[str, ...]]:
    """The group asked for, or the only one that holds values: ``(group, names)``."""
    groups = source.groups()
    if not groups:
        raise FileError(f"{source.title} holds no arrays: write logits and labels into it.")
    if group is not None:
        if group.strip("/") not in groups:
            raise FileError(f"{source.title} has no group {group!r}: it holds {listing(groups)}.")
        return group.strip("/"), groups[group.strip("/")]
    usable = {
        g: names for g, names in groups.items() if any(meaning(n).holds_values for n in names)
    } or groups
    if "" in usable or len(usable) == 1:
        chosen = "" if "" in usable else next(iter(usable))
        return chosen, usable[chosen]
    raise FileError(
        f"{source.title} holds {len(usable)} sets, {listing(usable)}: say which with {spoken('group=')}."
    )


@dataclass(frozen=True)
class Choice:
    """Which arrays are what.

    ``values`` and ``labels`` are one array of all classes, or a column for each; ``kind`` is None where no name says it;
    ``classes`` are the names that columns give their classes and ``first`` the number of the first where they only number them;
    ``aside`` are columns that go with the rows; ``pairs``: each column of labels belongs to the column of values at its place.
    """

    values: tuple[str, ...]
    kind: Kind | None
    labels: tuple[str, ...]
    weights: str | None
    part: Part | None
    classes: tuple[str, ...] | None
    first: int | None
    classes_array: str | None
    aside: tuple[str, ...]
    pairs: bool = False


def choose(
    source: NamedArrays,
    names: Sequence[str],
    *,
    where: str,
    values: Names | None = None,
    labels: Names | None = None,
    weights: str | None = None,
    kind: Kind | None = None,
    part: Part | None = None,
    classes: Sequence[str] | None = None,
    label_values: np.ndarray | None = None,
) -> Choice:
    """Decide what each of ``names`` is; ``where`` is the file, for messages.

    ``classes`` are the names of the classes where the caller knows them, ``label_values`` labels from another file.
    """
    said = {name: meaning(name) for name in names}
    chosen_labels = () if labels is None else find_names(source, names, labels, "labels", where)
    chosen_weights = None if weights is None else find_names(source, names, weights, "weights", where)[0]
    stated = {*chosen_labels, chosen_weights}
    pairs = source.table and values is None and labels is None and label_values is None
    paired = _pairs([n for n in names if n not in stated]) if pairs else None
    if paired is not None:
        chosen, chosen_labels = paired
        kind = kind or _kind_of(said[chosen[0]].role)
    elif values is not None:
        chosen = tuple(n for n in find_names(source, names, values, "values", where) if n not in stated)
        explicit = said.keys() >= {values} if isinstance(values, str) else said.keys() >= set(values)
        order = None if explicit else _numbered(classes_of(chosen))
        chosen = chosen if order is None else tuple(chosen[i] for i in order)
        part = part or said[chosen[0]].part
        kind = kind or _kind_of(said[chosen[0]].role)
    else:
        part = _which_part(said, part, where)
        if labels is None:
            chosen_labels = find_labels([n for n in names if n not in stated], part, where)
        here = {
            n: m for n, m in said.items() if m.part in (part, None) and n not in {*stated, *chosen_labels}
        }
        if label_values is None and source.table and len(chosen_labels) == 1:
            (label_values,) = source.load(chosen_labels)
        chosen, kind = _find_values(source, here, kind, where, part, classes, label_values)
    class_names, first = _classes(source, chosen)
    others = [n for n in names if n not in {*chosen, *stated}]
    if not source.table:  # labels of another group belong to other values
        others = [n for n in others if n.rpartition("/")[0] == chosen[0].rpartition("/")[0]]
    if labels is None and paired is None:
        chosen_labels = find_labels(others, part, where) or _one_hot(others, class_names, len(chosen))
    used = {*chosen, *stated, *chosen_labels}
    arrays = [] if source.table else [n for n in others if said[n].role == "classes" and n not in used]
    carried = ("aside", "weights") if not source.table else tuple({m.role for m in said.values()})
    return Choice(
        chosen,
        kind,
        chosen_labels,
        chosen_weights,
        part,
        class_names,
        first,
        arrays[0] if len(arrays) == 1 else None,
        tuple(n for n in names if n not in used and said[n].role in carried and said[n].part in (part, None)),
        paired is not None,
    )


def find_names(
    source: NamedArrays, names: Sequence[str], wanted: Names, argument: str, where: str
) -> tuple[str, ...]:
    """The names that a caller means by names, places and patterns."""
    asked = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if not asked:
        raise InputError(f"{argument} must name at least one array or column, got none.")
    known = set(names)
    chosen: dict[str, None] = {}
    for one in asked:
        meant = [one] if one in known else _meant(source, names, str(one).strip(), argument, where)
        chosen |= dict.fromkeys(meant)
    return tuple(chosen)


def _meant(source: NamedArrays, names: Sequence[str], name: str, argument: str, where: str) -> list[str]:
    tails = [n for n in names if n.rpartition("/")[2] == name]
    if len(tails) == 1:
        return tails
    if source.table and re.fullmatch(r"-?\d{1,9}", name) and -len(names) <= int(name) < len(names):
        return [names[int(name)]]
    if re.search(r"[*?\[]", name):
        matched = [n for n in names if fnmatch.fnmatchcase(n, name)]
        if matched:
            return matched
    more = f"; labels in another file are given by {spoken('labels_file=')}" if argument == "labels" else ""
    if argument == "columns":
        raise FileError(f"{where} has no column {name!r}: it holds {listing(names)}.")
    raise FileError(
        f"{where} has no {name!r} (asked for by {spoken(f'{argument}=')}): it holds {listing(names)}{more}."
    )


def find_labels(names: Sequence[str], part: Part | None, where: str) -> tuple[str, ...]:
    """The one name that says labels (of this part, else of no part in particular, else of any), if there is one."""
    for role in ("labels", "outcomes"):
        all_parts = dict.fromkeys((part, None, *([] if part else PARTS)))
        for wanted in all_parts:
            matched = [n for n in names if meaning(n) == Meaning(role, wanted)]
            if len(matched) > 1:
                raise FileError(
                    f"{where} has several arrays of labels, {listing(matched)}: say which with {spoken('labels=')}."
                )
            if matched:
                return (matched[0],)
    return ()


def _pairs(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Columns ``p_a, p_b`` and ``y_a, y_b``: the values and the labels of many labels, or of one-hot classes."""
    known = {same_class(n): n for n in names}
    for word in ROLES["labels"]:
        endings = [n.removeprefix(f"{word}_") for n in known if n.startswith(f"{word}_")]
        if len(endings) < 2 or not _PART_OF.keys().isdisjoint(endings):
            continue
        for before in (*ROLES["probabilities"], *ROLES["logits"], *ROLES["values"]):
            values = [n for n in known if n.startswith(f"{before}_")]
            if sorted(values) == sorted(f"{before}_{ending}" for ending in endings):
                columns = tuple(known[f"{before}_{ending}"] for ending in endings)
                return columns, tuple(known[f"{word}_{ending}"] for ending in endings)
    return None


def _one_hot(names: Sequence[str], classes: Sequence[str] | None, m: int) -> tuple[str, ...]:
    """Columns of labels, one for each class: ``label_0, label_1, ...`` or ``label_cat, label_dog, ...``."""
    known = {same_class(n): n for n in names}
    for word in ROLES["labels"]:
        for endings in (classes or (), range(m), range(1, m + 1)):
            wanted = [f"{word}_{same_class(str(ending))}" for ending in endings]
            if len(wanted) > 1 and all(name in known for name in wanted):
                return tuple(known[name] for name in wanted)
    return ()


def _which_part(said: dict[str, Meaning], part: Part | None, where: str) -> Part | None:
    parts = {m.part for m in said.values() if m.holds_values}
    if part is not None:
        if part not in parts:
            raise FileError(
                f"{where} has no {part} part: it holds {listing(said)}; leave {spoken('part=')} out or rename."
            )
        return part
    if len(parts) <= 1 or None in parts:
        return next(iter(parts)) if len(parts) == 1 else None
    raise FileError(
        f"{where} holds a calibration part and a test part: say {spoken('part=', 'cal')} or {spoken('part=', 'test')}."
    )


def _find_values(
    source: NamedArrays,
    here: dict[str, Meaning],
    kind: Kind | None,
    where: str,
    part: Part | None,
    classes: Sequence[str] | None,
    labels: np.ndarray | None,
) -> tuple[tuple[str, ...], Kind | None]:
    calibrated = [n for n in here if _plain(n).endswith(CALIBRATED)]
    if calibrated and kind != "logits":
        return tuple(calibrated), "probabilities"
    here = {n: m for n, m in here.items() if n not in calibrated}
    if source.table:
        words = _label_words(labels) if classes is None else tuple(classes)
        named = _named(source, here, words, where, sure=classes is not None)
        if named:
            roles = {here[name].role for name in named}
            return named, kind or _kind_of(roles.pop() if len(roles) == 1 else None)
    of_part = {n: m for n, m in here.items() if m.part == part}
    for role in (kind, "values") if kind else ("logits", "probabilities", "values"):
        columns = _of_role(source, of_part, str(role), where)
        if columns:
            return columns, kind or _kind_of(role)
    other = [n for n, m in of_part.items() if m.holds_values]
    if other:
        raise KindError(
            f"{where} holds {listing(other)} and {spoken('kind=', kind)} was asked for: change {spoken('kind=')}, "
            f"or name the array with {spoken('values=')} to insist."
        )
    silent = (None,) if source.table else (None, "aside")
    unnamed = tuple(n for n, m in of_part.items() if m.role in silent and n not in source.text)
    if source.table and unnamed:
        return _of_numbers(source, unnamed, labels, where), kind
    if len(unnamed) == 1:
        return unnamed, kind
    if source.table and "confidence" in map(_plain, here):  # the only number, and what it says of itself
        return tuple(n for n in here if _plain(n) == "confidence"), kind or "probabilities"
    raise FileError(
        f"{where} has no array called 'logits' or 'probabilities': it holds {listing(here)}; "
        f"say which one with {spoken('values=')}."
    )


def _of_role(source: NamedArrays, here: dict[str, Meaning], role: str, where: str) -> tuple[str, ...]:
    """The one array of a role, or its columns in the order of the classes."""
    members = {n: m for n, m in here.items() if m.role == role}
    whole = [n for n, m in members.items() if m.plain and m.index is None]
    columns = [n for n, m in members.items() if m.index is not None or (source.table and not m.plain)]
    if source.table and len(columns) > 1:
        whole = []  # beside a column for each class, one more is of another kind, such as the largest
    elif not whole:
        whole = [n for n in members if n not in columns] or (columns if len(columns) == 1 else [])
    if len(whole) > 1:
        raise FileError(
            f"{where} has several arrays of {role}, {listing(whole)}: say which with {spoken('values=')}."
        )
    if whole or not columns:
        return tuple(whole)
    names = classes_of(columns)
    order = _numbered(names)
    if order is not None:
        return tuple(columns[i] for i in order)
    if all(name.isdecimal() for name in names):
        numbers = sorted(map(int, names))
        raise FileError(
            f"{where} has columns of {role} numbered {', '.join(map(str, numbers[:8]))}"
            f"{', ...' if len(numbers) > 8 else ''}: expected 0 to m-1 (or 1 to m) without gaps; "
            f"name the columns with {spoken('values=')} in the order of the classes."
        )
    return tuple(columns)


def _label_words(labels: np.ndarray | None) -> tuple[str, ...]:
    """The different labels where they are words."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "OUb":
        return ()
    words = {str(word).strip() for word in labels.tolist() if word is not None and word == word}
    return () if all(map(is_number, words)) else tuple(sorted(words - {""}))


def _named(
    source: NamedArrays, here: dict[str, Meaning], words: Sequence[str], where: str, sure: bool
) -> tuple[str, ...]:
    """The columns of numbers that two words or more name, all of them; none where one word is the name of no column."""
    known = {same_class(n): n for n, m in here.items() if n not in source.text and m.role != "aside"}
    chosen = [known.get(same_class(word)) for word in words]
    if len(chosen) < 2 or None in chosen or len(set(chosen)) < len(chosen):
        return ()
    columns = [n for n in here if n in chosen]  # in the order of the file
    others = [n for n, m in here.items() if n not in chosen and m.role is None and n not in source.text]
    if sure or not others:
        return tuple(columns)
    values, rest = (np.column_stack(source.load(names)).astype(float) for names in (columns, others))
    others = [n for n, column in zip(others, rest.T, strict=True) if not _whole_among(column, values)]
    rest = np.column_stack(source.load(others)).astype(float) if others else rest[:, :0]
    if not others or _sums_to_one(values):
        return tuple(columns)
    if _sums_to_one(np.column_stack([values, rest])):
        return tuple(n for n in here if n in chosen or n in others)
    told = ",".join(columns)
    raise FileError(
        f"{where} has the columns {listing(others)}, which no label names, beside the classes {listing(columns)}: say which "
        f"columns are classes, {spoken('values=', told)} or {spoken('values=', told + ',' + ','.join(others))}."
    )


def _of_numbers(
    source: NamedArrays, columns: tuple[str, ...], labels: np.ndarray | None, where: str
) -> tuple[str, ...]:
    """The columns of numbers that are classes where labels are numbers of the columns."""
    order = _numbered(classes_of(columns))
    if order is not None:
        return tuple(columns[i] for i in order)
    numbers = None if labels is None or labels.ndim != 1 else _as_numbers(labels)
    m = len(columns)
    if numbers is None or m < 2 or source.headless:
        return columns
    top, names_are_numbers = np.nanmax(numbers, initial=0), all(map(is_number, columns))
    if top == m - (numbers.min(initial=0) == 0) or names_are_numbers:
        return columns
    held = source.load(columns)
    if any(column.ndim != 1 or column.dtype.kind not in "fiu" for column in held):
        return columns
    values = np.column_stack(held).astype(float)
    kept = [j for j in range(m) if not _whole_among(values[:, j], np.delete(values, j, axis=1))]
    if 2 <= len(kept) < m and top < len(kept):
        return tuple(columns[j] for j in kept)
    if top >= m - 1 or len(numbers) < _ENOUGH * m or _sums_to_one(values):
        return columns
    raise FileError(
        f"{where} has {m} columns of numbers, {listing(columns)}, and labels from {numbers.min():g} to {top:g}: say which "
        f"columns are classes, such as {spoken('values=', ','.join(columns[: max(2, int(top) + 1)]))}, or all of them, "
        f"{spoken('values=', ','.join(columns))}."
    )


def _as_numbers(labels: np.ndarray) -> np.ndarray | None:
    try:
        numbers = labels.astype(float)
    except (TypeError, ValueError):
        return None
    return numbers[~np.isnan(numbers)] if numbers.size else None


def _whole_among(column: np.ndarray, others: np.ndarray) -> bool:
    """Whether a column holds whole numbers, not all alike, where others hold fractions."""
    varies = bool((column != column[0]).any())
    return _is_whole(column) and varies and not any(map(_is_whole, others.T))


def _is_whole(column: np.ndarray) -> bool:
    finite = column[np.isfinite(column)]
    return bool((finite == np.floor(finite)).all())


def _sums_to_one(values: np.ndarray) -> bool:
    total = values.sum(axis=1)
    return bool((values[~np.isnan(total)] >= 0).all() and (np.abs(total[~np.isnan(total)] - 1) < 0.05).all())


def _numbered(classes: Sequence[str]) -> list[int] | None:
    """The order of columns that are numbered 0 to m-1 or 1 to m; None for others."""
    if not all(name.isdecimal() and len(name) < 10 for name in classes):
        return None
    order = sorted(range(len(classes)), key=lambda i: int(classes[i]))
    numbers = [int(classes[i]) for i in order]
    plain = numbers[0] <= 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return order if plain else None


def _classes(source: NamedArrays, columns: Sequence[str]) -> tuple[tuple[str, ...] | None, int | None]:
    """Names of the classes, None where columns only number them in order; and the number of the first column where they do."""
    names = classes_of([re.sub(f"{CALIBRATED}$", "", name) for name in columns])
    if source.headless:
        return None, None
    if len(columns) == 1:
        said = meaning(columns[0])
        silent = said.plain or is_around_a_class(names[0]) or columns[0].endswith(CALIBRATED)
        return (None if silent else names), None
    in_order = _numbered(names) == list(range(len(names)))
    return (None, int(names[0])) if in_order else (names, None)


def _kind_of(role: Any) -> Kind | None:
    return role if role in ("logits", "probabilities") else None
