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
   numbers among fractions that no label needs is none. Classes that no label has, in many rows, are asked about, and so are two
   columns of which one alone ranks the rows better than their difference: they are two scores, not a score for each class.
8. **Numbers as names.** Columns called by whole numbers other than 0 to m-1 in order are names: a label 2 is the column called 2.
9. **Logits or probabilities** is said by the name, or by ``kind``. Where neither does, values are logits, unless they look like
   probabilities or percent: these are asked about, never fitted.
10. **Missing values** are counted and refused; with ``drop_missing`` these rows are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monocal.errors import FileError, KindError, wording
from monocal.inputs.names import PARTS, Part, classes_of, is_around_a_class, listing, same_class
from monocal.io.column_names import (
    CALIBRATED,
    PART_OF,
    ROLES,
    VALUES,
    Kind,
    Meaning,
    Names,
    find_names,
    meaning,
    plain_name,
)
from monocal.io.named_arrays import NamedArrays, is_number

_ENOUGH = 20  # rows for each class, in which every class should be the label of one
_BETTER = 0.02  # how much better one of two columns alone may rank the rows than their difference, by chance


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

    ``classes`` are the names of the classes where the caller has them, ``label_values`` labels from another file.
    """
    meanings = {name: meaning(name) for name in names}
    chosen_labels = () if labels is None else find_names(source, names, labels, "labels", where)
    chosen_weights = None if weights is None else find_names(source, names, weights, "weights", where)[0]
    stated = {*chosen_labels, *filter(None, [chosen_weights])}
    open_names = [name for name in names if name not in stated]
    paired = _pairs(open_names, kind) if source.table and values is labels is label_values is None else None
    if paired is not None:
        chosen, chosen_labels = paired
    elif values is not None:
        chosen = _requested(source, names, values, stated, where)
        part = part or meanings[chosen[0]].part
    else:
        part = _which_part(meanings, part, where)
        if labels is None:
            chosen_labels = find_labels(open_names, part, where)
        labelled = {*stated, *chosen_labels}
        here = {n: one for n, one in meanings.items() if one.part in (part, None) and n not in labelled}
        if label_values is None and source.table and len(chosen_labels) == 1:
            (label_values,) = source.load(chosen_labels)
        chosen, kind = _Values(source, here, label_values, where).find(kind, part, classes)
    if kind is None and (paired is not None or values is not None):
        kind = _kind_of(meanings[chosen[0]].role)
    class_names, first = _classes(source, chosen)
    values_too = set(chosen)
    others = [n for n in open_names if n not in values_too]
    if not source.table:  # labels of another group belong to other values
        others = [n for n in others if n.rpartition("/")[0] == chosen[0].rpartition("/")[0]]
    if labels is None and paired is None:
        chosen_labels = find_labels(others, part, where) or _one_hot(others, class_names, len(chosen))
    used = {*chosen, *stated, *chosen_labels}
    rest = [n for n in names if n not in used]
    arrays = [n for n in rest if meanings[n].role == "classes" and n in others and not source.table]
    goes_along = {m.role for m in meanings.values()} if source.table else {"aside", "weights"}
    return Choice(
        chosen,
        kind,
        chosen_labels,
        chosen_weights,
        part,
        class_names,
        first,
        arrays[0] if len(arrays) == 1 else None,
        tuple(n for n in rest if meanings[n].role in goes_along and meanings[n].part in (part, None)),
        paired is not None,
    )


def _requested(
    source: NamedArrays, names: Sequence[str], values: Names, stated: set[str], where: str
) -> tuple[str, ...]:
    """The columns that the caller names; where patterns or places name them, in the order of their numbers, if they have some."""
    chosen = tuple(n for n in find_names(source, names, values, "values", where) if n not in stated)
    exact = set(names) >= ({values} if isinstance(values, str) else set(values))
    order = None if exact else _numbered(classes_of(chosen))
    return chosen if order is None else tuple(chosen[i] for i in order)


def find_labels(names: Sequence[str], part: Part | None, where: str) -> tuple[str, ...]:
    """The one name that says labels (of this part, else of no part in particular, else of any), if there is one."""
    for role in ("labels", "outcomes"):
        for one in dict.fromkeys((part, None, *([] if part else PARTS))):
            matched = [n for n in names if meaning(n) == Meaning(role, one)]
            if len(matched) > 1:
                raise FileError(
                    f"{where} has several arrays of labels, {listing(matched)}: say which with {wording('labels=')}."
                )
            if matched:
                return (matched[0],)
    return ()


def _pairs(names: Sequence[str], kind: Kind | None) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Columns ``p_a, p_b`` and ``y_a, y_b``: the values and the labels of many labels, or of one-hot classes."""
    spelt = {same_class(n): n for n in names}
    for word in ROLES["labels"]:
        endings = [n.removeprefix(f"{word}_") for n in spelt if n.startswith(f"{word}_")]
        if len(endings) < 2 or not PART_OF.keys().isdisjoint(endings):
            continue
        for after in ("",) if kind == "logits" else (CALIBRATED, ""):
            for before in (*ROLES["probabilities"], *ROLES["logits"], *ROLES["values"]):
                values = [n for n in spelt if n.startswith(f"{before}_") and (CALIBRATED in n) == bool(after)]
                expected = [f"{before}_{ending}{after}" for ending in endings]
                if sorted(values) == sorted(expected):
                    columns = tuple(spelt[name] for name in expected)
                    return columns, tuple(spelt[f"{word}_{ending}"] for ending in endings)
    return None


