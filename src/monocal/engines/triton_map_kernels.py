"""The kernels of `triton_map`, and what they share with those of a fit: exponentials, ramps, and a row sorted in registers.

`facts` finds what depends on a row as a whole, the others look at every class. A row is sorted by a bitonic network: for
k = 1, 2, ..., runs of 2^k numbers are made monotone, up and down by turns, by comparing each number with
the one 2^(k-1), ..., 2, 1 places away. A run that goes down is one of the negative numbers that goes up, so after a change of
signs every comparison is a minimum and a maximum. A thread holds ``each`` neighbours: within it a comparison is two operations
for two numbers. Across threads, the upper of the two holds its number with the other sign, and both take the minimum.

Importing this module needs Triton.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compared_within(x, size: tl.constexpr, distance: tl.constexpr):
    lower, upper = tl.split(tl.permute(tl.reshape(x, [size // (2 * distance), 2, distance]), (0, 2, 1)))
    y = tl.join(tl.minimum(lower, upper), tl.maximum(lower, upper))
    return tl.reshape(tl.permute(y, (0, 2, 1)), [size])


@triton.jit
def compared_across(x, size: tl.constexpr, distance: tl.constexpr):
    bits = tl.reshape(x, [size // (2 * distance), 2, distance]).to(tl.int32, bitcast=True)
    other = (bits ^ tl.xor_sum(bits, 1, keep_dims=True)).to(tl.float32, bitcast=True)
    return tl.minimum(x, -tl.reshape(other, [size]))


@triton.jit
def sign_of(place, bit: tl.constexpr):
    return 1.0 - 2.0 * ((place >> bit) & 1).to(tl.float32)


@triton.jit
def sorted_row(z, m, log: tl.constexpr, each: tl.constexpr):
    # The numbers at ``z`` in rising order, in single precision; infinity follows them.
    size: tl.constexpr = 2**log
    # Neighbours in memory go to different threads: any order will do that is read fast.
    column = tl.arange(0, size // each)[:, None] + tl.arange(0, each)[None, :] * (size // each)
    x = tl.load(z + column, mask=column < m, other=float("inf")).to(tl.float32)
    x = tl.reshape(x, [size])
    place = tl.arange(0, size)
    sign = sign_of(place, log)  # of none
    for k in tl.static_range(1, log + 1):
        turn = sign_of(place, k)
        for j in tl.static_range(k):
            # From the signs of the last comparison to those of this one.
            if 2 ** (k - 1 - j) < each:
                if j == 0 or 2 ** (k - j) >= each:
                    x *= sign * turn
                    sign = turn
                x = compared_within(x, size, 2 ** (k - 1 - j))
            else:
                next_sign = turn * sign_of(place, k - 1 - j)
                x = compared_across(x * (sign * next_sign), size, 2 ** (k - 1 - j))
                sign = next_sign
    return x * sign


@triton.jit
def exponential(x):
    # exp(x) for x <= 0 to two units in the last place: 2^k exp(rest), the power in two steps so that none underflows.
    x = tl.maximum(x, -1000.0)
    k = tl.floor(x * 1.4426950408889634 + 0.5)
    rest = (x - k * 0.693359375) + k * 2.12194440054690583e-4
    half = tl.floor(k * 0.5)
    return tl.exp2(rest * 1.4426950408889634) * tl.exp2(half) * tl.exp2(k - half)


@triton.jit
def ramp(q, zero, width):
    # `calibration.ramps`
    return tl.minimum(tl.maximum((q - zero) / width, 0.0), 1.0)


@triton.jit
def depth_at(ranked, rank, r, mask, z_top, largest, downwards: tl.constexpr):
    # Depth of a rank, infinite where it is masked.
    at = r - 1 - rank if downwards else rank
    z = tl.load(ranked + at, mask=mask, other=0.0).to(tl.float32)
    return tl.where(z == -float("inf"), float("inf"), tl.minimum(z_top - z, largest))


@triton.jit
def lowest_of(z, m, block: tl.constexpr):
    # The smallest logit of a row, masked ones apart.
    low = tl.zeros([block], dtype=tl.float32) + float("inf")
    for begin in range(0, m, block):
        column = begin + tl.arange(0, block)
        x = tl.load(z + column, mask=column < m, other=float("inf")).to(tl.float32)
        low = tl.minimum(low, tl.where(x == -float("inf"), float("inf"), x))
    return tl.min(low, axis=0)


@triton.jit
def within(total, new, other, other_new):
    # Sums that start again where a group begins.
    return tl.where(other_new != 0, other, total + other), new | other_new


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit(do_not_specialize=["n_jumps", "n_factors"])
def facts(
    z, stride, m, ranked, ranked_stride, r, jumps, n_jumps, scale_steps, bias_steps, n_factors, ramp_statistic,
    ramp_zero, ramp_width, class_scales, terms, largest, out, head, downwards: tl.constexpr,
    tail: tl.constexpr, in_order: tl.constexpr, statistics: tl.constexpr, places: tl.constexpr,
    adjusted: tl.constexpr, by_class: tl.constexpr, context: tl.constexpr, steps: tl.constexpr, pad: tl.constexpr,
    block: tl.constexpr, log: tl.constexpr, each: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    z += row * stride
    ranked += row * ranked_stride
    infinity = float("inf")
    if log > 0:  # the row is not sorted yet
        rank = tl.arange(0, 2**log)
        tl.store(ranked + rank, sorted_row(z, m, log, each).to(ranked.dtype.element_ty), mask=rank < m)
        tl.debug_barrier()  # other threads have stored what is read
    # Top, and depth of the lowest class that is available: of the ranks in use, where these are not all.
    if in_order:
        highest = 0 if downwards else r - 1
        z_top = tl.load(ranked + highest).to(tl.float32)
        height = depth_at(ranked, 0, r, True, z_top, largest, downwards)
        if height == infinity:
            height = tl.minimum(z_top - lowest_of(z, m, block), largest)
    else:
        high = tl.zeros([block], dtype=tl.float32) - infinity
        for begin in range(0, m, block):
            column = begin + tl.arange(0, block)
            high = tl.maximum(high, tl.load(z + column, mask=column < m, other=-infinity).to(tl.float32))
        z_top = tl.max(high, axis=0)
        height = tl.minimum(z_top - lowest_of(z, m, block), largest)
    # Statistics, as in `calibration.statistics`.
    margin = 0.0
    mean = 0.0
    spread = 0.0
    entropy = 0.0
    odds = 0.0
    n_tops = 1.0
    if statistics > 0 or adjusted:
        second = tl.zeros([block], dtype=tl.float32) + infinity
        total = tl.zeros([block], dtype=tl.float32)
        count = tl.zeros([block], dtype=tl.float32)
        tops = tl.zeros([block], dtype=tl.float32)
        far = tl.zeros([block], dtype=tl.float32)
        place = tl.zeros([block], dtype=tl.int32) + m
        for begin in range(0, m, block):
            column = begin + tl.arange(0, block)
            x = tl.load(z + column, mask=column < m, other=-infinity).to(tl.float32)
            valid = x != -infinity
            v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
            far = tl.maximum(far, v)
            total += v
            count += valid.to(tl.float32)
            at_top = valid & (x == z_top)
            tops += at_top.to(tl.float32)
            place = tl.where(at_top, tl.minimum(place, column), place)
            second = tl.minimum(second, tl.where(valid & (v > 0.0), v, infinity))
        n_classes = tl.sum(count, axis=0)
        n_tops = tl.sum(tops, axis=0)
        mean = tl.sum(total, axis=0) / n_classes
        margin = tl.where((n_tops > 1.0) | (n_classes < 2.0), 0.0, tl.min(second, axis=0))
        if statistics > 1:
            unit = tl.max(far, axis=0)
            unit = tl.where(unit > 0.0, unit, 1.0)
            square = tl.zeros([block], dtype=tl.float32)
            others = tl.zeros([block], dtype=tl.float32)
            weighted = tl.zeros([block], dtype=tl.float32)
            nearest_sum = tl.zeros([block], dtype=tl.float32)
            for begin in range(0, m, block):
                column = begin + tl.arange(0, block)
                x = tl.load(z + column, mask=column < m, other=-infinity).to(tl.float32)
                valid = x != -infinity
                v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
                away = tl.where(valid, (v - mean) / unit, 0.0)
                square += away * away
                if statistics > 2:
                    lower = valid & (v > 0.0)
                    e = tl.where(lower, exponential(-v), 0.0)
                    others += e
                    weighted += e * v
                    e = exponential(tl.minimum(margin - v, 0.0))
                    nearest_sum += tl.where(lower, e, 0.0)
            spread = unit * tl.sqrt(tl.sum(square, axis=0) / n_classes)
            left = tl.sum(others, axis=0) + (n_tops - 1.0)
            entropy = tl.log(1.0 + left) + tl.sum(weighted, axis=0) / (1.0 + left)
            odds = margin - tl.log(tl.maximum(tl.sum(nearest_sum, axis=0) + (n_tops - 1.0), 1.0))
    # Steps of the weight and the bias: those of all rows, and of every ramp that this one is on.
    width = n_jumps + 1
    j = tl.arange(0, pad)
    used = j < width
    weight = tl.load(scale_steps + j, mask=used, other=0.0).to(tl.float32)
    bias = tl.load(bias_steps + j, mask=used, other=0.0).to(tl.float32)
    for begin in range(1, n_factors, 8):
        f = begin + tl.arange(0, 8)
        of_ramp = f < n_factors
        which = tl.load(ramp_statistic + f - 1, mask=of_ramp, other=0).to(tl.int32)
        q = tl.zeros([8], dtype=tl.float32)
        for s in tl.static_range(len(places)):
            if places[s] == 0:
                q = tl.where(which == s, margin, q)
            elif places[s] == 1:
                q = tl.where(which == s, mean, q)
            elif places[s] == 2:
                q = tl.where(which == s, spread, q)
            elif places[s] == 3:
                q = tl.where(which == s, entropy, q)
            else:
                q = tl.where(which == s, odds, q)
        zero = tl.load(ramp_zero + f - 1, mask=of_ramp, other=0.0).to(tl.float32)
        psi = ramp(q, zero, tl.load(ramp_width + f - 1, mask=of_ramp, other=1.0).to(tl.float32))[:, None]
        own = f[:, None] * width + j[None, :]
        both = of_ramp[:, None] & used[None, :]
        weight += tl.sum(psi * tl.load(scale_steps + own, mask=both, other=0.0).to(tl.float32), axis=0)
        bias += tl.sum(psi * tl.load(bias_steps + own, mask=both, other=0.0).to(tl.float32), axis=0)
    begins = used & (j > 0)
    w = tl.cumsum(weight, 0)
    # A piece drops by all steps above it: those of the next one, and that one's drop.
    out += row * 5 * width + j
    tl.store(out + 2 * width - 1, tl.cumsum(weight * height + bias, 0, reverse=True), mask=begins)
    tl.store(out + 2 * width, tl.zeros([pad], dtype=tl.float32), mask=j == n_jumps)
    tl.debug_barrier()  # other threads have stored what is read
    drop = tl.load(out + 2 * width, mask=used, other=0.0)
    # Depths at the jumps; the first piece has none, and every class is above it.
    start = tl.load(jumps + j - 1, mask=begins, other=1).to(tl.int32)
    t = depth_at(ranked, start, r, begins, z_top, largest, downwards)
    t = tl.where(begins, t, tl.where(used, infinity, -1.0))
    before = depth_at(ranked, start - 1, r, begins, z_top, largest, downwards)
    split = begins & (t == before) & (t < infinity)
    n_split = tl.sum(split.to(tl.int32), axis=0)
    # What a class at the jump has: the bound for all that lie below it.
    there = begins & (t < infinity)
    at_jump = tl.where(there, w * tl.where(there, t, 0.0) + drop, 0.0)
    if n_split > 0:
        # First and last rank of each group: depths fall as ranks rise.
        first = start * 0
        end = start
        last = start
        beyond = start * 0 + r
        for _ in range(steps):
            middle = (first + end) // 2
            inside = depth_at(ranked, middle, r, begins, z_top, largest, downwards) <= t
            first = tl.where((first < end) & ~inside, middle + 1, first)
            end = tl.where(inside & (middle < end), middle, end)
            middle = (last + beyond) // 2
            inside = depth_at(ranked, tl.minimum(middle, r - 1), r, begins, z_top, largest, downwards) >= t
            last = tl.where(inside & (middle < beyond), middle, last)
            beyond = tl.where(inside, beyond, tl.minimum(beyond, middle))
        group = (last - first + 1).to(tl.float32)
        if tail:  # classes below the ranks in use that equal the lowest of them
            equal = tl.zeros([block], dtype=tl.float32)
            for begin in range(0, m, block):
                column = begin + tl.arange(0, block)
                x = tl.load(z + column, mask=column < m, other=-infinity).to(tl.float32)
                same = (x != -infinity) & (tl.minimum(z_top - x, largest) == height)
                equal += same.to(tl.float32)
            group = tl.where(t == height, tl.sum(equal, axis=0), group)
        share = tl.where(split, (last - start + 1).to(tl.float32) / group, 1.0)
        # A group lacks the rest of all jumps inside it; at the last of these all are added.
        earlier = tl.load(jumps + j - 2, mask=used & (j > 1), other=0).to(tl.int32)
        previous = depth_at(ranked, earlier, r, used & (j > 1), z_top, largest, downwards)
        new = ((j < 2) | (t != previous)).to(tl.int32)
        lacking = tl.where(split, (1.0 - share) * (weight * (height - t) + bias), 0.0)
        lack, _ = tl.associative_scan((lacking, new), 0, within)
        at_jump = tl.where(there, at_jump + lack, 0.0)
    bound = tl.associative_scan(at_jump, 0, larger, reverse=True)
    tl.store(out, t, mask=used)
    tl.store(out + width, w, mask=used)
    tl.store(out + 3 * width - 1, bound, mask=begins)
    tl.store(out + 3 * width, tl.zeros([pad], dtype=tl.float32), mask=j == n_jumps)
    tl.store(out + 4 * width, bound, mask=used)
    head += row * 4
    tl.store(head, z_top)
    tl.store(head + 1, n_split.to(tl.float32))
    if adjusted:
        scale = 1.0
        if by_class:
            first_top = tl.min(place, axis=0)
            scale = tl.load(class_scales + tl.minimum(first_top, m - 1)).to(tl.float32)
            scale = tl.where(n_tops > 1.0, 1.0, scale)
        if context:
            scale *= tl.load(terms + row * 3)
        tl.store(head + 2, scale)
        tl.store(head + 3, n_tops)


@triton.jit
def on_grid(x, cells: tl.constexpr):
    # `arrays.ordered_exp`
    return exponential(tl.floor(tl.maximum(x, -1000.0) * cells + 0.5) * (1.0 / cells))


@triton.jit
def below_top(v, facts, width, n_split, steps: tl.constexpr):
    # How far classes at depths ``v`` lie below the top: the last jump that each has passed decides.
    low = v.to(tl.int32) * 0
    left = width
    for _ in tl.static_range(steps):
        half = left // 2
        low = tl.where(v <= tl.load(facts + (low + half)), low + half, low)
        left -= half
    g = tl.maximum(
        tl.load(facts + width + low) * v + tl.load(facts + 2 * width + low), tl.load(facts + 3 * width + low)
    )
    if n_split > 0.0:
        g = tl.where(v == tl.load(facts + low), tl.load(facts + 4 * width + low), g)
    return g


@triton.jit
def seen(z, m, column, facts, width, head, largest, steps: tl.constexpr):
    # Classes in these columns: as given, whether available, whether on top, how far below it.
    n_split = tl.load(head + 1)
    raw = tl.load(z + column, mask=column < m, other=-float("inf"))
    x = raw.to(tl.float32)
    valid = x != -float("inf")
    z_top = tl.load(head)
    v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
    g = below_top(v, facts, width, n_split, steps)
    if n_split > 0.0:  # where a jump splits the classes that share the top, the top has come down
        g -= tl.max(below_top(tl.zeros([16], dtype=tl.float32), facts, width, n_split, steps), axis=0)
    return raw, valid, valid & (x == z_top), g


@triton.jit
def others_of(g, lower, head):
    # Depth of the second class after the scale of its groups, infinite where there is none; and the sum of all classes below
    # the top in its units, or in those of the top where several share that.
    scale = tl.load(head + 2)
    nearest = tl.min(tl.where(lower, g, float("inf")), axis=0)
    base = tl.where((tl.load(head + 3) > 1.0) | (nearest == float("inf")), 0.0, nearest)
    e = tl.where(lower, tl.exp(tl.minimum((base - g) * scale, 0.0)), 0.0)
    return nearest * scale, tl.sum(e, axis=0)


@triton.jit
def others_of_parts(sums, parts, head, part_pad: tl.constexpr):
    # The same of a row from those of its parts.
    each = tl.arange(0, part_pad)
    seconds = tl.load(sums + each * 2, mask=each < parts, other=float("inf"))
    others = tl.load(sums + each * 2 + 1, mask=each < parts, other=0.0)
    second = tl.min(seconds, axis=0)
    away = tl.where(seconds == float("inf"), 0.0, seconds - tl.where(second == float("inf"), 0.0, second))
    away = tl.where(tl.load(head + 3) > 1.0, 0.0, away)
    return second, tl.sum(others * exponential(-away), axis=0)


@triton.jit
def weight_and_lift(
    second, others, head, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms, context: tl.constexpr,
    ramp_pad: tl.constexpr,
):  # fmt: skip
    # ``W`` and ``A`` of `calibration.adjustment`.
    n_tops = tl.load(head + 3)
    alone = second == float("inf")
    others = tl.where(alone & (n_tops == 1.0), 1.0, others + (n_tops - 1.0))
    log_odds = tl.where(alone | (n_tops > 1.0), 0.0, second) - tl.log(others)
    if context:
        weight = tl.load(terms + 1)
        lift = tl.load(terms + 2)
    else:
        weight = tl.load(ramp_steps).to(tl.float32)
        lift = tl.load(ramp_steps + n_ramps + 1).to(tl.float32)
    k = tl.arange(0, ramp_pad)
    # Of ramps of the context there are terms.
    used = (k < n_ramps) & (tl.load(ramp_statistic + k, mask=k < n_ramps, other=1) == 0)
    zero = tl.load(ramp_zero + k, mask=used, other=0.0).to(tl.float32)
    psi = ramp(log_odds, zero, tl.load(ramp_width + k, mask=used, other=1.0).to(tl.float32))
    weight += tl.sum(psi * tl.load(ramp_steps + 1 + k, mask=used, other=0.0).to(tl.float32), axis=0)
    lift += tl.sum(psi * tl.load(ramp_steps + n_ramps + 2 + k, mask=used, other=0.0).to(tl.float32), axis=0)
    return weight * tl.load(head + 2), tl.where(n_tops > 1.0, 0.0, lift)


@triton.jit
def result(g, total, valid, mode: tl.constexpr, cells: tl.constexpr, like):
    # What is written for a class at ``g`` below the top, in the type of ``like``.
    if mode == 0:
        x = on_grid(-g, cells) * (1.0 / total)
    elif mode == 1:
        x = 0.0 - g
    else:
        x = -g - tl.log(total)
    if like.dtype == tl.float16:
        x = tl.minimum(tl.maximum(x, -65472.0), 65472.0)
    if mode == 0:
        x = tl.where(valid, x, 0.0)
    else:
        x = tl.where(valid, x, -float("inf"))
    return x.to(like.dtype)


@triton.jit
def next_up(x):
    # The next larger number of the same type.
    if x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
    else:
        bits = x.to(tl.int16, bitcast=True)
    wide = x.to(tl.float32)
    up = tl.where(wide > 0, bits + 1, tl.where(wide == 0, bits * 0 + 1, bits - 1)).to(bits.dtype)
    return up.to(x.dtype, bitcast=True)


@triton.jit
def as_high(g, total, mode: tl.constexpr, cells: tl.constexpr, like):
    # Whether rounding makes a class at ``g`` below the top equal to it.
    nearest_sum = result(g, total, True, mode, cells, like)
    return nearest_sum.to(tl.float32) == result(0.0 * total, total, True, mode, cells, like).to(tl.float32)


@triton.jit
def results(g, total, valid, at_top, left, mode: tl.constexpr, cells: tl.constexpr, like):
    # What is written for all: the first of the largest must be where it was, so the top rises by one unit where a class at its
    # left, the nearest of them at ``left``, would equal it.
    value = result(g, total, valid, mode, cells, like)
    if (left < float("inf")) & as_high(left, total, mode, cells, like):
        value = tl.where(at_top, next_up(result(0.0 * total, total, True, mode, cells, like)), value)
    return value


@triton.jit(do_not_specialize=["n_ramps"])
def whole(
    z, stride, m, facts, width, head, largest, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms,
    out, out_stride, mode: tl.constexpr, adjusted: tl.constexpr, context: tl.constexpr, ramp_pad: tl.constexpr,
    cells: tl.constexpr, steps: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    head += row * 4
    raw, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    lower = valid & ~at_top
    if adjusted:
        second, others = others_of(g, lower, head)
        weight, lift = weight_and_lift(
            second, others, head, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms + row * 3, context, ramp_pad
        )  # fmt: skip
        g = tl.where(at_top, 0.0, weight * g + lift)
    total = 1.0
    if mode != 1:
        total = tl.sum(tl.where(valid, on_grid(-g, cells), 0.0), axis=0)
    nearest = tl.min(tl.where(lower, g, float("inf")), axis=0)
    left = float("inf")
    if as_high(nearest, total, mode, cells, raw):  # which is rare: is one of them at its left?
        place = tl.min(tl.where(at_top, column, block), axis=0)
        left = tl.min(tl.where(valid & (column < place), g, float("inf")), axis=0)
    value = results(g, total, valid, at_top, left, mode, cells, raw)
    tl.store(out + row * out_stride + column, value, mask=column < m)


@triton.jit
def odds(z, stride, m, facts, width, head, largest, sums, parts, steps: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    column = part * block + tl.arange(0, block)
    head += row * 4
    _, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    second, others = others_of(g, valid & ~at_top, head)
    tl.store(sums + (row * parts + part) * 2, second)
    tl.store(sums + (row * parts + part) * 2 + 1, others)


@triton.jit(do_not_specialize=["n_ramps"])
def partial(
    z, stride, m, facts, width, head, largest, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms,
    odds_sums, sums, parts, adjusted: tl.constexpr, context: tl.constexpr, ramp_pad: tl.constexpr, cells: tl.constexpr,
    steps: tl.constexpr, part_pad: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    column = part * block + tl.arange(0, block)
    head += row * 4
    _, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    if adjusted:
        second, others = others_of_parts(odds_sums + row * parts * 2, parts, head, part_pad)
        weight, lift = weight_and_lift(
            second, others, head, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms + row * 3, context, ramp_pad
        )  # fmt: skip
        g = tl.where(at_top, 0.0, weight * g + lift)
    total = tl.sum(tl.where(valid, on_grid(-g, cells), 0.0), axis=0)
    place = tl.min(tl.where(at_top, column, m), axis=0)
    sums += (row * parts + part) * 2
    # Nothing right of the top matters: a part that has it says so by the sign of its sum.
    tl.store(sums, tl.where(place < m, -total, total))
    tl.store(sums + 1, tl.min(tl.where(valid & (column < place), g, float("inf")), axis=0))


@triton.jit(do_not_specialize=["n_ramps"])
def write(
    z, stride, m, facts, width, head, largest, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms,
    odds_sums, sums, parts, out, out_stride, mode: tl.constexpr, adjusted: tl.constexpr, context: tl.constexpr,
    ramp_pad: tl.constexpr, cells: tl.constexpr, steps: tl.constexpr, part_pad: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    each = tl.arange(0, part_pad)
    of_parts = sums + (row * parts + each) * 2
    totals = tl.load(of_parts, mask=each < parts, other=0.0)
    total = tl.sum(tl.abs(totals), axis=0)
    # Parts up to the first that has the top.
    first = tl.min(tl.where(totals < 0, each, part_pad), axis=0)
    lefts = tl.load(of_parts + 1, mask=each < parts, other=float("inf"))
    left = tl.min(tl.where(each <= first, lefts, float("inf")), axis=0)
    column = part * block + tl.arange(0, block)
    head += row * 4
    raw, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    if adjusted:
        second, others = others_of_parts(odds_sums + row * parts * 2, parts, head, part_pad)
        weight, lift = weight_and_lift(
            second, others, head, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms + row * 3, context, ramp_pad
        )  # fmt: skip
        g = tl.where(at_top, 0.0, weight * g + lift)
    value = results(g, total, valid, at_top, left, mode, cells, raw)
    tl.store(out + row * out_stride + column, value, mask=column < m)
