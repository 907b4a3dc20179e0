"""The one gate for logits, labels and weights.

What comes in may be a numpy array, a list, a pandas frame or a torch tensor. What leaves the gate is a floating-point array
of its own library, checked, together with a way to give results back in the form the caller used. Checks cost one pass
over the data; what is wrong is looked up in detail only once something is.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array, array_namespace, is_lazy_torch, to_numpy
from .errors import InputError


@dataclass(frozen=True)
class Given:
    """Checked values and how to hand back results in the caller's own form."""

    values: Array
    restore: Callable[[Array], Any]


def read_matrix(x: Any, name: str = "X") -> Given:
    """A two-dimensional floating-point array (n, m) from whatever the caller has."""
    if is_lazy_torch(x):
        if not x.dtype.is_floating_point:
            x = x.double() if not x.is_complex() else _complain(f"{name}: Complex data not supported.")
        values: Array = x.detach()
        restore: Callable[[Array], Any] = _as_is
    else:
        frame = x if _is_frame(x) else None
        values = _to_float(x, name)
        restore = _as_is if frame is None else _framer(frame)
    if values.ndim != 2:
        raise InputError(
            f"{name} must be two-dimensional, one row a sample and one column a class, but has shape "
            f"{tuple(values.shape)}. Reshape your data, for a single sample with {name}.reshape(1, -1)."
        )
    if values.shape[0] == 0 or values.shape[1] == 0:
        what = "sample(s)" if values.shape[0] == 0 else "feature(s)"
        raise InputError(
            f"{name}: found array with 0 {what} (shape={tuple(values.shape)}) while a minimum of 1 is required."
        )
    return Given(values, restore)


def check_logits(x: Any, name: str = "X", first_row: int = 0) -> Given:
    """Logits (n, m): no NaN, no +inf, at least one finite value a row; ``-inf`` marks a class as not available.

    Rows may be a part of more: the first has number ``first_row`` in messages.
    """
    given = read_matrix(x, name)
    z = given.values
    xp = array_namespace(z)
    with np.errstate(over="ignore", invalid="ignore"):
        fine = bool(xp.isfinite(xp.sum(z)))
    if not fine:
        repair, leave = "Remove or repair such rows first.", "Leave at least one class available."
        only = "Only -inf is allowed (the class is not available in that row)."
        _reject_rows(xp.any(xp.isnan(z), axis=1), name, "contains NaN", repair, first_row)
        _reject_rows(xp.any(z == np.inf, axis=1), name, "contains infinity", only, first_row)
        _reject_rows(xp.all(z == -np.inf, axis=1), name, "has -inf for every class", leave, first_row)
    return given


def check_probabilities(x: Any, name: str = "X", first_row: int = 0) -> Given:
    """Probabilities (n, m): non-negative rows that sum to one."""
    given = read_matrix(x, name)
    p = given.values
    xp = array_namespace(p)
    total = xp.sum(xp.astype(p, xp.float64) if p.dtype != xp.float64 else p, axis=1)
    narrow = str(p.dtype).rpartition(".")[2] in ("float16", "bfloat16")
    off = abs(total - 1.0) > (2e-2 if narrow else 1e-3)
    hint = "For logits use input='logits'."
    repair, between = "Remove or repair such rows first.", "Probabilities lie between 0 and 1."
    _reject_rows(xp.any(xp.isnan(p), axis=1), name, "contains NaN", repair, first_row)
    _reject_rows(xp.any(xp.isinf(p), axis=1), name, "contains infinity", between, first_row)
    _reject_rows(xp.any(p < 0, axis=1), name, "has a negative probability", hint, first_row)
    row = _first(off)
    if row is not None:
        raise InputError(
            f"{name}: the probabilities of row {first_row + row} sum to {float(total[row]):.6g}, expected 1. {hint}"
        )
    return given


def check_labels(y: Any, like: Array, name: str = "y", first_row: int = 0) -> Array:
    """Integer labels 0..m-1, one for each row of ``like``, in its library and on its device."""
    if y is None:
        raise InputError(
            f"requires {name} to be passed, but the target {name} is None: give the true class of every row, 0..m-1."
        )
    n, m = like.shape
    xp = array_namespace(like)
    if is_lazy_torch(y) and is_lazy_torch(like):
        labels = y.detach().to(like.device)
    else:
        if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
            raise InputError(f"{name}: masked entries are not supported. Leave such rows out.")
        labels = np.asarray(to_numpy(y))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(
            f"{name} must be one-dimensional, the class number of every row, but has shape {tuple(labels.shape)}. "
            f"For one-hot labels pass {name}.argmax(axis=1)."
        )
    if labels.shape[0] != n:
        raise InputError(
            f"{name} has {labels.shape[0]} labels and X has {n} rows: "
            f"found input variables with inconsistent numbers of samples: {[n, labels.shape[0]]}."
        )
    if isinstance(labels, np.ndarray):
        labels = _integers(labels, name, first_row)
        outside = (labels < 0) | (labels >= m)
    else:
        if labels.dtype.is_floating_point:
            rounded = labels.round()
            advice = "Labels are class numbers 0..m-1."
            _reject_rows(labels != rounded, name, "is not a whole number", advice, first_row)
            labels = rounded
        labels = labels.long()
        outside = (labels < 0) | (labels >= m)
    row = _first(outside)
    if row is not None:
        raise InputError(
            f"{name}: label {int(labels[row])} in row {first_row + row} is not one of the {m} classes 0..{m - 1} that X has "
            f"columns for (n_features = {m}). Number the classes from 0 in the order of the columns."
        )
    if isinstance(labels, np.ndarray) and is_lazy_torch(like):
        labels = xp.asarray(labels, device=like.device)
    return labels


