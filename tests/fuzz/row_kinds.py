"""Rows of every kind that has ever broken a calibrator, mixed in one batch: those of `hostile`, and more.

A kind is a function ``(rng, n, m) -> (n, m)`` of doubles, ``-inf`` for masked classes; every row has an available class.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from hostile import ROW_KINDS, to_bfloat16
from real_logits import LOGITS


def plain(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    return rng.normal(size=(n, m)) * rng.choice([0.3, 3.0, 3.0, 10.0])


KINDS = ROW_KINDS | {
    "plain": plain,
    "log-probabilities": lambda rng, n, m: log_softmax(plain(rng, n, m), axis=1),
    "nearly certain": lambda rng, n, m: (
        plain(rng, n, m) + rng.choice([20.0, 100.0, 1000.0]) * np.eye(m)[rng.integers(0, m, size=n)]
    ),
    "huge in double precision": lambda rng, n, m: (
        rng.uniform(-1, 1, size=(n, m)) * rng.choice([1e4, 1e6, 1e9, 1e38, 1e300])
    ),
    "subnormal": lambda rng, n, m: rng.integers(-9, 10, size=(n, m)) * rng.choice([5e-324, 1.4e-45, 6e-8]),
    "zeros of both signs on top": lambda rng, n, m: np.where(
        rng.random(size=(n, m)) < 0.5, rng.choice([0.0, -0.0], size=(n, m)), -np.abs(plain(rng, n, m))
    ),
    # Logits that differ in their last bits, in double, single or half precision.
    "neighbours": lambda rng, n, m: (
        rng.choice([1.0, -3.0, 100.0])
        * (1 + rng.integers(-2, 3, size=(n, m)) * rng.choice([2.0**-52, 2.0**-23, 2.0**-10]))
    ),
    "duplicates": lambda rng, n, m: np.repeat(plain(rng, 1, m), n, axis=0),
    "ordered": lambda rng, n, m: np.sort(plain(rng, n, m), axis=1)[:, :: rng.choice([-1, 1])],
}
# Of a calibration set.
SANE = (
    *("plain", "log-probabilities", "nearly certain", "tied", "tied at the top", "masked", "masked and tied"),
    *("rounded to float16", "rounded to bfloat16", "standardised"),
)


def around_jumps(rng: np.random.Generator, n: int, m: int, jumps: np.ndarray) -> np.ndarray:
    """Rows tied across a rank where a map jumps, and rows masked up to such a rank, one more or one less."""
    z = plain(rng, n, m)
    order, row = np.argsort(z, axis=1), np.arange(n)
    jump = rng.choice(jumps, size=n)
    z[row, order[row, jump - 1]] = z[row, order[row, jump]]
    hidden = np.clip(jump + rng.integers(-1, 2, size=n), 0, m - 1) * rng.integers(0, 2, size=n)
    rank = np.argsort(order, axis=1)
    return np.where(rank < hidden[:, None], -np.inf, z)


def mixed(
    rng: np.random.Generator, n: int, m: int, near: np.ndarray | None = None, jumps: np.ndarray | None = None
) -> np.ndarray:
    """A batch of several kinds in any order.

    ``near``: rows (k, m) some of which are made again with ties and masks; ``jumps``: ranks, lowest 0, where the map changes.
    """
    chosen = rng.choice(list(KINDS), size=rng.integers(1, 7))
    parts = [KINDS[kind](rng, n, m) for kind in chosen]
    if near is not None:
        again = near[rng.integers(0, len(near), size=n)]
        half = again.astype(np.float16).astype(np.float64)
        parts += [again, mask(rng, again, 0.5), half, mask(rng, half, 0.5)]
    if jumps is not None and len(jumps):
        parts += [around_jumps(rng, n, m, jumps) for _ in range(len(parts))]
    which = rng.integers(0, len(parts), size=n)
    return np.stack(parts)[which, np.arange(n)]


def mask(rng: np.random.Generator, z: np.ndarray, share: float) -> np.ndarray:
    """A share of the classes masked, never all that are available."""
    hidden = rng.random(size=z.shape) < share
    order = np.where(np.isinf(z), 2.0, rng.random(size=z.shape)).argmin(axis=1)
    hidden[np.arange(len(z)), order] = False
    return np.where(hidden, -np.inf, z)


def real_sets() -> list[str]:
    """Real logits next to the checkout, where there are any."""
    return sorted(path.stem for path in LOGITS.glob("*.npz"))


def real(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of the calibration part of a real set, in half precision more often than not."""
    with np.load(LOGITS / f"{name}.npz") as arrays:
        z, y = arrays["logits_val"].astype(np.float64), arrays["y_val"]
    chosen = rng.choice(len(z), size=min(n, len(z)), replace=False)
    z, y = z[chosen], y[chosen]
    rounding = rng.integers(0, 4)
    if rounding == 1:
        return z, y
    z = to_bfloat16(z) if rounding == 0 else z.astype(np.float16).astype(np.float64)
    return z, y
