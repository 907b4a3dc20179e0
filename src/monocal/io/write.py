"""Arrays in the format that a file's extension names, so that ``read`` gives them back; whole or not at all.

What ``read`` would refuse is not written: no nan, no +inf, and probabilities sum to 1. A file is written in a hidden folder next
to its place and renamed onto it. ``os.replace`` within one file system is atomic, so a reader sees the old file or the new one,
and a run that fails or is stopped midway leaves the old one (or nothing). Only the user can look into the hidden folder. A pipe
or a device is no file to replace: it gets the finished bytes.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import io
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from monocal.errors import FileError, InputError, MissingExtraError, require, wording
from monocal.io.assembly import check_values
from monocal.io.logits_set import LogitsSet, Splits
from monocal.io.named_arrays import as_path, extension
from monocal.stopping import undone_if_stopped

_DISK = tuple(map(os.strerror, (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)))


def write(
    path: str | os.PathLike[str], data: LogitsSet | Splits | Mapping[str, ArrayLike], *, force: bool = False
) -> Path:
    """Write arrays in the format that the extension names, so that `read` gives them back.

    Parameters
    ----------
    path : path
        ``.npz``, ``.npy`` (one array), ``.csv``, ``.tsv``, ``.csv.gz``, ``.tsv.gz``, ``.parquet``, ``.feather``,
        ``.xlsx`` (arrays of equal length, one column per class), ``.safetensors``, ``.h5`` or ``.hdf5``.
    data : LogitsSet, Splits, or mapping of names to arrays
    force : bool, default=False
        Replace an existing file instead of refusing.

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
    arrays = {name: data.values, labels: data.labels, f"weights{suffix}": data.weights}
    return {name: array for name, array in arrays.items() if array is not None}


def put_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    classes: Sequence[str] | None = None,
    along: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write arrays at a path of `atomic_path`, in the format of its extension; gives the names of what was written.

    ``classes`` name the columns of arrays (n, m): ``probabilities_cat`` in a table, an array ``classes`` in other formats.
    ``along`` are columns that go with the rows, as arrays or as Arrow has them; a format without words leaves those of words out.
    """
    ending, along = extension(path), dict(along or {})
    if ending in TABLES:
        held = along | _as_columns(arrays, classes)
    else:
        more = {name: _as_array(column) for name, column in along.items()}
        if classes is not None:
            more["classes"] = np.array(classes, dtype=str)
        kinds = "fiubU" if ending in (".npz", ".h5", ".hdf5") else "fiub"
        held = {**arrays, **{n: array for n, array in more.items() if array.dtype.kind in kinds}}
    try:
        _WRITERS[ending](path, held)
    except (InputError, MissingExtraError, MemoryError, OSError):
        raise
    except Exception as error:  # libraries in other languages report a full disk in many ways
        raise OSError(str(error) or type(error).__name__) from error
    return [*arrays, *(name for name in held if name not in arrays and name in along)]


def put_npy(path: Path, dtype: np.dtype, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
    """Write blocks of rows at a path of `atomic_path` as one ``.npy`` array; only a block needs to be in memory.

    Nothing is mapped: on a full disk a write fails, a store into a mapping ends the process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path, if `write` has a format for its extension.

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
    if extension(target) not in WRITABLE:
        listed = ", ".join(WRITABLE)
        raise FileError(f"{target} has an extension that monocal does not write: expected one of {listed}.")
    return target


# Formats


def _as_array(column: Any) -> np.ndarray:
    """A column as an array of numbers or words; of objects where it holds others, such as gaps."""
    array = column if isinstance(column, np.ndarray) else np.asarray(column.to_numpy())
    words = array.dtype == object and all(isinstance(word, str) for word in array)
    return array.astype(str) if words else array


def _as_columns(arrays: Mapping[str, np.ndarray], classes: Sequence[str] | None) -> dict[str, np.ndarray]:
    """A column for each class."""
    lengths = {len(array) if array.ndim in (1, 2) else None for array in arrays.values()}
    if len(lengths) != 1 or None in lengths:
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


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with open(path, "wb") as file:  # given a name, numpy adds .npz to .NPZ
        np.savez(file, allow_pickle=False, **arrays)


