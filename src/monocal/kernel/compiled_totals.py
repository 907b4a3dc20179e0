"""Totals of large single-precision rows in memory, by the loops of `total_loops`.

Moments are summed by every thread over its own blocks, in one call. Labels touch few numbers of each row, so one thread adds them
all: it writes only the ranks at which some label begins or ends, where a sum of arrays would add thousands of zeros a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .block import Block, join_blocks
from .totals import Totals, with_top_labels

if TYPE_CHECKING:
    from .runs import Run, RunMap


def totals_of_runs(runs: Sequence[Run], run_map: RunMap) -> Totals:
    """`Engine.totals_of_runs`; scales of all factors but the first begin at the lowest rank."""
    by_rank, by_factor, ties = zip(*run_map(_moments, runs), strict=True)
    block, ends = joined(runs)
    r, k = block.rows.depth.shape[1], _factors(block).shape[1]
    scales = _in_order(by_rank)
    below, at_top, ones = _in_order(by_factor)
    mean, square = (np.zeros((2, k, r)) for _ in range(2))
    for moment, (out, scale) in enumerate(zip((mean, square), scales, strict=True)):
        out[0, :, -1] = at_top[moment]
        out[0, :, 0] += below[moment]
        out[0, 0] = scale
        out[1] = ones[moment][:, None]
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    label = _labels(block, ends, r)
    top = _labels_on_top(runs, r) if tied[-1] else np.zeros_like(label)
    weight = 0.0
    for i, j in pairwise([0, *ends]):
        weight += float(np.sum(block.weight[i:j], dtype=np.float64))
    return Totals(weight, label, top, max(ties), tied, mean, square)


def joined(runs: Sequence[Run]) -> Run:
    """Several runs as one."""
    before = np.cumsum([0, *(run.n_rows for run, _ in runs)])
    ends = np.concatenate([end + start for (_, end), start in zip(runs, before[:-1], strict=True)])
    return join_blocks([run for run, _ in runs]), ends


def _in_order(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of blocks, which lie along the first axis, from first to last."""
    total: np.ndarray = parts[0][0].copy()
    for i, part in enumerate(parts):
        for more in part[0 if i else 1 :]:
            total += more
    return total


def _moments(run: Run) -> tuple[np.ndarray, np.ndarray, int]:
    from .total_loops import moments_of_blocks

    (block, ends), psi = run, _factors(run[0])
    rows = block.rows
    by_rank = np.zeros((len(ends), 2, rows.depth.shape[1]))
    by_factor = np.zeros((len(ends), 3, 2, psi.shape[1]))
    ties = moments_of_blocks(rows.depth, rows.height, block.weight, psi, ends, by_rank, by_factor)
    return by_rank, by_factor, int(ties)


def _labels(block: Block, ends: np.ndarray, r: int) -> np.ndarray:
    from .total_loops import add_labels

    psi = _factors(block)
    out = np.zeros((r + 1, 3, psi.shape[1]))
    add_labels(
        psi,
        block.weight,
        block.label_depth,
        block.rows.height,
        block.label_rank,
        block.label_held,
        ends,
        out,
    )
    return np.ascontiguousarray(out[:r].transpose(1, 2, 0))


def _labels_on_top(runs: Sequence[Run], r: int) -> np.ndarray:
    """The same as if every label were the top class, in blocks where some rows share it."""
    blocks = [b for run in runs for b in run[0].split(run[1])]
    shared = [with_top_labels(b) for b in blocks if np.any(b.rows.depth[:, -2:-1] == 0)]
    if not shared:
        return np.zeros((3, _factors(blocks[0]).shape[1], r))
    return _labels(join_blocks(shared), np.cumsum([b.n_rows for b in shared]), r)


def _factors(block: Block) -> np.ndarray:
    return np.ones((1, 1), dtype=np.float32) if block.factors is None else np.ascontiguousarray(block.factors)
