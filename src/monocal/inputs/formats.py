"""What people have rows in, and what they get back: the same kind. One table, `KINDS`.

    kind.array(given)  ->  an array of numpy, torch or a file, or a frame        kind.back(values, given, axis)  ->  as given

A kind is recognised by the module that its type comes from, so that no library is imported to ask. Numbers of a GPU that are not
torch's, and those of jax, are computed on the host. A frame stays one on the way in, because its columns have names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..errors import InputError


def library_of(x: Any) -> str:
    """The package that a thing's type comes from."""
    return type(x).__module__.partition(".")[0]


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes
    ----------
    library, types : str, tuple of str
        The package, and the names of the types; none: all.
    array : callable
        ``array(given)``: what the package works on.
    back : callable
        ``back(values, given, axis)``: results for all rows, of the shape given or without the axis of the classes, as given.
    """

    library: str
    types: tuple[str, ...]
    array: Callable[[Any], Any]
    back: Callable[[Any, Any, int], Any]

    def knows(self, given: type) -> bool:
        """Whether things of a type are of this kind."""
        library = given.__module__.partition(".")[0]
        return library == self.library and (not self.types or given.__name__ in self.types)


def kind_of(x: Any) -> Kind:
    """The kind of ``x``: the first of the table, or a plain array."""
    given: Any = type(x)
    return PLAIN if given is np.ndarray else _kind_of(given)


@cache
def _kind_of(given: type) -> Kind:
    return next((kind for kind in KINDS if kind.knows(given)), PLAIN)


def as_array(x: Any) -> Any:
    """``x`` as something that the package works on; what is that already stays."""
    return kind_of(x).array(x)


def without_names(x: Any) -> Any:
    """``x`` as something that the package works on, a frame as an array of its numbers."""
    x = as_array(x)
    return np.asarray(x) if hasattr(x, "columns") and not hasattr(x, "dask") else x


def column_names(frame: Any) -> list[Any]:
    """Names of the columns of a frame."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def class_names(x: Any, axis: int = -1) -> tuple[str, ...] | None:
    """What a frame or a labelled array calls the classes, as text; None where it has no names."""
    if _is_labelled(x):
        dim = x.dims[axis] if -x.ndim <= axis < x.ndim else None
        return tuple(map(_name, x.coords[dim].values.tolist())) if dim in x.coords else None
    if not hasattr(x, "columns"):
        return None
    if library_of(x) != "duckdb" and not hasattr(x, "dask") and list_column(x) is not None:
        return None
    return tuple(map(_name, column_names(x)))


def _name(name: Any) -> str:
    """A name as text; 2.0 and True, which frames make of 2 and 1, as these."""
    number = name.item() if isinstance(name, np.generic) else name
    return (
        str(int(number))
        if isinstance(number, int) or (isinstance(number, float) and number.is_integer())
        else str(name)
    )


def with_text_names(frame: Any) -> Any:
    """What scikit-learn is to read the names of columns from: the frame; an empty one with texts for whole numbers that say more
    than the places of the columns, for scikit-learn reads no names that are numbers."""
    names = column_names(frame)
    if all(isinstance(name, str) for name in names) or names == list(range(len(names))):
        return frame
    return sys.modules["pandas"].DataFrame(columns=list(map(_name, names)))


def _itself(x: Any) -> Any:
    return x


def _as_it_is(values: Any, given: Any, axis: int) -> Any:
    return values


def _stacked(entries: Any) -> np.ndarray:
    """Lists of one length as rows."""
    rows = [np.asarray(entry) for entry in entries]
    lengths = {row.shape for row in rows}
    if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
        first = next((i for i, row in enumerate(rows) if row.shape != rows[0].shape or row.ndim != 1), 0)
        raise InputError(
            f"X: row {first} of the column of lists has shape {rows[first].shape}, expected lists of numbers of one length, one "
            "number a class."
        )
    return np.stack(rows) if rows else np.zeros((0, 0))


def _entries(entries: Any) -> Any:
    """A column of numbers, or of lists; in the format of numpy, torch or jax an array already, unless rows differ in length."""
    if not isinstance(entries, list) and str(entries.dtype) != "object":
        return as_array(entries)
    entries = list(entries)
    return _stacked(entries) if entries and np.ndim(entries[0]) == 1 else np.asarray(entries)


