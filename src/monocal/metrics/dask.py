"""Metrics of a Dask array of probabilities: each chunk is evaluated where it lies, and evaluations merge."""

from __future__ import annotations

from copy import copy
from functools import reduce
from typing import Any

from ..errors import InputError
from ..inputs.chunks import Box, chunks_of, once, reduce_tasks, task, whole_rows
from ..inputs.layout import ROWS, Layout
from .evaluation import Evaluation
from .streaming import Evaluator, asked_for, merging


def evaluate(
    probs: Any,
    labels: Any,
    *,
    metrics: Any = None,
    sample_weight: Any = None,
    n_boot: int = 0,
    layout: Layout = ROWS,
    **options: Any,
) -> Evaluation:
    """`monocal.evaluate` for a Dask array of probabilities: sums of chunks, merged; of ``metrics``, those that merge.

    Parameters are those of `monocal.evaluate`; intervals (``n_boot``) need all rows in one process.
    """
    names = merging(metrics, n_boot, "probs is a Dask array", "pass probs.compute()")
    given = layout.flat(probs, "probs")
    probs, labels, sample_weight = (
        given.rows,
        given.column(labels, "labels", "probs"),
        given.column(sample_weight, "sample_weight", "probs"),
    )
    shared = once(options)
    chunks = chunks_of(whole_rows(probs), labels, sample_weight)
    tasks = [task(_evaluate, shared, layout.ignore_index, *chunk) for chunk in chunks]
    result: Evaluation = reduce_tasks(tasks, _merge).result()
    return asked_for(result, names, metrics)


def _evaluate(
    options: Box, ignore_index: int | None, probs: Any, labels: Any, weight: Any, first_row: int
) -> Evaluator:
    try:
        return Evaluator(**options.value).update(probs, labels, weight, ignore_index=ignore_index)
    except InputError as error:
        raise InputError(f"In the chunk that begins at row {first_row}: {error}") from None


def _merge(first: Evaluator, *others: Evaluator) -> Evaluator:
    return reduce(Evaluator.merge, others, copy(first))
