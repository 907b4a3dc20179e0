"""A file of arrays as named arrays:  path -> {name: array}.

numpy, h5py, safetensors and torch do the reading; tables and the choice by extension are in `monocal.io.opening`. Names are known
at once, arrays are loaded when asked for. Nothing that a file contains is executed, and whatever a parser raises becomes one
``FileError`` that says what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, require

# First bytes of the formats: a file that begins otherwise is refused.
MAGIC = {
    ".npz": b"PK",
    ".xlsx": b"PK",
    ".npy": b"\x93NUMPY",
    ".h5": b"\x89HDF\r\n\x1a\n",
    ".hdf5": b"\x89HDF\r\n\x1a\n",
    ".parquet": b"PAR1",
    ".feather": b"ARROW1",
    ".gz": b"\x1f\x8b",
    ".pkl": b"\x80",
}
_OLDEST_TORCH = (2, 6)  # in older versions a file could get around weights_only
# Names of arrays without names: a pair, and a pair for each of two parts (as markus93/NN_calibration pickles them).
_PAIR = ("values", "labels")
_TWO_PAIRS = ("values_val", "y_val", "values_test", "y_test")


@dataclass(frozen=True)
class NamedArrays:
    """The arrays of one file.

    Attributes
    ----------
    path : Path or None
        None for a frame in memory.
    names : tuple of str
    load : callable
        Some of the arrays by their names. In columns of a table NaN or None stands for a missing value.
    columns : callable or None
        Columns of a table as an Arrow table, those of a text file as text; None for a file of arrays.
    text : frozenset of str
        Columns of words.
    notes : tuple of str
        What was done to read it.
    ragged : bool
        Rows may lack classes at the end, and another file of its kind may have more of them or fewer.
    title : str
        What messages call it.
    """

    path: Path | None
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], list[np.ndarray]]
    columns: Callable[[Sequence[str]], Any] | None = None
    text: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    ragged: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or str(self.path))

    @property
    def table(self) -> bool:
        """Whether the arrays are columns of equal length."""
        return self.columns is not None

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names by the folder they are in: ``dataset/model/labels_cal`` is in group ``dataset/model``."""
        if self.table:
            return {"": self.names}
        groups: dict[str, list[str]] = {}
        for name in self.names:
            groups.setdefault(name.rpartition("/")[0], []).append(name)
        return {group: tuple(names) for group, names in groups.items()}


def is_number(cell: object) -> bool:
    """Whether a text is a number."""
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


# Paths


def as_path(path: Any) -> Path:
    """A caller's path as a ``Path``."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"path must be a file name, got {path if text else type(path).__name__!r}.")
    return Path(text).expanduser()


def extension(path: Path) -> str:
    """How a name ends, in small letters: ``.npz``, or ``.csv.gz`` where it is packed."""
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    return "".join(endings) if endings[-1:] == [".gz"] else "".join(endings[-1:])


def stem(path: Path) -> str:
    """The name of a file without its ending, or of a folder, in letters that can be shown on any system."""
    path = path.resolve()
    name = path.name if path.is_dir() else path.name[: len(path.name) - len(extension(path))]
    return os.fsencode(name).decode("utf-8", "backslashreplace")


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
            "(.npy files can be read with mmap=True)."
        ) from error
    except Exception as error:  # a parser fed hostile bytes may raise anything
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise FileError(
                f"{path} holds Python objects, which are never loaded because they can run code: save plain numeric arrays."
            ) from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileError(
            f"{path} cannot be read as {what}: it is damaged, cut short or of another kind ({reason}); write it again or copy it "
            "once more, a text as UTF-8."
        ) from error


def check_magic(path: Path, what: str) -> None:
    """Refuse an empty file, and one that does not begin as its extension promises."""
    ending = ".gz" if extension(path).endswith(".gz") else extension(path)
    with reading(path, what):
        with open(path, "rb") as file:
            head = file.read(16)
        if not head:
            raise FileError(f"{path} is empty: expected {what}; write it again or copy it once more.")
        if not head.startswith(MAGIC.get(ending, b"")):
            looks = next((ending for ending, magic in MAGIC.items() if head.startswith(magic)), None)
            seems = f"; it looks like {looks}, so rename or unpack it" if looks else ": check the extension"
            raise FileError(f"{path} is not {what}, though its name ends in {path.suffix}{seems}.")


# Arrays


def in_memory(path: Path, arrays: dict[str, np.ndarray], **more: Any) -> NamedArrays:
    """Arrays that have been loaded."""
    return NamedArrays(path, tuple(arrays), lambda names: [arrays[name] for name in names], **more)


def open_npz(path: Path, what: str) -> NamedArrays:
    """A zip archive of ``.npy`` members, never unpickled."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        members = tuple(archive.files)

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = [archive[name] for name in names]
        for name, array in zip(names, arrays, strict=True):
            if not isinstance(array, np.ndarray):  # a member that is no .npy file comes back as bytes
                raise FileError(f"{path} holds {name!r}, which is not an array: write it with numpy.savez.")
        return arrays

    return NamedArrays(path, members, load)


def open_npy(path: Path, mmap: bool) -> NamedArrays:
    """One array, named by its file."""
    return NamedArrays(path, (path.stem,), lambda names: [_load_npy(path, mmap) for _ in names])


