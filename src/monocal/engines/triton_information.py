"""What rows tell about each atom (`objective.information`), in one reading on a CUDA device.

    by rank, added up over rows:   p v^2,   U^2 P - (V + U P)^2,   P - P^2        P below each start, V = sum of p v from it on
    by row:                        the variance of the plain scale, 1 - p_top

A matrix product with the squares of the factors gives the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .block import Block
from .triton_launch import device_of_kernel, power, to_host
from .triton_rows import LONGEST, readable

# Rows that a program adds up in single precision, at the most.
_TOGETHER = 32


def suits(block: Block, whole_scales: bool) -> bool:
    """Whether the kernel takes rows like these."""
    tail = block.rows.tail
    known = tail is None or tail.rest is not None
    plain = block.factors is None or whole_scales
    return known and plain and block.rows.depth.shape[1] <= LONGEST and readable(block)


def information(block: Block, scale: float) -> tuple[float, np.ndarray, np.ndarray]:
    """The sum of the weights, variances (2, K, r) by kind, factor and start, and errors (K,)."""
    import torch

    from . import triton_totals_kernels

    v: Any = block.rows.depth
    height: Any = block.rows.height
    weight: Any = block.weight
    psi: Any = block.factors
    rest: Any = None if block.rows.tail is None else block.rows.tail.rest
    n, r = v.shape
    together = min(power(n // 4096), _TOGETHER)
    by_rank = v.new_empty((-(-n // together), 3, r), dtype=torch.float64)
    by_row = torch.ones((n, 3), dtype=torch.float64, device=v.device)
    biases = v if psi is None else torch.empty_like(v)
    size, leading = power(r), float(np.float32(scale))
    with device_of_kernel(v):
        triton_totals_kernels.information[(len(by_rank),)](
            v, n, r, together, weight, height, leading, scale - leading, height if rest is None else rest.depth,
            height if rest is None else rest.count, biases, by_row, by_rank,
            factors=psi is not None, rest=rest is not None, block=size, num_warps=min(max(size // 256, 1), 16),
        )  # fmt: skip
    square = torch.ones_like(height)[:, None] if psi is None else psi * psi
    left = square * weight[:, None]
    wanted = [by_rank.sum(dim=0), left.double().T @ by_row]
    if psi is not None:
        wanted.append(left.T @ biases)
    (depth, others, bias), of_rows, *of_biases = to_host(wanted)
    variances = np.zeros((2, len(of_rows), r))
    variances[0, :, 0] = of_rows[:, 0]
    variances[0, 0] = np.cumsum(depth[::-1])[::-1] + others
    variances[1] = of_biases[0] if of_biases else bias
    return float(of_rows[0, 2]), np.maximum(variances, 0.0), of_rows[:, 1].copy()
