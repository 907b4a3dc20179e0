"""The map in array operations of any library, for rows of any kind: a tail that is not ranked, masked classes, depths to be cut.

    f = -max(w_d v + D_d, bound_d),    d = number of jumps at or below the rank,    v = z_top - z

On numpy arrays a row is sorted for its values at the jumps and never un-sorted: between two jumps a class needs no rank, only to
know which jumps it lies above. Other libraries sort with an index and scatter back, and so do rows in which a jump falls among
tied classes, which get the mean of their group.

Every row is treated as if it were alone. What is decided for a block of rows at once is only what leaves no trace in a row:
which of two ways to the same bits is taken, or whether anything has to be cut or masked at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import (
    A,
    Array,
    anchored_softmax_and_top_,
    array_namespace,
    by_class,
    compute_dtype,
    cut_,
    is_torch,
    keep_argmax,
    running_maximum,
    scatter,
    sort_with_index,
    to_numpy,
    widened,
)
from ..core.ranked import LARGEST, Ranked, Rest, Tail, rank_rows
from ..core.ties import average_ties
from .pieces import FEW, Pieces
from .wanted import Wanted

# Up to so many numbers, a call may touch more of them than it must, and nobody will notice.
_CALL = 4096


def calibrated(z: Array, wanted: Wanted) -> Any:
    """Probabilities (n, m) of a block of rows, with the argmax of the logits; or calibrated logits, 0 at the top of a row."""
    pieces, normalise, adjust, context = wanted
    z = widened(z)
    xp = array_namespace(z)
    z = xp.astype(z, compute_dtype(z), copy=False)
    if pieces.needs_ranks:
        rows = rank(pieces, z)
        f, top = _of_ranked(pieces, z, rows, pieces.parameters(rows)), rows.top
    else:
        z = z if is_torch(z) else by_class(z)
        top = xp.max(z, axis=1, keepdims=True)
        f = _scaled(float(pieces.scale_steps[0, 0]), z, top)
    if adjust is not None:
        f = adjust(f, z == top, context)
    if normalise:
        f = _kept(*anchored_softmax_and_top_(f), z, top)
    return f if is_torch(f) else np.ascontiguousarray(f)


def rank(pieces: Pieces, z: Array) -> Ranked:
    """Rows in order, as far as the map needs it."""
    return rank_rows(z, pieces.top_k)


def _scaled(scale: float, z: Array, top: Array) -> Any:
    """Calibrated logits where all classes have one weight: only the top of a row matters."""
    xp = array_namespace(z)
    with np.errstate(over="ignore"):
        f: Any = z - top
        if not bool(xp.min(f) >= -LARGEST):  # depths are cut here as everywhere, masked classes apart
            f = xp.where(xp.isinf(z), f, xp.clip(f, min=-LARGEST))
        return f * scale if scale else xp.where(xp.isinf(f), f, 0 * top)


def with_rest(pieces: Pieces, z: np.ndarray, rows: Ranked, rest: Rest) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits of ranked rows (n, k), and of each class of their rest (n,), which lies below all of them."""
    tail = rows.tail or Tail(None, np.zeros(len(z), dtype=np.int64), False)
    w, drop = pieces.parameters(replace(rows, tail=replace(tail, rest=rest)))
    f = to_numpy(_of_ranked(pieces, z, rows, (w, drop)))
    below = -(np.maximum(rest.depth, rows.height) * w[:, 0] + drop[:, 0])
    return f, np.minimum(below, np.where(np.isinf(f), np.inf, f).min(axis=1))


def _of_ranked(pieces: Pieces, z: Array, rows: Ranked, parameters: tuple[Array, Array]) -> Array:
    """Calibrated logits of rows that have been ranked, 0 at the top of each."""
    w, drop = parameters
    if is_torch(z):
        return _scattered(pieces, z, rows, w, drop)
    split = _split(pieces, rows)
    if split is not None and split.all():
        return _scattered(pieces, z, rows, w, drop)
    f = _thresholded(pieces, z, rows, w, drop)
    if split is not None:
        w, drop = (x if len(x) == 1 else x[split] for x in (w, drop))
        f[split] = _scattered(pieces, z[split], rows[split], w, drop)
    return f


def _split(pieces: Pieces, rows: Ranked) -> np.ndarray | None:
    """Whether a jump falls among tied classes of a row, (n,); None where that happens in no row."""
    jumps = pieces.starts[1:]
    if len(jumps) and jumps[-1] >= rows.depth.shape[1]:
        jumps = jumps[jumps < rows.depth.shape[1]]
    tied = to_numpy(rows.depth[:, jumps] == rows.depth[:, jumps - 1])
    return np.asarray(tied.any(axis=1)) if tied.any() else None


