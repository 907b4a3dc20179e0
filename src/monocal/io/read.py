"""From a path to a set:  open the file, choose columns by name (`monocal.io.columns`), bring them into one form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, warn, wording
from monocal.inputs.names import Part, listing
from monocal.io.assembly import Assembly, is_one_hot
from monocal.io.columns import (
    CALIBRATED,
    Choice,
    Names,
    as_part,
    choose,
    choose_group,
    columns_aside,
    find_names,
    labels_of,
    meaning,
    refuse_words,
    split_part,
)
from monocal.io.logits_set import LogitsSet, Splits
from monocal.io.named_arrays import NamedArrays, as_path, extension, is_number, stem
from monocal.io.opening import FOUND_IN_FOLDERS, open_arrays, typed

AnyFile = str | os.PathLike[str] | Any  # a path, or a frame


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
        ``.csv``, ``.tsv`` (also packed, ``.csv.gz``), ``.xlsx``, ``.parquet``, ``.feather``, ``.npz``, ``.npy``,
        ``.safetensors``, ``.h5``/``.hdf5``, ``.pt``/``.pth`` of torch, ``.json`` and ``.jsonl`` (a row in each object, or samples
        of lm-evaluation-harness), ``.txt`` (a label in each line), a pickle of arrays (``.p``, ``.pkl``, ``.pickle``), or a
        folder of ``.npy`` files; or a pandas or polars frame in memory. Arrays are recognised by name: ``logits``,
        ``probabilities`` (``probs``, ``y_pred_proba``) and ``labels`` (``y``, ``target``, ``class``), with ``_val``/``_cal`` and
        ``_test`` for the two parts; in tables a class is a column: ``logit_0``, ``prob_cat`` or just ``cat``.
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
        Names of the classes in the order of the columns, where the file does not have them.
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
        The axis of the classes of an array of more than two: 1 for images (n, m, h, w). A row is then a pixel or a token.
        Sequences (n, t, m) with labels (n, t) need none.
    ignore_index : int, optional
        Rows with this label are left out.
    unknown : sequence of int, optional
        Rows with such a label stay, with the label -1: it is not known.
    separator : str, optional
        The separator of the cells of a text table, where it is not recognised.
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
    expected: str | None = None,
    known_classes: Sequence[str] | None = None,
    many: bool = False,
    strict: bool = False,
    values: Names | None = None,
    labels: Names | None = None,
    labels_file: AnyFile | None = None,
    classes: Sequence[str] | None = None,
    weights: str | None = None,
    kind: str | None = None,
    part: str | None = None,
    group: str | None = None,
    need_labels: bool = False,
    with_labels: bool = True,
    drop_missing: bool = False,
    **layout: Any,
) -> LogitsSet:
    """The set of open arrays; `read` explains the parameters.

    A fitted calibrator adds the kind that is ``expected`` where no name says it, names of classes (``known_classes``), and
    whether there are ``many`` labels. Where ``strict``, values that look like something else are refused, not warned of.
    """
    if kind not in (None, "logits", "probabilities", "percent"):
        raise InputError(f"kind must be 'logits', 'probabilities' or 'percent', got {kind!r}.")
    if layout.get("first_label") not in (None, 0, 1):
        raise InputError(f"{wording('first_label=')} must be 0 or 1, got {layout['first_label']!r}.")
    if values is not None and group is None and not source.table:
        names, group = source.names, ""  # a full name needs no group
    else:
        group, names = choose_group(source, group)
    if expected:  # a calibrator is not applied to what one has made
        names = tuple(n for n in names if not n.endswith(CALIBRATED)) or names
    where = source.title + (f", group {group!r}," if group else "")
    other = None  # labels of another file
    if with_labels and labels_file is not None:
        other, labels = _from_labels_file(labels_file, labels, as_part(part)), None
    request: dict[str, Any] = {"where": where, "labels": labels, "part": as_part(part)}
    request |= {"values": values, "weights": weights, "classes": classes or known_classes}
    request |= {"label_values": other and other[0]}
    stated = "probabilities" if kind == "percent" else kind
    try:
        choice = choose(source, names, kind=stated or expected, **request)  # type: ignore[arg-type]
    except FileError:
        if stated or not expected:  # a name says another kind than what is expected: that is reported later
            raise
        choice = choose(source, names, **request)
    own_labels = choice.labels if with_labels and other is None else ()
    if need_labels and not own_labels and other is None:
        name = wording("labels=", next(iter(columns_aside(choice.aside)), None))
        hint = f"it holds {listing(names)}; name them with {name}, or " if len(names) > 1 else ""
        raise FileError(f"{where} has no labels: {hint}give their file with {wording('labels_file=')}.")
    assembly, kept = _assembled(source, choice, own_labels, other, classes, many, drop_missing)
    made = assembly.finish(
        kind or choice.kind, stated=kind is not None, strict=strict, known_classes=known_classes, **layout
    )
    along = {*choice.aside, *(() if with_labels or labels_file is not None else choice.labels)}
    one_each = source.table and len(choice.values) == (1 if made.n_classes == 2 else made.n_classes)
    return replace(
        made,
        name=group or (source.title if source.path is None else stem(source.path)),
        path=source.path,
        part=choice.part,
        aside=tuple(name for name in names if name in along),
        taken=_taken(source, choice, made, assembly.labels_where),
        ragged=source.ragged,
        columns=choice.values if one_each else (),
        kept=kept,
    )


def _assembled(
    source: NamedArrays,
    choice: Choice,
    own_labels: tuple[str, ...],
    other: tuple[np.ndarray, str] | None,
    classes: Sequence[str] | None,
    many: bool,
    drop_missing: bool,
) -> tuple[Assembly, np.ndarray | None]:
    """The arrays that were chosen, less rows with missing values, and which rows are left (None: all).

    Labels are ``own_labels`` of the file, or ``other`` labels and what messages call them.
    """
    title, names_of = source.title, None if classes else choice.classes_array
    names = [*choice.values, *own_labels, *filter(None, (choice.weights, names_of))]
    arrays = dict(zip(names, source.load(names), strict=True))  # together: a table is parsed once
    for name in choice.values if source.table else ():  # whole numbers in a table are numbers like others
        if arrays[name].dtype.kind in "iu":
            arrays[name] = arrays[name].astype(np.float64)
    many = many or (choice.pairs and not is_one_hot(np.column_stack(source.load(choice.labels))).all())
    of_rows = {n: a for n, a in arrays.items() if n != names_of and not (many and n in own_labels)}
    complete, kept = _complete(of_rows | ({other[1]: other[0]} if other else {}), title, drop_missing)
    arrays |= complete
    notes = [*source.notes]
    if source.table and all(name.endswith(CALIBRATED) for name in choice.values):
        notes.append(f"{listing(choice.values, 3)} was read, which apply has calibrated")
    if kept is not None:
        arrays |= {name: arrays[name][kept] for name in own_labels if many}
        notes.append(f"rows with missing values were left out, {len(kept):,} are read")
    class_names = tuple(classes) if classes else choice.classes
    if names_of is not None:
        class_names = _as_names(arrays[names_of], f"{names_of!r} in {title}")
    labels, labels_where = None, f"{listing(own_labels, 3)} in {title}"
    if own_labels:
        labels = _joined([arrays[name] for name in own_labels], own_labels, title)
    elif other:
        labels, labels_where = arrays[other[1]], other[1]
    return Assembly(
        _joined([arrays[name] for name in choice.values], choice.values, title),
        f"{listing(choice.values, 3)} in {title}",
        labels,
        labels_where,
        None if choice.weights is None else arrays[choice.weights],
        f"{choice.weights!r} in {title}",
        class_names,
        choice.first,
        many,
        notes,
    ), kept


def _complete(
    arrays: Mapping[str, np.ndarray], title: str, drop: bool
) -> tuple[Mapping[str, np.ndarray], np.ndarray | None]:
    """The arrays without the rows in which one of them lacks a value, and the rows that are left (None: all)."""
    n = next((len(array) for array in arrays.values() if array.ndim), 0)
    of_rows = {name: array for name, array in arrays.items() if array.ndim and len(array) == n}
    gaps = {name: missing for name, array in of_rows.items() if (missing := _missing(array)).any()}
    if not gaps:
        return arrays, None
    rows = np.any(list(gaps.values()), axis=0)
    if not drop:
        each = ", ".join(f"{one.sum():,} in {name!r}" for name, one in list(gaps.items())[:4])
        raise FileError(
            f"{title} has missing values in {rows.sum():,} of {n:,} rows ({each}{', ...' * (len(gaps) > 4)}), first in row "
            f"{int(np.argmax(rows))} (counting from 0): fill them, or leave these rows out with {wording('drop_missing=True')}."
        )
    if rows.all():
        raise FileError(f"{title} has missing values in every row: nothing is left.")
    left = {name: array[~rows] for name, array in of_rows.items()}
    for name, array in left.items():
        if array.dtype == object and all(
            map(is_number, array.flat)
        ):  # words stood in the rows left out alone
            left[name] = array.astype(np.float64)
    return {**arrays, **left}, np.flatnonzero(~rows)


def _missing(array: np.ndarray) -> np.ndarray:
    """Which rows lack a value: NaN, None or blank text. A mapped array is not looked at."""
    if array.ndim not in (1, 2) or isinstance(array, np.memmap) or array.dtype.kind not in "fOU":
        return np.zeros(0, bool)
    if array.dtype.kind == "f":
        lacks = np.isnan(array)
    else:
        cells = [cell is None or cell != cell or not str(cell).strip() for cell in array.ravel().tolist()]
        lacks = np.array(cells, dtype=bool).reshape(array.shape)
    return lacks if array.ndim == 1 else lacks.any(axis=1)


def _as_names(array: np.ndarray, where: str) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind not in "UO" or len(set(array.tolist())) < len(array):
        raise FileError(
            f"{where} has shape {array.shape} and dtype {array.dtype}: expected a name for each class."
        )
    return tuple(map(str, array))


def _taken(source: NamedArrays, choice: Choice, made: LogitsSet, labels_where: str) -> str:
    """What was taken for what, in one line."""
    many = "columns" if source.table and len(choice.values) > 1 else "column" if source.table else "array"
    classes = "labels" if made.many_labels else "classes"
    parts = [f"{made.kind} of {made.n_classes:,} {classes} in the {many} {listing(choice.values, 3)}"]
    if made.labels is not None:
        parts.append(f"labels in {labels_where.removesuffix(f' in {source.title}')}")
    if choice.weights is not None:
        parts.append(f"weights in {choice.weights!r}")
    left = f"; other columns: {listing(choice.aside, 3)}" if choice.aside else ""
    rows = f"{made.n_samples:,} row{'s' * (made.n_samples != 1)}"
    return f"{source.title}: {rows}, {', '.join(parts)}{left}."


def _joined(arrays: list[np.ndarray], names: Sequence[str], title: str) -> np.ndarray:
    """One array of columns; a single one stays as it is."""
    if len(arrays) == 1:
        return arrays[0]
    for name, array in zip(names, arrays, strict=True):
        refuse_words(array, f"{title}, column {name!r}")
        if array.shape != (len(arrays[0]),):
            raise FileError(
                f"{title} has {name!r} of shape {array.shape} among the columns: expected one number for each of "
                f"{len(arrays[0])} rows."
            )
    return np.column_stack(arrays)


def _from_labels_file(path: AnyFile, request: Names | None, part: Part | None) -> tuple[np.ndarray, str]:
    """The labels by name; else the file's only array, whatever it is called; and what messages call them."""
    source = open_arrays(path)
    if request is not None:
        names = find_names(source, source.names, request, "labels", source.title)
    else:
        names = labels_of(source.names, part, source.title) or source.names
        if len(names) > 1:
            raise FileError(
                f"{source.title} has no array of labels: it holds {listing(names)}; say which with {wording('labels=')}."
            )
    return _joined(source.load(names), names, source.title), f"{listing(names, 3)} in {source.title}"


