"""The loop of `compiled_information`, in numba, which is needed at once."""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from .loops import loop, moments_of, next_of, rows_of
from .sum_loops import TOGETHER, exp_in_sums, odd_lanes
from .vectors import FACTORS, LANES, product_tile


@loop
def information_of_blocks(
    v, height, weight, psi, leading, lesser, ends, scales, squares, biases, lowest, errors, turn
):
    # Of each block: ``w (U^2 below - drop^2)`` and ``w p v^2`` at each rank, (B, r) each; ``psi^2 w (below - below^2)``
    # (B, K, r); the variance of the whole scale and the errors (B, K). Threads take turns.
    r, k, step = v.shape[1], psi.shape[1], (0 if psi.shape[0] == 1 else 1)
    columns, ranks = -(-(k - 1) // FACTORS) * FACTORS, odd_lanes(r) * LANES
    p, left = np.zeros((TOGETHER, ranks), dtype=np.float32), np.zeros((TOGETHER, columns), dtype=np.float32)
    product = np.empty((columns, ranks), dtype=np.float32)
    share, below, drop = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER)
    block = next_of(turn)
    while block < ends.size:
        begin, end = rows_of(block, ends)
        scales[block] = 0.0
        squares[block] = 0.0
        biases[block] = 0.0
        lowest[block] = 0.0
        errors[block] = 0.0
        while begin < end:
            rows = min(TOGETHER, end - begin)
            for i in range(rows):
                row, factors, w = v[begin + i], psi[(begin + i) * step], np.float64(weight[begin + i])
                e = p[i, :r]
                for j in range(r):
                    e[j] = exp_in_sums(leading * row[j] + lesser * row[j])
                total, first, second = moments_of(e, row)
                share[i], below[i], drop[i] = 1.0 / total, 0.0, first / np.float64(total)
                variance = second / np.float64(total) - drop[i] * drop[i]
                for j in range(k):
                    size = np.float64(factors[j]) * np.float64(factors[j]) * w
                    lowest[block, j] += size * variance
                    if j:
                        left[i, j - 1] = size
            add_ranks(
                v[begin : begin + rows], height[begin : begin + rows], weight[begin : begin + rows], p, share,
                below, drop, scales[block], squares[block], biases[block, 0],
            )  # fmt: skip
            for i in range(rows):
                factors, w = psi[(begin + i) * step], np.float64(weight[begin + i])
                for j in range(k):
                    errors[block, j] += np.float64(factors[j]) * np.float64(factors[j]) * w * below[i]
            for j in range(0, columns, FACTORS):
                for i in range(0, r, LANES):
                    product_tile(left, p, rows, j, i, product)
            for j in range(1, k):
                for i in range(r):
                    biases[block, j, i] += product[j - 1, i]
            begin += rows
        block = next_of(turn)


@loop
def add_ranks(v, height, weight, p, share, below, drop, scales, squares, biases):
    # Rank by rank, a few rows beside each other: sums that run along a row would wait for each other. ``below`` is what lies
    # below a rank, ``drop`` the mean drop of a scale that begins there. Leaves ``below - below^2`` in p; ``below`` is the top's.
    n, r = v.shape
    for j in range(r):
        scale, square, bias = 0.0, 0.0, 0.0
        for i in range(n):
            w, high, deep = np.float64(weight[i]), np.float64(height[i]), np.float64(v[i, j])
            here, b, d = p[i, j] * share[i], below[i], drop[i]
            variance = b - b * b
            scale += w * (high * high * b - d * d)
            square += w * here * deep * deep
            bias += w * variance
            p[i, j] = variance
            if j + 1 < r:
                below[i] = b + here
                drop[i] = d + here * (high - deep)
        scales[j] += scale
        squares[j] += square
        biases[j] += bias
