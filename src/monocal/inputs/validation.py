"""The one gate for logits, probabilities, labels and weights.

What comes in may be a numpy array, a list, a torch tensor or any of `formats`. What leaves the gate is a floating-point array
of numpy or torch, checked. Checks cost one pass over the data; what is wrong is looked up in detail only once something is.

Rows of probabilities are non-negative and sum to one within `sum_tolerance`, here, in the metrics and in files. They are used as
they are, never renormalised.
"""

from __future__ import annotations

import math
import numbers
import re
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, is_torch, on_device_of, to_numpy
from ..errors import InputError, InputTypeError, warn, wording
from .formats import as_array, class_names, library_of

NO_LABELS = "requires y to be passed, but the target y is None: give the true class of every row, 0..m-1."
# Number of columns that stands for "not known": every class id is accepted.
ANY_CLASS = 2**31
# Machine epsilon of the types that are taken as they are.
_EPS = {np.dtype(t): float(np.finfo(t).eps) for t in (np.float16, np.float32, np.float64)}
_TORCH_NUMBERS = re.compile(r"torch\.(bfloat16|float(16|32|64)|u?int(8|16|32|64)|bool)")
# Decimals that probabilities are rounded to, and how far from one their rows may sum at the most.
_DECIMALS, _MOST_OFF = (2, 3, 4), 0.5
# Rows that are looked at to see whether logits are probabilities; scores that may all lie between 0 and 1 by chance.
_LOOKED_AT, _FEW_SCORES = 1000, 10


class CheckedMatrix(NamedTuple):
    """Checked values, the machine epsilon of the type they came in, the type of results; whether all are known to be finite."""

    values: Array
    eps: float
    dtype: Any
    finite: bool = False


def read_matrix(x: Any, name: str = "X") -> CheckedMatrix:
    """A two-dimensional floating-point array (n, m) from whatever the caller has; what was read already stays as it is."""
    if isinstance(x, CheckedMatrix):
        return x
    if type(x) is np.ndarray and x.ndim == 2 and x.size and x.dtype in _EPS:  # the short way, for small calls
        return CheckedMatrix(x, _EPS[x.dtype], x.dtype)
    values, eps = read_floats(x, name)
    shape = tuple(values.shape)
    if len(shape) != 2:
        scores = (
            " One score for each row is calibrated by BinaryMCCT." if len(shape) == 1 and len(values) else ""
        )
        raise InputError(
            f"{name} must be two-dimensional, one row per sample and one column per class, but has shape {shape}.{scores} "
            f"Reshape your data, for a single sample with {name}.reshape(1, -1)."
        )
    if 0 in shape:
        what = "feature(s)" if shape[0] else "sample(s)"
        raise InputError(
            f"{name}: found array with 0 {what} (shape={shape}) while a minimum of 1 is required."
        )
    bfloat16 = isinstance(x, np.ndarray) and x.dtype.name == "bfloat16"  # of the package ml_dtypes
    return CheckedMatrix(values, eps, x.dtype if bfloat16 else values.dtype)


def check_logits(x: Any, name: str = "X", first_row: int = 0) -> CheckedMatrix:
    """Logits (n, m): no NaN, no +inf, at least one finite value a row; ``-inf`` marks a class as not available."""
    matrix = read_matrix(x, name)
    z = matrix.values
    with np.errstate(over="ignore", invalid="ignore"):
        # In a wider type than half precision, where the sum of many would overflow.
        if isinstance(z, np.ndarray):
            total = z.sum(dtype=np.promote_types(z.dtype, np.float32))
        else:
            total = array_namespace(z).sum(z, dtype=compute_dtype(z))
    return matrix._replace(finite=math.isfinite(float(total)) or _refuse_rows(z, name, first_row))


def _refuse_rows(z: Array, name: str, first_row: int) -> bool:
    """Refuse what may not be infinite, or is no number; False where -inf is all that is not finite."""
    xp = array_namespace(z)
    for bad, problem in (
        (xp.isnan(z), "contains NaN: first in row {}. Remove or repair such rows first."),
        (
            z == np.inf,
            "contains infinity: first in row {}. Only -inf is allowed (the class is not available).",
        ),
    ):
        row = first_true(xp.any(bad, axis=1))
        if row is not None:
            raise InputError(f"{name} {problem.format(first_row + row)}")
    row = first_true(xp.all(z == -np.inf, axis=1))
    if row is not None:
        raise InputError(
            f"{name} has -inf for every class: first in row {first_row + row}. Leave at least one class available."
        )
    return False