def to_carry(source: NamedArrays, names: Sequence[str], *, text: bool) -> dict[str, Any]:
    """Columns or arrays as they stand, to be written with other values of the same rows; labels of an archive as ``labels``.

    Columns of a text table stay ``text``, or become numbers where all cells are.
    """
    if source.columns is not None:
        table = source.columns(names)
        columns = dict(zip(names, (table if text else typed(table)).columns, strict=True))
        return {name: one for name, one in columns.items() if not str(one.type).startswith("struct")}
    called = ["labels" if meaning(name).role == "labels" else _tail(name) for name in names]
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
    sources = [open_arrays(one, mmap=mmap) for one in (path, path if test is None else test)]
    sets = []
    parts: tuple[Part, Part] = ("cal", "test")
    for source, part in zip(sources, parts, strict=True):
        has_parts = any(meaning(name).part for name in source.names)
        if test is None and not has_parts:
            raise FileError(
                f"{source.title} holds no calibration and test parts (such as logits_val, y_val, logits_test, y_test): "
                f"it holds {listing(source.names)}; give the test set as a second file."
            )
        sets.append(read(source, kind=kind, part=part if has_parts else None, group=group, need_labels=True))
    cal, held_out = sets
    if cal.n_classes != held_out.n_classes or cal.kind != held_out.kind:
        raise FileError(
            f"{sources[0].title} has {cal.n_classes} classes as {cal.kind} to calibrate on and {sources[1].title} has "
            f"{held_out.n_classes} classes as {held_out.kind} to test on: expected the same."
        )
    held_out = held_out.in_order_of(cal.class_names)
    name = cal.name
    if test is not None and cal.path is not None:
        name = split_part(name)[0] or cal.path.resolve().parent.name
    return Splits(replace(cal, name=name, part="cal"), replace(held_out, name=name, part="test"), name)


