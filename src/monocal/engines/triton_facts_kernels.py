"""The first kernels of `triton_map`: what depends on a row as a whole. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl

from .triton.sort_kernels import exponential, ramp, sorted_row


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
    # Sums that start anew where a group begins.
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
    if log > 0:  # nobody has sorted the row yet
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
            beside = tl.zeros([block], dtype=tl.float32)
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
                    beside += tl.where(lower, e, 0.0)
            spread = unit * tl.sqrt(tl.sum(square, axis=0) / n_classes)
            left = tl.sum(others, axis=0) + (n_tops - 1.0)
            entropy = tl.log(1.0 + left) + tl.sum(weighted, axis=0) / (1.0 + left)
            odds = margin - tl.log(tl.maximum(tl.sum(beside, axis=0) + (n_tops - 1.0), 1.0))
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
