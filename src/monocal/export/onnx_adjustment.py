"""The second stage of a conditional map in operators of ONNX: ``f' = W f + A 1[top]``; see `calibration.adjustment`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..calibration.statistics import log_odds
from .onnx_depths import OnnxDepths
from .plan import AdjustmentPlan

if TYPE_CHECKING:
    from .onnx_graph import Graph


def adjusted(g: Graph, plan: AdjustmentPlan, f: str, at_top: str, context: str) -> str:
    """Name of the tensor of adjusted logits of the calibrated logits ``f``, with flags of what was on top at first and the
    tensor ``context`` (..., C)."""
    masked = g.op("IsInf", f, detect_positive=0)
    top = g.reduce("Max", f)
    n_top = g.reduce("Sum", g.cast(at_top, g.dtype))
    one = g.constant(1.0)
    shared = g.op("Greater", n_top, one)
    scale = g.op("Mul", n_top, g.constant(0.0))
    scale = g.op("Add", scale, one)
    if plan.class_scales is not None:
        found = g.op(
            "Gather",
            g.constant(plan.class_scales),
            g.op("ArgMax", g.cast(at_top, np.float32), axis=-1, keepdims=1),
            axis=0,
        )
        scale = g.op("Where", shared, scale, found)
    numbers = []
    for i, table in enumerate(plan.column_scales):
        codes = g.columns(context, i, i + 1)
        if table is None:
            away = g.op("Sub", codes, g.constant(plan.typical[i], np.float64))
            away = g.op("Where", g.op("IsNaN", codes), g.constant(0.0, np.float64), away)
            numbers.append(g.cast(away, g.dtype))
            continue
        count = float(len(table) - 1)
        below = g.op("Less", codes, g.constant(0.0, np.float64))
        beyond = g.op("Not", g.op("Less", codes, g.constant(count, np.float64)))
        index = g.op("Where", g.op("Or", below, beyond), g.constant(count, np.float64), codes)
        scale = g.op("Mul", scale, g.op("Gather", g.constant(table), g.cast(index, np.int64), axis=0))
    x = g.op("Where", masked, top, f)
    depth = g.op("Mul", g.op("Sub", top, x), scale)
    weight, lift = (g.constant(s[:1]) for s in plan.steps)
    if len(plan.ramp_zero):
        odds = g.cast(log_odds(OnnxDepths(g, depth, at_top, masked)).name, g.dtype)
        q = g.op("Concat", odds, *numbers, axis=-1) if numbers else odds
        q = g.op("Gather", q, g.integers(plan.ramp_statistic), axis=-1)
        psi = g.op("Div", g.op("Sub", q, g.constant(plan.ramp_zero)), g.constant(plan.ramp_width))
        psi = g.op("Max", g.op("Min", psi, one), g.constant(0.0))
        weight, lift = (
            g.op("Add", g.reduce("Sum", g.op("Mul", psi, g.constant(s[1:]))), g.constant(s[:1]))
            for s in plan.steps
        )
    lifted = g.op("Where", g.op("And", at_top, g.op("Not", shared)), lift, g.constant(0.0))
    moved = g.op("Add", g.op("Mul", x, g.op("Mul", weight, scale)), lifted)
    return g.op("Where", masked, g.constant(-np.inf), moved)
