"""Further columns of a file:  name -> (n,) or (n, k) array, numbers or text, one row per sample.

A subject, a hospital, a camera, an embedding: what a file knows of a sample beside outputs and label. ``context`` means
``context_test`` in the test part, as ``logits`` means ``logits_test``. Gaps stay gaps: NaN among numbers, None among text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from monocal.data.naming import Part, as_part, listing, meaning, without_part
from monocal.data.sources import NamedArrays, open_source
from monocal.errors import FileError, spoken


def read_columns(
    path: str | os.PathLike[str],
    names: str | Sequence[str] | None = None,
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
) -> dict[str, np.ndarray]:
    """Read columns that are neither outputs nor labels.

    Parameters
    ----------
    path : path
        Any file that `read` takes.
    names : str or sequence of str, optional
        Which ones. By default all whose names do not say that they are outputs or labels; in a table whose classes are columns
        with names of their own, these are among them.
    part : {"cal", "val", "test"}, optional
        Which part of a file that holds two: ``context`` is then ``context_test`` or ``test_context``.
    group : str, optional
        Which set of a file that holds several.

    Returns
    -------
    dict of str to ndarray
        By name, without the part. Text comes as an array of str objects.

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.data import read_columns
    >>> np.savez("a.npz", logits_test=np.zeros((3, 2)), y_test=[0, 1, 1], subject_test=["law", "law", "art"])
    >>> read_columns("a.npz")
    {'subject': array(['law', 'law', 'art'], dtype=object)}
    """
    source, stated = open_source(path), as_part(part)
    here = source.names if group is None else source.in_group(group)[1]
    if names is None:
        wanted = {
            base: name
            for name in here
            if meaning(name).role is None
            for base, said in [without_part(name.rpartition("/")[2])]
            if stated is None or said in (stated, None)
        }
    else:
        asked = (names,) if isinstance(names, str) else tuple(names)
        wanted = {name: _find(here, name, stated, source) for name in asked}
    arrays = (source.load_any or source.load)(list(wanted.values()))
    return {
        base: _checked(array, name, source.path)
        for (base, name), array in zip(wanted.items(), arrays, strict=True)
    }


def find_columns(
    wanted: str,
    beside: str | os.PathLike[str],
    *,
    part: Literal["cal", "val", "test"] | None = None,
    group: str | None = None,
    argument: str = "names=",
) -> dict[str, np.ndarray]:
    """Columns by what a person writes: names in the file ``beside`` (commas between), or a file, or ``FILE:NAME,NAME``.

    A name in the file goes first. ``argument`` is what messages call it.
    """
    source = open_source(beside)
    bases = {without_part(name)[0] for name in source.names} | set(source.names)
    asked = [name.strip() for name in wanted.split(",")]
    if set(asked) <= bases | {name.rpartition("/")[2] for name in bases}:
        return read_columns(beside, asked, part=part, group=group)
    file, colon, names = wanted.rpartition(":")
    if Path(wanted).expanduser().exists():
        found = read_columns(wanted, part=_part_in(wanted, part))
        if found:
            return found
        file, names = wanted, ""
    if colon and Path(file).expanduser().exists():
        return read_columns(file, [name.strip() for name in names.split(",")], part=_part_in(file, part))
    others = [name for name in source.names if meaning(name).role is None]
    raise FileError(
        f"{spoken(argument)} {wanted!r} is neither a file nor a column of {source.path}, which has "
        f"{listing(others)} beside outputs and labels."
    )


def _part_in(path: str, part: Literal["cal", "val", "test"] | None) -> Literal["cal", "val", "test"] | None:
    """The part to ask a second file for: none where its names speak of no part."""
    said = {without_part(name)[1] for name in open_source(path).names}
    return part if as_part(part) in said else None


def _find(names: Sequence[str], name: str, part: Part | None, source: NamedArrays) -> str:
    """The array that ``name`` means: itself, or its part."""
    tails = {full.rpartition("/")[2]: full for full in names}
    if name in names or name in tails:
        return name if name in names else tails[name]
    found = [full for tail, full in tails.items() if without_part(tail)[0] == name]
    if part is not None:
        found = [full for full in found if without_part(full.rpartition("/")[2])[1] == part]
    if len(found) == 1:
        return found[0]
    if found:
        raise FileError(
            f"{source.path} has {name!r} for several parts, {listing(found)}: say which with {spoken('part=')}."
        )
    raise FileError(
        f"{source.path} has no column {name!r}{f' of the {part} part' if part else ''}: it holds {listing(names)}."
    )


def _checked(array: np.ndarray, name: str, path: Path) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise FileError(
            f"{path} has {name!r} of shape {array.shape}: expected one value (or one row of them) per sample."
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return array.astype(object) if array.dtype.kind in "UT" else array
