"""What is computed once in a fit on a CUDA device: rows sorted, label sums and moments of atoms, and what rows tell about atoms.

    v_(i) = z_top - z_(i),     label:  z_top - z_y,  the ranks below it,  the ranks that hold it

One kernel holds a row: it sorts it (rows that are too long for that are sorted by torch first), writes the depths as
`core.ranked` has them, masked classes among them, and counts.

Label sums are taken in a fixed order, without copies of rows to the host: labels are put in the order of their ranks; running
sums over them, and differences where the rank changes, are the sums of each rank. Nothing is added by atomic operations, whose
order would change from run to run.

Information, in one reading, P the probability below each start and V the sum of p v from it on:

    by rank, added up over rows:   p v^2,   U^2 P - (V + U P)^2,   P - P^2
    by row:                        the variance of the plain scale, 1 - p_top

A matrix product with the squares of the factors gives the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import takes_triton, to_numpy, to_numpy_together
from ...core.block import Block
from ...core.engine import Information, Totals
from ...core.ranked import LARGEST, Ranked
from ..labels import with_top_labels
from .launch import device_of_kernel, power, sorted_each, sorting_warps, to_host

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


# Ranks that a program looks at, and rows that it adds up in single precision, at the most.
_RANKS, _TOGETHER = 1024, 32


def totals(block: Block) -> Totals:
    """`Engine.totals`."""
    import torch

    r = block.rows.depth.shape[1]
    weight = block.weight
    factors = block.factors
    w = weight.double()
    psi = torch.ones_like(w)[:, None] if factors is None else factors.double()
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    blocks = [block, with_top_labels(block)] if tied[-1] else [block]
    labels = [_label_totals(b, psi, r) for b in blocks]
    biases = [w @ psi, w @ (psi * psi)]
    flat = to_numpy_together([*biases, *_scale_moments(block), *labels])
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


def _scale_moments(block: Block) -> list[Any]:
    """Sums over rows of ``psi u`` and its square at each rank, (K, r) each; of factors but the first only all of it, at the
    lowest rank and at the top."""
    import torch

    v = block.rows.depth
    parts: list[Any] = [block.weight, block.rows.height, block.factors]
    weight, height, psi = parts
    n, r = v.shape
    size = min(power(r), _RANKS)
    many = -(-r // size)
    together = min(power(n // 4096), _TOGETHER)
    by_rank = v.new_empty((-(-n // together), 2, 1, r), dtype=torch.float64)
    by_row = v.new_empty((many, 2, n), dtype=torch.float64)
    with device_of_kernel(v):
        _kernels().moments[(len(by_rank), many)](
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
    """`labels.label_totals`, (3, K, r)."""
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
    if not tied.any():
        return 1
    v = block.rows.depth
    n, r = v.shape
    rank = block.label_rank
    out = rank.new_empty(n)
    size = min(power(r), 4096)
    with device_of_kernel(v):
        _kernels().longest_ties[(n,)](
            v, r, block.rows.height, out, block=size, num_warps=min(max(size // 512, 1), 8)
        )
    return max(2, int(to_numpy(out.max())))


def information(block: Block, scale: float) -> Information:
    """`Engine.information`."""
    import torch

    v = block.rows.depth
    height = block.rows.height
    weight = block.weight
    psi = block.factors
    rest: Any = None if block.rows.tail is None else block.rows.tail.rest
    n, r = v.shape
    together = min(power(n // 4096), _TOGETHER)
    by_rank = v.new_empty((-(-n // together), 3, r), dtype=torch.float64)
    by_row = torch.ones((n, 3), dtype=torch.float64, device=v.device)
    biases = v if psi is None else torch.empty_like(v)
    size, leading = power(r), float(np.float32(scale))
    with device_of_kernel(v):
        _kernels().information[(len(by_rank),)](
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
    return Information(float(of_rows[0, 2]), np.maximum(variances, 0.0), of_rows[:, 1].copy())


def _kernels() -> Any:
    from . import once_kernels

    return once_kernels
