"""Atoms: from sums by rank and factor to sums of every atom, and which atoms are worth trying next.

    1[i >= s] u_i - U    =  -v_i  from the start on,  -U  before it            (a scale, less its value at the top class)
    1[i >= s] - 1        =  -1    before the start                             (a bias)

A ramp and the ramp the other way add up to 1, the first factor. So the sums of one give those of the other, its *mirror*.

Candidates are the most negative local minima of the gradient along the ranks, and atoms around them:

    scaled_a = gradient_a / metric_a,        a local minimum: no neighbour of the same kind and factor is lower

A minimum tells only roughly where a jump belongs: with its neighbours at hand the next step can move it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .engine import DEPTH, HEIGHT, MASS, Sums

# How many ranks around a local minimum are tried with it.
_AROUND = np.array([-8, -3, -1, 1, 3, 8])


def from_start(by_rank: np.ndarray) -> np.ndarray:
    """Sums over the ranks from each start upwards."""
    return np.cumsum(by_rank[..., ::-1], axis=-1)[..., ::-1]


def atom_sums(by_rank: np.ndarray) -> np.ndarray:
    """From sums of ``v``, ``U``, 1 at each rank (3, ..., r) to sums of every atom less its value at the top, (2, ..., r)."""
    before = np.cumsum(by_rank[1:], axis=-1) - by_rank[1:]
    return -np.stack([from_start(by_rank[DEPTH]) + before[0], before[1]])


@dataclass(frozen=True)
class Mirrors:
    """Which factors are summed, and which follow from them."""

    # (K,): an earlier factor with which it adds up to 1; its own index where there is none
    of_each: np.ndarray
    own: np.ndarray  # those without
    mirrored: np.ndarray  # those with one
    partners: np.ndarray  # where among `own` the mirror of each of these is

    @classmethod
    def of(cls, of_each: np.ndarray) -> Mirrors:
        itself = of_each == np.arange(len(of_each))
        own, mirrored = np.flatnonzero(itself), np.flatnonzero(~itself)
        return cls(of_each, own, mirrored, np.searchsorted(own, of_each[mirrored]))

    def spread_over(self, values: np.ndarray) -> np.ndarray:
        """Numbers of all factors (K,) from those of the factors that are summed."""
        every = np.zeros(len(self.of_each))
        every[self.own] = values
        every[self.mirrored] = values[0] - values[self.partners]
        return every

    def of_all_factors(self, sums: Sums, n_ranks: int) -> np.ndarray:
        """Sums of ``psi p v``, ``psi p U`` and ``psi p`` at each rank, (3, K, r); where only totals are summed, at the lowest."""
        out, own = np.zeros((3, len(self.of_each), n_ranks)), self.own
        out[DEPTH, 0], out[HEIGHT, 0], out[MASS, own] = sums.by_rank[0], sums.by_rank[1], sums.by_rank[2:]
        out[DEPTH, own[1:], 0] = sums.whole
        if len(self.mirrored):
            whole = out[:, 0].copy()
            whole[DEPTH, 0], whole[DEPTH, 1:], whole[HEIGHT] = whole[DEPTH].sum(), 0.0, 0.0
            out[:, self.mirrored] = whole[:, None] - out[:, self.of_each[self.mirrored]]
        return out


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
        lowest_at, depth = falling[lowest], here[lowest]
        lowest_at = lowest_at[np.argsort(depth, kind="stable")[:size]]
        around = np.clip(lowest_at[:, None] + _AROUND, 0, len(gradient) - 1)
        around = around[(self.family[around] == self.family[lowest_at][:, None]) & (gradient[around] < 0)]
        chosen = list(dict.fromkeys([*lowest_at.tolist(), *around.tolist()]))  # each once, the lowest first
        return np.array(sorted(chosen[:size]), dtype=np.intp)

    def _scaled(self, gradient: np.ndarray, at: np.ndarray) -> np.ndarray:
        return gradient[at] / self.metric[at]
