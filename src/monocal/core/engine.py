"""What an engine works on, and what it returns: blocks of rows, points to evaluate, sums.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]`` (bias). Scales
of factors but the first (``psi_0 = 1``) begin at the lowest rank. With coefficients ``c >= 0`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise,

measured from the top of the row (``u = U - v``, depth ``v``, height ``U``), where rounding does no harm:

    f_(i) - f_top = -w_i v_i + base_i,      base_i = -(w_top - w_i) U - (b_top - b_i)

Weights and biases change at few ranks (the jumps), so they are computed for the pieces between them, in double precision, and
once for all blocks where all rows share them. The objective

    sum_n weight_n [log sum_i exp(f_(i) - f_top) + f_top - f_label]

has

    value      log-partition (the labels' part is linear in ``c`` and computed beforehand)
    gradient   column sums of ``p v``, ``p U``, ``psi p``; then sums over ranks give every atom (`cone`)
    Hessian    covariances of the atoms of a working set

A block may hold many *parts*, each of which fits the cache, one after another in the same arrays. An engine adds up part by part,
in their order, so sums do not depend on the number of threads. What is returned has a fixed size and adds up, so rows may live
anywhere.

Labels among tied logits: the tied ranks share the label in equal parts, so it does not matter how the sort placed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np

from ..arrays import Array, array_namespace, device_of, distinct, on_device_of, to_numpy
from .ranked import Ranked, Rest, Tail

# Kinds of atoms.
SCALE, BIAS = 0, 1

# Kinds of sums by rank.
DEPTH, HEIGHT, MASS = 0, 1, 2


@dataclass(frozen=True)
class Block:
    """Prepared rows, and the engine that works on them."""

    engine: Engine
    rows: Ranked
    weight: Array  # (n,)
    label_depth: Array  # (n,)
    label_rank: Array  # (n,), first of the ranks its value holds
    label_held: Array  # (n,), how many ranks hold it
    label_size: Array  # (n,), how many classes hold it: those ranks and what ties with them in the tail
    statistics: Array | None = None  # (n, S)
    factors: Array | None = None  # (n, K), non-negative, first column 1; None means just the 1
    # (n,), one of the classes that have the largest logit, where it is asked for
    top_class: np.ndarray | None = None
    context: np.ndarray | None = None  # (n, C), columns of the context of a row; on the host
    ends: np.ndarray | None = None  # (B,), behind the last row of each part; None: one part

    @property
    def n_rows(self) -> int:
        return len(self.weight)

    def with_factors(self, factors: Callable[[Array], Array]) -> Block:
        """The same rows with the factors (n, K) of their statistics, in the order in memory that the depths have.

        A loop is compiled again for each way in which an array may lie, and the last digits of its sums would depend on that.
        """
        psi = factors(self.statistics)
        if isinstance(psi, np.ndarray):
            psi = np.asarray(psi, order="F" if rank_by_rank(self.rows.depth) else "C")
        return replace(self, factors=psi)

    @property
    def total_weight(self) -> float:
        weight = to_numpy(self.weight)
        return sum(float(weight[rows].sum(dtype=np.float64)) for rows in self.slices())

    def every(self, step: int) -> Block:
        """One row in ``step`` of each part, copied side by side."""
        return self[np.concatenate([np.arange(x.start, x.stop, step) for x in self.slices()])]

    def slices(self) -> list[slice]:
        """The rows of each part."""
        ends = [self.n_rows] if self.ends is None else self.ends.tolist()
        return [slice(i, j) for i, j in pairwise([0, *ends])]

    def in_double(self) -> Block:
        """The same rows in double precision, but for the logits of a tail: numpy only."""
        rows = self.rows
        if rows.depth.dtype == np.float64:
            return self
        wide = {name: getattr(rows, name).astype(np.float64) for name in ("depth", "height", "top")}
        factors = None if self.factors is None else self.factors.astype(np.float64)
        weight = self.weight.astype(np.float64)
        return replace(self, rows=replace(rows, **wide), weight=weight, factors=factors)

    def __getitem__(self, index: slice | Array) -> Block:
        # To a device once for all arrays.
        there = index if isinstance(index, slice) else on_device_of(index, self.weight)
        here = index if isinstance(index, slice) else to_numpy(index)
        taken = {name: getattr(self, name) for name in (*_OF_ROWS, *_ON_HOST)}
        for name, x in taken.items():
            taken[name] = None if x is None else x[here if name in _ON_HOST else there]
        return Block(self.engine, self.rows[there], **taken)


# Names of what there is for each row, and of what is always on the host.
_OF_ROWS = ("weight", "label_depth", "label_rank", "label_held", "label_size", "statistics", "factors")
_ON_HOST = ("top_class", "context")


def join_blocks(blocks: Sequence[Block], logits: Array | None = None) -> Block:
    """One block with the rows of several; ``logits`` are theirs, where they lie together already."""
    if len(blocks) == 1:
        return blocks[0]
    double = [b for b in blocks if b.engine is not blocks[0].engine or str(b.weight.dtype).endswith("64")]
    if double and len(double) < len(blocks):  # rows with finite masks are in double precision
        wide = next(b for b in double if str(b.weight.dtype).endswith("64"))
        blocks = [replace(b.in_double(), engine=wide.engine) for b in blocks]
    xp = array_namespace(blocks[0].weight)

    def join(parts: Sequence[Any], name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        if arrays[0] is None:
            return None
        return (np.concatenate if name in _ON_HOST else xp.concat)(arrays, axis=0)

    ranked, tail = [b.rows for b in blocks], blocks[0].rows.tail
    if tail is not None:
        tails = [rows.tail for rows in ranked]
        rests = [t.rest for t in tails if t is not None]
        rest = None if rests[0] is None else Rest(join(rests, "depth"), join(rests, "count"))
        masked = any(t.masked for t in tails if t is not None)
        tail = Tail(
            logits if logits is not None else join(tails, "logits"), join(tails, "ties"), masked, rest
        )
    if any(rows.valid is not None for rows in ranked):
        everywhere = [xp.ones_like(rows.depth, dtype=xp.bool) for rows in ranked]
        ranked = [
            replace(rows, valid=one) if rows.valid is None else rows
            for rows, one in zip(ranked, everywhere, strict=True)
        ]
    tied = [rows.tied for rows in ranked]
    rows = Ranked(
        **{name: join(ranked, name) for name in ("depth", "height", "top", "valid")},
        tail=tail,
        n_classes=ranked[0].n_classes,
        tied=None if any(t is None for t in tied) else np.any(np.array(tied), axis=0),
    )
    return Block(blocks[0].engine, rows, **{name: join(blocks, name) for name in (*_OF_ROWS, *_ON_HOST)})


def rank_by_rank(depth: Array) -> bool:
    """Whether the depths of one rank in all rows stand side by side in memory."""
    return isinstance(depth, np.ndarray) and depth.strides[0] < depth.strides[1]


@dataclass(frozen=True)
class Point:
    """Where to evaluate, and for which atoms the Hessian is wanted."""

    shape: tuple[int, int]  # K factors, r ranks
    jumps: np.ndarray  # ranks at which a weight or a bias changes, (D - 1,)
    # Which factors count (K',), and -w, -(w_top - w) and -(b_top - b) of theirs in each of the pieces between jumps, (3, K', D).
    table: tuple[np.ndarray, np.ndarray]
    kind: np.ndarray  # (a,) of the working set
    factor: np.ndarray  # (a,)
    start: np.ndarray  # (a,)
    own: np.ndarray | None = None  # factors whose sums are asked for; None: all

    @classmethod
    def of_steps(
        cls,
        shape: tuple[int, int],
        places: np.ndarray,
        steps: np.ndarray,
        working: np.ndarray,
        own: np.ndarray | None = None,
    ) -> Point:
        """From coefficients at kind, factor and start, (3, ...) each, in a grid of K factors and r ranks.

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
        return cls(shape, first[1:], table, working[0], working[1], working[2], own)

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
        r = self.shape[1]
        return np.concatenate([[0], self.jumps, [r]]), np.append(self.columns[0], r)


