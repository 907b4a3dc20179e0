"""What depends on the array library: one small vocabulary for numpy and torch.

Everything here takes and returns arrays of the caller's own library and device. The rest of the package
writes ordinary array-API code and comes here for the few operations the standard lacks, and for those that must be exact
in the last bit: `ordered_softmax`, `ordered_log`, `keep_argmax`, whose rounding can never swap two classes.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import array_api_compat
import numpy as np

from .errors import warn

if TYPE_CHECKING:
    import torch


# An array of numpy or torch, and the functions of its library under the names of the array API standard.
Array: TypeAlias = Any
Namespace: TypeAlias = Any

_NAMESPACES: dict[type | None, Namespace] = {np.ndarray: array_api_compat.array_namespace(np.zeros(0))}


def array_namespace(*arrays: Array | None) -> Namespace:
    """The library that the arrays belong to."""
    # The short way, for the many small calls.
    kind = type(arrays[0]) if len(arrays) == 1 else None
    if kind in _NAMESPACES:
        return _NAMESPACES[kind]
    library: Namespace = array_api_compat.array_namespace(*arrays)
    if kind is not None and is_torch(arrays[0]):
        _NAMESPACES[kind] = library
    return library


def is_torch(x: object) -> TypeGuard[torch.Tensor]:
    """Whether ``x`` is a torch tensor, without importing torch."""
    return type(x) is not np.ndarray and "torch" in sys.modules and array_api_compat.is_torch_array(x)


def is_plain_rows(x: Any) -> bool:
    """Whether ``x`` is an array (n, m) in memory, so that there is nothing to find out: a numpy array that owns its numbers, a
    part of one, or a tensor."""
    if type(x) is not np.ndarray:
        return is_torch(x) and x.ndim == 2
    owner = x if x.base is None else x.base
    return x.ndim == 2 and type(owner) is np.ndarray and owner.base is None


def is_dask(x: object) -> bool:
    """Whether ``x`` is a Dask array, without importing dask."""
    return "dask.array" in sys.modules and isinstance(x, sys.modules["dask.array"].Array)


def to_numpy(x: Array) -> np.ndarray:
    """Copy a (small) array to numpy; bfloat16, which numpy lacks, becomes float32."""
    if is_torch(x):
        tensor = x.detach()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        return tensor.cpu().numpy()
    return np.asarray(x)


def to_numpy_together(xs: list[Array]) -> list[np.ndarray]:
    """Several small arrays of one type to numpy, at once: a device makes one wait each time."""
    if not is_torch(xs[0]):
        return [np.asarray(x) for x in xs]
    xp = array_namespace(xs[0])
    flat = to_numpy(xp.concat([xp.reshape(x, (-1,)) for x in xs]))
    ends = np.cumsum([np.prod(x.shape, dtype=np.intp) for x in xs])
    return [part.reshape(x.shape) for part, x in zip(np.split(flat, ends[:-1]), xs, strict=True)]


def compute_dtype(x: Array) -> Any:
    """float64 stays float64; everything narrower is computed in float32."""
    xp = array_namespace(x)
    return xp.float64 if x.dtype == xp.float64 else xp.float32


def widened(x: Array) -> Array:
    """Half precision of numpy in single, anything else as it is: numpy's sort of float16 may misplace values among many."""
    return np.asarray(x, dtype=np.float32) if not is_torch(x) and x.dtype == np.float16 else x


def running_maximum(x: Array) -> Array:
    """Cumulative maximum along the last axis."""
    return x.cummax(dim=-1).values if is_torch(x) else np.maximum.accumulate(x, axis=-1)


def device_of(x: Array) -> dict[str, Any]:
    """Keyword for a creation function, so that the new array lies on the device of ``x``."""
    return {"device": x.device} if is_torch(x) else {}


def on_host(x: Array) -> bool:
    """Whether an array lies in the memory of the CPU."""
    return not is_torch(x) or x.device.type == "cpu"


def takes_triton(x: Array) -> bool:
    """Whether kernels written in Triton can read an array: a tensor on a CUDA device, where torch came with Triton."""
    return bool(getattr(x, "is_cuda", False)) and _has_triton(str(x.device))


@cache
def _has_triton(device: str) -> bool:
    """Whether Triton is there, and works: it needs a compiler, and a device that is not too old."""
    if find_spec("triton") is None:
        return False
    try:
        import torch
        import triton
        import triton.language as tl

        @triton.jit
        def one(x):
            tl.store(x, 1.0)

        with torch.cuda.device(device):
            one[(1,)](torch.zeros(1, device=device))
    # A compiler, a driver or a linker may fail. Their errors have no common type, and fits have another way.
    except Exception as error:
        warn(f"Triton cannot be used ({error}): fits on this device take the slower way.", RuntimeWarning)
        return False
    return True


def on_device_of(x: Any, other: Array) -> Array:
    """A host array in its own type, in the library and on the device of ``other``."""
    return array_namespace(other).asarray(x, device=other.device) if is_torch(other) else x


def like(x: np.ndarray, other: Array) -> Array:
    """A small host array in the library, type and device of ``other``."""
    if is_torch(other):
        import torch

        return torch.as_tensor(np.ascontiguousarray(x), device=other.device).to(other.dtype)
    return np.asarray(x, dtype=other.dtype)


def distinct(x: np.ndarray, *more: int) -> np.ndarray:
    """Few whole numbers, and some more, sorted, each once: several times faster than ``np.unique``."""
    return np.array(sorted({*x.tolist(), *more}), dtype=np.intp)


