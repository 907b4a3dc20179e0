"""Loops for large single-precision arrays in memory, compiled by numba where it is installed (the extra ``fast``).

    p_i = exp(-w_d v_i + base_d),         d the piece of rank i                              (`exponentials`)
    sum_i p_i,  sum_i p_i v_i,  sum_i p_i v_i^2   over each piece                            (`piece_moments`)
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

from ..arrays import EXP_GRID, Array

# Logits in all from which compiling (a second or two, once a machine) is worth it.
LARGE = 2**22


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def suits(x: Array) -> bool:
    """Whether these loops take an array like this."""
    return isinstance(x, np.ndarray) and x.dtype == np.float32 and x.flags.c_contiguous and available()


def exponentials(
    v: np.ndarray, starts: np.ndarray, weights: np.ndarray, base: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``exp(weights v + base)`` (n, r) with the parameters of each piece, (1 or n, D) and (n, D), and its sums (n,)."""
    p, total = np.empty_like(v), np.empty(len(v), dtype=v.dtype)
    _loops().exponentials(v, np.append(starts, v.shape[1]), weights, base, p, total)
    return p, total


def piece_moments(p: np.ndarray, v: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``p``, ``p v``, ``p v^2`` over the pieces that begin at ``starts``, (3, n, D)."""
    out = np.empty((3, len(p), len(starts)), dtype=p.dtype)
    _loops().piece_moments(p, v, np.append(starts, v.shape[1]), out)
    return out


def probabilities(
    z: np.ndarray,
    top: np.ndarray,
    height: np.ndarray,
    thresholds: np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
) -> np.ndarray:
    """Softmax of ``w_d u + b_d`` (n, m); ``top``, ``height`` (n,), depths at the jumps (n, D - 1), parameters (1 or n, D)."""
    out = np.empty_like(z)
    _loops().probabilities(z, top, height, thresholds, weights, biases, out)
    return out


@cache
def _loops() -> Any:
    from types import SimpleNamespace

    import numba
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    f32 = np.float32
    up, down = f32(EXP_GRID["float32"]), f32(1.0 / EXP_GRID["float32"])
    loop = numba.njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
    # Comparisons and roundings that the order of the classes rests on: nothing may be rearranged there.
    strict_loop = numba.njit(nogil=True, error_model="numpy", cache=True)

    @intrinsic
    def float_of_bits(context: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.FloatType())

        return types.float32(types.int32), generate

    @numba.njit(inline="always")
    def exp(x):  # type: ignore[no-untyped-def]
        # 2^k e^r with |r| <= log(2)/2 and a polynomial for e^r (the coefficients are those of Cephes' expf).
        x = max(x, f32(-87.0))
        k = np.rint(x * f32(1.44269504))
        r = (x - k * f32(0.693359375)) - k * f32(-2.12194440e-4)
        y = f32(1.9875691500e-4)
        y = y * r + f32(1.3981999507e-3)
        y = y * r + f32(8.3334519073e-3)
        y = y * r + f32(4.1665795894e-2)
        y = y * r + f32(1.6666665459e-1)
        y = y * r + f32(5.0000001201e-1)
        y = y * r * r + r + f32(1.0)
        return y * float_of_bits((np.int32(k) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]

    @loop
    def exponentials(v, starts, weights, base, p, total):  # type: ignore[no-untyped-def]
        step = 0 if weights.shape[0] == 1 else 1
        for n in range(v.shape[0]):
            sum_ = f32(0)
            for d in range(starts.size - 1):
                w, b = weights[n * step, d], base[n, d]
                x, y = v[n, starts[d] : starts[d + 1]], p[n, starts[d] : starts[d + 1]]
                for i in range(x.size):
                    e = exp(w * x[i] + b)
                    y[i] = e
                    sum_ += e
            total[n] = sum_

    @loop
    def piece_moments(p, v, starts, out):  # type: ignore[no-untyped-def]
        for n in range(p.shape[0]):
            for d in range(starts.size - 1):
                x, y = v[n, starts[d] : starts[d + 1]], p[n, starts[d] : starts[d + 1]]
                s0, s1, s2 = f32(0), f32(0), f32(0)
                for i in range(x.size):
                    s0 += y[i]
                    s1 += y[i] * x[i]
                    s2 += y[i] * x[i] * x[i]
                out[0, n, d], out[1, n, d], out[2, n, d] = s0, s1, s2

    @loop
    def total_of(x):  # type: ignore[no-untyped-def]
        sum_ = f32(0)
        for i in range(x.size):
            sum_ += x[i]
        return sum_

    @strict_loop
    def probabilities(z, top, height, thresholds, weights, biases, out):  # type: ignore[no-untyped-def]
        m = z.shape[1]
        step = 0 if weights.shape[0] == 1 else 1
        last = thresholds.shape[1]
        piece = np.zeros(m, dtype=np.int32)
        for n in range(z.shape[0]):
            row, result = z[n], out[n]
            w, b = weights[n * step], biases[n * step]
            piece[:] = 0
            for d in range(last):
                t = thresholds[n, d]
                for i in range(m):
                    piece[i] += np.int32(top[n] - row[i] <= t)
            highest = height[n] * w[last] + b[last]
            for i in range(m):
                f = (height[n] - (top[n] - row[i])) * w[piece[i]] + b[piece[i]]
                result[i] = np.rint((f - highest) * up) * down
            for i in range(m):
                result[i] = exp(result[i])
            share = f32(1) / total_of(result)
            for i in range(m):
                result[i] *= share

    return SimpleNamespace(
        exponentials=exponentials, piece_moments=piece_moments, probabilities=probabilities
    )