def first_true(flags: Array) -> int | None:
    """Index of the first true flag."""
    xp = array_namespace(flags)
    return int(xp.argmax(xp.astype(flags, xp.int8))) if bool(xp.any(flags)) else None


# Probabilities


def check_probabilities(
    x: Any, name: str = "X", first_row: int = 0, advice: str = "For logits use input='logits'."
) -> CheckedMatrix:
    """Probabilities (n, m): non-negative rows that sum to one."""
    matrix = read_matrix(x, name)
    check_probability_rows(matrix.values, matrix.eps, name, first_row, advice)
    return matrix


def sum_tolerance(eps: float) -> float:
    """How far from one a row of probabilities may sum, by the machine epsilon of the type it came in.

    1 %, for numbers are often rounded to a few digits or to bfloat16 before they are widened again; in half precision 3 %, in
    bfloat16 9 %, where sums themselves are rounded. Rows of many rounded numbers may be further off (`rounding_of`).
    """
    return max(1e-2, eps**0.5) * (1.0 + 1e-6)


def rounding_of(p: np.ndarray, decimals: tuple[int, ...] = _DECIMALS) -> np.ndarray:
    """How far from one each row (n, m) may sum by its own rounding: ``m / 200`` with two decimals; 0 where it has none."""
    off = np.zeros(len(p))
    eps = float(np.finfo(np.result_type(p, np.float16)).eps)
    for places in decimals[::-1]:
        scaled = p.astype(np.float64) * 10.0**places
        closest = min(1e-2, 1e-9 + 4.0 * eps * 10.0**places)  # no more: small entries are not rounded to 0
        rounded = (abs(scaled - np.rint(scaled)) < closest).all(axis=1)
        off[rounded] = p.shape[1] * 0.5 * 10.0**-places
    return np.minimum(off * (1.0 + 1e-6), _MOST_OFF)


def check_probability_rows(p: Array, eps: float, name: str, first_row: int, advice: str) -> None:
    """Raise unless every row is a vector of probabilities, to the precision of values whose machine epsilon was ``eps``."""
    xp = array_namespace(p)
    with np.errstate(over="ignore", invalid="ignore"):
        total, least = xp.sum(p, axis=1, dtype=xp.float64), xp.min(p, axis=1)
        bad = ~(abs(total - 1.0) <= sum_tolerance(eps)) | (least < 0)
    if not bool(xp.any(bad)):
        return
    places = np.flatnonzero(to_numpy(bad))
    rows, totals, lowest = (to_numpy(x)[places] for x in (p, total, least))
    wrong = ~(abs(totals - 1.0) <= rounding_of(np.where(np.isfinite(rows), rows, 0.0))) | ~(lowest >= 0)
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    what = f"sums to {float(totals[row]):.6g}"
    if np.isnan(rows[row]).any():
        what, advice = "contains NaN", "Find where it comes from, or drop the row."
    elif lowest[row] < 0:
        what = f"contains the negative value {float(lowest[row]):.6g}"
    elif p.shape[1] == 1:
        advice = "One score of two classes is calibrated by BinaryMCCT."
    elif abs(totals[row] - 100.0) <= 1.0:
        advice = f"They seem to be percentages: divide by 100, {name} / 100."
    raise InputError(
        f"{name}: expected non-negative rows that sum to one, but row {first_row + int(places[row])} {what} "
        f"({int(wrong.sum())} of the {len(bad)} rows looked at are wrong). {advice}"
    )


