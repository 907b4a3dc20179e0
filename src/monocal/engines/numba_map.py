"""Loops of numba that apply a map: the values of a row at the jumps and its statistics, then calibrated numbers.

    v_i = z_top - z_i                                    depths, cut at a million
    t_j = depth at the rank of jump j                    a class lies above the jump where v <= t_j
    psi_k = min(max((q - zero_k) / width_k, 0), 1)       factors, ramps of statistics q of the row
    f  = -max(w_d v + D_d, bound_d)                      d the jumps a class lies above; w_d, D_d as in `core.map`
                                                         a group of ties that a jump falls into: the mean over its ranks
    f' = W f - A 1[not top]                              a second stage, by the odds of the top after ``f``

**Jumps.** Rows that are not too long are sorted by a network, which is faster than any search, and read where the jumps fall
(`read_jumps`). Longer ones are searched (`find_jumps`): depths are dealt into buckets, and only what shares a bucket with a jump
is put in order. A bucket into which many values crowd (a few very low logits make all others crowd) is dealt out again, alone.
Jumps come in the order of their ranks from the top: ``ranks[j]`` classes lie at or above jump j, and ``over[j]``, ``many[j]``
classes lie above its value, and at or above it. Where ``many[j] > ranks[j]`` the jump falls among ties.

**The bound** is what the lowest class above the piece has: where the weight changes, rounding must not let a class cross the
jump. A row stays in the cache from its depths to its probabilities. A loop is given every array once: where two of its arrays are
one, it cannot take several numbers at a time.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment, untyped-decorator, attr-defined"

from __future__ import annotations

import numba
import numpy as np

from ..arrays import EXP_GRID
from .numba_loops import F32, HOW, MOST, PART, exp, float_of_bits, loop, strict_loop, total_of

# Rows that differ by less are one bucket: there is nothing to divide by.
LEAST = F32(1e-30)
# Values in one bucket that are compared each with each; that are put in order; more are dealt out again, at most so often.
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

    Each is compared with each: in the end faster than to put them in order, which takes branches that cannot be predicted.
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
    v, height, ranks, bucket, held, grouped, needed, end, inside, depths, spans, depth, over, many
):
    # `found`: for each bucket wanted where it begins and ends in `depths`, how many values lie above it, and its number.
    last = F32(held.size - 2)
    near, far = F32(0), height
    if ranks.size == 0:
        return
    for zoom in range(ZOOMS):
        find_buckets(v, near, last / (far - near) if far - near > LEAST else F32(0), last, bucket)
        count_buckets(bucket, held, grouped)
        needed[:] = np.uint8(0)
        above_group, group, listed, k, crowd = NONE, NONE, NONE, NONE, NONE
        for j in range(ranks.size):
            while above_group + grouped[group] < ranks[j]:
                above_group += grouped[group]
                group += ONE
            above, b, up_to = above_group, group * GROUP, above_group
            for i in range(GROUP):  # without branches, which could not be predicted
                up_to += held[group * GROUP + i]
                before = up_to < ranks[j]
                above = up_to if before else above
                b += np.uint32(before)
            if not needed[b]:
                needed[b], end[b] = np.uint8(1), listed
                spans[0, k], spans[1, k], spans[2, k] = listed, listed + held[b], above
                listed += held[b]
                k += ONE
                if held[b] > held[crowd] or not needed[crowd]:
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
        count += np.uint32(needed[bucket[i]])
    for t in range(count):
        i = inside[t]
        b = bucket[i]
        depths[end[b]] = v[i]
        end[b] += ONE
    for j in range(k):
        if spans[1, j] - spans[0, j] > FEW:
            put_in_order(depths, spans[0, j], spans[1, j])
    k = NONE
    for j in range(ranks.size):
        while spans[2, k] + spans[1, k] - spans[0, k] < ranks[j]:
            k += ONE
        first, beyond, above = spans[0, k], spans[1, k], spans[2, k]
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
    needed, grouped = np.empty(n_buckets, np.uint8), np.empty(n_buckets // GROUP, np.uint32)
    spans = np.empty((3, ranks.size), np.uint32)
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
            v, height[n], ranks[:few], bucket, held, grouped, needed, end, inside, depths, spans, depth[n], over[n], many[n]
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


UP, DOWN = F32(EXP_GRID["float32"]), F32(1.0 / EXP_GRID["float32"])
# Exponentials that add up to no more than this may have lost digits, or all of them.
FAINT = F32(1e-25)


@strict_loop
def mix(height, statistics, which, zeros, widths, factors, steps, out):
    """Weights and drops (2, n, D) of rows, from factors (n, K), or from statistics (n, S) where there are no factors."""
    pieces = steps.shape[2]
    psi = np.ones(steps.shape[1], np.float32)
    for n in range(out.shape[1]):
        for k in range(zeros.size):
            risen = (statistics[n, which[k]] - zeros[k]) / widths[k]
            psi[k + 1] = min(max(risen, F32(0)), F32(1))
        if factors.shape[0]:
            psi[:] = factors[n]
        for kind in range(2):
            row = out[kind, n]
            row[:] = F32(0)
            for k in range(psi.size):
                for d in range(pieces):
                    row[d] += psi[k] * steps[kind, k, d]
        w, drop = out[0, n], out[1, n]
        above = F32(0)
        for d in range(pieces - 1, -1, -1):
            rise = w[d] * height[n] + drop[d]
            drop[d] = above
            above += rise
        for d in range(1, pieces):
            w[d] += w[d - 1]


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
def bounds_of(depth, w, drop, bound):
    """What the lowest class above each piece has, of the pieces upwards; jumps come in the order of their ranks from the top."""
    pieces = w.size
    bound[pieces - 1] = F32(0)
    for j in range(pieces - 1):
        d = pieces - 1 - j
        there = (
            depth[j] * w[d] + drop[d] if depth[j] < MOST else F32(0)
        )  # below masked classes there is nothing
        bound[d - 1] = max(bound[d], there)


@strict_loop
def group_value(v, j, over, many, ranks, w, drop, bound):
    """The mean over the ranks of a group of ties into which jump j is the first to fall."""
    pieces = w.size
    least = max(v * w[pieces - 1 - j] + drop[pieces - 1 - j], bound[pieces - 1 - j])
    total, at, value = 0.0, over, least
    while at < many:
        d = pieces - 1 - j
        until = min(ranks[j], many) if d > 0 else many
        value = max(v * w[d] + drop[d], bound[d])
        total += np.float64(until - at) * np.float64(value)
        at = until
        j += 1
    return min(max(F32(total / np.float64(many - over)), least), value)


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
def logits_of_row(v, ranks, depth, over, many, w, drop, bound, t, x, y, result):
    """Calibrated logits of all classes, masked ones too, 0 at the top."""
    result[:] = drop[0]
    for begin in range(0, jump_lists(depth, drop, t, x), 4):
        pass_on(v, begin, t, x, result)
    bounds_of(depth, w, drop, bound)
    jumps = jump_lists(depth, w, t, x)
    if jumps:
        y[:] = w[0]
        for begin in range(0, jumps, 4):
            pass_on(v, begin, t, x, y)
        for i in range(v.size):
            result[i] = v[i] * y[i] + result[i]
        y[:] = bound[0]
        for begin in range(0, jump_lists(depth, bound, t, x), 4):
            pass_on(v, begin, t, x, y)
        for i in range(v.size):
            result[i] = max(result[i], y[i])
    else:
        only = w[0]
        for i in range(v.size):
            result[i] = v[i] * only + result[i]
    k, last_many, least = 0, NONE, F32(0)
    for j in range(ranks.size):
        if many[j] <= ranks[j] or many[j] == last_many:
            continue
        last_many = many[j]
        t[k], x[k] = depth[j], group_value(depth[j], j, over[j], many[j], ranks, w, drop, bound)
        if over[j] == NONE:  # a jump splits the classes that share the top: it comes down
            least = x[k]
        k += 1
    while k % 4:
        t[k], x[k] = F32(-1), F32(0)
        k += 1
    for begin in range(0, k, 4):
        pass_to_ties(v, begin, t, x, result)
    for i in range(v.size):
        result[i] = least - result[i]


@strict_loop
def tops_of(v):
    """How many classes are on top, and the first of them."""
    tops, first = np.int32(0), np.int32(v.size)
    for i in range(v.size):
        on_top = v[i] == F32(0)
        tops += np.int32(on_top)
        first = min(first, np.int32(i) if on_top else np.int32(v.size))
    return tops, first


@loop
def exponentials(v, x, scale, result):
    # Masked classes have none. Products may be fused with sums here: what the order rests on has been rounded before.
    for i in range(v.size):
        result[i] = F32(0) if v[i] >= MOST else exp(x[i] * scale)


@strict_loop
def odds_of_top(v, f, scale, first, x, e):
    """Logarithm of the odds of the class ``first``, which is on top, under the softmax of ``scale f``; 0 where it is alone."""
    for i in range(v.size):
        x[i] = f[i]
    exponentials(v, x, scale, e)
    e[first] = F32(0)
    others = total_of(e)
    if others > FAINT:
        return -np.log(others)
    # Nothing may be left of them: measure from the second class.
    second = -INF
    for i in range(v.size):
        if i != first and v[i] < MOST:
            second = max(second, x[i])
    if second == -INF:
        return F32(0)
    x[first] = second
    for i in range(v.size):
        x[i] -= second
    exponentials(v, x, scale, e)
    e[first] = F32(0)
    return -second * scale - np.log(max(total_of(e), F32(1)))


@strict_loop
def second_stage_of(odds, zeros, widths, steps, term):
    """Weight and lift of a row: what its context gives, and ramps of the odds."""
    weight, lift = term[1], term[2]
    for k in range(zeros.size):
        psi = min(max((odds - zeros[k]) / widths[k], F32(0)), F32(1))
        weight += psi * steps[0, k]
        lift += psi * steps[1, k]
    return weight, lift


@strict_loop
def to_grid(v, f, weight, lift, result):
    """``weight f - lift``, 0 on top, on the grid of `arrays.ordered_exp`; how many are at 0, and how many are on top."""
    at_zero, tops = np.int32(0), np.int32(0)
    for i in range(v.size):
        x = f[i] * weight
        x = F32(0) if v[i] == F32(0) else x - lift
        x = np.rint(x * UP) * DOWN
        result[i] = x
        at_zero += np.int32(x == F32(0))
        tops += np.int32(v[i] == F32(0))
    return at_zero, tops


@strict_loop
def scaled(v, f, weight, lift, result):
    for i in range(v.size):
        x = f[i] * weight
        x = F32(0) if v[i] == F32(0) else x - lift
        result[i] = -INF if v[i] >= MOST else x


@strict_loop
def calibrate(
    z, top, ranks, depth, over, many, done, weights, drops, class_scales, zeros, widths, steps, terms, normalise,
    out, lost,
):  # fmt: skip
    # A second stage: where there are terms, one row of them or as many as rows.
    m = z.shape[1]
    step, drop_step, term_step = (
        np.intp(weights.shape[0] > 1),
        np.intp(drops.shape[0] > 1),
        np.intp(terms.shape[0] > 1),
    )
    v, y, f, e = (
        np.empty(m, np.float32),
        np.empty(m, np.float32),
        np.empty(m, np.float32),
        np.empty(m, np.float32),
    )
    t, x = np.empty(ranks.size + 4, np.float32), np.empty(ranks.size + 4, np.float32)
    bound = np.empty(weights.shape[1], np.float32)
    for n in range(z.shape[0]):
        lost[n] = False
        if not done[n]:
            continue
        result, w, drop = out[n], weights[n * step], drops[n * drop_step]
        depths_of(z[n], top[n], v)
        logits_of_row(v, ranks, depth[n], over[n], many[n], w, drop, bound, t, x, y, f)
        weight, lift = F32(1), F32(0)
        if terms.shape[0]:
            term = terms[n * term_step]
            tops, first = tops_of(v)
            scale = term[0] * (class_scales[first] if tops == 1 and class_scales.size else F32(1))
            weight, lift = second_stage_of(
                odds_of_top(v, f, scale, first, e, result), zeros, widths, steps, term
            )
            weight, lift = weight * scale, lift if tops == 1 else F32(0)
        if normalise:
            at_zero, tops = to_grid(v, f, weight, lift, e)
            exponentials(v, e, F32(1), result)
            share = F32(1) / total_of(result)
            for i in range(m):
                result[i] *= share
            # Another class has come to equal the top: `argmax` may name it.
            lost[n] = at_zero > tops
        else:
            scaled(v, f, weight, lift, result)
