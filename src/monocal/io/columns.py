"""Further columns of a file:  name -> (n,) or (n, k) array, numbers or text, one row per sample.

A subject, a hospital, a camera, an embedding: what a file knows of a sample beside outputs and label. ``context`` means
``context_test`` in the test part, as ``logits`` means ``logits_test``. Gaps stay gaps: NaN among numbers, None among text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from monocal.errors import FileError, spoken
from monocal.inputs.names import Part, listing
from monocal.io.choosing import Names, find_names
from monocal.io.naming import as_part, meaning, without_part
from monocal.io.sources import NamedArrays, open_source


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
    >>> from monocal.io import read_columns
    >>> read_columns(pd.DataFrame({"site": ["a", "b"], "age": [40, 50]}), ["age"])
    {'age': array([40, 50])}
    """
    source, stated = open_source(path), as_part(part)
    here = source.names if group is None else source.in_group(group)[1]
    if names is None:
        silent = [name for name in here if meaning(name).role in (None, "aside")]
        wanted = {
            base: name
            for name in silent
            for base, said in [without_part(_tail(name))]
            if stated is None or said in (stated, None)
        }
    else:
        asked = (names,) if isinstance(names, str) else tuple(names)
        wanted = {}
        for name in asked:
            own = _of_part(here, name, stated, source)
            found = find_names(source, here, name, "columns", source.title) if own is None else (own,)
            wanted |= {name: found[0]} if own else {one: one for one in found}
    arrays = (source.with_gaps or source.load)(list(wanted.values()))
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
    >>> from monocal.io import find_columns
    >>> np.savez("logits.npz", logits=np.zeros((2, 3)), labels=[0, 1], site=["north", "south"])
    >>> find_columns("site", "logits.npz")
    {'site': array(['north', 'south'], dtype=object)}
    """
    source = open_source(beside)
    known = {word for name in source.names for word in (name, _tail(name), without_part(_tail(name))[0])}
    asked = [name.strip() for name in wanted.split(",")]
    if set(asked) <= known:
        return read_columns(beside, asked, part=part, group=group)
    file, colon, names = wanted.rpartition(":")
    if Path(wanted).expanduser().exists():
        found = read_columns(wanted, part=_part_in(wanted, part))
        if not found:
            raise FileError(
                f"{wanted} holds {listing(open_source(wanted).names)} and no further column: say {wanted}:NAME."
            )
        return found
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
    said = {without_part(_tail(name))[1] for name in open_source(path).names}
    return part if as_part(part) in said else None


def _of_part(names: Sequence[str], name: str, part: Part | None, source: NamedArrays) -> str | None:
    """The array that ``name`` means in this part; None where it is no name without its part."""
    if name in names:
        return None
    said = {full: without_part(_tail(full)) for full in names}
    found = [
        full for full, (base, of) in said.items() if base == name and of is not None and part in (None, of)
    ]
    if len(found) > 1:
        raise FileError(
            f"{source.title} has {name!r} for several parts, {listing(found)}: say which with {spoken('part=')}."
        )
    return found[0] if found else None


def _checked(array: np.ndarray, what: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise FileError(f"{what} of shape {array.shape}: expected one value (or one row of them) per sample.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    return array.astype(object) if array.dtype.kind in "UT" else array
