"""What a fit sums over large single-precision rows in memory at a point, by the loops of `sum_loops`.

    p_i = exp(-w_d v_i + base_d),                     d the piece of rank i
    sum_n p_i v_i,  sum_n p_i U,  sum_n psi p_i       over rows, p normalised                (`gradients_of_blocks`)
    sum_n Cov_p[atom_a, atom_b]                       over rows                              (`hessians_of_blocks`)
    sum_i p_i,  sum_i p_i v_i,  sum_i p_i v_i^2       over each piece                        (`piece_moments`)

All between one call of Python and the next is done in the loop: many threads would wait for each other's calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .compiled import first_turn
from .point import Point
from .scratch import scratch_buffer

if TYPE_CHECKING:
    from .run import Threads


@dataclass(frozen=True)
class Atoms:
    """A working set for the loops, in order of its starts: columns among (kind, start), kinds, factors, (a,) each."""

    order: np.ndarray
    column: np.ndarray
    is_scale: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, point: Point) -> Atoms:
        return cls(*point.by_start)

    def whole(self, upper: np.ndarray) -> np.ndarray:
        """A symmetric matrix (a, a) in the order of the working set, from its upper half."""
        both = np.empty_like(upper)
        both[np.ix_(self.order, self.order)] = np.triu(upper) + np.triu(upper, 1).T
        return both


def gradients_of_blocks(
    v: np.ndarray,
    height: np.ndarray,
    weight: np.ndarray,
    psi: np.ndarray | None,
    point: Point,
    ends: np.ndarray,
    threads: Threads,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums over the rows of each block, of which the last rows are followed by those at ``ends`` (B,), by some threads.

    Weighted log-partitions (B,); ``p v``, ``p U`` and ``psi p`` at each rank (B, 2 + K, r), in a scratch buffer;
    ``psi p v`` over all ranks (B, K). The factors are those of ``point.own``, or all.
    """
    own = point.own
    if own is None:
        own = np.arange(1 if psi is None else psi.shape[1])
    # What is in them, the loop writes: fresh memory costs less where it is used.
    values, whole = np.empty(len(ends)), np.empty((len(ends), len(own)))
    by_rank = scratch_buffer("by_rank", (len(ends) * (2 + len(own)), v.shape[1])).reshape(
        len(ends), -1, v.shape[1]
    )
    loop, parameters, turn = loops().gradients_of_blocks, _parameters(v, psi, point), first_turn()
    threads.share(
        lambda: loop(v, *parameters, weight, height, own, ends, values, by_rank, whole, turn), len(ends)
    )
    return values, by_rank, whole


def hessians_of_blocks(
    v: np.ndarray,
    height: np.ndarray,
    weight: np.ndarray,
    psi: np.ndarray | None,
    point: Point,
    ends: np.ndarray,
    tied: bool,
    threads: Threads,
) -> np.ndarray:
    """Covariances of the working set, of each block (B, a, a); ``tied``: some rank at which an atom begins is, in some row."""
    atoms = Atoms.of(point)
    a = len(atoms.order)
    out = np.empty((len(ends), a, a))
    args = (
        v, *_parameters(v, psi, point), weight, height, point.pieces[1], atoms.column, atoms.is_scale, atoms.factor,
        tied, point.start[atoms.order], atoms.order, ends, out, first_turn(),
    )  # fmt: skip
    loop = loops().hessians_of_blocks
    threads.share(lambda: loop(*args), len(ends))
    return out


def exponentials(
    v: np.ndarray, height: np.ndarray, psi: np.ndarray | None, point: Point
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``exp(f - shift)`` (n, r), tied ranks alike, their total and the shift, (n,) each."""
    p, total, shift = np.empty_like(v), np.empty(len(v), dtype=v.dtype), np.empty(len(v), dtype=v.dtype)
    loops().exponentials(v, *_parameters(v, psi, point), height, p, total, shift)
    return p, total, shift


def _parameters(v: np.ndarray, psi: np.ndarray | None, point: Point) -> tuple[Any, ...]:
    """First ranks of the pieces, factors of the rows, and which of these count with which parameters."""
    shared = point.shared(v)
    factors = (_ONE, _FIRST) if psi is None else (psi, shared.used)
    return point.pieces[0], *factors, shared.weights, shared.drops


def products_in_ties(
    p: np.ndarray, v: np.ndarray, height: np.ndarray, psi: np.ndarray | None, point: Point
) -> np.ndarray:
    """What products of atoms (a, a) count too much inside groups of ties: see `curvature`."""
    atoms = Atoms.of(point)
    out = np.zeros((len(atoms.order), len(atoms.order)))
    ranks = point.start[atoms.order]
    loops().products_in_ties(
        p, v, height, _ONE if psi is None else psi, atoms.is_scale, atoms.factor, ranks, out
    )
    return -atoms.whole(out)


def piece_moments(p: np.ndarray, v: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of ``p``, ``p v``, ``p v^2`` over the pieces that begin at ``starts``, (3, n, D)."""
    out = np.empty((3, len(p), len(starts)))
    loops().piece_moments(p, v, np.append(starts, v.shape[1]), out)
    return out


@dataclass(frozen=True)
class Cut:
    """Calibrated rows cut short, in double precision."""

    depth: np.ndarray  # (n, kept), of the highest ranks
    mass: np.ndarray  # (n,), sum of ``exp(-depth)`` of the ranks below
    first: np.ndarray  # (n,), the same times the depths
    label: np.ndarray  # (n,), depth of the label
    own_depth: np.ndarray  # (n,), mean depth under what the classifier itself says, from the highest ranks
    own_top: np.ndarray  # (n,), its probability of the top
    n_top: np.ndarray  # (n,), classes that share the top


def shorten(
    v: np.ndarray,
    height: np.ndarray,
    psi: np.ndarray | None,
    point: Point,
    label: tuple[np.ndarray, np.ndarray],
    kept: int,
    prior_scales: Sequence[tuple[float, float]],
) -> Cut:
    """The ``kept`` highest ranks of calibrated rows and what lies below; of the labels, depths and ranks are known."""
    from .short_loops import shorten_rows

    depth, out = np.empty((len(v), kept)), np.empty((len(v), 6))
    shares, scales = np.array(prior_scales, dtype=np.float64).reshape(-1, 2).T.copy()
    shorten_rows(v, *_parameters(v, psi, point), height, kept, shares, scales, *label, depth, out)
    mass, first, at_label, own_depth, own_top, n_top = out.T
    return Cut(depth, mass, first, at_label, own_depth, own_top, n_top.astype(np.int64))


def loops() -> Any:
    """The module with the loops themselves."""
    from . import sum_loops as module

    return module


_ONE, _FIRST = np.ones((1, 1), dtype=np.float32), np.zeros(1, dtype=np.intp)