def parameters(block: Block, point: Point, lowest: bool = False) -> tuple[list[Array], Array]:
    """``-w`` (in parts that add up) and ``-(w_top - w) U - (b_top - b)`` of each piece, so that ``f - f_top = -w v + base``.

    (D, n) each, or (D, 1) where all rows share them. They change at few ranks, so double precision costs nothing; what rounding
    is left is that of a row and averages out. That of weights, which all rows share, or nearly, would not: in single precision it
    moves the gradient by 1e-6. The lowest piece may be all that is asked for.
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
    base = xp.astype(base, depth.dtype, copy=False)
    if depth.dtype == xp.float64:
        return [weights], base
    leading = xp.astype(weights, depth.dtype)
    return [leading, xp.astype(weights - xp.astype(leading, xp.float64), depth.dtype)], base


class _Added:
    """Sums over rows, in float64 on the host: they add field by field."""

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True)
class Sums(_Added):
    """Sums at a point."""

    value: float
    by_rank: np.ndarray  # (2 + K, r), of the K factors asked for: at each rank p v, p U, and psi p of each
    whole: np.ndarray  # (K - 1,): psi p v over all ranks, of the factors but the first
    hessian: np.ndarray  # (a, a)


@dataclass(frozen=True)
class Totals(_Added):
    """Sums before any coefficient: of the labels, and the first two moments of the atoms."""

    weight: float
    label: np.ndarray  # (3, K, r): where the label's shares of psi v, psi U and psi begin (positive) and end
    # (3, K, r): the same as if every label were the top class, in blocks where some rows share it
    top: np.ndarray
    tied: np.ndarray  # (r,) bool: whether a rank equals the one below it in some row
    mean: np.ndarray  # (2, K, r): sums of psi u and psi (all rows) at each rank
    square: np.ndarray  # (2, K, r): sums of their squares
    ties: int  # number of ranks in the largest group of ties

    def __add__(self, other: Totals) -> Totals:
        return replace(super().__add__(other), ties=max(self.ties, other.ties))


@dataclass(frozen=True)
class Information(_Added):
    """What the rows can tell about each atom: its Fisher information at temperature scaling, ``p = softmax(scale z)``.

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
        names, or functions of sorted logits, to measure. ``ordered=False``: no atom begins above the lowest rank, so rows need
        not be sorted. ``top_class``: find which class is on top. ``context`` (n, C): kept with the rows.
        """

    def totals(self, block: Block) -> Totals:
        """Label sums and moments of the atoms."""

    def label_sums(self, block: Block) -> np.ndarray:
        """The label sums of `totals` alone, in a row with the weight of all behind them."""

    def scale_totals(self, block: Block) -> Totals:
        """The totals where the plain scale is the only atom: sums over all ranks, which stand at the lowest, and at the top."""

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        """Value, slope and curvature of the log-partition where the plain scale is the only atom."""

    def sums(self, block: Block, point: Point, gradient: bool = True) -> Sums:
        """Value, gradient by rank and working-set Hessian of the log-partition; without ``gradient`` the Hessian alone."""

    def information(self, block: Block, scale: float) -> Information:
        """Information on every atom where all logits are multiplied by ``scale``."""

    def truncate(
        self, block: Block, point: Point, prior_scales: Sequence[tuple[float, float]], kept: int
    ) -> Truncated:
        """Calibrated rows: at least their ``kept`` highest ranks, of which alone prior targets are computed."""
