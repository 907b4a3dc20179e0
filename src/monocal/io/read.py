"""From a path to a set:  open the file, choose columns by name (`monocal.io.column_choice`), bring them into one form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, spoken, warn
from monocal.inputs.names import Part, listing
from monocal.io.column_choice import (
    CALIBRATED,
    Choice,
    Names,
    as_part,
    choose,
    choose_group,
    find_labels,
    find_names,
    meaning,
    split_part,
    without_part,
)
from monocal.io.logits_set import LogitsSet, Splits, is_one_hot, make_set, missing, refuse_words
from monocal.io.named_arrays import (
    FOUND_IN_FOLDERS,
    NamedArrays,
    as_path,
    extension,
    open_arrays,
    stem,
    typed,
)


def read(
    path: str | os.PathLike[str] | Any,
    *,
    values: Names | None = None,
    labels: Names | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    first_label: int | None = None,
    classes: Sequence[str] | None = None,
    weights: str | None = None,
    kind: Literal["logits", "probabilities", "percent"] | None = None,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    mmap: bool = False,
    need_labels: bool = False,
    with_labels: bool = True,
    class_axis: int | None = None,
    ignore_index: int | None = None,
    unknown: Sequence[int] = (),
    separator: str | None = None,
    decimal: Literal[".", ","] | None = None,
    drop_missing: bool = False,
) -> LogitsSet:
    """Read classifier outputs, and labels where there are any.

    Parameters
    ----------
    path : path or frame
        ``.csv``, ``.tsv`` (also ``.csv.gz``, ``.tsv.gz``), ``.xlsx``, ``.parquet``, ``.feather``, ``.npz``, ``.npy``,
        ``.safetensors``, ``.h5``/``.hdf5``, ``.pt``/``.pth`` of torch, ``.json`` and ``.jsonl`` (a row in each object, or samples
        of lm-evaluation-harness), ``.txt``, a pickle of arrays (``.p``, ``.pkl``, ``.pickle``), or a folder of ``.npy`` files; or
        a pandas or polars frame in memory. Arrays are recognised by name: ``logits``, ``probabilities`` (``probs``,
        ``y_pred_proba``) and ``labels`` (``y``, ``target``, ``class``), with ``_val``/``_cal`` and ``_test`` for the two
        parts; in tables a class is a column: ``logit_0``, ``prob_cat`` or just ``cat``.
    values : str or sequence of str, optional
        Name of the array (or names of the columns, in the order of the classes) that holds the outputs. In tables also
        patterns, ``"p_*"``, and places, ``"0"`` for the first column and ``"-1"`` for the last.
    labels : str or sequence of str, optional
        Name of the labels, in ``labels_file`` when that is given and in ``path`` otherwise; several: one-hot columns. Labels are
        numbers of the columns, or names of the classes.
    labels_file : path, optional
        A second file that holds the labels.
    first_label : {0, 1}, optional
        The number of the first class in the labels.
    classes : sequence of str, optional
        Names of the classes in the order of the columns, where the file does not tell them.
    weights : str, optional
        Name of the weights of the rows.
    kind : {"logits", "probabilities", "percent"}, optional
        What the outputs are, when their name does not say it. Never guessed from the values.
    part : {"cal", "val", "test"}, optional
        Which part, when the file holds two; ``"val"`` is another word for ``"cal"``.
    group : str, optional
        Which set, when the file holds several (HDF5: ``"dataset/model"``).
    mmap : bool, default=False
        Leave an ``.npy`` array on disk and map it; for arrays larger than memory.
    need_labels : bool, default=False
        Fail when there are no labels.
    with_labels : bool, default=True
        Read the labels; without them it does not matter what they hold.
    class_axis : int, optional
        The axis of the classes of an array of more than two: 1 for images (n, m, h, w). A row is then a pixel or a token. It need
        not be said of sequences (n, t, m) with labels (n, t).
    ignore_index : int, optional
        Rows with this label are left out.
    unknown : sequence of int, optional
        Rows with such a label stay, with the label -1: it is not known.
    separator : str, optional
        What stands between the cells of a text table, where it is not recognised.
    decimal : {".", ","}, optional
        The decimal point of a text table, where it is not recognised.
    drop_missing : bool, default=False
        Leave rows with missing values out instead of refusing them.

    Returns
    -------
    LogitsSet

    Raises
    ------
    FileError
        The file cannot be read as asked; the message says what was expected, what came and what to do.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"prob_cat": [0.9, 0.2], "prob_dog": [0.1, 0.8], "label": ["cat", "dog"]})
    >>> pets = read(frame)
    >>> pets.kind, pets.class_names, pets.labels.tolist()
    ('probabilities', ('cat', 'dog'), [0, 1])
    """
    options = dict(locals())
    how = {name: options.pop(name) for name in ("mmap", "separator", "decimal")}
    return read_source(open_arrays(options.pop("path"), **how), **options)


def read_source(
    source: NamedArrays,
    *,
    kind: str | None = None,
    expected: str | None = None,
    known_classes: Sequence[str] | None = None,
    many: bool = False,
    strict: bool = False,
    group: str | None = None,
    need_labels: bool = False,
    with_labels: bool = True,
    drop_missing: bool = False,
    **options: Any,
) -> LogitsSet:
    """The set of an open source; `read` explains the parameters.

    A fitted calibrator knows more: the kind that is ``expected`` where no name says it, names of classes
    (``known_classes``), ``many`` labels. Where ``strict``, values that look like something else are refused, not warned of.
    """
    if kind not in (None, "logits", "probabilities", "percent"):
        raise InputError(f"kind must be 'logits', 'probabilities' or 'percent', got {kind!r}.")
    if options.get("first_label") not in (None, 0, 1):
        raise InputError(f"{spoken('first_label=')} must be 0 or 1, got {options['first_label']!r}.")
    if options.get("values") is not None and group is None and not source.table:
        names, group = source.names, ""  # a full name needs no group
    else:
        group, names = choose_group(source, group)
    if expected:  # a calibrator is not applied to what one has made
        names = tuple(n for n in names if not n.endswith(CALIBRATED)) or names
    where = source.title + (f", group {group!r}," if group else "")
    labels_file = options.get("labels_file") if with_labels else None
    other = None
    if labels_file is not None:
        other = _from_labels_file(labels_file, options.get("labels"), as_part(options.get("part")))
    kinds = ("probabilities" if kind == "percent" else kind, expected)
    choice = _choose(source, names, where, kinds, known_classes, other and other[0], options)
    here = () if other or not with_labels else choice.labels
    if not here and other is None and need_labels:
        raise FileError(_no_labels(source, where, names))
    classes = options.get("classes")
    more = [name for name in (choice.weights, None if classes else choice.classes_array) if name]
    held = _load(source, choice, (*here, *more))
    many = many or (choice.pairs and not is_one_hot(np.column_stack(source.load(choice.labels))))
    if other:
        held[other[1]] = other[0]
    used = [name for name in held if name != choice.classes_array and not (many and name in here)]
    held, kept = _complete(held, used, source.title, drop_missing)
    labels_where = other[1] if other else f"{listing(here, 3)} in {source.title}" if here else ""
    labels = held[other[1]] if other else None
    if here:
        labels = _joined([held[name] for name in here], here, source.title, "labels")
    class_names = tuple(classes) if classes else choice.classes
    if choice.classes_array is not None and not classes:
        class_names = _as_names(held[choice.classes_array], f"{choice.classes_array!r} in {source.title}")
    dropped = "" if kept is None else f"rows with missing values were left out, {len(kept):,} are read"
    made = make_set(
        _joined([held[name] for name in choice.values], choice.values, source.title, "classes"),
        labels,
        kind=kind or choice.kind,
        stated=kind is not None,
        strict=strict,
        where=f"{listing(choice.values, 3)} in {source.title}",
        labels_where=labels_where,
        notes=(*source.notes, *filter(None, [dropped])),
        class_names=class_names,
        first_column=choice.first,
        weights=None if choice.weights is None else held[choice.weights],
        weights_where=f"{choice.weights!r} in {source.title}",
        many=many,
        **{name: options[name] for name in _OF_ROWS if name in options},
    )
    beside = {*choice.aside, *(() if with_labels or labels_file is not None else choice.labels)}
    return replace(
        made,
        name=group or (source.title if source.path is None else stem(source.path)),
        path=source.path,
        part=choice.part,
        aside=tuple(name for name in names if name in beside),
        taken=_taken(source, choice, made, labels_where),
        ragged=source.ragged,
        columns=choice.values if source.table and all(held[name].ndim == 1 for name in choice.values) else (),
        kept=kept,
    )


_OF_ROWS = ("first_label", "class_axis", "ignore_index", "unknown")


def _choose(
    source: NamedArrays,
    names: Sequence[str],
    where: str,
    kinds: tuple[Any, Any],
    known_classes: Sequence[str] | None,
    labels: np.ndarray | None,
    options: dict[str, Any],
) -> Choice:
    """The columns, of the ``kinds`` that were stated or are expected."""
    arguments: dict[str, Any] = {name: options.get(name) for name in ("values", "weights")}
    arguments |= {"labels": None if options.get("labels_file") else options.get("labels"), "where": where}
    arguments |= {"classes": options.get("classes") or known_classes, "part": as_part(options.get("part"))}
    stated, expected = kinds
    try:
        return choose(source, names, kind=stated or expected, label_values=labels, **arguments)
    except FileError:
        if stated or not expected:  # a name says another kind than what is expected: that is reported later
            raise
        return choose(source, names, label_values=labels, **arguments)


def _load(source: NamedArrays, choice: Choice, more: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays that were chosen, together: a table is parsed once. Whole numbers in a table are numbers like others."""
    needed = [*choice.values, *more]
    held = dict(zip(needed, source.load(needed), strict=True))
    for name in choice.values:
        if source.table and held[name].dtype.kind in "iu":
            held[name] = held[name].astype(np.float64)
    return held


