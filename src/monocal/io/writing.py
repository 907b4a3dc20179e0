"""Arrays in the format that a file's extension names, so that ``read`` gives them back.

What ``read`` would refuse is not written: no nan, no +inf, and probabilities sum to 1.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from monocal.errors import FileError, InputError, require
from monocal.io.atomic import allocate, atomic_path, library_writes
from monocal.io.sets import LogitsSet, Splits, check_values
from monocal.io.sources import as_path, extension


def write(
    path: str | os.PathLike[str], data: LogitsSet | Splits | Mapping[str, ArrayLike], *, force: bool = False
) -> Path:
    """Write arrays in the format that the extension names, so that `read` gives them back.

    Parameters
    ----------
    path : path
        ``.npz``, ``.npy`` (one array), ``.csv``, ``.tsv``, ``.csv.gz``, ``.tsv.gz``, ``.parquet``, ``.feather`` (arrays of equal
        length, one column per class), ``.safetensors``, ``.h5`` or ``.hdf5``.
    data : LogitsSet, Splits, or mapping of names to arrays
        What to write.
    force : bool, default=False
        Replace an existing file instead of refusing.

    Returns
    -------
    Path
        The path written.

    Examples
    --------
    >>> import monocal as mc
    >>> path = mc.data.write("logits.npz", mc.data.synthetic(100, 4))
    >>> mc.read(path).n_samples
    100
    """
    target = check_writable(path)
    arrays = _plain_arrays(data)
    named = data.cal if isinstance(data, Splits) else data
    classes = named.class_names if isinstance(named, LogitsSet) else None
    with atomic_path(target, force=force) as temporary:
        put_arrays(temporary, arrays, classes=classes)
    return target


def put_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    classes: Sequence[str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write arrays at a path of `atomic_path`, in the format of its extension; gives the names of what was written.

    ``classes`` name the columns of arrays (n, m): ``probabilities_cat`` in a table, an array ``classes`` elsewhere. ``beside``
    are columns that go with the rows, as arrays or as Arrow has them; a format without words leaves those of words out.
    """
    ending = extension(path)
    if ending in _TABLES:
        held = {**(beside or {}), **_as_columns(arrays, classes)}
    else:
        more = {name: _as_array(column) for name, column in (beside or {}).items()}
        if classes is not None:
            more["classes"] = np.array(classes, dtype=str)
        words = ending in (".npz", ".h5", ".hdf5")
        held = {
            **arrays,
            **{n: a for n, a in more.items() if a is not None and (words or a.dtype.kind in "fiub")},
        }
    with library_writes():
        _WRITERS[ending](path, held)
    return [*arrays, *(name for name in held if name not in arrays and name in (beside or {}))]


def _as_array(column: Any) -> np.ndarray | None:
    """A column as an array of numbers or words; None for what an array cannot hold, such as a gap."""
    array = column if isinstance(column, np.ndarray) else column.to_numpy()
    if array.dtype == object:
        return array.astype(str) if all(isinstance(word, str) for word in array) else None
    return array if array.dtype.kind in "fiubU" else None


