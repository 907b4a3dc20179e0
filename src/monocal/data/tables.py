"""Files that hold columns: ``.csv``, ``.tsv`` and ``.parquet``, read by pyarrow.

A class is a column (``logit_0``, ``logit_1``, ...) or all classes are one column of lists, as datasets on
model hubs have it. Only the columns asked for are parsed, so text columns beside them do no harm.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monocal.data.sources import NamedArrays, check_magic, reading
from monocal.errors import FileError, require

_WIDE = 10_000  # columns, above which numpy parses a table by rows: pyarrow handles each column by itself


def open_csv(path: Path) -> NamedArrays:
    """Comma-separated (``.csv``) or tab-separated (``.tsv``) numbers, with or without a line of names."""
    what = f"a {path.suffix.lower()} table"
    arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
    check_magic(path, what)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with reading(path, what), open(path, encoding="utf-8-sig", newline="") as file:
        first = next(csv.reader(file, delimiter=delimiter), [])
    if not first:
        raise FileError(f"{path} begins with an empty line: expected the names of the columns.")
    if len(first) == 1 and first[0].count(";"):
        raise FileError(f"{path} is separated by ';': expected {delimiter!r}; export it again.")
    notes = []
    names = [name.strip() for name in first]
    headless = _is_data(names)
    if headless:
        names = [str(column) for column in range(len(first))]
        notes.append("the file has no line of names; columns are called '0', '1', ...")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(f"{path} has two columns called {twice[0]!r}: give every column its own name.")
    usable = names[1:] if names[0] == "" else names  # pandas writes its row index under an empty name
    if len(usable) < len(names):
        notes.append("the first column has no name and was left out as a row index")

    def parse(wanted: Sequence[str], **how: Any) -> Any:
        with reading(path, what), open(path, "rb") as file:  # pyarrow takes no name that is not UTF-8
            return arrow_csv.read_csv(
                file,
                read_options=arrow_csv.ReadOptions(
                    column_names=names,
                    skip_rows=0 if headless else 1,
                    block_size=1 << 22,  # which must hold a row
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
                convert_options=arrow_csv.ConvertOptions(include_columns=list(wanted), **how),
            )

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        if len(names) > _WIDE:
            with reading(path, what):
                return _wide(path, delimiter, names, 0 if headless else 1, wanted)
        return _arrays(parse(wanted, column_types=dict.fromkeys(wanted, arrow.float64())), wanted, path)

    def load_any(wanted: Sequence[str]) -> list[np.ndarray]:
        return _anything(parse(wanted, strings_can_be_null=True, null_values=[""]), wanted)

    return NamedArrays(path, tuple(usable), load, table=True, notes=tuple(notes), load_any=load_any)


def _wide(
    path: Path, delimiter: str, names: Sequence[str], skipped: int, wanted: Sequence[str]
) -> list[np.ndarray]:
    place = {name: number for number, name in enumerate(names)}
    values = np.loadtxt(
        path,
        delimiter=delimiter,
        skiprows=skipped,
        usecols=[place[name] for name in wanted],
        comments=None,
        quotechar='"',
        encoding="utf-8-sig",
        ndmin=2,
    )
    empty = np.argwhere(np.isnan(values))
    if len(empty):
        row, column = empty[0]
        raise _empty(f"{path}, column {wanted[column]!r}", row)
    return list(values.T)


def _is_data(names: Sequence[str]) -> bool:
    """Whether a first line is numbers; a frame saved without names has the header 0, 1, ..., m-1."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return len(numbers) < 3 or list(names) != [str(column) for column in range(len(names))]


def open_parquet(path: Path) -> NamedArrays:
    """Columns of numbers, or of lists of numbers."""
    what = "a Parquet file"
    require("pyarrow", "data")
    parquet = require("pyarrow.parquet", "data")
    check_magic(path, what, b"PAR1")
    with reading(path, what), open(path, "rb") as file:
        names = tuple(parquet.read_schema(file).names)

    def load(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), open(path, "rb") as file:
            table = parquet.ParquetFile(file).read(columns=list(wanted), use_threads=False)
            return _arrays(table, wanted, path)

    def load_any(wanted: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), open(path, "rb") as file:
            return _anything(parquet.ParquetFile(file).read(columns=list(wanted), use_threads=False), wanted)

    return NamedArrays(path, names, load, table=True, load_any=load_any)


def _anything(table: Any, wanted: Sequence[str]) -> list[np.ndarray]:
    """The columns as they are: text as objects, NaN or None where a number or a text is missing."""
    arrow = require("pyarrow", "data")
    columns = [table.column(table.column_names.index(name)) for name in wanted]
    return [
        np.asarray((c.cast(c.type.value_type) if arrow.types.is_dictionary(c.type) else c).to_numpy())
        for c in columns
    ]


def _arrays(table: Any, wanted: Sequence[str], path: Path) -> list[np.ndarray]:
    """The columns as arrays, found by number: a name is searched for among all of them."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")
    place = {name: number for number, name in enumerate(table.column_names)}
    return [_numbers(arrow, compute, table.column(place[name]), name, path) for name in wanted]


def _numbers(arrow: Any, compute: Any, column: Any, name: str, path: Path) -> np.ndarray:
    """One column as an array: (n,), or (n, m) from lists of one length m."""
    n, width, kind = len(column), None, arrow.types
    _refuse_nulls(compute, column, f"{path}, column {name!r}")
    if kind.is_list(column.type) or kind.is_large_list(column.type) or kind.is_fixed_size_list(column.type):
        lengths = compute.list_value_length(column).to_numpy()
        uneven = np.flatnonzero(lengths != lengths[:1])
        if uneven.size:
            row = uneven[0]
            raise FileError(
                f"{path}, column {name!r} has lists of different lengths: {lengths[0]} in row 0 and "
                f"{lengths[row]} in row {row}; expected one number per class in every row."
            )
        width = int(lengths[0]) if len(lengths) else 0
        column = compute.list_flatten(column)
        _refuse_nulls(compute, column, f"the lists of {path}, column {name!r}")
    if kind.is_decimal(column.type):
        column = column.cast(arrow.float64())
    if not (kind.is_floating(column.type) or kind.is_integer(column.type) or kind.is_boolean(column.type)):
        raise FileError(f"{path}, column {name!r} holds {column.type}: expected numbers.")
    values = column.to_numpy()
    return values if width is None else values.reshape(n, width)


def _refuse_nulls(compute: Any, column: Any, where: str) -> None:
    if column.null_count:
        row = compute.index(compute.is_null(column), True).as_py()
        raise _empty(where, row)


def _empty(where: str, row: int) -> FileError:
    return FileError(f"{where}, row {row} (counting from 0) is empty or 'nan': fill it or drop the row.")
