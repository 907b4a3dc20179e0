"""Whether a point is optimal. The problem is convex, so a violation of zero proves it:

    kkt = max_a  |g_a|  if c_a > lower_a  else  max(-g_a, 0),      g = gradient + penalty - floor.

A small violation alone says little where the objective is nearly flat. So the problem also bounds how far a point is above the
infimum (``excess``), and as long as that bound is too large and falls, further steps are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .problem import ConeProblem, Expansion
from .solution import Solution, Status, Step

# A violation, in tolerances, at which the optimum with the floor is reached: no step leads any further from there.
_REACHED = 0.1
# Steps for a smaller bound of the excess that may fail to halve it.
_PATIENCE = 3


@dataclass(frozen=True)
class Iterate:
    """A feasible point, what is known of the problem there, and how well it does."""

    coefficients: np.ndarray
    working: np.ndarray  # the atoms of the Hessian
    expansion: Expansion
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
        linear = problem.penalty - problem.floor
        g = expansion.gradient + linear
        violation = np.where(coefficients > problem.lower, np.abs(g), np.maximum(-g, 0.0))
        objective = expansion.value + float(linear @ coefficients)
        return cls(coefficients, working, expansion, objective, float(violation.max(initial=0.0)))

    def step(self, problem: ConeProblem, step_size: float = 1.0) -> Step:
        """The line of the history."""
        n_active = int((self.coefficients > problem.lower).sum())
        return Step(self.objective, self.kkt, n_active, step_size, problem.n_rows)

    def solution(
        self, problem: ConeProblem, tol: float, status: Status, n_iter: int, history: list[Step]
    ) -> Solution:
        """The point with its certificate, which holds for whatever reason the solver stopped."""
        if self.kkt <= tol:
            status = Status.CONVERGED
        return Solution(
            coefficients=self.coefficients,
            converged=status == Status.CONVERGED,
            status=status,
            kkt=self.kkt,
            duality_gap=problem.excess(self.coefficients, self.expansion),
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

    def met(self, problem: ConeProblem, here: Iterate) -> bool:
        if here.kkt > self.tol:
            return False
        excess = 0.0 if self.gap_tol == np.inf else problem.excess(here.coefficients, here.expansion)
        self._in_vain = 0 if excess < 0.5 * self._smallest else self._in_vain + 1
        self._smallest = min(self._smallest, excess)
        if excess <= self.gap_tol or self._in_vain >= _PATIENCE:
            return True
        g = here.expansion.gradient + problem.penalty
        left = np.where(here.coefficients > problem.lower, np.abs(g), np.maximum(-g, 0.0))
        return bool(left.max(initial=0.0) <= _REACHED * self.tol)