def _one_hot(names: Sequence[str], classes: Sequence[str] | None, m: int) -> tuple[str, ...]:
    """Columns of labels, one for each class: ``label_0, label_1, ...`` or ``label_cat, label_dog, ...``."""
    spelt = {same_class(n): n for n in names}
    for word in ROLES["labels"]:
        for endings in (classes or (), range(m), range(1, m + 1)):
            columns = [f"{word}_{same_class(str(ending))}" for ending in endings]
            if len(columns) > 1 and all(name in spelt for name in columns):
                return tuple(spelt[name] for name in columns)
    return ()


def _which_part(meanings: dict[str, Meaning], part: Part | None, where: str) -> Part | None:
    parts = {m.part for m in meanings.values() if m.holds_values}
    if part is not None:
        if part not in parts:
            raise FileError(
                f"{where} has no {part} part: it holds {listing(meanings)}; leave {wording('part=')} out or rename."
            )
        return part
    if len(parts) <= 1 or None in parts:
        return next(iter(parts)) if len(parts) == 1 else None
    raise FileError(
        f"{where} holds a calibration part and a test part: say {wording('part=', 'cal')} or {wording('part=', 'test')}."
    )


@dataclass(frozen=True)
class _Values:
    """The search for the values among names whose part fits, given the labels where there are some."""

    source: NamedArrays
    here: dict[str, Meaning]
    labels: np.ndarray | None
    where: str

    def find(
        self, kind: Kind | None, part: Part | None, classes: Sequence[str] | None
    ) -> tuple[tuple[str, ...], Kind | None]:
        """The columns or the array, and their kind; ``classes`` are names of columns that are surely classes."""
        calibrated = {n: None for n in self.here if plain_name(n).endswith(CALIBRATED)}
        if calibrated and kind != "logits":
            return tuple(calibrated), "probabilities"
        here = {n: m for n, m in self.here.items() if n not in calibrated}
        if self.source.table:
            columns = self._named(
                here, self._words() if classes is None else classes, sure=classes is not None
            )
            if columns:
                roles = {here[name].role for name in columns}
                return columns, kind or _kind_of(roles.pop() if len(roles) == 1 else None)
        of_part = {n: m for n, m in here.items() if m.part == part}
        for role in (kind, "values") if kind else VALUES:
            columns = self._of_role(of_part, str(role))
            if columns:
                return columns, kind or _kind_of(role)
        other = [n for n, m in of_part.items() if m.holds_values]
        if other:
            raise KindError(
                f"{self.where} holds {listing(other)} and {wording('kind=', kind)} was asked for: change {wording('kind=')}, "
                f"or name the array with {wording('values=')} to insist."
            )
        silent = (None,) if self.source.table else (None, "aside")
        unnamed = tuple(n for n, m in of_part.items() if m.role in silent and n not in self.source.text)
        if self.source.table and unnamed:
            return self._of_numbers(unnamed), kind
        if len(unnamed) == 1:
            return unnamed, kind
        scores = self._scores(here) if self.source.table else ()
        if len(scores) == 1:
            return scores, kind or ("probabilities" if plain_name(scores[0]) == "confidence" else None)
        if self.source.table or not here:
            what = f"no scores, only {listing(here)}" if here else "nothing but labels"
            raise FileError(
                f"{self.where} holds {what}: give a file of logits or probabilities; if these are labels, give that file first "
                f"and this one with {wording('labels_file=')}."
            )
        raise FileError(
            f"{self.where} has no array called 'logits' or 'probabilities': it holds {listing(here)}; "
            f"say which one with {wording('values=')}."
        )

    def _scores(self, here: dict[str, Meaning]) -> tuple[str, ...]:
        """Where nothing else is a number: a confidence, or predictions that are fractions and so no classes."""
        numbers = [n for n, m in here.items() if m.role == "aside" and n not in self.source.text]
        return tuple(
            n for n in numbers if plain_name(n) == "confidence" or not _is_whole(self._numbers([n])[:, 0])
        )

    def _of_role(self, here: dict[str, Meaning], role: str) -> tuple[str, ...]:
        """The one array of a role, or its columns in the order of the classes."""
        members = {n: m for n, m in here.items() if m.role == role}
        whole = [n for n, m in members.items() if m.plain and m.index is None]
        columns = [
            n for n, m in members.items() if m.index is not None or (self.source.table and not m.plain)
        ]
        if self.source.table and len(columns) > 1:
            whole = []  # where each class has a column, one more is of another kind, such as the largest
        elif not whole:
            whole = [n for n in members if n not in columns] or (columns if len(columns) == 1 else [])
        if len(whole) > 1:
            raise FileError(
                f"{self.where} has several arrays of {role}, {listing(whole)}: say which with {wording('values=')}."
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
                f"{self.where} has columns of {role} numbered {', '.join(map(str, numbers[:8]))}"
                f"{', ...' if len(numbers) > 8 else ''}: expected 0 to m-1 (or 1 to m) without gaps; "
                f"name the columns with {wording('values=')} in the order of the classes."
            )
        self._refuse_two_scores(columns)
        return tuple(columns)

    def _words(self) -> list[str]:
        """The different labels where they are words."""
        if self.labels is None or self.labels.ndim != 1 or self.labels.dtype.kind not in "OUb":
            return []
        words = {str(word).strip() for word in self.labels.tolist() if word is not None and word == word} - {
            ""
        }
        return [] if all(map(is_number, words)) else sorted(words)

    def _named(self, here: dict[str, Meaning], words: Sequence[str], sure: bool) -> tuple[str, ...]:
        """The columns of numbers that the words name, all of them; none where one word is the name of no column."""
        text = self.source.text
        spelt = {same_class(n): n for n, m in here.items() if n not in text and m.role != "aside"}
        chosen = {spelt.get(same_class(word)) for word in words}
        if not chosen or None in chosen or len(chosen) < len(words):
            return ()
        columns = [n for n in here if n in chosen]  # in the order of the file
        others = [n for n, m in here.items() if n not in chosen and m.role is None and n not in text]
        if sure or not others:
            return tuple(columns) if len(columns) > 1 else ()
        values = self._numbers(columns)
        others = [n for n in others if not _whole_among(self._numbers([n])[:, 0], values)]
        either = {*chosen, *others}
        both = [n for n in here if n in either]
        if len(columns) > 1 and (not others or _sums_to_one(values)):
            return tuple(columns)
        if len(columns) == 1 or _sums_to_one(self._numbers(both)):
            return tuple(both) if len(both) > 1 else ()
        named = ",".join(columns)
        raise FileError(
            f"{self.where} has the columns {listing(others)}, which no label names, and the classes {listing(columns)}: say "
            f"which columns are classes, {wording('values=', named)} or {wording('values=', named + ',' + ','.join(others))}."
        )

    def _of_numbers(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of numbers that are classes where labels are numbers of the columns."""
        order = _numbered(classes_of(columns))
        if order is not None:
            return tuple(columns[i] for i in order)
        m, labels = len(columns), _as_numbers(self.labels)
        if m < 2 or labels is None or self.source.headless or all(map(is_number, columns)):
            return columns
        if any(array.ndim != 1 for array in self.source.load(columns)):
            return columns
        low, top = labels.min(initial=0), labels.max(initial=0)
        values = self._numbers(columns)
        kept = [j for j in range(m) if not _whole_among(values[:, j], np.delete(values, j, axis=1))]
        if len(kept) < m and top + (low == 0) <= max(2, len(kept)):
            columns, values = tuple(columns[j] for j in kept), values[:, kept]
        self._refuse_two_scores(columns)
        if len(kept) < m or top >= m - 1 or len(labels) < _ENOUGH * m or _sums_to_one(values):
            return columns
        if top - low == 1:  # of two classes one column is enough
            example = next((n for n in reversed(columns) if not _is_whole(self._numbers([n]))), columns[-1])
            which = f"column is the score of the second class, such as {wording('values=', example)}, or that all are classes"
        else:
            which = f"columns are classes, such as {wording('values=', ','.join(columns[: int(top) + 1]))}, or all of them"
        raise FileError(
            f"{self.where} has {m} columns of numbers, {listing(columns)}, and labels from {low:g} to {top:g}: say which "
            f"{which}, {wording('values=', ','.join(columns))}."
        )

    def _refuse_two_scores(self, columns: Sequence[str]) -> None:
        """Ask about two columns, a and b, where one alone ranks the rows by their labels better than b - a does."""
        from scipy.stats import mannwhitneyu

        labels = _as_numbers(self.labels)
        if len(columns) != 2 or labels is None or np.size(labels) < np.asarray(self.labels).size:
            return
        if len(np.unique(labels)) != 2:
            return
        values = self._numbers(columns)
        with np.errstate(invalid="ignore"):
            ranked = np.column_stack([-values[:, 0], values[:, 1], values[:, 1] - values[:, 0]])
        one = labels == labels.max()
        wins = mannwhitneyu(ranked[one], ranked[~one], nan_policy="omit").statistic
        auc = wins / (one.sum() * (~one).sum())
        if max(*auc[:2], *(1 - auc[:2])) > auc[2] + _BETTER:
            a, b = columns
            raise FileError(
                f"{self.where} has two columns, {listing(columns)}, of which one alone ranks the rows by their labels better "
                f"than the difference of both: they do not look like a score for each class. Say which is the score, "
                f"{wording('values=', a)} or {wording('values=', b)}; if each is of a class, {wording('values=', f'{a},{b}')}."
            )

    def _numbers(self, columns: Sequence[str]) -> np.ndarray:
        """The columns as numbers, or the first cell that is none."""
        arrays = self.source.load(columns)
        for name, array in zip(columns, arrays, strict=True):
            refuse_words(array, f"{self.source.title}, column {name!r}")
        return np.column_stack(arrays).astype(float)


def refuse_words(values: np.ndarray, where: str) -> None:
    """Name the first cell of a column of a table that is no number, if there is one."""
    if values.dtype != object or not values.ndim or not len(values):
        return
    row, cell = next(
        ((i, c) for i, c in enumerate(values) if c is not None and not is_number(c)), (0, values[0])
    )
    if re.fullmatch(r"\s*[\d.,]+\s*%\s*", str(cell)):
        advice = f"leave the % signs out and say {wording('kind=', 'percent')}"
    else:
        advice = "expected numbers, and one column per class (a list of numbers in one column is read from Parquet)"
    raise FileError(f"{where} has {str(cell)[:40]!r} in row {row} (counting from 0): {advice}.")


def _as_numbers(labels: np.ndarray | None) -> np.ndarray | None:
    try:
        numbers = np.ravel(labels).astype(float) if labels is not None and labels.ndim == 1 else np.empty(0)
    except (TypeError, ValueError):
        return None
    return numbers[~np.isnan(numbers)] if numbers.size else None


def _whole_among(column: np.ndarray, others: np.ndarray) -> bool:
    """Whether a column holds whole numbers, not all alike, where others hold fractions."""
    varies = bool((column != column[:1]).any())
    return varies and _is_whole(column) and not any(map(_is_whole, others.T))


def _is_whole(column: np.ndarray) -> bool:
    finite = column[np.isfinite(column)]
    return bool((finite == np.floor(finite)).all())


def _sums_to_one(values: np.ndarray) -> bool:
    total = values.sum(axis=1)
    there = ~np.isnan(total)
    return bool((values[there] >= 0).all() and (np.abs(total[there] - 1) < 0.05).all())


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
        plain = meaning(columns[0]).plain or is_around_a_class(names[0]) or columns[0].endswith(CALIBRATED)
        return (None if plain else names), None
    in_order = _numbered(names) == list(range(len(names)))
    return (None, int(names[0])) if in_order else (names, None)


def _kind_of(role: Any) -> Kind | None:
    return role if role in ("logits", "probabilities") else None
