"""The second stage: how sure a row is, by the class on its top and by what else is known of it.

    f' = W f - A 1[not top],     W = s_class s_column ... (sum_k psi_k c_k) > 0,      A = sum_k psi_k d_k >= 0,

for calibrated logits ``f`` of the first stage, 0 at the top of a row. ``s`` are scales of groups of rows: of those with one class
on top, and of those with one category of a column (`group_scales`). ``psi`` are the constant 1 and ramps, of the log-odds of the
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
from ..engines.point import BIAS, SCALE
from ..inputs.context import NUMBER, ContextReader
from ..objective.cone import RankCone
from ..objective.information import information
from ..objective.short import ShortRows
from ..solver import Solution, minimize
from .cone_calibrator import BIAS_EMPHASIS, PSEUDO_ERRORS, SCALE_EMPHASIS
from .depths import ArrayDepths
from .fields_only import FieldsOnly
from .group_scales import GroupScales, group_scales, level_for, spread_of_groups
from .pieces import FEW
from .ramps import RampFactors, choose_ramps
from .statistics import log_odds

# Chosen by cross-validation on calibration parts (benchmarks/conditional_search.py).
_SHARE = 0.75  # of the first stage's shrinkage
# The variance of scales by class where they are wanted, whatever the evidence: they differ by 5 %.
_WANTED_VARIANCE = 0.05**2


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
                codes = self._column(context, i).astype(np.intp)
                scale = scale * like(np.append(groups.scales, 1.0)[codes], n_top)
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

    def log_odds(self, rows: ShortRows) -> np.ndarray:
        """Log-odds (n,) of the top class of calibrated rows, each with one class on top, after this stage."""
        context = rows.context if self.column_scales else None
        scale = to_numpy(self.scales(rows.top_class, np.ones(len(rows)), context))
        rows = rows.scaled(scale)
        weight, lift = (to_numpy(x) for x in self.weight_and_lift(rows.log_odds(), context))
        odds: np.ndarray = rows.scaled(weight).log_odds() + lift
        return odds

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


def _p_value(rows: ShortRows, values: np.ndarray, n_knots: int, own_share: float) -> float:
    """How often chance alone makes scales change as much with a number: those of its quantiles as groups."""
    levels = np.linspace(0.0, 1.0, n_knots + 2)
    edges = np.unique(np.quantile(values, levels, weights=rows.weight, method="inverted_cdf"))
    # A group begins at each edge but the lowest, so that few different values are groups of their own.
    group = np.searchsorted(edges[1:], values, side="right")
    return spread_of_groups(rows, group, len(edges), own_share)[1]


def fit_adjustment(
    rows: ShortRows,
    context: ContextReader | None,
    n_classes: int,
    *,
    by_class: bool | str,
    n_knots: int,
    shrinkage: float,
    prior_rows: float,
    tol: float,
    max_iter: int,
) -> Adjustment | None:
    """The second stage for calibrated rows; None where no row has one class on top."""
    rows = rows.of(rows.n_top == 1)
    if not len(rows):
        return None
    scale = np.ones(len(rows))
    total = float(rows.weight.sum())
    own_share = prior_rows / (total + prior_rows)

    def grouped(codes: np.ndarray, n_groups: int, **how: Any) -> GroupScales:
        nonlocal scale
        found = group_scales(
            rows.scaled(scale),
            codes,
            n_groups,
            own_share=own_share,
            tol=tol,
            **how,
        )
        scale = scale * np.append(found.scales, 1.0)[codes.astype(np.intp)]
        return found

    class_scales = None
    if by_class:
        wanted = 0.0 if by_class == "auto" else _WANTED_VARIANCE
        class_scales = grouped(rows.top_class, n_classes, least_variance=wanted)
    columns = () if context is None else context.columns
    column_scales: list[GroupScales | None] = []
    typical = np.zeros(len(columns))
    numbers: dict[int, np.ndarray] = {}
    for i, column in enumerate(columns):
        values = rows.context[:, i]
        if column.kind == NUMBER:
            known = ~np.isnan(values)
            if known.any():
                typical[i] = np.quantile(
                    values[known], 0.5, weights=rows.weight[known], method="inverted_cdf"
                )
            numbers[i] = np.where(known, values - typical[i], 0.0)
            column_scales.append(None)
        else:
            column_scales.append(grouped(values, len(column.categories), n_columns=len(columns)))
    rows = rows.scaled(scale)
    values = np.stack([rows.log_odds(), *numbers.values()], axis=1)
    names = ("log_odds", *(columns[i].name for i in numbers))
    p_values = np.array([_p_value(rows, x, n_knots, own_share) for x in numbers.values()])
    used = np.append(0, 1 + np.flatnonzero(p_values <= level_for(rows, max(len(columns), 1))))
    ramps = choose_ramps(values[:, used], rows.weight, n_knots)
    factors = RampFactors(names, tuple(replace(ramp, statistic=int(used[ramp.statistic])) for ramp in ramps))
    prepared = rows.rows(values, factors.of_statistics)
    n_factors, r = factors.n_factors, prepared.n_ranks
    allowed = np.zeros((2, n_factors, r), dtype=bool)
    allowed[SCALE, :, 0] = True
    allowed[BIAS, :, -1] = True
    emphasis = np.ones((2, n_factors, 1))
    emphasis[:, 1:] = np.reshape([SCALE_EMPHASIS, BIAS_EMPHASIS], (2, 1, 1))
    problem = RankCone(
        prepared,
        allowed,
        emphasis=emphasis,
        unit=information(prepared, 1.0, whole_scales=True).unit(total, PSEUDO_ERRORS),
        mirrors=factors.mirrors,
        scale=1.0,
    )
    if prior_rows > 0:
        problem = problem.leaning_on(rows.prior_targets(prepared), own_share)
    solution = minimize(
        problem.with_strength(_SHARE * shrinkage, tol),
        start=problem.start(),
        tol=tol,
        gap_tol=100.0 * tol,
        max_iter=max_iter,
    )
    grid = problem.grid(solution.coefficients)
    return Adjustment(
        class_scales,
        tuple(column_scales),
        typical,
        factors,
        grid.sum(axis=2),
        problem.totals.mean[BIAS, :, 0] / problem.totals.weight,
        solution,
    )
