"""The gate of the metrics: anything array-like in, numpy out, or an `InputError` that says what to do.

Probability rows must be non-negative and sum to one within ``max(1e-4, sqrt(eps))`` of the dtype they came in
(bf16 rows may be off by 9 %, float32 rows by 0.03 %); they are used as they are, never renormalised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

BLOCK_ENTRIES = 1 << 17  # entries of a float64 row block: 1 MiB, so a block stays in cache while it is used

_EPS_BFLOAT16 = 2.0**-7


def to_numpy(values: Any, name: str) -> tuple[NDArray[Any], float]:
    """Array of a numpy-readable dtype, and the machine epsilon of the dtype the values came in."""
    if type(values).__module__.partition(".")[0] == "torch":
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):
            return values.float().numpy(), _EPS_BFLOAT16
        values = values.numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if np.ma.is_masked(values):
        raise InputError(f"{name}: holds masked values: drop those rows first")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: expected an array, got rows of unequal length ({error})") from None
    if array.dtype.name == "bfloat16":  # the numpy extension type of ml_dtypes
        return array.astype(np.float32), _EPS_BFLOAT16
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name}: expected numbers, got dtype object: convert it first") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: expected real numbers, got dtype {array.dtype}")
    return array, float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


def as_matrix(values: Any, name: str) -> tuple[NDArray[Any], float]:
    """Two-dimensional array of at least one row and two columns, and its machine epsilon."""
    array, eps = to_numpy(values, name)
    if array.ndim != 2 or array.shape[1] < 2:
        hint = (
            f"for two classes and p = P(class 1) give np.column_stack([1 - {name}, {name}])"
            if array.ndim == 1 or array.shape[-1] == 1
            else "give one row a sample and one column a class"
        )
        raise InputError(f"{name}: expected shape (n, m) with m >= 2 classes, got {array.shape}: {hint}")
    if array.shape[0] == 0:
        raise InputError(f"{name}: expected at least one row, got {array.shape}")
    return array, eps


def sum_tolerance(eps: float) -> float:
    """How far from one a row of probabilities of this machine epsilon may sum."""
    return max(1e-4, eps**0.5)


def check_probability_block(block: NDArray[np.float64], first_row: int, tolerance: float, name: str) -> None:
    """Raise unless every row of the block is a probability vector."""
    sums = block.sum(axis=1)
    bad = ~(np.abs(sums - 1) <= tolerance) | (block.min(axis=1) < 0)
    if not bad.any():
        return
    row = int(np.argmax(bad))
    if np.isnan(block[row]).any():
        what = "holds NaN"
    elif block[row].min() < 0:
        what = f"holds the negative value {block[row].min():.6g}"
    else:
        what = f"sums to {sums[row]:.6g}"
    raise InputError(
        f"{name}: expected non-negative rows that sum to one, but row {first_row + row} {what} "
        f"({int(bad.sum())} such rows in the block from row {first_row}): logits need a softmax first, for "
        "instance scipy.special.softmax(logits, axis=1)"
    )


def as_labels(labels: Any, n: int, m: int, name: str = "labels") -> NDArray[np.int64]:
    """Integer labels of shape (n,) in 0 .. m - 1."""
    array, _ = to_numpy(labels, name)
    if array.shape != (n,):
        hint = (
            ": give class numbers, not one-hot rows (labels.argmax(axis=1))" if array.shape == (n, m) else ""
        )
        raise InputError(f"{name}: expected shape ({n},), one label a row, got {array.shape}{hint}")
    with np.errstate(invalid="ignore"):
        integers = array.astype(np.int64)
    bad = (integers != array) | (integers < 0) | (integers >= m)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name}: expected class numbers from 0 to {m - 1}, got {array[row]} in row {row} "
            f"({int(bad.sum())} such rows): number the classes as the columns are"
        )
    return integers


def as_weights(sample_weight: Any, n: int, name: str = "sample_weight") -> NDArray[np.float64]:
    """Non-negative finite weights of shape (n,), ones when None."""
    if sample_weight is None:
        return np.ones(n)
    array, _ = to_numpy(sample_weight, name)
    if array.shape != (n,):
        raise InputError(f"{name}: expected shape ({n},), one weight a row, got {array.shape}")
    weights = array.astype(np.float64)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name}: expected finite non-negative weights, got {array[row]} in row {row}")
    if not weights.sum() > 0:
        raise InputError(f"{name}: all {n} weights are zero: at least one must be positive")
    return weights


def as_count(value: Any, name: str, least: int = 1) -> int:
    """An integer not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return int(value)


def as_fraction(value: Any, name: str) -> float:
    """A number strictly between zero and one."""
    if not 0 < value < 1:
        raise InputError(f"{name}: expected a number between 0 and 1, got {value!r}")
    return float(value)
