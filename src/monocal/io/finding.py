"""Pairs of a calibration set and a test set in a folder, found by names alone: within one file, or in two files called alike."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from monocal.errors import FileError, MissingExtraError, warn
from monocal.io.naming import meaning, split_part
from monocal.io.reading import read_splits
from monocal.io.sets import Splits
from monocal.io.sources import READABLE, as_path, extension, open_source, stem


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
    >>> from monocal.io import Splits, find, synthetic, write
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
    >>> from monocal.io import Splits, find, synthetic, write
    >>> _ = write("both.npz", Splits(synthetic(300, 4), synthetic(200, 4, seed=1), "both"))
    >>> [place.name for place in find(".")]
    ['both']
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
            Location(group or stem(path), path, group or None)
            for group, names in source.groups().items()
            if {"cal", "test"} <= {m.part for m in map(meaning, names) if m.holds_values}
        ]
        found += pairs
        if not pairs:
            shared, part = split_part(stem(path))
            if part is None:
                _left_out(f"{path} holds no calibration and test parts, and its name ends in neither.")
            else:
                halves.setdefault((path.parent, shared), {})[part] = path
    for (parent, shared), half in halves.items():
        if len(half) == 2:
            found.append(Location(shared or parent.resolve().name, half["cal"], test=half["test"]))
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
    readable = [p for p in files if extension(p) in READABLE and p.is_file()]
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
