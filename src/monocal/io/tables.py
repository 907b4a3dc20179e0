"""Columns: ``.csv`` and ``.tsv`` (packed with gzip, too), ``.parquet``, ``.feather`` and frames in memory, read by pyarrow.

A class is a column (``logit_0``, ``logit_1``, ...; ``cat``, ``dog``, ...) or all classes are one column of lists, as datasets
on model hubs have it. A column of which every cell is a number holds numbers, any other text. Only the columns asked for are
parsed.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from monocal.errors import FileError, require
from monocal.inputs.formats import library_of
from monocal.io.headers import is_number, is_row_index, lacks_names
from monocal.io.sources import NamedArrays, check_magic, extension, reading

_WIDE = 10_000  # columns, above which numpy parses a table by rows: pyarrow handles each column by itself
_LOOKED_AT = 100  # rows, to tell columns of words from columns of numbers
_INDEX_OF_PANDAS = "__index_level_"


def open_csv(path: Path) -> NamedArrays:
    """Cells with commas (``.csv``) or tabs (``.tsv``) between, with or without a line of names."""
    what = f"a {extension(path)} table"
    arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
    check_magic(path, what, *([b"\x1f\x8b"] if _packed(path) else []))
    delimiter = "\t" if extension(path).startswith(".tsv") else ","
    with reading(path, what), _unpacked(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=delimiter, strict=True)  # which notices a quote that does not end
        first, *below = [*islice(lines, _LOOKED_AT + 1)] or [[]]
    if not first:
        raise FileError(f"{path} begins with an empty line: expected the names of the columns.")
    if len(first) == 1 and first[0].count(";"):
        raise FileError(f"{path} is separated by ';': expected {delimiter!r}; export it again.")
    notes = []
    names = [name.strip() for name in first]
    headless = lacks_names(names, below)
    if headless:
        below, names = [first, *below], [str(column) for column in range(len(first))]
        notes.append("the file has no line of names; columns are called '0', '1', ...")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(f"{path} has two columns called {twice[0]!r}: give every column its own name.")
    usable = names[1:] if is_row_index(names[0]) else names  # as pandas writes it
    if len(usable) < len(names):
        notes.append("the first column has no name and was left out as a row index")
    cells = {name: [row[i] for row in below if i < len(row)] for i, name in enumerate(names)}
    numbers = {name for name, found in cells.items() if all(map(is_number, found))}
    words = {name for name, found in cells.items() if found and not any(map(is_number, found))}

    def table(wanted: Sequence[str], types: dict[str, Any], **how: Any) -> Any:
        with _unpacked(path, "rb") as file:  # pyarrow takes no name that is not UTF-8
            return arrow_csv.read_csv(
                file,
                read_options=arrow_csv.ReadOptions(
                    column_names=names,
                    skip_rows=0 if headless else 1,
                    block_size=1 << 22,  # which must hold a row
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(wanted), column_types=types, **how
                ),
            )

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what):
            if len(names) > _WIDE:
                return _wide(path, delimiter, names, 0 if headless else 1, wanted, numbers)
            types = {name: arrow.float64() if name in numbers else arrow.string() for name in wanted}
            try:
                found = table(wanted, types)
            except arrow.ArrowInvalid as error:  # a word further down, unless the table itself is broken
                if "conversion error" not in str(error):
                    raise
                found = _numbers_where_possible(table(wanted, dict.fromkeys(wanted, arrow.string())))
            return _arrays(found, wanted, path)

    def whole(wanted: Sequence[str]) -> list[Any]:
        """Cells as they stand; whole numbers as such, unless zeros before them would be lost."""
        plain = {name for name in wanted if all(re.fullmatch(r"0|-?[1-9]\d{0,17}", c) for c in cells[name])}
        with reading(path, what):
            try:
                kinds = {name: arrow.int64() if name in plain else arrow.string() for name in wanted}
                found = table(wanted, kinds)
            except arrow.ArrowInvalid:
                found = table(wanted, dict.fromkeys(wanted, arrow.string()))
            return [found.column(name) for name in wanted]

    def with_gaps(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what):
            return _with_gaps(table(wanted, {}, strings_can_be_null=True, null_values=[""]), wanted, path)

    return NamedArrays(
        path,
        tuple(usable),
        load,
        table=True,
        notes=tuple(notes),
        text=frozenset(words),
        headless=headless,
        whole=whole,
        with_gaps=with_gaps,
    )


def _packed(path: Path) -> bool:
    return extension(path).endswith(".gz")


def _unpacked(path: Path, mode: str, **how: Any) -> IO[Any]:
    opener: Callable[..., IO[Any]] = gzip.open if _packed(path) else open
    return opener(path, mode, **how)


def _numbers_where_possible(table: Any) -> Any:
    """A table of text with its columns as numbers, but for those in which a cell is none."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")
    columns = []
    for column in table.columns:
        trimmed = compute.utf8_trim_whitespace(column)
        known = compute.if_else(
            compute.is_in(trimmed, arrow.array(["", "nan", "NaN", "NA", "null"])), None, trimmed
        )
        try:
            columns.append(known.cast(arrow.float64()))
        except arrow.ArrowInvalid:
            columns.append(column)
    return arrow.table(columns, names=table.column_names)


