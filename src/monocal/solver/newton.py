"""Active-set Newton over the atoms of a cone: a convex problem in, a certified optimum out.

    minimise  F(c) + (penalty - floor) . c    subject to  c >= lower,        F convex and smooth.

The number of atoms may be large (every rank, every start), the number that matter is small. Each iteration

1. evaluates value, gradient of *every* atom and Hessian of a small working set, in one call (one pass over the data);
2. measures the optimality violation, which is a certificate because the problem is convex:

       kkt = max_a  |g_a|  if c_a > lower_a  else  max(-g_a, 0),      g = gradient + penalty - floor;

3. takes the Newton step on the working set under its bounds, a small non-negative least-squares problem;
4. moves, halving the step until the objective decreases, and lets the most promising atoms into the working set.

A small violation alone says little where the objective is nearly flat: the problem also bounds how far a point is above the
infimum (``excess``), and as long as that bound is too large and falls, steps are taken.

The minimum may lie at infinity. Steps are therefore taken for the penalty with its floor, at most half the tolerance, which
keeps it finite; the certificate is for the objective without the floor. One atom needs no floor and no working set (`one_atom`).

A problem that can show a smaller copy of itself (``coarse``: some of the rows) is solved there, again and again, with the
gradient corrected to that of the whole: the whole then needs a handful of passes, and no Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from .one_atom import FARTHEST, middle, newton_step
from .solution import CONVERGED, ITERATIONS, STALLED, Solution, Step

_RIDGE = 1e-10
# Steps for a smaller bound of the excess that may fail to halve it.
_PATIENCE = 3
# A single coefficient beyond this is at infinity.
_LARGEST = 1e100


@dataclass(frozen=True)
class Evaluation:
    """``F`` without its penalty at one point: value, gradient of every atom, Hessian of the working set."""

    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    predicted: np.ndarray | None = None  # what else the problem wants to remember for its `excess`


class ConeProblem(Protocol):
    """What the solver needs to know of a problem."""

    penalty: np.ndarray
    floor: np.ndarray  # the part of the penalty that is there to keep the minimum finite
    lower: np.ndarray
    spread: np.ndarray  # typical size of each atom's values: the metric for ridges
    reach: np.ndarray  # how far a unit step in each atom moves the model, to bound steps
    rounding: float  # relative error of the value
    n_rows: int

    @property
    def worth(self) -> np.ndarray:
        """What the gradient of each atom, less the floor, rises to far out."""

    def start(self) -> np.ndarray:
        """A feasible point."""

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Evaluation:
        """``F`` at ``coefficients``, with the Hessian of the atoms in ``working`` (sorted indices)."""

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        """At most ``size`` atoms worth trying, given the gradient of all (most negative local minima)."""

    def excess(self, coefficients: np.ndarray, here: Evaluation) -> float:
        """How far the objective (without the floor) at ``coefficients`` is above its infimum at most."""

    def coarse(self) -> ConeProblem | None:
        """The same problem on part of the rows, or None."""


def minimize(
    problem: ConeProblem,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
    gap_tol: float = np.inf,
    start: np.ndarray | None = None,
    n_candidates: int = 24,
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
        Where to begin.
    n_candidates : int
        Atoms that may join the working set in one iteration.

    Returns
    -------
    Solution
    """
    small = problem.coarse()
    goal = Goal(tol, gap_tol)
    first = np.maximum(problem.start() if start is None else start, problem.lower)
    if len(problem.lower) == 1:
        rough = None if small is None else _one_atom(small, first, Goal(_rough_tol(small, tol)), max_iter, ())
        if rough is not None:
            first = rough.coefficients
        return _one_atom(problem, first, goal, max_iter, rough.history if rough else ())
    if small is None:
        return _newton(problem, first, goal, max_iter, n_candidates, ())
    return _corrected(problem, small, start, goal, max_iter, n_candidates)


@dataclass
class Goal:
    """When to stop: the violation is small, and so is the bound of the excess, or it does not fall any more."""

    tol: float
    gap_tol: float = np.inf
    _smallest: float = np.inf
    _in_vain: int = 0

    def met(self, problem: ConeProblem, here: Evaluation, c: np.ndarray, kkt: float) -> bool:
        if kkt > self.tol:
            return False
        excess = 0.0 if self.gap_tol == np.inf else problem.excess(c, here)
        self._in_vain = 0 if excess < 0.5 * self._smallest else self._in_vain + 1
        self._smallest = min(self._smallest, excess)
        return excess <= self.gap_tol or self._in_vain >= _PATIENCE


def _rough_tol(small: ConeProblem, tol: float) -> float:
    """The optimum of a part of the rows is off by its sampling error: nothing is gained by going closer."""
    return max(tol, float(small.reach.max()) / small.n_rows**0.5)


