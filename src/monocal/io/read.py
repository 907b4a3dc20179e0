"""From a path to a set:  open the file, choose columns by name, bring them into one form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, warn, wording
from monocal.inputs.names import Part, listing
from monocal.io.assembly import Assembly, joined
from monocal.io.columns import (
    CALIBRATED,
    Choice,
    Names,
    as_part,
    aside,
    choose_group,
    find_names,
    labels_of,
    meaning,
    split_part,
)
from monocal.io.logits_set import LogitsSet, Splits
from monocal.io.named_arrays import FOUND_IN_FOLDERS, NamedArrays, as_path, extension, open_arrays, stem

AnyFile = str | os.PathLike[str] | Any  # a path, or a frame
AnyPart = Literal["cal", "val", "test"]


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
        ``.csv``, ``.tsv`` (also packed, ``.csv.gz``), ``.xlsx``, ``.parquet``, ``.feather``, ``.npz``,
        ``.npy``, ``.safetensors``, ``.h5``/``.hdf5``, ``.pt``/``.pth`` of torch, ``.json`` and ``.jsonl``
        (a row in each object, or samples of lm-evaluation-harness), ``.txt`` (a label in each line), a
        pickle of arrays (``.p``, ``.pkl``, ``.pickle``), or a folder of ``.npy`` files; or a pandas or
        polars frame. Arrays are recognised by name: ``logits``, ``probabilities`` (``probs``) and
        ``labels`` (``y``, ``target``), with ``_val``/``_cal`` and ``_test`` for the two parts; in tables
        a class is a column: ``logit_0``, ``prob_cat`` or just ``cat``.
    values : str or sequence of str, optional
        Name of the array, or names of the columns in the order of the classes, or a pattern, ``"p_*"``.
    labels : str or sequence of str, optional
        Name of the labels, in ``labels_file`` when that is given; several: one-hot columns. Labels are
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
    need_labels, with_labels : bool
        Fail when there are no labels; do not read them when False.
    class_axis : int, optional
        The axis of the classes of an array of more than two: 1 for images (n, m, h, w). Sequences
        (n, t, m) with labels (n, t) need none. A row is then a pixel or a token.
    ignore_index : int, optional
        Rows with this label are left out.
    unknown : sequence of int, optional
        Rows with such a label stay, with the label -1: it is not known.
    separator, decimal : str, optional
        Of a text table, where they are not recognised.
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
    many: bool = False,
    strict: bool = False,
    values: Names | None = None,
    labels: Names | None = None,
    labels_file: AnyFile | None = None,
    classes: Sequence[str] | None = None,
    known_classes: Sequence[str] | None = None,
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

    A fitted calibrator adds the kind that is ``expected`` where no name says it, names of classes
    (``known_classes``), and whether there are ``many`` labels. Where ``strict``, values that look like
    something else are refused, not warned of.
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
    other = None
    if with_labels and labels_file is not None:
        other, labels = _from_labels_file(labels_file, labels, as_part(part)), None
    request: dict[str, Any] = {"labels": labels, "part": as_part(part), "values": values, "weights": weights}
    request |= {"classes": classes or known_classes, "label_values": other and other[0]}
    stated = "probabilities" if kind == "percent" else kind
    try:
        choice = Choice(source, names, where, kind=stated or expected, **request)  # type: ignore[arg-type]
    except FileError:
        if stated or not expected:  # a name says another kind than is expected: that is reported later
            raise
        choice = Choice(source, names, where, **request)
    own_labels = choice.labels if with_labels and other is None else ()
    if need_labels and not own_labels and other is None:
        unclaimed = aside(choice.aside)  # an id is the last guess
        name = wording("labels=", min(unclaimed, key=lambda n: meaning(n).role == "aside", default=None))
        hint = f"it holds {listing(names)}; name them with {name}, or " if len(names) > 1 else ""
        raise FileError(f"{where} has no labels: {hint}give their file with {wording('labels_file=')}.")
    assembly = Assembly(choice, own_labels, other, classes, many, drop_missing)
    made = assembly.finish(
        kind or choice.kind, stated=kind is not None, strict=strict, known_classes=known_classes, **layout
    )
    along = {*choice.aside, *(() if with_labels or labels_file is not None else choice.labels)}
    one_each = source.table and len(choice.values) in (1 if made.n_classes == 2 else 0, made.n_classes)
    return replace(
        made,
        name=group or (source.title if source.path is None else stem(source.path)),
        path=source.path,
        part=choice.part,
        aside=tuple(name for name in names if name in along),
        taken=_taken(choice, made, assembly.labels_where),
        ragged=source.ragged,
        columns=choice.values if one_each else (),
    )


def _from_labels_file(path: AnyFile, request: Names | None, part: Part | None) -> tuple[np.ndarray, str]:
    """The labels by name; else the file's only array, whatever it is called; and what messages call them."""
    source = open_arrays(path)
    if request is not None:
        names = find_names(source.names, request, "labels", source.title)
    else:
        names = labels_of(source.names, part, source.title) or source.names
        if len(names) > 1:
            raise FileError(
                f"{source.title} has no array of labels: it holds {listing(names)}; say which with "
                f"{wording('labels=')}."
            )
    where = f"{listing(names, 3)} in {source.title}"
    return joined(source.load(names), where), where


