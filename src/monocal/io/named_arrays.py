"""A file as named arrays:  path -> {name: array},  whatever the format.

pyarrow, pandas, h5py, safetensors and torch do the reading. Names are known at once, arrays are loaded when asked for. Cells of a
text table stay text and become numbers where a whole column is numbers, so that what is written again stays as it was. Nothing
that a file contains is executed, and whatever a parser raises becomes one ``FileError`` that says what to do.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, InputError, MissingExtraError, require, wording
from monocal.inputs.formats import library_of
from monocal.inputs.names import listing

# First bytes of the formats: a file that begins otherwise is refused.
_MAGIC = {
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
_HEAD = 100  # lines, to tell columns of words from columns of numbers
_SEPARATORS = ("\t", ";", ",", "|")
_SPELT_OUT = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "space": " "}
_BLANK = ("", "na", "nan", "null", "n/a", "none")
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
        Columns of a table as an Arrow table; None for a file of arrays.
    text : frozenset of str
        Columns of words.
    notes : tuple of str
        What was done to read it.
    headless : bool
        Columns have places instead of names.
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
    headless: bool = False
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


def as_path(path: Any) -> Path:
    """A caller's path as a ``Path``."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"path must be a file name, got {path if text else type(path).__name__!r}.")
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
        advice = (
            "save it as UTF-8" if isinstance(error, UnicodeError) else "write it again or copy it once more"
        )
        raise FileError(
            f"{path} cannot be read as {what}: it is damaged, cut short or of another kind ({reason}); {advice}."
        ) from error


def check_magic(path: Path, what: str, start: bytes = b"") -> None:
    """Refuse an empty file, and one that does not begin as its extension promises."""
    with reading(path, what):
        with open(path, "rb") as file:
            head = file.read(16)
        if not head:
            raise FileError(f"{path} is empty: expected {what}; write it again or copy it once more.")
        if not head.startswith(start):
            looks = next((ending for ending, magic in _MAGIC.items() if head.startswith(magic)), None)
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
        if not path.is_dir() and not path.is_file():
            raise FileError(f"{path} is neither a file nor a folder: give a file of logits.")
    if path.is_dir():
        return _open_folder(path, mmap)
    ending = extension(path)
    if ending == ".npy":
        check_magic(path, "an .npy array", _MAGIC[".npy"])
        return NamedArrays(path, (path.stem,), lambda names: [_load_npy(path, mmap) for _ in names])
    if ending not in _OPENERS:
        listed = ", ".join([".npy", *_OPENERS])
        raise FileError(f"{path} has an extension that monocal does not read: expected one of {listed}.")
    if mmap:
        raise InputError(f"mmap=True works for .npy files only, got {path}: save the array with numpy.save.")
    what = f"a {ending} file"
    check_magic(path, what, _MAGIC.get(".gz" if ending.endswith(".gz") else ending, b""))
    options = (separator, decimal) if _OPENERS[ending] is _open_text else ()
    with reading(path, what):
        return _OPENERS[ending](path, what, *options)


def _in_memory(path: Path, arrays: dict[str, np.ndarray], **more: Any) -> NamedArrays:
    return NamedArrays(path, tuple(arrays), lambda names: [arrays[name] for name in names], **more)


# Text


def is_number(cell: object) -> bool:
    """Whether a text is a number."""
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


