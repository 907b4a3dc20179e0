"""One atom: the root of an increasing function, bracketed, so that it cannot be missed.

    minimise F(c) + penalty c  over c >= lower:      g(c) = F'(c) + penalty = 0,   or g(lower) >= 0.

Far out ``g`` rises to its ``worth`` like an exponential, so Newton's step is taken for ``log(worth - g)``. Where that leaves the
bracket, or the gradient does not fall, the bracket is cut in half, by ratio: any start reaches any root in
double precision within a few dozen evaluations, and mostly within five. One atom needs no floor and no working set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .certificate import Goal, Iterate
from .problem import ConeProblem
from .solution import Solution, Status, Step

_FARTHEST = 64.0  # the largest factor of one step where nothing is known of the other side
_LARGEST = 1e100  # a coefficient beyond this is at infinity


@dataclass
class _Bracket:
    """Where the root is: between ``low`` and ``high``, which are not negative."""

    lower: float
    low: float
    high: float = np.inf
    last: float = np.inf  # the gradient before
    bound_tried: bool = False

    def narrow(self, at: float, g: float) -> None:
        if g < 0:
            self.low = max(self.low, at)
        else:
            self.high = min(self.high, at)

    @property
    def closed(self) -> bool:
        return self.high <= self.low * (1.0 + 1e-15)

    def next(self, at: float, g: float, wanted: float) -> float:
        """Where Newton's step leads, if it can be trusted; else the middle."""
        if wanted <= self.lower and self.low == self.lower and not self.bound_tried:
            self.bound_tried = True
            wanted = self.lower
        elif abs(g) > 0.5 * abs(self.last) or not self.low < wanted < min(self.high, _FARTHEST * at):
            wanted = self._middle()
        self.last = g
        return wanted

    def _middle(self) -> float:
        """Half-way by ratio; a fixed factor farther where there is no end."""
        if self.low <= 0.0:  # no ratio leads away from 0
            return self.high / _FARTHEST if np.isfinite(self.high) else 1.0
        if np.isfinite(self.high):
            return float(np.sqrt(self.low) * np.sqrt(self.high))
        return _FARTHEST * self.low


def minimize_one(
    problem: ConeProblem, first: np.ndarray, goal: Goal, max_iter: int, history: list[Step]
) -> Solution:
    """Newton steps within a bracket of the root of the gradient, from ``first`` on."""
    lower = float(problem.lower[0])
    zero = min(lower, 0.0)  # ratios are taken of positive numbers
    bracket = _Bracket(lower - zero, lower - zero)
    working = np.zeros(1, dtype=np.intp)
    c, n_iter = first, 0
    while True:
        here = Iterate.of(problem, c, working)
        history.append(here.step(problem))
        at = float(c[0]) - zero
        g = float(here.expansion.gradient[0] + problem.penalty[0] - problem.floor[0])
        bracket.narrow(at, g)
        if goal.met(problem, here):
            status = Status.CONVERGED
            break
        if n_iter >= max_iter:
            status = Status.ITERATIONS
            break
        if bracket.closed or at > _LARGEST:
            status = Status.STALLED
            break
        n_iter += 1
        wanted = newton_step(at, g, float(here.expansion.hessian[0, 0]), float(problem.worth[0]))
        c = np.array([bracket.next(at, g, wanted) + zero])
    return here.solution(problem, goal.tol, status, n_iter, history)


def newton_step(c: float, g: float, curvature: float, worth: float) -> float:
    """Where ``log(worth - g)`` meets ``log(worth)`` if it goes on straight; infinity where there is no telling."""
    left = worth - g
    if not (curvature > 0 and left > 0 and worth > 0):
        return float("inf") if g < 0 else 0.0
    if worth == np.inf:  # the limit
        return c - g / curvature
    return float(c + left / curvature * np.log(left / worth))
