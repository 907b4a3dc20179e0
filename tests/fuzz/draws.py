"""Cases from a seed: a calibrator with options, a calibration set, and batches for every engine and type.

One fit costs more than a prediction, so each is followed by several batches: small ones that mix kinds of rows, large ones for
their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

import monocal as mc

from .engines import TYPES, Batch, Method, Training, cast
from .row_kinds import SANE, Kind, mixed, plain, real

INFO = {info.name: info for info in mc.all_calibrators()}
# Methods that are slow to fit come less often: networks, and the published procedures.
RANKS = ("TemperatureScaling", "MCCT", "MCCTInverse", "ConditionalMCCT")
SLOW = tuple(name for name, info in INFO.items() if info.extras or info.published)
OTHERS = tuple(name for name in INFO if name not in SLOW)
STATISTICS = ("'margin'", "'mean_gap'", "'spread'", "'entropy'", "'log_odds'")
CUSTOM = (
    "lambda u: u[:, -1]",
    "lambda u: 1e8 + u[:, -1]",
    "lambda u: 0 * u[:, -1]",
    "lambda u: 1e-30 * u[:, -1]",
    "lambda u: (u > 1).sum(1)",
    "lambda u: 1e30 * (u[:, -1] > 5)",
)
CLASSES = (2, 3, 4, 5, 6, 7, 10, 10, 12, 20, 33, 60, 100, 100)
CROWDED = (300, 1000, 5000)
# Entries of a large batch; and of one that goes through compiled loops, where numba is there.
LARGE, COMPILED = 2**15, 2**20 + 2**16
HAS = {name: find_spec(name) is not None for name in ("torch", "onnxruntime", "numba")}


def draw_fit(rng: np.random.Generator, real_names: Sequence[str] = ()) -> tuple[Method, Training]:
    """A calibrator and what to fit it on: now and then one of the real sets named."""
    n = int(rng.choice([1, 2, 3, 5, 10, 20, 50, 100, 300, 300, 1000]))
    if rng.random() < 0.15 and real_names:
        x, y = real(str(rng.choice(real_names)), n, rng)
        if rng.random() < 0.3:
            y = x.argmax(axis=1)
    else:
        crowded = rng.random() < 0.05
        m = int(rng.choice(CROWDED if crowded else CLASSES))
        n = min(n, 50) if crowded else n
        x, y = draw_training(rng, n, m)
    m = x.shape[1]
    method = draw_method(rng, m)
    if method.get("input") is not None:
        x = probabilities(x)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], size=len(x)) if rng.random() < 0.2 else None
    if weight is not None:
        weight[0] = 1.0
    return method, Training(x, y, weight)


def draw_training(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    kind: Kind = SANE[rng.integers(len(SANE))] if rng.random() < 0.7 else plain
    x = kind(rng, n, m)
    if kind is plain and rng.random() < 0.1:
        x[:, rng.integers(m)] = -np.inf  # a class that is never available
    with np.errstate(invalid="ignore"):
        noisy = np.where(np.isinf(x), -np.inf, x / rng.choice([0.5, 2.0, 5.0]) + rng.gumbel(size=x.shape))
    style = rng.choice([0, 1, 1, 2, 3, 4, 5, 5])
    if style == 0:  # all right
        return x, x.argmax(axis=1)
    if style == 1:  # labels by rank: a map with many jumps
        place = np.minimum(rng.geometric(rng.choice([0.2, 0.4]), size=n), (x > -np.inf).sum(axis=1)) - 1
        return x, np.argsort(-x, axis=1, kind="stable")[np.arange(n), place]
    if style == 2:  # any label
        return x, np.where(np.isinf(x), -1.0, rng.random(size=x.shape)).argmax(axis=1)
    if style == 3:  # one class is never right, where another is available
        noisy[:, 0] = np.where((x[:, 1:] > -np.inf).any(axis=1), -np.inf, noisy[:, 0])
    if style == 4:  # all wrong
        noisy = np.where(np.isinf(x), -np.inf, -x)
    return x, noisy.argmax(axis=1)


def draw_method(rng: np.random.Generator, m: int) -> Method:
    kind = rng.random()
    if kind > 0.72 or m > 400:
        name = str(rng.choice(SLOW if kind > 0.98 and m <= 20 else OTHERS if m <= 100 else RANKS))
    else:
        name = str(rng.choice(RANKS, p=[0.1, 0.35, 0.1, 0.45]))
    if name not in RANKS:
        if INFO[name].extras:
            return Method(name, (("max_epochs", "3"),))
        chosen = {"input": "'probabilities'"} if rng.random() < 0.2 and "published" not in name else {}
        return Method(name, tuple(chosen.items()))
    words: dict[str, str] = {}
    if rng.random() < 0.2:
        words["input"] = "'probabilities'"
    if name != "TemperatureScaling":
        if rng.random() < 0.5:
            words["shrinkage"] = str(rng.choice(["0", "0.01", "0.1", "1.0", "30.0"]))
        if rng.random() < 0.35:
            words["top_k"] = str(rng.integers(1, m + 1))
    if name == "ConditionalMCCT" and rng.random() < 0.4:
        words["by_class"] = str(rng.choice(["True", "False"]))
    if name == "ConditionalMCCT" and rng.random() < 0.6:
        picked = rng.choice(STATISTICS + CUSTOM, size=rng.integers(1, 4), replace=False)
        words["statistics"] = "(" + ", ".join(picked) + ",)"
        words["n_knots"] = str(rng.choice([1, 2, 3, 7]))
        words["shrinkage"] = str(rng.choice(["0.1", "1.0", "20.0"]))
    return Method(name, tuple(words.items()))


def draw_batches(rng: np.random.Generator, method: Method, training: Training, cal: Any) -> Iterator[Batch]:
    """Batches for one fit, most of them small."""
    m = training.x.shape[1]
    near = training.x if method.get("input") is None else np.log(np.maximum(training.x, 1e-30))
    on_ranks, jumps = method.name in RANKS, jumps_of(cal)
    engines = ["numpy"] * 4 + ["out"] + ["torch"] * 2 * HAS["torch"]
    if on_ranks and HAS["torch"]:
        engines.append("module")
    for _ in range(8):
        engine = str(rng.choice(engines))
        n = int(rng.integers(1, 33)) if m <= 400 else int(rng.integers(1, 6))
        yield draw_batch(rng, method, near, jumps, n, engine)
    if on_ranks and HAS["onnxruntime"] and rng.random() < 0.1 and "lambda" not in method.source:
        yield draw_batch(rng, method, near, jumps, 32, "onnx")
    if m <= 400:
        yield draw_batch(rng, method, near, jumps, min(LARGE // m, 1000), str(rng.choice(engines)))
    if on_ranks and HAS["numba"] and rng.random() < 0.03:
        small = draw_batch(rng, method, near, jumps, max(4, 2**15 // m), "numpy", "float32")
        yield Batch(small.rows, "numpy", "float32", repeat=-(-COMPILED // small.rows.size))


def jumps_of(cal: Any) -> np.ndarray:
    """Ranks, lowest class 0, where the weight or the bias of a fitted rank map changes."""
    steps = getattr(cal, "coefficients_", None)
    if steps is None and hasattr(cal, "biases_"):
        steps = np.stack([np.diff(a, prepend=0.0) for a in (cal.weights_, cal.biases_)])[:, None]
    if steps is None:
        return np.zeros(0, dtype=np.intp)
    used = np.flatnonzero(steps.any(axis=(0, 1)))
    return used[used > 0] + cal.n_features_in_ - steps.shape[2]


def draw_batch(
    rng: np.random.Generator,
    method: Method,
    near: np.ndarray,
    jumps: np.ndarray,
    n: int,
    engine: str,
    dtype: str | None = None,
) -> Batch:
    z = mixed(
        rng, n, near.shape[1], near if rng.random() < 0.3 else None, jumps if rng.random() < 0.5 else None
    )
    if "published" in method.name:  # raw logits as published: masks and 1e38 are beyond some of them
        z = plain(rng, *z.shape)
    of_probabilities = method.get("input") is not None
    kinds = [t for t in TYPES[engine] if not of_probabilities or t not in ("int64", "longdouble")]
    if near.shape[1] >= 300 and "float16" in kinds and rng.random() < 0.5:
        dtype = "float16"  # where sorting is least trusted
    dtype = dtype or str(rng.choice(kinds))
    if of_probabilities:
        return Batch(cast(probabilities(z), dtype), engine, dtype)
    if dtype == "int64" and rng.random() < 0.5:
        near_top = 2**53 + rng.integers(-3, 4, size=z.shape)
        return Batch(near_top, engine, dtype)
    rows = cast(z, dtype)
    if dtype == "longdouble" and rng.random() < 0.5:
        rows = rows + np.finfo(np.longdouble).eps * rng.integers(-2, 3, size=z.shape) * np.abs(
            np.where(np.isinf(rows), 0, rows)
        )
    return Batch(rows, engine, dtype)


def probabilities(z: np.ndarray) -> np.ndarray:
    with np.errstate(under="ignore", over="ignore"):
        e = np.exp(np.maximum(z - z.max(axis=1, keepdims=True), -1e300))
        return e / e.sum(axis=1, keepdims=True)
