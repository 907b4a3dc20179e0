"""The kernel of `triton_prepare`. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl

from .triton_sort_kernels import sorted_row


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
    # As in `ranks.ranked`: depths are cut, and masked classes lie below the height.
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
