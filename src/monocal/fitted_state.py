"""What must hold of a fitted calibrator, whoever wrote it down.

    every number of a map   finite; of an affine map and a network at most 1e30, so that products stay finite in single precision
    a rank map              starts 0 = s_0 < s_1 < ... < m; increments >= 0, one column per start, one row per factor
    a ramp                  zero != one, of a statistic that is there
    a temperature, a scale  > 0
    a broken line           knots rising, as many values as knots; steps: one value more than edges
    a probability           in [0, 1];  a mixture and class frequencies sum to 1
    a stage                 a fitted calibrator of as many classes
    scales of groups        > 0, one for each class or category
    one entry per class     m of them

These are what the proofs of the order and of the sums use, so a file with a right checksum and wrong numbers cannot slip through.
What no rule names is put to the test: the calibrator must turn a few rows of ordinary logits into rows of probabilities.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import numpy as np

from .calibrators import Calibrator
from .calibrators.adjustment import HIGHEST, LOWEST, Adjustment, GroupScales
from .calibrators.ramps import RampFactors
from .calibrators.rank_map import RankMap
from .calibrators.statistics import STATISTICS
from .inputs.context import CATEGORY, NUMBER, Column, ContextReader
from .inputs.validation import check_choice, check_probability_rows
from .solver import Solution

# How the fit went. It says nothing about the map, and may be infinite or not a number.
_ABOUT_THE_FIT = {
    "solution_",
    "history_",
    "n_iter_",
    "n_atoms_",
    "passes_",
    "shrinkage_",
    "factor_means_",
    "shifted_",
    "by_class_",
    "unseen_",
}
# Rows of more classes than this are not tried: they would take longer than reading the file.
_MOST_TRIED = 2**22
# Numbers that multiply logits, or are added to them, without being measured from the top of the row.
_LARGEST = 1e30


def check_state(calibrator: Calibrator) -> None:
    """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
    own = getattr(getattr(calibrator, "one_score_", calibrator), "check_state", None)
    if own is not None:  # a class that checks its own state
        own()
        return
    m = calibrator.n_features_in_
    _require(isinstance(m, numbers.Integral) and not isinstance(m, bool) and m >= 1, "n_features_in_", m)
    check_choice(calibrator.input, "input", ("logits", "probabilities"))
    own = type(calibrator).__module__.partition(".")[0] == __package__
    for name, value in vars(calibrator).items():
        if own and name in _RULES:  # nobody knows here what attributes of a family from outside mean
            _check_finite(value, name)
            _RULES[name](calibrator, value, name)
    if calibrator.input == "probabilities":
        smallest = calibrator.smallest_probability_
        _require(0 < smallest <= 1, "smallest_probability_", smallest)
    _try(calibrator, int(m))


def _require(fine: Any, name: str, value: Any, expected: str = "") -> None:
    if not np.all(fine):
        told = repr(value) if np.ndim(value) == 0 else "an array"
        raise ValueError(f"{name} cannot be {told}{': expected ' if expected else ''}{expected}")


def _check_finite(value: Any, name: str) -> None:
    """No infinite number and no nan anywhere in a value, and no truth value for a number."""
    _require(not isinstance(value, bool | np.bool_), name, value, "a number")
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            _require(np.isfinite(value), name, value, "finite numbers")
    elif isinstance(value, numbers.Real):
        _require(np.isfinite(float(value)), name, value, "a finite number")
    elif isinstance(value, list | tuple):
        for item in value:
            _check_finite(item, name)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Solution | ContextReader):
        for field in value.__dataclass_fields__:
            _check_finite(getattr(value, field), f"{name}.{field}")


# Rules.


