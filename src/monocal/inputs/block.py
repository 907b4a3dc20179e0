"""Checked rows as a prepared block, by the engine that suits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, to_numpy
from ..core.ranked import Ranked
from ..engines.block import Block
from ..engines.choice import engine_for
from ..engines.run import SHARED
from ..parallel import parallel_map, row_slices
from .reader import Checked


def prepare_block(rows: Checked, *, top_class: bool = False, **how: Any) -> Block:
    """Rows for the solver. With ``top_class`` it is known which class is on top; the other keywords are those of
    `Engine.prepare`."""
    engine = engine_for(rows.logits, how.get("dtype"))
    block = engine.prepare(rows.logits, rows.labels, rows.weight, **how)
    return replace(block, top_class=_top(rows.logits) if top_class else None, context=rows.context)


def prepare_in_place(
    rows: Checked,
    depths: np.ndarray,
    *,
    top_class: bool = False,
    statistics: Sequence[Callable[[Ranked], Array]] = (),
    dtype: object = None,
    **how: Any,
) -> Block | None:
    """The same for all ranks of any number of rows, on threads, in an array for their depths; None where an engine does not do
    so. Rows that are higher than `LARGEST` must be prepared again."""
    engine = engine_for(rows.logits, dtype)
    block = engine.prepare_in_place(
        rows.logits, rows.labels, rows.weight, depths, SHARED, measured=bool(statistics)
    )
    if block is None:
        return None
    ranked, cuts = block.rows, row_slices(rows.logits)
    stats = top = None
    if statistics:
        stats = np.concatenate(parallel_map(lambda cut: engine.measure(ranked[cut], statistics), cuts))
    if top_class:
        top = np.concatenate(parallel_map(lambda cut: _top(rows.logits[cut]), cuts))
    without = replace(ranked, measured=None)
    return replace(block, rows=without, statistics=stats, top_class=top, context=rows.context)


def _top(logits: Array) -> np.ndarray:
    return to_numpy(array_namespace(logits).argmax(logits, axis=1))
