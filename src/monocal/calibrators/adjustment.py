"""The second stage: how sure a row is, by the class on its top and by its context.

    f' = W f - A 1[not top],     W = s_class s_column ... (sum_k psi_k c_k) > 0,      A = sum_k psi_k d_k >= 0,

for calibrated logits ``f`` of the first stage, 0 at the top of a row. ``s`` are scales of groups of rows: of those with one class
on top, and of those with one category of a column. ``psi`` are the constant 1 and ramps, of the log-odds of the
top class after those scales, and of numbers that are known of the row. ``W`` and ``A`` are constants within a row, so the order
stands: a larger ``f`` stays larger, and only the top is lifted above the others. Where several classes share the top, no class is
predicted: the row takes the scale 1 and is not lifted, and it teaches nothing about rows that have a top.

Scales come first and ramps last. A scale by class mends each class alone, so errors of several classes that cancelled before may
no longer cancel. The ramps then make the confidence right on average, at every level of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.ramps import RampFactors
from ..inputs.context import NUMBER, ContextReader
from ..solver import Solution
from .rank_map import check_ramps
from .state import expect

# Scales of groups stay within these bounds.
LOWEST, HIGHEST = 0.02, 50.0


@dataclass(frozen=True)
class GroupScales:
    """The scales of groups and what spoke for them.

    Attributes
    ----------
    scales : ndarray of shape (G,)
    variance : float
        Of the scales, as the rows suggest it; 0: the groups differ by no more than chance.
    p_value : float
        How often chance alone makes groups differ as much.
    rows : ndarray of shape (G,)
        Weight of each group.
    residual : float
        Largest violation of the optimality conditions, a row of the calibration set.
    level : float
        The largest p-value at which scales are used.
    """

    scales: np.ndarray
    variance: float
    p_value: float
    rows: np.ndarray
    residual: float
    level: float

    def of(self, chosen: np.ndarray) -> GroupScales:
        """Those of the groups where ``chosen`` (G,) is true."""
        return replace(self, scales=self.scales[chosen], rows=self.rows[chosen])

    def of_rows(self, group: np.ndarray) -> np.ndarray:
        """Scales (n,) of rows by the number of their group; 1 for -1."""
        each: np.ndarray = np.append(self.scales, 1.0)[group.astype(np.intp)]
        return each

    def in_words(self, groups: str) -> str:
        """What was decided about these groups (in the plural), and why."""
        if self.variance == 0:
            return f"one scale for all: scales of {groups} differ by no more than chance"
        scales = self.scales[self.rows > 0]
        why = (
            f"{groups} differ by more than chance" if self.p_value <= self.level else "asked for in any case"
        )
        return f"scales from {scales.min():.3g} to {scales.max():.3g}: {why} (p = {self.p_value:.1g})"


@dataclass(frozen=True)
class Adjustment:
    """The second stage, fitted.

    Attributes
    ----------
    class_scales : GroupScales or None
        By top class; None where they were not asked for.
    column_scales : tuple of GroupScales or None
        By category, for each column of the context; None for a column of numbers.
    typical : ndarray of shape (C,)
        The median of the calibration rows, which stands for a missing number; 0 for categories.
    factors : RampFactors
        Of the log-odds and of the columns of numbers, less what is typical.
    steps : ndarray of shape (2, K)
        ``c`` and ``d``, by factor.
    factor_means : ndarray of shape (K,)
    solution : monocal.solver.Solution
        With the certificate for ``steps``.
    """

    class_scales: GroupScales | None
    column_scales: tuple[GroupScales | None, ...]
    typical: np.ndarray
    factors: RampFactors
    steps: np.ndarray
    factor_means: np.ndarray
    solution: Solution

    @property
    def residual(self) -> float:
        """Largest violation of the optimality conditions by the scales of any group."""
        groups = [g for g in (self.class_scales, *self.column_scales) if g is not None]
        return max((g.residual for g in groups), default=0.0)

    def without_empty(self, context: ContextReader) -> tuple[Adjustment, ContextReader]:
        """The same without the categories of which no row had any weight: nothing is known of them."""
        pairs = [
            (scales, column) if scales is None else (scales.of(scales.rows > 0), column.of(scales.rows > 0))
            for scales, column in zip(self.column_scales, context.columns, strict=True)
        ]
        column_scales, columns = zip(*pairs, strict=True)
        return replace(self, column_scales=column_scales), replace(context, columns=columns)


def check_adjustment(calibrator: Any, value: Any, name: str) -> None:
    """Scales of groups and ramps for the classes and the columns of context that there are."""
    if value is None:
        return
    expect(isinstance(value, Adjustment), name, value, "a second stage")
    if value.class_scales is not None:
        _check_scales(value.class_scales, calibrator.n_features_in_, f"{name}.class_scales")
    columns = getattr(getattr(calibrator, "context_", None), "columns", ())
    fits = isinstance(value.column_scales, tuple) and len(value.column_scales) == len(columns)
    expect(fits, f"{name}.column_scales", value.column_scales, "one entry for each column of context")
    expect(np.shape(value.typical) == (len(columns),), f"{name}.typical", value.typical)
    numbers = [column for column in columns if column.kind == NUMBER]
    for column, scales in zip(columns, value.column_scales, strict=True):
        expect((scales is None) == (column.kind == NUMBER), f"{name}.column_scales", scales)
        if scales is not None:
            _check_scales(scales, len(column.categories), f"{name}.column_scales")
    expect(isinstance(value.factors, RampFactors), f"{name}.factors", value.factors, "ramps")
    check_ramps(value.factors, 1 + len(numbers), f"{name}.factors")
    steps, shape = np.asarray(value.steps), (2, value.factors.n_factors)
    expect(steps.shape == shape and (steps >= 0).all(), f"{name}.steps", steps, "numbers not below 0")
    expect(steps[0, 0] > 0, f"{name}.steps", steps, "a scale above 0")


def _check_scales(value: Any, n_groups: int, name: str) -> None:
    expect(isinstance(value, GroupScales), name, value, "scales of groups")
    scales = np.asarray(value.scales)
    expect(scales.shape == (n_groups,), name, scales, f"{n_groups} scales")
    expect((scales >= LOWEST) & (scales <= HIGHEST), name, scales, f"scales from {LOWEST} to {HIGHEST}")
