"""Convex problems over cones of atoms: a problem in, a certified `Solution` out. Knows nothing of classifiers."""

from .newton import ConeProblem, Evaluation, minimize
from .solution import Solution, Step

__all__ = ["ConeProblem", "Evaluation", "Solution", "Step", "minimize"]
