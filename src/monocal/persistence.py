"""Fitted calibrators as JSON files:  class, parameters, fitted state, data it was fitted on, checksum.

    {"format": "monocal calibrator", "format_version": 1, "monocal_version": "0.1.0",
     "class": "MCCT", "parameters": {...},
     "data": {"sha256": ..., "shape": [5000, 10], "dtype": "float32",
     "label_counts": [512, ...]} or null, "metrics": {...} or null,
     "state": {"weights_": {"$array": "float64", "shape": [10], "values": [...]}, ...},
     "checksum": "sha256:..."}

State is every attribute that ends in ``_``. Numbers are written in the shortest decimal form that reads back to the same bits,
so a loaded calibrator gives the same probabilities to the last bit. What JSON lacks is tagged with a ``$`` name: ``$array``,
``$scalar`` (a numpy number: it promotes unlike a Python one), ``$float`` (inf, nan), ``$tuple``, ``$dict``, ``$object`` (a
dataclass of monocal) and ``$calibrator`` (one inside another). Reading makes numbers, such records and calibrators, which check
themselves (`Calibrator.check_state`); no file can name other code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import __version__
from .arrays import to_numpy
from .calibrators import Calibrator
from .errors import FileError, InputError
from .inputs.layout import ROWS, Layout
from .io import atomic_path

FORMAT = "monocal calibrator"
_FORMAT_VERSION = 1
_STATE_NAME = re.compile(r"[A-Za-z]\w*_")
_BLOCK = 1 << 24  # bytes hashed at a time
_MOST_COUNTED = 1000  # classes whose labels are counted in the file
# What is read of a file at the most: a matrix for five thousand classes.
LARGEST_FILE = 1 << 29
# Characters of a string in an array: numpy makes room for as many in every entry.
_LONGEST_STRING = 1 << 16
# Parameters of earlier versions that mean nothing now.
_FORMER = {("MCCT", "solver"), ("MCCTInverse", "solver")}
_WHAT_TO_DO = "give the .json that save() or `monocal fit` wrote"


def save(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    *,
    data: Sequence[Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write a fitted calibrator to a JSON file, whole or not at all.

    Parameters
    ----------
    data : (X, y) or (X, y, sample_weight), optional
        The calibration data, to keep their `fingerprint` in the file, which costs a pass over the data.
    metrics : mapping, optional
        Figures to keep in the file, such as ``mc.evaluate(...).to_dict()``.
    force : bool, default=False
        Replace an existing file instead of refusing.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> path = mc.save(cal, "cal.json", data=(data.values, data.labels))
    >>> mc.load(path).predict_proba(data.values).shape
    (500, 5)
    """
    text = to_json(calibrator, data=data, metrics=metrics)
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that `save` wrote; its ``predict_proba`` equals that of the one saved, bit for bit.

    A file that is damaged, cut short, of another kind or from a newer monocal is a `FileError` that says which.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> path = cal.save("cal.json")
    >>> again = mc.load(path)
    >>> bool((again.predict_proba(data.values) == cal.predict_proba(data.values)).all())
    True
    """
    return from_json(_text(path), str(path))


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a saved calibrator says of itself: versions, class, parameters, fingerprint of its data, metrics at fit.

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> path = mc.TemperatureScaling().fit(data.values, data.labels).save("cal.json")
    >>> mc.persistence.describe(path)["class"]
    'TemperatureScaling'
    """
    document = _parse(_text(path), str(path))
    names = ("format_version", "monocal_version", "class", "parameters", "data", "metrics", "checksum")
    with _one_sentence(str(path)):
        decoded = {name: decode(document.get(name)) for name in ("parameters", "metrics")}
    return {name: document.get(name) for name in names} | decoded


def fingerprint(X: Any, y: Any, sample_weight: Any = None, *, layout: Layout = ROWS) -> dict[str, Any]:
    """SHA-256 of values, labels and weights in their types, the shape, and how often each of up to a thousand classes is the
    label; ``layout`` says where the classes are.

    The same rows in another order or another floating-point type have another fingerprint.

    Parameters
    ----------
    X, y, sample_weight
        As in ``fit``.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> first = mc.persistence.fingerprint(data.values, data.labels)
    >>> first == mc.persistence.fingerprint(data.values.copy(), data.labels)
    True
    """
    values = to_numpy(X)
    digest = hashlib.sha256(f"{values.dtype.str}{values.shape}".encode())
    step = max(1, _BLOCK // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        digest.update(np.ascontiguousarray(values[start : start + step]).data)
    labels = to_numpy(y)
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)  # not labelled, as -1 is
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    digest.update(labels.data)
    if sample_weight is not None:
        digest.update(np.ascontiguousarray(to_numpy(sample_weight), dtype=np.float64).data)
    result = {"sha256": digest.hexdigest(), "shape": list(values.shape), "dtype": str(values.dtype)}
    in_rows = values.ndim == 2 and labels.shape == values.shape[:1]
    n_classes = values.shape[-1 if in_rows else layout.class_axis]
    counted = labels[labels != layout.ignore_index] if layout.ignore_index is not None else labels
    of_classes = labels.shape != values.shape and n_classes <= _MOST_COUNTED
    if of_classes and ((counted >= 0) & (counted < n_classes)).all():
        result["label_counts"] = np.bincount(counted.ravel(), minlength=n_classes).tolist()
    return result


