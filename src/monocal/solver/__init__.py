"""Convex problems over cones of atoms: a problem in, a certified `Solution` out. Knows nothing of classifiers."""

from .convex import minimize
from .problem import ConeProblem, Expansion
from .solution import Solution, Status, Step

__all__ = ["ConeProblem", "Expansion", "Solution", "Status", "Step", "minimize"]
