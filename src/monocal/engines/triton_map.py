"""A rank map applied on a CUDA device: the values at the jumps are selected, and every class is written once.

    g = f_top - f = max(w_d v + D_d, bound_d),        v = min(z_top - z, 1e6),       d = number of jumps at or below the class,

    D_d = (w_top - w_d) U + (b_top - b_d),            bound_d = the largest g of any class above.

A row goes through two kernels. `facts` sorts it, into the place of the result, and finds what depends on the row as a whole: its
height ``U``, its statistics, the depth ``t_j`` at every jump, weights and drops ``D``. Where a jump falls inside a group of tied
classes, these lack the part of the step that their ranks below the jump would not have: the mean over their ranks. `whole` then
finds the piece of every class by the depths at the jumps and writes its value. Rows longer than a kernel holds are cut into
parts: `partial` sums them, `write` writes them, all rows and parts at once. A second stage (`core.second_stage`) is
``g' = W g + A`` below the top, and logits are ``-g``; its log-odds are sums over the row, of parts in `odds`.

Order. Everything is measured from the top, where single precision keeps what matters, however far away the lowest class is (a
number such as -3e38 that hides a class). A depth is a rounded monotone function of the logit, and within a piece
``w v + D`` rounds monotonely (the compiler must not fuse it in one place and not in another, so fusing is off). No class lies
above the bound of its piece, so none changes places across a jump. ``exp`` is taken on the grid of `arrays.ordered_exp`. Where
rounding has made a lower class equal to the top one and stands before it, the top is raised by one unit, as in
`arrays.keep_argmax`.

Nothing here waits for the device or looks at values on the host, so that all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import EXP_GRID, takes_triton
from ..core.libraries import torch_functions
from ..core.map import IN_DOUBLE, MapStep, steps_as
from ..core.ranked import LARGEST
from ..core.second_stage import terms_of_context
from .triton_engine import device_of_kernel, power, sorted_each, sorting_warps

PROBABILITIES, LOGITS, LOGS = 0, 1, 2
STATISTICS = ("margin", "mean_gap", "spread", "entropy", "log_odds")

# Classes of a row that a kernel holds at a time, and those of a part of a longer row.
_LONGEST, _PART = 8192, 4096
# Rows that are sorted in registers; longer ones are sorted by torch.
_SORTED = 4096
# Jumps that a kernel holds.
_JUMPS = 1023
# Numbers in addition to the result for rows that are worked on together: enough to fill a device, and few.
_TOGETHER = 2**23


@dataclass(frozen=True)
class Tables:
    """The numbers of a step ``"ranks"`` of `core.map` on the device."""

    arrays: dict[str, Any]
    static: dict[str, Any]
    scale_steps: Any  # (K, J + 1), rows side by side
    bias_steps: Any

    @classmethod
    def of(cls, arrays: dict[str, Any], static: dict[str, Any]) -> Tables:
        """From the arrays of the step as tensors."""
        arrays = {
            name: x.float() if x.is_floating_point() and not name.startswith(IN_DOUBLE) else x
            for name, x in arrays.items()
        }
        steps = arrays["steps"]
        return cls(arrays, static, steps[:, 0].contiguous(), steps[:, 1].contiguous())

    @classmethod
    def on(cls, device: Any, step: MapStep) -> Tables:
        """From a step on the host."""
        import torch

        _, arrays, static = steps_as([step], lambda x: torch.from_numpy(x).to(device), np.float32)[0]
        return cls.of(arrays, static)

    def get(self, name: str) -> Any:
        """An array; where there is none, it is not looked at and may be anything."""
        return self.arrays.get(name, self.scale_steps)


def suits(z: Any, n_jumps: int, statistics: tuple[Any, ...]) -> bool:
    """Whether the kernels take logits and a map like these."""
    if not takes_triton(z) or str(z.dtype) == "torch.float64":
        return False
    return n_jumps <= _JUMPS and all(s in STATISTICS for s in statistics)


def apply(z: Any, table: Tables, mode: int, context: Any = None) -> Any:
    """Calibrated probabilities, logits or log-probabilities of logits (n, m), in their own type; context is a tensor (n, C)."""
    import torch

    every = None
    if context is not None:
        like = torch.empty(len(z), dtype=torch.float32, device=z.device)
        second = table.static["adjustment"]
        every = terms_of_context(context, table.arrays, second, like, torch_functions()).contiguous()
    if z.stride(1) != 1:
        z = z.contiguous()
    n, m = z.shape
    out = torch.empty((n, m), dtype=z.dtype, device=z.device)
    extra = 5 * (table.static["n_jumps"] + 1)
    size = max(16, _TOGETHER // (extra if _needs_no_place(m, table) else max(extra, m)))
    if m > _LONGEST:
        size = max(size, 4096)
    for begin in range(0, n, size):
        rows = slice(begin, begin + size)
        _apply(z[rows], table, mode, None if every is None else every[rows], out[rows])
    return out


def _apply(z: Any, table: Tables, mode: int, terms: Any, out: Any) -> None:
    import torch

    n, m = z.shape
    s, get = table.static, table.get
    r, jumps, stage = s["n_ranks"], s["n_jumps"], s["adjustment"]
    ranked, downwards, log = _ranked(z, r, jumps, out)
    width = jumps + 1
    facts = torch.empty((n, 5, width), dtype=torch.float32, device=z.device)
    head = torch.empty((n, 4), dtype=torch.float32, device=z.device)
    places = [STATISTICS.index(q) for q in s["statistics"]]
    n_ramps = 0 if stage is None else stage["n_ramps"]
    second = (*(get(f"second_{name}") for name in ("statistic", "zero", "width", "steps")), n_ramps)
    extra = head if terms is None else terms
    pad = max(16, power(width))  # few sizes, so that few kernels are compiled
    block = min(power(m), _LONGEST)
    of_row = {"adjusted": stage is not None, "context": terms is not None, "enable_fp_fusion": False}
    common = {**of_row, "cells": EXP_GRID["float32"], "steps": pad.bit_length() - 1 if jumps else 0}
    common["ramp_pad"] = power(n_ramps)
    with device_of_kernel(z):
        k = _kernels()
        k.facts[(n,)](
            z, z.stride(0), m, ranked, ranked.stride(0), r, get("jumps"), jumps, table.scale_steps, table.bias_steps,
            s["n_factors"], get("ramp_statistic"), get("ramp_zero"), get("ramp_width"), get("class_scales"), extra,
            LARGEST, facts, head, downwards=downwards, tail=r < m, in_order=r < m or jumps > 0,
            statistics=_needs(places), places=tuple(places), by_class=stage is not None and stage["by_class"],
            steps=r.bit_length() + 1, pad=pad, block=min(block, 256 * sorting_warps(log)) if log else block, log=log,
            each=sorted_each(log), num_warps=sorting_warps(log) if log else min(max(block // 512, 1), 16), **of_row,
        )  # fmt: skip
        of_rows = (z, z.stride(0), m, facts, width, head, LARGEST)
        if m <= _LONGEST:
            k.whole[(n,)](
                *of_rows, *second, extra, out, out.stride(0), mode=mode, block=block,
                num_warps=min(max(block // 128, 1), 16), **common,
            )  # fmt: skip
            return
        parts = -(-m // _PART)
        sums = torch.empty((2, n, parts, 2), dtype=torch.float32, device=z.device)
        cut = {"block": _PART, "num_warps": 8}
        if stage is not None:
            k.odds[(n, parts)](*of_rows, sums[0], parts, steps=common["steps"], enable_fp_fusion=False, **cut)
        cut["part_pad"] = power(parts)
        k.partial[(n, parts)](*of_rows, *second, extra, sums[0], sums[1], parts, **cut, **common)
        k.write[(n, parts)](
            *of_rows, *second, extra, sums[0], sums[1], parts, out, out.stride(0), mode=mode, **cut, **common
        )


def _needs(places: list[int]) -> int:
    """Which sums the statistics need: none, those of the depths, of their squares as well, or of exponentials as well."""
    return max((min(p, 3) if p >= 2 else 1 for p in places), default=0)


def _needs_no_place(m: int, table: Tables) -> bool:
    """Whether nothing but the result needs a place for every class."""
    return bool(table.static["n_ranks"] == m and (m <= _SORTED or not table.static["n_jumps"]))


def _ranked(z: Any, r: int, jumps: int, out: Any) -> tuple[Any, bool, int]:
    """The largest ``r`` logits of each row in order, and whether they go downwards; the rows themselves where none is needed.

    Rows that `facts` is to sort go where the result will be; then the last is the logarithm of their size, else 0.
    """
    m = z.shape[1]
    if r < m:
        return z.topk(r, dim=1).values, True, 0
    if not jumps:
        return z, False, 0
    if m > _SORTED:
        return z.sort(dim=1).values, False, 0
    return out, False, power(m).bit_length() - 1


def _kernels() -> Any:
    from . import triton_map_kernels

    return triton_map_kernels
