"""The map in array operations of numpy, for rows of which all classes are ranked, none is masked and none lies a million below
the top. `ranked_rows` has a way for all the others.

    z_(1) <= ... <= z_(m), and where each came from       one sort of double precision, in whose last bits the places travel
    f_(i) = -max(w_d v_(i) + D_d, -f_(i + 1))             d the piece of rank i: nothing is compared, nothing is looked up
    f' = W f - A 1[not the last]                          a second stage
    p                                                     written to where it belongs

What an operation costs decides here. Rows of few classes are laid out rank by rank, so that every operation runs along thousands
of rows and not along ten classes. Which way a row goes depends on the row alone, and so does the order in which it is summed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import GRID_OF_SIZE, by_class, compute_dtype, keep_argmax, row_sums
from ..core.ranked import LARGEST, Ranked
from ..core.ties import average_ties
from ..parallel import parallel_map, row_slices
from .depths import ArrayDepths
from .pieces import FEW, Pieces
from .ramps import RampFactors
from .statistics import STATISTICS
from .wanted import Wanted

if TYPE_CHECKING:
    from .adjustment import Adjustment


def suits(pieces: Pieces, logits: Any) -> bool:
    """Whether rows may be plain: numpy's, with all ranks in use, and statistics that have names."""
    m = logits.shape[1]
    if (
        not pieces.needs_ranks
        or type(logits) is not np.ndarray
        or m < 2
        or (pieces.top_k or m) < m
        or pieces.starts[-1] >= m
    ):
        return False
    return pieces.has_named_statistics


def calibrated(
    logits: np.ndarray, wanted: Wanted, otherwise: Callable[[np.ndarray, Wanted], Any]
) -> np.ndarray:
    """Probabilities of rows, or calibrated logits; those of rows that are not plain are made ``otherwise``."""
    out = np.empty(logits.shape, dtype=compute_dtype(logits))
    if len(logits) <= FEW:
        plain = _calibrate(logits, wanted, out)
    else:
        plain = np.empty(len(logits), dtype=bool)

        def one(block: slice) -> None:
            plain[block] = _calibrate(logits[block], wanted.of(block), out[block])

        parallel_map(one, row_slices(logits))
    if not plain.all():  # what was made of them is nothing
        rest = np.flatnonzero(~plain)
        out[rest] = otherwise(logits[rest], wanted.of(rest))
    return out


def _calibrate(z: np.ndarray, wanted: Wanted, out: np.ndarray) -> np.ndarray:
    """The same of a block, to ``out``; returns which rows are plain."""
    pieces, normalise, adjust, context = wanted
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = z.astype(out.dtype, copy=False)
        ordered, places = _in_order(z)
        ordered = by_class(ordered)
        v = np.subtract(ordered[:, -1:].copy(), ordered, out=ordered)
        height, shared = v[:, :1].copy(), v[:, -2] == 0
        f = _logits(pieces, v, height)
        if adjust is not None:
            f = _adjusted(f, places[:, -1], shared, adjust, context)
        if normalise:
            level = _to_probabilities(f)
        out.reshape(-1)[places] = f
    if normalise and level.any():
        some = np.flatnonzero(level)
        out[some] = keep_argmax(out[some], z[some])
    plain: np.ndarray = height[:, 0] <= LARGEST
    return plain


