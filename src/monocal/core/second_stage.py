"""The second stage of a map: how sure a row is, by the class on its top and by what else is known of it.

    g' = W g + A below the top,     W = s_class s_column ... (sum_k psi_k c_k) > 0,      A = sum_k psi_k d_k >= 0,

for depths ``g`` of calibrated logits below the top. ``s`` are scales of groups of rows: of those with one class on top, and of
those with one category of a column. ``psi`` are the constant 1 and ramps, of the log-odds of the top class after those scales,
and of numbers that are known of the row. ``W`` and ``A`` are constants within a row, so the order stands. Where several classes
share the top, no class is predicted: the row takes the scale 1 of classes and is not lifted.

Written for every array library, as `core.map` is; `second_step` makes its numbers from a fitted stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .libraries import ramps_of
from .statistics import Depths, log_odds


def second_step(fitted: Any) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Plain data and arrays of a fitted second stage (`calibrators.adjustment`); None and nothing without one."""
    if fitted is None:
        return None, {}
    by_class = fitted.class_scales is not None and fitted.class_scales.variance > 0
    columns = fitted.column_scales
    static = {
        "by_class": by_class,
        "categories": [None if c is None else len(c.scales) for c in columns],
        "n_ramps": len(fitted.factors.ramps),
    }
    arrays = {
        # The scale of a category that no calibration row had is 1.
        **{f"column_{i}": np.append(c.scales, 1.0) for i, c in enumerate(columns) if c is not None},
        "typical": fitted.typical,
        "second_steps": fitted.steps,
    }
    table = fitted.factors.table
    arrays["second_statistic"], arrays["second_zero"], arrays["second_width"] = table
    if by_class:
        arrays["class_scales"] = fitted.class_scales.scales
    return static, arrays


def second_stage(
    g: Any,
    lower: Any,
    top_class: Any,
    masked: Any,
    a: dict[str, Any],
    s: dict[str, Any],
    xp: Any,
    context: Any,
    times: Any = None,
) -> Any:
    """``g'`` (L, n) of ``g``, the top first, whose class is ``top_class`` (n,); ``lower`` says what lies below it.

    The last class stands for ``times`` (n,) equal ones, where that is given.
    """
    shared = None
    if g.shape[0] > 1:
        shared = ~lower[1, ...] if masked is None else ~(lower[1, ...] | masked[1, ...])
    scale, numbers = of_context(context, a, s, xp, g.dtype)
    if s["by_class"]:
        of_class = xp.take(a["class_scales"], top_class, axis=0)
        of_class = of_class if shared is None else xp.where(shared, xp.filled(of_class, 1.0), of_class)
        scale = of_class if scale is None else of_class * scale
    odds = None
    if s["n_ramps"]:
        odds = log_odds(Depths(g if scale is None else g * scale, masked, xp, times=times))
    weight, lift = weight_and_lift(odds, numbers, a, g[0, ...], xp)
    if shared is not None:
        lift = xp.where(shared, xp.filled(lift, 0.0), lift)
    g = g * (weight if scale is None else weight * scale)
    return xp.where(lower, g + lift, g)


def weight_and_lift(odds: Any, numbers: list[Any], a: dict[str, Any], like: Any, xp: Any) -> tuple[Any, Any]:
    """``sum_k psi_k c_k`` and ``A`` of rows (n,) with these log-odds and numbers, in the type and length of ``like``."""
    steps = a["second_steps"]
    if odds is None:
        both = steps + 0 * like
    else:
        values = [xp.astype(x, like.dtype, copy=False) for x in (odds, *numbers)]
        values = xp.stack(values, axis=0) if numbers else values[0][None, :]
        psi = ramps_of(values, a["second_statistic"], a["second_zero"], a["second_width"], xp)
        both = xp.mixed(xp.permute_dims(steps, (1, 0)), psi)
    return both[0, ...], both[1, ...]


def of_context(
    context: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, dtype: Any
) -> tuple[Any, list[Any]]:
    """The scale (n,) that the categories of each row have together, None where there are none; and its numbers."""
    scale, numbers = None, []
    for i, count in enumerate(s["categories"]):
        column = context[:, i]
        if count is None:
            # In double precision: a time, say, is large relative to its differences.
            away = xp.double(column) - a["typical"][i]
            numbers.append(xp.astype(xp.where(xp.isnan(away), xp.filled(away, 0.0), away), dtype))
            continue
        valid = (column >= 0) & (column < count)
        code = xp.astype(xp.where(valid, column, xp.filled(column, float(count))), xp.int64)
        of_column = xp.take(a[f"column_{i}"], code, axis=0)
        scale = of_column if scale is None else scale * of_column
    return scale, numbers


def terms_of_context(context: Any, a: dict[str, Any], s: dict[str, Any], like: Any, xp: Any) -> Any:
    """What the context gives each row (n, 3): its scale, and the parts of weight and lift without the log-odds.

    For loops and kernels, which know the log-odds alone; ``like`` (n,) has their type.
    """
    scale, numbers = of_context(context, a, s, xp, like.dtype)
    one = xp.ones_like(like)
    both = a["second_steps"][:, :1] * one
    if s["n_ramps"]:
        values = xp.stack([0 * one, *numbers], axis=0)
        psi = ramps_of(values, a["second_statistic"], a["second_zero"], a["second_width"], xp)
        psi = xp.where(a["second_statistic"][:, None] > 0, psi, 0 * psi)
        both = both + xp.sum(a["second_steps"][:, 1:, None] * psi[None, ...], axis=1)
    return xp.stack([one if scale is None else scale, both[0, ...], both[1, ...]], axis=1)
