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

from . import oracle
from .engines import Batch, Refused, Result, cast, predict

# Rows up to which each is also predicted alone; entries up to which the oracle sees all rows.
ALONE, MANY = 40, 2**20
# Methods for which a class is a logit and a rank, nothing else.
ANONYMOUS = {"TemperatureScaling", "MCCT", "MCCTInverse", "ConditionalMCCT", "EnsembleTemperatureScaling"}


def knows_classes(cal) -> bool:
    """Whether a calibrator treats rows by the name of their top class."""
    stage = getattr(cal, "adjustment_", None)
    return stage is not None and stage.class_scales is not None and stage.class_scales.variance > 0


@dataclass(frozen=True)
class Failure:
    """A broken promise."""

    promise: str
    row: int
    text: str


def failures(cal: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[Failure], int]:
    """What is broken, one failure for each promise at most, and how many rows were predicted."""
    result: dict[str, Failure] = {}
    looked = _Look(cal, batch, rng)
    try:
        for failure in looked.all():
            result.setdefault(failure.promise, failure)
    except Refused:
        raise
    except Exception as error:
        result["no exception"] = Failure("no exception", 0, f"{type(error).__name__}: {error}"[:300])
    return list(result.values()), looked.predicted


class _Look:
    """One batch and everything that is asked of it."""

    def __init__(self, cal: Any, batch: Batch, rng: np.random.Generator):
        self.cal, self.batch, self.rng = cal, batch, rng
        self.keeps_order = bool(cal.preserves_order)
        self.predicted = 0

    def predict(self, values: np.ndarray | None = None) -> Result:
        result = predict(self.cal, self.batch, values)
        self.predicted += len(result.p) * sum(
            part is not None for part in (result.p, result.f, result.labels)
        )
        return result

    def all(self) -> Iterator[Failure]:
        given = self.batch.given
        got = self.predict()
        masked = np.isinf(given) if given.dtype.kind == "f" else np.zeros(given.shape, dtype=bool)
        yield from finite(got, masked)
        if np.isnan(got.p).any():  # nothing else can be asked
            return
        yield from sums(got, plainly=self.batch.engine == "onnx")
        if self.keeps_order:
            yield from order(given, got.p, "predict_proba")
            if got.f is not None:
                yield from order(given, got.f, "transform")
        if got.labels is not None:
            top = given if self.keeps_order else got.p
            yield from at_rows(
                "predict", got.labels != top.argmax(axis=1), "predict names another class than argmax"
            )
        yield from self.against_the_oracle(given, got)

    def against_the_oracle(self, given: np.ndarray, got: Result) -> Iterator[Failure]:
        """The value, and whatever else is asked up to the rounding that the oracle allows."""
        rows = np.arange(len(given))
        if given.size > MANY:  # of very many rows, some
            rows = np.sort(self.rng.choice(len(given), size=MANY // given.shape[1], replace=False))
            got = got.part(rows)
        logits = oracle.logits_of(self.cal, given[rows].astype(np.float64))
        expected = oracle.expected(self.cal, logits, self.computes_in_single)
        rounding = np.full((len(rows), 1), 1e-4) if expected is None else expected.tolerance
        rounding = rounding + 4 * got.eps
        if expected is not None:
            for failure in at_rows("value", ~(expected.excess(got.p) <= 4 * got.eps), ""):
                far = float(np.abs(got.p - expected.by_logit)[failure.row].max())
                allowed = float(rounding[failure.row, 0])
                text = f"off by {far:.2g} from the mathematics, rounding explains {allowed:.1g}"
                yield Failure("value", int(rows[failure.row]), text)
        yield from consistent(got, rounding, rows)
        if given.size > MANY:
            return
        if len(given) <= ALONE and self.batch.repeat == 1:
            yield from self.alone(given, got, rounding)
        if type(self.cal).__name__ in ANONYMOUS and not knows_classes(self.cal):
            yield from self.renamed(given, got, rounding)
            if self.cal.input == "logits":
                yield from self.shifted(given, got, rounding)
        if expected is not None and given.dtype == np.float64 and given.shape[1] <= 6:
            yield from self.exact(given, got, rounding)

    @property
    def computes_in_single(self) -> bool:
        """Double stays double; the logarithms of probabilities are doubles too, but for exports."""
        wide = self.batch.dtype in ("float64", "int64", "longdouble")
        return not wide and (self.cal.input == "logits" or self.batch.engine in ("module", "onnx"))

    def alone(self, given: np.ndarray, got: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """A row alone gives what it gives among others."""
        for i in range(len(given)):
            one = self.predict(given[i : i + 1])
            yield from nearly("a row alone", one.p, got.p[i : i + 1], 2 * rounding[i : i + 1], i)
            if got.f is not None:
                with np.errstate(invalid="ignore"):
                    size = 1e-4 * np.where(np.isfinite(got.f[i : i + 1]), np.abs(got.f[i : i + 1]), 0.0)
                yield from nearly(
                    "a row alone (transform)", one.f, got.f[i : i + 1], 4 * rounding[i : i + 1] + size, i
                )
            if got.labels is not None and one.labels[0] != got.labels[i]:
                yield Failure("a row alone", i, "predict names another class")

    def renamed(self, given: np.ndarray, got: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """Renaming the classes renames the result."""
        names = self.rng.permutation(given.shape[1])
        other = self.predict(np.ascontiguousarray(given[:, names]))
        yield from nearly("renamed classes", other.p, got.p[:, names], 2 * rounding)

    def shifted(self, given: np.ndarray, got: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """A constant added to a row changes nothing, where the addition itself loses nothing."""
        if given.dtype.kind != "f" or given.dtype == np.longdouble:
            return
        by = float(self.rng.choice([-4.0, 0.5, 64.0]))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = cast(given.astype(np.float64) + by, self.batch.dtype)
            whole = ((moved.astype(np.float64) - by == given) | np.isinf(given)).all(axis=1)
        if whole.any():
            other = self.predict(np.ascontiguousarray(moved[whole]))
            for failure in nearly("shift", other.p, got.p[whole], 2 * rounding[whole]):
                yield Failure("shift", int(np.flatnonzero(whole)[failure.row]), failure.text)

    def exact(self, given: np.ndarray, got: Result, rounding: np.ndarray) -> Iterator[Failure]:
        """A few rows in fifty digits."""
        if not hasattr(self.cal, "biases_"):
            return
        logits = oracle.logits_of(self.cal, given)
        for i in self.rng.choice(len(given), size=min(2, len(given)), replace=False):
            depth = logits[i].max() - logits[i]
            if (
                len(np.unique(depth)) == len(np.unique(logits[i]))
                and depth[np.isfinite(depth)].max() < oracle.CUT
            ):
                p = np.array(oracle.exact_row(logits[i], self.cal.weights_, self.cal.biases_))
                yield from nearly(
                    "value in fifty digits", got.p[i : i + 1], p[None], rounding[i : i + 1], int(i)
                )


def finite(got: Result, masked: np.ndarray) -> Iterator[Failure]:
    yield from at_rows("finite", ~np.isfinite(got.p).all(axis=1), "predict_proba is not finite")
    yield from at_rows(
        "finite", ((got.p < 0) | (got.p > 1 + 4 * got.eps)).any(axis=1), "a probability outside [0, 1]"
    )
    yield from at_rows("masked", ((got.p != 0) & masked).any(axis=1), "a masked class has a probability")
    if got.f is not None:
        yield from at_rows("finite", (~np.isfinite(got.f) & ~masked).any(axis=1), "transform is not finite")
        yield from at_rows(
            "masked", ((got.f != -np.inf) & masked).any(axis=1), "a masked class has a calibrated logit"
        )


def sums(got: Result, plainly: bool) -> Iterator[Failure]:
    """Rows sum to 1, up to a few roundings; one for each class where an engine adds them one by one."""
    m = got.p.shape[1]
    allowed = got.eps * (4 + (m if plainly else np.log2(m))) + m * got.least
    off = np.abs(got.p.sum(axis=1) - 1.0)
    yield from at_rows("rows sum to 1", ~(off <= allowed), "a row does not sum to 1")


def order(given: np.ndarray, result: np.ndarray, what: str) -> Iterator[Failure]:
    """Exactly: no pair inverted, ties equal, the same argmax."""
    z = (
        given.astype(np.float32) if given.dtype == np.float16 else given
    )  # numpy's sort of half precision is not trusted
    index = np.argsort(z, axis=1, kind="stable")
    before, after = np.take_along_axis(z, index, axis=1), np.take_along_axis(result, index, axis=1)
    with np.errstate(invalid="ignore"):
        fell = after[:, 1:] < after[:, :-1]
        split = (before[:, 1:] == before[:, :-1]) & (after[:, 1:] != after[:, :-1])
    for promise, wrong, text in (
        ("order", fell, "gets less than"),
        ("ties", split, "is equal to, but gets another value than,"),
    ):
        for failure in at_rows(promise, wrong.any(axis=1), ""):
            i, j = failure.row, int(wrong[failure.row].argmax())
            upper, lower = index[i, j + 1], index[i, j]
            values = f"{z[i, upper]!s} -> {result[i, upper]!r}, {z[i, lower]!s} -> {result[i, lower]!r}"
            yield Failure(promise, i, f"{what}: class {upper} {text} class {lower} ({values})")
    moved = z.argmax(axis=1) != result.argmax(axis=1)
    yield from at_rows("argmax", moved & np.isfinite(result.max(axis=1)), f"{what}: argmax has changed")


def consistent(got: Result, rounding: np.ndarray, rows: np.ndarray) -> Iterator[Failure]:
    """softmax(transform) is predict_proba."""
    if got.f is None or not np.isfinite(got.f.max(axis=1)).all():
        return
    with np.errstate(under="ignore", over="ignore"):
        d = got.f - got.f.max(axis=1, keepdims=True)
        e = np.exp(d)
        p = e / e.sum(axis=1, keepdims=True)
    size = np.where(np.isfinite(got.f), np.abs(got.f), 0.0).max(axis=1, keepdims=True)
    for failure in nearly("softmax of transform", p, got.p, 2 * rounding + 2 * got.eps * size):
        yield Failure(failure.promise, int(rows[failure.row]), failure.text)


def nearly(
    promise: str, a: np.ndarray, b: np.ndarray, allowed: np.ndarray, row: int | None = None
) -> Iterator[Failure]:
    with np.errstate(invalid="ignore"):
        off = np.where(a == b, 0.0, np.abs(a - b))
        wrong = (~(off <= allowed)).any(axis=1)
    for failure in at_rows(promise, wrong, ""):
        worst = float(off[failure.row].max())
        yield Failure(
            promise,
            failure.row if row is None else row,
            f"differs by {worst:.2g}, rounding explains {np.max(allowed[failure.row]):.1g}",
        )


def at_rows(promise: str, wrong: np.ndarray, text: str) -> Iterator[Failure]:
    if wrong.any():
        yield Failure(promise, int(wrong.argmax()), text)
