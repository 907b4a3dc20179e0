"""The loops of `compiled` that look at rows, in numba: the values at the jumps, and statistics.

    v_i = z_top - z_i                                    depths
    t_j = depth at the rank of jump j                    a class lies above the jump where v <= t_j
    margin, mean and standard deviation of v             statistics, on demand

Rows that are not too long are sorted by a network (`sorting`), which is faster than any search, and read where the jumps fall
(`read_jumps`). Longer ones are searched (`find_jumps`): depths are dealt into buckets, and only what shares a bucket with a jump
is put in order. A bucket into which many values crowd (a few very low logits make all the others crowd) is dealt out anew, alone.

Jumps come in the order of their ranks from the top: ``ranks[j]`` classes lie at or above jump j, and ``over[j]``, ``many[j]``
classes lie above its value, and at or above it. Where ``many[j] > ranks[j]`` the jump falls among ties.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numba
import numpy as np

from .numba.loops import F32, HOW, MOST, PART, float_of_bits, strict_loop

# Rows that differ by less are one bucket: there is nothing to divide by.
LEAST = F32(1e-30)
# Values in one bucket that are compared each with each; that are put in order; more are dealt out anew, at most so often.
FEW, CROWD, ZOOMS = np.uint32(8), np.uint32(64), 3
# Buckets are counted in groups, so that few steps lead from one jump to the next.
GROUP = np.uint32(8)
# Indices are unsigned: a signed one would be checked for being negative, which counts from the end.
NONE, ONE = np.uint32(0), np.uint32(1)
INF = F32(np.inf)
# The bits of a number, the sign apart; and where the sign is.
LARGEST_BITS, SIGN = np.int32(2**31 - 1), np.int32(31)
any_order = numba.njit(
    fastmath={"reassoc", "contract", "nsz"}, **HOW
)  # sums in any order, of numbers that may be infinite


@numba.njit(inline="always")
def in_order(bits):
    """Whole numbers in the order of the numbers that have these bits; their own inverse."""
    return bits ^ ((bits >> SIGN) & LARGEST_BITS)


# Extremes are taken of whole numbers: of others a compiler does not take sixteen at a time.


@strict_loop
def ends_of(x):
    bits = x.view(np.int32)
    low, high = LARGEST_BITS, -LARGEST_BITS
    for i in range(bits.size):
        key = in_order(bits[i])
        low, high = min(low, key), max(high, key)
    return float_of_bits(in_order(low)), float_of_bits(in_order(high))


@strict_loop
def available_in(x):
    """How many are not masked, and the lowest of them."""
    low, count = INF, NONE
    for i in range(x.size):
        if x[i] != -INF:
            low = min(low, x[i])
            count += ONE
    return low, count


@strict_loop
def depths_of(row, top, v):
    """Depths, cut where nothing lies but masked classes."""
    for i in range(row.size):
        v[i] = min(top - row[i], MOST)


@strict_loop
def find_buckets(v, near, scale, last, bucket):
    for i in range(v.size):
        inside = min(max((v[i] - near) * scale, F32(0)), last)
        bucket[i] = np.uint16(last + F32(1) if v[i] >= MOST else inside)


@strict_loop
def count_buckets(bucket, held, grouped):
    held[:] = NONE
    for i in range(bucket.size):
        held[bucket[i]] += ONE
    for g in range(grouped.size):
        s = NONE
        for i in range(GROUP):
            s += held[g * GROUP + i]
        grouped[g] = s


@strict_loop
def window_of(v, bucket, b):
    """The least and the largest depth in a bucket."""
    near, far = INF, -INF
    for i in range(v.size):
        if bucket[i] == b:
            near, far = min(near, v[i]), max(far, v[i])
    return near, far


@strict_loop
def put_in_order(x, first, beyond):
    # Shell's sort: one value after the other, and where there are many in wide steps before.
    gap = ONE
    while beyond - first > CROWD and gap * np.uint32(9) < beyond - first:
        gap = np.uint32(3) * gap + ONE
    while gap > NONE:
        for t in range(first + gap, beyond):
            here, s = x[t], np.uint32(t)
            while s >= first + gap and x[s - gap] > here:
                x[s] = x[s - gap]
                s -= gap
            x[s] = here
        gap //= np.uint32(3)


@strict_loop
def one_of_few(x, first, beyond, above, rank):
    """The value at a rank where ``above`` values are smaller than any of these, and how many lie below it, and below it or at it.

    Each is compared with each: in the end faster than to put them in order, which takes branches that nobody can foresee.
    """
    here, over, many = x[first], above, above
    for s in range(first, beyond):
        less, up_to = above, above
        for t in range(first, beyond):
            less += np.uint32(x[t] < x[s])
            up_to += np.uint32(x[t] <= x[s])
        it = (less < rank) & (rank <= up_to)
        here = x[s] if it else here
        over = less if it else over
        many = up_to if it else many
    return here, over, many


@strict_loop
def jumps_of_row(
    v, height, ranks, bucket, held, grouped, wanted, end, inside, depths, found, depth, over, many
):
    # `found`: for each bucket wanted where it begins and ends in `depths`, how many values lie above it, and its number.
    last = F32(held.size - 2)
    near, far = F32(0), height
    if ranks.size == 0:
        return
    for zoom in range(ZOOMS):
        find_buckets(v, near, last / (far - near) if far - near > LEAST else F32(0), last, bucket)
        count_buckets(bucket, held, grouped)
        wanted[:] = np.uint8(0)
        above_group, group, listed, k, crowd = NONE, NONE, NONE, NONE, NONE
        for j in range(ranks.size):
            while above_group + grouped[group] < ranks[j]:
                above_group += grouped[group]
                group += ONE
            above, b, up_to = above_group, group * GROUP, above_group
            for i in range(GROUP):  # without branches, which nobody could foresee
                up_to += held[group * GROUP + i]
                before = up_to < ranks[j]
                above = up_to if before else above
                b += np.uint32(before)
            if not wanted[b]:
                wanted[b], end[b] = np.uint8(1), listed
                found[0, k], found[1, k], found[2, k] = listed, listed + held[b], above
                listed += held[b]
                k += ONE
                if held[b] > held[crowd] or not wanted[crowd]:
                    crowd = b
        if held[crowd] <= CROWD:
            break
        least, most = window_of(v, bucket, crowd)
        if not most > least or (least == near and most == far):
            break
        if zoom + 1 < ZOOMS:
            near, far = least, most
    count = NONE
    for i in range(v.size):
        inside[count] = np.uint32(i)
        count += np.uint32(wanted[bucket[i]])
    for t in range(count):
        i = inside[t]
        b = bucket[i]
        depths[end[b]] = v[i]
        end[b] += ONE
    for j in range(k):
        if found[1, j] - found[0, j] > FEW:
            put_in_order(depths, found[0, j], found[1, j])
    k = NONE
    for j in range(ranks.size):
        while found[2, k] + found[1, k] - found[0, k] < ranks[j]:
            k += ONE
        first, beyond, above = found[0, k], found[1, k], found[2, k]
        if beyond - first <= FEW:
            depth[j], over[j], many[j] = one_of_few(depths, first, beyond, above, ranks[j])
            continue
        low = first + ranks[j] - ONE - above
        high, here = low + ONE, depths[low]
        while low > first and depths[low - ONE] == here:
            low -= ONE
        while high < beyond and depths[high] == here:
            high += ONE
        depth[j], over[j], many[j] = here, above + low - first, above + high - first


@any_order
def part_from(v, mean):
    # Sums of ``v - mean`` and of its square over the classes that are not masked.
    s1, s2 = F32(0), F32(0)
    for i in range(v.size):
        away = F32(0) if v[i] >= MOST else v[i] - mean
        s1 += away
        s2 += away * away
    return s1, s2


@strict_loop
def sums_from(v, mean):
    # In parts, because long sums in single precision lose digits.
    s1, s2 = 0.0, 0.0
    for begin in range(0, v.size, PART):
        t1, t2 = part_from(v[begin : begin + PART], mean)
        s1, s2 = s1 + t1, s2 + t2
    return s1, s2


@strict_loop
def below_top(v):
    """The smallest depth but that of the top (`MOST`: there is none), and how many share the top."""
    bits = v.view(np.int32)
    second, tops = LARGEST_BITS, np.int32(0)
    for i in range(bits.size):
        second = min(second, bits[i] if bits[i] > 0 else LARGEST_BITS)
        tops += np.int32(bits[i] == 0)
    return min(float_of_bits(second), MOST) if second < LARGEST_BITS else MOST, tops


@strict_loop
def statistics_of_row(v, available, out):
    # Margin, mean gap, spread.
    second, tops = below_top(v)
    out[0] = F32(0) if tops > 1 or second >= MOST else second
    mean = F32(sums_from(v, F32(0))[0] / available)
    out[1] = mean
    first, square = sums_from(v, mean)
    out[2] = F32(np.sqrt(max(square / available - (first / available) ** 2, 0.0)))


@strict_loop
def find_jumps(z, ranks, cut, n_buckets, top, height, depth, over, many, done, statistics):
    # `cut`: whether the last rank is that of the lowest class in use.
    m = z.shape[1]
    v, bucket, depths = np.empty(m, np.float32), np.empty(m, np.uint16), np.empty(m, np.float32)
    held, end, inside = (
        np.empty(n_buckets, np.uint32),
        np.empty(n_buckets, np.uint32),
        np.empty(m + 1, np.uint32),
    )
    wanted, grouped = np.empty(n_buckets, np.uint8), np.empty(n_buckets // GROUP, np.uint32)
    found = np.empty((3, ranks.size), np.uint32)
    for n in range(z.shape[0]):
        low, high = ends_of(z[n])
        available = np.uint32(m)
        if low == -INF:
            low, available = available_in(z[n])
        top[n], height[n] = high, high - low
        done[n] = height[n] < MOST
        if not done[n]:
            continue
        few = ranks.size  # ranks below which there are classes that are not masked
        while few > 0 and ranks[few - 1] > available:
            few -= 1
        depths_of(z[n], high, v)
        jumps_of_row(
            v, height[n], ranks[:few], bucket, held, grouped, wanted, end, inside, depths, found, depth[n], over[n], many[n]
        )  # fmt: skip
        if statistics.shape[0]:
            statistics_of_row(v, available, statistics[n])
        for j in range(few, ranks.size):
            depth[n, j], over[n, j], many[n, j] = INF, NONE, NONE
        if cut and few == ranks.size:
            height[n] = depth[n, few - 1]


@strict_loop
def read_jumps(z, ranks, cut, top, height, depth, over, many, done, statistics):
    # The same of rows in rising order.
    m = z.shape[1]
    v = np.empty(m, np.float32)
    for n in range(z.shape[0]):
        masked = 0
        while masked < m - 1 and z[n, masked] == -INF:
            masked += 1
        # A negative zero less a zero is a negative zero, whose bits are not those of 0.
        high = z[n, m - 1] + F32(0)
        top[n], height[n] = high, high - z[n, masked]
        done[n] = height[n] < MOST
        if not done[n]:
            continue
        for j in range(ranks.size):
            at = m - np.intp(ranks[j])
            if at < masked:
                depth[n, j], over[n, j], many[n, j] = INF, NONE, NONE
                continue
            here, first, last = high - z[n, at], at, at
            while first > masked and high - z[n, first - 1] == here:
                first -= 1
            while last < m - 1 and high - z[n, last + 1] == here:
                last += 1
            depth[n, j], over[n, j], many[n, j] = here, np.uint32(m - 1 - last), np.uint32(m - first)
        if statistics.shape[0]:
            depths_of(z[n], high, v)
            statistics_of_row(v, np.uint32(m - masked), statistics[n])
        if cut and depth[n, ranks.size - 1] < INF:
            height[n] = depth[n, ranks.size - 1]
