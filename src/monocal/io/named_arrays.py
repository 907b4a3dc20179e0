"""Any file or frame as named arrays:  path -> {name: array}.

pyarrow, pandas, h5py, safetensors and torch do the reading. Names are known at once, arrays are
loaded when asked for. Nothing that a file contains is executed, and whatever a parser raises becomes
one ``FileError``.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, require
from monocal.inputs.formats import library_of
from monocal.inputs.names import listing

_HEAD = 100  # lines, to tell columns of words from columns of numbers
_BLANK = {"", " ", "NaN", "na", "NA", "N/A", "n/a", "nan", "null", "NULL", "None", "none"}
_OLDEST_TORCH = (2, 6)  # in older versions a file could get around weights_only


@dataclass(frozen=True)
class NamedArrays:
    """The arrays of one file, or the columns of a table.

    ``load`` gives some of the arrays; in columns NaN or None stands for a missing value. ``columns``
    gives columns as an Arrow table, those of a text file as text if asked for; it is None for a file
    that is no table. ``text`` are columns of words, ``title`` is what messages call the file. Where
    ``ragged``, rows may lack classes at the end.
    """

    path: Path | None
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], list[np.ndarray]]
    columns: Callable[[Sequence[str], bool], Any] | None = None
    text: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    ragged: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or str(self.path))

    @property
    def table(self) -> bool:
        return self.columns is not None

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names by the folder they are in: ``data/model/labels_cal`` is in group ``data/model``."""
        groups: dict[str, list[str]] = {}
        for name in self.names:
            groups.setdefault("" if self.table else name.rpartition("/")[0], []).append(name)
        return {group: tuple(names) for group, names in groups.items()}


# Paths


def as_path(path: Any) -> Path:
    """A caller's path as a ``Path``."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"path must be a file name, got {text!r}, a {type(path).__name__}.")
    return Path(text).expanduser()


def extension(path: Path) -> str:
    """How a name ends, in small letters: ``.npz``, or ``.csv.gz`` where it is packed."""
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    return "".join(endings) if endings[-1:] == [".gz"] else "".join(endings[-1:])


def stem(path: Path) -> str:
    """The name of a file without its ending, or of a folder, in letters that any system can show."""
    path = path.resolve()
    name = path.name if path.is_dir() else path.name[: len(path.name) - len(extension(path))]
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@contextmanager
def reading(title: Path | str) -> Iterator[None]:
    """Turn whatever a parser raises on a bad file into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except FileNotFoundError as error:
        raise FileError(f"There is no file {title}: check the name and the folder.") from error
    except PermissionError as error:
        raise FileError(f"{title} may not be read by this user: copy it.") from error
    except Exception as error:  # a parser fed hostile bytes may raise anything
        reason = " ".join(str(error).split()).partition(". ")[0][:200] or type(error).__name__
        raise FileError(
            f"{title} cannot be read: it is empty, damaged or not what its name says ({reason})."
        ) from error


def open_arrays(
    origin: Any, *, mmap: bool = False, separator: str | None = None, decimal: str | None = None
) -> NamedArrays:
    """Open a file by its extension, a folder of ``.npy`` files, or a frame in memory."""
    if isinstance(origin, NamedArrays):
        return origin
    if library_of(origin) == "datasets" and hasattr(origin, "with_format"):
        origin = origin.with_format("arrow")[:]
    if hasattr(origin, "__arrow_c_stream__") and (hasattr(origin, "columns") or hasattr(origin, "schema")):
        title = f"the {library_of(origin)} frame"
        with reading(title):
            return _of_table(None, require("pyarrow", "data").table(origin), title=title)
    path = as_path(origin)
    ending = extension(path)
    with reading(path):
        path.stat()
        if path.is_dir() or ending == ".npy":
            return _open_npy(path, mmap)
        if mmap:
            raise InputError(f"mmap=True works for .npy files only, got {path}: use numpy.save.")
        if not path.is_file() or ending not in _OPENERS:
            raise FileError(
                f"{path} is no file that monocal reads: expected one of .npy, {', '.join(_OPENERS)}."
            )
        if _OPENERS[ending] is _open_text:
            return _open_text(path, separator, decimal)
        return _OPENERS[ending](path)


