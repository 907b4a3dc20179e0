"""The kernels of `triton_totals`. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl


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