def _complete(
    held: dict[str, np.ndarray], used: Sequence[str], title: str, drop: bool
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """The arrays without the rows in which one of the ``used`` lacks a value, and the rows that are left (None: all)."""
    n = len(held[used[0]]) if used and held[used[0]].ndim else 0
    lacking = {name: missing(held[name]) for name in used if held[name].ndim and len(held[name]) == n}
    counts = {name: int(rows.sum()) for name, rows in lacking.items() if rows is not None and rows.any()}
    if not counts:
        return held, None
    rows = np.any([rows for rows in lacking.values() if rows is not None], axis=0)
    if not drop:
        each = ", ".join(f"{count:,} in {name!r}" for name, count in list(counts.items())[:4])
        raise FileError(
            f"{title} has missing values in {int(rows.sum()):,} of {n:,} rows ({each}{', ...' * (len(counts) > 4)}), first in "
            f"row {int(np.argmax(rows))} (counting from 0): fill them, or leave these rows out with "
            f"{spoken('drop_missing=True')}."
        )
    if rows.all():
        raise FileError(f"{title} has missing values in every row: nothing is left.")
    return {
        name: array[~rows] if array.ndim and len(array) == n else array for name, array in held.items()
    }, np.flatnonzero(~rows)


def _no_labels(source: NamedArrays, where: str, names: Sequence[str]) -> str:
    if source.headless:
        return (
            f"{where} has no line of names: say which column is the label, {spoken('labels=', '-1')} for the last, "
            f"or give {spoken('labels_file=')}."
        )
    return (
        f"{where} has no labels: it holds {listing(names)}; name them with {spoken('labels=')}, "
        f"or give {spoken('labels_file=')}."
    )


def _as_names(array: np.ndarray, where: str) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind not in "UO" or len(set(array.tolist())) < len(array):
        raise FileError(
            f"{where} has shape {array.shape} and dtype {array.dtype}: expected a name for each class."
        )
    return tuple(map(str, array))


def _taken(source: NamedArrays, choice: Choice, made: LogitsSet, labels_where: str) -> str:
    """What was taken for what, in one line."""
    inside = f" in {source.title}"
    many = "columns" if source.table and len(choice.values) > 1 else "column" if source.table else "array"
    classes = "labels" if made.many_labels else "classes"
    parts = [f"{made.kind} of {made.n_classes:,} {classes} in the {many} {listing(choice.values, 3)}"]
    if made.labels is not None:
        parts.append(f"labels in {labels_where.removesuffix(inside)}")
    if choice.weights is not None:
        parts.append(f"weights in {choice.weights!r}")
    left = f"; left aside: {listing(choice.aside, 3)}" if choice.aside else ""
    return f"{source.title}: {made.n_samples:,} rows, {', '.join(parts)}{left}."


def _joined(arrays: list[np.ndarray], names: Sequence[str], title: str, what: str) -> np.ndarray:
    """One array of columns; a single one stays as it is."""
    if len(arrays) == 1:
        return arrays[0]
    for name, array in zip(names, arrays, strict=True):
        refuse_words(array, f"{title}, column {name!r}")
        if array.ndim != 1 or len(array) != len(arrays[0]):
            raise FileError(
                f"{title} has {name!r} of shape {array.shape} among the columns of {what}: expected "
                f"one number per row, {len(arrays[0])} in all."
            )
    return np.column_stack(arrays)


def _from_labels_file(
    path: str | os.PathLike[str], wanted: Names | None, part: Part | None
) -> tuple[np.ndarray, str]:
    source = open_arrays(path)
    if wanted is None:
        # The labels by name; else the file's only array, whatever it is called.
        names = find_labels(source.names, part, source.title)
        if not names and len(source.names) == 1:
            names = source.names
        if not names:
            raise FileError(
                f"{source.title} has no array of labels: it holds {listing(source.names)}; say which with {spoken('labels=')}."
            )
    else:
        names = find_names(source, source.names, wanted, "labels", source.title)
    array = _joined(source.load(names), names, source.title, "labels")
    return array, f"{listing(names, 3)} in {source.title}"


def to_carry(source: NamedArrays, names: Sequence[str], *, text: bool) -> dict[str, Any]:
    """Columns or arrays as they stand, to be written beside other values of the same rows; labels of an archive as ``labels``.

    Columns of a text table stay ``text``, or become numbers where all cells are.
    """
    if source.columns is not None:
        table = source.columns(names)
        columns = dict(zip(names, (table if text else typed(table)).columns, strict=True))
        return {name: one for name, one in columns.items() if not str(one.type).startswith("struct")}
    called = ["labels" if meaning(name).role == "labels" else name.rpartition("/")[2] for name in names]
    return dict(zip(called, map(np.atleast_1d, source.load(names)), strict=True))


def read_splits(
    path: str | os.PathLike[str] | Any,
    test: str | os.PathLike[str] | Any | None = None,
    *,
    kind: Literal["logits", "probabilities", "percent"] | None = None,
    group: str | None = None,
    mmap: bool = False,
) -> Splits:
    """Read a calibration set and a test set, both with labels.

    Parameters
    ----------
    path : path
        A file (or folder of ``.npy`` files) with both parts, such as ``logits_val``, ``y_val``,
        ``logits_test``, ``y_test``; or the calibration set alone when ``test`` is given.
    test : path, optional
        The file of the test set.
    kind, group, mmap
        As in `read`.

    Returns
    -------
    Splits

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import Splits, synthetic, write
    >>> path = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> splits = mc.read_splits(path)
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """
    source = open_arrays(path, mmap=mmap)
    other = source if test is None else open_arrays(test, mmap=mmap)
    parts = []
    where: list[tuple[NamedArrays, Part]] = [(source, "cal"), (other, "test")]
    for one, part in where:
        has_parts = any(meaning(name).part for name in one.names)
        if test is None and not has_parts:
            raise FileError(
                f"{one.title} holds no calibration and test parts (such as logits_val, y_val, "
                "logits_test, y_test): "
                f"it holds {listing(one.names)}; give the test set {spoken('as a second file')}."
            )
        part_or_all = part if has_parts else None
        parts.append(read(one, kind=kind, part=part_or_all, group=group, need_labels=True))
    cal, held_out = parts
    if cal.n_classes != held_out.n_classes or cal.kind != held_out.kind:
        raise FileError(
            f"{source.title} has {cal.n_classes} classes as {cal.kind} to calibrate on and {other.title} has "
            f"{held_out.n_classes} classes as {held_out.kind} to test on: expected the same."
        )
    held_out = held_out.in_order_of(cal.class_names)
    name = cal.name
    if test is not None and source.path is not None:
        name = split_part(name)[0] or source.path.resolve().parent.name
    return Splits(replace(cal, name=name, part="cal"), replace(held_out, name=name, part="test"), name)


# Further columns


def read_columns(
    path: str | os.PathLike[str] | Any,
    names: Names | None = None,
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
) -> dict[str, np.ndarray]:
    """Other columns of a file, such as groups, ids or what is known of each row.

    Parameters
    ----------
    path : path or frame
        As in `read`.
    names : str or sequence of str, optional
        Names, patterns or places, as in `read`. By default all whose names do not say that they are outputs or labels; in a
        table whose classes are columns with names of their own, these are among them.
    part : {"cal", "val", "test"}, optional
        Which part of a file that holds two: ``context`` is then ``context_test`` or ``test_context``.
    group : str, optional
        Which set of a file that holds several.

    Returns
    -------
    dict of str to array
        One value (or row of values) per row, by name; words as objects of type str. Gaps stay gaps: NaN among numbers, None
        among words.

    Examples
    --------
    >>> import pandas as pd
    >>> from monocal.data import read_columns
    >>> read_columns(pd.DataFrame({"site": ["a", "b"], "age": [40, 50]}), ["age"])
    {'age': array([40, 50])}
    """
    source, stated = open_arrays(path), as_part(part)
    here = source.names if group is None else choose_group(source, group)[1]
    wanted: dict[str, str] = {}
    if names is None:
        for name in here:
            base, of = without_part(_tail(name))
            if meaning(name).role in (None, "aside") and of in (
                stated,
                None,
                *([of] if stated is None else []),
            ):
                wanted[base] = name
    else:
        for name in (names,) if isinstance(names, str) else tuple(names):
            own = _of_part(here, name, stated, source)
            matched = find_names(source, here, name, "columns", source.title) if own is None else (own,)
            wanted |= {name: matched[0]} if own else {one: one for one in matched}
    arrays = source.load(list(wanted.values()))
    return {
        base: _checked(array, f"{source.title} has {name!r}")
        for (base, name), array in zip(wanted.items(), arrays, strict=True)
    }


def find_columns(
    wanted: str,
    beside: str | os.PathLike[str] | Any,
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    argument: str = "names=",
) -> dict[str, np.ndarray]:
    """Columns by what a person writes: names in the file ``beside`` (commas between), or a file, or ``FILE:NAME,NAME``.

    A name in the file goes first.

    Parameters
    ----------
    wanted : str
    beside : path or frame
        The file of the rows.
    part, group
        As in `read`.
    argument : str
        What messages call ``wanted``.

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.data import find_columns
    >>> np.savez("logits.npz", logits=np.zeros((2, 3)), labels=[0, 1], site=["north", "south"])
    >>> find_columns("site", "logits.npz")
    {'site': array(['north', 'south'], dtype=object)}
    """
    source = open_arrays(beside)
    known = {word for name in source.names for word in (name, _tail(name), without_part(_tail(name))[0])}
    asked = [name.strip() for name in wanted.split(",")]
    if set(asked) <= known:
        return read_columns(beside, asked, part=part, group=group)
    file, colon, names = wanted.rpartition(":")
    if Path(wanted).expanduser().exists():
        columns = read_columns(wanted, part=_part_in(wanted, part))
        if not columns:
            raise FileError(
                f"{wanted} holds {listing(open_arrays(wanted).names)} and no further column: say {wanted}:NAME."
            )
        return columns
    if colon and Path(file).expanduser().exists():
        return read_columns(file, [name.strip() for name in names.split(",")], part=_part_in(file, part))
    others = [name for name in source.names if meaning(name).role in (None, "aside")]
    raise FileError(
        f"{spoken(argument)} {wanted!r} is neither a file nor a column of {source.title}, which has "
        f"{listing(others)} beside outputs and labels."
    )


def _tail(name: str) -> str:
    return name.rpartition("/")[2]


def _part_in(path: str, part: Literal["cal", "val", "test"] | None) -> Literal["cal", "val", "test"] | None:
    """The part to ask a second file for: none where its names speak of no part."""
    parts = {without_part(_tail(name))[1] for name in open_arrays(path).names}
    return part if as_part(part) in parts else None


def _of_part(names: Sequence[str], name: str, part: Part | None, source: NamedArrays) -> str | None:
    """The array that ``name`` means in this part; None where it is no name without its part."""
    if name in names:
        return None
    bases = {full: without_part(_tail(full)) for full in names}
    matched = [
        full for full, (base, of) in bases.items() if base == name and of is not None and part in (None, of)
    ]
    if len(matched) > 1:
        raise FileError(
            f"{source.title} has {name!r} for several parts, {listing(matched)}: say which with {spoken('part=')}."
        )
    return matched[0] if matched else None


def _checked(array: np.ndarray, what: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise FileError(f"{what} of shape {array.shape}: expected one value (or one row of them) per sample.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return array.astype(object) if array.dtype.kind in "UT" else array


# Folders


@dataclass(frozen=True)
class Location:
    """Where a calibration set and its test set are; small, picklable, read when wanted.

    Attributes
    ----------
    name : str
    path : Path
        Of the file (or folder) with both parts, or with the calibration set.
    group : str or None
        Within an HDF5 file.
    test : Path or None
        Of the test set, where it has a file of its own.

    Examples
    --------
    >>> from monocal.data import Splits, find, synthetic, write
    >>> _ = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> place = find(".")[0]
    >>> place.name, place.read().test.n_samples
    ('both', 200)
    """

    name: str
    path: Path
    group: str | None = None
    test: Path | None = None

    def read(self, *, mmap: bool = False) -> Splits:
        """Read both sets."""
        splits = read_splits(self.path, self.test, group=self.group, mmap=mmap)
        return Splits(replace(splits.cal, name=self.name), replace(splits.test, name=self.name), self.name)


def find(folder: str | os.PathLike[str]) -> list[Location]:
    """Every pair of calibration and test sets in a folder and the folders below it, sorted by path.

    Pairs are within one file (several in an HDF5 file with groups), in the ``.npy`` files of one folder, or
    in two files called alike, ``resnet_cal.csv`` and ``resnet_test.csv``. A file that holds no pair, or
    cannot be read, is left out with a ``UserWarning``. Only names are read here, no values
    (pickles apart, which open whole or not at all).

    Parameters
    ----------
    folder : path
        A file is a folder of one.

    Raises
    ------
    FileError
        There is no such folder, or no pair in it.

    Examples
    --------
    >>> from monocal.data import Splits, find, synthetic, write
    >>> _ = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> [place.name for place in find(".")]
    ['both']
    """
    root = as_path(folder)
    if not root.exists():
        raise FileError(f"There is no folder {root}: check the name.")
    places: list[Location] = []
    halves: dict[tuple[Path, str], dict[str, Path]] = {}
    for path in _candidates(root):
        try:
            source = open_arrays(path)
        except (FileError, MissingExtraError) as error:
            warn(f"Left out: {error}")
            continue
        pairs = [
            Location(group or stem(path), path, group or None)
            for group, names in source.groups().items()
            if {"cal", "test"} <= {m.part for m in map(meaning, names) if m.holds_values}
        ]
        places += pairs
        shared, part = split_part(stem(path))
        if not pairs and part is None:
            warn(f"Left out: {path} holds no calibration and test parts, and its name ends in neither.")
        elif not pairs:
            halves.setdefault((path.parent, shared), {})[str(part)] = path
    for (parent, shared), half in halves.items():
        if len(half) == 2:
            places.append(Location(shared or parent.resolve().name, half["cal"], test=half["test"]))
        else:
            (only,) = half.values()
            warn(f"Left out: {only} is one part of a pair, and the other part is not in the same folder.")
    if not places:
        raise FileError(
            f"{root} holds no pair of calibration and test sets: expected files with logits_val, y_val, "
            f"logits_test, y_test (or pairs such as a_cal.npz and a_test.npz)."
        )
    count = Counter(place.name for place in places)
    base = root if root.is_dir() else root.parent
    unique = [
        replace(place, name="/".join(filter(None, (str(place.path.relative_to(base)), place.group))))
        if count[place.name] > 1
        else place
        for place in places
    ]
    return sorted(unique, key=lambda place: (str(place.path), place.group or ""))


def _candidates(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = [
        p for p in root.rglob("*") if not any(part.startswith(".") for part in p.relative_to(root).parts)
    ]
    readable = [p for p in files if extension(p) in FOUND_IN_FOLDERS and p.is_file()]
    return sorted({*readable, *(p.parent for p in files if p.suffix == ".npy" and p.is_file())})
