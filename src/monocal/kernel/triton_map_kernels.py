"""The kernels of `triton_map`. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl

from .triton_functions import exponential


@triton.jit
def sort(z, stride, m, out, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    x = tl.load(z + row * stride + column, mask=column < m, other=float("inf"))
    tl.store(out + row * m + column, tl.sort(x.to(tl.float32)), mask=column < m)


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
def within(total, base, new, other, other_base, other_new):
    # Sums that start anew, on a new base, where a group begins.
    return (
        tl.where(other_new != 0, other, total + other),
        tl.where(other_new != 0, other_base, base),
        new | other_new,
    )


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def on_grid(x, cells: tl.constexpr):
    # `arrays.ordered_exp`
    return exponential(tl.floor(tl.maximum(x, -1000.0) * cells + 0.5) * (1.0 / cells))


@triton.jit(do_not_specialize=["n_jumps", "n_factors"])
def facts(
    z, stride, m, ranked, ranked_stride, r, jumps, n_jumps, scale_steps, bias_steps, n_factors, ramp_statistic,
    ramp_zero, ramp_width, largest, out, head, downwards: tl.constexpr, tail: tl.constexpr,
    in_order: tl.constexpr,
    statistics: tl.constexpr, places: tl.constexpr, steps: tl.constexpr, pad: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    z += row * stride
    ranked += row * ranked_stride
    infinity = float("inf")
    # Top, and depth of the lowest class that is available: of the ranks in use, where these are not all.
    if in_order:
        at_top = 0 if downwards else r - 1
        z_top = tl.load(ranked + at_top).to(tl.float32)
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
    if statistics > 0:
        second = tl.zeros([block], dtype=tl.float32) + infinity
        total = tl.zeros([block], dtype=tl.float32)
        count = tl.zeros([block], dtype=tl.float32)
        tops = tl.zeros([block], dtype=tl.float32)
        far = tl.zeros([block], dtype=tl.float32)
        for begin in range(0, m, block):
            column = begin + tl.arange(0, block)
            x = tl.load(z + column, mask=column < m, other=-infinity).to(tl.float32)
            valid = x != -infinity
            v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
            far = tl.maximum(far, v)
            total += v
            count += valid.to(tl.float32)
            tops += (valid & (v == 0.0)).to(tl.float32)
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
    for f in range(1, n_factors):
        which = tl.load(ramp_statistic + f - 1).to(tl.int32)
        q = 0.0
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
        zero = tl.load(ramp_zero + f - 1).to(tl.float32)
        psi = tl.minimum(tl.maximum((q - zero) / tl.load(ramp_width + f - 1).to(tl.float32), 0.0), 1.0)
        weight += psi * tl.load(scale_steps + f * width + j, mask=used, other=0.0).to(tl.float32)
        bias += psi * tl.load(bias_steps + f * width + j, mask=used, other=0.0).to(tl.float32)
    w = tl.associative_scan(tl.cumsum(weight, 0), 0, larger)
    b = tl.associative_scan(tl.cumsum(bias, 0), 0, larger)
    # Depths at the jumps; the first piece has none, and every class is above it.
    begins = used & (j > 0)
    start = tl.load(jumps + j - 1, mask=begins, other=1).to(tl.int32)
    t = depth_at(ranked, start, r, begins, z_top, largest, downwards)
    t = tl.where(begins, t, tl.where(used, infinity, -1.0))
    before = depth_at(ranked, start - 1, r, begins, z_top, largest, downwards)
    split = begins & (t == before) & (t < infinity)
    out += row * 5 * width + j
    tl.store(out, t, mask=used)
    tl.store(out + width, w, mask=used)
    tl.store(out + 2 * width, b, mask=used)
    n_split = tl.sum(split.to(tl.int32), axis=0)
    head += row * 4
    tl.store(head, z_top)
    tl.store(head + 1, height)
    tl.store(head + 2, n_split.to(tl.float32))
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
        # The group's value: what lies below it, and the shares of all jumps inside it; at the last of these all are added.
        earlier = tl.load(jumps + j - 2, mask=used & (j > 1), other=0).to(tl.int32)
        previous = depth_at(ranked, earlier, r, used & (j > 1), z_top, largest, downwards)
        new = ((j < 2) | (t != previous)).to(tl.int32)
        tl.debug_barrier()  # what lies below has been stored by other threads
        below = tl.load(out + width - 1, mask=begins, other=0.0)
        added, base, _ = tl.associative_scan((share * weight, below, new), 0, within)
        tl.store(out + 3 * width, tl.minimum(base + added, w), mask=used)
        below = tl.load(out + 2 * width - 1, mask=begins, other=0.0)
        added, base, _ = tl.associative_scan((share * bias, below, new), 0, within)
        tl.store(out + 4 * width, tl.minimum(base + added, b), mask=used)


@triton.jit
def calibrated(v, facts, width, height, n_split, from_top: tl.constexpr):
    # f at depths ``v``: the last jump that a class has passed decides.
    w = v * 0.0 + tl.load(facts + width)
    if from_top:  # one weight for all: measured from the top nothing is lost where the lowest is far away
        return -(w * v)
    b = v * 0.0 + tl.load(facts + 2 * width)
    if n_split > 0.0:
        for j in range(1, width):
            t = tl.load(facts + j)
            w = tl.where(v < t, tl.load(facts + width + j), w)
            b = tl.where(v < t, tl.load(facts + 2 * width + j), b)
            w = tl.where(v == t, tl.load(facts + 3 * width + j), w)
            b = tl.where(v == t, tl.load(facts + 4 * width + j), b)
    else:
        for j in range(1, width):
            t = tl.load(facts + j)
            w = tl.where(v <= t, tl.load(facts + width + j), w)
            b = tl.where(v <= t, tl.load(facts + 2 * width + j), b)
    return w * (height - v) + b


@triton.jit
def result(f, top, total, valid, mode: tl.constexpr, cells: tl.constexpr, like):
    # What is written for a class at ``f``, in the type of ``like``.
    if mode == 0:
        x = on_grid(f - top, cells) * (1.0 / total)
    elif mode == 1:
        x = f
    else:
        x = (f - top) - tl.log(total)
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
def whole(
    z, stride, m, facts, width, head, largest, out, out_stride,
    mode: tl.constexpr, from_top: tl.constexpr, cells: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    facts += row * 5 * width
    z_top = tl.load(head + row * 4)
    height = tl.load(head + row * 4 + 1)
    n_split = tl.load(head + row * 4 + 2)
    column = tl.arange(0, block)
    given = tl.load(z + row * stride + column, mask=column < m, other=-float("inf"))
    x = given.to(tl.float32)
    valid = x != -float("inf")
    v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
    f = calibrated(v, facts, width, height, n_split, from_top)
    at_top = valid & (x == z_top)
    f = tl.where(valid, f, -float("inf"))
    top = tl.max(f, axis=0)
    total = 1.0
    if mode != 1:
        total = tl.sum(tl.where(valid, on_grid(f - top, cells), 0.0), axis=0)
    value = result(f, top, total, valid, mode, cells, given)
    # The first of the largest must be where it was.
    place = tl.min(tl.where(at_top, column, block), axis=0)
    left = tl.max(tl.where(valid & (column < place), f, -float("inf")), axis=0)
    highest = result(top, top, total, True, mode, cells, given)
    beside = result(left, top, total, True, mode, cells, given)
    if (left > -float("inf")) & (beside.to(tl.float32) == highest.to(tl.float32)):
        value = tl.where(at_top, next_up(highest), value)
    tl.store(out + row * out_stride + column, value, mask=column < m)


@triton.jit
def partial(
    z, stride, m, facts, width, head, largest, sums, parts,
    mode: tl.constexpr, from_top: tl.constexpr, cells: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    facts += row * 5 * width
    z_top = tl.load(head + row * 4)
    height = tl.load(head + row * 4 + 1)
    n_split = tl.load(head + row * 4 + 2)
    top = tl.max(
        calibrated(tl.zeros([16], dtype=tl.float32), facts, width, height, n_split, from_top), axis=0
    )
    column = part * block + tl.arange(0, block)
    x = tl.load(z + row * stride + column, mask=column < m, other=-float("inf")).to(tl.float32)
    valid = x != -float("inf")
    v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
    f = tl.where(valid, calibrated(v, facts, width, height, n_split, from_top), -float("inf"))
    total = tl.sum(tl.where(valid, on_grid(f - top, cells), 0.0), axis=0)
    place = tl.min(tl.where(valid & (x == z_top), column, m), axis=0)
    left = tl.max(tl.where(valid & (column < place), f, -float("inf")), axis=0)
    sums += (row * parts + part) * 2
    tl.store(sums, total)
    # Nothing right of the top matters: a part that has it says so by its sign of the sum.
    tl.store(sums + 1, left)
    if place < m:
        tl.store(sums, -total)


@triton.jit
def write(
    z, stride, m, facts, width, head, largest, sums, parts, out, out_stride, mode: tl.constexpr,
    from_top: tl.constexpr, cells: tl.constexpr, block: tl.constexpr, some: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    facts += row * 5 * width
    z_top = tl.load(head + row * 4)
    height = tl.load(head + row * 4 + 1)
    n_split = tl.load(head + row * 4 + 2)
    top = tl.max(
        calibrated(tl.zeros([16], dtype=tl.float32), facts, width, height, n_split, from_top), axis=0
    )
    each = tl.arange(0, some)
    of_parts = tl.load(sums + (row * parts + each) * 2, mask=each < parts, other=0.0)
    total = tl.sum(tl.abs(of_parts), axis=0)
    # Parts up to the first that has the top.
    first = tl.min(tl.where(of_parts < 0, each, some), axis=0)
    lefts = tl.load(sums + (row * parts + each) * 2 + 1, mask=each < parts, other=-float("inf"))
    left = tl.max(tl.where(each <= first, lefts, -float("inf")), axis=0)
    column = part * block + tl.arange(0, block)
    given = tl.load(z + row * stride + column, mask=column < m, other=-float("inf"))
    x = given.to(tl.float32)
    valid = x != -float("inf")
    v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
    f = calibrated(v, facts, width, height, n_split, from_top)
    value = result(f, top, total, valid, mode, cells, given)
    highest = result(top, top, total, True, mode, cells, given)
    beside = result(left, top, total, True, mode, cells, given)
    if (left > -float("inf")) & (beside.to(tl.float32) == highest.to(tl.float32)):
        value = tl.where(valid & (x == z_top), next_up(highest), value)
    tl.store(out + row * out_stride + column, value, mask=column < m)
