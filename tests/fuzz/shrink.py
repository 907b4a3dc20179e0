"""Failures made small: fewer rows, fewer calibration rows, fewer classes, fewer options, simpler values.

Greedy: a step is kept if the same promise is still broken. Every try fits anew, so there is a limit of time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .checks import Failure, failures
from .engines import Case, Refused, Training, cast, fit

SECONDS = 20.0


def broken(case: Case, promise: str) -> Failure | None:
    """The same promise, if the case breaks it."""
    try:
        cal, _ = fit(case.method, case.training)
    except Refused:
        return None
    except Exception as error:
        return Failure("fit", 0, f"{type(error).__name__}: {error}"[:300]) if promise == "fit" else None
    if promise == "fit":
        return None
    try:
        found, _ = failures(cal, case.batch, np.random.default_rng(0))
    except Refused:
        return None
    return next((f for f in found if f.promise == promise), None)


def shrunk(case: Case, failure: Failure, seconds: float = SECONDS) -> tuple[Case, Failure]:
    """The smallest case found that breaks the same promise."""
    end = time.monotonic() + seconds
    again = broken(case, failure.promise)
    if again is None:  # it takes the random numbers of the run
        return case, failure
    failure, smaller = again, True
    while smaller:
        smaller = False
        for steps in STEPS:
            found = True
            while found:
                found = False
                for step in steps(case):
                    if time.monotonic() > end:
                        return case, failure
                    still = broken(step, failure.promise)
                    if still is not None:
                        case, failure, found, smaller = step, still, True, True
                        break
    return case, failure


def fewer_rows(case: Case) -> Iterator[Case]:
    for keep in parts(len(case.batch.rows)):
        yield replace(case, batch=replace(case.batch, rows=case.batch.rows[keep]))
    if case.batch.repeat > 1:
        yield replace(case, batch=replace(case.batch, repeat=1))


def fewer_calibration_rows(case: Case) -> Iterator[Case]:
    x, y, weight = case.training.x, case.training.y, case.training.weight
    for keep in parts(len(x)):
        if weight is None or weight[keep].any():
            part = Training(x[keep], y[keep], None if weight is None else weight[keep])
            yield replace(case, training=part)


def fewer_options(case: Case) -> Iterator[Case]:
    training, batch, keywords = case.training, case.batch, case.method.keywords
    if training.weight is not None:
        yield replace(case, training=replace(training, weight=None))
    for i, (name, _) in enumerate(keywords):
        if name not in ("input", "max_epochs"):
            yield replace(case, method=replace(case.method, keywords=keywords[:i] + keywords[i + 1 :]))
    if batch.engine == "numpy" and batch.dtype in ("float16", "float32") and batch.repeat == 1:
        yield replace(case, batch=replace(batch, rows=batch.rows.astype(np.float64), dtype="float64"))


def fewer_classes(case: Case) -> Iterator[Case]:
    if case.method.get("input") is not None:
        return
    for keep in parts(case.training.x.shape[1], least=2):
        x, rows = case.training.x[:, keep], np.ascontiguousarray(case.batch.rows[:, keep])
        if keep[case.training.y].all() and all((a > -np.inf).any(axis=1).all() for a in (x, rows)):
            training = replace(case.training, x=x, y=(np.cumsum(keep) - 1)[case.training.y])
            yield replace(case, training=training, batch=replace(case.batch, rows=rows))


def simpler_values(case: Case) -> Iterator[Case]:
    if case.method.get("input") is not None:
        return
    for digits in (0, 1, 2):
        with np.errstate(all="ignore"):
            x = np.round(case.training.x, digits)
            if not np.array_equal(x, case.training.x):
                yield replace(case, training=replace(case.training, x=x))
            if case.batch.rows.dtype.kind == "f":
                rows = cast(np.round(case.batch.rows.astype(np.float64), digits), case.batch.dtype)
                if not np.array_equal(rows, case.batch.rows):
                    yield replace(case, batch=replace(case.batch, rows=rows))


STEPS = (fewer_rows, fewer_calibration_rows, fewer_options, fewer_classes, simpler_values)


def parts(n: int, least: int = 1) -> Iterator[np.ndarray]:
    """Boolean masks that leave out halves, quarters, ... of ``n`` things."""
    size = n // 2
    while size >= 1:
        for begin in range(0, n, size) if n // size <= 64 else ():
            keep = np.ones(n, dtype=bool)
            keep[begin : begin + size] = False
            if keep.sum() >= least:
                yield keep
        size //= 2