def put_npy(path: Path, dtype: np.dtype, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
    """Write blocks of rows at a path of `atomic_path` as one ``.npy`` array; only a block needs to be in memory.

    The space is taken before the first block is made. Nothing is mapped: on a full disk a write fails, a store into a mapping
    ends the process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        allocate(file.fileno(), file.tell() + dtype.itemsize * int(np.prod(shape)))
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path, if its extension is one that `write` knows.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> from monocal.io import check_writable
    >>> check_writable("logits.npz").name
    'logits.npz'
    >>> check_writable("logits.doc")
    Traceback (most recent call last):
        ...
    monocal.errors.FileError: logits.doc has an extension that monocal does not write: expected one of ...
    """
    target = as_path(path)
    if extension(target) not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise FileError(f"{target} has an extension that monocal does not write: expected one of {known}.")
    return target


def _plain_arrays(data: LogitsSet | Splits | Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    if isinstance(data, Splits):
        return {**_of_set(data.cal, "_val", "y_val"), **_of_set(data.test, "_test", "y_test")}
    if isinstance(data, LogitsSet):
        return _of_set(data, "", "labels")
    arrays = {str(name): np.asarray(array) for name, array in data.items()}
    if not arrays:
        raise InputError("data must hold at least one array to write, got none.")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise InputError(f"data[{name!r}] must hold numbers, got dtype {array.dtype}.")
    return arrays


def _of_set(data: LogitsSet, suffix: str, labels: str) -> dict[str, np.ndarray]:
    name = f"{data.kind}{suffix}"
    check_values(np.asarray(data.values), data.kind, name)  # all rows, also of a mapped array
    arrays = {name: data.values}
    if data.labels is not None:
        arrays[labels] = data.labels
    if data.weights is not None:
        arrays[f"weights{suffix}"] = data.weights
    return arrays


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with open(path, "wb") as file:  # given a name, numpy adds .npz to .NPZ
        np.savez(file, allow_pickle=False, **arrays)


def _write_npy(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if len(arrays) != 1:
        raise InputError(f"An .npy file holds one array, got {len(arrays)}: write .npz instead.")
    (array,) = arrays.values()
    put_npy(path, array.dtype, array.shape, [array])


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    library = require("safetensors.numpy", "data")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(library.save(contiguous))


def _write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    h5py = require("h5py", "data")
    content = io.BytesIO()  # given a path, HDF5 ends the process where the disk is full
    with h5py.File(content, "w") as file:
        for name, array in arrays.items():
            words = array.dtype.kind == "U"
            file.create_dataset(
                name, data=array.tolist() if words else array, dtype=h5py.string_dtype() if words else None
            )
    path.write_bytes(content.getbuffer())


def _as_columns(arrays: Mapping[str, np.ndarray], classes: Sequence[str] | None) -> dict[str, np.ndarray]:
    """A column for each class."""
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1 or any(array.ndim not in (1, 2) for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(
            f"A table needs arrays with the same number of rows, got {shapes}: write .npz instead."
        )
    columns = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = array
        else:
            endings = classes or range(array.shape[1])
            columns |= {f"{name}_{end}": np.ascontiguousarray(array[:, j]) for j, end in enumerate(endings)}
    return columns


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    parquet = require("pyarrow.parquet", "data")
    with open(path, "wb") as file:  # pyarrow takes no name that is not UTF-8
        parquet.write_table(require("pyarrow", "data").table(dict(columns)), file)


def _write_feather(path: Path, columns: Mapping[str, Any]) -> None:
    feather = require("pyarrow.feather", "data")
    content = io.BytesIO()
    feather.write_feather(require("pyarrow", "data").table(dict(columns)), content)
    path.write_bytes(content.getbuffer())


def _write_csv(path: Path, columns: Mapping[str, Any]) -> None:
    arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
    # CSV has no half precision; float32 keeps every float16 value.
    wide = {
        n: a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == np.float16 else a
        for n, a in columns.items()
    }
    ending = extension(path)
    delimiter = "\t" if ending.startswith(".tsv") else ","
    opener: Callable[..., Any] = gzip.open if ending.endswith(".gz") else open
    with opener(path, "wb") as file:
        arrow_csv.write_csv(arrow.table(wide), file, arrow_csv.WriteOptions(delimiter=delimiter))


_TABLES: dict[str, Callable[[Path, Mapping[str, Any]], None]] = {
    ".csv": _write_csv,
    ".tsv": _write_csv,
    ".csv.gz": _write_csv,
    ".tsv.gz": _write_csv,
    ".parquet": _write_parquet,
    ".feather": _write_feather,
}
_WRITERS: dict[str, Callable[[Path, Mapping[str, Any]], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    **_TABLES,
    ".safetensors": _write_safetensors,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
}
WRITABLE = tuple(_WRITERS)