def open_folder(path: Path, mmap: bool) -> NamedArrays:
    """The ``.npy`` files of a folder; ``resnet_logits_val.npy`` is ``logits_val`` of the set ``resnet``."""
    from monocal.io.columns import split_group

    with reading(path, "a folder"):
        files = {split_group(file.stem): file for file in sorted(path.glob("*.npy"))}
    if not files:
        raise FileError(f"{path} is a folder without .npy files: name a file in it.")
    return NamedArrays(path, tuple(files), lambda names: [_load_npy(files[name], mmap) for name in names])


def _load_npy(path: Path, mmap: bool) -> np.ndarray:
    check_magic(path, "an .npy array")
    with reading(path, "an .npy array"):
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)


def open_safetensors(path: Path, what: str) -> NamedArrays:
    """Tensors under names; bfloat16, which NumPy lacks, is widened to float32 without loss."""
    library = require("safetensors", "data")
    with library.safe_open(path, framework="numpy") as file:
        members = tuple(file.keys())

    def one(file: Any, name: str) -> np.ndarray:
        kind = file.get_slice(name).get_dtype()
        if kind == "BF16":
            tensor = dict(library.deserialize(path.read_bytes()))[name]
            bits = np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(tensor["shape"])
        if not re.fullmatch(r"F(16|32|64)|BOOL|[IU]\d+", kind):
            raise FileError(f"{path} holds {name!r} as {kind}: save it as float32, float16 or bfloat16.")
        return np.asarray(file.get_tensor(name))

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), library.safe_open(path, framework="numpy") as file:
            return [one(file, name) for name in names]

    return NamedArrays(path, members, load)


def open_hdf5(path: Path, what: str) -> NamedArrays:
    """Datasets under their full path, ``dataset/model/probas_cal``; links to other files are not followed."""
    h5py = require("h5py", "data")
    found: list[Any] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)

    def one(name: str, dataset: Any) -> np.ndarray:
        if dataset.external or dataset.is_virtual:
            raise FileError(f"{path} keeps {name!r} in another file: copy the values into this one.")
        if h5py.check_string_dtype(dataset.dtype) is not None:
            return np.array(dataset.asstr()[()], dtype=str)
        if dataset.dtype.kind not in "fiub":
            raise FileError(f"{path} holds {name!r} as {dataset.dtype}: expected numbers.")
        return np.asarray(dataset[()])

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), h5py.File(path, "r") as file:
            return [one(name, file[name]) for name in names]

    return NamedArrays(path, tuple(name for name in found if isinstance(name, str)), load)  # others are bytes


def open_tensors(path: Path, what: str) -> NamedArrays:
    """What ``torch.save`` wrote: a tensor, a dict of tensors, or a pair (logits, labels); nothing else is loaded."""
    torch = require("torch", "torch")
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _OLDEST_TORCH:
        raise FileError(
            f"{path} is opened with torch 2.6 or later only, and this is {torch.__version__}, in which a file could run code: "
            "upgrade torch, or save the arrays with numpy.savez."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as refusal:
        if type(refusal).__name__ != "UnpicklingError":
            raise
        raise FileError(
            f"{path} was refused and nothing in it was run: it is damaged, or holds more than tensors in a dict, a tuple or a "
            "list; save these with torch.save."
        ) from refusal

    def usable(one: Any) -> bool:
        words = isinstance(one, list | tuple) and bool(one) and all(isinstance(word, str) for word in one)
        return words or (isinstance(one, torch.Tensor) and one.layout is torch.strided)

    def array(one: Any) -> np.ndarray:
        if isinstance(one, list | tuple):
            return np.array(one, dtype=str)
        if one.is_floating_point() and one.dtype not in (torch.float16, torch.float32, torch.float64):
            one = one.float()  # of types that NumPy lacks, without loss
        return np.asarray(one.detach().resolve_conj().resolve_neg().numpy())

    tensors = by_name(content, usable, path.stem)
    if not tensors:
        kind = type(content).__name__
        raise FileError(
            f"{path} holds a {kind} without tensors by name: save {{'logits': ..., 'labels': ...}} with torch.save."
        )
    return in_memory(path, {name: array(one) for name, one in tensors.items()})


def open_pickle(path: Path, what: str) -> NamedArrays:
    """A pickle of arrays, read without running it."""
    from monocal.io.unpickler import read_arrays

    return in_memory(path, read_arrays(path))


def by_name(content: Any, usable: Callable[[Any], bool], name: str) -> dict[str, Any]:
    """The usable members of what was saved as one object: an array, a pair, two pairs, or a dict; empty for anything else."""

    def is_pair(item: Any) -> bool:
        return isinstance(item, tuple | list) and len(item) == 2 and all(map(usable, item))

    if isinstance(content, dict):
        return {key: one for key, one in content.items() if isinstance(key, str) and usable(one)}
    if is_pair(content):
        return dict(zip(_PAIR, content, strict=True))
    if isinstance(content, tuple | list) and len(content) == 2 and all(map(is_pair, content)):
        return dict(zip(_TWO_PAIRS, [*content[0], *content[1]], strict=True))
    return {name: content} if usable(content) else {}
