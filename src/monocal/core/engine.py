"""The sums over rows as one interface: what an engine does with a block of rows, and what it returns.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]`` (bias). Scales
of factors but the first (``psi_0 = 1``) begin at the lowest rank. With coefficients ``c >= 0`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise,

measured from the top of the row (``u = U - v``, depth ``v``, height ``U``; see `point`), where rounding does no harm. The
objective ``sum_n weight_n [log sum_i exp(f_(i) - f_top) + f_top - f_label]`` has

    value      log-partition (the labels' part is linear in ``c`` and computed beforehand)
    gradient   column sums of ``p v``, ``p U``, ``psi p``; then sums over ranks give every atom (`cone`)
    Hessian    covariances of the atoms of a working set

A block may hold many *parts*, each of which fits the cache. An engine adds up part by part, in their order, so sums do not depend
on the number of threads. What is returned has a fixed size and adds up, so rows may live anywhere.

Where atoms begin at few of many ranks, sums are taken over *columns* of ranks: column g has the ranks from ``begins[g]`` to
the next. Arrays with an entry for each rank then have one for each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..arrays import Array

if TYPE_CHECKING:
    from .block import Block
    from .point import Point

# Kinds of sums by rank.
DEPTH, HEIGHT, MASS = 0, 1, 2


@dataclass(frozen=True)
class Sums:
    """Sums over rows, in float64 on the host. They add."""

    value: float
    by_rank: np.ndarray  # (2 + K, r), of the K factors asked for: at each rank p v, p U, and psi p of each
    whole: np.ndarray  # (K - 1,): psi p v over all ranks, of the factors but the first
    hessian: np.ndarray  # (a, a)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.value + other.value,
            self.by_rank + other.by_rank,
            self.whole + other.whole,
            self.hessian + other.hessian,
        )


@dataclass(frozen=True)
class Totals:
    """Sums before any coefficient: of the labels, and the first two moments of the atoms. They add."""

    weight: float
    label: np.ndarray  # (3, K, r): where the label's shares of psi v, psi U and psi begin (positive) and end
    # (3, K, r): the same as if every label were the top class, in blocks where some rows share it
    top: np.ndarray
    ties: int  # number of ranks in the largest group of ties
    tied: np.ndarray  # (r,) bool: whether a rank equals the one below it in some row
    mean: np.ndarray  # (2, K, r): sums of psi u and psi (all rows) at each rank
    square: np.ndarray  # (2, K, r): sums of their squares

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.weight + other.weight,
            self.label + other.label,
            self.top + other.top,
            max(self.ties, other.ties),
            self.tied | other.tied,
            self.mean + other.mean,
            self.square + other.square,
        )


@dataclass(frozen=True)
class Information:
    """What the rows can tell about each atom: its Fisher information at temperature scaling, ``p = softmax(scale z)``. They add.

        variance_a = 1/N sum_n weight_n Var_p[atom_a],         errors_k = sum_n weight_n psi_k^2 (1 - p_top)

    The root of the variance is the size of an atom as the likelihood sees it: a bias on the top rank of a thousand classes moves
    one logit in a thousand but nearly all of the probability. Under temperature scaling the gradient of atom ``a`` is noise with
    standard deviation ``sqrt(variance_a / N)``, so a penalty in proportion to the root holds all atoms back alike, as long as
    the noise is nearly normal. It is not where errors are rare: among confident rows a few wrong labels, or none, decide. Hence
    the second number, how many errors temperature scaling expects among the rows that a factor concerns.
    """

    weight: float
    variances: np.ndarray  # (2, K, r), by kind, factor and start
    errors: np.ndarray  # (K,)

    def __add__(self, other: Information) -> Information:
        return Information(
            self.weight + other.weight, self.variances + other.variances, self.errors + other.errors
        )

    def unit(self, n_rows: float, pseudo_errors: float) -> np.ndarray:
        """Root of the variance (2, K, r), larger where fewer than ``pseudo_errors`` are expected among ``n_rows`` rows.

        ``sqrt(variance (1 + pseudo_errors / errors))``: the noise if that many errors more were to be expected.
        """
        errors = np.maximum(self.errors * (n_rows / self.weight), 1e-12)
        return np.sqrt(self.variances / self.weight * (1.0 + pseudo_errors / errors)[:, None])


@dataclass(frozen=True)
class Truncated:
    """The highest ranks of calibrated rows, and what lies below them, in double precision."""

    n_top: np.ndarray  # (n,), classes that share the top
    depth: Array  # (n, R), of the highest ranks; infinite where a class is masked
    mass: Array  # (n,), sum of ``exp(-depth)`` of the ranks below
    first: Array  # (n,), the same times the depths
    label: Array  # (n,), depth of the label
    prior_depth: Array  # (n,), mean depth under the prior targets
    prior_top: Array  # (n,), their probability of the top


class Engine(Protocol):
    """What computes sums over blocks of rows. Engines have no state: one object serves all blocks."""

    def takes(self, logits: Array, dtype: object) -> bool:
        """Whether it works on rows of ``logits`` (n, m) in ``dtype``. The first of `engines.ENGINES` that does is chosen."""

    def prepare(self, logits: Array, labels: Array, weight: Array | None, **how: Any) -> list[Block]:
        """Sort rows of logits (n, m) and find their labels (n,); cut into blocks for the engine.

        ``top_k``: ranks in use. ``dtype``: that of the computation (default: float32, float64 for float64). ``statistics``:
        functions of sorted rows (`Ranked`) to measure. ``ordered=False``: no atom begins above the lowest rank, so rows need not
        be sorted. ``top_class``: find which class is on top. ``context`` (n, C): kept with the rows.
        """

    def totals(self, block: Block, begins: np.ndarray | None = None) -> Totals:
        """Label sums and moments of the atoms."""

    def label_sums(self, block: Block, begins: np.ndarray | None = None) -> np.ndarray:
        """The label sums of `totals` alone, in a row with the weight of all behind them."""

    def scale_totals(self, block: Block) -> Totals:
        """The totals where the plain scale is the only atom: sums over all ranks, which stand at the lowest, and at the top."""

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        """Value, slope and curvature of the log-partition where the plain scale is the only atom."""

    def sums(self, block: Block, point: Point, gradient: bool = True) -> Sums:
        """Value, gradient by rank and working-set Hessian of the log-partition; without ``gradient`` the Hessian alone."""

    def information(self, block: Block, scale: float, begins: np.ndarray | None = None) -> Information:
        """Information on every atom where all logits are multiplied by ``scale``."""

    def truncate(
        self, block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int
    ) -> Truncated:
        """Calibrated rows: at least their ``kept`` highest ranks, of which alone prior targets are computed."""
