"""Pickled arrays without pickle's danger:  bytes -> inert descriptions -> arrays.

A pickle is a program: it names callables and has them called. Here every name it may use stands for a class of this file that
only *records* its arguments, and any other name is refused, so that nothing of NumPy or of the system is ever called by the file.
Arrays are built afterwards from the checked records (dtype, shape, bytes).
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
    """What a pickle may make: something that can be neither called, nor changed, nor subclassed by it."""

    def __setstate__(self, state: Any) -> None:
        raise _Refused("sets the state of something that is no array")


class _NdarrayName(_Record):
    """Stands for the class ``numpy.ndarray``, which array pickles mention and never call themselves."""

    def __init__(self, *args: Any) -> None:
        raise _Refused("calls numpy.ndarray")


class _Dtype(_Record):
    def __init__(self, code: Any, *flags: Any) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def build(self) -> np.dtype:
        if not (isinstance(self.code, str) and re.fullmatch(r"[fiu][1248]|b1", self.code)):
            raise _Refused(f"holds an array of dtype {self.code!r}; expected plain numbers")
        if self.order not in ("<", ">", "=", "|"):
            raise _Refused(f"holds an array of byte order {self.order!r}")
        return np.dtype(f"{self.order}{self.code}")


class _Array(_Record):
    """``_reconstruct(ndarray, (0,), b'b')``, then the state ``(version, shape, dtype, fortran, data)``."""

    def __init__(self, *args: Any) -> None:
        self.parts: tuple[Any, ...] = (None, None, None, None)

    def __setstate__(self, state: Any) -> None:
        shape, dtype, fortran, data = state[-4:]
        self.parts = (shape, dtype, "F" if fortran else "C", data)

    def build(self) -> np.ndarray:
        shape, dtype, order, data = self.parts
        if not isinstance(dtype, _Dtype):
            raise _Refused("holds an array without a dtype")
        if isinstance(data, str):  # Python 2 kept bytes in str
            data = data.encode("latin1")
        numpy_dtype = dtype.build()
        plain = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not plain or not isinstance(data, bytes | bytearray):
            raise _Refused("holds an array whose shape or contents are not plain")
        if math.prod(shape) * numpy_dtype.itemsize != len(data) or order not in ("C", "F"):
            raise _Refused(f"holds an array of shape {shape} with {len(data)} bytes, which do not fit")
        return np.frombuffer(data, numpy_dtype).reshape(shape, order=order)


class _ArrayFromBuffer(_Array):
    """``_frombuffer(data, dtype, shape, order)``, how pickle protocol 5 writes arrays."""

    def __init__(self, data: Any, dtype: Any, shape: Any, order: Any) -> None:
        self.parts = (shape, dtype, order, data)


class _Encode(_Record):
    """``_codecs.encode(text, 'latin1')``, how protocol 2 writes bytes."""

    def __new__(cls, text: Any, encoding: Any) -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise _Refused("encodes something other than the bytes of an array")
        return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], type[_Record]] = {
    ("numpy", "ndarray"): _NdarrayName,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode,
}
for _core in ("numpy.core", "numpy._core"):  # renamed in NumPy 2
    _ADMITTED[f"{_core}.multiarray", "_reconstruct"] = _Array
    _ADMITTED[f"{_core}.numeric", "_frombuffer"] = _ArrayFromBuffer


# The unpickler written in Python. Unlike the one in C, it does not reserve memory just because a file claims to need it. One
# instruction does so all the same, and is replaced here.
class _ArraysOnly(pickle._Unpickler):
    def load_bytearray8(self: Any) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: load_bytearray8}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _Refused(f"asks for {module}.{name}") from None

    def get_extension(self, code: int) -> None:
        raise _Refused(f"asks for the registered extension {code}")

    def persistent_load(self, pid: Any) -> None:
        raise _Refused("asks for a persistent object")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a pickle; anything else in it is refused before it could run."""
    try:
        # From memory: reading from a file would reserve as many bytes as the pickle claims to hold.
        content = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        arrays = by_name(content, lambda one: isinstance(one, _Array), path.stem)
        if not arrays:
            raise _Refused(
                f"holds a {type(content).__name__} of another shape than ((logits_val, y_val), (logits_test, y_test))"
            )
        return {name: array.build() for name, array in arrays.items()}
    except _Refused as refusal:
        raise FileError(
            f"{path} was refused and nothing in it was run: it {refusal}, and pickles are admitted only "
            f"when they hold numeric numpy arrays; save the arrays with numpy.savez instead."
        ) from refusal