def _open_text(path: Path, what: str, separator: str | None, decimal: str | None) -> NamedArrays:
    """Cells with commas, semicolons, tabs, bars or (in ``.txt``) spaces between, with or without a line of names."""
    with _text_of(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
        comments, head = _first_lines(lines)
    separator = _separator(path, separator, head)
    if comments and _is_header(comments[-1], head, separator):
        head = [comments.pop().removeprefix("#"), *head]
    rows = list(csv.reader(head, delimiter=separator, strict=True))  # strict: a quote must end
    if not rows or not rows[0]:
        raise FileError(
            f"{path} begins with an empty line, or holds comments alone: expected the names of the columns."
        )
    headless = _lacks_names(rows[0], rows[1:]) or (bool(comments) and all(map(is_number, rows[0])))
    names = [str(j) if headless else name.strip() for j, name in enumerate(rows[0])]
    _refuse_equal_names(path, names)
    below = rows[not headless :]
    cells = {name: [row[j].strip() for row in below if j < len(row)] for j, name in enumerate(names)}
    comma = decimal == "," or (decimal is None and separator != "," and _has_decimal_commas(cells.values()))
    if comma:
        cells = {name: [cell.replace(",", ".") for cell in column] for name, column in cells.items()}
    text = frozenset(name for name, column in cells.items() if column and not any(map(is_number, column)))
    if extension(path) == ".txt" and len(names) > 1 and not headless and text == set(names):
        raise FileError(
            f"{path} holds text, {head[0].expandtabs(1).strip()[:40]!r}: expected a label in each line, or rows of numbers with "
            "spaces between."
        )
    notes = {
        "the file has no line of names; columns are called '0', '1', ...": headless,
        "lines that begin with # were left out": comments,
        "commas in numbers were read as decimal points": comma,
        "the first column has no name and was left out as a row index": len(_without_index(names))
        < len(names),
    }

    @functools.cache
    def parsed() -> Any:
        with reading(path, what), _text_of(path) as file:
            table = _read_text(file, names, len(comments) + (not headless), separator)
        replace = require("pyarrow.compute", "data").replace_substring
        for place, name in enumerate(names if comma else ()):
            if name not in text:
                table = table.set_column(place, name, replace(table.column(place), ",", "."))
        return table

    def columns(names: Sequence[str]) -> Any:
        return parsed().select(list(names))

    return NamedArrays(
        path,
        _without_index(names),
        lambda names: [_numbers_or_words(column) for column in columns(names).columns],
        columns,
        text=text,
        notes=tuple(note for note, applies in notes.items() if applies),
        headless=headless,
    )


def _text_of(path: Path) -> Any:
    """A text file as bytes (pyarrow takes no name that is not UTF-8); spaces in ``.txt`` become tabs."""
    if extension(path) != ".txt":
        return (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb")
    lines = path.read_bytes().decode("utf-8-sig").strip().splitlines()
    return io.BytesIO("\n".join(re.sub(r"[ \t]+", "\t", line.strip()) for line in lines).encode())


def _first_lines(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Comments above the table, and its first lines."""
    comments: list[str] = []
    head: list[str] = []
    for line in lines:
        (comments if not head and line.startswith("#") else head).append(line)
        if len(head) > _HEAD:
            break
    return comments, head


def _is_header(comment: str, head: Sequence[str], separator: str) -> bool:
    """Whether a comment holds the names of the columns, such as ``#id,score,label``."""
    cells = head[0].split(separator) if head else []
    return len(comment.split(separator)) == len(cells) > 1 and any(map(is_number, cells))


def _without_index(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns without the row index that pandas writes."""
    return tuple(names[bool(re.fullmatch(r"(Unnamed: \d+)?", names[0])) :]) if names else ()


def _read_text(file: Any, names: Sequence[str], n_skipped: int, separator: str) -> Any:
    """All cells as text."""
    arrow, arrow_csv = require("pyarrow", "data"), require("pyarrow.csv", "data")
    return arrow_csv.read_csv(
        file,
        read_options=arrow_csv.ReadOptions(
            column_names=names,
            skip_rows=n_skipped,
            block_size=1 << 22,  # which must hold a row
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=separator, ignore_empty_lines=len(names) > 1),
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
    )


def _separator(path: Path, separator: str | None, head: Sequence[str]) -> str:
    """As stated; else what splits every line into as many cells, more than one; a comma where nothing does."""
    present = [one for one in _SEPARATORS if head and one in head[0]]
    if separator is not None:
        separator = _SPELT_OUT.get(separator, separator)
        if len(separator) != 1:
            raise InputError(f"separator must be one character, or 'tab', got {separator!r}.")
        if present and separator not in head[0]:
            raise FileError(
                f"{path} has no {separator!r} in its first line, {head[0].strip()[:60]!r}: leave {wording('separator=')} out."
            )
        return separator
    if extension(path).startswith(".tsv"):
        return "\t"
    for one in present:
        counts = {len(row) for row in csv.reader(head[:20], delimiter=one) if row}
        if len(counts) == 1 and counts != {1}:
            return one
    return present[0] if present else ","


def _refuse_equal_names(path: Path, names: Iterable[str]) -> None:
    name, count = next(iter(Counter(names).most_common(1)), ("", 1))
    if count > 1:
        raise FileError(
            f"{path} has two columns called {name!r}: give every column its own name in the first line."
        )


def _lacks_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the first line is data: nothing is called 0.91, and a lone column is not called as what stands in it."""
    if len(first) == 1:
        return is_number(first[0]) or first in below
    return any(is_number(cell) and not re.fullmatch(r"\s*-?\d+\s*", cell) for cell in first)


def _has_decimal_commas(columns: Any) -> bool:
    cells = [cell for column in columns for cell in column]
    commas = any(re.fullmatch(r"-?\d+,\d+([eE]-?\d+)?", cell) for cell in cells)
    return commas and not any(re.fullmatch(r"-?\d*\.\d+", cell) for cell in cells)


def _as_numbers(column: Any) -> Any:
    """A column of text as whole numbers or as numbers; None where a cell is neither."""
    arrow = require("pyarrow", "data")
    for kind in (arrow.int64(), arrow.float64()):
        with contextlib.suppress(arrow.ArrowInvalid):
            return column.cast(kind)
    return None


def _numbers_or_words(column: Any) -> np.ndarray:
    """A column of text as numbers with NaN where a cell is blank; as it is, with None, where a cell is no number."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")
    trimmed = compute.utf8_trim_whitespace(column)
    blank = compute.is_in(compute.utf8_lower(trimmed), arrow.array(_BLANK))
    numbers = _as_numbers(compute.if_else(blank, None, trimmed))
    if numbers is None:
        numbers = compute.if_else(compute.equal(trimmed, ""), None, trimmed)
    return np.asarray(numbers.to_numpy())


def typed(table: Any) -> Any:
    """An Arrow table of text with numbers where all cells are; identifiers such as 0001 stay text."""
    arrow, compute = require("pyarrow", "data"), require("pyarrow.compute", "data")

    def one(column: Any) -> Any:
        leading_zero = r"^\s*-?0\d"
        if not arrow.types.is_string(column.type):
            return column
        if compute.any(compute.match_substring_regex(column, leading_zero)).as_py():
            return column
        numbers = _as_numbers(column)
        return column if numbers is None else numbers

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
    """The first sheet with a column of numbers; names are in its first row, above data, with all cells but one."""
    require("openpyxl", "data")
    pandas, arrow = require("pandas", "data"), require("pyarrow", "data")
    sheets = pandas.read_excel(path, sheet_name=None, header=None)

    def table(cells: Any) -> Any:
        cells = cells.dropna(how="all").dropna(how="all", axis=1)
        full = cells[cells.notna().sum(axis=1) >= max(1, cells.shape[1] - 1)]
        if full.empty:
            return pandas.DataFrame()
        n_filled = full.notna().sum(axis=1)
        has_number = (full.apply(lambda column: column.map(is_number)) & full.notna()).any(axis=1)
        # A title has words below it, in as many cells or more.
        is_header = has_number.shift(-1, fill_value=False) | (n_filled.shift(-1) < n_filled)
        top = cells.index.get_loc(is_header.idxmax())
        frame = cells.iloc[top + 1 :].infer_objects()
        names = enumerate(cells.iloc[top])
        frame.columns = [f"Unnamed: {j}" if name != name else str(name) for j, name in names]
        return frame.reset_index(drop=True)

    tables = {name: table(cells) for name, cells in sheets.items()}

    def has_numbers(frame: Any) -> bool:
        return bool(frame[[*_without_index([*frame])]].select_dtypes("number").size)

    chosen = next((name for name in tables if has_numbers(tables[name])), next(iter(tables)))
    notes = (f"of the sheets {listing(sheets)}, {chosen!r} was read",) if len(sheets) > 1 else ()
    frame = tables[chosen]
    _refuse_equal_names(path, frame.columns)
    mixed = [name for name in frame if frame[name].dtype.kind == "O"]  # Arrow has one type in a column
    for name in mixed:
        frame[name] = frame[name].map(lambda cell: cell if cell is None or cell != cell else str(cell))
    return _of_table(path, arrow.Table.from_pandas(frame), notes)


def _open_records(path: Path, what: str) -> NamedArrays:
    """Rows as JSON objects, columns as one object, or samples of lm-evaluation-harness."""
    records, arrow = read_json(path), require("pyarrow", "data")
    if extension(path) == ".json" and len(records) == 1 and isinstance(records[0], dict):
        columns = {  # pandas writes a column as {row: value} where nothing else is asked for
            name: list(column.values()) if isinstance(column, dict) else column
            for name, column in records[0].items()
        }
        lengths = {len(column) if isinstance(column, list) else None for column in columns.values()}
        if len(lengths) > 1 and None not in lengths and "data" not in columns:  # such as names of the classes
            return _in_memory(path, {name: np.array(column) for name, column in columns.items()})
        if len(lengths) != 1 or None in lengths:
            raise FileError(
                f"{path} is one JSON object: expected a list of rows, or a list for each column, of one length. Write it with "
                "DataFrame.to_json(orient='records')."
            )
        return _of_table(path, arrow.Table.from_pydict(columns))
    stray = next((i for i, record in enumerate(records) if not isinstance(record, dict)), None)
    if not records or stray is not None:
        raise FileError(
            f"{path}, record {stray or 0}, is no JSON object: expected one for each row, such as "
            '{"logits": [0.3, 2.1], "label": 1}.'
        )
    if any(name in records[0] for name in ("filtered_resps", "resps")):
        from monocal.io.harness_samples import arrays_of

        arrays, notes = arrays_of(path, records)
        return _in_memory(path, arrays, notes=notes, ragged=True)
    if any(name in records[0] for name in ("choices", "response", "prompt_logprobs")):
        raise FileError(
            f"{path} holds responses of a language-model server: read them in Python with monocal.TopK.from_openai or "
            "monocal.TopK.from_vllm."
        )
    return _of_table(path, arrow.Table.from_pylist(records).flatten())  # {"probs": {"cat": ...}} -> probs.cat


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

    def holds_numbers(kind: Any) -> bool:
        return _is_list(kind) or types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(title or str(path), "a table"):
            pairs = zip(names, columns(names).columns, strict=True)
            return [_array(column, f"{title or path}, column {name!r}") for name, column in pairs]

    kinds = dict(zip(schema.names, schema.types, strict=True))
    names = _without_index([name for name in kinds if not name.startswith("__index_level_")])
    text = frozenset(name for name in names if not holds_numbers(kinds[name]))
    return NamedArrays(path, names, load, columns, text, notes, title=title)


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


def read_json(path: Any) -> list[Any]:
    """The values of a JSON file: a list in ``.json`` counts as its members, ``.jsonl`` has one value in each line."""
    path = as_path(path)
    ending, what = extension(path), "a JSON file"
    packed = ending.endswith(".gz")
    check_magic(path, what, _MAGIC[".gz"] if packed else b"")
    with reading(path, what), (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig") as file:
        text = file.read()

    def parsed(text: str, where: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(
                f"{path}{where} is no JSON ({str(error)[:100]}): write it again; a value in each line needs the ending .jsonl."
            ) from error

    if ending.startswith((".jsonl", ".ndjson")):
        return [parsed(line, f", line {i},") for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    value = parsed(text, "")
    return value if isinstance(value, list) else [value]


# Files of arrays


def _open_npz(path: Path, what: str) -> NamedArrays:
    """A zip archive of ``.npy`` members, never unpickled."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        names = tuple(archive.files)

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = [archive[name] for name in names]
            for name, array in zip(names, arrays, strict=True):
                if not isinstance(array, np.ndarray):  # a member that is no .npy file comes back as bytes
                    raise FileError(
                        f"{path} holds {name!r}, which is not an array: write it with numpy.savez."
                    )
            return arrays

    return NamedArrays(path, names, load)


def _load_npy(path: Path, mmap: bool) -> np.ndarray:
    check_magic(path, "an .npy array", _MAGIC[".npy"])
    with reading(path, "an .npy array"):
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)


def _open_folder(path: Path, mmap: bool) -> NamedArrays:
    """The ``.npy`` files of a folder; ``resnet_logits_val.npy`` is ``logits_val`` of the set ``resnet``."""
    from monocal.io.column_names import split_group

    with reading(path, "a folder"):
        files = {split_group(file.stem): file for file in sorted(path.glob("*.npy"))}
    if not files:
        raise FileError(f"{path} is a folder without .npy files: name a file in it.")
    return NamedArrays(path, tuple(files), lambda names: [_load_npy(files[name], mmap) for name in names])


def _open_safetensors(path: Path, what: str) -> NamedArrays:
    """Tensors under names; bfloat16, which NumPy lacks, is widened to float32 without loss."""
    library = require("safetensors", "data")
    with library.safe_open(path, framework="numpy") as file:
        names = tuple(file.keys())

    def load(names: Sequence[str]) -> list[np.ndarray]:
        with reading(path, what), library.safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in names}
            for name, kind in kinds.items():
                if not re.fullmatch(r"BF16|F(16|32|64)|BOOL|[IU]\d+", kind):
                    raise FileError(
                        f"{path} holds {name!r} as {kind}: save it as float32, float16 or bfloat16."
                    )
            arrays = {name: file.get_tensor(name) for name, kind in kinds.items() if kind != "BF16"}
            tensors = dict(library.deserialize(path.read_bytes())) if len(arrays) < len(kinds) else {}
            for name in kinds.keys() - arrays.keys():
                bits = np.frombuffer(tensors[name]["data"], "<u2").astype(np.uint32) << 16
                arrays[name] = bits.view(np.float32).reshape(tensors[name]["shape"])
        return [arrays[name] for name in names]

    return NamedArrays(path, names, load)


def _open_hdf5(path: Path, what: str) -> NamedArrays:
    """Datasets under their full path, ``dataset/model/probas_cal``; links to other files are not followed."""
    h5py = require("h5py", "data")
    names: list[Any] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)

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

    return NamedArrays(path, tuple(name for name in names if isinstance(name, str)), load)  # others are bytes


def _open_tensors(path: Path, what: str) -> NamedArrays:
    """What ``torch.save`` wrote: a tensor, a dict of tensors, or a pair (logits, labels); nothing else is loaded."""
    torch = require("torch", "torch")
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _OLDEST_TORCH:
        raise FileError(
            f"{path} is opened with torch {'.'.join(map(str, _OLDEST_TORCH))} or later only, and this is {torch.__version__}, in "
            "which a file could run code: upgrade torch, or save the arrays with numpy.savez."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as refusal:
        if type(refusal).__name__ != "UnpicklingError":
            raise
        raise FileError(
            f"{path} was refused and nothing in it was run: it holds more than tensors in a dict, a tuple or a list, or is "
            "damaged; save such with torch.save."
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
        raise FileError(
            f"{path} holds a {type(content).__name__} without tensors by name: save {{'logits': ..., 'labels': ...}} with "
            "torch.save."
        )
    return _in_memory(path, {name: array(one) for name, one in tensors.items()})


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


def _open_pickle(path: Path, what: str) -> NamedArrays:
    from monocal.io.unpickler import read_arrays

    return _in_memory(path, read_arrays(path))


_OPENERS: dict[str, Callable[..., NamedArrays]] = {
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), _open_hdf5),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), _open_text),
    **dict.fromkeys((".parquet", ".feather"), _open_arrow),
    **dict.fromkeys((".p", ".pkl", ".pickle"), _open_pickle),
}
FOUND_IN_FOLDERS = tuple(
    _OPENERS
)  # others are mostly something else in a folder: they are read only by their name
_OPENERS |= {
    ".xlsx": _open_excel,
    ".txt": _open_text,
    **dict.fromkeys((".pt", ".pth"), _open_tensors),
    **dict.fromkeys((".json", ".jsonl", ".jsonl.gz", ".ndjson"), _open_records),
}
