"""The kernels of `once`: rows are sorted, and moments, ties and information are summed, once in a fit."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl

from .sort_kernels import exponential, sorted_row


@triton.jit(do_not_specialize=["n", "rows"])
def moments(v, n, r, rows, weight, height, by_row, by_rank, rows_too: tl.constexpr, block: tl.constexpr):
    # u and u^2: at each rank times the weight, added up over rows; of each row, added up over the ranks below the top.
    part = tl.program_id(0).to(tl.int64)
    rank = tl.program_id(1) * block + tl.arange(0, block)
    used = rank < r
    first = tl.zeros([block], dtype=tl.float32)
    second = tl.zeros([block], dtype=tl.float32)
    for row in range(part * rows, tl.minimum(part * rows + rows, n)):
        x = tl.load(v + row * r + rank, mask=used, other=0.0)
        u = tl.where(used, tl.maximum(tl.load(height + row) - x, 0.0), 0.0)
        w = tl.load(weight + row)
        first += w * u
        second += w * u * u
        if rows_too:
            below = tl.where(rank < r - 1, u, 0.0)
            to = by_row + tl.program_id(1) * 2 * n + row
            tl.store(to, tl.sum(below, axis=0).to(tl.float64))
            tl.store(to + n, tl.sum(below * below, axis=0).to(tl.float64))
    by_rank += part * 2 * r + rank
    tl.store(by_rank, first.to(tl.float64), mask=used)
    tl.store(by_rank + r, second.to(tl.float64), mask=used)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def longest_ties(v, r, height, out, block: tl.constexpr):
    # Ranks of the largest group of equal depths in a row, masked classes apart.
    row = tl.program_id(0).to(tl.int64)
    u = tl.load(height + row)
    longest = 1
    since = 0
    for begin in range(0, r, block):
        rank = begin + tl.arange(0, block)
        x = tl.load(v + row * r + rank, mask=rank < r, other=-1.0)
        below = tl.load(v + row * r + rank - 1, mask=(rank > 0) & (rank < r), other=-2.0)
        begins = tl.where(x != below, rank, since)
        begins = tl.associative_scan(begins, 0, larger)
        valid = (rank < r) & (x <= u)
        longest = tl.maximum(longest, tl.max(tl.where(valid, rank - begins + 1, 1), axis=0))
        since = tl.max(begins, axis=0)
    tl.store(out + row, longest)


@triton.jit(do_not_specialize=["n", "rows"])
def information(
    v, n, r, rows, weight, height, leading, lesser, rest_depth, rest_count, biases, by_row, by_rank,
    factors: tl.constexpr, rest: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    # See `once.information`; the scale is given in two parts.
    part = tl.program_id(0).to(tl.int64)
    rank = tl.arange(0, block)
    used = rank < r
    depth = tl.zeros([block], dtype=tl.float32)
    others = tl.zeros([block], dtype=tl.float32)
    bias = tl.zeros([block], dtype=tl.float32)
    for row in range(part * rows, tl.minimum(part * rows + rows, n)):
        x = tl.load(v + row * r + rank, mask=used, other=0.0)
        u = tl.load(height + row)
        valid = used & (x <= u)
        x = tl.where(valid, x, 0.0)
        x64 = x.to(tl.float64)
        p = tl.where(valid, exponential(-(leading * x64 + lesser * x64).to(tl.float32)), 0.0)
        # The rest lies below all starts, and at the lowest it drops by its own depth.
        t0 = u * 0.0
        t1 = t0
        t2 = t0
        if rest:
            away = tl.load(rest_depth + row).to(tl.float64)
            many = tl.load(rest_count + row).to(tl.float64) * tl.exp(-(leading * away + lesser * away))
            t0 = many.to(tl.float32)
            t1 = (many * away).to(tl.float32)
            t2 = (many * away * away).to(tl.float32)
        total = tl.sum(p, axis=0) + t0
        p = p / total
        below = tl.cumsum(p, 0) - p + t0 / total
        pv = p * x
        lowest = rank == 0
        pvv = pv * x + tl.where(lowest, t2 / total, 0.0)
        upwards = tl.cumsum(pv, 0, reverse=True)
        first = tl.where(lowest, upwards + t1 / total, upwards + u * below)
        second = tl.where(lowest, 0.0, u * u * below) - first * first
        spread = tl.where(used, below - below * below, 0.0)
        w = tl.load(weight + row)
        depth += w * pvv
        others += tl.where(used, w * second, 0.0)
        bias += w * spread
        if factors:
            tl.store(biases + row * r + rank, spread, mask=used)
        whole = tl.sum(pvv + tl.where(lowest, second, 0.0), axis=0)
        tl.store(by_row + row * 3, whole.to(tl.float64))
        tl.store(by_row + row * 3 + 1, tl.sum(tl.where(rank == r - 1, below, 0.0), axis=0).to(tl.float64))
    by_rank += part * 3 * r + rank
    tl.store(by_rank, depth.to(tl.float64), mask=used)
    tl.store(by_rank + r, others.to(tl.float64), mask=used)
    tl.store(by_rank + 2 * r, bias.to(tl.float64), mask=used)


@triton.jit(do_not_specialize=["n"])
def prepare(
    z, stride, ordered, ordered_stride, n, m, labels, largest, depth, of_rows, counts, seen,
    log: tl.constexpr, each: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    rank = tl.arange(0, block)
    used = rank < m
    if log > 0:  # nobody has sorted the row yet
        x = sorted_row(ordered + row * ordered_stride, m, log, each)
    else:
        x = tl.load(ordered + row * ordered_stride + rank, mask=used, other=float("inf")).to(tl.float32)
    z_top = tl.max(tl.where(used, x, -float("inf")), axis=0)
    # As in `core.ranked`: depths are cut, and masked classes lie below the height.
    valid = used & (x != -float("inf"))
    v = tl.minimum(z_top - x, largest)
    height = tl.max(tl.where(valid, v, 0.0), axis=0)
    v = tl.where(valid, v, 2.0 * height + 1.0)
    depth += row * m + rank
    tl.store(depth, v, mask=used)
    label = tl.minimum(z_top - tl.load(z + row * stride + tl.load(labels + row)).to(tl.float32), largest)
    tl.store(of_rows + row, height)
    tl.store(of_rows + n + row, z_top)
    tl.store(of_rows + 2 * n + row, label)
    tl.store(counts + row, tl.sum((used & (v > label)).to(tl.int32), axis=0).to(tl.int64))
    tl.store(counts + n + row, tl.sum((used & (v == label)).to(tl.int32), axis=0).to(tl.int64))
    # All programs that store here store the same.
    tl.debug_barrier()  # other threads have stored what is read
    lower = tl.load(depth - 1, mask=used & (rank > 0), other=-1.0)
    tl.store(seen + rank, (rank >= 0).to(tl.int8), mask=used & (v == lower))
    if tl.sum((used & ~valid).to(tl.int32), axis=0) > 0:
        tl.store(seen + m, 1)
