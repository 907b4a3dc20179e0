"""Loops of numba that apply a map: the values of a row at the jumps and its statistics, then calibrated numbers.

    v_i = z_top - z_i                                    depths, cut at a million
    t_j = depth at the rank of jump j                    a class lies above the jump where v <= t_j
    psi_k = min(max((q - zero_k) / width_k, 0), 1)       factors, ramps of statistics q of the row
    f  = -max(w_d v + D_d, bound_d)                      d the jumps a class lies above; w_d, D_d as in `core.map`
                                                         a group of ties that a jump falls into: the mean over its ranks
    f' = W f - A 1[not top]                              a second stage, by the odds of the top after ``f``

**Jumps.** Rows that are not too long are sorted by a network and read where the jumps fall (`read_jumps`). Longer ones are
searched (`find_jumps`): depths are counted in buckets by the leading bits of the number, and only what shares a bucket with a
jump is put in order. Jumps come in the order of their ranks from the top: ``ranks[j]`` classes lie at or above jump j, and
``over[j]``, ``many[j]`` classes lie above its value, and at or above it. Where ``many[j] > ranks[j]`` the jump falls among ties.

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

# Indices are unsigned: a signed one would be checked for being negative, which counts from the end.
NONE, ONE = np.uint32(0), np.uint32(1)
INF = F32(np.inf)
# Depths below 2^-10 are one bucket; above, every octave up to a million has as many.
FIRST_BITS, OCTAVES = np.int32((127 - 10) << 23), 30
LARGEST_BITS = np.int32(2**31 - 1)
UP, DOWN = F32(EXP_GRID["float32"]), F32(1.0 / EXP_GRID["float32"])
# Exponentials that add up to no more than this may have lost digits, or all of them.
FAINT = F32(1e-25)
# Sums in any order, of numbers that may be infinite; extremes of numbers that are never NaN.
any_order = numba.njit(fastmath={"reassoc", "contract", "nsz"}, **HOW)
extremes = numba.njit(fastmath={"nnan", "nsz"}, **HOW)


# Where the jumps fall


@extremes
def ends_of(row):
    low, high = INF, -INF
    for i in range(row.size):
        low, high = min(low, row[i]), max(high, row[i])
    return low, high


@strict_loop
def available_in(row):
    """How many are not masked, and the lowest of them."""
    low, count = INF, NONE
    for i in range(row.size):
        if row[i] != -INF:
            low = min(low, row[i])
            count += ONE
    return low, count


@strict_loop
def depths_of(row, top, v):
    """Depths, cut where nothing lies but masked classes."""
    for i in range(row.size):
        v[i] = min(top - row[i], MOST)


@strict_loop
def read_jumps(row, ranks, depth, over, many):
    """Of a row in rising order, up to the first rank at which all is masked."""
    m, top = row.size, row[row.size - 1] + F32(0)
    for j in range(ranks.size):
        first = last = m - np.intp(ranks[j])
        here = top - row[first]
        while first > 0 and top - row[first - 1] == here:
            first -= 1
        while last < m - 1 and top - row[last + 1] == here:
            last += 1
        depth[j], over[j], many[j] = here, np.uint32(m - 1 - last), np.uint32(m - first)


@strict_loop
def find_buckets(v, shift, bucket, held):
    bits = v.view(np.int32)
    held[:] = NONE
    for i in range(bits.size):
        bucket[i] = np.uint16(max(bits[i] - FIRST_BITS, np.int32(0)) >> shift)
    for i in range(bits.size):
        held[bucket[i]] += ONE


@strict_loop
def put_in_order(x, first, beyond):
    # Shell's sort: one value after the other, and where there are many in wide steps before.
    gap = ONE
    while beyond - first > np.uint32(64) and gap * np.uint32(9) < beyond - first:
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
def find_jumps(v, ranks, shift, bucket, held, needed, inside, members, depth, over, many):
    """The same of depths in any order."""
    find_buckets(v, shift, bucket, held)
    needed[:] = np.uint8(0)
    above, listed, j = NONE, NONE, 0
    for b in range(held.size):
        here = held[b]
        if j < ranks.size and above + here >= ranks[j]:
            while j < ranks.size and above + here >= ranks[j]:
                # Where the jump will be found, and how many values lie above all that are listed.
                many[j], over[j] = listed + ranks[j] - ONE - above, above - listed
                j += 1
            needed[b], held[b] = np.uint8(1), listed  # from here on, where the next of the bucket goes
            listed += here
        above += here
    count = NONE
    for i in range(v.size):
        inside[count] = np.uint32(i)
        count += np.uint32(needed[bucket[i]])
    for t in range(count):
        b = bucket[inside[t]]
        members[held[b]] = v[inside[t]]
        held[b] += ONE
    first = NONE
    for b in range(held.size):
        if needed[b]:
            put_in_order(members, first, held[b])
            first = held[b]
    for j in range(ranks.size):
        low = high = many[j]
        here = members[low]
        while low > NONE and members[low - ONE] == here:
            low -= ONE
        while high < count - ONE and members[high + ONE] == here:
            high += ONE
        depth[j], over[j], many[j] = here, over[j] + low, over[j] + high + ONE


# Statistics, weights and drops


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
def statistics_of_row(v, available, out):
    """Margin, mean gap, spread."""
    # Of whole numbers a compiler takes sixteen at a time.
    bits, second, tops = v.view(np.int32), LARGEST_BITS, np.int32(0)
    for i in range(bits.size):
        second = min(second, bits[i] if bits[i] > 0 else LARGEST_BITS)
        tops += np.int32(bits[i] == 0)
    lone = tops == 1 and second < LARGEST_BITS and float_of_bits(second) < MOST
    out[0] = float_of_bits(second) if lone else F32(0)
    mean = F32(sums_from(v, F32(0))[0] / available)
    out[1] = mean
    first, square = sums_from(v, mean)
    out[2] = F32(np.sqrt(max(square / available - (first / available) ** 2, 0.0)))


@strict_loop
def mix(height, psi, steps, w, drop):
    """Weight and drop of each piece from factors (K,)."""
    pieces = w.size
    for kind in range(2):
        out = drop if kind else w
        out[:] = F32(0)
        for k in range(psi.size):
            for d in range(pieces):
                out[d] += psi[k] * steps[kind, k, d]
    above = F32(0)
    for d in range(pieces - 1, -1, -1):
        rise = w[d] * height + drop[d]
        drop[d] = above
        above += rise
    for d in range(1, pieces):
        w[d] += w[d - 1]


# Calibrated logits


@strict_loop
def pass_on(v, t, x, count, ties, y):
    """``y = x[j]`` where ``v <= t[j]`` (with ``ties``: where they are equal), four jumps at a time; the last counts."""
    while count % 4:  # filled up with depths that nothing has
        t[count], x[count] = F32(-1), F32(0)
        count += 1
    for j in range(0, count, 4):
        t0, t1, t2, t3 = t[j], t[j + 1], t[j + 2], t[j + 3]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        if ties:
            for i in range(v.size):
                here = x0 if v[i] == t0 else y[i]
                here = x1 if v[i] == t1 else here
                here = x2 if v[i] == t2 else here
                y[i] = x3 if v[i] == t3 else here
        else:
            for i in range(v.size):
                here = x0 if v[i] <= t0 else y[i]
                here = x1 if v[i] <= t1 else here
                here = x2 if v[i] <= t2 else here
                y[i] = x3 if v[i] <= t3 else here


@strict_loop
def by_class(v, depth, values, t, x, y):
    """The value of the piece of every class, to y; how often it changes."""
    y[:] = values[0]
    count = 0
    for d in range(1, values.size):
        if values[d] != values[d - 1]:
            t[count], x[count] = depth[values.size - 1 - d], values[d]
            count += 1
    pass_on(v, t, x, count, False, y)
    return count


@strict_loop
def bounds_of(depth, w, drop, bound):
    """What the lowest class above each piece has, of the pieces upwards; jumps come in the order of their ranks from the top."""
    pieces = w.size
    bound[pieces - 1] = F32(0)
    for j in range(pieces - 1):
        d = pieces - 1 - j
        # Below masked classes there is nothing.
        there = depth[j] * w[d] + drop[d] if depth[j] < MOST else F32(0)
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
def logits_of_row(v, ranks, depth, over, many, w, drop, bound, t, x, y, result):
    """Calibrated logits of all classes, masked ones too, 0 at the top."""
    by_class(v, depth, drop, t, x, result)
    bounds_of(depth, w, drop, bound)
    jumps = by_class(v, depth, w, t, x, y)
    for i in range(v.size):
        result[i] = v[i] * y[i] + result[i]
    if jumps:
        by_class(v, depth, bound, t, x, y)
        for i in range(v.size):
            result[i] = max(result[i], y[i])
    k, last_many, least = 0, NONE, F32(0)
    for j in range(ranks.size):
        if many[j] <= ranks[j] or many[j] == last_many:
            continue
        last_many = many[j]
        t[k], x[k] = depth[j], group_value(depth[j], j, over[j], many[j], ranks, w, drop, bound)
        if over[j] == NONE:  # a jump splits the classes that share the top: it comes down
            least = x[k]
        k += 1
    pass_on(v, t, x, k, True, result)
    for i in range(v.size):
        result[i] = least - result[i]


# The second stage, and probabilities


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
    x[:] = f
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
def adjusted(v, f, weight, lift, on_grid, result):
    """``weight f - lift``, 0 on top, -inf where masked, on the grid of `arrays.ordered_exp`; whether a lower class is at 0."""
    at_zero, tops = np.int32(0), np.int32(0)
    for i in range(v.size):
        x = f[i] * weight
        x = F32(0) if v[i] == F32(0) else x - lift
        x = np.rint(x * UP) * DOWN if on_grid else x
        result[i] = -INF if v[i] >= MOST else x
        at_zero += np.int32(x == F32(0))
        tops += np.int32(v[i] == F32(0))
    return at_zero > tops


@strict_loop
def calibrate(
    z, ordered, ranks, cut, shift, which, zeros, widths, factors, steps, class_scales, odds_zeros, odds_widths,
    odds_steps, terms, normalise, out, done, lost,
):  # fmt: skip
    # Rows are in order in `ordered`, if there are any. With `cut` the last rank is that of the lowest class in use. Factors
    # (n, K) are as they are, or ramps of statistics. A second stage: where there are terms, one row of them or as many as rows.
    # `lost`: another class has come to equal the top, and `argmax` may name it. Rows that are too deep are not `done`.
    m, pieces, searched = z.shape[1], steps.shape[2], ordered.shape[0] == 0
    term_step, factor_step = np.intp(terms.shape[0] > 1), np.intp(factors.shape[0] > 1)
    buffers = np.empty((4, m), np.float32)
    v, y, f, e = buffers[0], buffers[1], buffers[2], buffers[3]
    size = m if searched else 0
    bucket, members, inside = (
        np.empty(size, np.uint16),
        np.empty(size, np.float32),
        np.empty(size + 1, np.uint32),
    )
    held = np.empty(OCTAVES << (23 - shift), np.uint32)
    needed = np.empty(held.size, np.uint8)
    depth, over, many = (
        np.empty(ranks.size, np.float32),
        np.empty(ranks.size, np.uint32),
        np.empty(ranks.size, np.uint32),
    )
    t, x = np.empty(ranks.size + 4, np.float32), np.empty(ranks.size + 4, np.float32)
    w, drop, bound = np.empty(pieces, np.float32), np.empty(pieces, np.float32), np.empty(pieces, np.float32)
    measured, psi, own = np.empty(3, np.float32), np.ones(steps.shape[1], np.float32), ranks[: pieces - 1]
    for n in range(z.shape[0]):
        lost[n], available = False, np.uint32(m)
        low, top = ends_of(z[n])
        if low == -INF:
            low, available = available_in(z[n])
        top += F32(0)  # a negative zero less a zero is a negative zero, whose bits are not those of 0
        height, result = top - low, out[n]
        done[n] = height < MOST
        if not done[n]:
            continue
        depths_of(z[n], top, v)
        few = ranks.size  # ranks below which there are classes that are not masked
        while few > 0 and ranks[few - 1] > available:
            few -= 1
            depth[few], over[few], many[few] = INF, NONE, NONE
        if searched and few:
            find_jumps(v, ranks[:few], shift, bucket, held, needed, inside, members, depth, over, many)
        elif few:
            read_jumps(ordered[n], ranks[:few], depth, over, many)
        if cut and few == ranks.size:
            height = depth[few - 1]
        if zeros.size:
            statistics_of_row(v, available, measured)
            for k in range(zeros.size):
                psi[k + 1] = min(max((measured[which[k]] - zeros[k]) / widths[k], F32(0)), F32(1))
        else:
            psi[:] = factors[n * factor_step]
        mix(height, psi, steps, w, drop)
        logits_of_row(v, own, depth, over, many, w, drop, bound, t, x, y, f)
        weight, lift = F32(1), F32(0)
        if terms.shape[0]:
            term = terms[n * term_step]
            tops, first = tops_of(v)
            scale = term[0] * (class_scales[first] if tops == 1 and class_scales.size else F32(1))
            odds = odds_of_top(v, f, scale, first, e, result)
            weight, lift = second_stage_of(odds, odds_zeros, odds_widths, odds_steps, term)
            weight, lift = weight * scale, lift if tops == 1 else F32(0)
        if normalise:
            lost[n] = adjusted(v, f, weight, lift, True, e)
            exponentials(v, e, F32(1), result)
            share = F32(1) / total_of(result)
            for i in range(m):
                result[i] *= share
        else:
            adjusted(v, f, weight, lift, False, result)
