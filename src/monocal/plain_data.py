"""A calibrator as plain data for JSON, and back: parameters, and every attribute that ends in ``_``.

Numbers are written in the shortest decimal form that reads back to the same bits, so a calibrator made again gives the same
probabilities to the last bit. What JSON lacks is tagged with a ``$`` name: ``$array``, ``$scalar`` (a numpy number: it promotes
unlike a Python one), ``$float`` (inf, nan), ``$tuple``, ``$dict``, ``$object`` (a dataclass of monocal) and ``$calibrator`` (one
inside another). Reading makes numbers, such records and calibrators; no data can name other code.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import __version__
from .calibrators import Calibrator
from .errors import FileError, InputError
from .fitted_state import check_state

_STATE_NAME = re.compile(r"[A-Za-z]\w*_")
# Characters of a string in an array: numpy makes room for as many in every entry.
_LONGEST_STRING = 1 << 16


def contents_of(calibrator: Calibrator) -> dict[str, Any]:
    """Parameters and what was learnt, if it was."""
    state = {name: value for name, value in vars(calibrator).items() if _STATE_NAME.fullmatch(name)}
    return {
        "parameters": {k: encode(v, k) for k, v in calibrator.get_params(deep=False).items()},
        "state": {name: encode(value, name) for name, value in state.items()},
    }


def restored(name: str, contents: Mapping[str, Any], where: str) -> Calibrator:
    """A calibrator from its parameters and what it had learnt."""
    kind = _find_class(name, where)
    calibrator = kind(**{name: decode(value) for name, value in contents["parameters"].items()})
    for name, value in contents["state"].items():
        if not _STATE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no fitted attribute")
        setattr(calibrator, name, decode(value))
    if contents["state"]:  # a stage of another calibrator may be there without having been fitted
        check_state(calibrator)
    return calibrator


def class_name(kind: type) -> str:
    """The bare name for monocal's own classes; ``module:name`` for those of others."""
    own = kind.__module__.partition(".")[0] == __package__
    return kind.__qualname__ if own else f"{kind.__module__}:{kind.__qualname__}"


def _find_class(name: str, where: str) -> type[Calibrator]:
    """A calibrator of monocal, or one that is defined already: a file cannot make Python import anything else."""
    from . import registry  # noqa: F401  defines all of monocal's own; not needed to save

    waiting: list[type[Calibrator]] = Calibrator.__subclasses__()
    while waiting:
        kind = waiting.pop()
        if class_name(kind) == name:
            return kind
        waiting += kind.__subclasses__()
    module = name.partition(":")[0] if ":" in name else ""
    what_to_do = (
        f"import {module} before loading" if module else "upgrade with  pip install --upgrade monocal"
    )
    raise FileError(
        f"{where} holds a {name.rpartition(':')[2]}, which is not known here (monocal {__version__}): {what_to_do}"
    )


def _find_record(name: str) -> Any:
    """A dataclass of monocal by its bare name, wherever it lives by now."""
    for module in [module for path, module in sys.modules.items() if path.startswith(f"{__package__}.")]:
        found = vars(module).get(name)
        if dataclasses.is_dataclass(found) and isinstance(found, type) and class_name(found) == name:
            return found
    raise ValueError(f"{name!r} is no record of monocal {__version__}")


def encode(value: Any, name: str) -> Any:
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, Calibrator):
        return {"$calibrator": class_name(type(value)), **contents_of(value)}
    if isinstance(value, np.generic):
        return {"$scalar": _dtype_name(value.dtype), "value": _items(np.asarray(value), name)}
    if isinstance(value, float):
        return value if np.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.ndarray):
        # The layout in memory is part of it: a matrix product of the transpose may round the last bit another way.
        columns_first = value.flags.f_contiguous and not value.flags.c_contiguous
        layout = {"order": "F"} if columns_first else {}
        return {
            "$array": _dtype_name(value.dtype),
            "shape": list(value.shape),
            **layout,
            "values": _items(value, name),
        }
    if isinstance(value, (list, tuple)):
        items = [encode(item, name) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item, f"{name}[{key!r}]") for key, item in value.items()}
        return {"$dict": [[encode(key, name), encode(item, name)] for key, item in value.items()]}
    record = class_name(type(value))
    if dataclasses.is_dataclass(value) and ":" not in record:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {"$object": record, **{k: encode(v, f"{name}.{k}") for k, v in fields.items()}}
    raise InputError(
        f"{name} is a {type(value).__name__}, which a saved calibrator cannot hold: it can hold numbers, strings, arrays, "
        f"lists and mappings. Use a built-in option for it, or pickle the calibrator."
    )


def _items(array: np.ndarray, name: str) -> Any:
    """Nested lists; floats that JSON cannot write become strings."""
    if _dtype_name(array.dtype) is None or not all(isinstance(item, str) for item in _objects(array)):
        raise InputError(f"{name} has dtype {array.dtype}, which a saved calibrator cannot hold.")
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    text = array.astype(object)
    odd = ~np.isfinite(array)
    text[odd] = [repr(float(item)) for item in array[odd]]
    return text.tolist()


def _objects(array: np.ndarray) -> Any:
    return array.flat if array.dtype == object else ()


def _dtype_name(dtype: np.dtype) -> str | None:
    """``float32``, ``int64``, ``bool``, ``<U5``, ``object`` (of strings only), or None for what files do not hold."""
    if dtype.kind == "U":
        return dtype.str
    return dtype.name if dtype.kind in "fiubO" and dtype.itemsize <= 8 else None


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), "")
    match tag:
        case "":
            return {key: decode(item) for key, item in value.items()}
        case "$float":
            return float(value[tag])
        case "$scalar":
            return _array(value[tag], (), value["value"])[()]
        case "$array":
            array = _array(value[tag], tuple(value["shape"]), value["values"])
            return np.asarray(array, order=value.get("order", "C"))
        case "$tuple":
            return tuple(decode(item) for item in value[tag])
        case "$dict":
            return {decode(key): decode(item) for key, item in value[tag]}
        case "$calibrator":
            return restored(value[tag], value, "the file")
        case "$object":
            kind = _find_record(value[tag])
            return kind(**{key: decode(item) for key, item in value.items() if key != tag})
    raise ValueError(f"{tag!r} is no tag of this format")


def _array(name: str, shape: tuple[int, ...], values: Any) -> np.ndarray:
    dtype = np.dtype(name)
    if _dtype_name(dtype) != name or dtype.itemsize > 4 * _LONGEST_STRING:
        raise ValueError(f"an array of {name!r} is not allowed")
    return np.array(values, dtype=dtype).reshape(shape)