def warn_of_probabilities(z: Array) -> None:
    """Warn where what was given as logits (n, m), or as one score (n, 1), are probabilities, or percentages."""
    z = to_numpy(z[:_LOOKED_AT])
    if not 0.0 <= z.min() <= z.max() <= 101.0:
        return
    if z.shape[1] == 1:
        if z.max() <= 1.0 and len(np.unique(z)) >= _FEW_SCORES:
            warn(
                "X is fitted as log-odds, but all scores lie between 0 and 1: if they are probabilities, say "
                "input='probabilities'; if they are on another scale, input='scores'."
            )
        return
    unit, hint = (1, "") if z.max() <= 1.01 else (100, " and give X / 100")
    if (abs(z.sum(axis=1, dtype=np.float64) / unit - 1.0) <= np.maximum(1e-2, rounding_of(z / unit))).all():
        warn(
            f"X is fitted as logits, but its rows sum to {unit}: if they are probabilities, say input='probabilities'{hint}. "
            "Logits such as these are rare; filter this warning if they are."
        )


# Labels and weights


def check_labels(y: Any, like: Array, name: str = "y", first_row: int = 0, rows: str = "X") -> Array:
    """Integer labels 0..m-1, one for each row of ``like`` (which the user calls ``rows``), in its library and on its device."""
    if y is None:
        raise InputError(NO_LABELS.replace("y ", f"{name} "))
    n, m = like.shape
    expected = f"a class number 0..{m - 1}, in the order of the columns of {rows} (or the name of one, where they have names)"
    labels = to_numpy(read_numbers(y, name, expected))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(
            f"{name} must be one-dimensional, the class number of every row, but has shape {tuple(labels.shape)}. "
            f"For one-hot labels pass {name}.argmax(axis=1)."
        )
    if labels.shape[0] != n:
        raise InputError(
            f"{name} has {labels.shape[0]} labels and {rows} has {n} rows: "
            f"found input variables with inconsistent numbers of samples: {[n, labels.shape[0]]}."
        )
    # Compared before they become integers: what is too large for those, or not whole, is named as it came.
    with np.errstate(invalid="ignore"):
        right = (labels >= 0) & (labels < m) & (labels == np.round(labels))
    if not right.all():
        row = int(np.argmin(right))
        expected = f"one of the {m} classes 0..{m - 1} that {rows} has columns for (n_features = {m})"
        advice = "Number the classes from 0 in the order of the columns."
        if m == ANY_CLASS:
            expected, advice = "a class id", "Give 0 or a larger whole number."
        elif m == 1:
            advice = "One score of two classes is calibrated by BinaryMCCT."
        raise InputError(f"{name}: label {labels[row]} in row {first_row + row} is not {expected}. {advice}")
    return on_device_of(labels.astype(np.int64, copy=False), like)


def check_many_labels(
    y: Any, shape: tuple[int, ...], columns: tuple[str, ...] | None, name: str = "y", rows: str = "X"
) -> tuple[np.ndarray, np.ndarray]:
    """Labels 0 and 1 (n, L) in double precision, and which entries are known; -1 and NaN are not, and 0 in the result."""
    own = class_names(y)
    if None not in (columns, own) and own != columns and set(own or ()) == set(columns or ()):
        raise InputError(f"{name} has the columns of {rows} in another order: use {name}[{rows}.columns].")
    if library_of(y) == "pandas":  # types of columns that have a missing value of their own
        y = y.astype(object).where(y.notna(), np.nan)
    expected = "0, 1, or -1 or NaN where it is not known"
    labels = to_numpy(read_numbers(y, name, expected)).astype(np.float64)
    if labels.shape != shape:
        raise InputError(
            f"{name} has shape {labels.shape} and {rows} has shape {tuple(shape)}: expected (n, L), a column for each label, "
            "with an entry for each score: 0, 1, or -1 where it is not known."
        )
    known = ~np.isnan(labels) & (labels != -1)
    bad = known & (labels != 0) & (labels != 1)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{name}: expected {expected}, but row {row} of label {column} is {labels[row, column]:g}."
        )
    return np.where(known, labels, 0.0), known


def check_label_available(
    logits: Array, labels: Array, weight: Array | None = None, name: str = "y", first_row: int = 0
) -> None:
    """A label must not fall on a masked class, in a row that counts."""
    xp = array_namespace(logits)
    hidden = xp.isinf(xp.take_along_axis(logits, labels[:, None], axis=1)[:, 0])
    row = first_true(hidden if weight is None else hidden & (weight > 0))
    if row is not None:
        raise InputError(
            f"{name}: the label {int(labels[row])} of row {first_row + row} is a class with logit -inf, that is, not available "
            "in that row. Correct the label or the mask."
        )