def _names(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(not isinstance(given, str) and np.ndim(given) == 1, name, given, "a list of names")
    _require(len(given) == calibrator.n_features_in_, name, given, "one name for each class")
    _require(len(set(given)) == len(given), name, given, "names that differ")


def _word(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(isinstance(given, str), name, given, "a name")


def _rank_map(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(isinstance(given, RankMap), name, given, "a rank map")
    starts = np.asarray(given.starts)
    m = calibrator.n_features_in_
    rising = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) and starts[0] == 0
    _require(rising and starts[-1] < m, f"{name}.starts", starts, f"ranks from 0 on, below {m}")
    _require(np.diff(starts) > 0, f"{name}.starts", starts, "ranks that rise")
    top_k = given.top_k
    whole = isinstance(top_k, int | np.integer) and top_k >= 1
    _require(top_k is None or whole, f"{name}.top_k", top_k)
    _require(top_k == getattr(calibrator, "top_k", None), f"{name}.top_k", top_k, "the calibrator's own")
    if given.factors is not None:
        _factors(calibrator, given.factors, f"{name}.factors")
    shape = (1 if given.factors is None else given.factors.n_factors, len(starts))
    for kind in ("scale_steps", "bias_steps"):
        steps = np.asarray(getattr(given, kind))
        _require(steps.shape == shape, f"{name}.{kind}", steps, f"shape {shape}")
        _require(steps >= 0, f"{name}.{kind}", steps, "increments that are not negative")


def _factors(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(isinstance(given, RampFactors), name, given, "ramps")
    known = [s for s in given.statistics if callable(s) or s in STATISTICS]
    _require(len(known) == len(given.statistics), f"{name}.statistics", given.statistics, "known statistics")
    _ramps(given, len(given.statistics), name)


def _ramps(given: RampFactors, n_statistics: int, name: str) -> None:
    for ramp in given.ramps:
        there = isinstance(ramp.statistic, int | np.integer) and 0 <= ramp.statistic < n_statistics
        _require(there, f"{name}.ramps", ramp.statistic, "the number of a statistic")
        _require(ramp.zero != ramp.one, f"{name}.ramps", ramp.zero, "a ramp with two ends")


def _context(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(isinstance(given, ContextReader) and given.columns, name, given, "columns of context")
    for column in given.columns:
        _require(isinstance(column, Column), name, column, "columns of context")
        check_choice(column.kind, f"{name}.kind", (NUMBER, CATEGORY))
        several = isinstance(column.categories, tuple) and len(set(column.categories)) == len(
            column.categories
        )
        _require(several, f"{name}.categories", column.categories, "categories that differ")
    _require(hasattr(calibrator, "adjustment_"), name, given, "a second stage that uses it")


def _adjustment(calibrator: Calibrator, given: Any, name: str) -> None:
    if given is None:
        return
    _require(isinstance(given, Adjustment), name, given, "a second stage")
    if given.class_scales is not None:
        _scales(given.class_scales, calibrator.n_features_in_, f"{name}.class_scales")
    known = getattr(calibrator, "context_", None)
    columns = () if known is None else known.columns
    fits = isinstance(given.column_scales, tuple) and len(given.column_scales) == len(columns)
    _require(fits, f"{name}.column_scales", given.column_scales, "one entry for each column of context")
    _require(np.shape(given.typical) == (len(columns),), f"{name}.typical", given.typical)
    numbers = [column for column in columns if column.kind == NUMBER]
    for column, scales in zip(columns, given.column_scales, strict=True):
        _require((scales is None) == (column.kind == NUMBER), f"{name}.column_scales", scales)
        if scales is not None:
            _scales(scales, len(column.categories), f"{name}.column_scales")
    _require(isinstance(given.factors, RampFactors), f"{name}.factors", given.factors, "ramps")
    _ramps(given.factors, 1 + len(numbers), f"{name}.factors")
    steps = np.asarray(given.steps)
    shape = (2, given.factors.n_factors)
    _require(steps.shape == shape and (steps >= 0).all(), f"{name}.steps", steps, "numbers not below 0")
    _require(steps[0, 0] > 0, f"{name}.steps", steps, "a scale above 0")


def _scales(given: Any, n_groups: int, name: str) -> None:
    _require(isinstance(given, GroupScales), name, given, "scales of groups")
    scales = np.asarray(given.scales)
    _require(scales.shape == (n_groups,), name, scales, f"{n_groups} scales")
    _require((scales >= LOWEST) & (scales <= HIGHEST), name, scales, f"scales from {LOWEST} to {HIGHEST}")


def _rising(calibrator: Calibrator, given: Any, name: str) -> None:
    for line in _lines(given):
        _require(line.ndim == 1 and (np.diff(line) >= 0).all(), name, line, "numbers that do not fall")


def _strictly_rising(calibrator: Calibrator, given: Any, name: str) -> None:
    for line in _lines(given):
        _require(line.ndim == 1 and (np.diff(line) > 0).all(), name, line, "numbers that rise")


def _weights(calibrator: Calibrator, given: Any, name: str) -> None:
    """By rank, like the biases; or of a mixture."""
    if calibrator.preserves_order or not hasattr(calibrator, "biases_"):
        _not_negative(calibrator, given, name)
    if hasattr(calibrator, "biases_"):
        _by_rank(calibrator, given, name)
    else:
        _require(abs(np.sum(given) - 1) < 1e-6, name, given, "shares that sum to 1")


def _by_rank(calibrator: Calibrator, given: Any, name: str) -> None:
    m = calibrator.n_features_in_
    ranks = min(getattr(calibrator, "top_k", None) or m, m)
    _require(np.shape(given) == (ranks,), name, given, f"one number for each of {ranks} ranks")
    if calibrator.preserves_order:  # the published procedure meets its constraints to rounding only
        _rising(calibrator, given, name)
    else:
        _moderate(given, name, _LARGEST)


def _stages(calibrator: Calibrator, given: Any, name: str) -> None:
    """Calibrators of the same classes, each of which was checked when it was read."""
    for stage in given if isinstance(given, list) else [given]:
        same = (
            isinstance(stage, Calibrator) and getattr(stage, "n_features_in_", 0) == calibrator.n_features_in_
        )
        _require(same, name, stage, "a fitted calibrator of the same classes")


def _frequencies(calibrator: Calibrator, given: Any, name: str) -> None:
    _per_class(calibrator, given, name)
    _positive(calibrator, given, name)
    _require(abs(np.sum(given) - 1) < 1e-6, name, given, "frequencies that sum to 1")


def _counts(calibrator: Calibrator, given: Any, name: str) -> None:
    _per_class(calibrator, given, name)
    _not_negative(calibrator, given, name)


def _share(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(0 <= given < 1, name, given, "a number of at least 0 and below 1")


def _positive(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(np.asarray(given) > 0, name, given, "a number above 0")


def _not_negative(calibrator: Calibrator, given: Any, name: str) -> None:
    _require(np.asarray(given) >= 0, name, given, "numbers that are not negative")


def _per_class(calibrator: Calibrator, given: Any, name: str) -> None:
    m = calibrator.n_features_in_
    square_or_row = np.shape(given) in ((m,), (m, m))
    _require(square_or_row, name, given, f"one entry for each of {m} classes")
    _moderate(
        given, name, 1e38 if name == "centre_" else _LARGEST
    )  # a mean of logits, which may be masks of -3e38


def _moderate(given: Any, name: str, largest: float) -> None:
    """Numbers whose products with logits are finite: a row may otherwise hold an infinity, and become NaN."""
    _require(np.abs(given) <= largest, name, given, f"numbers of at most {largest:g}")


def _chained(calibrator: Calibrator, given: Any, name: str) -> None:
    """Layers ``W_1, b_1, ..., W_L, b_L`` of a network."""
    weights, biases = given[::2], given[1::2]
    _require(len(weights) == len(biases) > 0, name, given, "a matrix and a row for each layer")
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        _require(w.ndim == 2 and b.shape == w.shape[1:], name, w, "layers whose sizes fit")
        _require(i == 0 or w.shape[0] == weights[i - 1].shape[1], name, w, "layers whose sizes fit")
        for numbers_of_layer in (w, b):
            _moderate(numbers_of_layer, name, _LARGEST)


def _lines(given: Any) -> list[np.ndarray]:
    return list(map(np.asarray, given)) if isinstance(given, list) else [np.asarray(given)]


def _probability_lines(calibrator: Calibrator, given: Any, name: str) -> None:
    """Calibrated probabilities at knots, or between edges; one line for all classes, or one for each."""
    values = _lines(given)
    for at, more in (("knots_", 0), ("scores_", 0), ("edges_", 1)):
        if hasattr(calibrator, at):
            places = _lines(getattr(calibrator, at))
            fits = [len(v) == len(p) + more for v, p in zip(values, places, strict=True)]
            _require(fits, name, values, f"as many as {at} has" + (" and one more" if more else ""))
    _require([((v >= 0) & (v <= 1)).all() for v in values], name, values, "probabilities")
    m = calibrator.n_features_in_
    shared = not isinstance(given, list) or getattr(calibrator, "mode_", "") == "multiclass"
    _require(len(values) == (1 if shared else m), name, values, f"a line for each of {m} classes")
    if calibrator.preserves_order:
        _rising(calibrator, given, name)


_RULES: dict[str, Callable[[Calibrator, Any, str], None]] = {
    "feature_names_in_": _names,
    "class_dim_": _word,
    "rank_map_": _rank_map,
    "factors_": _factors,
    "context_": _context,
    "adjustment_": _adjustment,
    "weights_": _weights,
    "biases_": _by_rank,
    "inverse_weights_": _positive,
    "coefficients_": _not_negative,
    "temperature_": _positive,
    "n_rows_": _positive,
    "scale_": _positive,
    "table_": _rising,
    "layers_": _chained,
    "knots_": _strictly_rising,
    "scores_": _rising,
    "edges_": _rising,
    "values_": _probability_lines,
    "coef_": _per_class,
    "intercept_": _per_class,
    "centre_": _per_class,
    "slopes_": _per_class,
    "intercepts_": _per_class,
    "floor_": _share,
    "stages_": _stages,
    "calibrator_": _stages,
    "predicted_": _counts,
    "prior_": _frequencies,
    "calibration_prior_": _frequencies,
}


def ruled(names: Iterable[str]) -> bool:
    """Whether there is something to check in every one of these fitted attributes."""
    known = {
        *_RULES,
        *_ABOUT_THE_FIT,
        "n_features_in_",
        "feature_names_in_",
        "smallest_probability_",
        "mode_",
    }
    return known.issuperset(names)


def _try(calibrator: Calibrator, m: int) -> None:
    """Calibrate ordinary rows, far and near, tied and plain, in both precisions."""
    if m > _MOST_TRIED:
        return
    calibrator = copy(calibrator)
    calibrator.__dict__.pop("feature_names_in_", None)  # the rows have none
    calibrator.class_axis = -1  # and are rows
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6, m)) * np.array([[0.0], [0.1], [1.0], [1.0], [10.0], [1e4]])
    z[3] = np.round(z[3])
    if m > 2 and calibrator.input == "logits":
        z[2, 0] = -np.inf  # a class that is not available
    z = z[-max(1, min(len(z), _MOST_TRIED // m)) :]
    if calibrator.input == "probabilities":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    unknown: dict[str, Any] = {}
    if hasattr(calibrator, "context_"):  # of which nothing is known
        unknown = {"context": np.full((len(z), len(calibrator.context_.columns)), None)}
    for dtype in (np.float64, np.float32):
        with np.errstate(all="ignore"):
            p = calibrator.predict_proba(z.astype(dtype), **unknown)
        _require(np.shape(p) == z.shape, "the result", p, f"shape {z.shape}")
        eps = float(np.finfo(dtype).eps)
        check_probability_rows(p, eps, "what it gives for ordinary rows", 0, "It is no calibrator.")
