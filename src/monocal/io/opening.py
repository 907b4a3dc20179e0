"""Open any file or frame as named arrays; tables by pyarrow and pandas.

A text table is parsed twice where it is written again: as numbers where a column holds some, and as text, so that what is carried
along stays as it was. A comma is a decimal point where columns are separated otherwise and the first lines have such numbers.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, require, wording
from monocal.inputs.formats import library_of
from monocal.inputs.names import listing
from monocal.io.named_arrays import (
    NamedArrays,
    as_path,
    check_magic,
    extension,
    in_memory,
    is_number,
    open_folder,
    open_hdf5,
    open_npy,
    open_npz,
    open_pickle,
    open_safetensors,
    open_tensors,
    reading,
)

_HEAD = 100  # lines, to tell columns of words from columns of numbers
_SEPARATORS = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "space": " "}
_BLANK = [
    "",
    " ",
    "NaN",
    *(form(w) for w in ("na", "nan", "null", "n/a", "none") for form in (str, str.upper, str.title)),
]


def open_arrays(
    origin: Any, *, mmap: bool = False, separator: str | None = None, decimal: str | None = None
) -> NamedArrays:
    """Open a file by its extension, a folder of ``.npy`` files, or a frame in memory; open arrays stay as they are."""
    if isinstance(origin, NamedArrays):
        return origin
    if library_of(origin) == "datasets" and hasattr(origin, "with_format"):
        origin = origin.with_format("arrow")[:]
    if hasattr(origin, "__arrow_c_stream__") and (hasattr(origin, "columns") or hasattr(origin, "schema")):
        title = f"the {library_of(origin)} frame"
        with reading(title, "a frame"):
            return _of_table(None, require("pyarrow", "data").table(origin), title=title)
    path = as_path(origin)
    with reading(path, "a file of logits"):
        path.stat()
        if path.is_dir():
            return open_folder(path, mmap)
        if not path.is_file():
            raise FileError(f"{path} is neither a file nor a folder: give a file of logits.")
    ending = extension(path)
    if ending not in _OPENERS:
        raise FileError(
            f"{path} has an extension that monocal does not read: expected one of {', '.join(_OPENERS)}."
        )
    if mmap and ending != ".npy":
        raise InputError(f"mmap=True works for .npy files only, got {path}: save the array with numpy.save.")
    what = f"a {ending} file"
    check_magic(path, what)
    with reading(path, what):
        if ending == ".npy":
            return open_npy(path, mmap)
        if _OPENERS[ending] is _open_text:
            return _open_text(path, what, separator, decimal)
        return _OPENERS[ending](path, what)


def _check_names(path: Path, names: Iterable[str]) -> None:
    """Every column has a name of its own, and the first line holds names."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 1))
    if count > 1:
        raise FileError(
            f"{path} has two columns called {name!r}: give every column its own name in the first line."
        )
    number = next((name for name in names if is_number(name) and not re.fullmatch(r"-?\d+", name)), None)
    if number is not None:
        raise FileError(
            f"{path} has no line of names: it begins with {number}. Write the names of the columns above it, such as "
            "cat,dog,label, or save the array with numpy.save."
        )


