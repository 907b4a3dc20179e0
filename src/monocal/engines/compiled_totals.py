"""Totals of large single-precision rows in memory, by the loops of `total_loops`.

Moments are summed by all threads, block by block. Labels touch few numbers of each row, so one thread adds them all, while the
others have begun with the moments: it writes only the ranks at which some label begins or ends, where a sum of arrays would add
thousands of zeros a block.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from .block import Block, join_blocks
from .compiled import first_turn, worth
from .run import Run, added
from .totals import Totals, scale_totals, with_top_labels


def totals_of_run(run: Run) -> Totals:
    """`Engine.totals_of_run`; scales of all factors but the first begin at the lowest rank."""
    block = run.block
    r, k = block.rows.depth.shape[1], _factors(block).shape[1]
    label = np.zeros((r + 1, 3, k))
    scales, (below, at_top, ones), ties = _moments(run, lambda: _add_labels(block, run.ends, label))
    mean, square = (np.zeros((2, k, r)) for _ in range(2))
    for moment, (out, scale) in enumerate(zip((mean, square), scales, strict=True)):
        out[0, :, -1] = at_top[moment]
        out[0, :, 0] += below[moment]
        out[0, 0] = scale
        out[1] = ones[moment][:, None]
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    top = _labels_on_top(run) if tied[-1] else np.zeros_like(label)
    weight = float(ones[0, 0])  # the first factor is 1
    return Totals(weight, _by_kind(label), _by_kind(top), ties, tied, mean, square)


def label_sums_of_run(run: Run) -> np.ndarray:
    """`totals.label_sums`."""
    return np.append(_by_kind(_add_labels(run.block, run.ends)), run.weight())


def scale_totals_of_run(run: Run) -> Totals:
    """`totals.scale_totals`."""
    from .total_loops import sums_of_heights

    rows, turn = run.block.rows, first_turn()
    out = np.empty((2, len(rows.depth)))
    run.threads.share(lambda: sums_of_heights(rows.depth, rows.height, out, turn), worth(rows.depth))
    return scale_totals(run.block, out, run.slices())


def _moments(run: Run, meanwhile: Callable[[], object]) -> tuple[np.ndarray, np.ndarray, int]:
    """Moments of all blocks by rank and by factor, and the largest tie; one of the threads first does something else."""
    from .total_loops import moments_of_blocks

    block, ends, psi, turn = run.block, run.ends, _factors(run.block), first_turn()
    rows, calls = block.rows, count()
    by_rank, ties = np.empty((len(ends), 2, rows.depth.shape[1])), np.empty(len(ends), dtype=np.int64)
    by_factor = np.empty((len(ends), 3, 2, psi.shape[1]))
    args = rows.depth, rows.height, block.weight, psi, ends, by_rank, by_factor, ties, turn

    def work() -> None:
        if next(calls) == 0:
            meanwhile()
        moments_of_blocks(*args)

    run.threads.share(work, len(ends))
    return added(by_rank), added(by_factor), int(ties.max())


def _add_labels(block: Block, ends: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """What of the labels begins and ends at each rank (r + 1, 3, K)."""
    from .total_loops import add_labels

    psi = _factors(block)
    out = np.zeros((block.rows.depth.shape[1] + 1, 3, psi.shape[1])) if out is None else out
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
    return out


def _by_kind(label: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(label[:-1].transpose(1, 2, 0))


def _labels_on_top(run: Run) -> np.ndarray:
    """The same as if every label were the top class, in blocks where some rows share it."""
    shared = [with_top_labels(b) for b in run.blocks() if np.any(b.rows.depth[:, -2:-1] == 0)]
    if not shared:
        return np.zeros((run.block.rows.depth.shape[1] + 1, 3, _factors(run.block).shape[1]))
    return _add_labels(join_blocks(shared), np.cumsum([b.n_rows for b in shared]))


def _factors(block: Block) -> np.ndarray:
    return np.ones((1, 1), dtype=np.float32) if block.factors is None else np.ascontiguousarray(block.factors)
