"""Where to evaluate: the parameters by rank, and those of a block of rows.

    f_(i) - f_top = -w_i v_i + base_i,      base_i = -(w_top - w_i) U - (b_top - b_i)

Weights and biases change at few ranks (the jumps), so everything is computed for the pieces between them, in double precision,
and once for all blocks where all rows share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, device_of, distinct
from .block import Block

SCALE, BIAS = 0, 1


@dataclass(frozen=True)
class Point:
    """Where to evaluate, and for which atoms the Hessian is wanted."""

    shape: tuple[int, int]  # K factors, r ranks or columns
    jumps: np.ndarray  # ranks at which a weight or a bias changes, (D - 1,)
    # Which factors count (K',), and -w, -(w_top - w) and -(b_top - b) of theirs in each of the pieces between jumps, (3, K', D).
    table: tuple[np.ndarray, np.ndarray]
    kind: np.ndarray  # (a,) of the working set
    factor: np.ndarray  # (a,)
    start: np.ndarray  # (a,)
    own: np.ndarray | None = None  # factors whose sums are asked for; None: all
    # First rank of each column, where there are columns and not ranks (see `engine`), and the number of ranks.
    begins: np.ndarray | None = None
    n_ranks: int = 0

    @classmethod
    def of_steps(
        cls,
        shape: tuple[int, int],
        places: np.ndarray,
        steps: np.ndarray,
        working: np.ndarray,
        *,
        begins: np.ndarray | None = None,
        **rest: Any,
    ) -> Point:
        """From coefficients at kind, factor and start, (3, ...) each, in a grid of K factors and r ranks or columns.

        Few factors have any, and weights change where these begin: nothing is made that has an entry for every rank.
        """
        kind, factor, start = places
        used, first = distinct(factor), distinct(start, 0)
        by_piece = np.zeros((2, len(used), len(first)))
        by_piece[kind, used.searchsorted(factor), first.searchsorted(start)] = steps
        # Steps above a piece are added, not subtracted from the top: one of 1e-8, times a height of a million, keeps its digits.
        drops = np.zeros_like(by_piece)
        drops[:, :, :-1] = -by_piece[:, :, :0:-1].cumsum(axis=2)[:, :, ::-1]
        table = used, np.stack([-by_piece[SCALE].cumsum(axis=1), drops[SCALE], drops[BIAS]])
        jumps, at = (x if begins is None else begins[x] for x in (first[1:], working[2]))
        return cls(shape, jumps, table, working[0], working[1], at, begins=begins, **rest)

    @classmethod
    def of_scale(cls, shape: tuple[int, int], scale: float, **rest: Any) -> Point:
        """All logits multiplied by one number."""
        plain = np.array([[SCALE], [0], [0]])
        return cls.of_steps(shape, plain, np.array([scale]), plain[:, :0], **rest)

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where atoms start (D,), with 0 among them; which start each atom has, and its column among (kind, start), (a,) each."""
        starts = distinct(self.start, 0)
        at = starts.searchsorted(self.start)
        return starts, at, at + np.where(self.kind == SCALE, 0, len(starts))

    @cached_property
    def by_start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The working set in the order of its starts: that order, columns, whether scales, factors, (a,) each."""
        order = np.argsort(self.start, kind="stable")
        return order, self.columns[2][order], self.kind[order] == SCALE, self.factor[order]

    @cached_property
    def pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the pieces between jumps begin, and those between starts of atoms; each with the end of the last."""
        r = self.shape[1] if self.begins is None else self.n_ranks
        return np.concatenate([[0], self.jumps, [r]]), np.append(self.columns[0], r)


def in_parts(x: Array, dtype: Any) -> list[Array]:
    """Double-precision numbers in the precision of the rows: as they are, or as a sum of two.

    The rounding of numbers that all rows share, or nearly, would not average out: in single precision it moves the gradient
    by 1e-6.
    """
    xp = array_namespace(x)
    if dtype == xp.float64:
        return [x]
    leading = xp.astype(x, dtype)
    return [leading, xp.astype(x - xp.astype(leading, xp.float64), dtype)]


def parameters(block: Block, point: Point, lowest: bool = False) -> tuple[list[Array], Array]:
    """``-w`` (in parts that add up) and ``-(w_top - w) U - (b_top - b)`` of each piece, so that ``f - f_top = -w v + base``.

    (D, n) each, or (D, 1) where all rows share them. They change at few ranks, so double precision costs nothing; what rounding
    is left is that of a row and averages out. The lowest piece may be all that is asked for.
    """
    depth = block.rows.depth
    xp = array_namespace(depth)
    used, table = point.table
    if lowest:
        table = table[:, :, :1]
    parts = xp.asarray(table.swapaxes(1, 2), **device_of(depth))
    height = xp.astype(block.rows.height, xp.float64, copy=False)
    if block.factors is None:
        weights, base = parts[0], parts[1] * height + parts[2]
    else:
        of_rows = parts @ xp.astype(block.factors.T[used], xp.float64, copy=False)
        weights, base = of_rows[0], of_rows[1]
        base *= height
        base += of_rows[2]
    return in_parts(weights, depth.dtype), xp.astype(base, depth.dtype, copy=False)
