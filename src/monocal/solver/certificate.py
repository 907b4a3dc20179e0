"""Whether a point is optimal. The problem is convex, so a violation of zero proves it:

    kkt = max_a  |g_a|  if c_a > lower_a  else  max(-g_a, 0),      g = gradient + penalty - floor.

A small violation alone says little where the objective is nearly flat. So the problem also bounds how far a point is above the
infimum (``excess``), and as long as that bound is too large and falls, further steps are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .problem import ConeProblem, Expansion
from .solution import Solution, Status, Step

# A violation, in parts of the floor, at which the optimum with the floor is reached: no step leads any further from there.
_REACHED = 0.2
# Steps for a smaller bound of the excess that may fail to halve it.
_PATIENCE = 3


@dataclass(frozen=True)
class Iterate:
    """A feasible point, what is known of the problem there, and how well it does."""

    problem: ConeProblem
    coefficients: np.ndarray
    working: np.ndarray  # the atoms of the Hessian
    expansion: Expansion
    slope: np.ndarray  # the gradient with the penalty
    active: np.ndarray  # the atoms above their lower bounds
    objective: float  # without the floor
    kkt: float

    @classmethod
    def of(
        cls,
        problem: ConeProblem,
        coefficients: np.ndarray,
        working: np.ndarray,
        expansion: Expansion | None = None,
    ) -> Iterate:
        """Evaluate the problem, where ``expansion`` is not known yet."""
        if expansion is None:
            expansion = problem.evaluate(coefficients, working)
        slope = expansion.gradient + problem.penalty
        g = slope - problem.floor
        active = np.flatnonzero(coefficients > problem.lower)
        # A negative gradient violates the conditions wherever the atom is, a positive one above the bound alone.
        kkt = max(-g.min(initial=0.0), g[active].max(initial=0.0))
        linear = float(problem.penalty @ coefficients) - float(problem.floor @ coefficients)
        return cls(
            problem,
            coefficients,
            working,
            expansion,
            slope,
            active,
            expansion.value + linear,
            float(kkt),
        )

    @cached_property
    def excess(self) -> float:
        """The bound of the objective over its infimum."""
        return self.problem.excess(self.coefficients, self.expansion)

    def step(self, step_size: float = 1.0) -> Step:
        """The line of the history."""
        return Step(self.objective, self.kkt, len(self.active), step_size, self.problem.n_rows)

    def solution(self, tol: float, status: Status, n_iter: int, history: list[Step]) -> Solution:
        """The point with its certificate, which holds for whatever reason the solver stopped."""
        if self.kkt <= tol:
            status = Status.CONVERGED
        return Solution(
            coefficients=self.coefficients,
            converged=status == Status.CONVERGED,
            status=status,
            kkt=self.kkt,
            duality_gap=self.excess,
            objective=self.objective,
            n_iter=n_iter,
            history=tuple(history),
        )


@dataclass
class Goal:
    """When to stop: the violation is small, and so is the bound of the excess, or it does not fall any more."""

    tol: float
    gap_tol: float = np.inf
    _smallest: float = np.inf
    _in_vain: int = 0

    def met(self, here: Iterate) -> bool:
        if here.kkt > self.tol:
            return False
        excess = 0.0 if self.gap_tol == np.inf else here.excess
        self._in_vain = 0 if excess < 0.5 * self._smallest else self._in_vain + 1
        self._smallest = min(self._smallest, excess)
        if excess <= self.gap_tol or self._in_vain >= _PATIENCE:
            return True
        left = max(-here.slope.min(initial=0.0), here.slope[here.active].max(initial=0.0))
        return bool(left <= _REACHED * here.problem.floor.max(initial=0.0))
