"""Rank maps and affine maps one after another in standard operators of ONNX."""

from __future__ import annotations

import numpy as np

from ..ranks.ranked import LARGEST
from .chain import AffinePlan, Chain
from .onnx_graph import Graph
from .onnx_map import calibrated, log_probabilities, softmax
from .plan import Plan


def chained(g: Graph, plan: Plan | Chain, source: str, output: str, context: str = "") -> str:
    """Name of the tensor of calibrated probabilities or logits of the tensors ``source`` and, where there is one, ``context``."""
    if isinstance(plan, Plan):
        return calibrated(g, plan, source, output, context)
    z = source
    if plan.smallest_probability is not None:
        z = log_probabilities(g, source, plan.smallest_probability)
    for step in plan.steps[:-1]:
        z = _affine(g, step, z) if isinstance(step, AffinePlan) else calibrated(g, step, z, "logits")
    last = plan.steps[-1]
    if isinstance(last, Plan):
        return calibrated(g, last, z, output)
    f = _affine(g, last, z)
    return softmax(g, f) if output == "probabilities" else f


def _affine(g: Graph, plan: AffinePlan, z: str) -> str:
    masked = g.op("IsInf", z, detect_positive=0)
    x = g.op("Mul", g.op("Sub", z, g.reduce("Max", z)), g.constant(plan.scale))
    if plan.floor:
        e = g.op("Exp", x)
        p = g.op("Mul", e, g.op("Div", g.constant(1.0 - plan.floor), g.reduce("Sum", e)))
        x = g.op("Log", g.op("Add", p, g.constant(plan.floor / len(plan.intercept))))
    else:
        x = g.op("Max", x, g.constant(-LARGEST))
    x = g.op("Where", masked, g.constant(plan.centre), x)
    if plan.coef.ndim == 2:
        f = g.op("MatMul", x, g.constant(plan.coef.T))
    else:
        f = g.op("Mul", x, g.constant(plan.coef))
    return g.op("Where", masked, g.constant(-np.inf), g.op("Add", f, g.constant(plan.intercept)))