def check_weights(
    sample_weight: Any, like: Array, first_row: int | None = None, name: str = "sample_weight"
) -> Array | None:
    """Non-negative finite weights, one for each row of ``like``; None stays None."""
    if sample_weight is None:
        return None
    n = like.shape[0]
    if isinstance(sample_weight, numbers.Real):
        weight = np.full(n, float(sample_weight))
    else:
        weight = to_numpy(read_numbers(sample_weight, name, "a real number")).astype(np.float64)
    if weight.ndim != 1:
        raise InputError(f"{name} must be one-dimensional (1D), but has shape {weight.shape}.")
    if len(weight) != n:
        raise InputError(f"{name} has {len(weight)} entries, expected {n}, one for each row of X.")
    # Sums in single precision must hold them.
    row = first_true(~((weight == 0) | ((weight >= 1e-30) & (weight <= 1e30))))
    if row is not None:
        value = weight[row]
        what = "not finite" if not np.isfinite(value) else "negative" if value < 0 else "out of range"
        raise InputError(
            f"{name}: entry {(first_row or 0) + row} is {what} ({value}). Weights are 0, or between 1e-30 and 1e30."
        )
    if first_row is None:
        check_some_weight(bool(weight.any()))
    return on_device_of(weight, like)


def ignored_rows(y: Any, sample_weight: Any, n: int, ignore_index: int | None) -> tuple[Any, Any, Any]:
    """Labels and weights of ``n`` rows with ``ignore_index`` turned into weight zero, and which rows that are (None: none)."""
    unchanged = y, sample_weight, None
    if ignore_index is None or y is None:
        return unchanged
    labels = to_numpy(read_numbers(y, "y", "a class number"))
    if labels.size != n or len(labels) != n:
        return unchanged
    labels = labels.reshape(n)
    ignored = labels == ignore_index
    if not ignored.any():
        return unchanged
    weight: Any = 1.0 if sample_weight is None else sample_weight
    if not isinstance(weight, numbers.Real):
        weight = to_numpy(read_numbers(weight, "sample_weight", "a real number"))
        if weight.shape != (n,):
            return unchanged
    return np.where(ignored, 0, labels), np.where(ignored, 0.0, weight), ignored


def check_some_weight(any_weight: bool, ignore_index: int | None = None) -> None:
    """Some row must count."""
    if any_weight:
        return
    if ignore_index is not None:
        raise InputError(
            f"y: every label is {ignore_index}, which {wording('ignore_index')} says does not count (or has weight zero). Give "
            "some labels of classes."
        )
    raise InputError("sample_weight: all weights are zero, so no row counts. Give some row a weight.")


