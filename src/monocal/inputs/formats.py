"""What people have rows in, and what they get back: the same format. One table, `FORMATS`.

    format.array(x)  ->  an array of numpy or torch, or one in a file        format.back(values, x, axis)  ->  in the format of x

A format is recognised by the module that its type comes from, so that no library is imported to ask. Frames and series of pandas,
polars and pyarrow go through narwhals; a column that holds lists is one row each. Numbers of a GPU that are not torch's, and
those of jax, are computed on the host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import InputError


def library_of(x: Any) -> str:
    """The package that a thing's type comes from."""
    return type(x).__module__.partition(".")[0]


class Format(NamedTuple):
    """How one format is read, and written: ``array(x)``; ``back(values, x, axis)``, where values have the shape of ``x``, or that
    without the axis of the classes."""

    array: Callable[[Any], Any]
    back: Callable[[Any, Any, int], Any] = lambda values, x, axis: values


def format_of(x: Any) -> Format:
    """How things of the type of ``x`` are read and written."""
    type_: Any = type(x)
    return PLAIN if type_ is np.ndarray else _format_of_type(type_)


@cache
def _format_of_type(type_: Any) -> Format:
    library = type_.__module__.partition(".")[0]
    return FORMATS.get((library, type_.__name__)) or FORMATS.get((library, "")) or PLAIN


def as_array(x: Any) -> Any:
    """``x`` as something that the package works on; what is that already stays."""
    return x if type(x) is np.ndarray else format_of(x).array(x)


# Names of columns.


