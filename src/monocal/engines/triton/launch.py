"""What all Triton kernels share on the host's side."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np


def device_of_kernel(x: Any) -> AbstractContextManager[Any]:
    """The device of ``x`` as the current one. Mostly it is; on the host, where Triton interprets kernels, there is none."""
    import torch

    there = x.is_cuda and x.device.index != torch.cuda.current_device()
    return torch.cuda.device(x.device) if there else nullcontext()


def power(x: int) -> int:
    """The next power of two, at least 2: sizes of arrays in a kernel are such."""
    return 1 << max(x - 1, 1).bit_length()


def sorted_each(log: int) -> int:
    """How many of ``2^log`` numbers a thread holds that sorts them (`sort_kernels`)."""
    return min(max((1 << log) // 32, 1), 32)


def sorting_warps(log: int) -> int:
    """How many warps sort ``2^log`` numbers."""
    return max((1 << log) // 1024, 1)


def to_host(xs: list[Any]) -> list[np.ndarray]:
    """Tensors as numpy arrays, with one wait for all of them; through memory that the device writes itself."""
    import torch

    if not xs[0].is_cuda:
        return [x.numpy() for x in xs]
    copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in xs]
    for copy, x in zip(copies, xs, strict=True):
        copy.copy_(x, non_blocking=True)
    torch.cuda.current_stream(xs[0].device).synchronize()
    return [copy.numpy() for copy in copies]
