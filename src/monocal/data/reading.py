"""From a path to a set:  open the file, choose arrays by name, check them.

Logits or probabilities: ``kind`` decides; else the name of the array (``logits``, ``probs``, ...); else the
values are taken as logits, the library's one convention. The numbers themselves are never asked.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from monocal.data.naming import (
    as_kind,
    as_part,
    choose,
    class_names,
    find_labels,
    listing,
    meaning,
    split_part,
)
from monocal.data.sets import LogitsSet, Splits, make_set
from monocal.data.sources import READABLE, NamedArrays, as_path, open_source
from monocal.errors import FileError, MissingExtraError, spoken, warn


def read(
    path: str | os.PathLike[str],
    *,
    values: str | Sequence[str] | None = None,
    labels: str | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    kind: Literal["logits", "probabilities"] | None = None,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    mmap: bool = False,
    need_labels: bool = False,
) -> LogitsSet:
    """Read classifier outputs, and labels where there are any.

    Parameters
    ----------
    path : path
        ``.npz``, ``.npy``, ``.csv``, ``.tsv``, ``.parquet``, ``.safetensors``, ``.h5``/``.hdf5``, a pickle of
        arrays (``.p``, ``.pkl``, ``.pickle``), or a folder of ``.npy`` files. Arrays are recognised by name:
        ``logits``, ``probabilities`` (``probs``, ``probas``) and ``labels`` (``y``), with ``_val``/``_cal``
        and ``_test`` for the two parts; in tables a class is a column, ``logit_0``, ``logit_1``, ...
    values : str or sequence of str, optional
        Name of the array (or names of the columns, in the order of the classes) that holds the outputs.
    labels : str, optional
        Name of the labels, in ``labels_file`` when that is given and in ``path`` otherwise.
    labels_file : path, optional
        A second file that holds the labels.
    kind : {"logits", "probabilities"}, optional
        What the outputs are, when their name does not say it. Never guessed from the values.
    part : {"cal", "val", "test"}, optional
        Which part, when the file holds two; ``"val"`` is another word for ``"cal"``.
    group : str, optional
        Which set, when the file holds several (HDF5: ``"dataset/model"``).
    mmap : bool, default=False
        Leave an ``.npy`` array on disk and map it; for arrays larger than memory.
    need_labels : bool, default=False
        Fail when there are no labels.

    Returns
    -------
    LogitsSet

    Raises
    ------
    FileError
        The file cannot be read as asked; the message says what was expected, what came and what to do.
    """
    source = open_source(path, mmap=mmap)
    return _read(
        source,
        values=values,
        labels=labels,
        labels_file=labels_file,
        kind=kind,
        part=part,
        group=group,
        need_labels=need_labels,
    )


def _read(
    source: NamedArrays,
    *,
    values: str | Sequence[str] | None = None,
    labels: str | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    part: str | None = None,
    group: str | None = None,
    need_labels: bool = False,
) -> LogitsSet:
    stated_kind, stated_part = as_kind(kind), as_part(part)
    if values is not None and group is None and not source.table:
        names, group = source.names, ""  # a full name needs no group
    else:
        group, names = source.in_group(group)
    where = f"{source.path}" + (f", group {group!r}," if group else "")
    choice = choose(
        names,
        where=where,
        table=source.table,
        values=values,
        labels=None if labels_file else labels,
        kind=stated_kind,
        part=stated_part,
    )
    here = [] if labels_file is not None or choice.labels is None else [choice.labels]
    arrays: list[np.ndarray] = source.load([*choice.values, *here])  # together: a table is parsed once
    label_array, labels_where = None, ""
    if labels_file is not None:
        label_array, labels_where = _from_labels_file(labels_file, labels, choice.part)
    elif choice.labels is not None:
        label_array, labels_where = arrays.pop(), f"{choice.labels!r} in {source.path}"
    elif need_labels:
        raise FileError(
            f"{where} has no labels: it holds {listing(names)}; name them with {spoken('labels=')}, "
            f"or give {spoken('labels_file=')}."
        )
    return make_set(
        _joined(arrays, choice.values, source.path),
        label_array,
        kind=choice.kind,
        name=group or _stem(source.path),
        path=source.path,
        part=choice.part,
        notes=source.notes,
        where=f"{listing(choice.values, 3)} in {source.path}",
        labels_where=labels_where,
        class_names=class_names(choice.values),
    )


def _stem(path: Path) -> str:
    path = path.resolve()
    name = path.name if path.is_dir() else path.stem
    return os.fsencode(name).decode("utf-8", "backslashreplace")  # a name to show, on any system


def _joined(arrays: list[np.ndarray], names: Sequence[str], path: Path) -> np.ndarray:
    if len(arrays) == 1:
        return arrays[0]
    for name, array in zip(names, arrays, strict=True):
        if array.ndim != 1 or len(array) != len(arrays[0]):
            raise FileError(
                f"{path} has {name!r} of shape {array.shape} among the columns of classes: expected "
                f"one number per row, {len(arrays[0])} in all."
            )
    return np.column_stack(arrays)


def _from_labels_file(
    path: str | os.PathLike[str], name: str | None, part: Literal["cal", "test"] | None
) -> tuple[np.ndarray, str]:
    source = open_source(path)
    if name is None:
        # The labels by name; else the file's only array, whatever it is called.
        name = find_labels(source.names, part, str(source.path))
        if name is None and len(source.names) == 1:
            name = source.names[0]
    if name not in source.names:
        asked = f"{name!r}" if name else "array of labels"
        raise FileError(
            f"{source.path} has no {asked}: it holds {listing(source.names)}; say which with {spoken('labels=')}."
        )
    return source.load([name])[0], f"{name!r} in {source.path}"


def read_splits(
    path: str | os.PathLike[str],
    test: str | os.PathLike[str] | None = None,
    *,
    kind: Literal["logits", "probabilities"] | None = None,
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
    """
    source = open_source(path, mmap=mmap)
    other = source if test is None else open_source(test, mmap=mmap)
    parts = []
    for held_in, part in ((source, "cal"), (other, "test")):
        has_parts = any(meaning(name).part for name in held_in.names)
        if test is None and not has_parts:
            raise FileError(
                f"{held_in.path} holds no calibration and test parts (such as logits_val, y_val, "
                "logits_test, y_test): "
                f"it holds {listing(held_in.names)}; give the test set {spoken('as a second file')}."
            )
        part_or_all = part if has_parts else None
        parts.append(_read(held_in, kind=kind, part=part_or_all, group=group, need_labels=True))
    cal, held_out = parts
    if cal.n_classes != held_out.n_classes or cal.kind != held_out.kind:
        raise FileError(
            f"{source.path} has {cal.n_classes} classes as {cal.kind} to calibrate on and {other.path} has "
            f"{held_out.n_classes} classes as {held_out.kind} to test on: expected the same."
        )
    held_out = held_out.in_order_of(cal.class_names)
    name = cal.name
    if test is not None:
        name = split_part(name)[0] or source.path.resolve().parent.name
    return Splits(replace(cal, name=name, part="cal"), replace(held_out, name=name, part="test"), name)