def check_label_available(
    logits: Array, labels: Array, weight: Array | None = None, name: str = "y", first_row: int = 0
) -> None:
    """A label must not fall on a masked class, in a row that counts."""
    xp = array_namespace(logits)
    hidden = xp.isinf(xp.take_along_axis(logits, labels[:, None], axis=1)[:, 0])
    row = _first(hidden if weight is None else hidden & (weight > 0))
    if row is not None:
        raise InputError(
            f"{name}: the label {int(labels[row])} of row {first_row + row} is a class with logit -inf, that is, not available "
            "in that row. Correct the label or the mask."
        )


def check_weights(sample_weight: Any, like: Array, first_row: int | None = None) -> Array | None:
    """Non-negative finite weights, one for each row of ``like``; None stays None.

    Not all may be zero, unless the rows are a part of more (``first_row`` is given).
    """
    if sample_weight is None:
        return None
    n = like.shape[0]
    xp = array_namespace(like)
    if isinstance(sample_weight, numbers.Number):
        weight = np.full(n, float(sample_weight))  # type: ignore[arg-type]
    else:
        weight = np.asarray(to_numpy(sample_weight), dtype=np.float64)
    if weight.ndim != 1:
        raise InputError(f"sample_weight must be one-dimensional (1D), but has shape {weight.shape}.")
    if len(weight) != n:
        raise InputError(f"sample_weight has {len(weight)} entries, expected {n}, one for each row of X.")
    for bad, what in ((~np.isfinite(weight), "is not finite"), (weight < 0, "is negative")):
        row = _first(bad)
        if row is not None:
            raise InputError(
                f"sample_weight: entry {(first_row or 0) + row} {what} ({weight[row]}). Weights are finite and at least 0."
            )
    if first_row is None:
        check_some_weight(bool(weight.any()))
    return xp.asarray(weight, device=like.device) if is_lazy_torch(like) else weight


def check_some_weight(some: bool) -> None:
    """Some row must count."""
    if not some:
        raise InputError(
            "sample_weight: all weights are zero, so there is nothing to fit. Give some row a weight."
        )


def check_number(
    value: Any, name: str, *, above: float | None = None, least: float | None = None, whole: bool = False
) -> None:
    """A real number (a whole one) within bounds."""
    kind = numbers.Integral if whole else numbers.Real
    noun = "a whole number" if whole else "a number"
    bound = (
        f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
    )
    wrong = isinstance(value, bool) or not isinstance(value, kind)
    if not wrong:
        wrong = not np.isfinite(value)
        wrong |= above is not None and not value > above
        wrong |= least is not None and not value >= least
    if wrong:
        raise InputError(f"{name} must be {noun}{bound}, but is {value!r}.")


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")


def _to_float(x: Any, name: str) -> np.ndarray:
    if hasattr(x, "toarray") and hasattr(x, "tocsr"):
        raise TypeError(f"{name}: sparse input is not supported, pass a dense array ({name}.toarray()).")
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InputError(
            f"{name}: masked entries are not supported. Fill them, with -inf where a class is not available."
        )
    try:
        values = np.asarray(x)
        if values.dtype.kind == "c":
            _complain(f"{name}: Complex data not supported.")
        if values.dtype.kind in "mMV":
            _complain(f"{name}: every entry must be a number, but they are {values.dtype}.")
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        text = str(error)
        if isinstance(error, TypeError):
            raise TypeError(f"{name}: every entry must be a number. {text}") from error
        raise InputError(f"{name}: every entry must be a number in rows of one length. {text}") from error
    if values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    return values


def _integers(labels: np.ndarray, name: str, first_row: int) -> np.ndarray:
    if labels.dtype.kind in "mMVc":
        raise InputError(f"{name} must hold class numbers 0..m-1, but holds {labels.dtype} values.")
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64, copy=False)
    try:
        as_float = labels.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} must hold class numbers 0..m-1, but holds {labels.dtype} values such as {labels.flat[0]!r}. Unknown label "
            "type: encode the labels first, in the order of the columns of X."
        ) from error
    row = _first(~np.isfinite(as_float))
    if row is not None:
        raise InputError(
            f"{name}: entry {first_row + row} is NaN or infinity (contains NaN or inf), expected a class number 0..m-1."
        )
    row = _first(as_float != np.round(as_float))
    if row is not None:
        raise InputError(
            f"{name}: entry {first_row + row} is {as_float[row]}, expected a whole class number 0..m-1. "
            "Unknown label type: continuous."
        )
    return as_float.astype(np.int64)


def _first(flags: Array) -> int | None:
    """Index of the first true flag."""
    xp = array_namespace(flags)
    if not bool(xp.any(flags)):
        return None
    return int(xp.argmax(xp.astype(flags, xp.int8)))


def _reject_rows(flags: Array, name: str, what: str, advice: str, first_row: int = 0) -> None:
    row = _first(flags)
    if row is not None:
        raise InputError(f"{name} {what}: first in row {first_row + row}. {advice}")


def _complain(message: str) -> Any:
    raise InputError(message)


def _as_is(values: Array) -> Array:
    return values


def _is_frame(x: Any) -> bool:
    return "pandas" in sys.modules and isinstance(x, sys.modules["pandas"].DataFrame)


def _framer(frame: Any) -> Callable[[Array], Any]:
    pandas = sys.modules["pandas"]

    def restore(values: Array) -> Any:
        if values.ndim == 1:
            return pandas.Series(values, index=frame.index)
        return pandas.DataFrame(values, index=frame.index, columns=frame.columns)

    return restore
