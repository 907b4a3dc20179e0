"""The map in loops that numba compiles, for large single-precision arrays: the same numbers up to rounding, in less time.

    v at some ranks, and its ties    of the rows of a block, put in order                            (`find_jumps`)
    weights and drops of each row    from its statistics                                             (`mix`)
    softmax(-w_d v_i - D_d)          d the number of jumps at or below the rank of i; second stage   (`calibrate`)

The rows of a block stay in the cache from one loop to the next. The map itself is that of `core.map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..arrays import Array, keep_argmax, to_numpy
from ..core.libraries import HOST
from ..core.map import MapStep, steps_as
from ..core.ramps import ramps_of
from ..core.ranked import rank_rows
from ..core.second_stage import terms_of_context
from ..core.statistics import compute_all
from ..errors import warn
from ..parallel import parallel_map, row_slices, rows_of_size
from .scratch import scratch_buffer

# Statistics of a row that need no sorting, in the order in which `find_jumps` has them.
STATISTICS = ("margin", "mean_gap", "spread")
# Loading the compiled loops is worth it for a prediction of at least so many logits.
LARGE = 2**20
# Logits of a block.
_BLOCK = 2**17
# Longer rows are searched for the values at jumps, shorter ones sorted.
_SORTED = 2048
_NONE = np.zeros(0, dtype=np.float32)


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


def loops() -> Any:
    """The module with the loops themselves; compiling what it has not met before takes a second."""
    from .numba import loops as module

    return module


def suits(x: Array) -> bool:
    """Whether these loops take an array like this."""
    return isinstance(x, np.ndarray) and x.dtype == np.float32 and x.flags.c_contiguous and available()


def in_order(z: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Rows in rising order, to ``out``, by a sorting network."""
    from .numba.sort import sort_rows

    sort_rows(z, out, _NONE)
    return out


def takes(logits: Array) -> bool:
    """Whether an array is large enough, and made, for the loops."""
    return logits.shape[0] * logits.shape[1] >= LARGE and suits(logits)


class LoopMap:
    """A rank map with the numbers of a step ``"ranks"`` in single precision."""

    def __init__(self, step: MapStep):
        _, a, s = steps_as([step], np.ascontiguousarray, np.float32)[0]
        self._arrays, self._static, self._second = a, s, s["adjustment"]
        self._starts = a["jumps"] if s["n_jumps"] else np.zeros(0, dtype=np.int64)
        self._top_k = s["n_ranks"]
        steps = a["steps"].astype(np.float64)[0]
        # Where all rows have the same increments: weights, and `a` and `b` of ``D = a U + b``.
        above = [np.append(np.cumsum(x[:0:-1])[::-1], 0.0) for x in steps]
        self._shared = [x.astype(np.float32)[None] for x in (np.cumsum(steps[0]), *above)]
        self._steps = np.ascontiguousarray(np.moveaxis(a["steps"], 0, 1))
        self._mixes = s["n_factors"] > 1
        self._by_loop = self._mixes and all(q in STATISTICS for q in s["statistics"])
        if self._by_loop:
            places = np.array([STATISTICS.index(q) for q in s["statistics"]])
            self._which = places[a["ramp_statistic"]].astype(np.intp)
        self._stage = self._second_stage()

    def _second_stage(self) -> tuple[np.ndarray, ...]:
        """Class scales, and zeros, widths (R,) and steps (2, R) of ramps of the log-odds."""
        if self._second is None:
            return _NONE, _NONE, _NONE, _NONE.reshape(2, 0)
        a = self._arrays
        of_odds = a.get("second_statistic", np.zeros(0)) == 0
        ramps = [a.get(f"second_{name}", _NONE)[of_odds] for name in ("zero", "width")]
        steps = np.ascontiguousarray(a["second_steps"][:, 1:][:, of_odds])
        return (a.get("class_scales", _NONE), *ramps, steps)

    def predict(
        self,
        logits: np.ndarray,
        normalise: bool,
        context: np.ndarray | None,
        otherwise: Callable[[np.ndarray, np.ndarray | None], Any],
    ) -> np.ndarray:
        """Probabilities (n, m) with the argmax of the logits, or calibrated logits; rows too deep for the loops ``otherwise``."""
        out = np.empty_like(logits)

        def one(rows: slice) -> None:
            some = None if context is None else context[rows]
            self._block(logits[rows], normalise, some, otherwise, out[rows])

        parallel_map(one, row_slices(logits, rows_of_size(_BLOCK, logits.shape[1])))
        return out

    def _block(
        self,
        z: np.ndarray,
        normalise: bool,
        context: np.ndarray | None,
        otherwise: Callable[[np.ndarray, np.ndarray | None], Any],
        out: np.ndarray,
    ) -> None:
        from .predict_loops import calibrate

        jumps = find_jumps(z, self._starts, self._top_k, self._by_loop)
        w, drop = self._parameters(z, jumps)
        lost = np.empty(len(z), dtype=bool)
        calibrate(
            z, jumps.top, jumps.ranks, jumps.depth, jumps.over, jumps.many, jumps.done, w, drop,
            *self._stage, self._terms(context), normalise, out, lost,
        )  # fmt: skip
        far = np.flatnonzero(~jumps.done)
        if len(far):
            out[far] = otherwise(z[far], None if context is None else context[far])
        # Where rounding has made another class as probable as the top, `argmax` may change.
        near = np.flatnonzero(lost & jumps.done)
        if len(near):
            out[near] = keep_argmax(out[near], z[near])

    def _parameters(self, z: np.ndarray, jumps: Jumps) -> Any:
        """Weights and drops (1 or n, D) of rows."""
        height = jumps.height
        if not self._mixes:
            w, of_height, rest = self._shared
            if not self._static["scale_jumps"]:
                return w, rest
            with np.errstate(over="ignore", invalid="ignore"):  # rows too deep
                return w, height[:, None] * of_height + rest
        from .predict_loops import mix

        a, factors, which = self._arrays, _NONE.reshape(0, 1), np.zeros(0, dtype=np.intp)
        if self._by_loop:
            which = self._which
        else:
            values = compute_all(self._static["statistics"], rank_rows(z, self._top_k))
            ramps = a["ramp_statistic"], a["ramp_zero"], a["ramp_width"]
            with np.errstate(over="ignore"):
                psi = ramps_of(np.stack([to_numpy(x) for x in values]).astype(z.dtype), *ramps, HOST)
            factors = np.concatenate([np.ones((len(z), 1), z.dtype), psi.T], axis=1)
        ends = (a["ramp_zero"], a["ramp_width"]) if self._by_loop else (_NONE, _NONE)
        out = np.empty((2, len(z), self._steps.shape[2]), dtype=np.float32)
        mix(height, jumps.statistics, which, *ends, factors, self._steps, out)
        return out

    def _terms(self, context: np.ndarray | None) -> np.ndarray:
        """A scale, and the parts of weight and lift without the log-odds, (1 or n, 3); (0, 3): no second stage."""
        if self._second is None:
            return _NONE.reshape(0, 3)
        like = np.zeros(1 if context is None else len(context), dtype=np.float32)
        terms = terms_of_context(context, self._arrays, self._second, like, HOST)
        return np.ascontiguousarray(terms, dtype=np.float32)


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
    from . import search_loops

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
        search_loops.read_jumps(rows, wanted, r < m, top, height, depth, over, many, done, found)
    else:
        n_buckets = min(-(-m // 8) * 8, 2**15)
        search_loops.find_jumps(z, wanted, r < m, n_buckets, top, height, depth, over, many, done, found)
    return Jumps(ranks, top, height, depth, over, many, done, found)
