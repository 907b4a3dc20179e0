"""From a path to a set:  open the file, choose arrays by name, check them.

Logits or probabilities: ``kind`` decides; else the name of the array (``logits``, ``probs``, ...); else the
values are taken as logits, the library's one convention. The numbers themselves are never asked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, InputError, spoken
from monocal.inputs.names import Part, listing
from monocal.io.choosing import Choice, Names, choose, find_labels, find_names
from monocal.io.naming import as_kind, as_part, meaning, split_part
from monocal.io.sets import LogitsSet, Splits, make_set, refuse_words
from monocal.io.sources import NamedArrays, open_source, stem


def read(
    path: str | os.PathLike[str] | Any,
    *,
    values: Names | None = None,
    labels: Names | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    first_label: int | None = None,
    classes: Sequence[str] | None = None,
    weights: str | None = None,
    kind: Literal["logits", "probabilities"] | None = None,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    mmap: bool = False,
    need_labels: bool = False,
    with_labels: bool = True,
    class_axis: int | None = None,
    ignore_index: int | None = None,
    unknown: Sequence[int] = (),
) -> LogitsSet:
    """Read classifier outputs, and labels where there are any.

    Parameters
    ----------
    path : path or frame
        ``.npz``, ``.npy``, ``.csv``, ``.tsv`` (also ``.csv.gz``, ``.tsv.gz``), ``.parquet``, ``.feather``, ``.safetensors``,
        ``.h5``/``.hdf5``, ``.pt``/``.pth`` of torch, ``.jsonl`` (samples of lm-evaluation-harness, or a row in each line),
        ``.txt``, a pickle of arrays (``.p``, ``.pkl``, ``.pickle``), or a folder of
        ``.npy`` files; or a pandas or polars frame in memory. Arrays are recognised by name: ``logits``, ``probabilities``
        (``probs``, ``y_pred_proba``) and ``labels`` (``y``, ``target``, ``class``), with ``_val``/``_cal`` and ``_test`` for the
        two parts; in tables a class is a column: ``logit_0``, ``prob_cat`` or just ``cat``.
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
    with_labels : bool, default=True
        Read the labels; without them it does not matter what they hold.
    class_axis : int, optional
        The axis of the classes of an array of more than two: 1 for images (n, m, h, w). A row is then a pixel or a token. It need
        not be said of sequences (n, t, m) with labels (n, t).
    ignore_index : int, optional
        Rows with this label are left out.
    unknown : sequence of int, optional
        Rows with such a label stay, with the label -1: it is not known.

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
    source = open_source(path, mmap=mmap)
    stated_kind, stated_part = as_kind(kind), as_part(part)
    if first_label not in (None, 0, 1):
        raise InputError(f"{spoken('first_label=')} must be 0 or 1, got {first_label!r}.")
    if values is not None and group is None and not source.table:
        names, group = source.names, ""  # a full name needs no group
    else:
        group, names = source.in_group(group)
    where = source.title + (f", group {group!r}," if group else "")
    choice = choose(
        source,
        names,
        where=where,
        values=values,
        labels=None if labels_file else labels,
        weights=weights,
        kind=stated_kind,
        part=stated_part,
    )
    here = () if labels_file is not None or not with_labels else choice.labels
    more = [name for name in (choice.weights, None if classes else choice.classes_array) if name]
    arrays = source.load([*choice.values, *here, *more])  # together: a table is parsed once
    found = dict(zip((*choice.values, *here, *more), arrays, strict=True))
    label_array, labels_where = None, ""
    if labels_file is not None and with_labels:
        label_array, labels_where = _from_labels_file(labels_file, labels, choice.part)
    elif here:
        label_array = _joined([found[name] for name in here], here, source.title, "labels")
        labels_where = f"{listing(here, 3)} in {source.title}"
    elif need_labels:
        raise FileError(_no_labels(source, where, names))
    told = tuple(classes) if classes else choice.classes
    if choice.classes_array is not None and told is None:
        told = _as_names(found[choice.classes_array], f"{choice.classes_array!r} in {source.title}")
    made = make_set(
        _joined([found[name] for name in choice.values], choice.values, source.title, "classes"),
        label_array,
        kind=choice.kind,
        name=group or (source.title if source.path is None else stem(source.path)),
        path=source.path,
        part=choice.part,
        notes=source.notes,
        where=f"{listing(choice.values, 3)} in {source.title}",
        labels_where=labels_where,
        class_names=told,
        first_column=choice.first,
        first_label=first_label,
        weights=None if choice.weights is None else found[choice.weights],
        weights_where=f"{choice.weights!r} in {source.title}",
        class_axis=class_axis,
        ignore_index=ignore_index,
        unknown=unknown,
    )
    kept = {*choice.aside, *(() if with_labels or labels_file is not None else choice.labels)}
    return replace(
        made,
        aside=tuple(name for name in names if name in kept),
        taken=_taken(source, choice, made, labels_where),
        ragged=source.ragged,
    )


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
    said = [f"{made.kind} of {made.n_classes:,} classes in the {many} {listing(choice.values, 3)}"]
    if made.labels is not None:
        said.append(f"labels in {labels_where.removesuffix(inside)}")
    if choice.weights is not None:
        said.append(f"weights in {choice.weights!r}")
    left = f"; left aside: {listing(choice.aside, 3)}" if choice.aside else ""
    return f"{source.title}: {made.n_samples:,} rows, {', '.join(said)}{left}."


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
    path: str | os.PathLike[str], wanted: Names | None, part: Literal["cal", "test"] | None
) -> tuple[np.ndarray, str]:
    source = open_source(path)
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


def to_carry(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Any]:
    """Columns or arrays as they stand, to be written beside other values of the same rows; labels of an archive as ``labels``."""
    source = open_source(path)
    if source.whole is not None:
        return dict(zip(names, source.whole(names), strict=True))
    called = ["labels" if meaning(name).role == "labels" else name.rpartition("/")[2] for name in names]
    return dict(zip(called, map(np.atleast_1d, source.load(names)), strict=True))


def read_splits(
    path: str | os.PathLike[str] | Any,
    test: str | os.PathLike[str] | Any | None = None,
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

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.io import Splits, synthetic, write
    >>> path = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> splits = mc.read_splits(path)
    >>> splits.cal.n_samples, splits.test.n_samples
    (300, 200)
    """
    source = open_source(path, mmap=mmap)
    other = source if test is None else open_source(test, mmap=mmap)
    parts = []
    where: list[tuple[NamedArrays, Part]] = [(source, "cal"), (other, "test")]
    for held_in, part in where:
        has_parts = any(meaning(name).part for name in held_in.names)
        if test is None and not has_parts:
            raise FileError(
                f"{held_in.title} holds no calibration and test parts (such as logits_val, y_val, "
                "logits_test, y_test): "
                f"it holds {listing(held_in.names)}; give the test set {spoken('as a second file')}."
            )
        part_or_all = part if has_parts else None
        parts.append(read(held_in, kind=kind, part=part_or_all, group=group, need_labels=True))
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
