"""Convex problems over cones of atoms: a problem in, a certified `Solution` out. Knows nothing of classifiers."""

from .core.newton import minimize
from .core.problem import ConeProblem, Expansion, Solution, Status, Step

__all__ = ["ConeProblem", "Expansion", "Solution", "Status", "Step", "minimize"]
