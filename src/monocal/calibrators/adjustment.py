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
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, like, to_numpy
from ..engines import compiled, triton_map
from ..inputs.context import NUMBER, ContextReader
from ..solver import Solution
from .depths import ArrayDepths
from .fields_only import FieldsOnly
from .pieces import FEW
from .ramps import RampFactors, check_ramps
from .state import expect
from .statistics import log_odds

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
class Adjustment(FieldsOnly):
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

    def __call__(self, f: Array, at_top: Array, context: np.ndarray | None = None) -> Array:
        """Adjusted logits (n, m) of calibrated logits, both 0 at the top, given the context (n, C) where there is one.

        ``at_top`` (n, m) says which classes had the largest logit at first: what rounding has made equal since is not on top.
        """
        xp = array_namespace(f)
        n_top = xp.sum(xp.astype(at_top, f.dtype), axis=1)
        scale = self.scales(xp.argmax(xp.astype(at_top, xp.int8), axis=1), n_top, context)
        with np.errstate(under="ignore"):
            odds = log_odds(ArrayDepths(-f * scale[:, None], at_top))[:, 0]
        with np.errstate(over="ignore"):
            weight, lift = self.weight_and_lift(odds, context)
        lift = xp.where(n_top > 1, 0 * lift, lift)
        return f * (weight * scale)[:, None] - xp.where(at_top, 0 * lift[:, None], lift[:, None])

    def scales(self, top_class: Array, n_top: Array, context: np.ndarray | None) -> Array:
        """Scales of rows (n,) by what is on top and by their categories, in the library and type of ``n_top``."""
        xp = array_namespace(n_top)
        scale = xp.ones_like(n_top)
        if self.class_scales is not None and self.class_scales.variance > 0:
            scale = xp.where(n_top > 1, scale, like(self.class_scales.scales, n_top)[top_class])
        for i, groups in enumerate(self.column_scales):
            if groups is not None and groups.variance > 0:
                codes = self._column(context, i)
                scale = scale * like(groups.of_rows(codes), n_top)
        return scale

    def weight_and_lift(self, odds: Array, context: np.ndarray | None) -> tuple[Array, Array]:
        """``sum_k psi_k c_k`` and ``A`` of rows (n,) with these log-odds; a ramp that is a step may overflow on its way to 1."""
        numbers = [
            like(self._column(context, i), odds) for i, c in enumerate(self.column_scales) if c is None
        ]
        values = array_namespace(odds).stack([odds, *numbers], axis=1) if numbers else odds[:, None]
        psi = self.factors.where_nothing_warns(values)
        if type(psi) is np.ndarray and len(psi) <= FEW:  # the same sums, in fewer calls
            both = np.add.accumulate(psi[:, None, :] * self._steps_in(psi.dtype), axis=2)
            return both[:, 0, -1], both[:, 1, -1]
        weight, lift = (_mixed(psi, steps) for steps in self.steps)
        return weight, lift

    def on_device(self, device: Any, context: np.ndarray | None) -> triton_map.SecondStage:
        """The same for the kernels of a CUDA device: numbers brought over once, and what the context (n, C) gives each row."""
        key = str(device)
        if key not in self._kept:
            by_class = self.class_scales is not None and self.class_scales.variance > 0
            ramps = self.factors.ramps
            self._kept[key] = triton_map.second_stage(
                device,
                self.class_scales.scales if by_class and self.class_scales is not None else None,
                (np.array([ramp.statistic for ramp in ramps]), self.factors.zeros, self.factors.widths),
                self.steps,
            )
        kept: triton_map.SecondStage = self._kept[key]
        if context is None:
            return kept
        import torch

        terms = np.stack(self._terms(context), axis=1).astype(np.float32)
        return replace(kept, terms=torch.from_numpy(terms).to(device))

    def in_loops(self, context: np.ndarray | None) -> compiled.SecondStage:
        """The same for the compiled loops."""
        if "loops" not in self._kept:
            by_class = self.class_scales is not None and self.class_scales.variance > 0
            of_odds = np.array([ramp.statistic == 0 for ramp in self.factors.ramps], dtype=bool)
            parts = (
                self.class_scales.scales if by_class and self.class_scales is not None else np.zeros(0),
                self.factors.zeros[of_odds],
                self.factors.widths[of_odds],
                self.steps[:, 1:][:, of_odds],
                np.stack(self._terms(None), axis=1) if not self.column_scales else np.zeros((0, 3)),
            )
            self._kept["loops"] = compiled.SecondStage(
                *(np.ascontiguousarray(x, dtype=np.float32) for x in parts)
            )
        kept: compiled.SecondStage = self._kept["loops"]
        if context is None:
            return kept
        return replace(kept, terms=np.stack(self._terms(context), axis=1).astype(np.float32))

    def _terms(self, context: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the context alone gives each row (n,): its scale, and the parts of weight and lift without the log-odds."""
        none = np.zeros(1 if context is None else len(context))
        scale = self.scales(none.astype(np.intp), none + 2.0, context)
        numbers = [self._column(context, i) for i, c in enumerate(self.column_scales) if c is None]
        psi = self.factors.of_statistics(np.stack([none, *numbers], axis=1))
        psi[:, 1:][:, [ramp.statistic == 0 for ramp in self.factors.ramps]] = 0.0
        weight, lift = (_mixed(psi, steps) for steps in self.steps)
        return to_numpy(scale), to_numpy(weight), to_numpy(lift)

    def _steps_in(self, dtype: Any) -> np.ndarray:
        if dtype not in self._kept:
            self._kept[dtype] = self.steps.astype(dtype)
        steps: np.ndarray = self._kept[dtype]
        return steps

    @cached_property
    def has_scales(self) -> bool:
        """Whether any group has a scale of its own."""
        groups = (self.class_scales, *self.column_scales)
        return any(g is not None and g.variance > 0 for g in groups)

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

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

    def _column(self, context: np.ndarray | None, i: int) -> np.ndarray:
        assert context is not None
        codes = context[:, i] - self.typical[i]
        return np.where(np.isnan(codes), 0.0, codes)


def _mixed(psi: Array, steps: np.ndarray) -> Array:
    """``sum_k psi_k steps_k`` of each row, (n,), added in one order whatever the number of rows."""
    total = psi[:, 0] * float(steps[0])
    for k in np.flatnonzero(steps[1:]) + 1:
        total = total + psi[:, k] * float(steps[k])
    return total


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