# Writing


def to_json(
    calibrator: Calibrator, *, data: Sequence[Any] | None = None, metrics: Mapping[str, Any] | None = None
) -> str:
    """The text of the file that `save` writes."""
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator must be one of monocal's, got {type(calibrator).__name__}.")
    check_is_fitted(calibrator)
    if data is not None and not 2 <= len(data) <= 3:
        raise InputError(f"data must be (X, y) or (X, y, sample_weight), got {len(data)} things.")
    contents = _contents(calibrator)
    try:
        calibrator.check_state()  # what could not be loaded must not be all that is left
    except ValueError as error:
        raise InputError(f"calibrator cannot be saved: {error}.") from error
    document = {
        "format": FORMAT,
        "format_version": _FORMAT_VERSION,
        "monocal_version": __version__,
        "class": _class_name(type(calibrator)),
        "parameters": contents["parameters"],
        "data": None if data is None else fingerprint(*data, layout=calibrator.reader.layout),
        "metrics": None if metrics is None else encode(dict(metrics), "metrics"),
        "state": contents["state"],
    }
    text = _lines(document | {"checksum": _checksum(document)}, levels=2) + "\n"
    if len(text) > LARGEST_FILE:
        raise InputError(
            f"The calibrator needs {len(text) >> 20} MB as JSON, more than the {LARGEST_FILE >> 20} MB that load() reads: "
            "pickle it."
        )
    return text


def _contents(calibrator: Calibrator) -> dict[str, Any]:
    """Parameters and what was learnt, if it was."""
    learnt = {name: value for name, value in vars(calibrator).items() if _STATE_NAME.fullmatch(name)}
    return {
        "parameters": {k: encode(v, k) for k, v in calibrator.get_params(deep=False).items()},
        "state": {name: encode(value, name) for name, value in learnt.items()},
    }


def encode(value: Any, name: str) -> Any:
    """A value as JSON can hold it; ``name`` is where it stands, for the message if it cannot."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, Calibrator):
        return {"$calibrator": _class_name(type(value)), **_contents(value)}
    if isinstance(value, np.generic):
        return {"$scalar": _dtype_name(value.dtype), "value": _items(np.asarray(value), name)}
    if isinstance(value, float):
        return value if np.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.ndarray):
        # The layout in memory is part of it: a matrix product of the transpose may round the last bit another way.
        columns_first = value.flags.f_contiguous and not value.flags.c_contiguous
        array = {"$array": _dtype_name(value.dtype), "shape": list(value.shape)}
        return array | ({"order": "F"} if columns_first else {}) | {"values": _items(value, name)}
    if isinstance(value, (list, tuple)):
        items = [encode(item, name) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item, f"{name}[{key!r}]") for key, item in value.items()}
        return {"$dict": [[encode(key, name), encode(item, name)] for key, item in value.items()]}
    record = _class_name(type(value))
    if dataclasses.is_dataclass(value) and ":" not in record:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {"$object": record, **{k: encode(v, f"{name}.{k}") for k, v in fields.items()}}
    raise InputError(
        f"{name} is a {type(value).__name__}, which a saved calibrator cannot hold: use numbers, strings, arrays, lists and "
        "mappings, or pickle the calibrator."
    )


def _items(array: np.ndarray, name: str) -> Any:
    """Nested lists; floats that JSON cannot write become strings."""
    objects = array.flat if array.dtype == object else ()
    if _dtype_name(array.dtype) is None or not all(isinstance(item, str) for item in objects):
        raise InputError(f"{name} has dtype {array.dtype}, which a saved calibrator cannot hold.")
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    text = array.astype(object)
    odd = ~np.isfinite(array)
    text[odd] = [repr(float(item)) for item in array[odd]]
    return text.tolist()


def _dtype_name(dtype: np.dtype) -> str | None:
    """``float32``, ``int64``, ``bool``, ``<U5``, ``object`` (of strings only), or None for what files do not hold."""
    if dtype.kind == "U":
        return dtype.str
    return dtype.name if dtype.kind in "fiubO" and dtype.itemsize <= 8 else None


def _class_name(kind: type) -> str:
    """The bare name for monocal's own classes; ``module:name`` for those of others."""
    own = kind.__module__.partition(".")[0] == __package__
    return kind.__qualname__ if own else f"{kind.__module__}:{kind.__qualname__}"