def _without_index(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns without the row index that pandas writes."""
    return tuple(names[bool(re.fullmatch(r"(Unnamed: \d+)?", names[0])) :]) if names else ()


# Text


def _open_text(path: Path, what: str, separator: str | None, decimal: str | None) -> NamedArrays:
    """Cells with commas, semicolons, tabs or bars between, below a line of names; one column may lack its name."""
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        n_comments, first = next(((i, line) for i, line in enumerate(lines) if line[:1] != "#"), (0, ""))
        head = [first, *islice(lines, _HEAD)]
    separator = _separator(path, separator, first)
    rows = list(csv.reader(head, delimiter=separator, strict=True))  # strict: a quote must end
    if not rows or not rows[0]:
        raise FileError(
            f"{path} begins with an empty line, or holds comments alone: expected the names of the columns."
        )
    names = [name.strip() for name in rows[0]]
    nameless = len(names) == 1 and (is_number(names[0]) or rows[0] in rows[1:])  # such as labels alone
    names = [path.stem] if nameless else names
    _check_names(path, names)
    below = rows[not nameless :]
    cells = {name: [row[j].strip() for row in below if j < len(row)] for j, name in enumerate(names)}
    comma = decimal == "," or (decimal is None and separator != "," and _has_decimal_commas(cells.values()))
    text = frozenset(
        name
        for name, column in cells.items()
        if column and not any(is_number(cell.replace(",", ".") if comma else cell) for cell in column)
    )
    notes = {
        "lines that begin with # were left out": n_comments,
        "commas in numbers were read as decimal points": comma,
        "the first column has no name and was left out as a row index": _without_index(names) != (*names,),
    }

    @functools.cache
    def parsed(as_text: bool) -> Any:
        arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
        with reading(path, what), opener(path, "rb") as file:
            return arrow_csv.read_csv(
                file,  # pyarrow takes no name that is not UTF-8
                read_options=arrow_csv.ReadOptions(
                    column_names=names,
                    skip_rows=n_comments + (not nameless),
                    block_size=1 << 22,  # which must hold a row
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=separator, ignore_empty_lines=len(names) > 1),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names if as_text else text, arrow.string()),
                    null_values=_BLANK,
                    decimal_point="," if comma else ".",
                ),
            )

    return NamedArrays(
        path,
        _without_index(names),
        lambda names: [_words_or_numbers(column) for column in parsed(False).select(list(names)).columns],
        lambda names: parsed(True).select(list(names)),
        text,
        tuple(note for note, applies in notes.items() if applies),
    )


def _separator(path: Path, separator: str | None, first: str) -> str:
    """As stated; else the one that the first line has most often."""
    if separator is None:
        return "\t" if extension(path).startswith(".tsv") else max(",\t;|", key=first.count)
    separator = _SEPARATORS.get(separator, separator)
    if len(separator) != 1:
        raise InputError(f"separator must be one character, or 'tab', got {separator!r}.")
    if separator not in first and any(one in first for one in ",\t;|"):
        raise FileError(
            f"{path} has no {separator!r} in its first line, {first.strip()[:60]!r}: leave {wording('separator=')} out."
        )
    return separator


def _has_decimal_commas(columns: Iterable[Sequence[str]]) -> bool:
    cells = [cell for column in columns for cell in column]
    commas = any(re.fullmatch(r"-?\d+,\d+([eE]-?\d+)?", cell) for cell in cells)
    return commas and not any(re.fullmatch(r"-?\d*\.\d+", cell) for cell in cells)


def _words_or_numbers(column: Any) -> np.ndarray:
    """A parsed column; blank words are None."""
    array = np.asarray(column.to_numpy())
    if array.dtype == object:
        array = np.array(
            [None if word is None else str(word).strip() or None for word in array], dtype=object
        )
    return array


def _open_lines(path: Path, what: str) -> NamedArrays:
    """A value in each line, such as labels."""
    lines = np.array(path.read_text("utf-8-sig").rstrip().split("\n"))
    cells = np.char.strip(lines)
    return in_memory(path, {path.stem: cells.astype(float) if all(map(is_number, cells)) else cells})


def typed(table: Any) -> Any:
    """An Arrow table of text with numbers where all cells are; identifiers such as 0001 stay text."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")

    def one(column: Any) -> Any:
        text = arrow.types.is_string(column.type)
        if text and not compute.any(compute.match_substring_regex(column, r"^\s*-?0\d")).as_py():
            for kind in (arrow.int64(), arrow.float64()):
                with suppress(arrow.ArrowInvalid):
                    return column.cast(kind)
        return column

    return arrow.table([one(column) for column in table.columns], names=table.column_names)


# Tables of typed columns


def _open_arrow(path: Path, what: str) -> NamedArrays:
    """Parquet and Feather, of which only the columns that are asked for are read."""
    parquet, feather = require("pyarrow.parquet", "data"), require("pyarrow.feather", "data")
    is_parquet = extension(path) == ".parquet"
    with open(path, "rb") as file:
        schema = (
            parquet.read_schema(file) if is_parquet else require("pyarrow.ipc", "data").open_file(file).schema
        )

    def columns(names: Sequence[str]) -> Any:
        options: dict[str, Any] = {"columns": list(names), "use_threads": False}
        with reading(path, what), open(path, "rb") as file:
            table = (
                parquet.ParquetFile(file).read(**options)
                if is_parquet
                else feather.read_table(file, **options)
            )
            return table.select(list(names))

    return _of_columns(path, schema, columns)


def _open_excel(path: Path, what: str) -> NamedArrays:
    """The first sheet with a column of numbers; the first row in which all cells but the first are filled holds the names."""
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

    tables = {
        name: table(cells) for name, cells in pandas.read_excel(path, sheet_name=None, header=None).items()
    }
    numbers = {n: one.drop(columns="", errors="ignore").select_dtypes("number") for n, one in tables.items()}
    chosen = next((name for name in tables if numbers[name].size), next(iter(tables)))
    frame = tables[chosen]
    _check_names(path, frame.columns)
    for name in [name for name in frame if frame[name].dtype.kind == "O"]:  # Arrow has one type in a column
        frame[name] = frame[name].map(lambda cell: cell if cell is None or cell != cell else str(cell))
    notes = (f"of the sheets {listing(tables)}, {chosen!r} was read",) if len(tables) > 1 else ()
    return _of_table(path, arrow.Table.from_pandas(frame), notes)


