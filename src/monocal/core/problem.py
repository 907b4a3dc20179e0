"""What the solver asks of a problem, and what it returns:

    minimise  F(c) + penalty . c    subject to  c >= lower,        F convex and smooth.

An atom is one coefficient of ``c``. There may be thousands of them, of which few are above their lower bound at the minimum. So
a problem gives the gradient of all atoms but the Hessian of a few only, those that the solver asks for. The answer is a
`Solution`: the minimiser, whether to trust it, and how it was reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from ..notebook import html_table

_VALLEY = "in the lowest valley that a search over scales has shown (the squared error is not convex)"


class Status(StrEnum):
    """Why a solver stopped. Each is the sentence that it prints; files store the sentence.

    Examples
    --------
    >>> from monocal.solver import Status
    >>> print(Status.STALLED)
    stopped: no further decrease is possible in this precision
    """

    CONVERGED = "converged: no atom violates the optimality conditions by more than the tolerance"
    CERTIFIED = (
        "converged: no component of the gradient exceeds the tolerance, and the problem is strongly convex"
    )
    STATIONARY = f"converged: a stationary point, {_VALLEY}"
    LAST_SCALE = f"converged: at the last scale looked at, where the error still falls, {_VALLEY}"
    ITERATIONS = "stopped: the iteration limit was reached before the tolerance"
    STALLED = "stopped: no further decrease is possible in this precision"


@dataclass(frozen=True)
class Step:
    """One iteration, for diagnosis: `Solution.history` has one for each.

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
    >>> from monocal.solver import Step
    >>> Step(objective=0.5, kkt=1e-7, n_active=3, step_size=1.0, rows=1000).kkt
    1e-07
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
        How far ``objective`` is at most above its infimum, up to rounding: a dual bound. NaN where the solver has none.
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

    def _repr_html_(self) -> str:
        names = ("status", "kkt", "duality_gap", "objective", "n_iter")
        return html_table("Solution", [(name.replace("_", " "), getattr(self, name)) for name in names])


@dataclass(frozen=True)
class Expansion:
    """``F``, without its penalty, around one point.

    Attributes
    ----------
    value : float
        Infinite where the point lies outside the domain of ``F``: the solver then takes a shorter step.
    gradient : ndarray
    hessian : ndarray
        Of the atoms that were asked for.
    predicted : object
        What else the problem needs for its ``excess``.

    Examples
    --------
    >>> import numpy as np
    >>> from monocal.solver import Expansion
    >>> x = np.array([1.0, 2.0])
    >>> Expansion(value=float(x @ x) / 2, gradient=x, hessian=np.eye(2)).value
    2.5
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    predicted: Any = None


class ConeProblem(Protocol):
    """A convex problem over a cone, as `minimize` sees it.

    Any object with these attributes and methods is accepted. A subclass writes `evaluate` and inherits the rest, which is right
    for any problem; what it replaces makes the solver faster or its certificate stronger.

    Parameters
    ----------
    n_atoms : int
    lower, penalty : float or ndarray of shape (n_atoms,)

    Attributes
    ----------
    lower : ndarray of shape (n_atoms,)
        The lower bounds of the coefficients; ``-inf`` for one that is free (`start` must then be given).
    penalty : ndarray of shape (n_atoms,)
        The linear term.
    floor : ndarray of shape (n_atoms,)
        The part of the penalty that is there only to keep the minimum finite; the certificate is for the objective without it.
    spread : ndarray of shape (n_atoms,)
        Typical size of the values of each atom.
    reach : ndarray of shape (n_atoms,)
        How far a unit step in each atom moves the model. Steps are bounded in this unit.
    rounding : float
        Relative error of the value.
    least_curvature : float
        Curvature of an atom below this part of the square of its spread is taken for rounding.
    n_rows : int
        Rows that one evaluation sums over: for the history, and where atoms are many times as many, more of them join at a time.
    cheap_hessian : bool
        Whether a Hessian of all rows costs no more than a pass or two. Where there is a coarse copy, the solver then asks for one
        if that copy says too little about it.
    slow_calls : bool
        Whether a call takes longer than what it computes, as on a GPU. The solver then takes fewer steps, with more atoms each.

    Examples
    --------
    Non-negative least squares:

    >>> import numpy as np
    >>> from monocal.solver import ConeProblem, Expansion, minimize
    >>> class LeastSquares(ConeProblem):
    ...     def __init__(self, A, y):
    ...         super().__init__(A.shape[1])
    ...         self.A, self.y = A, y
    ...     def evaluate(self, coefficients, working):
    ...         residual = self.A @ coefficients - self.y
    ...         part = self.A[:, working]
    ...         return Expansion(residual @ residual / 2, self.A.T @ residual, part.T @ part)
    >>> A, y = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([2.0, -1.0])
    >>> minimize(LeastSquares(A, y)).coefficients.round(6)
    array([2., 0.])
    """

    lower: np.ndarray
    penalty: np.ndarray
    floor: np.ndarray
    spread: np.ndarray
    reach: np.ndarray
    rounding: float
    least_curvature: float = 1e-8
    n_rows: int
    cheap_hessian: bool = False
    slow_calls: bool = False

    def __init__(self, n_atoms: int, *, lower: np.ndarray | float = 0.0, penalty: np.ndarray | float = 0.0):
        self.lower = np.full(n_atoms, lower, dtype=np.float64)
        self.penalty = np.full(n_atoms, penalty, dtype=np.float64)
        self.floor, self.spread, self.reach = np.zeros(n_atoms), np.ones(n_atoms), np.ones(n_atoms)
        self.rounding, self.n_rows = 1e-14, 1

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        """``F`` at ``coefficients``, with the Hessian of the atoms in ``working`` (sorted indices)."""
        ...

    def hessian(self, coefficients: np.ndarray, working: np.ndarray) -> np.ndarray:
        """The Hessian alone, (n_working, n_working)."""
        return self.evaluate(coefficients, working).hessian

    def start(self) -> np.ndarray:
        """A feasible point; by default the lower bounds."""
        return self.lower

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        """At most ``size`` atoms worth trying, sorted; by default those with the most negative gradient.

        ``gradient`` is with the penalty, and 0 for the atoms above their bounds.
        """
        order = np.argsort(gradient, kind="stable")[:size]
        return np.sort(order[gradient[order] < 0])

    def excess(self, coefficients: np.ndarray, here: Expansion) -> float:
        """An upper bound of the objective (without the floor) at ``coefficients`` less its infimum; NaN: not known."""
        return float("nan")

    def coarse(self) -> ConeProblem | None:
        """The same problem on part of the rows, with the same penalty and no floor; None: all rows are used all the time."""
        return None

    @property
    def worth(self) -> np.ndarray:
        """The limit of each atom's gradient, less the floor, far out; only a problem with one atom is asked.

        Infinity, the default, is always right: the solver then takes Newton's plain step.
        """
        return np.full(len(self.lower), np.inf)
