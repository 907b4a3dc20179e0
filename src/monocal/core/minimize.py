"""Minimise a convex problem over a cone, to a certified optimum:

    minimise  F(c) + (penalty - floor) . c    subject to  c >= lower,        F convex and smooth.

There are three ways, and the problem decides. One atom: a bracketed root (`minimize_one`). Many: active-set Newton (`newton`),
in two phases where calls are slow. A problem that can show a smaller copy of itself (``coarse``: some of the rows) is solved
there again and again, with the gradient corrected to that of the whole (`minimize_corrected`): the whole then needs a handful of
passes, and no Hessian.

**Corrected copies.** With ``G`` the gradient of the whole at ``c`` and ``G_s`` that of the part, the next point minimises

    F_s + (G - G_s) . c :

a linear term, which a penalty already is. A fixed point is optimal for the whole. The error falls by the relative sampling error
of the Hessian in each round, and a round costs one pass over all rows, without Hessian. Far from ``c`` the correction means
nothing (it may even leave the part without a minimum), so a round does not go far; the next may go farther if that was the way
down. Where the part says too little about the Hessian of the whole, Newton steps on that finish.

**One atom.** The root of an increasing function, bracketed, so that it cannot be missed. Far out ``g`` rises to its ``worth``
like an exponential, so steps are taken for ``h = log(worth - g) - log(worth)``: Newton's first, then to the root of the cubic
that has the values and slopes of the last two points. Where that leaves the bracket, or the gradient does not fall, the bracket
is cut in half, by ratio: any start reaches any root in double precision within a few dozen evaluations, and mostly within four.
One atom needs no floor and no working set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .newton import NOTHING, SURE, Goal, Iterate, Newton, TwoPhaseNewton
from .problem import ConeProblem, Expansion, Solution, Status, Step

# Atoms that may join the working set in one iteration: more of them make fewer iterations, and larger Hessians. Many atoms on few
# rows (so many times fewer) are nearly all in the solution.
_FEW, _MANY, _FEW_ROWS = 24, 96, 16
# How far the first round may move the model.
_TRUST = 6.0
# A round that leaves more than this part of the violation was the last. The second number is for a problem whose Hessian is
# cheap: a Newton step costs two passes, and leaves less than two such rounds would.
_PROGRESS, _QUICK_PROGRESS = 0.8, 0.1
_FARTHEST = 64.0  # the largest factor of one step where nothing is known of the other side
_LARGEST = 1e100  # a coefficient beyond this is at infinity


def minimize(
    problem: ConeProblem,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
    gap_tol: float = np.inf,
    start: np.ndarray | None = None,
    n_candidates: int | None = None,
) -> Solution:
    """Minimise a cone problem to a certified optimum.

    Parameters
    ----------
    problem : ConeProblem
    tol : float
        Largest violation of the optimality conditions to accept.
    max_iter : int
        Iterations allowed on the whole problem (and on each coarse copy).
    gap_tol : float
        Largest excess over the infimum to accept.
    start : ndarray of shape (n_atoms,), optional
        Where to begin; by default where the problem says, or at the solution of its coarse copy.
    n_candidates : int, optional
        Atoms that may join the working set in one of the first iterations, and more the longer it takes; by default 24, or 96
        where the calls of a problem are slow or rows are few.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.solver import ConeProblem, Expansion, minimize
    >>> class Nearest(ConeProblem):
    ...     '''The point of the cone c >= 0 that is nearest to a target.'''
    ...     def __init__(self, target):
    ...         super().__init__(len(target))
    ...         self.target = target
    ...     def evaluate(self, coefficients, working):
    ...         away = coefficients - self.target
    ...         return Expansion(float(away @ away) / 2, away, np.eye(len(working)))
    >>> solution = minimize(Nearest(np.array([1.0, -2.0, 3.0])))
    >>> solution.coefficients.round(6)
    array([1., 0., 3.])
    >>> solution.converged
    True
    """
    goal = Goal(tol, gap_tol)
    if n_candidates is None:
        many = problem.slow_calls or _FEW_ROWS * problem.n_rows < len(problem.lower)
        n_candidates = _MANY if many else _FEW
    small = problem.coarse()
    history: list[Step] = []
    first = np.maximum(problem.start() if start is None else start, problem.lower)
    if small is not None and start is None:
        # The optimum of a part of the rows is off by its sampling error: nothing is gained by going closer.
        rough_tol = max(tol, float(small.reach.max()) / small.n_rows**0.5)
        rough = minimize(small, tol=rough_tol, max_iter=max_iter, n_candidates=n_candidates)
        first, history = rough.coefficients, list(rough.history)
    if len(problem.lower) == 1:
        return minimize_one(problem, first, goal, max_iter, history)
    if small is not None:
        return minimize_corrected(problem, small, first, goal, max_iter, n_candidates, history)
    if problem.slow_calls and len(first) > n_candidates:
        return TwoPhaseNewton(
            problem, goal, Iterate.of(problem, first, NOTHING), max_iter, n_candidates
        ).run()
    here = Iterate.of(problem, first, np.flatnonzero(first > problem.lower))
    return Newton(problem, goal, here, max_iter, n_candidates).run()


class _Tilted(ConeProblem):
    """A problem with another penalty. What it bounds its excess by does not hold for that, so there is no bound."""

    def __init__(self, problem: ConeProblem, penalty: np.ndarray):
        self.problem = problem
        self.penalty = penalty
        self.lower, self.floor = problem.lower, problem.floor
        self.spread, self.reach = problem.spread, problem.reach
        self.rounding, self.n_rows = problem.rounding, problem.n_rows
        self.least_curvature = problem.least_curvature

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        return self.problem.evaluate(coefficients, working)

    def hessian(self, coefficients: np.ndarray, working: np.ndarray) -> np.ndarray:
        return self.problem.hessian(coefficients, working)

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        return self.problem.candidates(gradient, size)


def minimize_corrected(
    problem: ConeProblem,
    small: ConeProblem,
    c: np.ndarray,
    goal: Goal,
    max_iter: int,
    n_candidates: int,
    history: list[Step],
) -> Solution:
    """From ``c``, the solution of the part ``small``, to that of the whole."""
    last_kkt = lowest = np.inf
    progress = _QUICK_PROGRESS if problem.cheap_hessian else _PROGRESS
    trust, cut_short = _TRUST, False
    for n_iter in range(max_iter):
        here = Iterate.of(problem, c, NOTHING)
        if goal.met(here):
            history.append(here.step())
            return here.solution(goal.tol, Status.CONVERGED, n_iter, history)
        if cut_short and here.objective < lowest:
            trust *= 4
        elif here.kkt > progress * last_kkt:
            break
        history.append(here.step())
        last_kkt, lowest = here.kkt, here.objective
        part = small.evaluate(c, NOTHING)
        tilted = _Tilted(small, problem.penalty + here.expansion.gradient - part.gradient)
        inner = TwoPhaseNewton(
            tilted,
            Goal(max(SURE * _violation(here), 0.3 * goal.tol)),
            Iterate.of(tilted, c, NOTHING, part),
            max_iter,
            n_candidates,
            trust=trust,
            sure=SURE,
            patience=2,
        ).run()
        cut_short = bool(np.abs((inner.coefficients - c) * small.reach).max() >= 0.99 * trust)
        c = inner.coefficients
        history += inner.history
    else:
        here, n_iter = Iterate.of(problem, c, NOTHING), max_iter
    return TwoPhaseNewton(problem, goal, here, max_iter, n_candidates, n_iter=n_iter, history=history).run()


def _violation(here: Iterate) -> float:
    """The violation where atoms that move the model by more than one count for less: a plain scale would hide all others."""
    g = (here.slope - here.problem.floor) / np.maximum(here.problem.reach, 1.0)
    return float(max(-g.min(initial=0.0), g[here.active].max(initial=0.0)))


def minimize_one(
    problem: ConeProblem, first: np.ndarray, goal: Goal, max_iter: int, history: list[Step]
) -> Solution:
    """Newton steps within a bracket of the root of the gradient, from ``first`` on."""
    lower, worth = float(problem.lower[0]), float(problem.worth[0])
    zero = min(lower, 0.0)  # ratios are taken of positive numbers
    lowest = low = lower - zero
    high, last_g, lowest_tried = np.inf, np.inf, False
    working = np.zeros(1, dtype=np.intp)
    c, n_iter = first, 0
    before = None
    while True:
        here = Iterate.of(problem, c, working)
        history.append(here.step())
        at = float(c[0]) - zero
        g = float(here.expansion.gradient[0] + problem.penalty[0] - problem.floor[0])
        if g < 0:
            low = max(low, at)
        else:
            high = min(high, at)
        if goal.met(here):
            status = Status.CONVERGED
            break
        if n_iter >= max_iter:
            status = Status.ITERATIONS
            break
        if high <= low * (1.0 + 1e-15) or at > _LARGEST:
            status = Status.STALLED
            break
        n_iter += 1
        model = _Model.of(at, g, float(here.expansion.hessian[0, 0]), worth)
        target = model.root(before)
        if target <= lowest and low == lowest and not lowest_tried:
            target, lowest_tried = lowest, True
        elif abs(g) > 0.5 * abs(last_g) or not low < target < min(high, _FARTHEST * at):
            target = _middle(low, high)
        c, before, last_g = np.array([target + zero]), model, g
    return here.solution(goal.tol, status, n_iter, history)


def _middle(low: float, high: float) -> float:
    """Half-way by ratio between two numbers that are not negative; a fixed factor farther where there is no end."""
    if low <= 0.0:  # no ratio leads away from 0
        return high / _FARTHEST if np.isfinite(high) else 1.0
    return float(np.sqrt(low) * np.sqrt(high)) if np.isfinite(high) else _FARTHEST * low


@dataclass(frozen=True)
class _Model:
    """What a point tells of ``h``, whose root is wanted: value and slope, which is 0 where there is no telling."""

    at: float
    h: float
    slope: float

    @classmethod
    def of(cls, at: float, g: float, curvature: float, worth: float) -> _Model:
        left = worth - g
        if not (curvature > 0 and left > 0 and worth > 0):
            return cls(at, -g, 0.0)
        if worth == np.inf:  # the limit, in another unit
            return cls(at, -g, -curvature)
        return cls(at, float(np.log(left / worth)), -curvature / left)

    def root(self, before: _Model | None) -> float:
        """By the cubic ``c(h)`` through this point and the one before, if that was much farther off; else by Newton's step."""
        if self.slope == 0.0:
            return np.inf if self.h > 0 else 0.0
        if before is None or before.slope == 0.0 or abs(self.h) > 0.3 * abs(before.h):
            return self.at - self.h / self.slope
        span = before.h - self.h
        t = -self.h / span
        here = (1 + 2 * t) * (1 - t) ** 2 * self.at + t * (1 - t) ** 2 * span / self.slope
        return here + t * t * (3 - 2 * t) * before.at - t * t * (1 - t) * span / before.slope
