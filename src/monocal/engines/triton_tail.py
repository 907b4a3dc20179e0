"""Sums over a tail in one reading, on a CUDA device.

    s_t = sum_j  exp(-w (v_j - U)) v_j^t,     v_j = max(top - z_j, U),     t = 0, 1, 2

A vocabulary has a hundred thousand classes, and plain tensor operations would write and read a dozen arrays of that width.
These kernels read each logit once, in its own type, and write a few numbers per row. In units of what the lowest rank in use has,
no sum underflows. Everywhere else the same sums are made by ordinary operations (see `tail`).
"""

from __future__ import annotations

from typing import Any

from ..core.ranked import LARGEST
from .triton_launch import device_of_kernel


def tail_sums(logits: Any, top: Any, height: Any, weight: Any) -> Any:
    """``s_0, s_1, s_2`` (n, 3) of logits (n, m); ``weight`` (n or 1, ...) holds ``-w`` first, in double precision."""
    from . import triton_rows_kernels

    logits = _readable(logits)
    n, m = logits.shape
    out = height.new_empty((n, 3))
    stride = 0 if len(weight) == 1 else weight.stride(0)
    with device_of_kernel(logits):
        triton_rows_kernels.tail_sums[(n,)](
            logits, logits.stride(0), m, top, height, weight, stride, LARGEST, out, block=4096, num_warps=8
        )
    return out


def look_at_tail(logits: Any, top: Any, height: Any) -> tuple[Any, bool]:
    """How many classes have the lowest logit in use (n,), and whether any is masked."""
    import torch

    from . import triton_rows_kernels

    logits = _readable(logits)
    n, m = logits.shape
    equal = torch.empty(n, dtype=torch.int64, device=logits.device)
    masked = torch.empty(n, dtype=torch.int8, device=logits.device)
    with device_of_kernel(logits):
        triton_rows_kernels.tail_ties[(n,)](
            logits, logits.stride(0), m, top, height, LARGEST, equal, masked, block=4096, num_warps=8
        )
    return equal, bool(masked.max())


def _readable(logits: Any) -> Any:
    """Kernels read along the classes."""
    return logits if logits.stride(1) == 1 else logits.contiguous()
