"""The computation over rows as one interface: what an engine does with a block of rows, and what it returns.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]``
(bias). With coefficients ``c >= 0`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise,

measured from the top of the row (``u = U - v``, depth ``v``, height ``U``; in `point`), where rounding does no harm. The
objective ``sum_n weight_n [log sum_i exp(f_(i) - f_top) + f_top - f_label]`` has

    value      log-partition (the labels' part is linear in ``c`` and known beforehand)
    gradient   column sums of ``psi p v``, ``psi p U``, ``psi p``; then sums over ranks give every atom (in `objective.cone`)
    Hessian    covariances of the atoms of a working set (in `curvature`)

What is returned has a fixed size and adds up, so rows may live anywhere.

`array` has the engine for every array library. `rank_major` (numpy in double precision), `compiled_engine` (numba) and
`triton_engine` (CUDA) are the same engine with some steps replaced by faster ones. An engine says which arrays it takes; `choice`
has the table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from ..arrays import Array

if TYPE_CHECKING:
    from ..core.ranked import Ranked
    from .block import Block
    from .compiled_sums import Cut
    from .point import Point
    from .run import Run, Threads
    from .totals import Totals


@dataclass(frozen=True)
class Sums:
    """Sums over rows, in float64 on the host. They add."""

    value: float
    # (2 k + K, r), of the K factors wanted: at each rank psi p v and psi p U of those k whose scales begin at every rank,
    # and psi p of all
    by_rank: np.ndarray
    whole: np.ndarray  # (K - k,): psi p v over all ranks, of the other factors
    hessian: np.ndarray  # (a, a)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.value + other.value,
            self.by_rank + other.by_rank,
            self.whole + other.whole,
            self.hessian + other.hessian,
        )


class Engine(Protocol):
    """What works on blocks of rows. Engines have no state: one object serves all blocks."""

    # Whether the sums over a tail need no arrays of its width.
    reads_tail_in_place: ClassVar[bool]

    def takes(self, logits: Array, dtype: object) -> bool:
        """Whether it works on rows of ``logits`` (n, m) in ``dtype``. The first of `choice.ENGINES` that does is chosen."""

    def prepare(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        *,
        top_k: int | None = None,
        statistics: Sequence[Callable[[Ranked], Array]] = (),
        dtype: object = None,
        ordered: bool = True,
        into: np.ndarray | None = None,
    ) -> Block:
        """Sort rows of logits (n, m) and find their labels (n,).

        ``ordered=False`` will do where no atom begins above the lowest rank. The depths of all ranks may have a place ``into``
        which they go.
        """

    def prepare_in_place(
        self,
        logits: Array,
        labels: Array,
        weight: Array | None,
        into: np.ndarray,
        threads: Threads,
        measured: bool = False,
    ) -> Block | None:
        """All ranks of any number of rows, ``into`` an array, with statistics (`Ranked.measured`) where they are wanted.

        None where an engine does not do so. Rows higher than `LARGEST` need more than that, and must be prepared again.
        """

    def measure(self, rows: Ranked, statistics: Sequence[Callable[[Ranked], Array]]) -> Array:
        """Statistics (n, S) of rows."""

    def totals(self, block: Block, whole_scales: bool) -> Totals:
        """Label sums and atom moments; ``whole_scales`` as in `Point`."""

    def sums(self, block: Block, point: Point) -> Sums:
        """Value, gradient by rank and working-set Hessian of one block's log-partition."""

    def hessian(self, block: Block, point: Point) -> np.ndarray:
        """The Hessian alone."""

    def row_by_row(self, block: Block, whole_scales: bool) -> bool:
        """Whether its sums take room for a few rows only, however many a block has; ``whole_scales`` as in `Point`.

        Then it is given many blocks at once (`run`).
        """

    # Of a run the same as of its blocks, added up in their order.

    def totals_of_run(self, run: Run, whole_scales: bool) -> Totals:
        """`totals`."""

    def sums_of_run(self, run: Run, point: Point) -> Sums:
        """`sums`."""

    def hessian_of_run(self, run: Run, point: Point) -> np.ndarray:
        """`hessian`."""

    def scale_sums_of_run(self, run: Run, scale: float) -> np.ndarray:
        """`scale_sums`."""

    def information_of_run(
        self, run: Run, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """`information`."""

    def scale_totals_of_run(self, run: Run) -> Totals:
        """`totals.scale_totals`."""

    def label_sums_of_run(self, run: Run) -> np.ndarray:
        """`totals.label_sums`, by rank."""

    def exponentials(
        self, block: Block, point: Point
    ) -> tuple[Array, Array, Array | None, list[Array] | None]:
        """``exp(f - shift)`` (n, r), tied ranks alike; their total (n,) with the tail's; the shift (n, 1) where it is not the
        top; the tail's ``sum exp(f - shift)`` and ``sum exp(f - shift) v``, (n,) each, where there is one."""

    def shorten(
        self, block: Block, point: Point, kept: int, prior_scales: Sequence[tuple[float, float]]
    ) -> Cut | None:
        """Calibrated rows without their lower ranks, where an engine makes them in one reading."""

    def probabilities(self, block: Block, point: Point) -> tuple[Block, Array, Array, list[Array] | None]:
        """Rows in the precision of what follows: ``weight p`` (n, r), the log-partition (n,), ``weight p v^t`` of a tail."""

    def within_ties(self, block: Block, point: Point, p: Array) -> np.ndarray | float:
        """What the products of atoms (a, a) count too much inside groups of ties (see `curvature`), with ``weight p`` (n, r)."""

    def largest_tie(self, rows: Ranked) -> int:
        """Ranks of the largest group of equal values."""

    def information(
        self, block: Block, scale: float, whole_scales: bool
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """The numbers of `objective.information.Information`; None where its array operations make them as well."""

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        """The same where there is no atom but the plain scale: value, slope and curvature, without the labels."""

    def tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        """``sum exp(f) v^t`` for ``t < count`` over all classes, with depths cut at the height; (n,) each."""

    def piece_moments(self, p: Array, v: Array, starts: np.ndarray, count: int = 3) -> list[Array]:
        """Sums of ``p``, ``p v``, ``p v^2``, the first ``count`` of them, over the pieces that begin at ``starts``, (n, D) each,
        in double precision."""


# The same as functions of a block, for `Rows.sum`.


def totals(block: Block, whole_scales: bool, begins: np.ndarray | None = None) -> Totals:
    """`Engine.totals` of a block by its own engine; by column where it is said where columns begin."""
    if begins is not None:
        from .columns import column_totals

        return column_totals(block, begins)
    return block.engine.totals(block, whole_scales)


def sums(block: Block, point: Point) -> Sums:
    """`Engine.sums` of a block by its own engine; by column where the point has columns."""
    if point.begins is not None:
        from .columns import column_sums

        return column_sums(block, point)
    return block.engine.sums(block, point)


def hessian(block: Block, point: Point) -> np.ndarray:
    """`Engine.hessian` of a block by its own engine, or by column."""
    return sums(block, point).hessian if point.begins is not None else block.engine.hessian(block, point)


def scale_sums(block: Block, scale: float) -> np.ndarray:
    """`Engine.scale_sums` of a block by its own engine."""
    return block.engine.scale_sums(block, scale)
