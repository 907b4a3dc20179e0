"""Many blocks that lie one after another, in one call: threads that call Python for every block wait for one another.

    a run:   the blocks of a thread as one block, and the ends of each in it, (B,)

What is summed over rows is a function of a block. `IN_RUNS` says of some of these functions how they are summed over runs where
the engine works row by row. The sum is that of block after block, to the last bit, however blocks are dealt out to runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import iadd
from typing import Any

import numpy as np

from .block import Block
from .interface import hessian, sums, totals
from .point import Point

Run = tuple[Block, np.ndarray]
# ``[function(run) for run in runs]``, on threads or not.
RunMap = Callable[[Callable[[Run], Any], Sequence[Run]], list[Any]]


@dataclass(frozen=True)
class InRuns:
    """How a function of a block and other arguments is summed over runs."""

    # Of the other arguments: ``whole_scales`` as in `Point`; None where ranks are in columns, which go block by block.
    whole_scales: Callable[..., bool | None]
    # Of the runs, how to map them, and the other arguments: the sum.
    total: Callable[..., Any]

    def suits(self, blocks: Sequence[Block], args: tuple[Any, ...]) -> bool:
        """Whether blocks may be taken in runs."""
        whole_scales = self.whole_scales(*args)
        return whole_scales is not None and all(b.engine.row_by_row(b, whole_scales) for b in blocks)


def at_point(of_each: Callable[..., list[Any]]) -> InRuns:
    """Of a function of a block, a point and more; ``of_each(block, ends, point, ...)`` gives a list that adds up."""

    def total(runs: Sequence[Run], run_map: RunMap, *args: Any) -> Any:
        return reduce(iadd, chain.from_iterable(run_map(lambda run: of_each(*run, *args), runs)))

    return InRuns(_whole_scales_at, total)


def _whole_scales_at(point: Point, *rest: Any) -> bool | None:
    return point.whole_scales if point.begins is None else None


def _whole_scales(whole_scales: bool, begins: np.ndarray | None = None) -> bool | None:
    return whole_scales if begins is None else None


IN_RUNS: dict[Callable[..., Any], InRuns] = {
    totals: InRuns(_whole_scales, lambda runs, *args: runs[0][0].engine.totals_of_runs(runs, *args)),
    sums: at_point(lambda block, ends, point: block.engine.sums_of_each(block, ends, point)),
    hessian: at_point(lambda block, ends, point: block.engine.hessians_of_each(block, ends, point)),
}