def _thresholded(pieces: Pieces, z: np.ndarray, rows: Ranked, w: np.ndarray, drop: np.ndarray) -> np.ndarray:
    """Every class finds its piece by comparing with the values at the jumps."""
    depth = to_numpy(_depth(z, rows))
    jumps = pieces.starts[1:]
    thresholds = to_numpy(rows.depth[:, jumps])
    piece = _count_passed(depth, thresholds, jumps - rows.depth.shape[1] + z.shape[1])
    g: np.ndarray = depth
    g *= _look_up(w, piece) if pieces.scales_jump else w[:, :1]
    g += _look_up(drop, piece)
    if pieces.scales_jump:
        np.maximum(g, _look_up(pieces.bounds(w, drop, thresholds), piece), out=g)
    return _mask(np.subtract(0.0, g, out=g), z, rows)


def _scattered(pieces: Pieces, z: Array, rows: Ranked, w: Array, drop: Array) -> Array:
    """Sorted values are calibrated rank by rank and put back where they came from."""
    xp = array_namespace(z)
    r = rows.depth.shape[1]
    piece = np.searchsorted(pieces.starts, np.arange(r), side="right") - 1
    g = rows.depth * w[:, piece] + drop[:, piece]
    if pieces.scales_jump:
        g = xp.flip(running_maximum(xp.flip(g, axis=1)), axis=1)
    f = 0.0 - g
    average_ties(f, rows, pieces.starts[1:])
    top = f[:, -1:]
    f = f - top  # where a jump splits the classes that share the top, that has come down
    if r == z.shape[1]:
        return _mask(scatter(f, sort_with_index(z)[1]), z, rows)
    # The tail has the lowest rank's parameters; classes tied with the lowest in use have its group's value.
    depth = _depth(z, rows)
    first = xp.argmax(xp.astype(rows.depth == rows.height[:, None], xp.int8), axis=1)
    lowest = xp.take_along_axis(f, first[:, None], axis=1)
    whole: Any = xp.minimum(0.0 - (depth * w[:, :1] + drop[:, :1]) - top, lowest)
    whole = xp.where(depth == rows.height[:, None], lowest, whole)
    if is_torch(z):
        index = z.topk(r, dim=1).indices.flip(1)
        whole = whole.scatter(1, index, f)
    else:
        index = np.argsort(z, axis=1)[:, z.shape[1] - r :]
        np.put_along_axis(whole, index, f, axis=1)
    masked: Array = _mask(whole, z, rows)
    return masked


def _kept(p: Array, p_top: Array, z: Array, top: Array) -> Array:
    """Probabilities with the argmax of the logits.

    What is on top among the logits is on top among the probabilities: ``argmax`` can only change where some other class is, too.
    So all on top are counted, which is faster than to look for the first in every row.
    """
    if is_torch(p) or np.count_nonzero(p == p_top) != np.count_nonzero(z == top):
        return keep_argmax(p, z)
    return p


def _depth(z: Array, rows: Ranked) -> Array:
    """Depths of the classes in their own places, rounded exactly as when they were sorted."""
    xp = array_namespace(z)
    with np.errstate(over="ignore"):
        depth = xp.astype(z, rows.depth.dtype, copy=False) - rows.top
    depth *= -1.0
    # Nothing lies below the height but masked classes and a tail.
    if rows.valid is not None or rows.tail is not None or not bool(xp.all(rows.height < LARGEST)):
        depth = cut_(depth, LARGEST)
    return depth


def _mask(f: A, z: Array, rows: Ranked) -> A:
    masked = rows.valid is not None or (rows.tail is not None and rows.tail.masked)
    if masked:
        xp = array_namespace(f)
        kept: Any = xp.where(xp.isinf(z), xp.asarray(-np.inf, dtype=f.dtype), f)
        f = kept
    return f


def _count_passed(depth: np.ndarray, thresholds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How many thresholds each class has passed, (n, m) small integers.

    Without ties across a threshold exactly ``m - start`` classes of a row pass it, so once few do, and as many in every row,
    they are cut out into an array of their own and only they are compared any further.
    """
    n, m = depth.shape
    small = np.uint8 if len(starts) < 256 else np.uint16
    if n <= FEW and m * len(starts) <= _CALL:
        return np.asarray(np.count_nonzero(depth[:, :, None] <= thresholds[:, None, :], axis=2), dtype=small)
    passed = np.zeros((n, m), dtype=small)
    for d, start in enumerate(starts):
        inside = depth <= thresholds[:, d : d + 1]
        passed += inside
        few = m - int(start)
        if 4 * few <= m and d + 2 < len(starts):
            if (np.count_nonzero(inside, axis=1) != few).any():  # some row has a tie here, or is masked
                continue
            index = np.flatnonzero(inside)
            part = depth.ravel()[index].reshape(n, few)
            passed.ravel()[index] += _count_passed(
                part, thresholds[:, d + 1 :], starts[d + 1 :] - start
            ).ravel()
            break
    return passed


def _look_up(table: np.ndarray, piece: np.ndarray) -> np.ndarray:
    if len(table) == 1:
        return np.take(table[0], piece, mode="clip")  # the default mode checks and copies
    return np.take_along_axis(table, piece.astype(np.intp), axis=1)
