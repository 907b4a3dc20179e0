"""Minimise a convex problem over a cone, to a certified optimum:

    minimise  F(c) + (penalty - floor) . c    subject to  c >= lower,        F convex and smooth.

There are three ways, and the problem decides. One atom: a bracketed root (`one_atom`). Many: active-set Newton (`newton`, or
`two_phase` where calls are slow). A problem that can show a smaller copy of itself (``coarse``: some of the rows) is solved
there again and again, with the gradient corrected to that of the whole (`corrected`): the whole then needs a handful of passes,
and no Hessian.
"""

from __future__ import annotations

import numpy as np

from .certificate import Goal, Iterate
from .corrected import minimize_corrected
from .newton import Newton
from .one_atom import minimize_one
from .problem import ConeProblem
from .solution import Solution, Step
from .two_phase import NOTHING, TwoPhaseNewton

# Atoms that may join the working set in one iteration: more of them make fewer iterations, and larger Hessians.
_FEW, _MANY = 24, 96


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
        where the calls of a problem are slow.

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
        n_candidates = _MANY if problem.slow_calls else _FEW
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