def _one_atom(
    problem: ConeProblem, c: np.ndarray, goal: Goal, max_iter: int, before: tuple[Step, ...]
) -> Solution:
    """Newton steps within a bracket of the root of the gradient."""
    history = list(before)
    lower = float(problem.lower[0])
    low, high = lower, np.inf
    last, n_iter, at_bound = np.inf, 0, False
    while True:
        here = problem.evaluate(c, np.zeros(1, dtype=np.intp))
        objective, kkt = _state(problem, here, c)
        scale, g = float(c[0]), float(here.gradient[0] + problem.penalty[0] - problem.floor[0])
        history.append(Step(objective, kkt, int(scale > lower), 1.0, problem.n_rows))
        if goal.met(problem, here, c, kkt):
            status = CONVERGED
            break
        low, high = (max(low, scale), high) if g < 0 else (low, min(high, scale))
        if n_iter >= max_iter:
            status = ITERATIONS
            break
        if high <= low * (1.0 + 1e-15) or scale > _LARGEST:
            status = STALLED
            break
        n_iter += 1
        wanted = newton_step(scale, g, float(here.hessian[0, 0]), float(problem.worth[0]))
        if wanted <= lower and low == lower and not at_bound:
            wanted, at_bound = lower, True
        elif abs(g) > 0.5 * abs(last) or not low < wanted < min(high, FARTHEST * scale):
            wanted = middle(low, high)
        c, last = np.array([wanted]), g
    return _solution(problem, here, c, goal.tol, status, n_iter, history)


def _corrected(
    problem: ConeProblem,
    small: ConeProblem,
    start: np.ndarray | None,
    goal: Goal,
    max_iter: int,
    n_candidates: int,
) -> Solution:
    """Solve on a part of the rows whose gradient is corrected to that of the whole.

    With ``G`` the gradient of the whole at ``c`` and ``G_s`` that of the part, the next point minimises
    ``F_s + (G - G_s) . c``: a linear term, which a penalty already is. A fixed point is optimal for the whole. The error
    falls by the relative sampling error of the Hessian in each round, and a round costs one pass without Hessian. Far from
    ``c`` the correction means nothing (it may even leave the part without a minimum), so a round does not go far; the next
    may go farther if that was the way down.
    """
    tol = goal.tol
    rough_tol = _rough_tol(small, tol)
    rough = minimize(small, tol=rough_tol, max_iter=max_iter, start=start, n_candidates=n_candidates)
    c, history = rough.coefficients, list(rough.history)
    nothing = np.zeros(0, dtype=np.intp)
    last, lowest = np.inf, np.inf
    trust, cut_short = 6.0, False
    for n_iter in range(max_iter):
        here = problem.evaluate(c, nothing)
        objective, kkt = _state(problem, here, c)
        history.append(Step(objective, kkt, int((c > problem.lower).sum()), 1.0, problem.n_rows))
        if goal.met(problem, here, c, kkt):
            return _solution(problem, here, c, tol, CONVERGED, n_iter, history)
        if cut_short and objective < lowest:
            trust *= 4
        elif kkt > 0.8 * last:
            break
        last, lowest = kkt, objective
        part = small.evaluate(c, np.flatnonzero(c > problem.lower))
        small.penalty = problem.penalty + here.gradient - part.gradient
        inner = _newton(
            small,
            c,
            Goal(max(0.05 * kkt, 0.3 * tol)),
            max_iter,
            n_candidates,
            (),
            here=part,
            trust=trust,
            patience=2,
        )
        cut_short = np.abs((inner.coefficients - c) * small.reach).max() >= 0.99 * trust
        c, history = inner.coefficients, history + list(inner.history)
    return _newton(problem, c, goal, max_iter, n_candidates, tuple(history), n_iter=n_iter)


