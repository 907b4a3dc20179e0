"""What all Triton kernels share on the host's side."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def device_of_kernel(x: Any) -> AbstractContextManager[Any]:
    """The device of ``x`` as the current one; on the host, where Triton interprets kernels, nothing is to be done."""
    import torch

    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def power(x: int) -> int:
    """The next power of two, at least 2: sizes of arrays in a kernel are such."""
    return 1 << max(x - 1, 1).bit_length()
