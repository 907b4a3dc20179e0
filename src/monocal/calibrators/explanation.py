"""What a conditional map does, atom by atom, as data and in words.

A fitted map is a sum of few active atoms. Each says for which samples (a ramp of a statistic, or all), for which classes (the
``n_top`` highest ranks) and what it adds: to the scale of the logits, or to the logits themselves. Adding ``c`` to logits
multiplies the odds of the upper classes against the lower by ``exp(c)``.

The second stage (`adjustment`) says for which top classes and categories all logits are scaled, by how much, and has ramps of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core.engine import BIAS, SCALE
from ..core.statistics import RampFactors, statistic_name
from ..notebook import html_table

# Groups whose scale is nearer to 1 than this are not listed; and the most groups that are listed in words.
_LEAST_EFFECT, _MOST_GROUPS = 0.005, 12


@dataclass(frozen=True)
class Effect:
    """One active atom, of the first stage, or of the second, whose ``log_odds`` are those of calibrated probabilities."""

    kind: str  # "scale" or "bias"
    statistic: str | None  # None: the same for all samples
    side: str | None  # "above" or "below"
    knot: float | None  # where the effect begins
    full_from: float | None  # where it is there in full
    start: int  # first rank concerned, 0 the lowest in use
    n_top: int  # number of ranks concerned, from the top
    coefficient: float  # what is added in full
    mean: float  # what is added on average over the calibration set
    effect: float  # relative to the mean scale of the largest logit; of a bias the factor on the odds
    stage: int = 1

    def __str__(self) -> str:
        who = "all samples"
        if self.statistic is not None:
            who = f"{self.statistic} {self.side} {self.knot:.3g} (in full from {self.full_from:.3g})"
        which = "the top class" if self.n_top == 1 else f"the top {self.n_top}"
        which = which if self.start else "all classes"
        if self.kind == "scale":
            return f"{who}: scale of {which} +{self.coefficient:.3g} ({self.effect:.0%} of the mean scale)"
        return f"{who}: odds of {which} times {self.effect:.3g}"


@dataclass(frozen=True)
class GroupEffect:
    """What a top class, or a category of a column, does to how sure a row is."""

    column: str | None  # of the context; None for the top class
    group: Any  # the class or category
    scale: float  # what all logits are multiplied by; 1 for a group that no calibration row had
    rows: float  # calibration rows of the group

    def __str__(self) -> str:
        who = f"{self.column} {self.group!r}" if self.column else f"when the top class is {self.group!r}"
        return f"{who}: {abs(self.scale - 1):.0%} {'more' if self.scale > 1 else 'less'} sure"


@dataclass(frozen=True)
class Explanation(Sequence[Effect]):
    """Active atoms, those for all samples first, then by mean effect, and groups; ``str`` puts them in words."""

    effects: tuple[Effect, ...]
    n_atoms: int
    mean_scale: float
    groups: tuple[GroupEffect, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        return self.effects[index]

    def __len__(self) -> int:
        return len(self.effects)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dict an effect, for a table."""
        return [asdict(e) for e in self.effects]

    def _repr_html_(self) -> str:
        lines = str(self).splitlines()
        return html_table(lines[0], [(line.strip(),) for line in lines[1:]])

    def __str__(self) -> str:
        first = sum(e.stage == 1 for e in self.effects)
        head = f"{first} of {self.n_atoms} atoms are active; the largest logit is scaled by {self.mean_scale:.3g} on average."
        lines = [head, *(f"  {e}" for e in self.effects if e.stage == 1)]
        if first < len(self) or self.groups:
            lines.append("Then, of calibrated logits:")
            lines += [f"  {e}" for e in self.effects if e.stage == 2]
        most = sorted(self.groups, key=lambda g: -abs(np.log(g.scale)))
        lines += [f"  {g}" for g in most[:_MOST_GROUPS]]
        if len(most) > _MOST_GROUPS:
            lines.append(f"  and {len(most) - _MOST_GROUPS} more classes or categories, each less than that")
        return "\n".join(lines)


def explain(cal: Any) -> Explanation:
    """What a fitted `ConditionalMCCT` does, from its coefficients (2, K, r), the mean of each factor, and its second stage."""
    coefficients, means = cal.coefficients_, cal.factor_means_
    second = getattr(cal, "adjustment_", None)  # files of 0.1 have none
    mean_scale = float(means @ coefficients[SCALE].sum(axis=1))
    zeros = np.zeros(len(cal.factors_.statistics))
    effects = _effects(coefficients, cal.factors_, means, zeros, mean_scale, 1)
    effects.sort(key=lambda e: (e.statistic is not None, e.kind == "bias", -e.mean))
    if second is None:
        return Explanation(tuple(effects), cal.n_atoms_, mean_scale)
    steps = np.zeros((2, second.factors.n_factors, coefficients.shape[2]))
    steps[SCALE, :, 0], steps[BIAS, :, -1] = second.steps
    numbers = [t for t, c in zip(second.typical, second.column_scales, strict=True) if c is None]
    scale = float(second.factor_means @ second.steps[SCALE])
    later = _effects(steps, second.factors, second.factor_means, [0.0, *numbers], scale, 2)
    # All other scales of the second stage are added to the first.
    kept = (e for e in later if e.kind == "bias" or e.statistic is not None)
    effects += sorted(kept, key=lambda e: -e.mean)
    classes = list(getattr(cal, "feature_names_in_", range(cal.n_features_in_)))
    columns = getattr(getattr(cal, "context_", None), "columns", ())
    tables = [(None, classes, second.class_scales)]
    tables += [(c.name, c.categories, g) for c, g in zip(columns, second.column_scales, strict=True)]
    groups = [
        GroupEffect(column, name, float(scale), float(rows))
        for column, names, of_group in tables
        if of_group is not None
        for name, scale, rows in zip(names, of_group.scales, of_group.rows, strict=True)
        if abs(scale - 1.0) >= _LEAST_EFFECT
    ]
    return Explanation(tuple(effects), cal.n_atoms_, mean_scale, tuple(groups))


def _effects(
    coefficients: np.ndarray,
    factors: RampFactors,
    means: np.ndarray,
    typical: Sequence[float] | np.ndarray,
    mean_scale: float,
    stage: int,
) -> list[Effect]:
    """The atoms in use; knots of each statistic are relative to what is ``typical``."""
    r = coefficients.shape[2]
    effects = []
    for kind, k, start in zip(*np.nonzero(coefficients), strict=True):
        c = float(coefficients[kind, k, start])
        statistic, side, knot, full_from = None, None, None, None
        if k:
            ramp = factors.ramps[k - 1]
            statistic, side = statistic_name(factors.statistics[ramp.statistic]), ramp.side
            knot, full_from = (x + float(typical[ramp.statistic]) for x in (ramp.zero, ramp.one))
        effects.append(
            Effect(
                kind="scale" if kind == SCALE else "bias",
                statistic=statistic,
                side=side,
                knot=knot,
                full_from=full_from,
                start=int(start),
                n_top=int(r - start),
                coefficient=c,
                mean=c * float(means[k]),
                effect=c / mean_scale if kind == SCALE else float(np.exp(c)),
                stage=stage,
            )
        )
    return effects
