"""Loops of numba that fits need: rows prepared, moments and label sums, information, and sums at a point.

    drop_i = sum_j p_j v_j + sum_{j < i} p_j (U - v_j)          mean drop of a scale that begins at rank i
    variance_i = sum_{j >= i} p_j v_j^2 + U^2 below_i - drop_i^2

All that is summed is positive; a difference is taken of two such sums. At a point a row is read once for its value and gradient,
and once more where a Hessian is needed. Sums that are matrix products are taken of a few rows at a time, which the cache holds.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment, untyped-decorator, attr-defined"

from __future__ import annotations

import numpy as np

from .numba_loops import (
    F32,
    FACTORS,
    LANES,
    MOST,
    PART,
    TOGETHER,
    affine_between,
    exp,
    exp_in_sums,
    loop,
    moments_between,
    moments_of,
    next_of,
    part_moments,
    product_tile,
    rows_of_a_piece,
    sort_rows,
    sum_loop,
    total_of,
)


@sum_loop
def equals(x, apart):
    count = np.int32(0)
    for i in range(x.size - apart):
        count += np.int32(x[i] == x[i + apart])
    return count


@loop
def largest_tie_of_row(row, best):
    if best >= row.size or not equals(row, best):  # in order, so what lies between is equal as well
        return best
    run = 1
    for i in range(1, row.size):
        run = run + 1 if row[i] == row[i - 1] else 1
        best = max(best, run)
    return best


@loop
def place_of(here, row):
    # In a row sorted downwards: how many values lie above, and how many are equal.
    low, high = 0, row.size
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if row[middle] > here else (low, middle)
    while high < row.size and row[high] == here:
        high += 1
    return low, high - low


@loop
def flush(chunk, out, n, rows):
    # From single to double precision every few rows, before rounding adds up.
    if n % 32 == 31 or n == rows - 1:
        for j in range(chunk.shape[0]):
            for i in range(chunk.shape[1]):
                out[j, i] += chunk[j, i]
                chunk[j, i] = F32(0)


@loop
def odd_lanes(r):
    # Vectors for r ranks, an odd number of them: places that are a power of two apart would share a place in the cache.
    return -(-r // LANES) | 1


@loop
def rows_of(block, first_row, ends):
    # The first row of a block, and the one behind its last.
    return (ends[block - 1] if block else first_row), ends[block]


@loop
def largest_tie(v):
    best = 1
    for n in range(v.shape[0]):
        best = largest_tie_of_row(v[n], best)
    return best


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
    # The statistics of `numba_engine.STATISTICS` of sorted rows, (n, 3).
    for n in range(v.shape[0]):
        out[n, 0] = v[n, v.shape[1] - 2] if v.shape[1] > 1 else F32(0)
        out[n, 1], out[n, 2] = mean_and_deviation(v[n])


@loop
def prepare_rows(z, labels, depth, top, height, label_depth, first, held, tied, measured, turn):
    # Depths below the top in order; where the label lies, and how many ranks hold its value; which ranks equal the one below them
    # in some row; statistics where there is room for them (n, 3). Threads take turns.
    n, r = z.shape
    own = np.zeros(r, dtype=np.uint8)
    piece = rows_of_a_piece(r)
    begin = piece * next_of(turn)
    while begin < n:
        end = min(begin + piece, n)
        sort_rows(z[begin:end], depth[begin:end], top[begin:end])
        for i in range(begin, end):
            row = depth[i]
            height[i] = row[0]
            label_depth[i] = min(top[i] - z[i, labels[i]], MOST)
            first[i], held[i] = place_of(label_depth[i], row)
            for j in range(1, r):
                own[j] |= np.uint8(row[j - 1] == row[j] and row[j] < MOST)  # masked classes tie with nothing
        if measured.shape[0]:
            measure_rows(depth[begin:end], measured[begin:end])
        begin = piece * next_of(turn)
    for j in range(r):
        if own[j]:  # another thread that writes there writes the same
            tied[j] = 1


@loop
def scale_moments_of_rows(v, weight, lesser, out, turn):
    p, piece = np.empty(v.shape[1], dtype=np.float32), rows_of_a_piece(v.shape[1])
    begin = piece * next_of(turn)
    while begin < v.shape[0]:
        for n in range(begin, min(begin + piece, v.shape[0])):
            row = v[n]
            for i in range(row.size):
                p[i] = exp(weight * row[i] + lesser * row[i])
            out[0, n], out[1, n], out[2, n] = moments_of(p, row)
        begin = piece * next_of(turn)


@loop
def tail_sums(z, top, height, leading, lesser, base, out):
    step = 0 if leading.size == 1 else 1
    v, e = np.empty(PART, dtype=np.float32), np.empty(PART, dtype=np.float32)
    for n in range(z.shape[0]):
        w, c, b = leading[n * step], lesser[n * step], base[n]
        s0, s1, s2 = 0.0, 0.0, 0.0
        for begin in range(0, z.shape[1], PART):
            chunk = z[n, begin : begin + PART]
            for i in range(chunk.size):
                v[i] = min(max(top[n] - chunk[i], height[n]), MOST)
                e[i] = exp(w * v[i] + (c * v[i] + b))
            t0, t1, t2 = part_moments(e[: chunk.size], v[: chunk.size])
            s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
        out[0, n], out[1, n], out[2, n] = s0, s1, s2


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
def moments_of_blocks(v, height, weight, psi, first_row, ends, by_rank, by_factor, turn):
    # Of each block ``u`` and ``u^2`` at each rank (B, 2, r); and by factor (B, 3, 2, K) their sums over all ranks but the top,
    # at the top, and of ones. Threads take turns.
    step, k = (0 if psi.shape[0] == 1 else 1), psi.shape[1]
    chunk = np.zeros((2, v.shape[1]), dtype=np.float32)
    block = next_of(turn)
    while block < ends.size:
        begin, end = rows_of(block, first_row, ends)
        totals = by_factor[block]
        totals[:] = 0.0
        by_rank[block] = 0.0
        for n in range(begin, end):
            row, high, factors = v[n], height[n], psi[n * step]
            s1, s2 = add_moments(row, high, weight[n], chunk[0], chunk[1])
            tall, w = np.float64(high), np.float64(weight[n])
            for j in range(k):
                x = w * np.float64(factors[j])
                y = x * np.float64(factors[j])
                totals[0, 0, j] += x * s1
                totals[0, 1, j] += y * s2
                totals[1, 0, j] += x * tall
                totals[1, 1, j] += y * (tall * tall)
                totals[2, 0, j] += x
                totals[2, 1, j] += y
            flush(chunk, by_rank[block], n - begin, end - begin)
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
    chunk, waits = np.zeros_like(out), np.zeros(out.shape[0], dtype=np.uint8)
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
                here = chunk[place]
                one = -share if end else share
                deep, high = one * np.float64(depth[n]), one * np.float64(height[n])
                for j in range(k):
                    x = np.float64(factors[j])
                    here[0, j] += deep * x
                    here[1, j] += high * x
                    here[2, j] += one * x
        for i in range(count):
            waits[places[i]] = 0
            out[places[i]] += chunk[places[i]]
            chunk[places[i]] = 0.0
        begin = ends[block]


@loop
def information_of_blocks(
    v, height, weight, psi, leading, lesser, first_row, ends, scales, squares, biases, lowest, errors, turn
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
        begin, end = rows_of(block, first_row, ends)
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
    # Rank by rank, a few rows side by side: sums that run along a row would wait for each other. ``below`` is what lies
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
    v, starts, psi, used, weights, drops, weight, height, own, first_row, ends, values, by_rank, whole, turn
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
        begin, end = rows_of(block, first_row, ends)
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
    v, starts, psi, used, weights, drops, weight, height, atoms, at, is_scale, factor, tied, ranks, order,
    first_row, ends, out, turn,
):  # fmt: skip
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
        begin, end = rows_of(block, first_row, ends)
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
