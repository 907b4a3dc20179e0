"""Loops for large single-precision arrays in memory, compiled by numba where it is installed (the extra ``fast``).

    p_i = exp(-w_d v_i + base_d),         d the piece of rank i                              (`exponentials`)
    sum_n p_i,  sum_n p_i v_i,  sum_n p_i U           over rows, p normalised                (`sums_by_rank`)
    sum_i p_i,  sum_i p_i v_i,  sum_i p_i v_i^2   over each piece                            (`piece_moments`)
    sum_i p_i,  sum_i p_i v_i,  sum_i p_i v_i^2   over a tail that is not sorted             (`tail_sums`)
    v at some ranks                       of rows that are not sorted                        (`depths_at`)
    softmax(w_d u_i + b_d),               d the number of jumps at or below the rank of i     (`probabilities`)

The same numbers are made by ordinary array operations in `kernel` and `rank_map`, which write and read an array for each step
of the arithmetic; a loop keeps a row in the cache. Order survives for the same reasons as there: every step rounds
monotonely, and ``exp`` is taken on a grid so coarse that its error cannot swap neighbours (see `arrays.ordered_exp`).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import warn

# Logits in all from which loading compiled loops is worth it, for a prediction.
LARGE = 3 * 2**20


@cache
def available() -> bool:
    """Whether numba is there, and works."""
    if find_spec("numba") is None:
        return False
    try:
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


def exponentials(
    v: np.ndarray, starts: np.ndarray, weights: list[np.ndarray], base: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``exp(sum(weights) v + base)`` (n, r) and its sums (n,); parameters of each piece: (1 or n, D), (n, D)."""
    p, total = np.empty_like(v), np.empty(len(v), dtype=v.dtype)
    leading, *rest = weights
    lesser = rest[0] if rest else np.zeros_like(leading)
    loops().exponentials(v, np.append(starts, v.shape[1]), leading, lesser, base, p, total)
    return p, total


def find_labels(depth: np.ndarray, label_depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In rows sorted downwards: values above the label's and equal to it, (n,) each; which neighbours tie in some row."""
    first, held = np.empty(len(depth), dtype=np.intp), np.empty(len(depth), dtype=np.intp)
    tied = np.zeros(depth.shape[1] - 1, dtype=np.uint8)
    loops().find_labels(depth, label_depth, first, held, tied)
    return first, held, tied > 0


def scale_moments(v: np.ndarray, height: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums over rows of ``weight u`` and ``weight u^2`` at each rank, (2, r), with ``u = U - v``."""
    out = np.zeros((2, v.shape[1]))
    loops().scale_moments(v, height, weight, out)
    return out


def sums_by_rank(
    v: np.ndarray,
    starts: np.ndarray,
    weights: list[np.ndarray],
    base: np.ndarray,
    weight: np.ndarray,
    height: np.ndarray,
    left_out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over rows of ``p v``, ``p U``, ``p`` at each rank (3, r), ``p`` normalised and weighted, and the totals (n,).

    ``weights`` (1, D) are common to all rows; rows in ``left_out`` (n,) only get a total.
    """
    out, total = np.zeros((3, v.shape[1])), np.empty(len(v), dtype=v.dtype)
    leading, lesser = weights
    loops().sums_by_rank(
        v, np.append(starts, v.shape[1]), leading, lesser, base, weight, height, left_out, out, total
    )
    return out, total


def piece_moments(p: np.ndarray, v: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``p``, ``p v``, ``p v^2`` over the pieces that begin at ``starts``, (3, n, D)."""
    out = np.empty((3, len(p), len(starts)), dtype=p.dtype)
    loops().piece_moments(p, v, np.append(starts, v.shape[1]), out)
    return out


def tail_sums(
    z: np.ndarray, top: np.ndarray, height: np.ndarray, weights: list[np.ndarray], base: np.ndarray
) -> np.ndarray:
    """Sums of ``p``, ``p v``, ``p v^2`` over all classes (3, n), ``v = max(top - z, height)``; others (n,), weights (1 or n,)."""
    leading, *lesser = weights
    out = np.empty((3, len(z)), dtype=z.dtype)
    loops().tail_sums(z, top, height, leading, lesser[0] if lesser else 0 * leading, base, out)
    return out


def depths_at(z: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of rows (n, m) in any order: top and height (n,), the depths at some ranks (n, D), and for which rows they were found.

    ``starts`` (D,) rises and counts from the lowest. Values are dealt into buckets by their depth, and only what shares a
    bucket with one of the ranks is sorted. Rows are left out whose values crowd into few buckets, and those in which equal
    values lie on both sides of a rank, or masked ones.
    """
    n, m = z.shape
    if len(starts) and not (starts[0] >= 0 and starts[-1] < m and (np.diff(starts) > 0).all()):
        raise IndexError(f"ranks {starts} do not rise from 0 to {m - 1}")  # the loop would not notice
    n_buckets = min(max(m // 2, 32), 2**15)
    ranks = (m - starts[::-1]).astype(np.uint32)
    top, height, found = np.empty_like(z[:, 0]), np.empty_like(z[:, 0]), np.empty(n, dtype=bool)
    out = np.empty((n, len(starts)), dtype=z.dtype)
    loops().depths_at(z, ranks, n_buckets, top, height, out, found)
    return top, height, np.ascontiguousarray(out[:, ::-1]), found


def probabilities(
    z: np.ndarray,
    top: np.ndarray,
    height: np.ndarray,
    thresholds: np.ndarray,
    found: np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
    out: np.ndarray,
) -> None:
    """Softmax of ``w_d u + b_d`` to ``out`` (n, m), of the rows in ``found``.

    ``top``, ``height``, ``found`` (n,), depths at the jumps (n, D - 1), weights and biases (1 or n, D).
    """
    loops().probabilities(z, top, height, thresholds, found, weights, biases, out)


def loops() -> Any:
    """The module with the loops themselves; compiling what it has not met before takes a second."""
    from . import loops as module

    return module
