"""What must hold of a fitted calibrator that was read from a file.

    class TemperatureScaling(ConeCalibrator):
        _state = {"temperature_": positive, "history_": None}

A class names its fitted attributes with a rule for each, ``rule(calibrator, value, name)``, or None where an attribute says how
the fit went and nothing of the map. `check` applies the rules of a class and its bases, and calibrates a few ordinary rows. The
rules are what the proofs of the order and of the sums use: a file with a right checksum and wrong numbers must not load.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inputs.context import ContextReader
from ..inputs.validation import check_choice, check_probability_rows
from ..solver import Solution

if TYPE_CHECKING:
    from .base import Calibrator

Rule = Callable[[Any, Any, str], None]
Rules = dict[str, Rule | None]

# Rows of more classes than this are not tried: they would take longer than reading the file.
_MOST_TRIED = 2**22
# Numbers that multiply logits, or are added to them, are at most so large: their products stay finite in single precision.
_LARGEST = 1e30


def rules_of(kind: type) -> Rules:
    """The rules of a class and of its bases."""
    rules: Rules = {}
    for base in reversed(kind.__mro__):
        rules |= vars(base).get("_state", {})
    return rules


def check(calibrator: Calibrator) -> None:
    """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
    m = calibrator.n_features_in_
    whole = isinstance(m, numbers.Integral) and not isinstance(m, bool)
    expect(whole and m >= 1, "n_features_in_", m)
    check_choice(calibrator.input, "input", ("logits", "probabilities"))
    for name, rule in rules_of(type(calibrator)).items():
        if rule is not None and name in vars(calibrator):
            value = vars(calibrator)[name]
            _check_finite(value, name)
            rule(calibrator, value, name)
    if calibrator.input == "probabilities":
        smallest = calibrator.smallest_probability_
        expect(0 < smallest <= 1, "smallest_probability_", smallest)
    _try_rows(calibrator, int(m))


def expect(holds: Any, name: str, value: Any, expected: str = "") -> None:
    """Raise ValueError unless all that must hold of an attribute does."""
    if not np.all(holds):
        shown = repr(value) if isinstance(value, str | int | float | np.generic | None) else "this"
        raise ValueError(f"{name} cannot be {shown}{': expected ' if expected else ''}{expected}")


def _check_finite(value: Any, name: str) -> None:
    """No infinite number and no nan anywhere in a value, and no truth value for a number."""
    expect(not isinstance(value, bool | np.bool_), name, value, "a number")
    if isinstance(value, np.ndarray):
        expect(value.dtype.kind != "f" or np.isfinite(value).all(), name, value, "finite numbers")
    elif isinstance(value, numbers.Real):
        expect(np.isfinite(float(value)), name, value, "a finite number")
    elif isinstance(value, list | tuple):
        for item in value:
            _check_finite(item, name)
    elif hasattr(value, "check_state"):
        return  # a stage, which was checked on its own, and whose parameters may be infinite or truth values
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, Solution | ContextReader):
        for field in value.__dataclass_fields__:
            _check_finite(getattr(value, field), f"{name}.{field}")


