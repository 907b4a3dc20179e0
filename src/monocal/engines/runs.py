"""What is summed over a run (`run`) in one call, where the engine works row by row.

What is summed over rows is a function of a block, and of other arguments. `IN_RUNS` says of some of these functions how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from .block import Block
from .interface import hessian, scale_sums, sums, totals
from .point import Point
from .run import Run
from .totals import label_sums, scale_totals

T = TypeVar("T")


@dataclass(frozen=True)
class InRuns:
    """How a function of a block and other arguments is summed over a run."""

    # Of the other arguments: ``whole_scales`` as in `Point`; None where ranks are in columns, which go block by block.
    whole_scales: Callable[..., bool | None]
    # Of the run and the other arguments: the sum.
    total: Callable[..., Any]


def at_point(of_part: Callable[..., Any]) -> InRuns:
    """Of a function of a block, a point and more; ``of_part(block, ends, point, ...)`` is that of many blocks."""

    def total(run: Run, *args: Any) -> Any:
        return run.sum_of_parts(lambda block, ends: of_part(block, ends, *args))

    return InRuns(_whole_scales_at, total)


def of_block(function: Callable[..., T], block: Block, *args: Any) -> T:
    """``function(block, ...)``, by the same steps as over a run."""
    in_runs = IN_RUNS.get(function)
    whole_scales = None if in_runs is None else in_runs.whole_scales(*args)
    if in_runs is None or whole_scales is None or not block.engine.row_by_row(block, whole_scales):
        return function(block, *args)
    return cast(T, in_runs.total(Run.of(block), *args))


def _whole_scales_at(point: Point, *rest: Any) -> bool | None:
    return point.whole_scales if point.begins is None else None


def _whole_scales(whole_scales: bool, begins: np.ndarray | None = None) -> bool | None:
    return whole_scales if begins is None else None


def _one_scale(*args: Any) -> bool:
    return True


def _by_rank(begins: np.ndarray | None = None) -> bool | None:
    return True if begins is None else None


IN_RUNS: dict[Callable[..., Any], InRuns] = {
    totals: InRuns(_whole_scales, lambda run, *args: run.block.engine.totals_of_run(run, *args)),
    sums: InRuns(_whole_scales_at, lambda run, point: run.block.engine.sums_of_run(run, point)),
    hessian: InRuns(_whole_scales_at, lambda run, point: run.block.engine.hessian_of_run(run, point)),
    scale_sums: InRuns(_one_scale, lambda run, scale: run.block.engine.scale_sums_of_run(run, scale)),
    scale_totals: InRuns(_one_scale, lambda run: run.block.engine.scale_totals_of_run(run)),
    label_sums: InRuns(_by_rank, lambda run: run.block.engine.label_sums_of_run(run)),
}
