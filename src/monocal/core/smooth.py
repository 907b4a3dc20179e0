"""Smooth, strongly convex problems without bounds: Newton steps, and a certificate that strong convexity gives for free.

    F(t) - sum_i mu_i t_i^2 / 2  convex     =>     F(t) - min F  <=  sum_i g_i^2 / (2 mu_i)

with ``g`` the gradient at ``t``: a ridge of strength ``mu / 2`` is all it takes. The problem says how to solve for a Newton step,
exactly or by `conjugate_gradients` as closely as the step deserves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .problem import Solution, Status, Step

_SEARCHES = 40
_DESCENT = 1e-4


@dataclass(frozen=True)
class SmoothPoint:
    """Where a solver stands: parameters, value and gradient."""

    at: np.ndarray
    value: float
    gradient: np.ndarray

    @property
    def violation(self) -> float:
        return float(np.abs(self.gradient).max(initial=0.0))


class SmoothProblem(Protocol):
    """What `minimize_smooth` asks of a problem."""

    modulus: np.ndarray  # (size,): mu above
    resolution: float  # differences of the value below this share of it are rounding

    def evaluate(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient (size,)."""

    def newton_step(self, point: SmoothPoint, closeness: float) -> np.ndarray:
        """``d`` with ``H d = -g`` to a relative residual of ``closeness``, for ``H`` the Hessian or a good guess at it."""

    def sharpen(self) -> bool:
        """Make the guess at the Hessian better, where the steps have been poor; False where it is exact already."""


def minimize_smooth(
    problem: SmoothProblem, *, tol: float, max_iter: int, start: np.ndarray | None = None
) -> Solution:
    """The minimum, from zero or ``start`` on, until no component of the gradient exceeds ``tol``."""
    first = np.zeros(len(problem.modulus)) if start is None else start
    here, length, before = SmoothPoint(first, *problem.evaluate(first)), 0.0, np.inf
    history = [Step(here.value, here.violation, len(first), length, 0)]
    status = Status.ITERATIONS
    for _ in range(max_iter):
        if here.violation <= tol:
            break
        # As close as the last step shows the quadratic model to be good, but no closer than the tolerance asks for.
        closeness = max(min(0.1, here.violation / before), 0.3 * tol / here.violation)
        there, length = _search(problem, here, problem.newton_step(here, closeness))
        if there is None:
            if problem.sharpen():
                continue
            status = Status.STALLED
            break
        if there.violation > 0.5 * here.violation and there.violation > tol:
            problem.sharpen()
        before, here = here.violation, there
        history.append(Step(here.value, here.violation, len(first), length, 0))
    converged = here.violation <= tol
    return Solution(
        coefficients=here.at,
        converged=converged,
        status=Status.CERTIFIED if converged else status,
        kkt=here.violation,
        duality_gap=float(np.sum(here.gradient**2 / (2.0 * problem.modulus))),
        objective=here.value,
        n_iter=len(history) - 1,
        history=tuple(history),
    )


def _search(problem: SmoothProblem, here: SmoothPoint, step: np.ndarray) -> tuple[SmoothPoint | None, float]:
    """Halve until the value falls; where a fall is lost in rounding, until the gradient does."""
    slope = float(here.gradient @ step)
    if not np.isfinite(slope) or slope >= 0:
        return None, 0.0
    rounding = problem.resolution * max(abs(here.value), 1.0)
    length = 1.0
    for _ in range(_SEARCHES):
        further = here.at + length * step
        there = SmoothPoint(further, *problem.evaluate(further))
        fall = here.value - there.value
        clear = fall > rounding and fall >= -_DESCENT * length * slope
        if clear or (abs(fall) <= rounding and there.violation < here.violation):
            return there, length
        length *= 0.5
    return None, 0.0


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    closeness: float,
    most: int,
) -> np.ndarray:
    """``x`` with ``product(x) = right`` to a relative residual of ``closeness`` (in the metric of the preconditioner)."""
    x = np.zeros_like(right)
    residual = right.copy()
    direction = z = precondition(residual)
    size = first = float(residual @ z)
    for _ in range(most):
        if size <= closeness**2 * first:
            break
        image = product(direction)
        length = size / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = precondition(residual)
        size, last = float(residual @ z), size
        direction = z + (size / last) * direction
    return x
