"""Cases from a seed: a calibrator with options, a calibration set, and batches for every engine and type.

One fit costs more than a prediction, so each is followed by several batches: small ones that mix kinds of rows, large ones for
their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import monocal as mc

from .engines import TYPES, Batch, cast
from .row_kinds import KINDS, SANE, mixed, plain, real

INFO = {info.name: info for info in mc.all_calibrators()}
RANKS = ("TemperatureScaling", "MCCT", "MCCTInverse", "ConditionalMCCT")
# Methods that are slow to fit come less often: networks, and the published procedures.
SLOW = tuple(name for name, info in INFO.items() if info.extras or info.published)
OTHERS = tuple(name for name in INFO if name not in SLOW)
STATISTICS = (
    "margin",
    "mean_gap",
    "spread",
    "entropy",
    "log_odds",
    lambda u: u[:, -1],
    lambda u: 1e8 + u[:, -1],
    lambda u: 0 * u[:, -1],
    lambda u: 1e-30 * u[:, -1],
    lambda u: (u > 1).sum(1),
    lambda u: 1e30 * (u[:, -1] > 5),
)
CLASSES = (2, 3, 4, 5, 6, 7, 10, 10, 12, 20, 33, 60, 100, 100)
CROWDED = (300, 1000, 5000)
# Entries of a large batch; and of one that goes through compiled loops.
LARGE, COMPILED = 2**15, 2**20 + 2**16


@dataclass(frozen=True)
class Case:
    """A calibrator, and a calibration set of doubles."""

    name: str
    cal: mc.Calibrator
    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None


def draw_case(rng: np.random.Generator, real_names: Sequence[str] = ()) -> Case:
    """A calibrator and what to fit it on: now and then one of the real sets named."""
    n = int(rng.choice([1, 2, 3, 5, 10, 20, 50, 100, 300, 300, 1000]))
    if rng.random() < 0.15 and real_names:
        x, y = real(str(rng.choice(real_names)), n, rng)
        if rng.random() < 0.3:
            y = x.argmax(axis=1)
    else:
        crowded = rng.random() < 0.05
        m = int(rng.choice(CROWDED if crowded else CLASSES))
        x, y = draw_training(rng, min(n, 50) if crowded else n, m)
    name, cal = draw_method(rng, x.shape[1])
    if cal.input == "probabilities":
        x = probabilities(x)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], size=len(x)) if rng.random() < 0.2 else None
    if weight is not None:
        weight[0] = 1.0
    return Case(name, cal, x, y, weight)


def draw_training(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    kind = rng.choice(SANE) if rng.random() < 0.7 else "plain"
    x = KINDS[kind](rng, n, m)
    if kind == "plain" and rng.random() < 0.1:
        x[:, rng.integers(m)] = -np.inf  # a class that is never available
    hidden = np.isinf(x)
    style = rng.choice(["right", "by rank", "by rank", "any", "never 0", "wrong", "noisy", "noisy"])
    if style == "by rank":  # a map with many jumps
        place = np.minimum(rng.geometric(rng.choice([0.2, 0.4]), size=n), (~hidden).sum(axis=1)) - 1
        return x, np.argsort(-x, axis=1, kind="stable")[np.arange(n), place]
    with np.errstate(invalid="ignore"):
        noisy = x / rng.choice([0.5, 2.0, 5.0]) + rng.gumbel(size=x.shape)
    score = {"right": x, "any": rng.random(size=x.shape), "wrong": -x}.get(style, noisy)
    score = np.where(hidden, -np.inf, score)
    if style == "never 0":  # where another class is available
        score[:, 0] = np.where((~hidden[:, 1:]).any(axis=1), -np.inf, score[:, 0])
    return x, score.argmax(axis=1)


def draw_method(rng: np.random.Generator, m: int) -> tuple[str, mc.Calibrator]:
    """A name, and the calibrator with some of its options."""
    kind = rng.random()
    if kind > 0.72 or m > 400:
        name = str(rng.choice(SLOW if kind > 0.98 and m <= 20 else OTHERS if m <= 100 else RANKS))
    else:
        name = str(rng.choice(RANKS, p=[0.1, 0.35, 0.1, 0.45]))
    cal = getattr(mc, name)() if name in RANKS else INFO[name].make()
    if name in SLOW:
        return name, cal.set_params(max_epochs=3) if INFO[name].extras else cal
    if rng.random() < 0.2:
        cal.set_params(input="probabilities")
    if name in RANKS[1:]:
        if rng.random() < 0.5:
            cal.set_params(shrinkage=float(rng.choice([0.0, 0.01, 0.1, 1.0, 30.0])))
        if rng.random() < 0.35:
            cal.set_params(top_k=int(rng.integers(1, m + 1)))
    if name == "ConditionalMCCT":
        if rng.random() < 0.4:
            cal.set_params(by_class=bool(rng.integers(2)))
        if rng.random() < 0.6:
            chosen = rng.choice(len(STATISTICS), size=rng.integers(1, 4), replace=False)
            cal.set_params(
                statistics=tuple(STATISTICS[i] for i in chosen),
                n_knots=int(rng.choice([1, 2, 3, 7])),
                shrinkage=float(rng.choice([0.1, 1.0, 20.0])),
            )
    return name, cal


def draw_batches(rng: np.random.Generator, case: Case) -> Iterator[Batch]:
    """Batches for one fit, most of them small."""
    m, on_ranks, jumps = case.x.shape[1], case.name in RANKS, jumps_of(case.cal)
    engines = ["numpy"] * 4 + ["out"] + ["torch"] * 2 + ["module"] * on_ranks
    for _ in range(8):
        n = int(rng.integers(1, 33)) if m <= 400 else int(rng.integers(1, 6))
        yield draw_batch(rng, case, jumps, n, str(rng.choice(engines)))
    exports = on_ranks and all(isinstance(s, str) for s in getattr(case.cal, "statistics", ()))
    if exports and rng.random() < 0.1:
        yield draw_batch(rng, case, jumps, 32, "onnx")
    if m <= 400:
        yield draw_batch(rng, case, jumps, min(LARGE // m, 1000), str(rng.choice(engines)))
    if on_ranks and rng.random() < 0.03:
        small = draw_batch(rng, case, jumps, max(4, 2**15 // m), "numpy", "float32")
        yield Batch(small.rows, "numpy", "float32", repeat=-(-COMPILED // small.rows.size))


def jumps_of(cal: mc.Calibrator) -> np.ndarray:
    """Ranks, lowest class 0, where the weight or the bias of a fitted rank map changes."""
    steps = getattr(cal, "coefficients_", None)
    if steps is None and hasattr(cal, "biases_"):
        steps = np.stack([np.diff(a, prepend=0.0) for a in (cal.weights_, cal.biases_)])[:, None]
    if steps is None:
        return np.zeros(0, dtype=np.intp)
    used = np.flatnonzero(steps.any(axis=(0, 1)))
    return used[used > 0] + cal.n_features_in_ - steps.shape[2]


def draw_batch(
    rng: np.random.Generator, case: Case, jumps: np.ndarray, n: int, engine: str, dtype: str | None = None
) -> Batch:
    of_probabilities = case.cal.input == "probabilities"
    near = np.log(np.maximum(case.x, 1e-30)) if of_probabilities else case.x
    z = mixed(
        rng, n, near.shape[1], near if rng.random() < 0.3 else None, jumps if rng.random() < 0.5 else None
    )
    if "published" in case.name:  # raw logits as published: masks and 1e38 are beyond some of them
        z = plain(rng, *z.shape)
    kinds = [t for t in TYPES[engine] if not of_probabilities or t not in ("int64", "longdouble")]
    if near.shape[1] >= 300 and "float16" in kinds and rng.random() < 0.5:
        dtype = "float16"  # where sorting is least trusted
    dtype = dtype or str(rng.choice(kinds))
    if of_probabilities:
        return Batch(cast(probabilities(z), dtype), engine, dtype)
    rows = cast(z, dtype)
    if dtype == "int64" and rng.random() < 0.5:
        rows = 2**53 + rng.integers(-3, 4, size=z.shape)
    if dtype == "longdouble" and rng.random() < 0.5:
        finite = np.abs(np.where(np.isinf(rows), 0, rows))
        rows = rows + np.finfo(np.longdouble).eps * rng.integers(-2, 3, size=z.shape) * finite
    return Batch(rows, engine, dtype)


def probabilities(z: np.ndarray) -> np.ndarray:
    with np.errstate(under="ignore", over="ignore"):
        e = np.exp(np.maximum(z - z.max(axis=1, keepdims=True), -1e300))
        return e / e.sum(axis=1, keepdims=True)
