"""A fitted map in standard operators of ONNX.

    x = z - max z;   sorted by TopK;   f_(i) = w_i (x_(i) - x_low) + b_i;   tied ranks take the mean of theirs;
    back to the classes by ScatterElements;   p = exp(round(f - max f)) / sum.

The order is exact for the same reasons as in `calibration.rank_map` (every step rounds monotonically) and `arrays.ordered_exp`
(the argument of Exp is rounded to a grid coarser than the error of any implementation). Ranks are static, so weights and
biases are constants of the graph. Groups of ties are found by counting: ``g = CumSum(x_(i) != x_(i-1))`` numbers them,
a scatter-add of ones sizes them, and differences of ``CumSum(f)`` in double precision sum them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import EXP_GRID
from ..calibration.statistics import STATISTICS
from ..ranks.ranked import LARGEST
from .onnx_adjustment import adjusted
from .onnx_depths import OnnxDepths
from .onnx_graph import Graph
from .plan import Plan


def calibrated(g: Graph, plan: Plan, source: str, output: str, context: str = "") -> str:
    """Name of the tensor of calibrated probabilities or logits of the tensors ``source`` and, where there is one, ``context``."""
    z = (
        source
        if plan.smallest_probability is None
        else log_probabilities(g, source, plan.smallest_probability)
    )
    masked = g.op("IsInf", z, detect_positive=0)
    x = g.op("Sub", z, g.reduce("Max", z))
    x = g.op("Max", x, g.constant(-LARGEST))
    x = g.op("Where", masked, g.constant(-np.inf), x)
    f = _rank_map(g, plan, x, masked, from_top=output == "probabilities")
    f = g.op("Where", masked, g.constant(-np.inf), f)
    if plan.adjustment is not None:
        if output == "probabilities":  # measured from the top, where rounding does no harm
            f = g.op("Sub", f, g.reduce("Max", f))
        f = adjusted(g, plan.adjustment, f, g.op("Equal", z, g.reduce("Max", z)), context)
    if output == "probabilities":
        return _lift_top(g, softmax(g, f), source)
    return _lift_top(g, f, source)


def _rank_map(g: Graph, plan: Plan, x: str, masked: str, from_top: bool) -> str:
    """Calibrated logits of ``x = z - max z``; those of masked classes mean nothing.

    ``from_top``, where all classes have one weight, less what they have in common: measured from the lowest, a class that a
    large number hides (-1e9) would take the last digits of all others.
    """
    m, r = plan.n_classes, plan.n_ranks
    zero = g.constant(0.0)
    sorted_x: Any = None
    index: Any = None
    if len(plan.jumps) or r < m:
        sorted_x, index = g.op("TopK", x, g.integers([r]), outputs=2, axis=-1, largest=1, sorted=1)
    in_use = x if sorted_x is None else sorted_x
    low = g.reduce("Min", g.op("Where", g.op("IsInf", in_use), zero, in_use))
    w, b = _pieces(g, plan, x, masked)
    if not len(plan.jumps):
        return g.op("Add", g.op("Mul", x if from_top else g.op("Sub", x, low), w), b)
    piece = g.integers(plan.pieces[::-1].copy())  # TopK sorts from the top down
    u = g.op("Max", g.op("Sub", sorted_x, low), zero)
    f = g.op("Add", g.op("Mul", u, g.op("Gather", w, piece, axis=-1)), g.op("Gather", b, piece, axis=-1))
    f = _mean_of_ties(g, f, sorted_x)
    if r == m:
        return g.op("ScatterElements", x, index, f, axis=-1)
    # Below the top k all classes have the lowest rank's parameters; those tied with it share its group's mean.
    equal = g.op("Equal", x, low)
    held = g.op("Equal", sorted_x, low)
    ties, kept = (g.reduce("Sum", g.cast(flags, g.dtype)) for flags in (equal, held))
    lowest = g.columns(b, 0, 1)  # u = 0 there
    in_group = g.op("Add", lowest, g.op("Mul", g.op("Sub", f, lowest), g.op("Div", kept, ties)))
    in_group = g.op("Min", g.op("Max", in_group, lowest), f)
    f = g.op("Where", held, in_group, f)
    w_low, b_low = (g.columns(table, 0, 1) for table in (w, b))
    tail = g.op("Add", g.op("Mul", g.op("Sub", x, low), w_low), b_low)
    tail = g.op("Where", equal, g.reduce("Min", f), tail)
    return g.op("ScatterElements", tail, index, f, axis=-1)


def _pieces(g: Graph, plan: Plan, x: str, masked: str) -> tuple[str, str]:
    """Weight and bias of each piece, (..., J + 1), or (1, J + 1) where they are the same for all rows."""
    steps = [s.astype(g.dtype) for s in (plan.scale_steps, plan.bias_steps)]
    if not len(plan.ramp_zero):
        weight, bias = (g.constant(np.cumsum(s, axis=1, dtype=g.dtype)) for s in steps)
        return weight, bias
    zero = g.constant(0.0)
    v = OnnxDepths(g, g.op("Where", masked, zero, g.op("Neg", x)), g.op("Equal", x, zero), masked)
    values = [g.cast(STATISTICS[str(s)](v).name, g.dtype) for s in plan.statistics]
    q = g.op("Gather", g.op("Concat", *values, axis=-1), g.integers(plan.ramp_statistic), axis=-1)
    psi = g.op("Div", g.op("Sub", q, g.constant(plan.ramp_zero)), g.constant(plan.ramp_width))
    psi = g.op("Max", g.op("Min", psi, g.constant(1.0)), g.constant(0.0))
    w, b = (
        g.op("Add", g.op("MatMul", psi, g.constant(s[1:])), g.constant(s[:1]))  # the first factor is 1
        for s in steps
    )
    return g.running_sum(w), g.running_sum(b)


def _mean_of_ties(g: Graph, f: str, sorted_x: str) -> str:
    """Give equal ``sorted_x`` the mean of their ``f``; exactly ``f`` where these are equal too."""
    end = 2**31
    new = g.op(
        "Not", g.op("Equal", g.columns(sorted_x, 1, end), g.columns(sorted_x, 0, -1))
    )  # begins a group
    first_column = g.op("Mul", g.cast(g.columns(sorted_x, 0, 1), np.int64), g.integers(0))
    group = g.running_sum(g.op("Concat", first_column, g.cast(new, np.int64), axis=-1))
    none = g.op("Mul", group, g.integers(0))
    one = g.op("Add", none, g.integers(1))
    sizes = g.op("ScatterElements", none, group, one, axis=-1, reduction="add")
    size = g.take(sizes, group)
    first = g.take(g.running_sum(sizes, exclusive=True), group)
    last = g.op("Sub", g.op("Add", first, size), g.integers(1))
    f_first, f_last = g.take(f, first), g.take(f, last)
    double = g.cast(f, np.float64)
    total = g.running_sum(double)
    sums = g.op("Add", g.op("Sub", g.take(total, last), g.take(total, first)), g.take(double, first))
    mean = g.cast(g.op("Div", sums, g.cast(size, np.float64)), g.dtype)
    return g.op("Min", g.op("Max", mean, f_last), f_first)


def softmax(g: Graph, f: str) -> str:
    grid = EXP_GRID[g.dtype.name]
    d = g.op("Sub", f, g.reduce("Max", f))
    d = g.op("Mul", g.op("Round", g.op("Mul", d, g.constant(grid))), g.constant(1.0 / grid))
    e = g.op("Exp", d)
    total = g.reduce("Sum", g.cast(e, np.float64))  # a runtime's sums are not compensated
    return g.op("Mul", e, g.cast(g.op("Reciprocal", total), g.dtype))


def log_probabilities(g: Graph, p: str, smallest: float) -> str:
    """Logarithms, in double precision so that they cannot change places; a zero stands for half the smallest positive.

    That may be smaller than any number of the type of ``p``, so it is halved by its logarithm.
    """

    def double(x: float) -> str:
        return g.constant(x, np.float64)

    positive = g.op("Greater", p, g.constant(0.0))
    logs = g.op("Log", g.cast(g.op("Where", positive, p, g.constant(1.0)), np.float64))
    least = g.reduce("Min", g.op("Where", positive, logs, double(np.inf)))
    half = g.op("Sub", g.op("Min", least, double(np.log(smallest))), double(np.log(2.0)))
    return g.cast(g.op("Where", positive, logs, half), g.dtype)


def _lift_top(g: Graph, values: str, source: str) -> str:
    """Lift the top of a row where rounding has made it equal to a lower class, so that argmax names the same as before."""
    moved = g.op(
        "Not",
        g.op(
            "Equal", g.op("ArgMax", values, axis=-1, keepdims=1), g.op("ArgMax", source, axis=-1, keepdims=1)
        ),
    )
    at_top = g.op("Equal", source, g.reduce("Max", source))
    top = g.reduce("Max", values)  # not negative: anchored logits and probabilities both
    # Not times 1 + eps: runtimes that compare in single precision drop that as a product with 1.
    up = g.op("Add", top, g.op("Mul", top, g.constant(np.finfo(g.dtype).eps)))
    up = g.op("Max", up, g.constant(np.finfo(g.dtype).tiny))
    return g.op("Where", g.op("And", moved, at_top), up, values)
