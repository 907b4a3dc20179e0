"""Loops of numba over sorted rows: moments of the atoms, sums of the labels, statistics, and what the rows tell about each atom.

    drop_i = sum_j p_j v_j + sum_{j < i} p_j (U - v_j)          mean drop of a scale that begins at rank i
    variance_i = sum_{j >= i} p_j v_j^2 + U^2 below_i - drop_i^2

All that is summed is positive; the difference is taken of two such sums. Sums over rows of ``p v^2`` are taken at each rank, and
over the ranks once for all rows.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from .loops import (
    F32,
    PART,
    exp_in_sums,
    flush,
    largest_tie_of_row,
    loop,
    moments_of,
    next_of,
    odd_lanes,
    rows_of,
    rows_of_a_piece,
    sum_loop,
)
from .vectors import FACTORS, LANES, TOGETHER, product_tile


@sum_loop
def mean_and_deviation(v):
    total = 0.0
    for i in range(v.size):
        total += v[i]
    mean, square = total / v.size, 0.0
    for i in range(v.size):
        square += (v[i] - mean) * (v[i] - mean)
    return mean, np.sqrt(square / v.size)


@loop
def measure_rows(v, out):
    # The statistics of `numba_predict.STATISTICS` of sorted rows, (n, 3).
    for n in range(v.shape[0]):
        out[n, 0] = v[n, v.shape[1] - 2] if v.shape[1] > 1 else F32(0)
        out[n, 1], out[n, 2] = mean_and_deviation(v[n])


@sum_loop
def add_moments(v, height, weight, first, second):
    # Adds ``weight u`` and ``weight u^2`` at each rank; returns the sums of ``u`` and ``u^2`` over all but the top.
    s1, s2 = F32(0), F32(0)
    for i in range(v.size - 1):
        u = height - v[i]
        first[i] += weight * u
        second[i] += weight * u * u
        s1 += u
        s2 += u * u
    first[v.size - 1] += weight * height
    second[v.size - 1] += weight * height * height
    return s1, s2


@loop
def moments_of_blocks(v, height, weight, psi, ends, by_rank, by_factor, ties, turn):
    # Of each block ``u`` and ``u^2`` at each rank (B, 2, r); and by factor (B, 3, 2, K) their sums over all ranks but the top,
    # at the top, and of ones; and the size of the largest tie in it, or in
    # blocks that the same thread had before (B,): only the largest of all means anything. Threads take turns.
    step, k, most = (0 if psi.shape[0] == 1 else 1), psi.shape[1], 1
    some = np.zeros((2, v.shape[1]), dtype=np.float32)
    block = next_of(turn)
    while block < ends.size:
        begin, end = rows_of(block, ends)
        found = by_factor[block]
        found[:] = 0.0
        by_rank[block] = 0.0
        for n in range(begin, end):
            row, high, factors = v[n], height[n], psi[n * step]
            s1, s2 = add_moments(row, high, weight[n], some[0], some[1])
            tall, w = np.float64(high), np.float64(weight[n])
            for j in range(k):
                x = w * np.float64(factors[j])
                y = x * np.float64(factors[j])
                found[0, 0, j] += x * s1
                found[0, 1, j] += y * s2
                found[1, 0, j] += x * tall
                found[1, 1, j] += y * (tall * tall)
                found[2, 0, j] += x
                found[2, 1, j] += y
            flush(some, by_rank[block], n - begin, end - begin)
            most = largest_tie_of_row(row, most)
        ties[block] = most
        block = next_of(turn)


@sum_loop
def part_of_heights(v, height):
    s1, s2 = F32(0), F32(0)
    for i in range(v.size):
        u = height - v[i]
        s1 += u
        s2 += u * u
    return s1, s2


@loop
def sums_of_heights(v, height, out, turn):
    # Sums of ``u`` and ``u^2`` over all ranks of each row, (2, n). Threads take turns.
    piece = rows_of_a_piece(v.shape[1])
    begin = piece * next_of(turn)
    while begin < v.shape[0]:
        for n in range(begin, min(begin + piece, v.shape[0])):
            out[0, n], out[1, n] = 0.0, 0.0
            for i in range(0, v.shape[1], PART):
                s1, s2 = part_of_heights(v[n, i : i + PART], height[n])
                out[0, n] += s1
                out[1, n] += s2
        begin = piece * next_of(turn)


@loop
def add_labels(psi, weight, depth, height, rank, held, ends, out):
    # Each label in equal shares on the ranks that hold it: what begins and ends at each rank, to `out` (r + 1, 3, K). Block by
    # block, so that it does not matter how many blocks are added in one call.
    step, k = (0 if psi.shape[0] == 1 else 1), psi.shape[1]
    some, waits = np.zeros_like(out), np.zeros(out.shape[0], dtype=np.uint8)
    places = np.empty(out.shape[0], dtype=np.intp)
    begin = 0
    for block in range(ends.size):
        count = 0
        for n in range(begin, ends[block]):
            factors, share = psi[n * step], np.float64(weight[n]) / held[n]
            for end in range(2):
                place = rank[n] + end * held[n]
                if not waits[place]:
                    waits[place] = 1
                    places[count] = place
                    count += 1
                here = some[place]
                one = -share if end else share
                deep, high = one * np.float64(depth[n]), one * np.float64(height[n])
                for j in range(k):
                    x = np.float64(factors[j])
                    here[0, j] += deep * x
                    here[1, j] += high * x
                    here[2, j] += one * x
        for i in range(count):
            waits[places[i]] = 0
            out[places[i]] += some[places[i]]
            some[places[i]] = 0.0
        begin = ends[block]


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
