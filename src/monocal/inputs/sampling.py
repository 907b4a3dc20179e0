"""A part of the rows that stands for all, the same wherever the rows live.

The solver works on a coarse copy between its passes over all rows. It takes one row in ``step`` of each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..engines.block import Block, join_blocks
from ..parallel import CPU_BLOCK, rows_of_size
from .interface import Rows

# A coarse copy has one row in eight where that leaves at least this many rows, and a smaller share of very many rows. A copy
# of more than one row in four saves nothing.
_COARSE = 1024
# Logits of a coarse copy, at the most; above, it costs more than it improves a step (and memory, where rows are in a file).
COARSE_LOGITS = 2**24
# Up to this many logits, double precision costs nothing that anyone would notice.
DOUBLE_BELOW = 2**22
# Up to this many, what need not be exact is computed from all rows.
_ALL_BELOW = 2**19


def sample_step(n_rows: int, n_classes: int, most_logits: int = COARSE_LOGITS) -> int:
    """The step of a coarse copy, which takes one row in so many; 0 where it would save nothing."""
    most = max(_COARSE, most_logits // n_classes)
    step = max(min(8, n_rows // _COARSE), -(-n_rows // most) if n_rows >= 2 * _COARSE else 0)
    return step if step >= 4 else 0


def blocks_between(step: int, n_classes: int) -> int:
    """A sample of one row in ``step`` uses one block in so many: 1 (every block), unless a block has fewer rows than ``step``."""
    return -(-step // rows_of_size(CPU_BLOCK, n_classes))


def in_sample(n_rows: int, n_classes: int, step: int, first: int = 0) -> np.ndarray:
    """Which rows are in a sample of one in ``step``, where the host would cut them into blocks, (n_rows,).

    ``first`` is the number of the first of them.
    """
    block, place = np.divmod(np.arange(first, first + n_rows), rows_of_size(CPU_BLOCK, n_classes))
    chosen: np.ndarray = (place % step == 0) & (block % blocks_between(step, n_classes) == 0)
    return chosen


def join_samples(thin: Sequence[Block], step: int) -> list[Block]:
    """Blocks of which one row in ``step`` is left, joined to blocks as large as others.

    Thin blocks would cost more in calls than in arithmetic, and larger ones would be too few for many cores.
    """
    groups = [thin[i : i + step] for i in range(0, len(thin), step)]
    return [join_blocks(group) if len(group) > 1 else group[0].every(1) for group in groups]


def one_in(
    step: int, parts: Iterable[tuple[np.ndarray, np.ndarray]], first: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and weights of one row in ``step``, from those of all rows part by part; the first has number ``first``."""
    kept = []
    for statistics, weight in parts:
        begin = -first % step
        kept.append((statistics[begin::step], weight[begin::step].astype(np.float64)))
        first += len(weight)
    return np.concatenate([s for s, _ in kept]), np.concatenate([w for _, w in kept])


def choose_rows(blocks: Sequence[Block], chosen: np.ndarray) -> list[Block]:
    """The rows where ``chosen`` (n_rows,) is true; blocks that keep none are left out."""
    ends = np.cumsum([block.n_rows for block in blocks])
    masks = np.split(chosen, ends[:-1])
    return [block[np.flatnonzero(mask)] for block, mask in zip(blocks, masks, strict=True) if mask.any()]


def some_rows(rows: Rows) -> Rows:
    """About a thousand rows of many: enough for what need not be exact."""
    many = rows.n_rows * rows.n_classes > _ALL_BELOW
    sample = rows.sample() if many else None
    if sample is None:
        return rows
    kept = sample.__dict__  # they are asked for several times
    if "_some" not in kept:
        kept["_some"] = sample.part(np.arange(sample.n_rows) % max(1, sample.n_rows // _COARSE) == 0)
    some: Rows = kept["_some"]
    return some