# Columns that hold lists: a row each.


def list_column(frame: Any) -> Any:
    """The name of the only column of a frame where that holds lists; None else."""
    names = column_names(frame)
    if len(names) != 1 or not len(frame):
        return None
    entry = frame[names[0]][0] if library_of(frame) != "pandas" else frame[names[0]].iloc[0]
    entry = entry.as_py() if hasattr(entry, "as_py") else entry
    return names[0] if np.ndim(entry) == 1 and not isinstance(entry, str | bytes) else None


def _lists_like(values: np.ndarray, first: Any) -> list[Any]:
    return list(values) if values.ndim == 1 or isinstance(first, np.ndarray) else values.tolist()


# pandas


def _pandas_array(x: Any) -> Any:
    if type(x).__name__ == "Series":
        return _stacked(x) if len(x) and np.ndim(x.iloc[0]) == 1 else x
    name = list_column(x)
    return x if name is None else _stacked(x[name])


def _pandas_back(values: np.ndarray, x: Any, axis: int) -> Any:
    pandas = sys.modules["pandas"]
    series = type(x).__name__ == "Series"
    name = x.name if series else list_column(x)
    if values.ndim == 1:
        return pandas.Series(values, index=x.index)
    if not series and name is None:
        return pandas.DataFrame(values, index=x.index, columns=x.columns)
    column = x if series else x[name]
    found = pandas.Series(_lists_like(values, column.iloc[0]), index=x.index, name=name)
    return found if series else found.to_frame()


# polars


def _polars_array(x: Any) -> Any:
    if type(x).__name__ == "Series":
        return _stacked(x.to_list()) if _is_polars_list(x.dtype) else x.to_numpy()
    name = list_column(x)
    return x if name is None else _polars_array(x[name])


def _is_polars_list(dtype: Any) -> bool:
    return str(dtype).startswith(("List", "Array"))


def _polars_back(values: np.ndarray, x: Any, axis: int) -> Any:
    polars = sys.modules["polars"]
    if values.ndim == 1:
        return polars.Series(values)
    series = type(x).__name__ == "Series"
    name = x.name if series else list_column(x)
    if not series and name is None:
        return polars.DataFrame(values, schema=x.columns)
    dtype = (x if series else x[name]).dtype
    found = polars.Series(name, values.tolist(), dtype=_of_floats(polars, dtype, values))
    return found if series else found.to_frame()


def _of_floats(polars: Any, dtype: Any, values: np.ndarray) -> Any:
    """The same type of lists, of numbers that are not whole."""
    inner = polars.Float32 if values.dtype == np.float32 else polars.Float64
    return polars.List(inner) if str(dtype).startswith("List") else polars.Array(inner, values.shape[1])


# pyarrow


def _arrow_array(x: Any) -> Any:
    if hasattr(x, "column_names"):
        name = list_column(x)
        return x if name is None else _arrow_array(x.column(name))
    values = x.to_numpy(zero_copy_only=False) if hasattr(x, "buffers") else x.to_numpy()
    lists = str(x.type).startswith(("list", "large_list", "fixed_size_list"))
    return _stacked(values) if lists else values


def _arrow_back(values: np.ndarray, x: Any, axis: int) -> Any:
    arrow = sys.modules["pyarrow"]
    if values.ndim == 1:
        return arrow.array(values)
    table = hasattr(x, "column_names")
    name = list_column(x) if table else None
    if table and name is None:
        return type(x).from_arrays([arrow.array(column) for column in values.T], names=x.column_names)
    inner, width = arrow.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1]
    if str((x.column(name) if table else x).type).startswith("fixed_size_list"):
        found = arrow.FixedSizeListArray.from_arrays(inner, width)
    else:
        found = arrow.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32) * width, inner)
    if table:
        return type(x).from_arrays([found], names=[name])
    return arrow.chunked_array([found]) if hasattr(x, "chunks") else found


# DuckDB


def _duckdb_array(x: Any) -> Any:
    frame = x.df()
    return _pandas_array(frame if len(x.columns) > 1 else frame[x.columns[0]])


def _duckdb_back(values: np.ndarray, x: Any, axis: int) -> Any:
    pandas = sys.modules["pandas"]
    if values.ndim == 2 and len(x.columns) > 1:
        return pandas.DataFrame(values, columns=x.columns)
    return pandas.Series(list(values))