def _try_rows(calibrator: Calibrator, m: int) -> None:
    """Calibrate ordinary rows, far and near, tied and plain, in both precisions."""
    if m > _MOST_TRIED:
        return
    calibrator = copy(calibrator)
    calibrator.__dict__.pop("feature_names_in_", None)  # the rows have none
    calibrator.class_axis = -1  # and are rows
    z = np.random.default_rng(0).normal(size=(4, m)) * np.array([[0.0], [1.0], [10.0], [1e4]])
    z[2] = np.round(z[2])
    z = z[-max(1, min(len(z), _MOST_TRIED // m)) :]
    if calibrator.input == "probabilities":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
    context: dict[str, Any] = {}
    if hasattr(calibrator, "context_"):  # all of it missing
        context = {"context": np.full((len(z), len(calibrator.context_.columns)), None)}
    for dtype in (np.float64, np.float32):
        with np.errstate(all="ignore"):
            p = calibrator.predict_proba(z.astype(dtype), **context)
        expect(np.shape(p) == z.shape, "the result", p, f"shape {z.shape}")
        eps = float(np.finfo(dtype).eps)
        check_probability_rows(p, eps, "what it gives for ordinary rows", 0, "It is no calibrator.")


# Rules.


def _lines(value: Any) -> list[np.ndarray]:
    return list(map(np.asarray, value)) if isinstance(value, list) else [np.asarray(value)]


def _rule(expected: str, *holds: Callable[[Any], Any]) -> Rule:
    """A rule for a value by itself."""

    def rule(calibrator: Any, value: Any, name: str) -> None:
        for each in holds:
            expect(each(value), name, value, expected)

    return rule


def _per_class(largest: float, *more: Callable[[Any], Any]) -> Rule:
    """A number of moderate size for each class, or for each pair of classes."""

    def rule(calibrator: Any, value: Any, name: str) -> None:
        m = calibrator.n_features_in_
        expect(np.shape(value) in ((m,), (m, m)), name, value, f"one entry for each of {m} classes")
        expect(np.abs(value) <= largest, name, value, f"numbers of at most {largest:g}")
        for holds in more:
            expect(holds(np.asarray(value)), name, value, "frequencies or counts")

    return rule


def _sums_to_one(x: Any) -> Any:
    return abs(np.sum(x) - 1) < 1e-6


positive = _rule("a number above 0", lambda x: np.asarray(x) > 0)
not_negative = _rule("numbers that are not negative", lambda x: np.asarray(x) >= 0)
share = _rule("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
shares = _rule("shares that sum to 1", lambda x: np.asarray(x) >= 0, _sums_to_one)
text = _rule("a name", lambda x: isinstance(x, str))
rising = _rule(
    "numbers that do not fall", lambda x: [y.ndim == 1 and (np.diff(y) >= 0).all() for y in _lines(x)]
)
strictly_rising = _rule(
    "numbers that rise", lambda x: [y.ndim == 1 and (np.diff(y) > 0).all() for y in _lines(x)]
)
# Products with logits are finite: a row may otherwise hold an infinity, and become NaN.
moderate = _rule(f"numbers of at most {_LARGEST:g}", lambda x: np.abs(x) <= _LARGEST)
per_class = _per_class(_LARGEST)
centre = _per_class(1e38)  # a mean of logits, which may be masks of -3e38
frequencies = _per_class(_LARGEST, lambda x: x > 0, _sums_to_one)
counts = _per_class(_LARGEST, lambda x: x >= 0)


def names(calibrator: Calibrator, value: Any, name: str) -> None:
    expect(not isinstance(value, str) and np.ndim(value) == 1, name, value, "a list of names")
    different = len(set(value)) == len(value) == calibrator.n_features_in_
    expect(different, name, value, "one name for each class, all different")


def by_rank(calibrator: Calibrator, value: Any, name: str) -> None:
    m = calibrator.n_features_in_
    ranks = min(getattr(calibrator, "top_k", None) or m, m)
    expect(np.shape(value) == (ranks,), name, value, f"one number for each of {ranks} ranks")
    # The published procedure meets its constraints to rounding only.
    (rising if calibrator.preserves_order else moderate)(calibrator, value, name)


def weights_by_rank(calibrator: Calibrator, value: Any, name: str) -> None:
    if calibrator.preserves_order:
        not_negative(calibrator, value, name)
    by_rank(calibrator, value, name)


def stages(calibrator: Calibrator, value: Any, name: str) -> None:
    """Calibrators of the same classes, each of which was checked when it was read."""
    for stage in value if isinstance(value, list) else [value]:
        same = getattr(stage, "n_features_in_", 0) == calibrator.n_features_in_
        expect(same and hasattr(stage, "predict_proba"), name, stage, "a calibrator of the same classes")


def layers(calibrator: Calibrator, value: Any, name: str) -> None:
    """Layers ``W_1, b_1, ..., W_L, b_L`` of a network."""
    weights, biases = value[::2], value[1::2]
    expect(len(weights) == len(biases) > 0, name, value, "a matrix and a row for each layer")
    widths = [None, *(w.shape[-1] for w in weights)]
    for w, b, before in zip(weights, biases, widths, strict=False):
        fits = w.ndim == 2 and b.shape == w.shape[1:] and before in (None, w.shape[0])
        expect(fits, name, w, "layers whose sizes fit")
        moderate(calibrator, w, name)
        moderate(calibrator, b, name)


def probabilities_at(places: str, more: int = 0) -> Rule:
    """Calibrated probabilities at the numbers of another attribute, or between them (one ``more``); a line for all classes or
    one for each."""

    def rule(calibrator: Calibrator, value: Any, name: str) -> None:
        values, at = _lines(value), _lines(getattr(calibrator, places))
        fits = [len(v) == len(p) + more for v, p in zip(values, at, strict=True)]
        expect(fits, name, values, f"as many as {places} has" + " and one more" * more)
        expect([((v >= 0) & (v <= 1)).all() for v in values], name, values, "probabilities")
        shared = not isinstance(value, list) or getattr(calibrator, "mode_", "") == "multiclass"
        m = calibrator.n_features_in_
        expect(len(values) == (1 if shared else m), name, values, f"a line for each of {m} classes")
        if calibrator.preserves_order:
            rising(calibrator, value, name)

    return rule


def context(calibrator: Calibrator, value: Any, name: str) -> None:
    expect(isinstance(value, ContextReader) and value.columns, name, value, "columns of context")
    value.check(name)
    expect(hasattr(calibrator, "adjustment_"), name, value, "a second stage that uses it")