def effective_rows(weight: np.ndarray) -> float:
    """``(sum w)^2 / sum w^2``: as many rows of equal weight say as much as these; 0 without any weight."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares else 0.0


# Parameters


def check_number(
    value: Any,
    name: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """A real number (a whole one) within bounds, which numpy can hold."""
    right = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
    if right:
        number = int(value) if whole else float(value)  # comparisons in a type that holds the limits
        if most is None:
            right = abs(number) <= (2**63 - 1 if whole else float(np.finfo(np.float64).max))
        right = right and (above is None or number > above) and (least is None or number >= least)
        right = right and (below is None or number < below) and (most is None or number <= most)
    if not right:
        bounds = {"above": above, "of at least": least, "below": below, "at most": most}
        bound = " and".join(f" {word} {limit:g}" for word, limit in bounds.items() if limit is not None)
        raise InputError(
            f"{name} must be {'a whole number' if whole else 'a number'}{bound}, but is {value!r}."
        )


def check_count(value: Any, name: str, least: int = 1) -> int:
    """A whole number not below ``least``, as a plain int."""
    check_number(value, name, least=least, whole=True)
    return int(value)


def check_fraction(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    check_number(value, name, above=0, below=1)
    return float(value)


def check_top_k(top_k: Any, m: int) -> int:
    """How many of ``m`` ranks are in use: ``top_k`` of them, or all where it is None."""
    if top_k is None:
        return m
    check_number(top_k, "top_k", least=1, whole=True)
    if top_k > m:
        raise InputError(
            f"top_k must be at most the number of classes, but is {top_k} where X has {m} (n_features = {m}). Leave it out to "
            "use all of them."
        )
    return int(top_k)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")


# Numbers


def read_numbers(x: Any, name: str, what: str) -> Array:
    """Real numbers of any dense kind: a tensor stays one, everything else becomes a numpy array."""
    x = as_array(x)
    if is_torch(x):
        return _read_tensor(x, name, what)
    if hasattr(x, "toarray") and hasattr(x, "tocsr"):
        raise InputError(f"{name}: sparse input is not supported, pass a dense array ({name}.toarray()).")
    if np.ma.is_masked(x):
        raise InputError(
            f"{name}: masked entries are not supported. Leave their rows out, or fill them (a class that is not available has "
            "logit -inf)."
        )
    try:
        values = np.asarray(x)
        if values.dtype.kind == "O":
            objects, values = values, values.astype(np.float64)
            _refuse_large_whole(np.where(objects != values, values, 0.0), name)
            exact = {type(v).__name__ for v in objects.flat} & {"Decimal", "Fraction"}
            if exact:
                raise InputError(
                    f"{name}: a {exact.pop()} may be more precise than float64. Convert them first ({name}.astype(float))."
                )
    except TypeError as error:
        raise InputTypeError(f"{name}: every entry must be {what}. {error}") from error
    except ValueError as error:
        raise InputError(f"{name}: every entry must be {what}, in rows of one length. {error}") from error
    if values.dtype.kind == "c":
        raise InputError(f"{name}: Complex data not supported. Every entry must be {what}.")
    is_real = values.dtype.kind in "iub" or (values.dtype.kind == "f" and values.dtype.itemsize > 1)
    if not is_real and values.dtype.name != "bfloat16":
        such = f", such as {values.ravel()[:1].tolist()[0]!r}" if values.size else ""
        raise InputError(f"{name}: every entry must be {what}, but they are of type {values.dtype}{such}.")
    # Numbers in the other byte order are of another type to every comparison of types.
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def _read_tensor(x: Any, name: str, what: str) -> Array:
    dense = str(x.layout) == "torch.strided" and not (x.is_nested or x.is_meta)
    if not dense or not _TORCH_NUMBERS.fullmatch(str(x.dtype)):
        raise InputError(
            f"{name}: sparse and nested tensors, those on the meta device and those of type {x.dtype} are not supported (Complex "
            f"data not supported, either). Every entry must be {what}: pass a dense tensor of floats."
        )
    return x.detach()


def read_floats(x: Any, name: str) -> tuple[Array, float]:
    """Real numbers of a floating-point type that arithmetic knows, and the machine epsilon of the type they came in."""
    values = read_numbers(x, name, "a real number")
    if not is_torch(values):
        if values.dtype in _EPS:
            return values, _EPS[values.dtype]
        if values.dtype.name == "bfloat16":  # of the package ml_dtypes
            return np.asarray(values, dtype=np.float32), 2.0**-7
        if values.dtype.kind == "f":
            raise InputError(
                f"{name}: numbers of type {values.dtype} are more precise than anything here computes, and some that differ "
                f"would become equal. Convert them first ({name}.astype(np.float64))."
            )
    xp = array_namespace(values)
    if not xp.isdtype(values.dtype, "real floating"):
        values = xp.astype(values, xp.float64)
        _refuse_large_whole(values, name)
    return values, float(xp.finfo(values.dtype).eps)


def _refuse_large_whole(values: Array, name: str) -> None:
    """Raise where whole numbers that have become floating-point ``values`` may no longer be the same."""
    if bool(array_namespace(values).any(abs(values) >= 2.0**53)):
        raise InputError(
            f"{name}: whole numbers of 2**53 and more are not all different in double precision. Subtract the largest of each "
            "row first, and convert to floating point."
        )
