"""Minimise a convex problem over a cone, to a certified optimum: steps on the few atoms that matter, among many.

    minimise  F(c) + (penalty - floor) . c    subject to  c >= lower,        F convex and smooth
    kkt = max_a  |g_a|  if c_a > lower_a  else  max(-g_a, 0),                g = gradient + penalty - floor

**Active-set Newton** (`Newton.run`). Each iteration

1. evaluates value, gradient of *every* atom and Hessian of a small working set, in one call (one pass over the data);
2. measures the violation ``kkt`` of the optimality conditions, and stops where it is small: the problem is convex, so a violation
   of zero proves optimality;
3. takes the Newton step on the working set under its bounds, a small non-negative least-squares problem;
4. halves the step until the objective decreases, and lets the most promising atoms into the working set;
5. adapts from that how far the next step may go.

A small violation alone says little where the objective is nearly flat. So the problem also bounds how far a point is above the
infimum (``excess``), and as long as that bound is too large and falls, further steps are taken. The minimum may lie at infinity:
steps are taken for the penalty with its floor, at most half the tolerance, which keeps it finite; the certificate is for the
objective without the floor.

**In two phases** the gradient at a point is computed first and the Hessian on demand, for the working set which that gradient
chooses. An atom takes part in the step from the point at which it is first asked for, and no Hessian is computed at a point from
which no step is taken. That pays where a gradient is much cheaper than a Hessian, or where steps are costly.

**Corrected copies** (`_corrected`). A problem may show a smaller copy of itself (``coarse``: some of the rows). With ``G`` the
gradient of the whole at ``c`` and ``G_s`` that of the part, the next point minimises ``F_s + (G - G_s) . c``: a linear term, as
a penalty is. A fixed point is optimal for the whole. The error falls by the relative sampling error of the Hessian in each
round, and a round costs one pass over all rows, without Hessian. Far from ``c`` the correction means nothing (it may even leave
the part without a minimum), so a round does not go far; the next may go farther if that was the way down. Where the part says
too little about the Hessian of the whole, Newton steps on that finish.

**One atom** (`_one_atom`). The root of an increasing function, bracketed, so that it cannot be missed. Far out ``g`` rises to its
``worth`` like an exponential, so steps are taken for ``h = log(worth - g) - log(worth)``: Newton's first, then to the root of the
cubic that has the values and slopes of the last two points. Where that leaves the bracket, or the gradient does not fall, the
bracket is cut in half, by ratio: any start reaches any root in double precision within a few dozen evaluations, and mostly within
four. One atom needs no floor and no working set.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import nnls

from .problem import ConeProblem, Expansion, Solution, Status, Step

# Atoms that may join the working set in one iteration: more of them make fewer iterations, and larger Hessians. Many atoms on few
# rows (so many times fewer) are nearly all in the solution. After so many iterations twice as many may join in one.
_FEW, _MANY, _FEW_ROWS, _LONG = 24, 96, 16, 16
# How far the first round on a coarse copy may move the model.
_TRUST = 6.0
# A round that leaves more than this part of the violation was the last. The second number is for a problem whose Hessian is
# cheap: a Newton step costs two passes, and leaves less than two such rounds would.
_PROGRESS, _QUICK_PROGRESS = 0.8, 0.1
# One atom: the largest factor of one step where nothing is known of the other side; a coefficient that is at infinity.
_FARTHEST, _LARGEST = 64.0, 1e100
# A violation, in parts of the floor, at which the optimum with the floor is reached: no step leads any further from there.
_REACHED = 0.2
# Steps for a smaller bound of the excess that may fail to halve it.
_PATIENCE = 3
_RIDGE = 1e-10
# Up to so many unknowns, a least-squares problem under bounds is solved one by one; how often more of them change sides, and how
# often in vain.
_ONE_BY_ONE, _PIVOTS, _TRIES = 200, 40, 3
# A step must bring at least this part of the decrease that the slope promises; cut below the second number, it is none.
_DESCENT, _SHORTEST = 1e-4, 1e-6
# A Newton step that moves the model by less leaves about this part of the violation, unless many atoms add up.
_SURE = 0.05
# A step that leaves less than this part of it had a Hessian that is good for another.
_GOOD = 0.2
_NOTHING = np.zeros(0, dtype=np.intp)


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
    if n_candidates is None:
        many = problem.slow_calls or _FEW_ROWS * problem.n_rows < len(problem.lower)
        n_candidates = _MANY if many else _FEW
    method = Newton(problem, Goal(tol, gap_tol), max_iter, n_candidates)
    small = problem.coarse()
    first = np.maximum(problem.start() if start is None else start, problem.lower)
    if small is not None and start is None:
        # The optimum of a part of the rows is off by its sampling error: nothing is gained by going closer.
        rough_tol = max(tol, float(small.reach.max()) / small.n_rows**0.5)
        rough = minimize(small, tol=rough_tol, max_iter=max_iter, n_candidates=n_candidates)
        first, method.history = rough.coefficients, list(rough.history)
    if len(problem.lower) == 1:
        here, status = _one_atom(method, first)
    elif small is not None:
        here, status = _corrected(method, small, first)
    else:
        method.two_phase = problem.slow_calls and len(first) > n_candidates
        working = _NOTHING if method.two_phase else np.flatnonzero(first > problem.lower)
        here, status = method.run(Iterate.of(problem, first, working))
    if here.kkt <= tol:  # a certificate holds for whatever reason the solver stopped
        status = Status.CONVERGED
    return Solution(
        coefficients=here.coefficients,
        converged=status == Status.CONVERGED,
        status=status,
        kkt=here.kkt,
        duality_gap=here.excess,
        objective=here.objective,
        n_iter=method.n_iter,
        history=tuple(method.history),
    )


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
    noise: float  # changes of the objective below this are rounding

    @classmethod
    def of(
        cls, problem: ConeProblem, c: np.ndarray, working: np.ndarray, expansion: Expansion | None = None
    ) -> Iterate:
        """Evaluate the problem, where ``expansion`` is not known yet."""
        expansion = expansion or problem.evaluate(c, working)
        slope = expansion.gradient + problem.penalty
        g = slope - problem.floor
        active = np.flatnonzero(c > problem.lower)
        # A negative gradient violates the conditions wherever the atom is, a positive one above the bound alone.
        kkt = float(max(-g.min(initial=0.0), g[active].max(initial=0.0)))
        objective = expansion.value + (float(problem.penalty @ c) - float(problem.floor @ c))
        noise = problem.rounding * max(1.0, abs(objective))
        return cls(problem, c, working, expansion, slope, active, objective, kkt, noise)

    @cached_property
    def excess(self) -> float:
        """The bound of the objective over its infimum."""
        return self.problem.excess(self.coefficients, self.expansion)

    def step(self, step_size: float = 1.0) -> Step:
        """The line of the history."""
        return Step(self.objective, self.kkt, len(self.active), step_size, self.problem.n_rows)


@dataclass
class Goal:
    """When to stop: the violation is small, and so is the bound of the excess, or it does not fall any more."""

    tol: float
    gap_tol: float = np.inf
    smallest: float = np.inf
    stalled: int = 0

    def met(self, here: Iterate) -> bool:
        if here.kkt > self.tol:
            return False
        excess = 0.0 if self.gap_tol == np.inf else here.excess
        self.stalled = 0 if excess < 0.5 * self.smallest else self.stalled + 1
        self.smallest = min(self.smallest, excess)
        if excess <= self.gap_tol or self.stalled >= _PATIENCE:
            return True
        left = max(-here.slope.min(initial=0.0), here.slope[here.active].max(initial=0.0))
        return bool(left <= _REACHED * here.problem.floor.max(initial=0.0))


@dataclass
class Newton:
    """The method and where it stands. `run` reads from top to bottom; what it calls follows in that order."""

    problem: ConeProblem
    goal: Goal
    max_iter: int  # iterations allowed, `n_iter` included
    n_candidates: int  # atoms that may join the working set in one of the first iterations
    two_phase: bool = False  # gradient first, Hessian on demand
    trust: float = np.inf  # stop where the model has moved this far from where it began
    sure: float = (
        0.0  # accept a step shorter than this without evaluating the new point; the caller evaluates it
    )
    patience: int = 5  # steps in a row that rounding alone may decide
    n_iter: int = 0
    history: list[Step] = field(default_factory=list)

    # What the steps have taught.
    _step_size: float = 1.0
    _radius: float = 10.0  # how far one step may move the model
    _ridge: float = _RIDGE  # how little curvature is believed
    _idle: int = 0  # steps in a row that rounding alone has decided
    _least_kkt: float = np.inf
    _leap: float = np.inf  # how far the last full Newton step would have moved the model
    _kkt_before: float = 0.0

    def run(self, here: Iterate) -> tuple[Iterate, Status]:
        """Steps until the goal is met, or until no step leads further."""
        origin = here.coefficients
        while True:
            self.history.append(here.step(self._step_size))
            if self.goal.met(here):
                return here, Status.CONVERGED
            if self.n_iter >= self.max_iter:
                return here, Status.ITERATIONS
            far = self.trust < np.inf and _movement(self.problem, here.coefficients, origin) >= self.trust
            if far or self._idle == self.patience:
                return here, Status.STALLED
            self.n_iter += 1
            here = self._with_hessian(here)
            delta = self._newton_step(here)
            slope = float(here.slope[here.working] @ delta)
            if self._leap < self.sure and self._working_set_complete(here):
                return replace(here, coefficients=_moved(here, delta)), Status.STALLED
            there = self._search(here, delta, slope)
            if there is None:
                return here, Status.STALLED
            self._learn(here, slope)
            here = there

    def _with_hessian(self, here: Iterate) -> Iterate:
        """In two phases, the Hessian on demand: the last is used again after a small step that did well and added no atom."""
        if not self.two_phase:
            return here
        served = self._leap <= _SURE and here.kkt <= _GOOD * self._kkt_before
        self._kkt_before = here.kkt
        if served and self._working_set_complete(here):
            return here
        working = np.union1d(here.active, self._candidates(here, here.active))
        hessian = self.problem.hessian(here.coefficients, working)
        return replace(here, working=working, expansion=replace(here.expansion, hessian=hessian))

    def _working_set_complete(self, here: Iterate) -> bool:
        """Whether no atom outside the working set violates its optimality condition."""
        violates = here.slope < -self.goal.tol
        violates[here.working] = False
        return not violates.any()

    def _candidates(self, here: Iterate, *taken: np.ndarray) -> np.ndarray:
        """Atoms that may join now: the more, the longer it takes. An optimum may have a thousand of them."""
        free = here.slope.copy()
        for atoms in taken:
            free[atoms] = 0.0
        return self.problem.candidates(free, self.n_candidates << min(self.n_iter // _LONG, 5))

    def _newton_step(self, here: Iterate) -> np.ndarray:
        """The Newton step on the working set, cut where it would leap.

        Where the curvature has all but vanished a full step may lead far away: no atom moves the model by more than the radius.
        """
        problem, working = self.problem, here.working
        space = here.coefficients[working] - problem.lower[working]
        # Sums leave an error in the curvature; below that it is not believed. (A few enormous values among the logits must not
        # make that large, and an atom that is zero but for rounding must not run away: hence the bounds.)
        least = problem.least_curvature * np.clip(problem.spread[working], 1e-7, 30.0) ** 2
        step = _bounded_newton_step(here.slope[working], here.expansion.hessian, space, least, self._ridge)
        self._leap = float(np.abs(step * problem.reach[working]).max(initial=0.0))
        return step * min(1.0, min(self._radius, self.trust) / max(self._leap, 1e-300))

    def _search(self, here: Iterate, delta: np.ndarray, slope: float) -> Iterate | None:
        """The first of the halved steps that is good enough; None where there is none."""
        problem, working = self.problem, _NOTHING
        if not self.two_phase:  # those of the working set have their turn in this step
            candidates = self._candidates(here, here.active, here.working)
        self._step_size = 1.0
        while self._step_size >= _SHORTEST:
            trial = _moved(here, self._step_size * delta)
            if not self.two_phase:
                working = np.union1d(np.flatnonzero(trial > problem.lower), candidates)
            there = Iterate.of(problem, trial, working)
            if self._is_better(there, here, delta, slope):
                if not self.two_phase:
                    return there
                expansion = replace(there.expansion, hessian=here.expansion.hessian)
                return replace(there, working=here.working, expansion=expansion)
            self._step_size /= 2
        return None

    def _is_better(self, there: Iterate, here: Iterate, delta: np.ndarray, slope: float) -> bool:
        at, noise = here.working, here.noise
        moved = there.coefficients[at] - here.coefficients[at]
        change = there.expansion.value - here.expansion.value + float(self.problem.penalty[at] @ moved)
        if change <= _DESCENT * self._step_size * slope:
            return True
        # Below the rounding of the value the gradient decides: the step promised nothing, or has flattened it.
        flat = abs(float(there.slope[at] @ delta)) <= 0.9 * abs(slope)
        return abs(change) <= noise and (abs(slope) <= noise or flat)

    def _learn(self, here: Iterate, slope: float) -> None:
        """A step of full length may be longer next time; one that had to be cut has trusted curvature that was rounding."""
        if self._step_size == 1.0:
            self._radius *= 4 if self._leap > self._radius else 1
            self._ridge = max(self._ridge / 10, _RIDGE)
        else:
            self._ridge = min(100 * self._ridge, 1e-2)
        no_progress = abs(self._step_size * slope) <= here.noise and here.kkt > 0.9 * self._least_kkt
        self._idle = self._idle + 1 if no_progress else 0
        self._least_kkt = min(self._least_kkt, here.kkt)


def _moved(here: Iterate, delta: np.ndarray) -> np.ndarray:
    """Coefficients after a step of the working set."""
    trial = here.coefficients.copy()
    c, lower = trial[here.working], here.problem.lower[here.working]
    to = c + delta
    # What the step takes to its bound arrives there up to rounding; put it there exactly.
    arrived = (to - lower <= 1e-12 * (c - lower)) & np.isfinite(lower)
    trial[here.working] = np.where(arrived, lower, to)
    return trial


def _movement(problem: ConeProblem, c: np.ndarray, origin: np.ndarray) -> float:
    """How far the model moves from one point to another."""
    return float(np.abs((c - origin) * problem.reach).max(initial=0.0))


# Corrected copies


def _corrected(method: Newton, small: ConeProblem, c: np.ndarray) -> tuple[Iterate, Status]:
    """From ``c``, the solution of the part ``small``, to that of the whole."""
    problem, goal, history = method.problem, method.goal, method.history
    last_kkt = lowest = np.inf
    progress = _QUICK_PROGRESS if problem.cheap_hessian else _PROGRESS
    trust, cut_short = _TRUST, False
    for n_iter in range(method.max_iter):
        method.n_iter = n_iter
        here = Iterate.of(problem, c, _NOTHING)
        if goal.met(here):
            history.append(here.step())
            return here, Status.CONVERGED
        if cut_short and here.objective < lowest:
            trust *= 4
        elif here.kkt > progress * last_kkt:
            break
        history.append(here.step())
        last_kkt, lowest = here.kkt, here.objective
        part = small.evaluate(c, _NOTHING)
        tilted = copy(small)
        tilted.penalty = problem.penalty + here.expansion.gradient - part.gradient
        # The violation where atoms that move the model by more than one count for less: a plain scale would hide all others.
        g = (here.slope - problem.floor) / np.maximum(problem.reach, 1.0)
        violation = float(max(-g.min(initial=0.0), g[here.active].max(initial=0.0)))
        inner = Newton(
            tilted,
            Goal(max(_SURE * violation, 0.3 * goal.tol)),
            method.max_iter,
            method.n_candidates,
            two_phase=True,
            trust=trust,
            sure=_SURE,
            patience=2,
            history=history,
        )
        there = inner.run(Iterate.of(tilted, c, _NOTHING, part))[0].coefficients
        cut_short = _movement(small, there, c) >= 0.99 * trust
        c = there
    else:
        here, method.n_iter = Iterate.of(problem, c, _NOTHING), method.max_iter
    method.two_phase = True
    return method.run(here)


# One atom


def _one_atom(method: Newton, c: np.ndarray) -> tuple[Iterate, Status]:
    """Newton steps within a bracket of the root of the gradient."""
    problem = method.problem
    lower, worth = float(problem.lower[0]), float(problem.worth[0])
    zero = min(lower, 0.0)  # ratios are taken of positive numbers
    lowest = low = lower - zero
    high, last_g, lowest_tried = np.inf, np.inf, False
    before = None
    while True:
        here = Iterate.of(problem, c, np.zeros(1, dtype=np.intp))
        method.history.append(here.step())
        at = float(c[0]) - zero
        g = float(here.expansion.gradient[0] + problem.penalty[0] - problem.floor[0])
        low, high = (max(low, at), high) if g < 0 else (low, min(high, at))
        if method.goal.met(here):
            return here, Status.CONVERGED
        if method.n_iter >= method.max_iter:
            return here, Status.ITERATIONS
        if high <= low * (1.0 + 1e-15) or at > _LARGEST:
            return here, Status.STALLED
        method.n_iter += 1
        model = (at, *_in_logarithms(g, float(here.expansion.hessian[0, 0]), worth))
        target = _root(model, before)
        if target <= lowest and low == lowest and not lowest_tried:
            target, lowest_tried = lowest, True
        elif abs(g) > 0.5 * abs(last_g) or not low < target < min(high, _FARTHEST * at):
            target = _middle(low, high)
        c, before, last_g = np.array([target + zero]), model, g


def _in_logarithms(g: float, curvature: float, worth: float) -> tuple[float, float]:
    """``h`` and its slope, which is 0 where nothing is known of it."""
    left = worth - g
    if not (curvature > 0 and left > 0 and worth > 0):
        return -g, 0.0
    if worth == np.inf:  # the limit, in another unit
        return -g, -curvature
    return float(np.log(left / worth)), -curvature / left


def _root(here: tuple[float, float, float], before: tuple[float, float, float] | None) -> float:
    """Where ``h`` is 0: by the cubic ``c(h)`` through this point and the one before, each ``(c, h, slope)``, if that was much
    farther off; else by Newton's step."""
    at, h, slope = here
    if slope == 0.0:
        return np.inf if h > 0 else 0.0
    if before is None or before[2] == 0.0 or abs(h) > 0.3 * abs(before[1]):
        return at - h / slope
    span = before[1] - h
    t = -h / span
    near = (1 + 2 * t) * (1 - t) ** 2 * at + t * (1 - t) ** 2 * span / slope
    return near + t * t * (3 - 2 * t) * before[0] - t * t * (1 - t) * span / before[2]


def _middle(low: float, high: float) -> float:
    """Half-way by ratio between two numbers that are not negative; a fixed factor farther where there is no end."""
    if low <= 0.0:  # no ratio leads away from 0
        return high / _FARTHEST if np.isfinite(high) else 1.0
    return float(np.sqrt(low) * np.sqrt(high)) if np.isfinite(high) else _FARTHEST * low


# The Newton step under bounds


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