def _wide(
    path: Path, delimiter: str, names: Sequence[str], skipped: int, wanted: Sequence[str], numbers: set[str]
) -> list[np.ndarray]:
    place = {name: number for number, name in enumerate(names)}
    parsed = [name for name in wanted if name in numbers]
    values = np.loadtxt(
        path,
        delimiter=delimiter,
        skiprows=skipped,
        usecols=[place[name] for name in parsed],
        comments=None,
        quotechar='"',
        encoding="utf-8-sig",
        ndmin=2,
    )
    empty = np.argwhere(np.isnan(values))
    if len(empty):
        row, column = empty[0]
        raise _empty(f"{path}, column {parsed[column]!r}", row)
    found = dict(zip(parsed, values.T, strict=True))
    rest = [name for name in wanted if name not in numbers]
    if rest:
        with _unpacked(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = [
                [row[place[name]] for name in rest] for row in csv.reader(file, delimiter=delimiter) if row
            ]
        found |= {name: np.array([row[i] for row in rows[skipped:]], object) for i, name in enumerate(rest)}
    return [found[name] for name in wanted]


def open_parquet(path: Path) -> NamedArrays:
    """Columns of numbers, of lists of numbers, or of words."""
    what = "a Parquet file"
    require("pyarrow", "data")
    parquet = require("pyarrow.parquet", "data")
    check_magic(path, what, b"PAR1")
    with reading(path, what), open(path, "rb") as file:
        schema = parquet.read_schema(file)

    def table(wanted: Sequence[str]) -> Any:
        with open(path, "rb") as file:
            return parquet.ParquetFile(file).read(columns=list(wanted), use_threads=False)

    return _of_arrow(path, what, schema, table)


def open_feather(path: Path) -> NamedArrays:
    """The same in an Arrow file, as ``DataFrame.to_feather`` writes it."""
    what = "a Feather file"
    require("pyarrow", "data")
    feather, ipc = require("pyarrow.feather", "data"), require("pyarrow.ipc", "data")
    check_magic(path, what, b"ARROW1")
    with reading(path, what), open(path, "rb") as file:
        schema = ipc.open_file(file).schema

    def table(wanted: Sequence[str]) -> Any:
        with open(path, "rb") as file:
            return feather.read_table(file, columns=list(wanted), use_threads=False)

    return _of_arrow(path, what, schema, table)


def is_frame(given: Any) -> bool:
    """Whether it is a frame of pandas, polars or another library that speaks Arrow."""
    return hasattr(given, "__arrow_c_stream__") and (hasattr(given, "columns") or hasattr(given, "schema"))


def open_frame(frame: Any) -> NamedArrays:
    """A frame in memory, read as a file of the same columns would be."""
    arrow = require("pyarrow", "data")
    title = f"the {library_of(frame)} frame"
    with reading(title, "a frame"):
        found = arrow.table(frame)
    return _of_arrow(None, title, found.schema, lambda wanted: found.select(list(wanted)))


def _of_arrow(
    path: Path | None, what: str, schema: Any, table: Callable[[Sequence[str]], Any]
) -> NamedArrays:
    title = what if path is None else str(path)
    types = require("pyarrow", "data").types

    def holds_numbers(kind: Any) -> bool:
        listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return listed or types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(title, what):
            return _arrays(table(wanted), wanted, title)

    def whole(wanted: Sequence[str]) -> list[Any]:
        with reading(title, what):
            found = table(wanted)
            return [found.column(name) for name in wanted]

    def with_gaps(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(title, what):
            return _with_gaps(table(wanted), wanted, title)

    held = dict(zip(schema.names, schema.types, strict=True))
    names = tuple(name for name in held if not name.startswith(_INDEX_OF_PANDAS))
    text = frozenset(name for name in names if not holds_numbers(held[name]))
    return NamedArrays(
        path, names, load, table=True, text=text, title=title, whole=whole, with_gaps=with_gaps
    )


def _with_gaps(table: Any, wanted: Sequence[str], where: object) -> list[np.ndarray]:
    """The columns as they are, but for lists: text as objects, NaN or None where a number or a text is missing."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")

    def one(name: str) -> np.ndarray:
        column = table.column(name)
        if arrow.types.is_nested(column.type):
            return _array(arrow, compute, column, f"{where}, column {name!r}")
        if arrow.types.is_dictionary(column.type):
            return _categories(column)
        return np.asarray(column.to_numpy())

    return [one(name) for name in wanted]


def _arrays(table: Any, wanted: Sequence[str], where: object) -> list[np.ndarray]:
    """The columns as arrays, found by number: a name is searched for among all of them."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")
    place = {name: number for number, name in enumerate(table.column_names)}
    return [_array(arrow, compute, table.column(place[name]), f"{where}, column {name!r}") for name in wanted]


def _array(arrow: Any, compute: Any, column: Any, where: str) -> np.ndarray:
    """One column as an array: (n,) of numbers or words, or (n, m) from lists of one length m."""
    n, width, kind = len(column), None, arrow.types
    _refuse_nulls(compute, column, where)
    if kind.is_dictionary(column.type):
        return _categories(column)
    if kind.is_list(column.type) or kind.is_large_list(column.type) or kind.is_fixed_size_list(column.type):
        lengths = compute.list_value_length(column).to_numpy()
        uneven = np.flatnonzero(lengths != lengths[:1])
        if uneven.size:
            row = uneven[0]
            raise FileError(
                f"{where} has lists of different lengths: {lengths[0]} in row 0 and "
                f"{lengths[row]} in row {row}; expected one number per class in every row."
            )
        width = int(lengths[0]) if len(lengths) else 0
        column = compute.list_flatten(column)
        _refuse_nulls(compute, column, f"the lists of {where}")
    if kind.is_decimal(column.type):
        column = column.cast(arrow.float64())
    numbers = kind.is_floating(column.type) or kind.is_integer(column.type) or kind.is_boolean(column.type)
    words = ("string", "large_string", "string_view")
    if not numbers and (width is not None or str(column.type) not in words):
        raise FileError(f"{where} holds {column.type}: expected numbers{'' if width else ' or words'}.")
    values: np.ndarray = column.to_numpy()
    return values if width is None else values.reshape(n, width)


def _categories(column: Any) -> np.ndarray:
    """Categories as words, None where one is missing; pyarrow itself cannot turn those of polars into words."""
    parts = []
    for part in column.chunks:
        codes = part.indices.fill_null(len(part.dictionary)).to_numpy()
        parts.append(np.append(part.dictionary.to_numpy(False).astype(object), [None])[codes])
    return np.concatenate(parts) if parts else np.empty(0, object)


def _refuse_nulls(compute: Any, column: Any, where: str) -> None:
    if column.null_count:
        row = compute.index(compute.is_null(column), True).as_py()
        raise _empty(where, row)


def _empty(where: str, row: int) -> FileError:
    return FileError(f"{where}, row {row} (counting from 0) is empty or 'nan': fill it or drop the row.")
