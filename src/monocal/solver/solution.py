"""What a solver returns: the answer, whether to trust it, and how it was reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

_VALLEY = "in the lowest valley that a search over scales has shown (the squared error is not convex)"


class Status(StrEnum):
    """Why a solver stopped. Each is the sentence that it prints; files store the sentence.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> solution = mc.MCCT().fit(data.values, data.labels).solution_
    >>> solution.status.name
    'CONVERGED'
    >>> print(solution.status)
    converged: no atom violates the optimality conditions by more than the tolerance
    """

    CONVERGED = "converged: no atom violates the optimality conditions by more than the tolerance"
    CERTIFIED = (
        "converged: no component of the gradient exceeds the tolerance, and the problem is strongly convex"
    )
    STATIONARY = f"converged: a stationary point, {_VALLEY}"
    LAST_SCALE = f"converged: at the last scale looked at, where the error still falls, {_VALLEY}"
    ITERATIONS = "stopped: the iteration limit was reached before the tolerance"
    STALLED = "stopped: no further decrease is possible in this precision"
    UNCHECKED = "stopped: the last step was too small to check, and nothing was measured where it leads"


@dataclass(frozen=True)
class Step:
    """One iteration, for diagnosis.

    Attributes
    ----------
    objective, kkt : float
        Value, and largest violation of the optimality conditions.
    n_active : int
        Coefficients above their lower bound.
    step_size : float
    rows : int
        Rows that the step was computed on.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> solution = mc.MCCT().fit(data.values, data.labels).solution_
    >>> bool(solution.history[-1].kkt < 1e-6)
    True
    """

    objective: float
    kkt: float
    n_active: int
    step_size: float
    rows: int


@dataclass(frozen=True)
class Solution:
    """Minimiser of a convex problem over a cone, with its certificate.

    Attributes
    ----------
    coefficients : ndarray of shape (n_atoms,)
    converged : bool
    status : Status
        Why the solver stopped, in words. Where another optimiser was asked (SLSQP), a string with its own words.
    kkt : float
        Largest violation of the optimality conditions: ``|g_a|`` where the coefficient is above its lower bound,
        ``max(-g_a, 0)`` where it is on it. The problem is convex, so zero proves a global optimum.
    duality_gap : float
        How far ``objective`` is at most above its infimum, up to rounding: a dual bound (see `monocal.objective.bound`).
        NaN where the solver has none.
    objective : float
    n_iter : int
    history : tuple of Step

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> solution = mc.MCCT().fit(data.values, data.labels).solution_
    >>> solution.converged, solution.kkt < 1e-6
    (True, True)
    >>> print(solution.status)
    converged: no atom violates the optimality conditions by more than the tolerance
    """

    coefficients: np.ndarray
    converged: bool
    status: Status | str
    kkt: float
    duality_gap: float
    objective: float
    n_iter: int
    history: tuple[Step, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.status in list(Status):  # from a file, where it is a sentence
            object.__setattr__(self, "status", Status(self.status))


def unchecked(coefficients: np.ndarray, n_iter: int, history: list[Step]) -> Solution:
    """A point at which nothing was measured: whoever goes on from it has to."""
    nothing = float("nan")
    return Solution(
        coefficients, False, Status.UNCHECKED, nothing, nothing, nothing, n_iter, history=tuple(history)
    )
