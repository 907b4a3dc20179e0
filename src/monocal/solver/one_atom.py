"""One atom: the root of an increasing function, bracketed, so that it cannot be missed.

    minimise F(c) + penalty c  over c >= lower:      g(c) = F'(c) + penalty = 0,   or g(lower) >= 0.

Far out ``g`` rises to its ``worth`` like an exponential, so steps are taken for ``h = log(worth - g) - log(worth)``: Newton's
first, then to the root of the cubic that has the values and slopes of the last two points. Where that leaves the bracket, or the
gradient does not fall, the bracket is cut in half, by ratio: any start reaches any root in double precision within a few
dozen evaluations, and mostly within four. One atom needs no floor and no working set.
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
    before = None
    while True:
        here = Iterate.of(problem, c, working)
        history.append(here.step())
        at = float(c[0]) - zero
        g = float(here.expansion.gradient[0] + problem.penalty[0] - problem.floor[0])
        bracket.narrow(at, g)
        if goal.met(here):
            status = Status.CONVERGED
            break
        if n_iter >= max_iter:
            status = Status.ITERATIONS
            break
        if bracket.closed or at > _LARGEST:
            status = Status.STALLED
            break
        n_iter += 1
        known = _Known.of(at, g, float(here.expansion.hessian[0, 0]), float(problem.worth[0]))
        c = np.array([bracket.next(at, g, known.root(before)) + zero])
        before = known
    return here.solution(goal.tol, status, n_iter, history)


@dataclass(frozen=True)
class _Known:
    """What a point tells of ``h``, whose root is wanted: value and slope, which is 0 where there is no telling."""

    at: float
    h: float
    slope: float

    @classmethod
    def of(cls, at: float, g: float, curvature: float, worth: float) -> _Known:
        left = worth - g
        if not (curvature > 0 and left > 0 and worth > 0):
            return cls(at, -g, 0.0)
        if worth == np.inf:  # the limit, in another unit
            return cls(at, -g, -curvature)
        return cls(at, float(np.log(left / worth)), -curvature / left)

    def root(self, before: _Known | None) -> float:
        """By the cubic ``c(h)`` through this point and the one before, if that was much farther off; else by Newton's step."""
        if self.slope == 0.0:
            return np.inf if self.h > 0 else 0.0
        if before is None or before.slope == 0.0 or abs(self.h) > 0.3 * abs(before.h):
            return self.at - self.h / self.slope
        span = before.h - self.h
        t = -self.h / span
        here = (1 + 2 * t) * (1 - t) ** 2 * self.at + t * (1 - t) ** 2 * span / self.slope
        return here + t * t * (3 - 2 * t) * before.at - t * t * (1 - t) * span / before.slope