def is_number(cell: object) -> bool:
    """Whether a text is a number."""
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


# Files of arrays


def _in_memory(path: Path, arrays: dict[str, np.ndarray], **more: Any) -> NamedArrays:
    return NamedArrays(path, tuple(arrays), lambda names: [arrays[name] for name in names], **more)


def _open_npy(path: Path, mmap: bool) -> NamedArrays:
    """An array named by its file, or the arrays of a folder."""
    files = {file.stem: file for file in sorted(path.glob("*.npy"))} if path.is_dir() else {path.stem: path}
    if not files:
        raise FileError(f"{path} is a folder without .npy files: name a file in it.")

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path):
            how: dict[str, Any] = {"mmap_mode": "r" if mmap else None, "allow_pickle": False}
            return [np.load(files[name], **how)[...] for name in names]

    return NamedArrays(path, tuple(files), load)


def _open_npz(path: Path) -> NamedArrays:
    """A zip archive of ``.npy`` members, never unpickled."""

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return [np.asarray(archive[name]) for name in names]

    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return NamedArrays(path, tuple(archive.files), load)


def _open_safetensors(path: Path) -> NamedArrays:
    """Tensors under names; bfloat16, which NumPy lacks, is widened to float32 without loss."""
    library = require("safetensors", "data")

    def one(file: Any, name: str) -> np.ndarray:
        if file.get_slice(name).get_dtype() != "BF16":
            return np.asarray(file.get_tensor(name))
        tensor = dict(library.deserialize(path.read_bytes()))[name]
        bits = np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor["shape"])

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path), library.safe_open(path, framework="numpy") as file:
            return [one(file, name) for name in names]

    with library.safe_open(path, framework="numpy") as file:
        return NamedArrays(path, tuple(file.keys()), load)


