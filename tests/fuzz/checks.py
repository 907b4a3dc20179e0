"""The promises, as questions to the results of a batch. Each failure names a promise, a row and what is wrong there.

Exact, bit for bit: order, ties, argmax, masked classes at zero, everything finite. Up to a stated rounding (the oracle's, or
1e-4 for methods without one): the value, the sum of a row, a row alone and in the batch, a shift, another order of classes,
softmax of `transform`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

import monocal as mc

from . import oracle
from .engines import Batch, Result, cast, predict

# Rows up to which each is also predicted alone; entries up to which the oracle sees all rows.
ALONE, MANY = 40, 2**20
# Methods for which a class is a logit and a rank, nothing else.
ANONYMOUS = {"TemperatureScaling", "MCCT", "MCCTInverse", "ConditionalMCCT", "EnsembleTemperatureScaling"}


@dataclass(frozen=True)
class Failure:
    """A broken promise."""

    promise: str
    row: int
    text: str


def failures(cal: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[Failure], int]:
    """What is broken, one failure for each promise at most, and how many rows were predicted."""
    broken: dict[str, Failure] = {}
    checks = _Checks(cal, batch, rng)
    try:
        for failure in checks.all():
            broken.setdefault(failure.promise, failure)
    except mc.InputError:
        raise
    except Exception as error:
        broken["no exception"] = Failure("no exception", 0, f"{type(error).__name__}: {error}"[:300])
    return list(broken.values()), checks.predicted


class _Checks:
    """One batch and all that is asked of its results."""

    def __init__(self, cal: Any, batch: Batch, rng: np.random.Generator):
        self.cal, self.batch, self.rng = cal, batch, rng
        self.predicted = 0

    def predict(self, values: np.ndarray) -> Result:
        result = predict(self.cal, self.batch, np.ascontiguousarray(values))
        self.predicted += sum(len(part) for part in (result.p, result.f, result.labels) if part is not None)
        return result

    def all(self) -> Iterator[Failure]:
        X = self.batch.X
        result = self.predict(X)
        yield from finite(result, np.isinf(X))
        if np.isnan(result.p).any():  # nothing else can be asked
            return
        yield from sums(result, self.batch.engine)
        if self.cal.preserves_order:
            yield from order(X, result.p, "predict_proba")
            if result.f is not None:
                yield from order(X, result.f, "transform")
        if result.labels is not None:
            top = X if self.cal.preserves_order else result.p
            wrong = result.labels != top.argmax(axis=1)
            yield from at_rows("predict", wrong, "predict names another class than argmax")
        yield from self.up_to_rounding(X, result)

    def up_to_rounding(self, X: np.ndarray, result: Result) -> Iterator[Failure]:
        """The value, and whatever else is asked up to the rounding that the oracle allows."""
        large = X.size > MANY
        if large:  # rows drawn from all
            rows = np.sort(self.rng.choice(len(X), size=MANY // X.shape[1], replace=False))
            X, result = X[rows], result.part(rows)
        logits = oracle.logits_of(self.cal, X.astype(np.float64))
        expected = oracle.expected(self.cal, logits, self.computes_in_single)
        rounding = np.full((len(X), 1), 1e-4) if expected is None else expected.tolerance
        rounding = rounding + 4 * result.eps
        if expected is not None:
            wrong = ~(expected.excess(result.p) <= 4 * result.eps)
            yield from at_rows("value", wrong, "further from the mathematics than rounding explains")
        yield from consistent(result, rounding)
        if large:
            return
        if len(X) <= ALONE and self.batch.repeat == 1:
            yield from self.alone(X, result, rounding)
        if type(self.cal).__name__ in ANONYMOUS and not scales_classes(self.cal):
            names = self.rng.permutation(X.shape[1])
            renamed = self.predict(X[:, names])
            yield from nearly("renamed classes", renamed.p, result.p[:, names], 2 * rounding)
            if self.cal.input == "logits" and X.dtype.kind == "f" and X.dtype != np.longdouble:
                yield from self.shifted(X, result, rounding)

    @property
    def computes_in_single(self) -> bool:
        """Double stays double; the logarithms of probabilities are doubles too, but for exports."""
        wide = self.batch.dtype in ("float64", "int64", "longdouble")
        return not wide and (self.cal.input == "logits" or self.batch.engine in ("module", "onnx"))

    def alone(self, X: np.ndarray, result: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """A row alone gives what it gives among others."""
        ones = [self.predict(X[i : i + 1]) for i in range(len(X))]
        yield from nearly("a row alone", np.concatenate([one.p for one in ones]), result.p, 2 * rounding)
        if result.f is not None:
            size = 1e-4 * np.where(np.isfinite(result.f), np.abs(result.f), 0.0)
            f = np.concatenate([one.f for one in ones])
            yield from nearly("a row alone (transform)", f, result.f, 4 * rounding + size)
        if result.labels is not None:
            wrong = np.concatenate([one.labels for one in ones]) != result.labels
            yield from at_rows("a row alone", wrong, "predict names another class")

    def shifted(self, X: np.ndarray, result: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """A constant added to a row changes nothing, where the addition itself loses nothing."""
        by = float(self.rng.choice([-4.0, 0.5, 64.0]))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = cast(X.astype(np.float64) + by, self.batch.dtype)
            exact = ((moved.astype(np.float64) - by == X) | np.isinf(X)).all(axis=1)
        if exact.any():
            p = result.p.copy()
            p[exact] = self.predict(moved[exact]).p
            yield from nearly("shift", p, result.p, 2 * rounding)


def scales_classes(cal: Any) -> bool:
    """Whether a calibrator treats rows by the name of their top class."""
    stage = getattr(cal, "adjustment_", None)
    return stage is not None and stage.class_scales is not None and stage.class_scales.variance > 0


def finite(result: Result, masked: np.ndarray) -> Iterator[Failure]:
    p, f = result.p, result.f
    yield from at_rows("finite", ~np.isfinite(p).all(axis=1), "predict_proba is not finite")
    outside = (p < 0) | (p > 1 + 4 * result.eps)
    yield from at_rows("finite", outside.any(axis=1), "a probability outside [0, 1]")
    yield from at_rows("masked", ((p != 0) & masked).any(axis=1), "a masked class has a probability")
    if f is not None:
        yield from at_rows("finite", (~np.isfinite(f) & ~masked).any(axis=1), "transform is not finite")
        hidden = (f != -np.inf) & masked
        yield from at_rows("masked", hidden.any(axis=1), "a masked class has a calibrated logit")


def sums(result: Result, engine: str) -> Iterator[Failure]:
    """Rows sum to 1, up to a few roundings; one for each class where a graph adds them one by one."""
    m = result.p.shape[1]
    one_by_one = m if engine == "onnx" else 0
    allowed = result.eps * (4 + max(one_by_one, np.log2(m))) + m * result.least
    wrong = ~(np.abs(result.p.sum(axis=1) - 1.0) <= allowed)
    yield from at_rows("rows sum to 1", wrong, "a row does not sum to 1")


def order(X: np.ndarray, values: np.ndarray, what: str) -> Iterator[Failure]:
    """Exactly: no pair inverted, ties equal, the same argmax."""
    z = X.astype(np.float32) if X.dtype == np.float16 else X  # numpy's sort of half precision is not trusted
    index = np.argsort(z, axis=1, kind="stable")
    before, after = np.take_along_axis(z, index, axis=1), np.take_along_axis(values, index, axis=1)
    inverted = after[:, 1:] < after[:, :-1]
    split = (before[:, 1:] == before[:, :-1]) & (after[:, 1:] != after[:, :-1])
    moved = (z.argmax(axis=1) != values.argmax(axis=1)) & np.isfinite(values.max(axis=1))
    yield from at_rows("order", inverted.any(axis=1), f"{what}: a larger logit gets less than a smaller one")
    yield from at_rows("ties", split.any(axis=1), f"{what}: equal logits get different values")
    yield from at_rows("argmax", moved, f"{what}: argmax has changed")


def consistent(result: Result, rounding: np.ndarray) -> Iterator[Failure]:
    """softmax(transform) is predict_proba."""
    if result.f is None or not np.isfinite(result.f.max(axis=1)).all():
        return
    size = np.where(np.isfinite(result.f), np.abs(result.f), 0.0).max(axis=1, keepdims=True)
    with np.errstate(under="ignore", over="ignore"):
        p = softmax(result.f, axis=1)
    yield from nearly("softmax of transform", p, result.p, 2 * rounding + 2 * result.eps * size)


def nearly(promise: str, a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> Iterator[Failure]:
    with np.errstate(invalid="ignore"):
        off = np.where(a == b, 0.0, np.abs(a - b))
    yield from at_rows(promise, (~(off <= allowed)).any(axis=1), "differs by more than rounding explains")


def at_rows(promise: str, wrong: np.ndarray, text: str) -> Iterator[Failure]:
    if wrong.any():
        yield Failure(promise, int(wrong.argmax()), text)
