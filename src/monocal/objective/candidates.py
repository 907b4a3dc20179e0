"""Which atoms are worth trying next: the most negative local minima of the gradient along the ranks, and what lies around them.

    scaled_a = gradient_a / metric_a,        a local minimum: no neighbour of the same kind and factor is lower

A minimum tells only roughly where a jump belongs: with its neighbours at hand the next step can move it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# How many ranks around a local minimum are tried with it.
_AROUND = np.array([-8, -3, -1, 1, 3, 8])


@dataclass(frozen=True)
class Neighbourhood:
    """Atoms in the order of the grid (2, K, r), as neighbours of each other."""

    family: np.ndarray  # (a,): kind and factor of each atom as a number
    first: np.ndarray  # (a,): whether the atom before is no neighbour
    last: np.ndarray  # (a,): whether the atom behind is none
    metric: np.ndarray  # (a,): that of the penalty

    @classmethod
    def of(cls, atoms: np.ndarray, n_ranks: int, metric: np.ndarray) -> Neighbourhood:
        """Of atoms by their numbers in the grid."""
        family = atoms // n_ranks
        apart = (np.diff(atoms) > 1) | (np.diff(family) > 0)
        return cls(family, np.append(True, apart), np.append(apart, True), np.maximum(metric, 1e-12))

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        """At most ``size`` of the atoms, sorted, from the gradient of all; all of them where they are no more."""
        if len(gradient) <= size:
            return np.arange(len(gradient))
        falling = np.flatnonzero(gradient < 0)
        here = self._scaled(gradient, falling)
        lowest = self.first[falling] | (here <= self._scaled(gradient, falling - 1))
        lowest &= self.last[falling] | (here <= self._scaled(gradient, (falling + 1) % len(gradient)))
        found, depth = falling[lowest], here[lowest]
        found = found[np.argsort(depth, kind="stable")[:size]]
        around = np.clip(found[:, None] + _AROUND, 0, len(gradient) - 1)
        around = around[(self.family[around] == self.family[found][:, None]) & (gradient[around] < 0)]
        chosen = list(dict.fromkeys([*found.tolist(), *around.tolist()]))  # each once, the lowest first
        return np.array(sorted(chosen[:size]), dtype=np.intp)

    def _scaled(self, gradient: np.ndarray, at: np.ndarray) -> np.ndarray:
        scaled: np.ndarray = gradient[at] / self.metric[at]
        return scaled