def _open_hdf5(path: Path) -> NamedArrays:
    """Datasets under their full path, ``data/model/probas_cal``; other files are not followed to."""
    h5py = require("h5py", "data")
    found: list[str] = []

    def one(name: str, dataset: Any) -> np.ndarray:
        if dataset.external or dataset.is_virtual:
            raise FileError(f"{path} keeps {name!r} in another file: copy the values into this one.")
        words = h5py.check_string_dtype(dataset.dtype) is not None
        return np.array(dataset.asstr()[()], dtype=str) if words else np.asarray(dataset[()])

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path), h5py.File(path, "r") as file:
            return [one(name, file[name]) for name in names]

    def visit(name: Any, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and isinstance(name, str):  # others are bytes
            found.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return NamedArrays(path, tuple(found), load)


def _open_tensors(path: Path) -> NamedArrays:
    """What ``torch.save`` wrote: a tensor, a dict of tensors, or a pair (logits, labels)."""
    torch = require("torch", "torch")
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _OLDEST_TORCH:
        raise FileError(
            f"{path} is opened with torch 2.6 or later only, and this is {torch.__version__}, in which "
            "a file could run code: upgrade torch, or save the arrays with numpy.savez."
        )
    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = by_name(content, lambda one: isinstance(one, torch.Tensor), path.stem)
    if not tensors:
        raise FileError(f"{path} holds no tensors by name: save {{'logits': ..., 'labels': ...}}.")
    for name, one in tensors.items():
        coarse = one.is_floating_point() and one.dtype not in (torch.float16, torch.float64)
        tensors[name] = (one.float() if coarse else one).detach().numpy()  # NumPy has no bfloat16
    return _in_memory(path, tensors)


def _open_pickle(path: Path) -> NamedArrays:
    from monocal.io.unpickler import read_arrays

    return _in_memory(path, read_arrays(path))


def by_name(content: Any, usable: Callable[[Any], bool], name: str) -> dict[str, Any]:
    """Usable members of one object: an array, a pair, two pairs, or a dict; else none.

    Two pairs are the parts of a set, as markus93/NN_calibration pickles them.
    """
    if isinstance(content, dict):
        return {key: one for key, one in content.items() if isinstance(key, str) and usable(one)}
    names: tuple[str, ...] = ("values", "labels")
    if isinstance(content, tuple | list) and all(isinstance(one, tuple | list) for one in content):
        names = ("values_val", "y_val", "values_test", "y_test")
        content = [one for pair in content for one in pair]
    if not isinstance(content, tuple | list):
        names, content = (name,), [content]
    return dict(zip(names, content, strict=True)) if all(map(usable, content)) else {}


# Tables of text


def _open_text(path: Path, separator: str | None, decimal: str | None) -> NamedArrays:
    """Cells below a line of names, with commas, semicolons, tabs or bars between.

    A comma is a decimal point where cells are separated otherwise and the first lines have such
    numbers. Numbers are parsed as numbers, and all cells once more as text where they are written
    again, so that they stay as they were.
    """
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        numbered = ((i, line) for i, line in enumerate(lines) if not line.startswith("#"))
        n_skipped, first = next(numbered, (0, ""))
        head = [first, *islice(lines, _HEAD)]
    if separator is None:
        separator = "\t" if extension(path).startswith(".tsv") else max(",\t;|", key=first.count)
    separator = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "space": " "}.get(
        separator, separator
    )
    if len(separator) != 1:
        raise InputError(f"separator must be one character, or 'tab', got {separator!r}.")
    rows = list(csv.reader(head, delimiter=separator, strict=True))  # strict: a quote must end
    if not rows or not rows[0]:
        raise FileError(f"{path} begins with an empty line: expected the names of the columns.")
    names = [name.strip() for name in rows[0]]
    if len(names) == 1 and (is_number(names[0]) or rows[0] in rows[1:]):
        names = [path.stem]  # labels alone
    else:
        rows, n_skipped = rows[1:], n_skipped + 1
    _check_names(path, names)
    cells = {name: [row[j].strip() for row in rows if j < len(row)] for j, name in enumerate(names)}
    comma = decimal == "," or (decimal is None and separator != "," and _has_commas(cells.values()))
    text = frozenset(n for n, column in cells.items() if column and _is_text(column, comma))
    # Numbers with decimal commas are written with points, as the new columns are.
    as_they_were = [n for n in names if n in text or not comma or not any("," in c for c in cells[n])]

    @functools.cache
    def parsed(as_text: bool) -> Any:
        arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
        with reading(path), opener(path, "rb") as file:  # pyarrow takes no name that is not UTF-8
            return arrow_csv.read_csv(
                file,
                arrow_csv.ReadOptions(column_names=names, skip_rows=n_skipped, block_size=1 << 22),
                arrow_csv.ParseOptions(delimiter=separator, ignore_empty_lines=len(names) > 1),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(as_they_were if as_text else text, arrow.string()),
                    null_values=list(_BLANK),
                    decimal_point="," if comma else ".",
                ),
            )

    def load(names: Sequence[str]) -> list[np.ndarray]:
        return [_without_blanks(column.to_numpy()) for column in parsed(False).select(list(names)).columns]

    notes = ["commas in numbers were read as decimal points"] * comma
    if _without_index(names) != tuple(names):
        notes.append("the first column has no name and was left out as a row index")
    return NamedArrays(
        path,
        _without_index(names),
        load,
        lambda names, as_text: parsed(as_text).select(list(names)),
        text,
        tuple(notes),
    )


def _has_commas(columns: Iterable[Sequence[str]]) -> bool:
    cells = [cell for column in columns for cell in column]
    commas = any(re.fullmatch(r"-?\d+,\d+([eE]-?\d+)?", cell) for cell in cells)
    return commas and not any(re.fullmatch(r"-?\d*\.\d+", cell) for cell in cells)


def _is_text(cells: Sequence[str], comma: bool) -> bool:
    """Whether none of the cells is a number, or one is an identifier such as 0001."""
    cells = [cell.replace(",", ".") for cell in cells] if comma else cells
    return not any(map(is_number, cells)) or any(re.match(r"-?0\d", cell) for cell in cells)


