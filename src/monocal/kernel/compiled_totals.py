"""Totals of large single-precision rows in memory, by the loops of `total_loops`.

Moments are summed by all threads, block by block. Labels touch few numbers of each row, so one thread adds them all: it writes
only the ranks at which some label begins or ends, where a sum of arrays would add thousands of zeros a block.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .block import Block, join_blocks
from .compiled import first_turn, pieces_of
from .totals import Totals, scale_totals, with_top_labels

if TYPE_CHECKING:
    from .run import Run


def totals_of_run(run: Run) -> Totals:
    """`Engine.totals_of_run`; scales of all factors but the first begin at the lowest rank."""
    block = run.block
    r, k = block.rows.depth.shape[1], _factors(block).shape[1]
    scales, (below, at_top, ones), ties = _moments(run)
    mean, square = (np.zeros((2, k, r)) for _ in range(2))
    for moment, (out, scale) in enumerate(zip((mean, square), scales, strict=True)):
        out[0, :, -1] = at_top[moment]
        out[0, :, 0] += below[moment]
        out[0, 0] = scale
        out[1] = ones[moment][:, None]
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    label = _labels(block, run.ends)
    top = _labels_on_top(run) if tied[-1] else np.zeros_like(label)
    return Totals(_weight(run), label, top, ties, tied, mean, square)


def label_sums_of_run(run: Run) -> np.ndarray:
    """`totals.label_sums`."""
    return np.append(_labels(run.block, run.ends), _weight(run))


def scale_totals_of_run(run: Run) -> Totals:
    """`totals.scale_totals`."""
    from .total_loops import sums_of_heights

    rows, turn = run.block.rows, first_turn()
    out = np.empty((2, len(rows.depth)))
    run.threads.share(lambda: sums_of_heights(rows.depth, rows.height, out, turn), pieces_of(len(rows.depth)))
    return scale_totals(run.block, out)


def _weight(run: Run) -> float:
    weight = 0.0
    for i, j in pairwise([0, *run.ends.tolist()]):
        weight += float(np.sum(run.block.weight[i:j], dtype=np.float64))
    return weight


def _moments(run: Run) -> tuple[np.ndarray, np.ndarray, int]:
    from .total_loops import moments_of_blocks

    block, ends, psi, turn = run.block, run.ends, _factors(run.block), first_turn()
    rows = block.rows
    by_rank, ties = np.empty((len(ends), 2, rows.depth.shape[1])), np.empty(len(ends), dtype=np.int64)
    by_factor = np.empty((len(ends), 3, 2, psi.shape[1]))
    args = rows.depth, rows.height, block.weight, psi, ends, by_rank, by_factor, ties, turn
    run.threads.share(lambda: moments_of_blocks(*args), len(ends))
    return by_rank.sum(axis=0), by_factor.sum(axis=0), int(ties.max())


def _labels(block: Block, ends: np.ndarray) -> np.ndarray:
    from .total_loops import add_labels

    psi, r = _factors(block), block.rows.depth.shape[1]
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


def _labels_on_top(run: Run) -> np.ndarray:
    """The same as if every label were the top class, in blocks where some rows share it."""
    blocks = run.blocks()
    shared = [with_top_labels(b) for b in blocks if np.any(b.rows.depth[:, -2:-1] == 0)]
    if not shared:
        return np.zeros((3, _factors(run.block).shape[1], run.block.rows.depth.shape[1]))
    return _labels(join_blocks(shared), np.cumsum([b.n_rows for b in shared]))


def _factors(block: Block) -> np.ndarray:
    return np.ones((1, 1), dtype=np.float32) if block.factors is None else np.ascontiguousarray(block.factors)
