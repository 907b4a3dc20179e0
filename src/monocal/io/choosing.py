"""Which column is what:  names of a file -> values, labels, weights, and what is left aside.

The caller's word comes first: a name, a place (``-1`` is the last column of a table) or a pattern (``p_*``). Then what the
names say. In a table every other column of numbers is a class.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from monocal.errors import FileError, InputError, KindError, spoken
from monocal.inputs.names import Part, classes_of, is_around_a_class, listing, same_class
from monocal.io.naming import ROLES, Kind, Meaning, kind_of, meaning
from monocal.io.sources import NamedArrays

Names = str | Sequence[str]


@dataclass(frozen=True)
class Choice:
    """Which arrays are what.

    ``values`` and ``labels`` are one array of all classes, or a column for each; ``classes`` are the names that columns give
    their classes and ``first`` the number of the first where they only number them; ``aside`` are columns that go with the rows.
    """

    values: tuple[str, ...]
    kind: Kind
    labels: tuple[str, ...]
    weights: str | None
    part: Part | None
    classes: tuple[str, ...] | None
    first: int | None
    classes_array: str | None
    aside: tuple[str, ...]


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
) -> Choice:
    """Decide what each of ``names`` is; ``where`` is the file, for messages."""
    said = {name: meaning(name) for name in names}
    told_labels = () if labels is None else find_names(source, names, labels, "labels", where)
    told_weights = None if weights is None else find_names(source, names, weights, "weights", where)[0]
    told = {*told_labels, told_weights}
    if values is not None:
        chosen = tuple(n for n in find_names(source, names, values, "values", where) if n not in told)
        explicit = said.keys() >= {values} if isinstance(values, str) else said.keys() >= set(values)
        order = None if explicit else _numbered(classes_of(chosen))
        chosen = chosen if order is None else tuple(chosen[i] for i in order)
        part = part or said[chosen[0]].part
        kind = kind or kind_of(said[chosen[0]].role)
    else:
        part = _which_part(said, part, where)
        here = {n: m for n, m in said.items() if m.part == part and n not in told}
        chosen, kind = _find_values(source, here, kind, where)
    classes, first = _classes(source, chosen)
    used = {*chosen, *told}
    beside = chosen[0].rpartition("/")[0]  # labels of another group belong to other values
    others = [n for n in names if n not in used and (source.table or n.rpartition("/")[0] == beside)]
    if labels is None:
        told_labels = find_labels(others, part, where) or _one_hot(others, classes, len(chosen))
    used |= set(told_labels)
    arrays = [] if source.table else [n for n in others if said[n].role == "classes" and n not in used]
    carried = ("aside", "weights") if not source.table else (None, "aside", "weights", "classes")
    return Choice(
        chosen,
        kind,
        told_labels,
        told_weights,
        part,
        classes,
        first,
        arrays[0] if len(arrays) == 1 else None,
        tuple(n for n in names if n not in used and said[n].role in carried and said[n].part in (part, None)),
    )


def find_names(
    source: NamedArrays, names: Sequence[str], wanted: Names, argument: str, where: str
) -> tuple[str, ...]:
    """The names that a caller means by names, places and patterns."""
    asked = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if not asked:
        raise InputError(f"{argument} must name at least one array or column, got none.")
    known = set(names)
    found: dict[str, None] = {}
    for one in asked:
        found |= dict.fromkeys(
            [one] if one in known else _meant(source, names, str(one).strip(), argument, where)
        )
    return tuple(found)


def _meant(source: NamedArrays, names: Sequence[str], name: str, argument: str, where: str) -> list[str]:
    tails = [n for n in names if n.rpartition("/")[2] == name]
    if len(tails) == 1:
        return tails
    if source.table and re.fullmatch(r"-?\d{1,9}", name) and -len(names) <= int(name) < len(names):
        return [names[int(name)]]
    if re.search(r"[*?\[]", name):
        found = [n for n in names if fnmatch.fnmatchcase(n, name)]
        if found:
            return found
    more = f"; labels in another file are given by {spoken('labels_file=')}" if argument == "labels" else ""
    if argument == "columns":
        raise FileError(f"{where} has no column {name!r}: it holds {listing(names)}.")
    raise FileError(
        f"{where} has no {name!r} (asked for by {spoken(f'{argument}=')}): it holds {listing(names)}{more}."
    )


def find_labels(names: Sequence[str], part: Part | None, where: str) -> tuple[str, ...]:
    """The one name that says labels (of this part, else of no part in particular), if there is one."""
    for wanted in dict.fromkeys((part, None)):
        found = [n for n in names if meaning(n) == Meaning("labels", wanted)]
        if len(found) > 1:
            raise FileError(
                f"{where} has several arrays of labels, {listing(found)}: say which with {spoken('labels=')}."
            )
        if found:
            return (found[0],)
    return ()


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
    source: NamedArrays, here: dict[str, Meaning], kind: Kind | None, where: str
) -> tuple[tuple[str, ...], Kind]:
    for role in (kind, "values") if kind else ("logits", "probabilities", "values"):
        found = _of_role(source, here, str(role), where)
        if found:
            return found, kind or kind_of(role)
    other = [n for n, m in here.items() if m.holds_values]
    if other:
        raise KindError(
            f"{where} holds {listing(other)} and {spoken('kind=', kind)} was asked for: change {spoken('kind=')}, "
            f"or name the array with {spoken('values=')} to insist."
        )
    silent = (None,) if source.table else (None, "aside")
    unnamed = tuple(n for n, m in here.items() if m.role in silent and n not in source.text)
    if source.table and unnamed:
        order = _numbered(classes_of(unnamed))
        return (unnamed if order is None else tuple(unnamed[i] for i in order)), kind or "logits"
    if len(unnamed) == 1:
        return unnamed, kind or "logits"
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
    names = classes_of(columns)
    if source.headless:
        return None, None
    if len(columns) == 1:
        return (None if meaning(columns[0]).plain or is_around_a_class(names[0]) else names), None
    in_order = _numbered(names) == list(range(len(names)))
    return (None, int(names[0])) if in_order else (names, None)
