"""The loops of `compiled` for fitting, in numba, which is needed at once: only `compiled` and other loops import this."""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ..ranks.ranked import LARGEST

F32 = np.float32
MOST = F32(LARGEST)  # depths are cut here
PART = 4096
# log(2) as a sum of two: the first has few bits, so its multiples are exact.
PER_LN2, LN2_HIGH, LN2_LOW = F32(1 / np.log(2)), F32(355 / 512), F32(np.log(2) - 355 / 512)


def nothing():
    return 0


try:
    numba.njit(cache=True)(nothing)
    KEEPS = True
except RuntimeError:  # no folder to keep compiled code in
    KEEPS = False
HOW = {"nogil": True, "error_model": "numpy", "cache": KEEPS}
# Sums may be taken in any order. Nothing else may be rearranged, least of all what rests on a rounding; where the order
# of classes is at stake, products are not even fused with sums.
sum_loop = numba.njit(fastmath=True, **HOW)
loop = numba.njit(fastmath={"contract"}, **HOW)
strict_loop = numba.njit(**HOW)


@intrinsic
def float_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@numba.njit(inline="always")
def power_of_two(k):
    return float_of_bits((k + np.int32(127)) << np.int32(23))


@numba.njit(inline="always")
def exp(x):
    # 2^k e^r with |r| <= log(2)/2, where seven terms of the series leave an error of 6e-9.
    x = max(x, F32(-104.0))  # where it is zero
    k = np.rint(x * PER_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    y = F32(1 / 5040)
    y = y * r + F32(1 / 720)
    y = y * r + F32(1 / 120)
    y = y * r + F32(1 / 24)
    y = y * r + F32(1 / 6)
    y = y * r + F32(1 / 2)
    y = y * r * r + r + F32(1)
    k = np.int32(k)
    half = k >> np.int32(1)  # in two steps, because the smallest numbers have no exponent of their own
    return y * power_of_two(half) * power_of_two(k - half)


@loop
def flush(some, out, n, rows):
    # From single to double precision every few rows, before rounding adds up.
    if n % 32 == 31 or n == rows - 1:
        for j in range(some.shape[0]):
            for i in range(some.shape[1]):
                out[j, i] += some[j, i]
                some[j, i] = F32(0)


# Long sums are taken in parts: adding a hundred thousand numbers in single precision would lose the last two digits.


@sum_loop
def part_total(x):
    s = F32(0)
    for i in range(x.size):
        s += x[i]
    return s


@loop
def total_of(x):
    if x.size <= PART:
        return part_total(x)
    s = 0.0
    for begin in range(0, x.size, PART):
        s += part_total(x[begin : begin + PART])
    return F32(s)


@sum_loop
def part_product(p, v):
    s = F32(0)
    for i in range(p.size):
        s += p[i] * v[i]
    return s


@loop
def product_of(p, v):
    if p.size <= PART:
        return part_product(p, v)
    s = 0.0
    for begin in range(0, p.size, PART):
        s += part_product(p[begin : begin + PART], v[begin : begin + PART])
    return F32(s)


@sum_loop
def part_moments(p, v):
    s0, s1, s2 = F32(0), F32(0), F32(0)
    for i in range(p.size):
        s0 += p[i]
        s1 += p[i] * v[i]
        s2 += p[i] * v[i] * v[i]
    return s0, s1, s2


@loop
def moments_of(p, v):
    if p.size <= PART:
        return part_moments(p, v)
    s0, s1, s2 = 0.0, 0.0, 0.0
    for begin in range(0, p.size, PART):
        t0, t1, t2 = part_moments(p[begin : begin + PART], v[begin : begin + PART])
        s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
    return F32(s0), F32(s1), F32(s2)


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
def exponentials_of_row(v, starts, leading, lesser, base, raised, p):
    # ``exp(f - f_top)``, its total, and ``f_top``; `raised` holds the bases from the top.
    shift = shift_of_top(v, starts, base)
    for d in range(starts.size - 1):
        raised[d] = base[d] - shift
        w, c, b = leading[d], lesser[d], raised[d]
        x, y = v[starts[d] : starts[d + 1]], p[starts[d] : starts[d + 1]]
        for i in range(x.size):
            y[i] = w * x[i] + (c * x[i] + b)
    for i in range(p.size):  # in one go: what is left of a short piece would be taken one by one
        p[i] = exp(p[i])
    average_ties(v, starts, leading, lesser, raised, p)
    return total_of(p), shift


@loop
def drops_of_row(p, v, height, starts, mean, later):
    # What `curvature` needs of a row: mean drop of a scale and of a bias from each start on, and the part of a later start.
    high, below, starts_held = np.float64(height), 0.0, starts.size - 1
    for d in range(starts_held):
        mean[starts_held + d] = below
        s0, s1, s2 = moments_of(p[starts[d] : starts[d + 1]], v[starts[d] : starts[d + 1]])
        below += s0
        later[starts_held + d], later[d] = s1, s2
    depth, square = 0.0, 0.0
    for d in range(starts_held - 1, -1, -1):
        depth += later[starts_held + d]
        square += later[d]
        mean[d] = high * mean[starts_held + d] + depth
        later[d] = square - high * depth
        later[starts_held + d] = -depth


@loop
def parameters_of_row(psi, used, weights, drops, height, w, b, leading, lesser, base):
    # ``-w`` in two parts and ``-(w_top - w) U - (b_top - b)`` of each piece, summed in double precision over the factors.
    w[:] = 0.0
    b[:] = 0.0
    for k in range(used.size):
        size = np.float64(psi[used[k]])
        high = size * np.float64(height)
        for d in range(w.size):
            w[d] += size * weights[k, d]
            b[d] += high * drops[k, d] + size * drops[used.size + k, d]
    for d in range(w.size):
        leading[d] = F32(w[d])
        lesser[d] = F32(w[d] - np.float64(leading[d]))
        base[d] = F32(b[d])


@loop
def add_products(mean, later, psi, height, weight, at, is_scale, factor, drop, other, late, out):
    # Products of the drops of two atoms less the product of their means, as `curvature` has them: the half of the matrix in
    # which the first starts no later than the second. Atoms are in order of their starts.
    for b in range(at.size):
        size = np.float64(psi[factor[b]])
        drop[b] = size * mean[at[b]]
        late[b] = size * later[at[b]]
        other[b] = size * height if is_scale[b] else size
    for a in range(at.size):
        first, share = drop[a], drop[a] / weight
        scale = np.float64(psi[factor[a]]) if is_scale[a] else 0.0
        line, x, y, z = out[a, a:], other[a:], late[a:], drop[a:]
        for b in range(line.size):
            line[b] += first * x[b] + scale * y[b] - share * z[b]


@loop
def sums_of_rows(
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
    kept,
    out,
    logs,
    depth,
    hessian,
):
    # `kept` takes the probabilities times weights of all rows, or has one row to work in. Returns the sum of weighted `logs`.
    value = 0.0
    own, every = (0 if psi.shape[0] == 1 else 1), (0 if kept.shape[0] == 1 else 1)
    some, pieces = np.zeros((3, v.shape[1]), dtype=np.float32), starts.size - 1
    leading, lesser = np.empty(pieces, dtype=np.float32), np.empty(pieces, dtype=np.float32)
    base, raised = np.empty(pieces, dtype=np.float32), np.empty(pieces, dtype=np.float32)
    w, b = np.empty(pieces), np.empty(pieces)
    mean, later = np.empty(2 * atoms.size), np.empty(2 * atoms.size)
    drop, other, late = np.empty(at.size), np.empty(at.size), np.empty(at.size)
    for n in range(v.shape[0]):
        row, p = v[n], kept[n * every]
        parameters_of_row(psi[n * own], used, weights, drops, height[n], w, b, leading, lesser, base)
        total, shift = exponentials_of_row(row, starts, leading, lesser, base, raised, p)
        logs[n] = np.log(np.float64(total)) + shift
        value += weight[n] * logs[n]
        share, high = weight[n] / total, height[n]
        at_depth, at_height, mass = some[0], some[1], some[2]
        for i in range(p.size):
            q = p[i] * share
            p[i] = q
            at_depth[i] += q * row[i]
            at_height[i] += q * high
            mass[i] += q
        flush(some, out, n, v.shape[0])
        if at.size:
            drops_of_row(p, row, high, atoms, mean, later)
            add_products(
                mean,
                later,
                psi[n * own],
                np.float64(high),
                np.float64(weight[n]),
                at,
                is_scale,
                factor,
                drop,
                other,
                late,
                hessian,
            )
        if depth.size:
            depth[n] = product_of(p, row)
    return value


@loop
def exponentials(v, starts, psi, used, weights, drops, height, p, total, shift):
    own, pieces = (0 if psi.shape[0] == 1 else 1), starts.size - 1
    leading, lesser = np.empty(pieces, dtype=np.float32), np.empty(pieces, dtype=np.float32)
    base, raised = np.empty(pieces, dtype=np.float32), np.empty(pieces, dtype=np.float32)
    w, b = np.empty(pieces), np.empty(pieces)
    for n in range(v.shape[0]):
        parameters_of_row(psi[n * own], used, weights, drops, height[n], w, b, leading, lesser, base)
        total[n], shift[n] = exponentials_of_row(v[n], starts, leading, lesser, base, raised, p[n])


@loop
def products_in_ties(p, v, height, starts, at, is_scale, factor, psi, out):
    # What the products of two atoms count too much inside a group of ties (see `curvature`). Atoms in order of their starts.
    part, value = np.empty(at.size), np.empty(at.size)
    own, every = (0 if psi.shape[0] == 1 else 1), (0 if p.shape[0] == 1 else 1)
    for n in range(v.shape[0]):
        row, a = v[n], 0
        while a < at.size:
            s = starts[at[a]]
            if s == 0 or row[s - 1] != row[s]:
                a += 1
                continue
            low, high, here = s - 1, s + 1, row[s]
            while low > 0 and row[low - 1] == here:
                low -= 1
            while high < row.size and row[high] == here:
                high += 1
            size, u, b = high - low, height[n] - here, a
            while b < at.size and starts[at[b]] < high:
                part[b] = (high - starts[at[b]]) / size
                value[b] = psi[n * own, factor[b]] * (u if is_scale[b] else F32(1))
                b += 1
            mass = np.float64(p[n * every, s]) * size
            for i in range(a, b):
                for j in range(i, b):  # a later start has the smaller part
                    out[i, j] += mass * part[j] * (1.0 - part[i]) * value[i] * value[j]
            a = b


@sum_loop
def equals(x, apart):
    count = np.int32(0)
    for i in range(x.size - apart):
        count += np.int32(x[i] == x[i + apart])
    return count


@loop
def largest_tie(v):
    best = 1
    for n in range(v.shape[0]):
        row = v[n]
        if best >= row.size or not equals(row, best):  # in order, so what lies between is equal as well
            continue
        run = 1
        for i in range(1, row.size):
            run = run + 1 if row[i] == row[i - 1] else 1
            best = max(best, run)
    return best


@loop
def scale_moments_of_rows(v, weight, lesser, out):
    p = np.empty(v.shape[1], dtype=np.float32)
    for n in range(v.shape[0]):
        row = v[n]
        for i in range(row.size):
            p[i] = exp(weight * row[i] + lesser * row[i])
        out[0, n], out[1, n], out[2, n] = moments_of(p, row)


@loop
def tail_sums(z, top, height, leading, lesser, base, out):
    step = 0 if leading.size == 1 else 1
    v, e = np.empty(PART, dtype=np.float32), np.empty(PART, dtype=np.float32)
    for n in range(z.shape[0]):
        w, c, b = leading[n * step], lesser[n * step], base[n]
        s0, s1, s2 = 0.0, 0.0, 0.0
        for begin in range(0, z.shape[1], PART):
            some = z[n, begin : begin + PART]
            for i in range(some.size):
                v[i] = min(max(top[n] - some[i], height[n]), MOST)
                e[i] = exp(w * v[i] + (c * v[i] + b))
            t0, t1, t2 = part_moments(e[: some.size], v[: some.size])
            s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
        out[0, n], out[1, n], out[2, n] = s0, s1, s2


@loop
def find_labels(depth, label_depth, first, held, tied):
    for n in range(depth.shape[0]):
        row, here = depth[n], label_depth[n]
        low, high = 0, row.size
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if row[middle] > here else (low, middle)
        first[n] = low
        while high < row.size and row[high] == here:
            high += 1
        held[n] = high - low
        for i in range(row.size - 1):
            tied[i] |= np.uint8(row[i] == row[i + 1])


@loop
def scale_moments(v, height, weight, out):
    some = np.zeros((2, v.shape[1]), dtype=np.float32)
    for n in range(v.shape[0]):
        row, first, second, w = v[n], some[0], some[1], weight[n]
        for i in range(row.size):
            u = height[n] - row[i]
            first[i] += w * u
            second[i] += w * u * u
        flush(some, out, n, v.shape[0])


@loop
def piece_moments(p, v, starts, out):
    for n in range(p.shape[0]):
        for d in range(starts.size - 1):
            piece = slice(starts[d], starts[d + 1])
            out[0, n, d], out[1, n, d], out[2, n, d] = moments_of(p[n, piece], v[n, piece])
