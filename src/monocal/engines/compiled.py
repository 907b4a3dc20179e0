"""Predictions of large single-precision arrays in memory, by loops that numba compiles (the extra ``fast``).

    v at some ranks, and its ties         of rows that are not sorted                        (`find_jumps`)
    softmax(-w_d v_i - D_d),              d the number of jumps at or below the rank of i     (`calibrate`)

`numba.engine` has what a fit sums over rows. The same numbers are made by ordinary array operations in `rank_map`, which write
and read an array for each step of the arithmetic; a loop keeps a row in the cache. Order survives for the same reasons as there:
every step rounds monotonely, and ``exp`` is taken on a grid so coarse that its error cannot swap neighbours (see
`arrays.ordered_exp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import warn
from .scratch import scratch_buffer

# Statistics of a row that need no sorting, in the order in which `find_jumps` has them.
STATISTICS = ("margin", "mean_gap", "spread")
# Longer rows are searched for the values at jumps, shorter ones sorted.
_SORTED = 2048
# Loading the compiled loops is worth it for a prediction of at least so many logits.
LARGE = 2**20


@cache
def available() -> bool:
    """Whether numba is there, works, and compiles: under ``NUMBA_DISABLE_JIT`` (debuggers, coverage) it does not."""
    if find_spec("numba") is None:
        return False
    try:
        import numba

        if numba.config.DISABLE_JIT:
            return False
        loops()
    except ImportError as error:
        warn(
            f"numba is installed but cannot be used ({error}): large arrays take the slower way.",
            RuntimeWarning,
        )
        return False
    return True


def suits(x: Array) -> bool:
    """Whether these loops take an array like this."""
    return isinstance(x, np.ndarray) and x.dtype == np.float32 and x.flags.c_contiguous and available()


def in_order(z: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Rows in rising order, to ``out``, by a sorting network."""
    from .numba.sort import sort_rows

    sort_rows(z, out, _NONE)
    return out


_NONE = np.empty(0, dtype=np.float32)


@dataclass(frozen=True)
class Jumps:
    """Where the jumps of a map fall in rows that are in no order. Those nearest to the top come first."""

    ranks: np.ndarray  # (J,): classes at or above each jump
    top: np.ndarray  # (n,)
    height: np.ndarray  # (n,): depth of the lowest class in use
    depth: np.ndarray  # (n, J or more): depths at the jumps
    over: np.ndarray  # the same shape: classes above that depth
    many: np.ndarray  # the same shape: classes above it or at it
    done: np.ndarray  # (n,): rows for which all this is known; the others have depths that must be cut
    statistics: np.ndarray  # (n, 3) where they were wanted: margin, mean gap and spread


def find_jumps(
    z: np.ndarray, starts: np.ndarray, top_k: int | None = None, statistics: bool = False
) -> Jumps:
    """Of rows (n, m) in any order: top and height, and the depths at some ranks with the classes that tie there.

    ``starts`` (J,) rises and counts from the lowest rank in use. On demand also `STATISTICS`.
    """
    n, m = z.shape
    r = m if top_k is None else min(top_k, m)
    if len(starts) and not (starts[0] >= 0 and starts[-1] < r and (np.diff(starts) > 0).all()):
        raise IndexError(f"ranks {starts} do not rise from 0 to {r - 1}")  # the loop would not notice
    ranks = (r - starts[::-1]).astype(np.uint32)
    wanted = ranks if r == m else np.append(ranks, np.uint32(r))
    top, height, done = np.empty_like(z[:, 0]), np.empty_like(z[:, 0]), np.empty(n, dtype=bool)
    depth = np.empty((n, len(wanted)), dtype=z.dtype)
    over, many = np.empty(depth.shape, dtype=np.uint32), np.empty(depth.shape, dtype=np.uint32)
    found = np.zeros((n if statistics else 0, len(STATISTICS)), dtype=z.dtype)
    if m <= _SORTED:
        rows = in_order(z, scratch_buffer("in_order", z.shape, z.dtype))
        search_loops().read_jumps(rows, wanted, r < m, top, height, depth, over, many, done, found)
    else:
        n_buckets = min(-(-m // 8) * 8, 2**15)
        search_loops().find_jumps(z, wanted, r < m, n_buckets, top, height, depth, over, many, done, found)
    return Jumps(ranks, top, height, depth, over, many, done, found)


@dataclass(frozen=True)
class SecondStage:
    """The numbers of ``f' = W f + A 1[top]`` (`calibration.adjustment`), single precision."""

    class_scales: np.ndarray  # (m,), or none
    zeros: np.ndarray  # (R,), of the ramps of the log-odds of the top
    widths: np.ndarray
    steps: np.ndarray  # (2, R): of weight and lift
    terms: (
        np.ndarray
    )  # (1 or n, 3): a scale, and the parts of weight and lift without the log-odds; (0, 3): no second stage


_NOTHING = np.zeros(0, dtype=np.float32)
_NO_STAGE = SecondStage(_NOTHING, _NOTHING, _NOTHING, _NOTHING.reshape(2, 0), _NOTHING.reshape(0, 3))


@dataclass(frozen=True)
class Mixture:
    """How weights and drops of rows are made of factors: the constant 1, and ramps of `STATISTICS` of a row."""

    which: np.ndarray  # (K - 1,): place of the statistic of each ramp; none: factors are given
    zeros: np.ndarray
    widths: np.ndarray
    steps: np.ndarray  # (2, K, J + 1): increments of weights and biases


def mix(
    mixture: Mixture, height: np.ndarray, statistics: np.ndarray, factors: np.ndarray | None
) -> np.ndarray:
    """Weights and drops (2, n, J + 1) of rows, from their heights (n,) and statistics (n, 3), or from factors (n, K)."""
    out = np.empty((2, len(height), mixture.steps.shape[2]), dtype=np.float32)
    given = _NOTHING.reshape(0, 1) if factors is None else np.ascontiguousarray(factors, dtype=np.float32)
    predict_loops().mix(
        height, statistics, mixture.which, mixture.zeros, mixture.widths, given, mixture.steps, out
    )
    return out


def calibrate(
    z: np.ndarray,
    jumps: Jumps,
    weights: np.ndarray,
    drops: np.ndarray,
    out: np.ndarray,
    normalise: bool = True,
    stage: SecondStage = _NO_STAGE,
) -> np.ndarray:
    """``-w_d v - D_d``, or its softmax, to ``out`` (n, m), of the rows that are done; weights and drops (1 or n, J + 1) each.

    Returns (n,) in which rows rounding has made another class as probable as the top, so that ``argmax`` may change.
    """
    lost = np.empty(len(z), dtype=bool)
    predict_loops().calibrate(
        z, jumps.top, jumps.ranks, jumps.depth, jumps.over, jumps.many, jumps.done, weights, drops,
        stage.class_scales, stage.zeros, stage.widths, stage.steps, stage.terms, normalise, out, lost,
    )  # fmt: skip
    return lost


def loops() -> Any:
    """The module with the loops themselves; compiling what it has not met before takes a second."""
    from .numba import loops as module

    return module


def search_loops() -> Any:
    """The same for what predictions look for in rows."""
    from . import search_loops as module

    return module


def predict_loops() -> Any:
    """The same for predictions themselves."""
    from . import predict_loops as module

    return module