def column_names(frame: Any) -> list[Any]:
    """Names of the columns of a frame."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def class_names(x: Any, axis: int = -1) -> tuple[str, ...] | None:
    """What a frame or a labelled array calls the classes, as text; None where it has no names."""
    dim = class_dim(x, axis)
    if dim is not None:
        return tuple(map(as_text, x.coords[dim].values.tolist())) if dim in x.coords else None
    if not hasattr(x, "columns") or len(column_names(x)) < 2:  # one column is a score, or holds lists
        return None
    return tuple(map(as_text, column_names(x)))


def as_text(name: Any) -> str:
    """A name as text; 2.0 and True, which frames make of 2 and 1, as these."""
    number = name.item() if isinstance(name, np.generic) else name
    whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
    return str(int(number)) if whole else str(name)


def named_columns(x: Any, axis: int = -1) -> Any:
    """A frame for scikit-learn to read the names of classes from; None where they have none."""
    dim = class_dim(x, axis)
    if dim is not None:
        names = list(map(str, x.coords[dim].values.tolist())) if dim in x.coords else []
        return sys.modules["pandas"].DataFrame(columns=names) if 0 < len(set(names)) == len(names) else None
    if not hasattr(x, "columns"):
        return None
    names = column_names(x)
    if len(names) == 1 and format_of(x).array is _frame_array and _lists_in(_frame(x)) is not None:
        return None
    plain = all(isinstance(name, str) for name in names) or names == [*range(len(names))]
    if not plain:
        return sys.modules["pandas"].DataFrame(columns=list(map(as_text, names)))
    x = getattr(x, "_meta", x)  # a frame of Dask without its rows
    return sys.modules["pyarrow"].Table.from_batches([x]) if type(x).__name__ == "RecordBatch" else x


# Frames and series.


def _frame(x: Any) -> Any:
    """A frame or a series as narwhals has it."""
    import narwhals as nw

    if library_of(x) == "pyarrow":
        arrow = sys.modules["pyarrow"]
        if isinstance(x, arrow.RecordBatch):
            x = arrow.Table.from_batches([x])
        elif isinstance(x, arrow.Array):
            x = arrow.chunked_array([x])
    return nw.from_native(x, eager_only=True, allow_series=True)


def _lists_in(frame: Any) -> Any:
    """The series whose entries are rows: a series itself, or the only column of a frame; None where there is none."""
    if hasattr(frame, "columns"):
        return _lists_in(next(frame.iter_columns())) if len(frame.columns) == 1 else None
    first: Any = frame[0] if str(frame.dtype) == "Object" and len(frame) else None
    return frame if str(frame.dtype).startswith(("List", "Array")) or np.ndim(first) else None


def _frame_array(x: Any) -> Any:
    frame = _frame(x)
    lists = _lists_in(frame)
    if lists is not None:
        return _stacked(lists.to_numpy())
    if not hasattr(frame, "columns"):
        return frame.to_numpy()
    for column in frame.iter_columns():
        if _lists_in(column) is not None:
            name = repr(column.name)
            raise InputError(
                f"X: the column {name} holds lists, expected one number per row. Pass np.stack(X[{name}])."
            )
    return np.asarray(x) if library_of(x) == "pandas" else frame.to_numpy()


def _stacked(entries: Any) -> np.ndarray:
    rows = list(map(np.asarray, entries))
    for i, row in enumerate(rows):
        if row.ndim != 1 or row.shape != rows[0].shape:
            raise InputError(
                f"X: row {i} of the column of lists has shape {row.shape}, expected lists of numbers of one length, one number a "
                "class."
            )
    return np.stack(rows) if rows else np.zeros((0, 0))


def _pandas_back(values: np.ndarray, x: Any, axis: int) -> Any:
    pandas = sys.modules["pandas"]
    if values.ndim == 1:
        return pandas.Series(values, index=x.index)
    lists = _lists_in(_frame(x))
    if lists is None:
        return pandas.DataFrame(values, index=x.index, columns=x.columns)
    rows = list(values) if isinstance(lists[0], np.ndarray) else values.tolist()
    series = pandas.Series(rows, index=x.index, name=lists.name)
    return series.to_frame() if hasattr(x, "columns") else series


def _frame_back(values: np.ndarray, x: Any, axis: int) -> Any:
    import narwhals as nw

    frame = _frame(x)
    library = nw.get_native_namespace(frame)
    if values.ndim == 1:
        return nw.new_series("", values, backend=library).to_native()
    lists = _lists_in(frame)
    if lists is None:
        result: Any = nw.from_numpy(values, schema=frame.columns, backend=library)
    else:
        number = nw.Float32() if values.dtype == np.float32 else nw.Float64()
        fixed = str(lists.dtype).startswith("Array")
        dtype: Any = nw.Array(number, shape=values.shape[1]) if fixed else nw.List(number)
        result = nw.new_series(lists.name, values.tolist(), dtype, backend=library)
        result = result.to_frame() if hasattr(frame, "columns") else result
    native = result.to_native()
    if isinstance(x, type(native)):
        return native
    whole = native.combine_chunks()  # of pyarrow, as x is a RecordBatch or an Array
    return whole.to_batches()[0] if hasattr(whole, "to_batches") else whole


def _refusal(what: str) -> Format:
    """A frame whose rows are not there."""

    def refuse(x: Any) -> NoReturn:
        raise InputError(f"X is {what}")

    return Format(refuse)


# Labelled arrays


def _xarray_back(values: Any, x: Any, axis: int) -> Any:
    like = x if values.ndim == x.ndim else x.isel({x.dims[axis]: 0}, drop=True)
    return like.copy(data=values)


def class_dim(x: Any, axis: int) -> Any:
    """The dimension of the classes of a labelled array; None where ``x`` is none, or has no such axis."""
    labelled = library_of(x) == "xarray" and hasattr(x, "dims") and -x.ndim <= axis < x.ndim
    return x.dims[axis] if labelled else None


def is_made_up(dim: Any) -> bool:
    """Whether xarray has named a dimension, such as ``dim_1``."""
    return re.fullmatch(r"dim_\d+", str(dim)) is not None


def in_dims_of(x: Any, values: Any, axis: int, name: str, of: str = "X") -> Any:
    """Labels or weights with their dimensions in the order of those of ``x``, by name; as they are where one has no names.

    Where the two share a name, and it is in another place, places cannot be matched by their order.
    """
    if class_dim(x, axis) is None or not hasattr(values, "dims"):
        return values
    lead = [dim for i, dim in enumerate(x.dims) if i != axis % x.ndim]
    if set(values.dims) == set(lead):
        return values.transpose(*lead)
    shared = [dim for dim in values.dims if dim in x.dims and not is_made_up(dim)]
    if any(dim not in lead or lead.index(dim) != values.dims.index(dim) for dim in shared):
        raise InputError(
            f"{name} has the dimensions {values.dims} and {of} has {x.dims}, of which {x.dims[axis]!r} is that of the classes: "
            f"give {name} the dimensions {tuple(lead)}."
        )
    return values


# Arrays of other libraries


def _jax_back(values: np.ndarray, x: Any, axis: int) -> Any:
    jax = sys.modules["jax"]
    return jax.device_put(values.astype(jax.dtypes.canonicalize_dtype(values.dtype)), x.sharding)


def _cupy_back(values: np.ndarray, x: Any, axis: int) -> Any:
    with x.device:
        return sys.modules["cupy"].asarray(values)


PLAIN = Format(lambda x: x)
_FRAME, _PANDAS = Format(_frame_array, _frame_back), Format(_frame_array, _pandas_back)
_JAX = Format(np.asarray, _jax_back)
# Library and type; "": all its types.
FORMATS = {
    ("pandas", "DataFrame"): _PANDAS,
    ("pandas", "Series"): _PANDAS,
    ("polars", "DataFrame"): _FRAME,
    ("polars", "Series"): _FRAME,
    ("polars", "LazyFrame"): _refusal("a polars LazyFrame, whose rows are not there yet. Pass X.collect()."),
    ("pyspark", ""): _refusal(
        "a Spark DataFrame, whose rows are in another process. Pass X.toPandas(), or a function that returns an iterator of "
        "blocks (X, y), one for each partition."
    ),
    ("pyarrow", ""): _FRAME,
    ("datasets", "Column"): Format(lambda x: as_array(x[:])),  # such a column cannot be made
    ("duckdb", "DuckDBPyRelation"): _refusal("a relation of DuckDB, a query without rows. Pass X.df()."),
    ("xarray", "DataArray"): Format(lambda x: x.data, _xarray_back),
    ("jax", ""): _JAX,
    ("jaxlib", ""): _JAX,
    ("cupy", "ndarray"): Format(lambda x: x.get(), _cupy_back),
}
