"""Metrics of a Dask array of probabilities: each chunk is evaluated where it lies, and evaluations merge."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import reduce
from typing import Any

from ..errors import InputError
from ..rows.chunks import Box, chunks_of, once, reduce_tasks, task, whole_rows
from .evaluation import Evaluation
from .registry import METRICS, chosen
from .streaming import Evaluator


def evaluate(
    probs: Any,
    labels: Any,
    *,
    metrics: Any = None,
    sample_weight: Any = None,
    n_boot: int = 0,
    **options: Any,
) -> Evaluation:
    """`monocal.evaluate` for a Dask array of probabilities: sums of chunks, merged; of ``metrics``, those that merge.

    Parameters are those of `monocal.evaluate`; intervals (``n_boot``) need all rows in one process.
    """
    names = (
        chosen(metrics)
        if metrics is not None
        else [name for name in chosen(None, probs.shape[1]) if METRICS[name].merges]
    )
    apart = [name for name in names if not METRICS[name].merges]
    if apart:
        raise InputError(
            f"metrics: {', '.join(apart)} need all rows in one process, but probs is a Dask array. Leave them out or pass "
            "probs.compute()."
        )
    if n_boot:
        raise InputError(
            "n_boot: intervals need all rows in one process, but probs is a Dask array. Pass probs.compute()."
        )
    shared = once(options)
    chunks = chunks_of(whole_rows(probs), labels, sample_weight)
    tasks = [task(_evaluate, shared, *chunk) for chunk in chunks]
    result: Evaluation = reduce_tasks(tasks, _merge).result()
    return replace(result, estimates={name: result[name] for name in names})


def _evaluate(options: Box, probs: Any, labels: Any, weight: Any, first_row: int) -> Evaluator:
    try:
        return Evaluator(**options.value).update(probs, labels, weight)
    except InputError as error:
        raise InputError(f"In the chunk that begins at row {first_row}: {error}") from None


def _merge(first: Evaluator, *others: Evaluator) -> Evaluator:
    return reduce(Evaluator.merge, others, copy(first))