def _write_npy(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if len(arrays) != 1:
        raise InputError(f"An .npy file holds one array, got {len(arrays)}: write .npz instead.")
    (array,) = arrays.values()
    put_npy(path, array.dtype, array.shape, [array])


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(require("safetensors.numpy", "data").save(contiguous))


def _write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    h5py = require("h5py", "data")
    content = io.BytesIO()  # given a path, HDF5 ends the process where the disk is full
    with h5py.File(content, "w") as file:
        for name, array in arrays.items():
            words = {"data": array.tolist(), "dtype": h5py.string_dtype()}
            file.create_dataset(name, **(words if array.dtype.kind == "U" else {"data": array}))
    path.write_bytes(content.getbuffer())


def _write_table(path: Path, columns: Mapping[str, Any]) -> None:
    arrow, ending, content = require("pyarrow", "data"), extension(path), io.BytesIO()
    table = arrow.table(dict(columns))
    if ending == ".parquet":
        require("pyarrow.parquet", "data").write_table(table, content)
    elif ending == ".feather":
        require("pyarrow.feather", "data").write_feather(table, content)
    else:
        require("openpyxl", "data")
        table.to_pandas().to_excel(content, index=False)
    path.write_bytes(content.getbuffer())


def _write_csv(path: Path, columns: Mapping[str, Any]) -> None:
    arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
    # CSV has no half precision; float32 keeps every float16 value.
    half = {
        name: a.astype(np.float32) for name, a in columns.items() if getattr(a, "dtype", None) == np.float16
    }
    table, ending = arrow.table({**columns, **half}), extension(path)
    delimiter = "\t" if ending.startswith(".tsv") else ","
    opener: Callable[..., Any] = gzip.open if ending.endswith(".gz") else open
    header = io.StringIO()
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(columns)
    for quotes in ("none", "needed"):  # "needed" quotes all text
        options = arrow_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=quotes)
        with opener(path, "wb") as file:
            file.write(header.getvalue().encode())
            try:
                return arrow_csv.write_csv(table, file, options)
            except arrow.ArrowInvalid:
                if quotes == "needed":
                    raise


TABLES: dict[str, Callable[[Path, Mapping[str, Any]], None]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), _write_csv),
    **dict.fromkeys((".parquet", ".feather", ".xlsx"), _write_table),
}
_WRITERS: dict[str, Callable[[Path, Mapping[str, Any]], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    **TABLES,
    ".safetensors": _write_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), _write_hdf5),
}
WRITABLE = tuple(_WRITERS)


# Whole or not at all


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, which becomes ``path`` when the block ends without an error.

    The temporary path is on the same disk and has the same name.

    Parameters
    ----------
    path : path
        Its folder must exist. A pipe or a device is written to.
    force : bool, default=False
        Replace an existing file, keeping its permissions.

    Examples
    --------
    >>> from pathlib import Path
    >>> from monocal.io import atomic_path
    >>> with atomic_path("report.html") as temporary:
    ...     characters = temporary.write_text("<p>done</p>")
    >>> Path("report.html").read_text()
    '<p>done</p>'
    """
    target = as_path(path)
    try:
        stream = _check_target(target, force)
        target = target.resolve()
    except (
        OSError,
        RuntimeError,
    ) as error:  # links that lead to each other are a RuntimeError to Python 3.11
        raise _not_written(target, error) from error
    # A pipe may stand where no folder can be made, such as in /dev.
    folder = Path(tempfile.gettempdir()) if stream else target.parent
    hidden = folder / f".{target.stem[:40]}.{secrets.token_hex(6)}"
    temporary = hidden / target.name
    remove = partial(shutil.rmtree, hidden, ignore_errors=True)
    with undone_if_stopped(remove):
        try:
            hidden.mkdir(mode=0o700)
            yield temporary
            _put(temporary, target, force)
        except OSError as error:
            named = error.filename
            if named is not None and not str(os.fspath(named)).startswith((str(hidden), str(target))):
                raise  # of another file, such as one that is read
            raise _not_written(target, error, temporary) from error
        finally:
            remove()


def _check_target(target: Path, force: bool) -> bool:
    """Refuse what cannot be written; whether it is a pipe or a device."""
    if target.is_dir():
        raise FileError(f"{target} is a folder: give the name of a file to write.")
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: there is no folder {target.parent}; make it first.")
    if target.is_fifo() or target.is_char_device():
        return True
    if target.exists() and not target.is_file():
        raise FileError(f"{target} is neither a file nor a pipe: give the name of a file to write.")
    if target.exists() and not force:
        raise FileError(
            f"{target} exists already and was left as it is: choose another name or use {wording('force')}."
        )
    return False


def _put(temporary: Path, target: Path, force: bool) -> None:
    if not temporary.is_file():
        raise FileError(f"{target} was not written: nothing was put at the temporary path.")
    if _check_target(target, force):  # again: the file may have been made meanwhile
        with open(temporary, "rb") as source, open(target, "wb") as stream:
            shutil.copyfileobj(source, stream)
        return
    with contextlib.suppress(FileNotFoundError):
        old = target.stat()
        with contextlib.suppress(PermissionError, AttributeError):  # not every system has owners
            os.chown(temporary, old.st_uid, old.st_gid)
        os.chmod(temporary, stat.S_IMODE(old.st_mode))
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())  # a rename must not reach the disk before the content
    if not force:
        # A link fails where the file has been made meanwhile; not every file system has links.
        try:
            return os.link(temporary, target)
        except FileExistsError:
            _check_target(target, force)
            raise
        except OSError:
            pass
    os.replace(temporary, target)


def _not_written(target: Path, error: OSError | RuntimeError, temporary: Path | None = None) -> FileError:
    """One sentence about a file that could not be written; it names the file asked for, not the temporary one."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # What libraries wrap into long texts of their own.
    reason = next((text for text in _DISK if text in reason), reason)
    if temporary is not None:
        reason = reason.replace(str(temporary), target.name)
    reason = " ".join(reason.split())[:200]
    return FileError(f"{target} could not be written: {reason}; choose another place or free it.")
