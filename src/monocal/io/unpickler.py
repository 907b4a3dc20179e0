"""Pickled arrays without pickle's danger:  bytes -> inert records -> arrays.

A pickle is a program: it names callables and has them called. Here every name it may use stands for a
class of this file that only *records* its arguments, and any other name is refused, so that nothing of
NumPy or of the system is ever called by the file. Arrays are built afterwards from the checked records
(dtype, shape, bytes).
"""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from monocal.errors import FileError
from monocal.io.named_arrays import by_name


class _Refused(Exception):
    """The pickle asks for something other than plain numeric arrays."""


class _Record:
    """What a pickle may make; the class itself can be neither changed nor subclassed by it."""

    def __init__(self, *args: Any) -> None:
        self.args, self.state = args, tuple[Any, ...]()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Ndarray(_Record):
    """The class ``numpy.ndarray``, which array pickles mention."""


class _Dtype(_Record):
    """``dtype(code, ...)``, then the state ``(version, order, ...)``."""


class _Array(_Record):
    """``_reconstruct(ndarray, (0,), b'b')``, then the state ``(version, shape, dtype, fortran, data)``."""


class _ArrayFromBuffer(_Array):
    """``_frombuffer(data, dtype, shape, order)``, how pickle protocol 5 writes arrays."""


class _Encode(_Record):
    """``_codecs.encode(text, 'latin1')``, how protocol 2 writes bytes."""

    def __new__(cls, text: Any, encoding: Any) -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise _Refused("encodes something other than the bytes of an array")
        return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], type[_Record]] = {
    ("numpy", "ndarray"): _Ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode,
}
for _core in ("numpy.core", "numpy._core"):  # renamed in NumPy 2
    _ADMITTED[f"{_core}.multiarray", "_reconstruct"] = _Array
    _ADMITTED[f"{_core}.numeric", "_frombuffer"] = _ArrayFromBuffer


# The unpickler written in Python. Unlike the one in C, it does not reserve memory just because a file
# claims to need it. One instruction does so all the same, and is replaced here.
class _ArraysOnly(pickle._Unpickler):
    def load_bytearray8(self: Any) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: load_bytearray8}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _Refused(f"asks for {module}.{name}")
        return _ADMITTED[module, name]

    def get_extension(self, code: int) -> None:
        raise _Refused(f"asks for the registered extension {code}")


def _built(record: _Array) -> np.ndarray:
    if isinstance(record, _ArrayFromBuffer):
        data, dtype, shape, order = record.args
    else:
        shape, dtype, fortran, data = record.state[-4:]
        order = "F" if fortran else "C"
    if not isinstance(dtype, _Dtype):
        raise _Refused("holds an array without a dtype")
    code = f"{dtype.state[1] if dtype.state else '='}{dtype.args[0]}"
    if not re.fullmatch(r"[<>=|]([fiu][1248]|b1)", code):
        raise _Refused(f"holds an array of dtype {code}; expected plain numbers")
    if isinstance(data, str):  # Python 2 kept bytes in str
        data = data.encode("latin1")
    plain = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not plain or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise _Refused("holds an array whose shape or contents are not plain")
    if math.prod(shape) * np.dtype(code).itemsize != len(data):
        raise _Refused(f"holds an array of shape {shape} with {len(data)} bytes, which do not fit")
    return np.frombuffer(data, code).reshape(shape, order=order)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a pickle; anything else in it is refused before it could run."""
    try:
        # From memory: reading from a file would reserve as many bytes as the pickle claims to hold.
        content = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        arrays = by_name(content, lambda one: isinstance(one, _Array), path.stem)
        if not arrays:
            raise _Refused(f"holds a {type(content).__name__} of another shape than arrays or pairs of them")
        return {name: _built(array) for name, array in arrays.items()}
    except _Refused as refusal:
        raise FileError(
            f"{path} was refused and nothing in it was run: it {refusal}; save the arrays with numpy.savez."
        ) from refusal
