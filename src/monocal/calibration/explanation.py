"""What a conditional map does, atom by atom, as data and in words.

A fitted map is a sum of few active atoms. Each says for which samples (a ramp of a statistic, or all), for which classes (the
``n_top`` highest ranks) and what it adds: to the scale of the logits, or to the logits themselves. Adding ``c`` to logits
multiplies the odds of the upper classes against the lower by ``exp(c)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np

from ..kernel.point import SCALE
from .ramps import RampFactors
from .statistics import statistic_name


@dataclass(frozen=True)
class Effect:
    """One active atom.

    Attributes
    ----------
    kind : {"scale", "bias"}
    statistic : str or None
        None: the same for all samples.
    side : {"above", "below"} or None
    knot, full_from : float or None
        The effect begins at ``knot`` and is there in full from ``full_from`` on.
    start : int
        First rank concerned, 0 the lowest in use.
    n_top : int
        Number of ranks concerned, from the top.
    coefficient : float
        What is added in full.
    mean : float
        What is added on average over the calibration set.
    effect : float
        Scale: ``coefficient`` relative to the mean scale of the largest logit. Bias: the factor ``exp(coefficient)`` on the odds.
    """

    kind: str
    statistic: str | None
    side: str | None
    knot: float | None
    full_from: float | None
    start: int
    n_top: int
    coefficient: float
    mean: float
    effect: float

    def __str__(self) -> str:
        if self.statistic is None:
            who = "all samples"
        else:
            who = f"{self.statistic} {self.side} {self.knot:.3g} (in full from {self.full_from:.3g})"
        which = (
            "all classes"
            if self.start == 0
            else f"the top {self.n_top}"
            if self.n_top > 1
            else "the top class"
        )
        if self.kind == "scale":
            return f"{who}: scale of {which} +{self.coefficient:.3g} ({self.effect:.0%} of the mean scale)"
        return f"{who}: odds of {which} times {self.effect:.3g}"


@dataclass(frozen=True)
class Explanation(Sequence[Effect]):
    """Active atoms, those for all samples first, then by mean effect; ``str`` puts them in words."""

    effects: tuple[Effect, ...]
    n_atoms: int
    mean_scale: float

    @overload
    def __getitem__(self, index: int) -> Effect: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Effect, ...]: ...
    def __getitem__(self, index: int | slice) -> Effect | tuple[Effect, ...]:
        return self.effects[index]

    def __len__(self) -> int:
        return len(self.effects)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.effects)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dict an effect, for a table."""
        return [asdict(e) for e in self.effects]

    def __str__(self) -> str:
        head = f"{len(self)} of {self.n_atoms} atoms are active; the largest logit is scaled by {self.mean_scale:.3g} on average."
        return "\n".join([head, *(f"  {e}" for e in self.effects)])


def explain(
    coefficients: np.ndarray, factors: RampFactors, factor_means: np.ndarray, n_atoms: int
) -> Explanation:
    """From coefficients (2, K, r) and the mean factors (K,) of the calibration set."""
    r = coefficients.shape[2]
    mean_scale = float(factor_means @ coefficients[SCALE].sum(axis=1))
    effects = []
    for kind, k, start in zip(*np.nonzero(coefficients), strict=True):
        c = float(coefficients[kind, k, start])
        ramp = factors.ramps[k - 1] if k else None
        effects.append(
            Effect(
                kind="scale" if kind == SCALE else "bias",
                statistic=None if ramp is None else statistic_name(factors.statistics[ramp.statistic]),
                side=None if ramp is None else ramp.side,
                knot=None if ramp is None else ramp.zero,
                full_from=None if ramp is None else ramp.one,
                start=int(start),
                n_top=int(r - start),
                coefficient=c,
                mean=c * float(factor_means[k]),
                effect=c / mean_scale if kind == SCALE else float(np.exp(c)),
            )
        )
    effects.sort(key=lambda e: (e.statistic is not None, e.kind == "bias", -e.mean))
    return Explanation(tuple(effects), n_atoms, mean_scale)
