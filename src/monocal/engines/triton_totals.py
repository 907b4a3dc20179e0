"""Label sums and atom moments on a CUDA device, in a fixed order: `totals` without copies of rows to the host.

Rows are put in the order of their ranks; running sums over them, and differences where the rank changes, are the sums of
each rank. Nothing is added by atomic operations, whose order would change from run to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import to_numpy, to_numpy_together
from .block import Block
from .totals import Totals, with_top_labels
from .triton_launch import device_of_kernel, power

# Ranks that a program looks at, and rows that it adds up in single precision, at the most.
_RANKS, _TOGETHER = 1024, 32


def totals(block: Block, scale_moments: list[Any]) -> Totals:
    """`interface.Engine.totals`; ``scale_moments`` are sums of ``psi u`` and its square at each rank, (K, r) each."""
    import torch

    r = block.rows.depth.shape[1]
    weight: Any = block.weight
    factors: Any = block.factors
    w = weight.double()
    psi = torch.ones_like(w)[:, None] if factors is None else factors.double()
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    blocks = [block, with_top_labels(block)] if tied[-1] else [block]
    labels = [_label_totals(b, psi, r) for b in blocks]
    biases = [w @ psi, w @ (psi * psi)]
    flat = to_numpy_together([*biases, *scale_moments, *labels])
    mean, square, first, second, label, *top = flat
    moments = [np.stack([s, np.repeat(b[:, None], r, axis=1)]) for s, b in ((first, mean), (second, square))]
    return Totals(
        float(mean[0]),  # the first factor is 1
        label,
        top[0] if top else np.zeros_like(label),
        _largest_tie(block, tied),
        tied,
        *moments,
    )


def scale_moments(block: Block) -> list[Any]:
    """Sums over rows of ``psi u`` and its square at each rank, (K, r) each; of factors but the first only all of it, at the
    lowest rank and at the top."""
    import torch

    from . import triton_totals_kernels

    v: Any = block.rows.depth
    parts: list[Any] = [block.weight, block.rows.height, block.factors]
    weight, height, psi = parts
    n, r = v.shape
    size = min(power(r), _RANKS)
    many = -(-r // size)
    together = min(power(n // 4096), _TOGETHER)
    by_rank = v.new_empty((-(-n // together), 2, 1, r), dtype=torch.float64)
    by_row = v.new_empty((many, 2, n), dtype=torch.float64)
    with device_of_kernel(v):
        triton_totals_kernels.moments[(len(by_rank), many)](
            v, n, r, together, weight, height, by_row, by_rank, rows_too=psi is not None, block=size,
            num_warps=min(max(size // 256, 1), 8),
        )  # fmt: skip
    first = by_rank.sum(dim=0)
    if psi is None:
        return list(first)
    out = []
    below = by_row.sum(dim=0)
    left = psi.double() * weight.double()[:, None]
    for k in range(2):
        at_ends = left.T @ torch.stack([below[k], height.double() ** (k + 1)], dim=1)
        scales = torch.zeros((psi.shape[1], r), dtype=torch.float64, device=v.device)
        scales[:, 0] = at_ends[:, 0]
        scales[:, -1] = at_ends[:, 1]
        scales[:1] = first[k]
        out.append(scales)
        left = left * psi
    return out


def _label_totals(block: Block, psi: Any, r: int) -> Any:
    """`totals.label_totals`, (3, K, r)."""
    import torch

    parts: list[Any] = [block.label_rank, block.label_held, block.label_size, block.weight]
    rank, held, size, weight = parts
    depths: list[Any] = [block.label_depth, block.rows.height]
    values = torch.stack([*(x.double() for x in depths), torch.ones_like(psi[:, 0])])
    share = (psi.T[None] * (values * (weight.double() / size))[:, None]).reshape(3 * psi.shape[1], -1)
    # What begins at a rank and what ends there.
    place, order = torch.cat([rank, rank + held]).sort(stable=True)
    running = torch.cat([share, -share], dim=1)[:, order].cumsum(dim=1)
    ends = torch.searchsorted(place, torch.arange(r, device=place.device), right=True)
    upto = torch.nn.functional.pad(running, (1, 0))[:, ends]
    edges = torch.diff(upto, dim=1, prepend=torch.zeros_like(upto[:, :1]))
    # Shares of tied classes outside the ranks in use go to the lowest, whose parameters those classes have.
    lowest = share @ (size - held).double()
    edges[:, 0] += lowest
    if r > 1:
        edges[:, 1] -= lowest
    return edges.reshape(3, psi.shape[1], r)


def _largest_tie(block: Block, tied: np.ndarray) -> int:
    """`ties.largest_tie`."""
    from . import triton_totals_kernels

    if not tied.any():
        return 1
    v = block.rows.depth
    n, r = v.shape
    rank: Any = block.label_rank
    out = rank.new_empty(n)
    size = min(power(r), 4096)
    with device_of_kernel(v):
        triton_totals_kernels.longest_ties[(n,)](
            v, r, block.rows.height, out, block=size, num_warps=min(max(size // 512, 1), 8)
        )
    return max(2, int(to_numpy(out.max())))
