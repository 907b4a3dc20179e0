"""From sums by rank and factor to sums of every atom.

    1[i >= s] u_i - U    =  -v_i  from the start on,  -U  before it            (a scale, less its value at the top class)
    1[i >= s] - 1        =  -1    before the start                             (a bias)

A ramp and the ramp the other way add up to 1, the first factor. So the sums of one give those of the other, its *mirror*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..engines.interface import Sums
from ..engines.totals import DEPTH, HEIGHT, MASS


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

    of_each: (
        np.ndarray
    )  # (K,): an earlier factor with which it adds up to 1; its own index where there is none
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

    def of_all_factors(self, found: Sums, n_ranks: int, whole_scales: bool) -> np.ndarray:
        """Sums of ``psi p v``, ``psi p U`` and ``psi p`` at each rank, (3, K, r); where only totals are known, at the lowest."""
        out, own = np.zeros((3, len(self.of_each), n_ranks)), self.own
        k = (len(found.by_rank) - len(own)) // 2
        out[DEPTH, own[:k]], out[HEIGHT, own[:k]] = found.by_rank[:k], found.by_rank[k : 2 * k]
        out[MASS, own] = found.by_rank[2 * k :]
        out[DEPTH, own[k:], 0] = found.whole
        if len(self.mirrored):
            whole = out[:, 0].copy()
            if whole_scales:
                whole[DEPTH, 0], whole[DEPTH, 1:], whole[HEIGHT] = whole[DEPTH].sum(), 0.0, 0.0
            out[:, self.mirrored] = whole[:, None] - out[:, self.of_each[self.mirrored]]
        return out