def _without_blanks(column: np.ndarray) -> np.ndarray:
    """A column; among words, blank ones are None."""
    if column.dtype != object:
        return np.asarray(column)
    words = [None if word is None else word.strip() or None for word in column]
    return np.array(words, dtype=object)


def _check_names(path: Path, names: Iterable[str]) -> None:
    name, count = next(iter(Counter(names).most_common(1)), ("", 1))
    if count > 1:
        raise FileError(f"{path} has two columns called {name!r}: give each its own name.")
    numbers = [name for name in names if is_number(name) and not re.fullmatch(r"-?\d+", name)]
    if numbers:
        raise FileError(
            f"{path} has no line of names: it begins with {numbers[0]}. Write the names of the columns "
            "above it, such as cat,dog,label, or save the array with numpy.save."
        )


def _without_index(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns without the row index that pandas writes."""
    return tuple(names[bool(re.fullmatch(r"(Unnamed: \d+)?", names[0])) :]) if names else ()


def _open_lines(path: Path) -> NamedArrays:
    """A label in each line."""
    cells = np.char.strip(path.read_text("utf-8-sig").rstrip().split("\n"))
    numbers = all(map(is_number, cells))
    return _in_memory(path, {path.stem: cells.astype(float) if numbers else cells})


# Tables of typed columns


def _open_arrow(path: Path) -> NamedArrays:
    """Parquet and Feather, of which only the columns that are asked for are read."""
    parquet, feather = require("pyarrow.parquet", "data"), require("pyarrow.feather", "data")
    is_parquet = extension(path) == ".parquet"
    with open(path, "rb") as file:
        open_file = require("pyarrow.ipc", "data").open_file
        schema = parquet.read_schema(file) if is_parquet else open_file(file).schema

    def columns(names: Sequence[str], as_text: bool) -> Any:
        with reading(path), open(path, "rb") as file:
            read = (
                parquet.ParquetFile(file).read if is_parquet else functools.partial(feather.read_table, file)
            )
            return read(columns=list(names), use_threads=False).select(list(names))

    return _of_columns(path, schema, columns)


def _open_excel(path: Path) -> NamedArrays:
    """The first sheet with numbers; the first row that is full but for its first cell holds names."""
    require("openpyxl", "data")
    pandas, arrow = require("pandas", "data"), require("pyarrow", "data")

    def table(cells: Any) -> Any:
        cells = cells.dropna(how="all").dropna(how="all", axis=1)
        full = cells.iloc[:, 1:].notna().all(axis=1).to_numpy()
        if not full.any():
            return pandas.DataFrame()
        top = int(full.argmax())
        frame = cells.iloc[top + 1 :].infer_objects().reset_index(drop=True)
        frame.columns = ["" if name != name else str(name) for name in cells.iloc[top]]
        return frame

    sheets = pandas.read_excel(path, sheet_name=None, header=None)
    tables = {name: table(cells) for name, cells in sheets.items()}
    with_numbers = (
        name
        for name, frame in tables.items()
        if frame.drop(columns="", errors="ignore").select_dtypes("number").size
    )
    chosen = next(with_numbers, next(iter(tables)))
    frame = tables[chosen]
    _check_names(path, frame.columns)
    for name in [name for name in frame if frame[name].dtype.kind == "O"]:  # Arrow has one type
        frame[name] = frame[name].map(lambda cell: cell if cell is None or cell != cell else str(cell))
    notes = (f"of the sheets {listing(tables)}, {chosen!r} was read",) if len(tables) > 1 else ()
    return _of_table(path, arrow.Table.from_pandas(frame), notes)


def _open_records(path: Path) -> NamedArrays:
    """Rows as JSON objects, or samples of lm-evaluation-harness."""
    records = read_json(path)
    stray = next((i for i, one in enumerate(records) if not isinstance(one, dict)), None)
    if not records or stray is not None or (len(records) == 1 and extension(path) == ".json"):
        raise FileError(
            f"{path}, record {stray or 0}, is no row: expected an object for each row, such as "
            '[{"logits": [0.3, 2.1], "label": 1}, ...]; '
            "write it with DataFrame.to_json(orient='records')."
        )
    if not {"filtered_resps", "resps"}.isdisjoint(records[0]):
        from monocal.io.harness_samples import arrays_of

        arrays, notes = arrays_of(path, records)
        return _in_memory(path, arrays, notes=notes, ragged=True)
    table = require("pyarrow", "data").Table.from_pylist(records)
    return _of_table(path, table.flatten())  # {"probs": {"cat": ...}} -> probs.cat


def read_json(path: Any) -> list[Any]:
    """The values of a JSON file: members of a list in ``.json``, a value in each line in ``.jsonl``."""
    path = as_path(path)
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with reading(path), opener(path, "rt", encoding="utf-8-sig") as file:
        text = file.read()
        if extension(path).startswith((".jsonl", ".ndjson")):
            values = []
            for i, line in enumerate(text.split("\n"), 1):
                with reading(f"{path}, line {i},"):
                    values += [json.loads(line)] if line.strip() else []
            return values
        value = json.loads(text)
        return value if isinstance(value, list) else [value]


def _of_table(path: Path | None, table: Any, notes: tuple[str, ...] = (), title: str = "") -> NamedArrays:
    return _of_columns(path, table.schema, lambda names, _: table.select(list(names)), notes, title)


def _of_columns(
    path: Path | None,
    schema: Any,
    columns: Callable[[Sequence[str], bool], Any],
    notes: tuple[str, ...] = (),
    title: str = "",
) -> NamedArrays:
    types = require("pyarrow", "data").types

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(title or str(path)):
            pairs = zip(names, columns(names, False).columns, strict=True)
            return [_array(column, f"{title or path}, column {name!r}") for name, column in pairs]

    kinds = {one.name: one.type for one in schema if not one.name.startswith("__index_level_")}
    numeric = (types.is_floating, types.is_integer, types.is_decimal, _is_list)
    text = frozenset(name for name, kind in kinds.items() if not any(is_kind(kind) for is_kind in numeric))
    return NamedArrays(path, _without_index(list(kinds)), load, columns, text, notes, title=title)


def _is_list(kind: Any) -> bool:
    types = require("pyarrow", "data").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _array(column: Any, where: str) -> np.ndarray:
    """One column: (n,) of numbers or words, or (n, m) from lists of one length."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")
    if arrow.types.is_dictionary(column.type):  # pyarrow cannot decode categories of polars
        parts = [
            np.append(part.dictionary.to_numpy(False).astype(object), [None])[
                part.indices.fill_null(len(part.dictionary)).to_numpy()
            ]
            for part in column.chunks
        ]
        return np.concatenate(parts) if parts else np.empty(0, object)
    if _is_list(column.type):
        lengths = compute.list_value_length(column).fill_null(0).to_numpy()
        uneven = np.flatnonzero(lengths != lengths[:1])
        if uneven.size:
            raise FileError(
                f"{where} has lists of different lengths: {lengths[0]} in row 0 and "
                f"{lengths[uneven[0]]} in row {uneven[0]}; expected one number per class."
            )
        flat = _array(compute.list_flatten(column), where)
        return flat.reshape(len(column), int(lengths[0]) if len(lengths) else 0)
    if arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    return np.asarray(column.to_numpy())


_OPENERS: dict[str, Callable[..., NamedArrays]] = {
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), _open_hdf5),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), _open_text),
    **dict.fromkeys((".parquet", ".feather"), _open_arrow),
    **dict.fromkeys((".p", ".pkl", ".pickle"), _open_pickle),
}
FOUND_IN_FOLDERS = tuple(_OPENERS)  # others are mostly something else in a folder
_OPENERS |= {
    ".xlsx": _open_excel,
    ".txt": _open_lines,
    **dict.fromkeys((".pt", ".pth"), _open_tensors),
    **dict.fromkeys((".json", ".jsonl", ".jsonl.gz", ".ndjson"), _open_records),
}
