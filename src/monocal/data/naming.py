"""What an array's name says about it:  ``[part_] role [_part] [_index]``.

``logits_val`` is the logits of the calibration part, ``y_test`` the labels of the test part, ``prob_3`` the
probability of class 3. The name decides between logits and probabilities, or the caller does; values never
do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from monocal.errors import FileError, InputError, KindError, spoken

Kind = Literal["logits", "probabilities"]
Part = Literal["cal", "test"]

ROLES = {
    "logits": ("logits", "logit", "log_probs", "log_probabilities", "log_probas", "logprobs"),
    "probabilities": ("probabilities", "probability", "probs", "prob", "probas", "proba"),
    "labels": ("labels", "label", "y", "y_true", "targets", "target"),
    "values": ("values", "outputs", "scores"),  # says neither logits nor probabilities
}
PARTS: dict[Part, tuple[str, ...]] = {
    "cal": ("cal", "calib", "calibration", "val", "valid", "validation"),
    "test": ("test",),
}
# Numeric columns that tables often carry and that are no class: taking one for a class would be silent and
# wrong.
_NEVER_A_CLASS = {
    "id",
    "idx",
    "index",
    "row",
    "split",
    "fold",
    "part",
    "pred",
    "prediction",
    "y_pred",
    "weight",
}

_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_KIND_OF: dict[str, Kind] = {"logits": "logits", "probabilities": "probabilities"}
_PART_OF = {word: part for part, words in PARTS.items() for word in words}


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_NAME = re.compile(
    rf"(?:(?P<before>{_either(_PART_OF)})_)?(?P<role>{_either(_ROLE_OF)})"
    rf"(?:_(?P<after>{_either(_PART_OF)}))?(?:_?(?P<index>\d{{1,9}}))?"
)
_GROUPED = re.compile(rf"(?P<group>.+?)_(?P<name>{_NAME.pattern})")
_STEM = re.compile(rf"(?:(?P<set>.*?)_)?(?P<part>{_either(_PART_OF)})")


@dataclass(frozen=True)
class Meaning:
    """Role, part and class number that a name states; None where it is silent."""

    role: str | None = None
    part: Part | None = None
    index: int | None = None

    @property
    def holds_values(self) -> bool:
        return self.role in ("logits", "probabilities", "values")


def _plain(name: str) -> str:
    return re.sub(r"[-. ]", "_", name.lower())


def meaning(name: str) -> Meaning:
    """Read a name; a leading path (``dataset/model/``) is left aside."""
    match = _NAME.fullmatch(_plain(name.rpartition("/")[2]))
    if match is None or (match["before"] and match["after"]):
        return Meaning()
    part = match["before"] or match["after"]
    return Meaning(
        role=_ROLE_OF[match["role"]],
        part=_PART_OF[part] if part else None,
        index=int(match["index"]) if match["index"] else None,
    )


def split_group(stem: str) -> str:
    """``resnet_logits_val`` -> ``resnet/logits_val``; a name without a set before it stays as it is."""
    if meaning(stem).role is not None:
        return stem
    match = _GROUPED.fullmatch(_plain(stem))
    return stem if match is None else f"{stem[: match.end('group')]}/{stem[match.start('name') :]}"


def split_part(stem: str) -> tuple[str, Part | None]:
    """``resnet_test`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    match = _STEM.fullmatch(_plain(stem))
    if match is None:
        return stem, None
    return stem[: match.end("set")] if match["set"] else "", _PART_OF[match["part"]]


def without_part(name: str) -> tuple[str, Part | None]:
    """``context_test`` and ``test_context`` -> ``("context", "test")``; ``context`` -> ``("context", None)``."""
    for pattern in (
        rf"(?P<part>{_either(_PART_OF)})_(?P<base>.+)",
        rf"(?P<base>.+)_(?P<part>{_either(_PART_OF)})",
    ):
        match = re.fullmatch(pattern, _plain(name))
        if match is not None:
            return name[match.start("base") : match.end("base")], _PART_OF[match["part"]]
    return name, None


def as_kind(kind: str | None) -> Kind | None:
    """Check a caller's ``kind``."""
    if kind is None:
        return None
    if kind not in _KIND_OF:
        raise InputError(f"kind must be 'logits' or 'probabilities', got {kind!r}.")
    return _KIND_OF[kind]


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is None:
        return None
    if part not in _PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return _PART_OF[part]


def listing(names: Iterable[object], limit: int = 8) -> str:
    """``'a', 'b' and 12 more``."""
    names = list(names)
    shown = ", ".join(repr(str(name)) for name in names[:limit])
    return (shown or "nothing") + (f" and {len(names) - limit} more" if len(names) > limit else "")


@dataclass(frozen=True)
class Choice:
    """Which arrays are the values (several: one column each) and the labels, and what the values are."""

    values: tuple[str, ...]
    kind: Kind
    labels: str | None
    part: Part | None


def choose(
    names: Sequence[str],
    *,
    where: str,
    table: bool = False,
    values: str | Sequence[str] | None = None,
    labels: str | None = None,
    kind: Kind | None = None,
    part: Part | None = None,
) -> Choice:
    """Decide which of ``names`` are values and labels; ``where`` is the file, for messages."""
    said = {name: meaning(name) for name in names}
    if labels is not None:
        labels = _named(names, labels, "labels", where)
    if values is not None:
        wanted = (values,) if isinstance(values, str) else tuple(values)
        if not wanted:
            raise InputError("values must name at least one array or column, got none.")
        chosen = tuple(_named(names, name, "values", where) for name in wanted)
        stated = said[chosen[0]]
        role = _KIND_OF.get(str(stated.role), "logits")
        part = part or stated.part
        found = (chosen, kind or role)
    else:
        part = _which_part(said, part, where)
        here = {n: m for n, m in said.items() if m.part == part and n != labels}
        found = _find_values(here, kind, table, where)
    if labels is None:
        beside = found[0][0].rpartition("/")[0]  # labels of another group belong to other values
        taken = set(found[0])
        others = [n for n in names if n not in taken and (table or n.rpartition("/")[0] == beside)]
        labels = find_labels(others, part, where)
    return Choice(found[0], found[1], labels, part)


def class_names(columns: Sequence[str]) -> tuple[str, ...] | None:
    """What columns call the classes; None for one array of all, and for columns that only number them in order."""
    numbers = [meaning(name).index for name in columns]
    plain = None not in numbers and numbers == sorted(numbers, key=lambda number: number or 0)
    return None if len(columns) == 1 or plain else tuple(columns)


def find_labels(names: Sequence[str], part: Part | None, where: str) -> str | None:
    """The one name that says labels (of this part, else of no part in particular), or None."""
    for wanted in dict.fromkeys((part, None)):
        found = [n for n in names if meaning(n) == Meaning("labels", wanted)]
        if len(found) > 1:
            raise FileError(
                f"{where} has several arrays of labels, {listing(found)}: say which with {spoken('labels=')}."
            )
        if found:
            return found[0]
    return None


def _named(names: Sequence[str], name: str, argument: str, where: str) -> str:
    if name in names:
        return name
    tails = [n for n in names if n.rpartition("/")[2] == name]
    if len(tails) == 1:
        return tails[0]
    more = f"; labels in another file are given by {spoken('labels_file=')}" if argument == "labels" else ""
    raise FileError(
        f"{where} has no {name!r} (asked for by {spoken(f'{argument}=')}): it holds {listing(names)}{more}."
    )


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
    here: dict[str, Meaning], kind: Kind | None, table: bool, where: str
) -> tuple[tuple[str, ...], Kind]:
    for role in (kind, "values") if kind else ("logits", "probabilities", "values"):
        found = _of_role(here, str(role), where)
        if found:
            return found, kind or _KIND_OF.get(str(role), "logits")
    other = [n for n, m in here.items() if m.holds_values]
    if other:
        raise KindError(
            f"{where} holds {listing(other)} and {spoken('kind=', kind)} was asked for: change {spoken('kind=')}, "
            f"or name the array with {spoken('values=')} to insist."
        )
    unnamed = [n for n, m in here.items() if m.role is None]
    if table:
        stray = [n for n in unnamed if _plain(n) in _NEVER_A_CLASS]
        if stray:
            raise FileError(
                f"{where} has column {stray[0]!r}, which is hardly a class: name the columns of the classes "
                f"with {spoken('values=')}, or call them logit_0, logit_1, ... or prob_0, prob_1, ..."
            )
    if len(unnamed) == 1 or (table and unnamed):
        return tuple(unnamed), kind or "logits"
    raise FileError(
        f"{where} has no array called 'logits' or 'probabilities': it holds {listing(here)}; "
        f"say which one with {spoken('values=')}."
    )


def _of_role(here: dict[str, Meaning], role: str, where: str) -> tuple[str, ...]:
    whole = [n for n, m in here.items() if m.role == role and m.index is None]
    if len(whole) > 1:
        raise FileError(
            f"{where} has several arrays of {role}, {listing(whole)}: say which with {spoken('values=')}."
        )
    if whole:
        return tuple(whole)
    columns = sorted((m.index, n) for n, m in here.items() if m.role == role and m.index is not None)
    numbers = [index for index, _ in columns]
    if numbers and (numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers)))):
        raise FileError(
            f"{where} has columns of {role} numbered {', '.join(map(str, numbers[:8]))}"
            f"{', ...' if len(numbers) > 8 else ''}: expected 0 to m-1 (or 1 to m) without gaps; "
            f"name the columns with {spoken('values=')} in the order of the classes."
        )
    return tuple(name for _, name in columns)