def _checksum(document: Mapping[str, Any]) -> str:
    """Of the content, not of its layout: spaces and the order of keys do not matter."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _lines(value: Any, levels: int) -> str:
    """JSON with a line for each entry of so many levels of mappings."""
    if not levels or not isinstance(value, dict) or not value:
        return json.dumps(value, allow_nan=False)
    end = "\n" + "  " * (2 - levels)
    entries = [f"{end}  {json.dumps(key)}: {_lines(item, levels - 1)}" for key, item in value.items()]
    return "{" + ",".join(entries) + end + "}"


# Reading


def from_json(text: str, where: str = "text") -> Calibrator:
    """The calibrator in a text that `to_json` made; ``where`` names it in messages."""
    document = _parse(text, where)
    with _one_sentence(where):
        if not document["state"]:
            raise FileError(
                f"{where} holds a calibrator that was never fitted: fit it, and write it again with save()."
            )
        return _restored(document["class"], document, where)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        status = os.stat(path)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a pipe may never end
            raise FileError(f"{path} is no plain file: {_WHAT_TO_DO}.")
        if status.st_size > LARGEST_FILE:
            raise FileError(
                f"{path} has more than {LARGEST_FILE >> 20} MB, which no saved calibrator has: {_WHAT_TO_DO}."
            )
        return Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise FileError(f"There is no file {path}: check the name and the folder.") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is no saved calibrator but something binary: {_WHAT_TO_DO}.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; check what it is.") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    if not text.strip():
        raise FileError(f"{where} is empty: write or copy it again.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{where} is no JSON that can be read: damaged, cut short or of another kind ({error}); write or copy it again."
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(f"{where} is JSON but no saved calibrator: {_WHAT_TO_DO}.")
    version = document.get("format_version")
    if type(version) is not int or version < 1:
        raise FileError(f"{where} has format version {version!r}: it is damaged; write it again.")
    if version > _FORMAT_VERSION:
        raise FileError(
            f"{where} was written by monocal {document.get('monocal_version')} in format {version}, and this monocal "
            f"{__version__} reads up to format {_FORMAT_VERSION}: upgrade with  pip install --upgrade monocal"
        )
    with _one_sentence(where):
        checksum = _checksum(document)
    if document.get("checksum") != checksum:
        raise FileError(
            f"{where} does not match its checksum: it was damaged or edited by hand; write or copy it again."
        )
    return document


@contextmanager
def _one_sentence(where: str) -> Iterator[None]:
    """Whatever a document's content makes go wrong is one sentence."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # a right checksum over wrong content: not written by save()
        raise FileError(
            f"{where} holds no calibrator that monocal {__version__} can make ({error}); write it again with save()."
        ) from error


def _restored(name: str, contents: Mapping[str, Any], where: str) -> Calibrator:
    """A calibrator from its parameters and what it had learnt."""
    parameters = {k: decode(v) for k, v in contents["parameters"].items() if (name, k) not in _FORMER}
    calibrator = _find_class(name, where)(**parameters)
    for name, value in contents["state"].items():
        if not _STATE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no fitted attribute")
        setattr(calibrator, name, decode(value))
    if contents["state"]:  # a stage of another calibrator may be there without having been fitted
        calibrator.check_state()
    return calibrator


def _find_class(name: str, where: str) -> type[Calibrator]:
    """A calibrator of monocal, or one that is defined already: a file cannot make Python import anything else."""
    waiting: list[type[Calibrator]] = Calibrator.__subclasses__()
    while waiting:
        kind = waiting.pop()
        if _class_name(kind) == name:
            return kind
        waiting += kind.__subclasses__()
    module, colon, bare = name.rpartition(":")
    advice = f"import {module} before loading" if colon else "upgrade with  pip install --upgrade monocal"
    raise FileError(f"{where} holds a {bare}, which is not known here (monocal {__version__}): {advice}")


@cache
def _find_record(name: str) -> Any:
    """A dataclass of monocal by its bare name, wherever it is by now."""
    for module in [module for path, module in sys.modules.items() if path.startswith(f"{__package__}.")]:
        record = vars(module).get(name)
        if dataclasses.is_dataclass(record) and isinstance(record, type) and _class_name(record) == name:
            return record
    raise ValueError(f"{name!r} is no record of monocal {__version__}")


def decode(value: Any) -> Any:
    """What `encode` made a value of."""
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
            return _restored(value[tag], value, "the file")
        case "$object":
            kind = _find_record(value[tag])
            return kind(**{key: decode(item) for key, item in value.items() if key != tag})
    raise ValueError(f"{tag!r} is no tag of this format")


def _array(name: str, shape: tuple[int, ...], values: Any) -> np.ndarray:
    dtype = np.dtype(name)
    if _dtype_name(dtype) != name or dtype.itemsize > 4 * _LONGEST_STRING:
        raise ValueError(f"an array of {name!r} is not allowed")
    return np.array(values, dtype=dtype).reshape(shape)