def _taken(choice: Choice, made: LogitsSet, labels_where: str) -> str:
    """What was taken for what, in one line."""
    source = choice.source
    many = "columns" if source.table and len(choice.values) > 1 else "column" if source.table else "array"
    classes = "labels" if made.many_labels else "classes"
    parts = [f"{made.kind} of {made.n_classes:,} {classes} in the {many} {listing(choice.values, 3)}"]
    if made.labels is not None:
        parts.append(f"labels in {labels_where.removesuffix(f' in {source.title}')}")
    if choice.weights is not None:
        parts.append(f"weights in {choice.weights!r}")
    left = f"; other columns: {listing(choice.aside, 3)}" if choice.aside else ""
    return f"{source.title}: {made.n_samples:,} rows, {', '.join(parts)}{left}."


def to_carry(source: NamedArrays, names: Sequence[str], *, text: bool) -> dict[str, Any]:
    """Columns or arrays as they stand, to be written with other values of the same rows.

    Columns of a text table stay ``text`` if asked for; labels of an archive are called ``labels``.
    """
    if source.columns is not None:
        columns = dict(zip(names, source.columns(names, text).columns, strict=True))
        return {name: one for name, one in columns.items() if not str(one.type).startswith("struct")}
    called = ["labels" if meaning(name).role == "labels" else _tail(name) for name in names]
    return dict(zip(called, map(np.atleast_1d, source.load(names)), strict=True))


