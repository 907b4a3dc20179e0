"""Solve on a part of the rows whose gradient is corrected to that of the whole.

With ``G`` the gradient of the whole at ``c`` and ``G_s`` that of the part, the next point minimises

    F_s + (G - G_s) . c :

a linear term, which a penalty already is. A fixed point is optimal for the whole. The error falls by the relative sampling error
of the Hessian in each round, and a round costs one pass over all rows, without Hessian. Far from ``c`` the correction means
nothing (it may even leave the part without a minimum), so a round does not go far; the next may go farther if that was the way
down. Where the part says too little about the Hessian of the whole, Newton steps on that finish.
"""

from __future__ import annotations

import numpy as np

from .certificate import Goal, Iterate
from .problem import ConeProblem, Expansion
from .solution import Solution, Status, Step
from .two_phase import NOTHING, SURE, TwoPhaseNewton

# How far the first round may move the model.
_TRUST = 6.0
# A round that leaves more than this part of the violation was the last. The second number is for a problem whose Hessian is
# cheap: a Newton step costs two passes, and leaves less than two such rounds would.
_PROGRESS, _QUICK_PROGRESS = 0.8, 0.1


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
