"""Files that hold arrays under names: ``.npz``, ``.npy`` and folders of them, safetensors, HDF5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from monocal.errors import FileError, require
from monocal.io.naming import split_group
from monocal.io.sources import NamedArrays, check_magic, reading


def open_npz(path: Path) -> NamedArrays:
    """A zip archive of ``.npy`` members, never unpickled."""
    what = "an .npz archive"
    check_magic(path, what, b"PK")
    with reading(path, what), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        names = tuple(archive.files)

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = [archive[name] for name in wanted]
            # A member that is no .npy file comes back as bytes.
            stray = [n for n, array in zip(wanted, arrays, strict=True) if not isinstance(array, np.ndarray)]
            if stray:
                raise FileError(
                    f"{path} holds {stray[0]!r}, which is not an array: write it with numpy.savez."
                )
            return arrays

    return NamedArrays(path, names, load)


def _load_npy(path: Path, mmap: bool) -> np.ndarray:
    check_magic(path, "an .npy array", b"\x93NUMPY")
    with reading(path, "an .npy array"):
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)


def open_npy(path: Path, *, mmap: bool = False) -> NamedArrays:
    """One array, named by its file."""
    check_magic(path, "an .npy array", b"\x93NUMPY")
    return NamedArrays(path, (path.stem,), lambda wanted: [_load_npy(path, mmap) for _ in wanted])


def open_folder(path: Path, *, mmap: bool = False) -> NamedArrays:
    """The ``.npy`` files of a folder; ``resnet_logits_val.npy`` is ``logits_val`` of the set ``resnet``."""
    with reading(path, "a folder"):
        files = {split_group(file.stem): file for file in sorted(path.glob("*.npy"))}
    if not files:
        raise FileError(
            f"{path} is a folder without .npy files: name a file in it (or use monocal.data.find on the "
            "folder)."
        )
    return NamedArrays(path, tuple(files), lambda wanted: [_load_npy(files[name], mmap) for name in wanted])


def open_safetensors(path: Path) -> NamedArrays:
    """Tensors under names; bfloat16, which NumPy lacks, is widened to float32 without loss."""
    what = "a safetensors file"
    library = require("safetensors", "data")
    check_magic(path, what)
    with reading(path, what), library.safe_open(path, framework="numpy") as file:
        names = tuple(file.keys())

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), library.safe_open(path, framework="numpy") as file:
            dtypes = {name: file.get_slice(name).get_dtype() for name in wanted}
            odd = {n: d for n, d in dtypes.items() if d not in _SAFETENSORS}
            if odd:
                name, dtype = next(iter(odd.items()))
                raise FileError(f"{path} holds {name!r} as {dtype}: save it as float32, float16 or bfloat16.")
            arrays = {name: file.get_tensor(name) for name, dtype in dtypes.items() if dtype != "BF16"}
        if len(arrays) < len(dtypes):
            with reading(path, what):
                tensors = dict(library.deserialize(path.read_bytes()))
            for name in dtypes.keys() - arrays.keys():
                bits = np.frombuffer(tensors[name]["data"], "<u2").astype(np.uint32) << 16
                arrays[name] = bits.view(np.float32).reshape(tensors[name]["shape"])
        return [arrays[name] for name in wanted]

    return NamedArrays(path, names, load)


_SAFETENSORS = {"BF16", "F16", "F32", "F64", "BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}


def open_hdf5(path: Path) -> NamedArrays:
    """Datasets under their full path, ``dataset/model/probas_cal``; links to other files are not followed."""
    what = "an HDF5 file"
    h5py = require("h5py", "data")
    check_magic(path, what, b"\x89HDF\r\n\x1a\n")
    names: list[str] = []
    with reading(path, what), h5py.File(path, "r") as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        names = [name for name in names if isinstance(name, str)]  # bytes where a name is not text

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        arrays = []
        with reading(path, what), h5py.File(path, "r") as file:
            for name in wanted:
                dataset = file[name]
                if dataset.external or dataset.is_virtual:
                    raise FileError(f"{path} keeps {name!r} in another file: copy the values into this one.")
                if h5py.check_string_dtype(dataset.dtype) is not None:  # names
                    arrays.append(np.array(dataset.asstr()[()], dtype=str))
                    continue
                if dataset.dtype.kind not in "fiub":
                    raise FileError(f"{path} holds {name!r} as {dataset.dtype}: expected numbers.")
                arrays.append(np.asarray(dataset[()]))
        return arrays

    return NamedArrays(path, tuple(names), load)
