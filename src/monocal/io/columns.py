"""Which column or array of a file is what, by its name:  ``y_pred_proba_test`` -> probabilities, of the test part.

The rules, in order. Where they do not decide, the file is refused, with its columns and the option that does.

1. **What the caller says**: names, patterns (``p_*``), places in a table (``-1`` is the last column), ``kind``.
2. **Parts.** ``logits_val``, ``y_val`` and ``logits_test``, ``y_test`` are two parts of one file.
3. **Labels** are the one column called ``label``, ``y``, ``y_true``, ... (`ROLES`); else ``outcome``, ``actual``, ``truth``, ...
4. **Many labels.** Columns ``p_a, p_b`` with ``y_a, y_b`` are a score and a label of 0, 1 or blank for each of many labels. Where
   every row has a single 1, they are one label out of so many classes.
5. **Values** are columns ``score_calibrated``, which ``apply`` writes; else the columns that the labels name; else what has the
   word *logit* or *prob* in its name, one array or a column for each class; else all columns of numbers but ids, predictions and
   whole numbers among fractions.
6. **Columns without such a word must each be a class**: the labels name them all, or reach the last of them, or every row sums
   to 1. Two columns of logits are two classes, not the scores of two models, where the labels name them or are called so.
7. **Numbers as names.** Columns called by whole numbers other than 0 to m-1 in order are names: a label 2 is the column called 2.
8. **Logits or probabilities** is said by the name, or by ``kind``; see `monocal.io.assembly` for values that look otherwise.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, KindError, wording
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
        *("label_id", "label_ids", "class_id", "true_y", "ytrue"),
    ),
    # Labels where nothing has a name of the line above.
    "outcomes": (
        *("outcome", "outcomes", "actual", "actuals", "y_actual", "truth", "true", "observed"),
        *("correct", "is_correct", "correctness", "answer_correct", "gold", "gold_label"),
        *("actual_label", "actual_outcome", "actual_class", "true_outcome"),
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
# Names of two classes, the second of which one score or one label 1 is about.
TWO_CLASSES = (
    *(("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("negative", "positive"), ("neg", "pos")),
    *(("incorrect", "correct"), ("wrong", "right")),
)
CALIBRATED = "_calibrated"
VALUES = ("logits", "probabilities", "values")
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_PART_OF = {word: part for part, words in PARTS.items() for word in words}
_ENOUGH = 20  # rows for each class, in which every class should be the label of one
_PART = "|".join(sorted(_PART_OF, key=len, reverse=True))
# The word for logits or probabilities anywhere in a name.
_HELD = re.compile(
    r"(?:^|_)(?P<word>log_?prob[a-z]*|log_softmax|[^_\d]*logits?|[^_\d]*prob(?:s|as?|ability|abilities)?|softmax"
    rf"|(?<!.)pr?(?=[_(](?!value)))(?:_(?P<after>{_PART}))?(?=[_(]|\d|$)"
)


# What a name says


@dataclass(frozen=True)
class Meaning:
    """Role, part and number that a name states; None where it is silent. ``plain``: it states nothing else."""

    role: str | None = None
    part: Part | None = None
    index: int | None = None
    plain: bool = True

    @property
    def holds_values(self) -> bool:
        return self.role in VALUES


def meaning(name: str) -> Meaning:
    """Read a name, ``[part_] role [_part] [_class]``; a leading path (``dataset/model/``) is left aside."""
    plain = _plain_name(name.rpartition("/")[2])
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


def _plain_name(name: str) -> str:
    return re.sub(r"[-. ]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def split_part(name: str) -> tuple[str, Part | None]:
    """``resnet_test`` and ``test_resnet`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    for pattern in (
        rf"(?P<part>{_PART})()",
        rf"(?P<part>{_PART})[-. _](.+)",
        rf"(.+)[-. _](?P<part>{_PART})",
    ):
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match is not None:
            rest = name[match.end("part") + 1 :] or name[: max(0, match.start("part") - 1)]
            return rest, _PART_OF[match["part"].lower()]
    return name, None


def split_group(stem: str) -> str:
    """``resnet_logits_val`` -> ``resnet/logits_val``; a name without a set before it stays as it is."""
    plain = _plain_name(stem)
    starts = [0, *(match.end() for match in re.finditer("_", plain))]
    start = next((i for i in starts if meaning(plain[i:]).role and meaning(plain[i:]).plain), 0)
    return f"{stem[: start - 1]}/{stem[start:]}" if start and len(plain) == len(stem) else stem


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is not None and part not in _PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return None if part is None else _PART_OF[part]


def choose_group(source: NamedArrays, group: str | None) -> tuple[str, tuple[str, ...]]:
    """The group asked for, or the only one that holds values: ``(group, names)``."""
    groups = source.groups()
    if not groups:
        raise FileError(f"{source.title} holds no arrays: write logits and labels into it.")
    if group is not None:
        if group.strip("/") not in groups:
            raise FileError(f"{source.title} has no group {group!r}: it holds {listing(groups)}.")
        return group.strip("/"), groups[group.strip("/")]
    with_values = {g: names for g, names in groups.items() if any(meaning(n).holds_values for n in names)}
    groups = with_values or groups
    chosen = "" if "" in groups else next(iter(groups))
    if chosen and len(groups) > 1:
        raise FileError(
            f"{source.title} holds {len(groups)} sets, {listing(groups)}: say which with {wording('group=')}."
        )
    return chosen, groups[chosen]


def find_names(
    source: NamedArrays, names: Sequence[str], request: Names, argument: str, where: str
) -> tuple[str, ...]:
    """The names that a caller means by names, patterns and places."""
    present, chosen = set(names), dict[str, None]()
    for one in map(str.strip, map(str, (request,) if isinstance(request, str) else request)):
        tails = [n for n in names if n.rpartition("/")[2] == one] if one not in present else [one]
        if len(tails) != 1 and source.table and re.fullmatch(r"-?\d{1,9}", one):
            tails = list(names[slice(int(one), int(one) + 1 or None)]) if -len(names) <= int(one) else []
        matched = (
            tails if len(tails) == 1 else fnmatch.filter(names, one) if re.search(r"[*?\[]", one) else []
        )
        if not matched:
            hint = f" (asked for by {wording(f'{argument}=')})" if argument != "columns" else ""
            raise FileError(f"{where} has no {one!r}{hint}: it holds {listing(names)}.")
        chosen |= dict.fromkeys(matched)
    if not chosen:
        raise InputError(f"{argument} must name at least one array or column, got none.")
    return tuple(chosen)


# The choice


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
    pairs: bool


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
    label_names = () if labels is None else find_names(source, names, labels, "labels", where)
    weight = None if weights is None else find_names(source, names, weights, "weights", where)[0]
    stated = {*label_names, weight}
    free = [name for name in names if name not in stated]
    paired = _pairs(free, kind) if source.table and values is labels is label_values is None else None
    if paired is not None:
        chosen, label_names = paired
        kind = kind or _kind_of(meanings[chosen[0]].role)
    elif values is not None:
        chosen = _requested(source, free, values, where)
        part, kind = part or meanings[chosen[0]].part, kind or _kind_of(meanings[chosen[0]].role)
    else:
        part = _which_part(meanings, part, where)
        label_names = label_names or labels_of(free, part, where)
        if label_values is None and source.table and len(label_names) == 1:
            (label_values,) = source.load(label_names)
        here = {n: meanings[n] for n in free if meanings[n].part in (part, None) and n not in label_names}
        chosen, kind = _Search(source, here, label_values, classes, where).values(kind, part)
    used = {*chosen, *stated, *label_names}
    rest = [n for n in names if n not in used]
    if not source.table:  # what stands in another group belongs to other values
        rest = [n for n in rest if n.rpartition("/")[0] == chosen[0].rpartition("/")[0]]
    if labels is None and not label_names:
        label_names = labels_of(rest, part, where)
        rest = [n for n in rest if n not in label_names]
    arrays = [n for n in rest if meanings[n].role == "classes" and not source.table]
    class_names, first = _classes(chosen)
    return Choice(
        chosen,
        kind,
        label_names,
        weight,
        part,
        class_names,
        first,
        arrays[0] if len(arrays) == 1 else None,
        tuple(
            n
            for n in rest
            if (source.table or meanings[n].role in ("aside", "weights")) and meanings[n].part in (part, None)
        ),
        paired is not None,
    )


def _requested(source: NamedArrays, names: Sequence[str], values: Names, where: str) -> tuple[str, ...]:
    """The columns that the caller names; where patterns or places name them, in the order of their numbers, if they have some."""
    chosen = find_names(source, names, values, "values", where)
    exact = set(names) >= ({values} if isinstance(values, str) else set(values))
    return chosen if exact else _in_order(chosen) or chosen


def labels_of(names: Sequence[str], part: Part | None, where: str) -> tuple[str, ...]:
    """The one name that says labels, of this part, else of no part in particular, else (where no part is asked for) of any."""
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
    calibrated = kind != "logits" and any(n.endswith(CALIBRATED) for n in spelt)
    for word in ROLES["labels"]:
        endings = [n.removeprefix(f"{word}_") for n in spelt if n.startswith(f"{word}_")]
        if len(endings) < 2 or not _PART_OF.keys().isdisjoint(endings):
            continue
        for before in (word for role in VALUES[::-1] for word in ROLES[role]):
            values = [n for n in spelt if n.startswith(f"{before}_") and n.endswith(CALIBRATED) == calibrated]
            expected = [f"{before}_{ending}{CALIBRATED * calibrated}" for ending in endings]
            if sorted(values) == sorted(expected):
                return tuple(map(spelt.__getitem__, expected)), tuple(spelt[f"{word}_{e}"] for e in endings)
    return None


def _which_part(meanings: dict[str, Meaning], part: Part | None, where: str) -> Part | None:
    parts = {m.part for m in meanings.values() if m.holds_values}
    if part is not None and part not in parts:
        raise FileError(
            f"{where} has no {part} part: it holds {listing(meanings)}; leave {wording('part=')} out or rename."
        )
    if part is None and len(parts) > 1 and None not in parts:
        raise FileError(
            f"{where} holds a calibration part and a test part: say {wording('part=', 'cal')} or {wording('part=', 'test')}."
        )
    return part or (next(iter(parts)) if len(parts) == 1 else None)


@dataclass(frozen=True)
class _Search:
    """Rules 5 and 6: the values among names whose part fits, given labels or names of classes where there are some."""

    source: NamedArrays
    here: dict[str, Meaning]
    labels: np.ndarray | None
    classes: Sequence[str] | None
    where: str

    def values(self, kind: Kind | None, part: Part | None) -> tuple[tuple[str, ...], Kind | None]:
        """The columns or the array, and their kind."""
        calibrated = tuple(n for n in self.here if _plain_name(n).endswith(CALIBRATED))
        if calibrated and kind != "logits":
            return calibrated, "probabilities"
        here = {n: m for n, m in self.here.items() if n not in calibrated}
        table = self.source.table
        named = self._named(here) if table else ()
        if named:
            roles = {here[name].role for name in named}
            return named, kind or _kind_of(roles.pop() if len(roles) == 1 else None)
        of_part = {n: m for n, m in here.items() if m.part == part}
        for role in (kind, "values") if kind else VALUES:
            columns = self._of_role({n: m for n, m in of_part.items() if m.role == role}, str(role))
            if columns:
                return columns, kind or _kind_of(role)
        other = [n for n, m in of_part.items() if m.holds_values]
        if other:
            raise KindError(
                f"{self.where} holds {listing(other)} and {wording('kind=', kind)} was asked for: change {wording('kind=')}, "
                f"or name the array with {wording('values=')} to insist."
            )
        roles = {None} if table else {None, "aside"}
        unnamed = tuple(n for n, m in of_part.items() if m.role in roles and n not in self.source.text)
        if len(unnamed) == 1 or (table and unnamed):
            return self._checked(unnamed), kind
        scores = tuple(n for n, m in here.items() if table and m.role == "aside" and self._is_score(n))
        if len(scores) == 1:
            return scores, kind or ("probabilities" if _plain_name(scores[0]) == "confidence" else None)
        if not here or table:
            what = f"no scores, only {listing(here)}" if here else "nothing but labels"
            raise FileError(
                f"{self.where} holds {what}: give a file of logits or probabilities; if these are labels, give that file first "
                f"and this one with {wording('labels_file=')}."
            )
        raise FileError(
            f"{self.where} has no array called 'logits' or 'probabilities': it holds {listing(here)}; "
            f"say which one with {wording('values=')}."
        )

    def _is_score(self, name: str) -> bool:
        """Whether a column that is mostly something else, such as predictions, holds fractions."""
        return name not in self.source.text and not _is_whole(self._numbers([name])).all()

    def _named(self, here: dict[str, Meaning]) -> tuple[str, ...]:
        """The columns of numbers that are called by the classes, in the order of the file; none where a class has no column."""
        text, words = self.source.text, self._words() if self.classes is None else self.classes
        spelt = {same_class(n): n for n, m in here.items() if n not in text and m.role != "aside"}
        chosen = {spelt.get(same_class(word)) for word in words}
        if None in chosen or not 1 < len(chosen) == len(words):
            return ()
        named = tuple(n for n in here if n in chosen)
        if self.classes is not None or self._sum_to_one(named):
            return named
        others = (n for n, m in here.items() if n in chosen or (m.role is None and n not in text))
        return self._checked(tuple(others), named)

    def _words(self) -> list[str]:
        """The different labels where they are words."""
        if self.labels is None or self.labels.ndim != 1 or self.labels.dtype.kind not in "OUb":
            return []
        words = {str(word).strip() for word in self.labels.tolist() if word is not None and word == word}
        return [] if all(map(is_number, words - {""})) else sorted(words - {""})

    def _of_role(self, members: dict[str, Meaning], role: str) -> tuple[str, ...]:
        """The one array of a role, or its columns in the order of the classes."""
        table = self.source.table
        columns = [n for n, m in members.items() if m.index is not None or (table and not m.plain)]
        whole = [n for n, m in members.items() if m.plain and m.index is None]
        if table and len(columns) > 1:
            whole = []  # where each class has a column, one more is of another kind, such as the largest
        elif not whole:
            whole = [n for n in members if n not in columns] or (columns if len(columns) == 1 else [])
        if len(whole) > 1:
            raise FileError(
                f"{self.where} has several arrays of {role}, {listing(whole)}: say which with {wording('values=')}."
            )
        if whole or not columns:
            return tuple(whole)
        ordered = _in_order(columns)
        if ordered is None and all(name.isdecimal() for name in classes_of(columns)):
            raise FileError(
                f"{self.where} has columns of {role}, {listing(columns)}: expected numbers 0 to m-1 (or 1 to m) without gaps; "
                f"name the columns with {wording('values=')} in the order of the classes."
            )
        if len(columns) == 2:
            self._checked(tuple(columns))
        return ordered or tuple(columns)

    def _checked(self, columns: tuple[str, ...], named: Sequence[str] = ()) -> tuple[str, ...]:
        """The columns if each must be a class, less whole numbers among fractions; ``named`` are those that labels name."""
        words, labels, classes = self._words(), _as_numbers(self.labels), classes_of(columns)
        stated = all(map(is_number, classes)) or len(self.classes or ()) == len(columns)
        if len(columns) < 2 or self.labels is None or stated:
            return _in_order(columns) or columns
        least = 0 if labels is None else int(labels.max() + (labels.min() == 0))  # classes that labels count
        kept = tuple(
            n for n, w in zip(columns, _is_whole(self._numbers(columns)), strict=True) if n in named or not w
        )
        columns = kept if kept and least <= max(2, len(kept)) else columns
        m, classes = len(columns), tuple(map(same_class, classes_of(columns)))
        few = least > 2 and len(self.labels) < _ENOUGH * m
        if (
            m == 1
            or classes in TWO_CLASSES
            or set(map(same_class, words)) == set(classes)
            or (m > 2 and (least >= m or few))
            or self._sum_to_one(columns)
        ):
            return columns
        example = named or (columns[:least] if least > 2 else columns[-1:])
        raise FileError(
            f"{self.where} has the columns {listing(columns)}, and neither names nor labels say whether each is of a class. Say "
            f"{wording('values=', ','.join(example))} for {'one score' if len(example) == 1 else 'these classes'}, or "
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


def refuse_words(values: np.ndarray, where: str) -> None:
    """Name the first cell of a column of a table that is no number, if there is one."""
    if values.dtype != object or not values.ndim or not len(values):
        return
    cells = enumerate(values)
    row, cell = next(((i, c) for i, c in cells if c is not None and not is_number(c)), (0, values[0]))
    advice = (
        "expected numbers, and one column per class (a list of numbers in one column is read from Parquet)"
    )
    if str(cell).rstrip().endswith("%"):
        advice = f"leave the % signs out and say {wording('kind=', 'percent')}"
    raise FileError(f"{where} has {str(cell)[:40]!r} in row {row} (counting from 0): {advice}.")


def _as_numbers(labels: np.ndarray | None) -> np.ndarray | None:
    try:
        numbers = labels.astype(float) if labels is not None and labels.ndim == 1 else np.empty(0)
    except (TypeError, ValueError):
        return None
    numbers = numbers[~np.isnan(numbers)]
    return numbers if numbers.size else None


def _is_whole(values: np.ndarray) -> np.ndarray:
    """Which columns (n, m) hold whole numbers, not all alike."""
    whole = (values == np.floor(values)) | ~np.isfinite(values)
    return np.asarray(whole.all(axis=0) & (values != values[:1]).any(axis=0))


def _in_order(columns: Sequence[str]) -> tuple[str, ...] | None:
    """Columns that are numbered 0 to m-1 or 1 to m, in this order; None for others."""
    classes = classes_of(columns)
    if not all(name.isdecimal() and len(name) < 10 for name in classes):
        return None
    numbers = {int(name): column for name, column in zip(classes, columns, strict=True)}
    first = min(numbers)
    plain = first <= 1 and sorted(numbers) == list(range(first, first + len(columns)))
    return tuple(numbers[number] for number in sorted(numbers)) if plain else None


def _classes(columns: Sequence[str]) -> tuple[tuple[str, ...] | None, int | None]:
    """Names of the classes, None where columns only number them in order; and the number of the first column where they do."""
    names = classes_of([re.sub(f"{CALIBRATED}$", "", name) for name in columns])
    if len(columns) == 1:
        plain = meaning(columns[0]).plain or is_around_a_class(names[0]) or columns[0].endswith(CALIBRATED)
        return (None if plain else names), None
    return (None, int(names[0])) if _in_order(names) == names else (names, None)


def _kind_of(role: Any) -> Kind | None:
    return role if role in ("logits", "probabilities") else None


def columns_aside(names: Iterable[str]) -> list[str]:
    """Names that say neither outputs nor labels."""
    return [name for name in names if meaning(name).role in (None, "aside")]
