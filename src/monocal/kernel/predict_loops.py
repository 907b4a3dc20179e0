"""The loops of `compiled` for predicting, in numba: rows are searched for the values at the jumps, never sorted.

    t_j = depth at the rank of jump j                    a class lies above the jump where v <= t_j
    f   = w_d u + b_d,   d the jumps it lies above;      a group of ties that a jump falls into: the mean over its ranks

Values are dealt into buckets by their depth, and only what shares a bucket with a jump is put in order. A bucket into which many
values crowd (a few very low logits make all the others crowd) is dealt out anew, alone.

Jumps come in the order of their ranks from the top: ``ranks[j]`` classes lie at or above jump j, and ``over[j]``, ``many[j]``
classes lie above its value, and at or above it. Where ``many[j] > ranks[j]`` the jump falls among ties.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numba
import numpy as np

from ..arrays import EXP_GRID
from .loops import F32, HOW, MOST, PART, exp, strict_loop, total_of

UP, DOWN = F32(EXP_GRID["float32"]), F32(1.0 / EXP_GRID["float32"])
# Rows that differ by less are one bucket: there is nothing to divide by.
LEAST = F32(1e-30)
# Values in one bucket that are put in order one by one; more are dealt out anew, at most so often.
CROWD, ZOOMS = np.uint32(64), 3
# Buckets are counted in groups, so that few steps lead from one jump to the next.
GROUP = np.uint32(8)
# Indices are unsigned: a signed one would be checked for being negative, which counts from the end.
NONE, ONE = np.uint32(0), np.uint32(1)
INF = F32(np.inf)
any_order = numba.njit(
    fastmath={"reassoc", "contract", "nsz"}, **HOW
)  # sums in any order, of numbers that may be infinite


@numba.njit(fastmath={"nnan", "nsz"}, **HOW)
def ends_of(x):
    low, high = x[0], x[0]
    for i in range(x.size):
        low, high = min(low, x[i]), max(high, x[i])
    return low, high


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
def find_buckets(z, top, near, scale, last, bucket):
    for i in range(z.size):
        depth = top - z[i]
        inside = min(max((depth - near) * scale, F32(0)), last)
        bucket[i] = np.uint16(last + F32(1) if depth > MOST else inside)


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
def window_of(row, top, bucket, b):
    """The least and the largest depth in a bucket."""
    near, far = INF, -INF
    for i in range(row.size):
        if bucket[i] == b:
            near, far = min(near, top - row[i]), max(far, top - row[i])
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
def jumps_of_row(
    row, top, height, ranks, bucket, held, grouped, wanted, end, inside, depths, found, depth, over, many
):
    # `found`: for each bucket wanted where it begins and ends in `depths`, how many values lie above it, and its number.
    last = F32(held.size - 2)
    near, far = F32(0), height
    for zoom in range(ZOOMS):
        find_buckets(row, top, near, last / (far - near) if far - near > LEAST else F32(0), last, bucket)
        count_buckets(bucket, held, grouped)
        wanted[:] = np.uint8(0)
        above_group, group, listed, k, crowd = NONE, NONE, NONE, NONE, NONE
        for j in range(ranks.size):
            while above_group + grouped[group] < ranks[j]:
                above_group += grouped[group]
                group += ONE
            above, b = above_group, group * GROUP
            while above + held[b] < ranks[j]:
                above += held[b]
                b += ONE
            if not wanted[b]:
                wanted[b], end[b] = np.uint8(1), listed
                found[0, k], found[1, k], found[2, k] = listed, listed + held[b], above
                listed += held[b]
                k += ONE
                if held[b] > held[crowd] or not wanted[crowd]:
                    crowd = b
        if ranks.size == 0 or held[crowd] <= CROWD:
            break
        least, most = window_of(row, top, bucket, crowd)
        if not most > least or (least == near and most == far):
            break
        if zoom + 1 < ZOOMS:
            near, far = least, most
    count = NONE
    for i in range(row.size):
        inside[count] = np.uint32(i)
        count += np.uint32(wanted[bucket[i]])
    for t in range(count):
        i = inside[t]
        b = bucket[i]
        depths[end[b]] = top - row[i]
        end[b] += ONE
    for j in range(k):
        if found[1, j] - found[0, j] > ONE:
            put_in_order(depths, found[0, j], found[1, j])
    k = NONE
    for j in range(ranks.size):
        while found[2, k] + found[1, k] - found[0, k] < ranks[j]:
            k += ONE
        first, beyond, above = found[0, k], found[1, k], found[2, k]
        low = first + ranks[j] - ONE - above
        high, here = low + ONE, depths[low]
        while low > first and depths[low - ONE] == here:
            low -= ONE
        while high < beyond and depths[high] == here:
            high += ONE
        depth[j], over[j], many[j] = here, above + low - first, above + high - first


@any_order
def part_from(x, top, mean):
    # Sums of ``v - mean`` and of its square over the classes that are not masked.
    s1, s2 = F32(0), F32(0)
    for i in range(x.size):
        # In double precision: ``top - mean`` may be taken first, and must not lose the digits that ``x`` shares with ``top``.
        away = F32(0) if x[i] == -INF else F32((np.float64(top) - np.float64(x[i])) - np.float64(mean))
        s1 += away
        s2 += away * away
    return s1, s2


@strict_loop
def sums_from(x, top, mean):
    # In parts, because long sums in single precision lose digits.
    s1, s2 = 0.0, 0.0
    for begin in range(0, x.size, PART):
        t1, t2 = part_from(x[begin : begin + PART], top, mean)
        s1, s2 = s1 + t1, s2 + t2
    return s1, s2


@numba.njit(fastmath={"nnan", "nsz"}, **HOW)
def below_top(x, top):
    """The largest value below the top (-inf: none), and how many share the top."""
    second, tops = -INF, np.int32(0)
    for i in range(x.size):
        first = x[i] == top
        second = max(second, -INF if first else x[i])
        tops += np.int32(first)
    return second, tops


@strict_loop
def statistics_of_row(row, top, available, out):
    # Margin, mean gap, spread.
    second, tops = below_top(row, top)
    out[0] = F32(0) if tops > 1 or second == -INF else top - second
    mean = F32(sums_from(row, top, F32(0))[0] / available)
    out[1] = mean
    first, square = sums_from(row, top, mean)
    out[2] = F32(np.sqrt(max(square / available - (first / available) ** 2, 0.0)))


@strict_loop
def find_jumps(z, ranks, cut, n_buckets, top, height, depth, over, many, done, statistics):
    # `cut`: whether the last rank is that of the lowest class in use.
    m = z.shape[1]
    bucket, inside, depths = np.empty(m, np.uint16), np.empty(m + 1, np.uint32), np.empty(m, np.float32)
    held, end = np.empty(n_buckets, np.uint32), np.empty(n_buckets, np.uint32)
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
        jumps_of_row(
            z[n], high, height[n], ranks[:few], bucket, held, grouped, wanted, end, inside, depths, found, depth[n],
            over[n], many[n],
        )  # fmt: skip
        if statistics.shape[0]:
            statistics_of_row(z[n], high, available, statistics[n])
        for j in range(few, ranks.size):
            depth[n, j], over[n, j], many[n, j] = INF, NONE, NONE
        if cut and few == ranks.size:
            height[n] = depth[n, few - 1]


@strict_loop
def pass_on(v, begin, t, x, y):
    """``y = x[j]`` where ``v <= t[j]``, four jumps at a time; the last counts."""
    t0, t1, t2, t3 = t[begin], t[begin + 1], t[begin + 2], t[begin + 3]
    x0, x1, x2, x3 = x[begin], x[begin + 1], x[begin + 2], x[begin + 3]
    for i in range(v.size):
        here = y[i]
        here = x0 if v[i] <= t0 else here
        here = x1 if v[i] <= t1 else here
        here = x2 if v[i] <= t2 else here
        y[i] = x3 if v[i] <= t3 else here


@strict_loop
def pass_to_ties(v, begin, t, x, y):
    """``y = x[j]`` where ``v == t[j]``, four groups at a time."""
    t0, t1, t2, t3 = t[begin], t[begin + 1], t[begin + 2], t[begin + 3]
    x0, x1, x2, x3 = x[begin], x[begin + 1], x[begin + 2], x[begin + 3]
    for i in range(v.size):
        here = y[i]
        here = x0 if v[i] == t0 else here
        here = x1 if v[i] == t1 else here
        here = x2 if v[i] == t2 else here
        y[i] = x3 if v[i] == t3 else here


@strict_loop
def group_value(u, j, over, many, ranks, w, b):
    """The mean over the ranks of a group of ties into which jump j is the first to fall."""
    pieces = ranks.size
    highest = u * w[pieces - j] + b[pieces - j]
    total, at = 0.0, over
    while at < many:
        until = min(ranks[j], many) if j < pieces else many
        value = u * w[pieces - j] + b[pieces - j]
        total += np.float64(until - at) * np.float64(value)
        at = until
        j += 1
    return min(max(F32(total / np.float64(many - over)), value), highest)


@strict_loop
def jump_lists(depth, w, t, x):
    """Where the parameter changes: depths and new values, upwards; filled to fours with depths nothing has."""
    k = 0
    for d in range(1, w.size):
        if w[d] != w[d - 1]:
            t[k], x[k] = depth[w.size - 1 - d], w[d]
            k += 1
    while k % 4:
        t[k], x[k] = F32(-1), F32(0)
        k += 1
    return k


@strict_loop
def logits_of_row(row, top, height, ranks, depth, over, many, w, b, t, x, v, w_i, b_i, result):
    """Calibrated logits of all classes, masked ones too; returns the highest."""
    for i in range(row.size):
        v[i] = min(top - row[i], MOST)
        w_i[i] = w[0]
        b_i[i] = b[0]
    for begin in range(0, jump_lists(depth, w, t, x), 4):
        pass_on(v, begin, t, x, w_i)
    for begin in range(0, jump_lists(depth, b, t, x), 4):
        pass_on(v, begin, t, x, b_i)
    for i in range(row.size):
        result[i] = (height - v[i]) * w_i[i] + b_i[i]
    highest = height * w[w.size - 1] + b[b.size - 1]
    k, known = 0, NONE
    for j in range(ranks.size):
        if many[j] <= ranks[j] or many[j] == known:
            continue
        known = many[j]
        t[k], x[k] = depth[j], group_value(height - depth[j], j, over[j], many[j], ranks, w, b)
        if over[j] == NONE:
            highest = x[k]
        k += 1
    while k % 4:
        t[k], x[k] = F32(-1), F32(0)
        k += 1
    for begin in range(0, k, 4):
        pass_to_ties(v, begin, t, x, result)
    return highest


@strict_loop
def exponentials_of_row(row, highest, result):
    for i in range(row.size):
        result[i] = np.rint((result[i] - highest) * UP) * DOWN
    for i in range(row.size):
        result[i] = F32(0) if row[i] == -INF else exp(result[i])


@strict_loop
def softmax_of_row(row, highest, result):
    exponentials_of_row(row, highest, result)
    share = F32(1) / total_of(result)
    for i in range(row.size):
        result[i] *= share


@numba.njit(fastmath={"nnan", "nsz"}, **HOW)
def loses_top(row, top, result):
    """Whether a class before the first on top has come to equal it."""
    at = row.size
    for i in range(row.size):
        at = min(at, i if row[i] == top else row.size)
    before = np.int32(0)
    for i in range(at):
        before += np.int32(result[i] >= result[at])
    return before > 0


@strict_loop
def top_odds(z, top, height, ranks, depth, over, many, done, weights, biases, at, odds):
    # Logarithm of the odds of the class `at` on top, under the softmax of the calibrated logits.
    m = z.shape[1]
    step = 0 if weights.shape[0] == 1 else 1
    v, w_i, b_i = np.empty(m, np.float32), np.empty(m, np.float32), np.empty(m, np.float32)
    t, x = np.empty(ranks.size + 4, np.float32), np.empty(ranks.size + 4, np.float32)
    result = np.empty(m, np.float32)
    for n in range(z.shape[0]):
        odds[n] = F32(0)
        if not done[n]:
            continue
        row, w, b = z[n], weights[n * step], biases[n * step]
        highest = logits_of_row(
            row, top[n], height[n], ranks, depth[n], over[n], many[n], w, b, t, x, v, w_i, b_i, result
        )
        exponentials_of_row(row, highest, result)
        of_top = result[at[n]]
        result[at[n]] = F32(0)
        odds[n] = np.log(of_top) - np.log(total_of(result))


@strict_loop
def calibrate(z, top, height, ranks, depth, over, many, done, weights, biases, normalise, out, lost):
    m = z.shape[1]
    step = 0 if weights.shape[0] == 1 else 1
    v, w_i, b_i = np.empty(m, np.float32), np.empty(m, np.float32), np.empty(m, np.float32)
    t, x = np.empty(ranks.size + 4, np.float32), np.empty(ranks.size + 4, np.float32)
    for n in range(z.shape[0]):
        lost[n] = False
        if not done[n]:
            continue
        row, result, w, b = z[n], out[n], weights[n * step], biases[n * step]
        highest = logits_of_row(
            row, top[n], height[n], ranks, depth[n], over[n], many[n], w, b, t, x, v, w_i, b_i, result
        )
        if normalise:
            softmax_of_row(row, highest, result)
            lost[n] = loses_top(row, top[n], result)
        else:
            for i in range(m):
                result[i] = -INF if row[i] == -INF else result[i]
