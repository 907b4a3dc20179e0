"""Files appear whole or not at all:  write beside the target, then rename onto it.

``os.replace`` within one folder is atomic, so a reader sees the old file or the new one, and a run that fails
midway leaves the old one (or nothing) behind.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from monocal.data.sets import LogitsSet, Splits
from monocal.data.sources import as_path
from monocal.errors import FileError, InputError, require


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, which becomes ``path`` when the block ends without an error.

    Parameters
    ----------
    path : path
        The file to make. Its folder must exist.
    force : bool, default=False
        Replace an existing file instead of refusing.

    Yields
    ------
    Path
        A path in the same folder with the same extension; nothing is there yet.

    Examples
    --------
    >>> with atomic_path("report.html") as temporary:  # doctest: +SKIP
    ...     temporary.write_text("<p>done</p>")
    """
    target = as_path(path)
    try:
        target = target.resolve()
        _check_target(target, force)
    except OSError as error:
        raise _not_written(target, error) from error
    temporary = target.with_name(f".{target.stem[:40]}.{secrets.token_hex(6)}{target.suffix}")
    try:
        yield temporary
        if not temporary.is_file():
            raise FileError(f"{target} was not written: nothing was put at the temporary path.")
        _check_target(target, force)  # somebody may have made it meanwhile
        os.replace(temporary, target)
    except OSError as error:
        raise _not_written(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_target(target: Path, force: bool) -> None:
    if target.is_dir():
        raise FileError(f"{target} is a folder: give the name of a file to write.")
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: there is no folder {target.parent}; make it first.")
    if target.exists() and not force:
        raise FileError(f"{target} exists already and was left as it is: choose another name or use force.")


def _not_written(target: Path, error: OSError) -> FileError:
    reason = error.strerror or str(error) or type(error).__name__
    return FileError(f"{target} could not be written: {reason}; choose another place or free it.")


def write(
    path: str | os.PathLike[str], data: LogitsSet | Splits | Mapping[str, ArrayLike], *, force: bool = False
) -> Path:
    """Write arrays in the format that the extension names, so that `read` gives them back.

    Parameters
    ----------
    path : path
        ``.npz``, ``.npy`` (one array), ``.csv``, ``.tsv``, ``.parquet`` (arrays of equal length, one column
        per class), ``.safetensors``, ``.h5`` or ``.hdf5``.
    data : LogitsSet, Splits, or mapping of names to arrays
        What to write.
    force : bool, default=False
        Replace an existing file instead of refusing.

    Returns
    -------
    Path
        The path written.
    """
    target = check_writable(path)
    writer = _WRITERS[target.suffix.lower()]
    arrays = _plain_arrays(data)
    with atomic_path(target, force=force) as temporary:
        writer(temporary, arrays)
    return target


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path, if its extension is one that `write` knows."""
    target = as_path(path)
    if target.suffix.lower() not in _WRITERS:
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
    arrays = {f"{data.kind}{suffix}": data.values}
    return arrays if data.labels is None else {**arrays, labels: data.labels}


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    np.savez(path, allow_pickle=False, **arrays)


def _write_npy(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if len(arrays) != 1:
        raise InputError(f"An .npy file holds one array, got {len(arrays)}: write .npz instead.")
    np.save(path, next(iter(arrays.values())), allow_pickle=False)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    library = require("safetensors.numpy", "data")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(library.save(contiguous))


def _write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    h5py = require("h5py", "data")
    with h5py.File(path, "x") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def _as_table(arrays: Mapping[str, np.ndarray]) -> Any:
    arrow = require("pyarrow", "data")
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
            columns |= {f"{name}_{j}": np.ascontiguousarray(array[:, j]) for j in range(array.shape[1])}
    return arrow.table(columns)


def _write_parquet(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    require("pyarrow.parquet", "data").write_table(_as_table(arrays), path)


def _write_csv(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    arrow_csv = require("pyarrow.csv", "data")
    # CSV has no half precision; float32 keeps every float16 value.
    wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in arrays.items()}
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    arrow_csv.write_csv(_as_table(wide), path, arrow_csv.WriteOptions(delimiter=delimiter))


_WRITERS: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    ".csv": _write_csv,
    ".tsv": _write_csv,
    ".parquet": _write_parquet,
    ".safetensors": _write_safetensors,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
}
