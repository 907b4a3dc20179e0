"""Solve on a part of the rows whose gradient is corrected to that of the whole.

With ``G`` the gradient of the whole at ``c`` and ``G_s`` that of the part, the next point minimises

    F_s + (G - G_s) . c :

a linear term, which a penalty already is. A fixed point is optimal for the whole. The error falls by the relative sampling error
of the Hessian in each round, and a round costs one pass over all rows, without Hessian. Far from ``c`` the correction means
nothing (it may even leave the part without a minimum), so a round does not go far; the next may go farther if that was the way
down. Where rounds do not help any more, Newton steps on the whole finish.
"""

from __future__ import annotations

import numpy as np

from .certificate import Goal, Iterate
from .newton import Newton
from .problem import ConeProblem, Expansion
from .solution import Solution, Status, Step

# How far the first round may move the model.
_TRUST = 6.0
# A Newton step that moves the model by less leaves about this part of the violation, which is all that a round is asked for.
_SURE = 0.05
# A round that leaves more than this part of the violation was the last.
_PROGRESS = 0.8


class _Tilted(ConeProblem):
    """A problem with another penalty. What it bounds its excess by does not hold for that, so there is no bound."""

    def __init__(self, problem: ConeProblem, penalty: np.ndarray):
        self.problem = problem
        self.penalty = penalty
        self.lower, self.floor = problem.lower, problem.floor
        self.spread, self.reach = problem.spread, problem.reach
        self.rounding, self.n_rows = problem.rounding, problem.n_rows

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        return self.problem.evaluate(coefficients, working)

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
    nothing = np.zeros(0, dtype=np.intp)
    last_kkt = lowest = np.inf
    trust, cut_short = _TRUST, False
    for n_iter in range(max_iter):
        here = Iterate.of(problem, c, nothing)
        history.append(here.step(problem))
        if goal.met(problem, here):
            return here.solution(problem, goal.tol, Status.CONVERGED, n_iter, history)
        if cut_short and here.objective < lowest:
            trust *= 4
        elif here.kkt > _PROGRESS * last_kkt:
            break
        last_kkt, lowest = here.kkt, here.objective
        # Atoms that the whole asks for take part at once.
        free = np.where(c > problem.lower, 0.0, here.expansion.gradient + problem.penalty)
        active = np.union1d(np.flatnonzero(c > problem.lower), problem.candidates(free, n_candidates))
        part = small.evaluate(c, active)
        tilted = _Tilted(small, problem.penalty + here.expansion.gradient - part.gradient)
        inner = Newton(
            tilted,
            Goal(max(_SURE * here.kkt, 0.3 * goal.tol)),
            Iterate.of(tilted, c, active, part),
            max_iter,
            n_candidates,
            trust=trust,
            sure=_SURE,
            patience=2,
        ).run()
        cut_short = bool(np.abs((inner.coefficients - c) * small.reach).max() >= 0.99 * trust)
        c = inner.coefficients
        history += inner.history
    here = Iterate.of(problem, c, np.flatnonzero(c > problem.lower))
    return Newton(problem, goal, here, max_iter, n_candidates, n_iter=n_iter, history=history).run()