def read_splits(
    path: AnyFile,
    test: AnyFile | None = None,
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

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import Splits, synthetic, write
    >>> path = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> splits = mc.read_splits(path)
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """
    sets = []
    parts: tuple[Part, Part] = ("cal", "test")
    for one, part in zip((path, path if test is None else test), parts, strict=True):
        source = open_arrays(one, mmap=mmap)
        has_parts = any(meaning(name).part for name in source.names)
        if test is None and not has_parts:
            raise FileError(
                f"{source.title} holds no calibration and test parts (such as logits_val, y_val, "
                f"logits_test, y_test): it holds {listing(source.names)}; give the test set as a second file."
            )
        sets.append(read(source, kind=kind, part=part if has_parts else None, group=group, need_labels=True))
    cal, held_out = sets
    if cal.n_classes != held_out.n_classes or cal.kind != held_out.kind:
        raise FileError(
            f"The calibration set has {cal.n_classes} classes as {cal.kind} and the test set has "
            f"{held_out.n_classes} classes as {held_out.kind}: expected the same."
        )
    name = cal.name
    if test is not None and cal.path is not None:
        name = split_part(name)[0] or cal.path.resolve().parent.name
    held_out = replace(held_out.in_order_of(cal.class_names), name=name, part="test")
    return Splits(replace(cal, name=name, part="cal"), held_out, name)


# Further columns


def read_columns(
    path: AnyFile, names: Names | None = None, *, part: AnyPart | None = None, group: str | None = None
) -> dict[str, np.ndarray]:
    """Other columns of a file, such as groups, ids or further facts about each row.

    Parameters
    ----------
    path : path or frame
        As in `read`.
    names : str or sequence of str, optional
        Names or patterns. By default all whose names do not say that they are outputs or labels; in a
        table whose classes are columns with names of their own, these are among them.
    part : {"cal", "val", "test"}, optional
        Which part of a file that holds two: ``context`` is then ``context_test`` or ``test_context``.
    group : str, optional
        Which set of a file that holds several.

    Returns
    -------
    dict of str to array
        One value (or row of values) per row, by name; words as objects of type str. Gaps stay gaps: NaN
        among numbers, None among words.

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
        fitting = [full for full, (_, of) in bases.items() if stated in (None, of) or of is None]
        chosen = {bases[full][0] or full: full for full in aside(fitting)}
    for name in (names,) if isinstance(names, str) else names or ():
        parts = [full for full, (base, of) in bases.items() if base == name and of and stated in (None, of)]
        if name not in bases and len(parts) > 1:
            raise FileError(f"{source.title} has {name!r} for several parts: say {wording('part=')}.")
        if name not in bases and parts:
            chosen[name] = parts[0]
        else:
            chosen |= {full: full for full in find_names(here, name, "", source.title)}
    arrays = dict(zip(chosen, source.load(list(chosen.values())), strict=True))
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise FileError(f"{source.title} has {name!r} of shape {array.shape}: expected (n,) or (n, k).")
        if array.dtype.kind in "USTO":
            words = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
            arrays[name] = words.astype(object)
    return arrays


def find_columns(
    request: str,
    path: AnyFile,
    *,
    part: AnyPart | None = None,
    group: str | None = None,
    argument: str = "names=",
) -> dict[str, np.ndarray]:
    """Columns by what a person writes: names in the file ``path`` (commas between), or a file, or ``FILE:NAME,NAME``.

    A name in the file goes first.

    Parameters
    ----------
    request, path, part, group
        The last three as in `read`.
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
    file, _, rest = request.rpartition(":")
    if Path(request).expanduser().exists():
        file, rest = request, ""
    elif not file or not Path(file).expanduser().exists():
        raise FileError(
            f"{wording(argument)} {request!r} is neither a file nor a column of {source.title}, which has "
            f"{listing(aside(source.names))} apart from outputs and labels."
        )
    second = open_arrays(file)
    has_part = as_part(part) in {split_part(_tail(name))[1] for name in second.names}
    columns = read_columns(second, rest.split(",") if rest else None, part=part if has_part else None)
    if not columns:
        raise FileError(f"{request} holds {listing(second.names)} and no further column: say {request}:NAME.")
    return columns


def _tail(name: str) -> str:
    return name.rpartition("/")[2]


# Folders


@dataclass(frozen=True)
class Location:
    """Where a calibration set and its test set are: in one file, in a ``group`` of it, or in two files.

    Attributes
    ----------
    name, path, group, test
        ``test`` is the file of the test set where it has one of its own.

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

    Pairs are within one file (several in an HDF5 file with groups), in the ``.npy`` files of one folder,
    or in two files called alike, ``resnet_cal.csv`` and ``resnet_test.csv``. A file that holds no pair, or
    cannot be read, is left out with a ``UserWarning``. Only names are read here, no values (pickles apart,
    which open whole or not at all).

    Parameters
    ----------
    folder : path

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
        if not pairs:
            shared, part = split_part(stem(path))
            halves.setdefault((path.parent, shared), {})[part] = path
    for (parent, shared), half in halves.items():
        if half.keys() >= {"cal", "test"}:
            places.append(Location(shared or parent.resolve().name, half["cal"], test=half["test"]))
        else:
            warn(f"Left out: {listing(half.values())} holds no calibration and test parts, nor is a pair.")
    if not places:
        raise FileError(
            f"{root} holds no pair of calibration and test sets: expected files with logits_val, y_val, "
            "logits_test, y_test (or pairs such as a_cal.npz and a_test.npz)."
        )
    count = Counter(place.name for place in places)
    base = root if root.is_dir() else root.parent
    for i, place in enumerate(places):
        if count[place.name] > 1:
            full = "/".join(filter(None, (str(place.path.relative_to(base)), place.group)))
            places[i] = replace(place, name=full)
    return sorted(places, key=lambda place: (str(place.path), place.group or ""))


def _candidates(root: Path) -> list[Path]:
    """Files that may hold sets, and folders of ``.npy`` files; none that is hidden."""
    if root.is_file():
        return [root]
    files = [
        path
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    readable = [path for path in files if extension(path) in FOUND_IN_FOLDERS]
    return sorted({*readable, *(path.parent for path in files if path.suffix == ".npy")})
