"""The kernels of `triton_map` that look at every class. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl

from .triton.sort_kernels import exponential, ramp


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
    given = tl.load(z + column, mask=column < m, other=-float("inf"))
    x = given.to(tl.float32)
    valid = x != -float("inf")
    z_top = tl.load(head)
    v = tl.where(valid, tl.minimum(z_top - x, largest), 0.0)
    g = below_top(v, facts, width, n_split, steps)
    if n_split > 0.0:  # where a jump splits the classes that share the top, the top has come down
        g -= tl.max(below_top(tl.zeros([16], dtype=tl.float32), facts, width, n_split, steps), axis=0)
    return given, valid, valid & (x == z_top), g


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
def others_of_parts(sums, parts, head, some: tl.constexpr):
    # The same of a row from those of its parts.
    each = tl.arange(0, some)
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
    beside = result(g, total, True, mode, cells, like)
    return beside.to(tl.float32) == result(0.0 * total, total, True, mode, cells, like).to(tl.float32)


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
    given, valid, at_top, g = seen(
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
    if as_high(nearest, total, mode, cells, given):  # which is rare: is one of them at its left?
        place = tl.min(tl.where(at_top, column, block), axis=0)
        left = tl.min(tl.where(valid & (column < place), g, float("inf")), axis=0)
    value = results(g, total, valid, at_top, left, mode, cells, given)
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
    steps: tl.constexpr, some: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    column = part * block + tl.arange(0, block)
    head += row * 4
    _, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    if adjusted:
        second, others = others_of_parts(odds_sums + row * parts * 2, parts, head, some)
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
    ramp_pad: tl.constexpr, cells: tl.constexpr, steps: tl.constexpr, some: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    each = tl.arange(0, some)
    of_parts = sums + (row * parts + each) * 2
    totals = tl.load(of_parts, mask=each < parts, other=0.0)
    total = tl.sum(tl.abs(totals), axis=0)
    # Parts up to the first that has the top.
    first = tl.min(tl.where(totals < 0, each, some), axis=0)
    lefts = tl.load(of_parts + 1, mask=each < parts, other=float("inf"))
    left = tl.min(tl.where(each <= first, lefts, float("inf")), axis=0)
    column = part * block + tl.arange(0, block)
    head += row * 4
    given, valid, at_top, g = seen(
        z + row * stride, m, column, facts + row * 5 * width, width, head, largest, steps
    )
    if adjusted:
        second, others = others_of_parts(odds_sums + row * parts * 2, parts, head, some)
        weight, lift = weight_and_lift(
            second, others, head, ramp_statistic, ramp_zero, ramp_width, ramp_steps, n_ramps, terms + row * 3, context, ramp_pad
        )  # fmt: skip
        g = tl.where(at_top, 0.0, weight * g + lift)
    value = results(g, total, valid, at_top, left, mode, cells, given)
    tl.store(out + row * out_stride + column, value, mask=column < m)