def _newton(
    problem: ConeProblem,
    c: np.ndarray,
    goal: Goal,
    max_iter: int,
    n_candidates: int,
    before: tuple[Step, ...],
    here: Evaluation | None = None,
    trust: float = np.inf,
    n_iter: int = 0,
    patience: int = 5,
) -> Solution:
    """Newton steps from ``c`` (evaluated ``here``) until the goal is met, or until the model has moved by ``trust``.

    ``n_iter`` iterations have been made before; ``patience`` is for steps that rounding alone decides.
    """
    penalty, lower = problem.penalty, problem.lower
    history = list(before)
    origin = c
    working = np.flatnonzero(c > lower)
    if here is None:
        here = problem.evaluate(c, working)
    step_size = 1.0
    status, idle, best = ITERATIONS, 0, np.inf
    radius, ridge = 10.0, _RIDGE
    while True:
        objective, kkt = _state(problem, here, c)
        history.append(Step(objective, kkt, int((c > lower).sum()), step_size, problem.n_rows))
        if goal.met(problem, here, c, kkt):
            status = CONVERGED
            break
        if n_iter >= max_iter:
            break
        if idle == patience or np.abs((c - origin) * problem.reach).max(initial=0.0) >= trust:
            status = STALLED
            break
        n_iter += 1

        g = here.gradient + penalty
        delta = np.zeros_like(c)
        step = _bounded_newton_step(
            g[working], here.hessian, (c - lower)[working], problem.spread[working], ridge
        )
        # Where the curvature has all but vanished a full step may leap far: no atom moves the model by more than the
        # radius, which grows while steps of its length succeed.
        leap = float(np.abs(step * problem.reach[working]).max(initial=0.0))
        delta[working] = step * min(1.0, min(radius, trust) / max(leap, 1e-300))
        slope = float(g @ delta)
        wanted = problem.candidates(np.where(c > lower, 0.0, g), n_candidates)
        noise = problem.rounding * max(1.0, abs(objective))
        step_size = 1.0
        while True:
            trial = c + step_size * delta
            # What the step takes to its bound arrives there up to rounding; put it there exactly.
            trial = np.where(trial - lower <= 1e-12 * (c - lower), lower, trial)
            trial_working = np.union1d(np.flatnonzero(trial > lower), wanted)
            there = problem.evaluate(trial, trial_working)
            change = there.value - here.value + float(penalty @ (trial - c))
            if change <= 1e-4 * step_size * slope:
                break
            # Below the rounding of the value the gradient decides: the step promised nothing, or has flattened it.
            flat = abs(float((there.gradient + penalty) @ delta)) <= 0.9 * abs(slope)
            if abs(change) <= noise and (abs(slope) <= noise or flat):
                break
            if step_size < 1e-6:
                trial, there, trial_working = c, here, working  # nothing better was found
                break
            step_size /= 2
        if step_size < 1e-6:
            status = STALLED
            break
        if step_size == 1.0 and leap > radius:
            radius *= 4
        # A step that had to be cut has trusted curvature that was rounding: the next one moves less where there is little.
        ridge = max(ridge / 10, _RIDGE) if step_size == 1.0 else min(100 * ridge, 1e-2)
        idle = idle + 1 if abs(step_size * slope) <= noise and kkt > 0.9 * best else 0
        best = min(best, kkt)
        c, here, working = trial, there, trial_working

    return _solution(problem, here, c, goal.tol, status, n_iter, history)


def _state(problem: ConeProblem, here: Evaluation, c: np.ndarray) -> tuple[float, float]:
    """The objective and the largest violation of its optimality conditions."""
    linear = problem.penalty - problem.floor
    g = here.gradient + linear
    violation = np.where(c > problem.lower, np.abs(g), np.maximum(-g, 0.0))
    return here.value + float(linear @ c), float(violation.max(initial=0.0))


def _solution(
    problem: ConeProblem,
    here: Evaluation,
    c: np.ndarray,
    tol: float,
    status: str,
    n_iter: int,
    history: list[Step],
) -> Solution:
    objective, kkt = _state(problem, here, c)
    if kkt <= tol:
        status = CONVERGED
    return Solution(
        coefficients=c,
        converged=status == CONVERGED,
        status=status,
        kkt=kkt,
        duality_gap=problem.excess(c, here),
        objective=objective,
        n_iter=n_iter,
        history=tuple(history),
    )


def _bounded_newton_step(
    g: np.ndarray, hessian: np.ndarray, room: np.ndarray, metric: np.ndarray, ridge: float
) -> np.ndarray:
    """``argmin_d  g.d + d'Hd/2`` subject to ``room + d >= 0``, as non-negative least squares in ``room + d``."""
    if not len(g):
        return np.zeros(0)
    # Single-precision sums leave an error of about 1e-8 in the curvature; below that it is not believed. (A few enormous
    # values among the logits must not make that large, and an atom that is zero but for rounding must not run away: hence
    # the bounds.)
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0) + 1e-8 * np.clip(metric, 1e-7, 30.0) ** 2)
    while True:
        # Atoms with neighbouring starts are nearly parallel: a ridge in the scaled metric keeps the factor well-posed.
        scaled = hessian / scale[:, None] / scale[None, :]
        np.fill_diagonal(scaled, 1.0 + ridge)
        try:
            factor = np.linalg.cholesky(scaled)
            break
        except np.linalg.LinAlgError:
            ridge *= 10
    target = factor.T @ (room * scale) - solve_triangular(factor, g / scale, lower=True)
    try:
        moved, _ = nnls(factor.T, target, maxiter=50 * len(g))
    except RuntimeError:  # did not settle: a step along the gradient, atom by atom, does for once
        moved = np.maximum(room * scale - g / scale, 0.0)
    return moved / scale - room
