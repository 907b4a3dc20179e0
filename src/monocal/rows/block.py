"""Checked rows as a prepared block, by the engine that suits them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..arrays import array_namespace, to_numpy
from ..kernel.block import Block
from ..kernel.choice import engine_for
from .reader import Checked


def prepare_block(rows: Checked, *, top_class: bool = False, **how: Any) -> Block:
    """Rows for the solver. With ``top_class`` it is known which class is on top; the other keywords are those of
    `Engine.prepare`."""
    engine = engine_for(rows.logits, how.get("dtype"))
    block = engine.prepare(rows.logits, rows.labels, rows.weight, **how)
    top = to_numpy(array_namespace(rows.logits).argmax(rows.logits, axis=1)) if top_class else None
    return replace(block, top_class=top, context=rows.context)