# Further columns


def read_columns(
    path: str | os.PathLike[str] | Any,
    names: Names | None = None,
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
) -> dict[str, np.ndarray]:
    """Other columns of a file, such as groups, ids or further facts about each row.

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
    bases = {full: split_part(_tail(full)) for full in here}
    chosen: dict[str, str] = {}  # what the caller calls it -> what the file calls it
    if names is None:
        of_part = [full for full, (_, of) in bases.items() if stated in (None, of) or of is None]
        chosen = {bases[full][0]: full for full in columns_aside(of_part)}
    for name in (names,) if isinstance(names, str) else names or ():
        parts = [full for full, (base, of) in bases.items() if base == name and of and stated in (None, of)]
        if name in bases or not parts:
            chosen |= {full: full for full in find_names(source, here, name, "columns", source.title)}
        elif len(parts) == 1:
            chosen[name] = parts[0]
        else:
            raise FileError(
                f"{source.title} has {name!r} for several parts, {listing(parts)}: say which with {wording('part=')}."
            )
    arrays = source.load(list(chosen.values()))
    return {
        base: _as_column(array, f"{source.title} has {full!r}")
        for (base, full), array in zip(chosen.items(), arrays, strict=True)
    }


def find_columns(
    request: str,
    path: str | os.PathLike[str] | Any,
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    argument: str = "names=",
) -> dict[str, np.ndarray]:
    """Columns by what a person writes: names in the file ``path`` (commas between), or a file, or ``FILE:NAME,NAME``.

    A name in the file goes first.

    Parameters
    ----------
    request : str
    path : path or frame
        The file of the rows.
    part, group
        As in `read`.
    argument : str
        What messages call ``request``.

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.data import find_columns
    >>> np.savez("logits.npz", logits=np.zeros((2, 3)), labels=[0, 1], site=["north", "south"])
    >>> find_columns("site", "logits.npz")
    {'site': array(['north', 'south'], dtype=object)}
    """
    source = open_arrays(path)
    names = [name.strip() for name in request.split(",")]
    if set(names) <= {word for n in source.names for word in (n, _tail(n), split_part(_tail(n))[0])}:
        return read_columns(source, names, part=part, group=group)
    file, colon, rest = request.rpartition(":")
    if Path(request).expanduser().exists():
        file, names = request, []
    elif not colon or not Path(file).expanduser().exists():
        raise FileError(
            f"{wording(argument)} {request!r} is neither a file nor a column of {source.title}, which has "
            f"{listing(columns_aside(source.names))} apart from outputs and labels."
        )
    else:
        names = [name.strip() for name in rest.split(",")]
    second = open_arrays(file)
    has_part = as_part(part) in {split_part(_tail(name))[1] for name in second.names}
    columns = read_columns(second, names or None, part=part if has_part else None)
    if not columns:
        raise FileError(f"{request} holds {listing(second.names)} and no further column: say {request}:NAME.")
    return columns


def _tail(name: str) -> str:
    return name.rpartition("/")[2]


def _as_column(array: np.ndarray, what: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise FileError(f"{what} of shape {array.shape}: expected one value (or one row of them) per sample.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return array.astype(object) if array.dtype.kind in "UT" else array


# Folders


@dataclass(frozen=True)
class Location:
    """Where a calibration set and its test set are; small, picklable, read later.

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
    halves: dict[tuple[Path, str], dict[str | None, Path]] = {}
    for path in _candidates(root):
        try:
            source = open_arrays(path)
        except (FileError, MissingExtraError) as error:
            warn(f"Left out: {error}")
            continue
        pairs = [
            Location(group or stem(path), path, group or None)
            for group, names in source.groups().items()
            if {m.part for m in map(meaning, names) if m.holds_values} >= {"cal", "test"}
        ]
        places += pairs
        shared, part = split_part(stem(path))
        if not pairs and part is None:
            warn(f"Left out: {path} holds no calibration and test parts, and its name ends in neither.")
        elif not pairs:
            halves.setdefault((path.parent, shared), {})[part] = path
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
    for i, place in enumerate(places):
        if count[place.name] > 1:
            full = "/".join(filter(None, (str(place.path.relative_to(base)), place.group)))
            places[i] = replace(place, name=full)
    return sorted(places, key=lambda place: (str(place.path), place.group or ""))


def _candidates(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    visible = [
        p for p in root.rglob("*") if not any(part.startswith(".") for part in p.relative_to(root).parts)
    ]
    files = [p for p in visible if p.is_file()]
    readable = [p for p in files if extension(p) in FOUND_IN_FOLDERS]
    return sorted({*readable, *(p.parent for p in files if p.suffix == ".npy")})