def _in_order(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in rising order, and the place of each value in the flattened array."""
    n, m = z.shape
    if z.dtype != np.float32 or n * m > _MOST_PLACES:
        index = np.argsort(z, axis=1)
        index += m * np.arange(n)[:, None]
        return z.reshape(-1)[index], index
    places = _kept_places(n, m) if n * m <= _MOST_KEPT else _places(n, m)
    # Double precision has 29 bits more than single: what is written into the last of them changes no value when it is rounded.
    # Written into those of 0 it would be a subnormal number, which torch.set_flush_denormal tells a processor to take for 0.
    wide = z.astype(np.float64, order="C")
    wide += _NEXT_TO_NOTHING
    bits = wide.view(np.int64)
    bits |= places
    wide.sort(axis=1)
    ordered = wide.astype(np.float32)
    bits &= 2 ** int(n * m).bit_length() - 1
    # Minus infinity with a place in its last bits is NaN, and loses the place.
    lost = np.isnan(ordered[:, -1])
    if lost.any():
        bits[lost] = places[lost]
    return ordered, bits


def _places(n: int, m: int) -> np.ndarray:
    """Places in a flattened array."""
    places = np.arange(n * m).reshape(n, m)
    places.flags.writeable = False
    return places


# Blocks are mostly of one size.
_kept_places = lru_cache(maxsize=2)(_places)

# Far less than half a unit of any other number that single precision has.
_NEXT_TO_NOTHING = 2.0**-1000
# The places of so many values fit into the bits that single precision lacks; those of so many are kept for the next call.
_MOST_PLACES, _MOST_KEPT = 2**26, 2**19


def _factors(pieces: Pieces, v: np.ndarray) -> np.ndarray | None:
    """The factors (n, K) of rows; None for the constant 1 alone."""
    factors = pieces.in_use.factors
    if factors is None:
        return None
    assert isinstance(factors, RampFactors)
    depths = ArrayDepths(v, None, v[:, -2:-1])
    values = np.empty((len(v), len(factors.statistics)), dtype=v.dtype)
    for k, name in enumerate(factors.statistics):
        values[:, k] = STATISTICS[str(name)](depths)[:, 0]
    return np.asarray(factors.where_nothing_warns(values))


def _logits(pieces: Pieces, v: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Calibrated logits by rank, in the place of the depths; 0 at the top."""
    psi = _factors(pieces, v)
    jumps = pieces.starts[1:]
    few = len(v) <= FEW  # it is faster to look at all ranks
    tied, depth = np.zeros(0, dtype=np.intp), v[:0]
    if len(jumps):
        equal = v[:, 1:] == v[:, :-1] if few else v[:, jumps] == v[:, jumps - 1]
        if equal.any():
            tied = np.flatnonzero((equal[:, jumps - 1] if few else equal).any(axis=1))
            depth = v[tied]
    g = v
    if psi is None:
        w, of_height, rest = pieces.by_rank(v.dtype, v.shape[1])
        g *= w
        if len(jumps):
            g += _drop(height, of_height, rest, v)
    else:
        by_piece, lengths = pieces.cumulated(psi, height, v), pieces.lengths(v.shape[1])
        g *= _by_rank(by_piece[0], lengths, v) if pieces.scales_jump else by_piece[0][:, :1]
        if len(jumps):
            g += _by_rank(by_piece[1], lengths, v)
    if pieces.scales_jump:
        _keep_order(g, jumps, few)
    f: np.ndarray = np.subtract(0.0, g, out=g)
    if len(tied):
        some = f[tied]
        average_ties(some, Ranked(depth, height[tied, 0], height[tied], None, None, v.shape[1]), jumps)
        f[tied] = (
            some - some[:, -1:]
        )  # where a jump splits the classes that share the top, that has come down
    return f


def _drop(height: np.ndarray, of_height: np.ndarray | None, rest: np.ndarray, v: np.ndarray) -> np.ndarray:
    """``D`` of each rank, laid out as the depths are."""
    if of_height is None:
        return rest
    if v.flags.c_contiguous:
        drop = height * of_height
    else:
        drop = (height.T * of_height[:, None]).T
    drop += rest
    return drop


def _keep_order(g: np.ndarray, jumps: np.ndarray, few: bool) -> None:
    """A running maximum from the top down, in place, of the rows in which rounding has let a class cross a jump."""
    if few:
        np.maximum.accumulate(g[:, ::-1], axis=1, out=g[:, ::-1])
        return
    crossed = g[:, jumps - 1] < g[:, jumps]
    if crossed.any():
        some = np.flatnonzero(crossed.any(axis=1))
        g[some] = np.maximum.accumulate(g[some, ::-1], axis=1)[:, ::-1]


def _by_rank(table: np.ndarray, lengths: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What each rank has (n, m) of tables (n, D), laid out as the depths are."""
    if v.flags.c_contiguous:
        return np.repeat(table, lengths, axis=1)
    return np.repeat(table.T, lengths, axis=0).T


def _adjusted(
    f: np.ndarray,
    top_place: np.ndarray,
    shared: np.ndarray,
    adjust: Adjustment,
    context: np.ndarray | None,
) -> np.ndarray:
    """The second stage by rank, in place. Where the top is ``shared`` nothing is lifted."""
    # Relative to the second class, as in `statistics.log_odds`; the top is left out.
    second = -f[:, -2:-1]
    scale: Any = 1.0
    if adjust.has_scales:
        top_class = top_place % f.shape[1]
        scale = adjust.scales(top_class, shared + np.ones(1, dtype=f.dtype), context)[:, None]
        second *= scale
        e = f * scale
        e += second
    else:
        e = f + second
    np.exp(e, out=e)
    e[:, -1] = 0.0
    odds = second - np.log(np.maximum(row_sums(e), 1.0))
    weight, lift = adjust.weight_and_lift(odds[:, 0], context)
    f *= weight[:, None] * scale if adjust.has_scales else weight[:, None]
    f -= np.where(shared, 0, lift)[:, None]
    f[:, -1] = 0.0
    return f


def _to_probabilities(g: np.ndarray) -> np.ndarray:
    """Softmax by rank, in place, of rows whose top is at 0; returns where the rank below has come level with the top (n,)."""
    grid = GRID_OF_SIZE[g.dtype.itemsize]
    g *= grid
    np.rint(g, out=g)
    level: np.ndarray = g[:, -2] == 0
    g *= 1.0 / grid
    np.exp(g, out=g)
    g *= 1.0 / row_sums(g)
    return level
