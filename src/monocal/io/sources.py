"""A file of logits as named arrays:  path -> {name: array},  whatever the format.

Every format opens to the same ``NamedArrays``: the names are known at once, an array is loaded when asked
for. Nothing a file contains is ever executed, and every failure becomes one ``FileError`` that says what to
do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, spoken
from monocal.inputs.names import listing
from monocal.io.naming import meaning

# First bytes of the formats, to tell a person that a file has the wrong extension.
_MAGIC = {
    b"PK\x03\x04": ".npz",
    b"\x93NUMPY": ".npy",
    b"\x89HDF\r\n\x1a\n": ".h5",
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"\x1f\x8b": "gzip",
    b"\x80": ".pkl",
}


@dataclass(frozen=True)
class NamedArrays:
    """The arrays of one file: ``load(names)`` reads some of them.

    ``table`` marks a file whose arrays are columns of equal length, of which those in ``text`` hold words, and ``headless``
    one whose columns have no names but places; ``notes`` says in words what was done to read it. A frame in memory has no
    path, and is called by its ``title``. ``whole`` reads columns of a table as they stand, to be written again,
    and ``with_gaps`` as arrays in which values may be missing; None where ``load`` admits that itself. Rows of a ``ragged``
    source may lack classes at the end, and another file of its kind may have more of them or fewer.
    """

    path: Path | None
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], list[np.ndarray]]
    table: bool = False
    notes: tuple[str, ...] = ()
    text: frozenset[str] = frozenset()
    headless: bool = False
    title: str = ""
    whole: Callable[[Sequence[str]], list[Any]] | None = None
    with_gaps: Callable[[Sequence[str]], list[np.ndarray]] | None = None
    ragged: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or str(self.path))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names by the folder they are in: ``dataset/model/labels_cal`` is in group ``dataset/model``."""
        if self.table:
            return {"": self.names}
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(name.rpartition("/")[0], []).append(name)
        return {group: tuple(names) for group, names in found.items()}

    def in_group(self, group: str | None) -> tuple[str, tuple[str, ...]]:
        """The asked group, or the only one that holds values: ``(group, names)``."""
        groups = self.groups()
        if not groups:
            raise FileError(f"{self.title} holds no arrays: write logits and labels into it.")
        if group is not None:
            if group.strip("/") not in groups:
                raise FileError(f"{self.title} has no group {group!r}: it holds {listing(groups)}.")
            return group.strip("/"), groups[group.strip("/")]
        usable = {
            g: names for g, names in groups.items() if any(meaning(n).holds_values for n in names)
        } or groups
        if "" in usable or len(usable) == 1:
            chosen = "" if "" in usable else next(iter(usable))
            return chosen, usable[chosen]
        raise FileError(
            f"{self.title} holds {len(usable)} sets, {listing(usable)}: say which with {spoken('group=')}."
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    """A caller's path as a ``Path``."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise InputError(f"path must be a file name, got {type(path).__name__}.") from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"path must be a file name, got {text!r}.")
    return Path(text).expanduser()


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Turn whatever a parser raises on a bad file into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except FileNotFoundError as error:
        raise FileError(f"There is no file {path}: check the name and the folder.") from error
    except PermissionError as error:
        raise FileError(f"{path} may not be read by this user: change its permissions or copy it.") from error
    except MemoryError as error:
        raise FileError(
            f"{path} asks for more memory than there is: it is damaged, or too large for this machine "
            f"(.npy files can be read with mmap=True)."
        ) from error
    except Exception as error:  # a parser fed hostile bytes may raise anything
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise FileError(
                f"{path} holds Python objects instead of numbers, and these are never loaded because they "
                f"can run code: save plain numeric arrays."
            ) from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileError(
            f"{path} cannot be read as {what}: it is damaged, cut short or of another kind ({reason}); "
            f"write it again or copy it anew."
        ) from error


def check_magic(path: Path, what: str, *starts: bytes) -> None:
    """Refuse an empty file, and one that does not begin as its extension promises."""
    with reading(path, what):
        with open(path, "rb") as file:
            head = file.read(16)
        if not head:
            raise FileError(f"{path} is empty: expected {what}; write it again or copy it anew.")
        if starts and not head.startswith(starts):
            looks = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
            seems = f"; it looks like {looks}, so rename or unpack it" if looks else ": check the extension"
            raise FileError(f"{path} is not {what}, though its name ends in {path.suffix}{seems}.")


def extension(path: Path) -> str:
    """How a name ends, in small letters: ``.npz``, or ``.csv.gz`` where it is packed."""
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    return "".join(endings) if endings[-1:] == [".gz"] else "".join(endings[-1:])


def stem(path: Path) -> str:
    """The name of a file without its ending, or of a folder, in letters that can be shown on any system."""
    path = path.resolve()
    name = path.name if path.is_dir() else path.name.removesuffix(path.suffix)
    if extension(path).endswith(".gz"):
        name = Path(name).stem
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_source(given: Any, *, mmap: bool = False) -> NamedArrays:
    """Open a file by its extension, a folder of ``.npy`` files, or a frame in memory; what is open already stays as it is."""
    from monocal.io import archives, pickles, samples, tables, tensors, texts

    if isinstance(given, NamedArrays):
        return given
    if tables.is_frame(given):
        return tables.open_frame(given)
    path = as_path(given)
    openers: dict[str, Callable[[Path], NamedArrays]] = {
        ".npz": archives.open_npz,
        ".safetensors": archives.open_safetensors,
        ".h5": archives.open_hdf5,
        ".hdf5": archives.open_hdf5,
        ".csv": tables.open_csv,
        ".tsv": tables.open_csv,
        ".csv.gz": tables.open_csv,
        ".tsv.gz": tables.open_csv,
        ".parquet": tables.open_parquet,
        ".feather": tables.open_feather,
        ".p": pickles.open_pickle,
        ".pkl": pickles.open_pickle,
        ".pickle": pickles.open_pickle,
        ".pt": tensors.open_tensors,
        ".pth": tensors.open_tensors,
        ".txt": texts.open_text,
        ".jsonl": samples.open_records,
        ".jsonl.gz": samples.open_records,
        ".ndjson": samples.open_records,
    }
    with reading(path, "a file of logits"):
        path.stat()
        if path.is_dir():
            return archives.open_folder(path, mmap=mmap)
        if not path.is_file():
            raise FileError(f"{path} is neither a file nor a folder: give a file of logits.")
    ending = extension(path)
    if ending == ".npy":
        return archives.open_npy(path, mmap=mmap)
    if ending not in openers:
        known = ", ".join([".npy", *openers])
        raise FileError(f"{path} has an extension that monocal does not read: expected one of {known}.")
    if mmap:
        raise InputError(f"mmap=True works for .npy files only, got {path}: save the array with numpy.save.")
    return openers[ending](path)


# What is looked for in folders. Files .txt and .pt are read only by their name: in folders they are mostly something else.
READABLE = (
    *(".npz", ".safetensors", ".h5", ".hdf5", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather"),
    *(".p", ".pkl", ".pickle"),
)
