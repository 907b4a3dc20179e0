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

Where atoms begin at few of many ranks, sums are taken over *columns* of ranks: column g has the ranks from ``begins[g]`` to
the next. Arrays with an entry for each rank then have one for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from ..arrays import Array, array_namespace, device_of, distinct, on_device_of, to_numpy
from ..parallel import parallel_sum
from .ranked import Ranked, Rest, Tail

T = TypeVar("T")

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

    # Sums, as functions for `Rows.sum`: all but the first by the block's own engine.

    def total_weight(self) -> float:
        weight = to_numpy(self.weight)
        return sum(float(weight[rows].sum(dtype=np.float64)) for rows in self.slices())

    def totals(self, begins: np.ndarray | None = None) -> Totals:
        return self.engine.totals(self, begins)

    def label_sums(self, begins: np.ndarray | None = None) -> np.ndarray:
        return self.engine.label_sums(self, begins)

    def scale_totals(self) -> Totals:
        return self.engine.scale_totals(self)

    def scale_sums(self, scale: float) -> np.ndarray:
        return self.engine.scale_sums(self, scale)

    def sums(self, point: Point) -> Sums:
        return self.engine.sums(self, point)

    def hessian(self, point: Point) -> np.ndarray:
        return self.engine.sums(self, point, gradient=False).hessian

    def information(self, scale: float, begins: np.ndarray | None = None) -> Information:
        return self.engine.information(self, scale, begins)

    def every(self, step: int) -> Block:
        """One row in ``step`` of each part, copied side by side."""
        return self[np.concatenate([np.arange(x.start, x.stop, step) for x in self.slices()])]

    def slices(self) -> list[slice]:
        """The rows of each part."""
        ends = [self.n_rows] if self.ends is None else self.ends.tolist()
        return [slice(i, j) for i, j in pairwise([0, *ends])]

    def parts(self) -> list[Block]:
        """Each part as a block."""
        return [self] if self.ends is None else [self[rows] for rows in self.slices()]

    def sum_parts(self, function: Callable[[Block], T]) -> T:
        """``function(part)`` added up, on threads."""
        return function(self) if self.ends is None else parallel_sum(function, self.parts())

    def in_double(self) -> Block:
        """The same rows in double precision, but for the logits of a tail: numpy only."""
        if self.rows.depth.dtype == np.float64:
            return self
        depth, height, top = (
            x.astype(np.float64) for x in (self.rows.depth, self.rows.height, self.rows.top)
        )
        rows = replace(self.rows, depth=depth, height=height, top=top)
        factors = None if self.factors is None else self.factors.astype(np.float64)
        return replace(self, rows=rows, weight=self.weight.astype(np.float64), factors=factors)

    def __getitem__(self, index: slice | Array) -> Block:
        # To a device once for all arrays.
        there = index if isinstance(index, slice) else on_device_of(index, self.weight)
        here = index if isinstance(index, slice) else to_numpy(index)
        taken: dict[str, Any] = {}
        for name in (*_OF_ROWS, *_ON_HOST):
            x = getattr(self, name)
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
    first, ranked = blocks[0], [b.rows for b in blocks]
    xp = array_namespace(first.weight)

    def join(parts: Sequence[Any], concat: Callable[..., Any] = xp.concat) -> Any:
        return None if parts[0] is None else concat(parts, axis=0)

    tail = first.rows.tail
    if tail is not None:
        tails: list[Any] = [rows.tail for rows in ranked]
        if tail.rest is not None:
            rests = [t.rest for t in tails]
            rest = Rest(join([x.depth for x in rests]), join([x.count for x in rests]))
        tail = Tail(
            logits if logits is not None else join([t.logits for t in tails]),
            join([t.ties for t in tails]),
            any(t.masked for t in tails),
            tail.rest and rest,
        )
    valid: list[Any] = [rows.valid for rows in ranked]
    tied: list[Any] = [rows.tied for rows in ranked]
    if any(x is not None for x in valid):
        everywhere = [xp.ones_like(rows.depth, dtype=xp.bool) for rows in ranked]
        valid = [one if x is None else x for x, one in zip(valid, everywhere, strict=True)]
    rows = Ranked(
        join([rows.depth for rows in ranked]),
        join([rows.height for rows in ranked]),
        join([rows.top for rows in ranked]),
        join(valid),
        tail,
        first.rows.n_classes,
        None if any(t is None for t in tied) else np.any(tied, axis=0),
    )
    joined = {name: join([getattr(b, name) for b in blocks]) for name in _OF_ROWS}
    joined |= {name: join([getattr(b, name) for b in blocks], np.concatenate) for name in _ON_HOST}
    return Block(first.engine, rows, **joined)


def rank_by_rank(depth: Array) -> bool:
    """Whether the depths of one rank in all rows stand side by side in memory."""
    return isinstance(depth, np.ndarray) and depth.strides[0] < depth.strides[1]


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
        names, or functions of sorted logits, to measure. ``ordered=False``: no atom begins above the lowest rank, so rows need
        not be sorted. ``top_class``: find which class is on top. ``context`` (n, C): kept with the rows.
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
