"""A rank map applied on a CUDA device: the values at the jumps are selected, and every class is written once.

    f = W_d u + B_d,     u = U - v,     d = number of jumps at or below the class,     v = min(z_top - z, 1e6)

A row goes through two kernels. `facts` reads what depends on the row as a whole: its height ``U``, its statistics, the depth
``t_j`` at every jump, and the running sums ``W_j``, ``B_j`` of the steps. Where a jump falls inside a group of tied classes,
these get ``W_L + sum share_j step_j``, with ``share_j`` the part of the group at or above the jump: the mean of their ranks.
`whole` then compares every class with the depths at the jumps and writes its value. Rows longer than a kernel holds are cut
into parts: `partial` sums them, `write` writes them, all rows and parts at once.

Order. A depth is a rounded monotone function of the logit; ``W`` and ``B`` rise with ``j``, because the running maximum takes
back what a parallel sum loses; ``W u + B`` rounds monotonely (the compiler must not fuse it in one place and not in another,
so fusing is off); ``exp`` is taken on the grid of `arrays.ordered_exp`. Where rounding has made a lower class equal to the top
one and stands before it, the top is raised by one unit, as in `arrays.keep_argmax`.

Nothing here waits for the device or looks at values on the host, so that all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import EXP_GRID, takes_triton
from ..ranks.ranked import LARGEST
from .triton_launch import device_of_kernel, power

PROBABILITIES, LOGITS, LOGS = 0, 1, 2
STATISTICS = ("margin", "mean_gap", "spread", "entropy", "log_odds")

# Classes of a row that a kernel holds at a time, and those of a part of a longer row.
_LONGEST, _PART = 8192, 4096
# Rows that one kernel sorts in registers; longer ones are sorted by torch.
_SORTED = 1024
# Jumps that a kernel holds.
_JUMPS = 1023
# Logits of rows that are worked on together: enough to fill a device, and few beside the result.
_TOGETHER = 2**23


@dataclass(frozen=True)
class Tables:
    """The numbers of a rank map on the device, float32 or whole numbers."""

    jumps: Any  # (J,), ranks counted from the lowest in use
    scale_steps: Any  # (K, J + 1), rows side by side
    bias_steps: Any
    ramp_statistic: Any  # (K - 1,), places in `statistics`
    ramp_zero: Any
    ramp_width: Any
    n_jumps: int
    n_factors: int
    n_ranks: int
    statistics: tuple[str, ...]


def suits(z: Any, n_jumps: int, statistics: tuple[Any, ...]) -> bool:
    """Whether the kernels take logits and a map like these."""
    known = n_jumps <= _JUMPS and all(s in STATISTICS for s in statistics)
    return known and takes_triton(z) and str(z.dtype) != "torch.float64"


def tables(
    device: Any,
    jumps: np.ndarray,
    scale_steps: np.ndarray,
    bias_steps: np.ndarray,
    ramps: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_ranks: int,
    statistics: tuple[str, ...],
) -> Tables:
    """The same from arrays on the host, brought over at once; ``ramps`` are statistic, zero and width of each."""
    import torch

    parts = [np.ravel(x) for x in (jumps, scale_steps, bias_steps, *ramps)]
    flat = torch.from_numpy(np.concatenate(parts).astype(np.float32)).to(device)
    start, scale, bias, *ramp = flat.split([len(part) for part in parts])
    return Tables(
        start, scale, bias, ramp[0], ramp[1], ramp[2], len(jumps), len(scale_steps), n_ranks, statistics
    )


def apply(z: Any, table: Tables, mode: int) -> Any:
    """Calibrated probabilities, logits or log-probabilities of logits (n, m), in their own type."""
    import torch

    if z.stride(1) != 1:
        z = z.contiguous()
    n, m = z.shape
    out = torch.empty((n, m), dtype=z.dtype, device=z.device)
    size = max(16, _TOGETHER // m)
    if m > _LONGEST:
        size = max(size, 4096)
    for begin in range(0, n, size):
        _apply(z[begin : begin + size], table, mode, out[begin : begin + size])
    return out


def _apply(z: Any, table: Tables, mode: int, out: Any) -> None:
    import torch

    n, m = z.shape
    k = _kernels()
    r, jumps = table.n_ranks, table.n_jumps
    ranked, downwards = _ranked(z, r, jumps)
    width = jumps + 1
    facts = torch.empty((n, 5, width), dtype=torch.float32, device=z.device)
    head = torch.empty((n, 4), dtype=torch.float32, device=z.device)
    places = [STATISTICS.index(s) for s in table.statistics]
    block = min(power(m), _LONGEST)
    with device_of_kernel(z):
        k.facts[(n,)](
            z, z.stride(0), m, ranked, ranked.stride(0), r, table.jumps, jumps, table.scale_steps, table.bias_steps,
            table.n_factors, table.ramp_statistic, table.ramp_zero, table.ramp_width, LARGEST, facts, head,
            downwards=downwards, tail=r < m, in_order=r < m or jumps > 0,
            statistics=_needs(places), places=tuple(places), steps=r.bit_length() + 1,
            pad=_pad(width), block=block, num_warps=min(max(block // 512, 1), 16), enable_fp_fusion=False,
        )  # fmt: skip
        top_only = jumps == 0 and table.n_factors == 1 and r == m and mode != LOGITS
        common = {"mode": mode, "from_top": top_only, "cells": EXP_GRID["float32"], "enable_fp_fusion": False}
        if m <= _LONGEST:
            block = power(m)
            k.whole[(n,)](
                z, z.stride(0), m, facts, width, head, LARGEST, out, out.stride(0),
                block=block, num_warps=min(max(block // 256, 1), 16), **common,
            )  # fmt: skip
            return
        parts = -(-m // _PART)
        sums = torch.empty((n, parts, 2), dtype=torch.float32, device=z.device)
        k.partial[(n, parts)](
            z, z.stride(0), m, facts, width, head, LARGEST, sums, parts, block=_PART, num_warps=8, **common
        )
        k.write[(n, parts)](
            z, z.stride(0), m, facts, width, head, LARGEST, sums, parts, out, out.stride(0),
            block=_PART, some=power(parts), num_warps=8, **common,
        )  # fmt: skip


def _pad(width: int) -> int:
    """Few sizes, so that few kernels are compiled."""
    return 16 if width <= 16 else max(64, power(width))


def _needs(places: list[int]) -> int:
    """Which sums the statistics need: none, those of the depths, or those of exponentials as well."""
    return 2 if any(p >= 2 for p in places) else int(any(p >= 0 for p in places))


def _ranked(z: Any, r: int, jumps: int) -> tuple[Any, bool]:
    """The largest ``r`` logits of each row in order, and whether they go downwards; the rows themselves where none is needed."""
    import torch

    n, m = z.shape
    if r < m:
        return z.topk(r, dim=1).values, True
    if not jumps:
        return z, False
    if m > _SORTED:
        return z.sort(dim=1).values, False
    out = torch.empty((n, m), dtype=z.dtype, device=z.device)
    with device_of_kernel(z):
        _kernels().sort[(n,)](z, z.stride(0), m, out, block=power(m), num_warps=1)
    return out, False


def _kernels() -> Any:
    from . import triton_map_kernels

    return triton_map_kernels