# In place, where a new array would cost as much as the arithmetic.


def exp_(x: Array) -> Array:
    """``x = exp(x)``."""
    return x.exp_() if is_torch(x) else np.exp(x, out=x)


def clip_(x: Array, low: Array | float, high: float) -> Array:
    """``x = minimum(maximum(x, low), high)``."""
    if not is_torch(x):
        return np.minimum(np.maximum(x, low, out=x), high, out=x)
    return x.clamp_(min=low).clamp_(max=high)


def scatter(values: Array, index: Array) -> Array:
    """``out[row, index[row, j]] = values[row, j]``, where every row of ``index`` is a permutation."""
    if is_torch(values):
        import torch

        return torch.empty_like(values).scatter_(1, index, values)
    out = np.empty_like(values)
    np.put_along_axis(out, index, values, axis=1)
    return out


def sort_with_index(x: Array) -> tuple[Array, Array]:
    """Rows sorted ascending, and the permutation that sorts them."""
    if is_torch(x):
        return x.sort(dim=1)
    index = np.argsort(x, axis=1)
    return np.take_along_axis(x, index, axis=1), index


# A library's exp is accurate to a few units in the last place but need not be monotone there. On a grid so coarse
# that neighbours differ by more than the error, it must be: 2^-20 is 8 units of float32, 2^-48 is 16 of float64.
EXP_GRID = {"float32": 2.0**20, "float64": 2.0**48}
GRID_OF_SIZE = {4: EXP_GRID["float32"], 8: EXP_GRID["float64"]}


def ordered_exp(x: Array) -> Array:
    """``exp(x)`` for ``x <= 0``, never decreasing in ``x``, equal for equal ``x``.

    The argument is rounded to a grid on which neighbouring values of exp differ by at least eight units in the
    last place, more than twice the error of any exp in use. The rounding moves a value by 5e-7 of itself in
    float32 and 2e-15 in float64 at most.
    """
    with np.errstate(over="ignore", under="ignore"):
        grid = GRID_OF_SIZE[x.dtype.itemsize]
        x = x * grid
        x = x.round_() if is_torch(x) else np.rint(x, out=x)
        x *= 1.0 / grid
        return exp_(x)


def ordered_softmax(f: Array) -> Array:
    """Softmax over the last axis that keeps order and ties exactly; ``-inf`` gives 0."""
    with np.errstate(over="ignore", under="ignore"):
        e = ordered_exp(f - array_namespace(f).max(f, axis=-1, keepdims=True))
        e *= 1.0 / row_sums(e)
        return e


# Up to so many classes it pays to lay rows out class by class: operations then run along thousands of rows.
FEW_CLASSES = 48
# Up to so many classes, adding one after another is as exact as adding in pairs, and three times as fast.
_SHORT = 512
# Up to so many rows one call along the classes costs less than a call for each class.
_FEW_ROWS = 32


def by_class(z: np.ndarray) -> np.ndarray:
    """Rows of few classes laid out class by class in memory, other rows as they are."""
    return np.asfortranarray(z) if z.shape[1] <= FEW_CLASSES else z


def row_sums(x: Any) -> Any:
    """Sums over the classes (n, 1), each in an order that does not depend on how many rows there are or how they lie."""
    m = x.shape[-1]
    if type(x) is not np.ndarray:
        if not on_host(x):
            return x.sum(-1, keepdim=True, dtype=array_namespace(x).float64).to(x.dtype)
        # A library adds in the order in which numbers lie.
        return array_namespace(x).sum(x.contiguous() if is_torch(x) else x, axis=-1, keepdims=True)
    if x.ndim == 2 and m <= FEW_CLASSES:
        if len(x) <= _FEW_ROWS:
            return np.add.accumulate(x, axis=1)[:, -1:]
        total = x[:, :1].copy()
        for j in range(1, m):
            total += x[:, j : j + 1]
        return total
    x = np.ascontiguousarray(x)
    if x.ndim != 2 or m > _SHORT:
        return x.sum(axis=-1, keepdims=True)
    return np.einsum("ij->i", x)[:, None]


def ordered_log(p: np.ndarray) -> np.ndarray:
    """``log(p)`` for ``p >= 0`` in double precision, never decreasing in ``p``, equal for equal ``p``; 0 gives ``-inf``.

    ``p = mantissa * 2^e``. The mantissa is rounded to a grid on which its logarithm must increase, and the sum with
    ``e log 2`` is kept between the logarithms of the two powers of two around ``p``.
    """
    mantissa, exponent = np.frexp(np.asarray(p, dtype=np.float64))
    with np.errstate(divide="ignore"):
        value = np.log(np.round(mantissa * EXP_GRID["float64"]) / EXP_GRID["float64"])
    upper = exponent * np.log(2.0)
    lower = (exponent - 1) * np.log(2.0)
    value += upper
    np.clip(value, lower, upper, out=value)
    return np.where(mantissa == 0, -np.inf, value)


def keep_argmax(values: Array, logits: Array) -> Array:
    """Lift the top of a row by one unit where rounding has made it equal to a lower class. In place."""
    xp = array_namespace(values)
    other = xp.argmax(values, axis=1) != xp.argmax(logits, axis=1)
    if bool(xp.any(other)):
        moved = xp.nonzero(other)[0]
        rows = values[moved, :]
        z = logits[moved, :]
        top = z == xp.max(z, axis=1, keepdims=True)
        most = xp.max(rows, axis=1, keepdims=True)
        values[moved, :] = xp.where(top, xp.nextafter(most, xp.full_like(most, float("inf"))), rows)
    return values
