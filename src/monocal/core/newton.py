"""Active-set Newton with a certificate: steps on the few atoms that matter, among many.

    kkt = max_a  |g_a|  if c_a > lower_a  else  max(-g_a, 0),      g = gradient + penalty - floor

Each iteration

1. evaluates value, gradient of *every* atom and Hessian of a small working set, in one call (one pass over the data);
2. measures the violation ``kkt`` of the optimality conditions, and stops where it is small: the problem is convex, so a violation
   of zero proves optimality;
3. takes the Newton step on the working set under its bounds, a small non-negative least-squares problem;
4. halves the step until the objective decreases, and lets the most promising atoms into the working set;
5. adapts from that how far the next step may go.

A small violation alone says little where the objective is nearly flat. So the problem also bounds how far a point is above the
infimum (``excess``), and as long as that bound is too large and falls, further steps are taken.

The minimum may lie at infinity. Steps are therefore taken for the penalty with its floor, at most half the tolerance, which
keeps it finite; the certificate is for the objective without the floor.

`TwoPhaseNewton` computes the gradient at a point first and the Hessian on demand, for the working set which that gradient
chooses. An atom takes part in the step from the point at which it is first asked for, and no Hessian is computed at a point from
which no step is taken. That pays where a gradient is much cheaper than a Hessian, or where steps are costly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import nnls

from .problem import ConeProblem, Expansion, Solution, Status, Step, unchecked

# A violation, in parts of the floor, at which the optimum with the floor is reached: no step leads any further from there.
_REACHED = 0.2
# Steps for a smaller bound of the excess that may fail to halve it.
_PATIENCE = 3
_RIDGE = 1e-10
# Up to so many unknowns, a least-squares problem under bounds is solved one by one; how often more of them change sides, and how
# often in vain.
_ONE_BY_ONE, _PIVOTS, _TRIES = 200, 40, 3
# A step must bring at least this part of the decrease that the slope promises.
_DESCENT = 1e-4
# A step cut below this is none.
SHORTEST = 1e-6
# After so many iterations twice as many atoms may join in one.
_LONG = 16
# A Newton step that moves the model by less leaves about this part of the violation, unless many atoms add up.
SURE = 0.05
# A step that leaves less than this part of it had a Hessian that is good for another.
_GOOD = 0.2
NOTHING = np.zeros(0, dtype=np.intp)


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
    _stalled: int = 0

    def met(self, here: Iterate) -> bool:
        if here.kkt > self.tol:
            return False
        excess = 0.0 if self.gap_tol == np.inf else here.excess
        self._stalled = 0 if excess < 0.5 * self._smallest else self._stalled + 1
        self._smallest = min(self._smallest, excess)
        if excess <= self.gap_tol or self._stalled >= _PATIENCE:
            return True
        left = max(-here.slope.min(initial=0.0), here.slope[here.active].max(initial=0.0))
        return bool(left <= _REACHED * here.problem.floor.max(initial=0.0))


@dataclass(frozen=True)
class NewtonStep:
    """A proposed change of the coefficients of the working set."""

    working: np.ndarray
    delta: np.ndarray
    slope: float  # of the objective along it
    leap: float  # how far the plain Newton step would have moved the model


@dataclass
class Newton:
    """The method and where it stands. `run` reads from top to bottom; what it calls follows in that order.

    Attributes
    ----------
    problem, goal
    here : Iterate
        Where the next step starts.
    max_iter : int
        Iterations allowed, ``n_iter`` included.
    n_candidates : int
        Atoms that may join the working set in one of the first iterations.
    trust : float
        Stop where the model has moved this far from where it began.
    sure : float
        Accept a step shorter than this without evaluating the new point; the caller evaluates it.
    patience : int
        Steps in a row that rounding alone may decide.
    n_iter : int
        Iterations so far.
    history : list of Step
        What was done so far.
    """

    problem: ConeProblem
    goal: Goal
    here: Iterate
    max_iter: int
    n_candidates: int = 24
    trust: float = np.inf
    sure: float = 0.0
    patience: int = 5
    n_iter: int = 0
    history: list[Step] = field(default_factory=list)

    # What the steps have taught.
    _step_size: float = field(default=1.0, init=False)
    _radius: float = field(default=10.0, init=False)  # how far one step may move the model
    _ridge: float = field(default=_RIDGE, init=False)  # how little curvature is believed
    _idle: int = field(default=0, init=False)  # steps in a row that rounding alone has decided
    _least_kkt: float = field(default=np.inf, init=False)

    def run(self) -> Solution:
        """Steps until the goal is met, or until no step leads further."""
        self._origin = self.here.coefficients
        while True:
            self.history.append(self.here.step(self._step_size))
            if self.goal.met(self.here):
                status = Status.CONVERGED
                break
            if self.n_iter >= self.max_iter:
                status = Status.ITERATIONS
                break
            if self._idle == self.patience or (self.trust < np.inf and self._moved() >= self.trust):
                status = Status.STALLED
                break
            self.n_iter += 1
            move = self._propose()
            if move.leap < self.sure and self._working_set_complete():
                return unchecked(self._trial(move, 1.0), self.n_iter, self.history)
            there = self._search(move)
            if there is None:
                status = Status.STALLED
                break
            self._learn(move)
            self.here = there
        return self.here.solution(self.goal.tol, status, self.n_iter, self.history)

    def _moved(self) -> float:
        """How far the model has moved from where it began."""
        here, origin = self.here.coefficients, self._origin
        at = np.flatnonzero(here != origin)
        return float(np.abs((here[at] - origin[at]) * self.problem.reach[at]).max(initial=0.0))

    def _propose(self) -> NewtonStep:
        """The Newton step on the working set, cut where it would leap.

        Where the curvature has all but vanished a full step may lead far away: no atom moves the model by more than the radius.
        """
        problem, here, working = self.problem, self.here, self.here.working
        g = here.slope[working]
        room = here.coefficients[working] - problem.lower[working]
        # Sums leave an error in the curvature; below that it is not believed. (A few enormous values among the logits must not
        # make that large, and an atom that is zero but for rounding must not run away: hence the bounds.)
        least = problem.least_curvature * np.clip(problem.spread[working], 1e-7, 30.0) ** 2
        step = _bounded_newton_step(g, here.expansion.hessian, room, least, self._ridge)
        leap = float(np.abs(step * problem.reach[working]).max(initial=0.0))
        delta = step * min(1.0, min(self._radius, self.trust) / max(leap, 1e-300))
        return NewtonStep(working, delta, float(g @ delta), leap)

    def _search(self, move: NewtonStep) -> Iterate | None:
        """The first of the halved steps that is good enough; None where there is none."""
        problem = self.problem
        # Those of the working set have their turn in this step.
        free = self.here.slope.copy()
        free[self.here.active] = free[self.here.working] = 0.0
        candidates = problem.candidates(free, self._max_new_atoms)
        self._step_size = 1.0
        while self._step_size >= SHORTEST:
            trial = self._trial(move, self._step_size)
            there = Iterate.of(problem, trial, np.union1d(np.flatnonzero(trial > problem.lower), candidates))
            if self._is_better(there, move):
                return there
            self._step_size /= 2
        return None

    def _trial(self, move: NewtonStep, step_size: float) -> np.ndarray:
        trial = self.here.coefficients.copy()
        c, lower = trial[move.working], self.problem.lower[move.working]
        to = c + step_size * move.delta
        # What the step takes to its bound arrives there up to rounding; put it there exactly.
        arrived = (to - lower <= 1e-12 * (c - lower)) & np.isfinite(lower)
        trial[move.working] = np.where(arrived, lower, to)
        return trial

    def _working_set_complete(self) -> bool:
        """Whether no atom outside the working set violates its optimality condition."""
        violates = self.here.slope < -self.goal.tol
        violates[self.here.working] = False
        return not violates.any()

    def _is_better(self, there: Iterate, move: NewtonStep) -> bool:
        at = move.working
        moved = there.coefficients[at] - self.here.coefficients[at]
        change = there.expansion.value - self.here.expansion.value + float(self.problem.penalty[at] @ moved)
        if change <= _DESCENT * self._step_size * move.slope:
            return True
        # Below the rounding of the value the gradient decides: the step promised nothing, or has flattened it.
        flat = abs(float(there.slope[at] @ move.delta)) <= 0.9 * abs(move.slope)
        return abs(change) <= self._noise and (abs(move.slope) <= self._noise or flat)

    def _learn(self, move: NewtonStep) -> None:
        """A step of full length may be longer next time; one that had to be cut has trusted curvature that was rounding."""
        if self._step_size == 1.0:
            self._radius *= 4 if move.leap > self._radius else 1
            self._ridge = max(self._ridge / 10, _RIDGE)
        else:
            self._ridge = min(100 * self._ridge, 1e-2)
        no_progress = (
            abs(self._step_size * move.slope) <= self._noise and self.here.kkt > 0.9 * self._least_kkt
        )
        self._idle = self._idle + 1 if no_progress else 0
        self._least_kkt = min(self._least_kkt, self.here.kkt)

    @property
    def _max_new_atoms(self) -> int:
        """How many atoms may join now: the more, the longer it takes. An optimum may have a thousand of them."""
        return self.n_candidates << min(self.n_iter // _LONG, 5)

    @property
    def _noise(self) -> float:
        """Changes of the objective below this are rounding."""
        return self.problem.rounding * max(1.0, abs(self.here.objective))


@dataclass
class TwoPhaseNewton(Newton):
    """The last Hessian is used again after a small step that did well and added no atom."""

    _leap: float = field(default=np.inf, init=False)
    _kkt_before: float = field(default=0.0, init=False)

    def _propose(self) -> NewtonStep:
        served = self._leap <= SURE and self.here.kkt <= _GOOD * self._kkt_before
        self._kkt_before = self.here.kkt
        if not (served and self._working_set_complete()):
            problem, here = self.problem, self.here
            free = here.slope.copy()
            free[here.active] = 0.0
            working = np.union1d(here.active, problem.candidates(free, self._max_new_atoms))
            hessian = problem.hessian(here.coefficients, working)
            self.here = replace(here, working=working, expansion=replace(here.expansion, hessian=hessian))
        move = super()._propose()
        self._leap = move.leap
        return move

    def _search(self, move: NewtonStep) -> Iterate | None:
        self._step_size = 1.0
        while self._step_size >= SHORTEST:
            there = Iterate.of(self.problem, self._trial(move, self._step_size), NOTHING)
            if self._is_better(there, move):
                expansion = replace(there.expansion, hessian=self.here.expansion.hessian)
                return replace(there, working=move.working, expansion=expansion)
            self._step_size /= 2
        return None


def _bounded_newton_step(
    g: np.ndarray, hessian: np.ndarray, room: np.ndarray, least: np.ndarray, ridge: float
) -> np.ndarray:
    """``argmin_d  g.d + d'Hd/2`` subject to ``room + d >= 0``, as non-negative least squares in ``room + d``.

    Coordinates without a bound (infinite room) come first in the factorisation: the others then are a least-squares problem of
    their own, and the free ones follow from them.
    """
    if not len(g):
        return np.zeros(0)
    free = np.isinf(room)
    order, k = np.argsort(~free, kind="stable"), int(free.sum())
    factor, scale = _factor(hessian[np.ix_(order, order)], least[order], ridge)
    right = dtrtrs(factor, g[order] / scale, lower=1)[0]
    inner, room = factor[k:, k:], room[order[k:]]
    space, moved = room * scale[k:], room
    if len(room):
        try:
            moved = _non_negative(inner, inner.T @ space - right[k:])
        except RuntimeError:  # it did not settle: for once, step along the gradient, atom by atom
            moved = np.maximum(space - inner @ right[k:], 0.0)
    step = np.empty(len(g))
    step[order[k:]] = moved / scale[k:] - room
    if k:
        outer, cross = factor[:k, :k], factor[k:, :k]
        rest = -right[:k] - cross.T @ (moved - space)
        step[order[:k]] = dtrtrs(outer, rest, lower=1, trans=1)[0] / scale[:k]
    return step


def _non_negative(factor: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``argmin |factor.T x - target|`` over ``x >= 0``, for a lower triangular factor.

    Few unknowns become free one by one. Of many, all that have the wrong sign change sides at once (block principal pivoting,
    Portugal, Judice and Vicente 1994); where that does not make them fewer, one at a time does.
    """
    n = len(target)
    x: np.ndarray
    if n <= _ONE_BY_ONE:
        x, _ = nnls(factor.T, target, maxiter=50 * n)
        return x
    x = dtrtrs(factor, target, lower=1, trans=1)[0]
    free = x > 0
    if free.all():
        return x
    hessian, slope = factor @ factor.T, factor @ target
    fewest, tries = n + 1, _TRIES
    for _ in range(_PIVOTS):
        x = np.zeros(n)
        at = np.flatnonzero(free)
        if len(at):
            x[at] = cho_solve(cho_factor(hessian[np.ix_(at, at)], lower=True), slope[at])
        gradient = hessian[:, at] @ x[at] - slope
        small = 1e-13 * max(1.0, float(np.abs(slope).max()))
        wrong = np.flatnonzero(np.where(free, x < 0.0, gradient < -small))
        if not len(wrong):
            return x
        if len(wrong) < fewest:
            fewest, tries = len(wrong), _TRIES
        else:
            tries -= 1
        change = wrong if tries >= 0 else wrong[-1:]
        free[change] = ~free[change]
    x, _ = nnls(factor.T, target, maxiter=50 * n)
    return x


def _factor(hessian: np.ndarray, least: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Cholesky factor of the Hessian in units in which its diagonal is one, raised by the ``least`` curvature; and the units."""
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0) + least)
    while True:
        # Atoms with neighbouring starts are nearly parallel: a ridge in the scaled metric keeps the factor well-posed.
        scaled = hessian / scale[:, None] / scale[None, :]
        np.fill_diagonal(scaled, 1.0 + ridge)
        try:
            return np.linalg.cholesky(scaled), scale
        except np.linalg.LinAlgError:
            ridge *= 10