# Arrays of other libraries


def _xarray_back(values: Any, x: Any, axis: int) -> Any:
    if values.ndim == x.ndim:
        return x.copy(data=values)
    return x.isel({x.dims[axis]: 0}, drop=True).copy(data=values)


@dataclass(frozen=True)
class ClassDim:
    """What a labelled array calls its classes.

    Attributes
    ----------
    name : str or None
        Of the dimension; None where it is a number of xarray's, such as ``dim_1``.
    classes : DataFrame or None
        An empty frame whose columns are the coordinates of the dimension, for scikit-learn to compare; None where there are none.
    """

    name: str | None
    classes: Any

    @classmethod
    def of(cls, x: Any, axis: int) -> ClassDim | None:
        """The dimension of the classes; None where ``x`` is no labelled array, or has no such axis."""
        if not _is_labelled(x) or not -x.ndim <= axis < x.ndim:
            return None
        dim = x.dims[axis]
        names = [str(name) for name in x.coords[dim].values.tolist()] if dim in x.coords else []
        told = bool(names) and len(set(names)) == len(names)
        return cls(_given_name(dim), sys.modules["pandas"].DataFrame(columns=names) if told else None)


def _is_labelled(x: Any) -> bool:
    return library_of(x) == "xarray" and hasattr(x, "dims")


def _given_name(dim: Any) -> str | None:
    """The name of a dimension as the caller gave it; None for those that xarray makes up."""
    name = str(dim)
    return None if name.startswith("dim_") and name[4:].isdecimal() else name


def in_dims_of(x: Any, values: Any, axis: int, name: str, of: str = "X") -> Any:
    """Labels or weights with their dimensions in the order of those of ``x``, by name; as they are where one has no names.

    Where the two share a name, and it is in another place, places cannot be told by their order.
    """
    if not (_is_labelled(x) and _is_labelled(values) and -x.ndim <= axis < x.ndim):
        return values
    lead = [dim for i, dim in enumerate(x.dims) if i != axis % x.ndim]
    if set(values.dims) == set(lead):
        return values.transpose(*lead)
    shared = [dim for dim in values.dims if _given_name(dim) is not None and dim in x.dims]
    if any(dim not in lead or lead.index(dim) != values.dims.index(dim) for dim in shared):
        raise InputError(
            f"{name} has the dimensions {values.dims} and {of} has {x.dims}, of which {x.dims[axis]!r} is that of the classes: "
            f"give {name} the dimensions {tuple(lead)}."
        )
    return values


def _jax_array(x: Any) -> np.ndarray:
    try:
        return np.asarray(x)
    except sys.modules["jax"].errors.TracerArrayConversionError as error:
        raise InputError(
            "X: jax is tracing a function (jit, vmap, grad), so that there are no numbers yet, and calibrators compute on the "
            "host. Call it outside of the function, or use to_onnx() or to_torch() for a map that runs elsewhere."
        ) from error


def _jax_back(values: np.ndarray, x: Any, axis: int) -> Any:
    jax = sys.modules["jax"]
    return jax.device_put(values.astype(jax.dtypes.canonicalize_dtype(values.dtype)), x.sharding)


def _cupy_back(values: np.ndarray, x: Any, axis: int) -> Any:
    with x.device:
        return sys.modules["cupy"].asarray(values)


PLAIN = Kind("numpy", (), _itself, _as_it_is)
KINDS = (
    Kind("pandas", ("DataFrame", "Series"), _pandas_array, _pandas_back),
    Kind("polars", ("DataFrame", "Series"), _polars_array, _polars_back),
    Kind("pyarrow", (), _arrow_array, _arrow_back),
    Kind("xarray", ("DataArray",), lambda x: x.data, _xarray_back),
    Kind("jax", (), _jax_array, _jax_back),
    Kind("jaxlib", (), _jax_array, _jax_back),
    Kind("cupy", ("ndarray",), lambda x: x.get(), _cupy_back),
    # A column of a Hugging Face dataset is read; it cannot be made.
    Kind("datasets", ("Column",), lambda x: _entries(x[:]), _as_it_is),
    # So is a relation of DuckDB, whose rows a query makes; results are a frame of pandas, or a column.
    Kind("duckdb", ("DuckDBPyRelation",), _duckdb_array, _duckdb_back),
)