@dataclass(frozen=True)
class Location:
    """Where a calibration set and its test set are; small, picklable, read when wanted."""

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

    Raises
    ------
    FileError
        There is no such folder, or no pair in it.
    """
    root = as_path(folder)
    if not root.exists():
        raise FileError(f"There is no folder {root}: check the name.")
    found: list[Location] = []
    halves: dict[tuple[Path, str], dict[str, Path]] = {}
    for path in _candidates(root):
        try:
            source = open_source(path)
        except (FileError, MissingExtraError) as error:
            _left_out(str(error))
            continue
        pairs = [
            Location(group or _stem(path), path, group or None)
            for group, names in source.groups().items()
            if {"cal", "test"} <= {m.part for m in map(meaning, names) if m.holds_values}
        ]
        found += pairs
        if not pairs:
            stem, part = split_part(path.stem)
            if part is None:
                _left_out(f"{path} holds no calibration and test parts, and its name ends in neither.")
            else:
                halves.setdefault((path.parent, stem), {})[part] = path
    for (parent, stem), half in halves.items():
        if len(half) == 2:
            found.append(Location(stem or parent.resolve().name, half["cal"], test=half["test"]))
        else:
            (only,) = half.values()
            _left_out(f"{only} is one part of a pair, and the other part is not beside it.")
    if not found:
        raise FileError(
            f"{root} holds no pair of calibration and test sets: expected files with logits_val, y_val, "
            f"logits_test, y_test (or pairs such as a_cal.npz and a_test.npz)."
        )
    return _with_unique_names(sorted(found, key=lambda place: (str(place.path), place.group or "")), root)


def _candidates(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = [
        p for p in root.rglob("*") if not any(part.startswith(".") for part in p.relative_to(root).parts)
    ]
    readable = [p for p in files if p.suffix.lower() in READABLE and p.is_file()]
    return sorted({*readable, *(p.parent for p in files if p.suffix == ".npy" and p.is_file())})


def _left_out(why: str) -> None:
    warn(f"Left out: {why}")


def _with_unique_names(places: list[Location], root: Path) -> list[Location]:
    count = Counter(place.name for place in places)
    base = root if root.is_dir() else root.parent

    def longer(place: Location) -> Location:
        relative = place.path.relative_to(base)
        name = "/".join(filter(None, (str(relative), place.group)))
        return replace(place, name=name)

    return [longer(place) if count[place.name] > 1 else place for place in places]
