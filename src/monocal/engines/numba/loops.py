"""What all loops of numba share: how they are compiled, exponentials, and sums over one row. This module needs numba."""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ...core.ranked import LARGEST
from .vectors import LANES

F32 = np.float32
MOST = F32(LARGEST)  # depths are cut here
PART = 4096
# Numbers that a thread takes at a time, where nothing is added up over rows.
PIECE = 2**17
# log(2) as a sum of two: the first has few bits, so its multiples are exact.
PER_LN2, LN2_HIGH, LN2_LOW = F32(1 / np.log(2)), F32(355 / 512), F32(np.log(2) - 355 / 512)


def nothing():
    return 0


try:
    numba.njit(cache=True)(nothing)
    KEEPS = True
except RuntimeError:  # no folder to keep compiled code in
    KEEPS = False
# Loops are put into the loops that call them. Else there would be two versions of each, its own and one made for its caller, and
# it would depend on what was compiled in this process and what was loaded which of the two is called: sums differ in last digits.
HOW = {"nogil": True, "error_model": "numpy", "cache": KEEPS, "forceinline": True}
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


@intrinsic
def next_of(context: Any, turn: Any) -> Any:
    """The number in an array (1,), which goes up by one. Threads that count so take every piece of work once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(turn), generate


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


@numba.njit(inline="always")
def exp_in_sums(x):
    # As `exp`, but what is below the smallest number with an exponent of its own becomes that number: no sum notices. The
    # polynomial is the one of its degree with the smallest relative error, 3e-9.
    x = max(x, F32(-87.0))
    k = np.rint(x * PER_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    y = F32(0.0013813144394)
    y = y * r + F32(0.0083694188465)
    y = y * r + F32(0.0416684567898)
    y = y * r + F32(0.1666651479128)
    y = y * r + F32(0.4999999305071)
    y = y * r * r + r + F32(1)
    return y * power_of_two(np.int32(k))


@loop
def rows_of(block, ends):
    # The first row of a block, and the one behind its last.
    return (ends[block - 1] if block else 0), ends[block]


@loop
def rows_of_a_piece(m):
    # Rows of m numbers that a thread takes at a time; no fewer than are sorted together.
    return min(max(PIECE // m, 16), 64)


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
def largest_tie(v):
    best = 1
    for n in range(v.shape[0]):
        best = largest_tie_of_row(v[n], best)
    return best


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
            some = z[n, begin : begin + PART]
            for i in range(some.size):
                v[i] = min(max(top[n] - some[i], height[n]), MOST)
                e[i] = exp(w * v[i] + (c * v[i] + b))
            t0, t1, t2 = part_moments(e[: some.size], v[: some.size])
            s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
        out[0, n], out[1, n], out[2, n] = s0, s1, s2


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
def find_labels(depth, label_depth, first, held, tied):
    for n in range(depth.shape[0]):
        row = depth[n]
        first[n], held[n] = place_of(label_depth[n], row)
        for i in range(row.size - 1):
            tied[i] |= np.uint8(row[i] == row[i + 1])


@loop
def odd_lanes(r):
    # Vectors for r ranks, an odd number of them: places that are a power of two apart would share a place in the cache.
    return -(-r // LANES) | 1
