"""Rows sorted and their labels found in one reading, on a CUDA device.

    v_(i) = z_top - z_(i),     label:  z_top - z_y,  the ranks below it,  the ranks that hold it

One kernel holds a row: it sorts it (rows that are too long for that are sorted by torch first), writes the depths as
`ranks.ranked` has them, masked classes among them, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import takes_triton
from ..core.ranked import LARGEST, Ranked
from .triton_launch import device_of_kernel, power, sorted_each, sorting_warps

# Classes of a row that a kernel sorts in registers, and those that it holds.
_SORTED, _LONGEST = 4096, 16384


@dataclass(frozen=True)
class Prepared:
    """Sorted rows, and where their labels are, as `Block` has it."""

    rows: Ranked
    label_depth: Any
    label_rank: Any
    label_held: Any


def prepare(logits: Any, labels: Any) -> Prepared | None:
    """Rows of logits (n, m) with labels (n,); None where the kernel does not take them."""
    import torch

    n, m = logits.shape
    if not (n and takes_triton(logits) and m <= _LONGEST and str(logits.dtype) != "torch.float64"):
        return None
    z = logits if logits.stride(1) == 1 else logits.contiguous()
    ordered = z if m <= _SORTED else z.sort(dim=1).values
    depth = torch.empty((n, m), dtype=torch.float32, device=z.device)
    of_rows = torch.empty((3, n), dtype=torch.float32, device=z.device)
    counts = torch.empty((2, n), dtype=torch.int64, device=z.device)
    # Which ranks equal the one below in some row; and last, whether a class is masked.
    seen = torch.zeros(m + 1, dtype=torch.int8, device=z.device)
    size = power(m)
    log = size.bit_length() - 1 if m <= _SORTED else 0
    with device_of_kernel(z):
        _kernels().prepare[(n,)](
            z, z.stride(0), ordered, ordered.stride(0), n, m, labels, LARGEST, depth, of_rows, counts, seen,
            log=log, each=sorted_each(log), block=size, num_warps=sorting_warps(log) if log else size // 512,
        )  # fmt: skip
    found: np.ndarray = seen.cpu().numpy()
    height, top, label_depth = of_rows.unbind()
    valid = depth <= height[:, None] if found[m] else None
    rows = Ranked(depth, height, top[:, None], valid, None, m, found[:m] > 0)
    return Prepared(rows, label_depth, *counts.unbind())


def _kernels() -> Any:
    from . import triton_prepare_kernels

    return triton_prepare_kernels
