"""Loops of numba over sorted rows at a point: exponentials, what is summed over them, and rows truncated to their top ranks.

A row is read once for its value and gradient, and once more where a Hessian is wanted. Sums that are matrix products are taken
of a few rows at a time, which the cache still holds.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from .loops import (
    F32,
    PART,
    exp,
    exp_in_sums,
    flush,
    loop,
    next_of,
    odd_lanes,
    rows_of,
    rows_of_a_piece,
    sum_loop,
    total_of,
)
from .vectors import FACTORS, LANES, TOGETHER, affine_between, moments_between, product_tile

# A probability whose logarithm single precision still has.
SMALL = 1e-30


@loop
def shift_of_top(v, starts, base):
    # Where a jump falls among the classes that share the top, they come down to the mean of their group.
    k, low = starts.size - 2, starts[starts.size - 2]
    if low == 0 or v[low - 1] != 0:
        return F32(0)
    while low > 0 and v[low - 1] == 0:
        low -= 1
    while starts[k] > low:
        k -= 1
    done, total = low, 0.0
    while done < v.size:
        total += (starts[k + 1] - done) * base[k]
        done = starts[k + 1]
        k += 1
    return F32(total / (v.size - low))


@loop
def average_ties(v, starts, leading, lesser, base, p):
    # Tied ranks share the mean of their values, where a jump falls among them.
    done = 0
    for d in range(1, starts.size - 1):
        here = v[starts[d]]
        if starts[d] < done or v[starts[d] - 1] != here:
            continue
        low, k = starts[d], d
        while low > 0 and v[low - 1] == here:
            low -= 1
        while starts[k] > low:
            k -= 1
        done, total = low, 0.0
        while done < v.size and v[done] == here:
            first = done
            while done < starts[k + 1] and v[done] == here:
                done += 1
            total += (done - first) * (leading[k] * here + (lesser[k] * here + base[k]))
            k += 1
        e = exp(F32(total / (done - low)))
        for i in range(low, done):
            p[i] = e


@loop
def exponentials_of_row(v, starts, psi, used, weights, drops, height, buffers, p):
    # ``exp(f - f_top)``, its total, and ``f_top``.
    w, b, leading, lesser, base = buffers
    parameters_of_row(psi, used, weights, drops, height, w, b, leading, lesser, base)
    shift = shift_of_top(v, starts, base)
    for d in range(starts.size - 1):
        base[d] -= shift
        affine_between(v, starts[d], starts[d + 1], leading[d], lesser[d], base[d], p)
    for i in range(p.size):
        p[i] = exp_in_sums(p[i])
    average_ties(v, starts, leading, lesser, base, p)
    return total_of(p), shift


@loop
def parameters_of_row(psi, used, weights, drops, height, w, b, leading, lesser, base):
    # ``-w`` in two parts and ``-(w_top - w) U - (b_top - b)`` of each piece, summed in double precision over the factors.
    w[:] = 0.0
    b[:] = 0.0
    for k in range(used.size):
        size = np.float64(psi[used[k]])
        if size == 0:
            continue
        high = size * np.float64(height)
        for d in range(w.size):
            w[d] += size * weights[k, d]
            b[d] += high * drops[k, d] + size * drops[used.size + k, d]
    for d in range(w.size):
        leading[d] = F32(w[d])
        lesser[d] = F32(w[d] - np.float64(leading[d]))
        base[d] = F32(b[d])


@loop
def row_buffers(pieces):
    single = np.empty((3, pieces), dtype=np.float32)
    return np.empty(pieces), np.empty(pieces), single[0], single[1], single[2]


@sum_loop
def add_depths(p, v, share, out):
    total = F32(0)
    for i in range(p.size):
        x = p[i] * v[i]
        total += x
        out[i] += share * x
    return total


@loop
def gradients_of_blocks(
    v, starts, psi, used, weights, drops, weight, height, own, ends, values, by_rank, whole, turn
):
    # Of each block of rows the value (B,), sums of ``p v``, ``p U`` and ``psi p`` at each rank (B, 2 + K, r), and of ``psi p v``
    # over all ranks (B, K). Threads take turns.
    r, k, step = v.shape[1], own.size, (0 if psi.shape[0] == 1 else 1)
    buffers, depths = row_buffers(starts.size - 1), np.zeros((1, r), dtype=np.float32)
    columns, ranks = -(-(1 + k) // FACTORS) * FACTORS, odd_lanes(r) * LANES
    p, left = np.zeros((TOGETHER, ranks), dtype=np.float32), np.zeros((TOGETHER, columns), dtype=np.float32)
    product = np.empty((columns, ranks), dtype=np.float32)
    block = next_of(turn)
    while block < ends.size:
        begin, end = rows_of(block, ends)
        values[block] = 0.0
        by_rank[block] = 0.0
        whole[block] = 0.0
        while begin < end:
            rows = min(TOGETHER, end - begin)
            for i in range(rows):
                row, factors, high = v[begin + i], psi[(begin + i) * step], height[begin + i]
                e = p[i, :r]
                total, shift = exponentials_of_row(
                    row, starts, factors, used, weights, drops, high, buffers, e
                )
                values[block] += weight[begin + i] * (np.log(np.float64(total)) + shift)
                share = weight[begin + i] / total
                depth = add_depths(e, row, share, depths[0])
                left[i, 0] = share * high
                for j in range(k):
                    left[i, 1 + j] = share * factors[own[j]]
                    whole[block, j] += left[i, 1 + j] * depth
                flush(depths, by_rank[block], i, rows)
            for i in range(0, r, LANES):
                for j in range(0, columns, FACTORS):
                    product_tile(left, p, rows, j, i, product)
            for j in range(1 + k):
                for i in range(r):
                    by_rank[block, 1 + j, i] += product[j, i]
            begin += rows
        block = next_of(turn)


@loop
def drops_of_row(p, v, height, starts, share, mean, later):
    # What `curvature` needs of a row: mean drop of a scale and of a bias from each start on, and the part of a later start.
    high, below, starts_held = np.float64(height), 0.0, starts.size - 1
    for d in range(starts_held):
        mean[starts_held + d] = below
        s0, s1, s2 = moments_from_to(p, v, starts[d], starts[d + 1])
        below += share * s0
        later[starts_held + d], later[d] = share * s1, share * s2
    depth, square = 0.0, 0.0
    for d in range(starts_held - 1, -1, -1):
        depth += later[starts_held + d]
        square += later[d]
        mean[d] = high * mean[starts_held + d] + depth
        later[d] = square - high * depth
        later[starts_held + d] = -depth


@loop
def moments_from_to(p, v, begin, end):
    if end - begin <= PART:
        s0, s1, s2 = moments_between(p, v, begin, end)
        return np.float64(s0), np.float64(s1), np.float64(s2)
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(begin, end, PART):
        t0, t1, t2 = moments_between(p, v, i, min(i + PART, end))
        s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
    return s0, s1, s2


@loop
def hessians_of_blocks(
    v,
    starts,
    psi,
    used,
    weights,
    drops,
    weight,
    height,
    atoms,
    at,
    is_scale,
    factor,
    tied,
    ranks,
    order,
    ends,
    first_row,
    out,
    turn,
):
    # Products of the drops of two atoms less the product of their means, as `curvature` has them: the half of the matrix in
    # which the first starts no later than the second. Atoms are in order of their starts, which are `ranks`. To `out` (B, a, a)
    # goes the whole matrix in the order of the working set. Threads take turns.
    step, a = (0 if psi.shape[0] == 1 else 1), at.size
    buffers, p = row_buffers(starts.size - 1), np.empty(v.shape[1], dtype=np.float32)
    mean, later = np.empty(2 * atoms.size), np.empty(2 * atoms.size)
    first, second = np.empty((3 * TOGETHER, a)), np.empty((3 * TOGETHER, a))
    product, part, value = np.empty((a, a)), np.empty(a), np.empty(a)
    upper = np.empty((a, a))
    block = next_of(turn)
    while block < ends.size:
        begin, end = ends[block - 1] if block else first_row, ends[block]
        upper[:] = 0.0
        while begin < end:
            rows = min(TOGETHER, end - begin)
            for i in range(rows):
                row, factors, high = v[begin + i], psi[(begin + i) * step], height[begin + i]
                total, _ = exponentials_of_row(row, starts, factors, used, weights, drops, high, buffers, p)
                whole, tall = np.float64(weight[begin + i]), np.float64(high)
                share, minus = whole / np.float64(total), -1.0 / whole
                drops_of_row(p, row, high, atoms, share, mean, later)
                for b in range(a):
                    size = np.float64(factors[factor[b]])
                    drop = size * mean[at[b]]
                    first[3 * i, b], second[3 * i, b] = drop, size * tall if is_scale[b] else size
                    first[3 * i + 1, b], second[3 * i + 1, b] = (
                        size if is_scale[b] else 0.0,
                        size * later[at[b]],
                    )
                    first[3 * i + 2, b], second[3 * i + 2, b] = minus * drop, drop
                if tied:
                    take_off_ties(p, row, high, share, factors, is_scale, factor, ranks, part, value, upper)
            np.dot(first[: 3 * rows].T, second[: 3 * rows], product)
            upper += product
            begin += rows
        for i in range(a):
            for j in range(i, a):
                out[block, order[i], order[j]] = upper[i, j]
                out[block, order[j], order[i]] = upper[i, j]
        block = next_of(turn)


@loop
def take_off_ties(p, row, height, share, psi, is_scale, factor, ranks, part, value, out):
    # What the products of two atoms count too much inside a group of ties (see `curvature`). Atoms in order of their starts.
    a = 0
    while a < ranks.size:
        s = ranks[a]
        if s == 0 or row[s - 1] != row[s]:
            a += 1
            continue
        low, high, here = s - 1, s + 1, row[s]
        while low > 0 and row[low - 1] == here:
            low -= 1
        while high < row.size and row[high] == here:
            high += 1
        size, u, b = high - low, height - here, a
        while b < ranks.size and ranks[b] < high:
            part[b] = (high - ranks[b]) / size
            value[b] = psi[factor[b]] * (u if is_scale[b] else F32(1))
            b += 1
        mass = share * p[s] * size
        for i in range(a, b):
            for j in range(i, b):  # a later start has the smaller part
                out[i, j] -= mass * part[j] * (1.0 - part[i]) * value[i] * value[j]
        a = b


@loop
def products_in_ties(p, v, height, psi, is_scale, factor, ranks, out):
    part, value = np.empty(ranks.size), np.empty(ranks.size)
    step = 0 if psi.shape[0] == 1 else 1
    for n in range(v.shape[0]):
        take_off_ties(p[n], v[n], height[n], 1.0, psi[n * step], is_scale, factor, ranks, part, value, out)


@loop
def exponentials(v, starts, psi, used, weights, drops, height, p, total, shift):
    step, buffers = (0 if psi.shape[0] == 1 else 1), row_buffers(starts.size - 1)
    for n in range(v.shape[0]):
        total[n], shift[n] = exponentials_of_row(
            v[n], starts, psi[n * step], used, weights, drops, height[n], buffers, p[n]
        )


@loop
def piece_moments(p, v, starts, out):
    for n in range(p.shape[0]):
        for d in range(starts.size - 1):
            out[0, n, d], out[1, n, d], out[2, n, d] = moments_from_to(p[n], v[n], starts[d], starts[d + 1])


@sum_loop
def prior_sums(v, depth, scale):
    total, drop, top = 0.0, 0.0, 0.0
    for j in range(v.size):
        e = np.float64(exp(scale * v[j]))
        total += e
        drop += e * depth[j]
        top += e if v[j] == 0 else 0.0
    return total, drop, top


@loop
def truncate_rows(
    v, starts, psi, used, weights, drops, height, kept, shares, scales, label_depth, label_rank, depths, out, turn
):  # fmt: skip
    # Depths of the highest ranks, to `depths` (n, kept). To `out` (n, 6): mass and mass times depth of the ranks below, the
    # depth of the label; mean depth and probability of the top under the prior targets; classes on top. Threads take turns.
    n, r = v.shape
    step, cut, pieces = (0 if psi.shape[0] == 1 else 1), r - kept, starts.size - 1
    buffers, p = row_buffers(pieces), np.empty(r, dtype=np.float32)
    w, b = buffers[0], buffers[1]  # minus the weights, and the bases before the shift
    piece = rows_of_a_piece(r)
    begin = piece * next_of(turn)
    while begin < n:
        for i in range(begin, min(begin + piece, n)):
            row, depth, of_row = v[i], depths[i], out[i]
            _, shift = exponentials_of_row(
                row, starts, psi[i * step], used, weights, drops, height[i], buffers, p
            )
            of_row[0], of_row[1] = 0.0, 0.0
            d = 0
            while d < pieces and starts[d] < cut:
                s0, s1, _ = moments_from_to(p, row, starts[d], min(starts[d + 1], cut))
                of_row[0] += s0
                of_row[1] += -w[d] * s1 - (b[d] - shift) * s0
                d += 1
            d = 0
            for j in range(kept):
                k = cut + j
                while starts[d + 1] <= k:
                    d += 1
                depth[j] = -w[d] * row[k] - (b[d] - shift)
                tied = (k > 0 and row[k - 1] == row[k]) or (k + 1 < r and row[k + 1] == row[k])
                if tied and p[k] > SMALL:  # tied ranks share a mean
                    depth[j] = -np.log(np.float64(p[k]))
            rank = label_rank[i]
            if rank >= cut:
                of_row[2] = depth[rank - cut]
            else:
                d = 0
                while starts[d + 1] <= rank:
                    d += 1
                of_row[2] = -w[d] * label_depth[i] - (b[d] - shift)
            of_row[3], of_row[4] = 0.0, 0.0
            for s in range(shares.size):
                total, drop, top = prior_sums(row[cut:], depth, np.float32(-scales[s]))
                of_row[3] += shares[s] * drop / total
                of_row[4] += shares[s] * top / total
            on_top = 1
            while on_top < r and row[r - 1 - on_top] == 0:
                on_top += 1
            of_row[5] = on_top
        begin = piece * next_of(turn)
