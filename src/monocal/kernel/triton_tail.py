"""The sums over a tail in one reading, on a CUDA device.

    s_t = sum_j  e_j v_j^t,     e_j = exp(base - w v_j),     v_j = max(top - z_j, height),     t = 0, 1, 2

A vocabulary has a hundred thousand classes, and plain tensor operations would write and read a dozen arrays of that width.
This kernel reads each logit once, in its own type, and writes three numbers a row. It is used where torch has Triton and the
logits are on a CUDA device; everywhere else the same sums are made by ordinary operations (see `tail`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..ranks.ranked import LARGEST


@cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def tail_kernel(  # type: ignore[no-untyped-def]  # Triton reads the bare signature
        logits, stride, m, top, height, leading, rest, base, largest, out, block: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        z_top = tl.load(top + row)
        low = tl.load(height + row)
        w_leading = tl.load(leading + row)
        w_rest = tl.load(rest + row)
        b = tl.load(base + row)
        s0 = tl.zeros([block], dtype=tl.float32)
        s1 = tl.zeros([block], dtype=tl.float32)
        s2 = tl.zeros([block], dtype=tl.float32)
        for begin in range(0, m, block):
            column = begin + tl.arange(0, block)
            z = tl.load(logits + row * stride + column, mask=column < m, other=-float("inf")).to(tl.float32)
            v = tl.minimum(tl.maximum(z_top - z, low), largest)
            e = tl.where(z == -float("inf"), 0.0, tl.exp(b - w_leading * v - w_rest * v))
            v = tl.where(z == -float("inf"), 0.0, v)
            s0 += e
            s1 += e * v
            s2 += e * v * v
        tl.store(out + row * 3, tl.sum(s0, axis=0))
        tl.store(out + row * 3 + 1, tl.sum(s1, axis=0))
        tl.store(out + row * 3 + 2, tl.sum(s2, axis=0))

    return tail_kernel


def tail_sums(logits: Any, top: Any, height: Any, weights: list[Any], base: Any) -> list[Any]:
    """``s_0, s_1, s_2`` (n,) of logits (n, m); the other arguments are float32 of shape (n,), weights in two parts."""
    import torch

    if logits.stride(1) != 1:  # the kernel reads along the classes
        logits = logits.contiguous()
    n, m = logits.shape
    out = torch.empty((n, 3), dtype=torch.float32, device=logits.device)
    rows = [x.expand(n).contiguous() for x in (top, height, *weights, base)]
    with torch.cuda.device(logits.device):
        _kernel()[(n,)](logits, logits.stride(0), m, *rows, LARGEST, out, block=4096, num_warps=8)
    return [out[:, t] for t in range(3)]