def _open_records(path: Path, what: str) -> NamedArrays:
    """Rows as JSON objects, columns as one object, or samples of lm-evaluation-harness."""
    records, arrow = read_json(path), require("pyarrow", "data")
    stray = next((i for i, record in enumerate(records) if not isinstance(record, dict)), None)
    if not records or stray is not None:
        raise FileError(
            f"{path}, record {stray or 0}, is no JSON object: expected one for each row, such as "
            '{"logits": [0.3, 2.1], "label": 1}.'
        )
    first = records[0]
    if any(name in first for name in ("filtered_resps", "resps")):
        from monocal.io.harness_samples import arrays_of

        arrays, notes = arrays_of(path, records)
        return in_memory(path, arrays, notes=notes, ragged=True)
    if any(name in first for name in ("choices", "response", "prompt_logprobs")):
        raise FileError(
            f"{path} holds responses of a language-model server: read them in Python with monocal.TopK.from_openai or "
            "monocal.TopK.from_vllm."
        )
    if extension(path) != ".json" or len(records) > 1:
        # {"probs": {"cat": ...}} -> probs.cat
        return _of_table(path, arrow.Table.from_pylist(records).flatten())
    # pandas writes a column as {row: value} where nothing else is asked for.
    columns = {name: list(one.values()) if isinstance(one, dict) else one for name, one in first.items()}
    if "data" in columns or not all(isinstance(one, list) for one in columns.values()):
        raise FileError(
            f"{path} is one JSON object: expected a list of rows, or a list for each column. Write it with "
            "DataFrame.to_json(orient='records')."
        )
    if len(set(map(len, columns.values()))) > 1:  # such as names of the classes
        return in_memory(path, {name: np.array(one) for name, one in columns.items()})
    return _of_table(path, arrow.Table.from_pydict(columns))


def read_json(path: Any) -> list[Any]:
    """The values of a JSON file: a list in ``.json`` counts as its members, ``.jsonl`` has one value in each line."""
    path, what = as_path(path), "a JSON file"
    check_magic(path, what)
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with reading(path, what), opener(path, "rt", encoding="utf-8-sig") as file:
        text = file.read()

    def parsed(text: str, where: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(
                f"{path}{where} is no JSON ({str(error)[:100]}): write it again; a value in each line needs the ending .jsonl."
            ) from error

    if extension(path).startswith((".jsonl", ".ndjson")):
        return [parsed(line, f", line {i},") for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    value = parsed(text, "")
    return value if isinstance(value, list) else [value]


def _of_table(path: Path | None, table: Any, notes: tuple[str, ...] = (), title: str = "") -> NamedArrays:
    return _of_columns(path, table.schema, lambda names: table.select(list(names)), notes, title)


def _of_columns(
    path: Path | None,
    schema: Any,
    columns: Callable[[Sequence[str]], Any],
    notes: tuple[str, ...] = (),
    title: str = "",
) -> NamedArrays:
    types = require("pyarrow", "data").types

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(title or str(path), "a table"):
            pairs = zip(names, columns(names).columns, strict=True)
            return [_array(column, f"{title or path}, column {name!r}") for name, column in pairs]

    kinds = {one.name: one.type for one in schema if not one.name.startswith("__index_level_")}
    numeric = (types.is_floating, types.is_integer, types.is_decimal, _is_list)
    text = frozenset(name for name, kind in kinds.items() if not any(test(kind) for test in numeric))
    return NamedArrays(path, _without_index(list(kinds)), load, columns, text, notes, title=title)


def _is_list(kind: Any) -> bool:
    types = require("pyarrow", "data").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _array(column: Any, where: str) -> np.ndarray:
    """One column as an array: (n,) of numbers or words, NaN or None where one is missing; (n, m) from lists of one length."""
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
                f"{lengths[uneven[0]]} in row {uneven[0]}; expected one number per class in every row."
            )
        flat = _array(compute.list_flatten(column), where)
        return flat.reshape(len(column), int(lengths[0]) if len(lengths) else 0)
    if arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    return np.asarray(column.to_numpy())


_OPENERS: dict[str, Callable[..., NamedArrays]] = {
    ".npz": open_npz,
    ".safetensors": open_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), open_hdf5),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), _open_text),
    **dict.fromkeys((".parquet", ".feather"), _open_arrow),
    **dict.fromkeys((".p", ".pkl", ".pickle"), open_pickle),
}
FOUND_IN_FOLDERS = tuple(
    _OPENERS
)  # others are mostly something else in a folder: they are read by their name only
_OPENERS |= {
    ".npy": open_npy,
    ".xlsx": _open_excel,
    ".txt": _open_lines,
    **dict.fromkeys((".pt", ".pth"), open_tensors),
    **dict.fromkeys((".json", ".jsonl", ".jsonl.gz", ".ndjson"), _open_records),
}
