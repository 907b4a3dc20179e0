"""A block of rows, prepared: sorted, anchored, with its labels found.

A row of logits enters the mathematics only through its sorted values, measured from the lowest logit in use,

    u_(i) = z_(i) - z_low >= 0.

They are held as the *height* ``U = z_top - z_low`` of the row and the *depths* ``v_(i) = z_top - z_(i) = U - u_(i)`` below
its top: the classes that matter have small depths, so single precision loses nothing on them.

With ``top_k`` the ranks in use are the k largest; what lies below (the tail, ``v > U``) is not sorted and stays in the
normaliser with the parameters of the lowest rank in use. Masked classes (``-inf``) take the lowest ranks of their row and
no probability. Labels among tied logits: the tied ranks share the label in equal parts, so the sort's whims do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    compute_dtype,
    count_true,
    device_of,
    is_lazy_torch,
    running_maximum,
    subtract_from_,
    to_numpy,
)
from . import compiled

# Depths are cut here: a class this far below the top has no probability under any scale that means something, and larger
# numbers (the lowest float as a mask, say) would only ruin the conditioning of everything measured from the lowest logit.
LARGEST = 1e6


@dataclass(frozen=True)
class Rest:
    """Classes of which only the number and the common logit are known."""

    depth: Array  # (n,), at least the height
    count: Array  # (n,)

    def __getitem__(self, index: slice | Array) -> Rest:
        return Rest(self.depth[index], self.count[index])


@dataclass(frozen=True)
class Tail:
    """The classes below the top k: their logits stay where they are."""

    logits: Array | None  # (n, m), all classes; None where they are not looked at, or a rest is all there is
    ties: Array  # (n,), classes of the tail that equal the lowest logit in use
    masked: bool
    rest: Rest | None = None

    def __getitem__(self, index: slice | Array) -> Tail:
        logits = None if self.logits is None else self.logits[index]
        rest = None if self.rest is None else self.rest[index]
        return Tail(logits, self.ties[index], self.masked, rest)


@dataclass(frozen=True)
class Ranked:
    """Sorted rows."""

    depth: Array  # (n, r), descending to 0 at the top; masked classes lie below the height
    height: Array  # (n,), depth of the lowest logit in use
    top: Array  # (n, 1), the largest logit
    valid: Array | None  # (n, r) bool, None where nothing is masked
    tail: Tail | None
    n_classes: int
    # (r,) bool: whether a rank equals the one below it in some row; None if nobody looked
    tied: np.ndarray | None = None

    def __getitem__(self, index: slice | Array) -> Ranked:
        return replace(
            self,
            depth=self.depth[index],
            height=self.height[index],
            top=self.top[index],
            valid=None if self.valid is None else self.valid[index],
            tail=None if self.tail is None else self.tail[index],
        )

    def in_use(self) -> Ranked:
        """Without the logits of the tail, so that taking some of the rows does not copy them."""
        return self if self.tail is None else replace(self, tail=replace(self.tail, logits=None))


@dataclass(frozen=True)
class Block:
    """Prepared rows: what the kernel reads."""

    rows: Ranked
    weight: Array  # (n,)
    label_depth: Array  # (n,)
    label_rank: Array  # (n,), first of the ranks its value holds
    label_held: Array  # (n,), how many ranks hold it
    label_size: Array  # (n,), how many classes hold it: those ranks and what ties with them in the tail
    statistics: Array | None = None  # (n, S)
    factors: Array | None = None  # (n, K), non-negative, first column 1; None means just the 1

    @property
    def n_rows(self) -> int:
        return self.weight.shape[0]

    def every(self, step: int) -> Block:
        """One row in ``step``, copied side by side: loops want them so, and the others need not stay in memory."""
        return self[np.arange(0, self.n_rows, step)]

    def in_double(self) -> Block:
        """The same rows in double precision, but for the logits of a tail: numpy only."""
        if self.rows.depth.dtype == np.float64:
            return self

        def wide(x: Array | None) -> Array | None:
            return None if x is None else x.astype(np.float64)

        rows = replace(
            self.rows,
            depth=wide(self.rows.depth),
            height=wide(self.rows.height),
            top=wide(self.rows.top),
        )
        return replace(self, rows=rows, weight=wide(self.weight), factors=wide(self.factors))

    def __getitem__(self, index: slice | Array) -> Block:
        return Block(
            self.rows[index],
            self.weight[index],
            self.label_depth[index],
            self.label_rank[index],
            self.label_held[index],
            self.label_size[index],
            None if self.statistics is None else self.statistics[index],
            None if self.factors is None else self.factors[index],
        )


def rank_rows(logits: Array, top_k: int | None = None, dtype: object = None, ordered: bool = True) -> Ranked:
    """Sort rows of logits (n, m); computed in ``dtype`` (default: float32, float64 for float64).

    Without ``ordered`` only the lowest and the largest are put in their places, at either end.
    """
    xp = array_namespace(logits)
    dtype = dtype or compute_dtype(logits)
    m = logits.shape[1]
    r = m if top_k is None else min(top_k, m)
    if not ordered:
        z = _ends_in_place(logits)
    elif r == m:
        z = xp.sort(logits, axis=1, stable=False)
    elif is_lazy_torch(logits):
        z = logits.topk(r, dim=1).values.flip(1)
    else:
        z = np.sort(np.partition(logits, m - r, axis=1)[:, m - r :], axis=1)
    z = xp.astype(z, dtype, copy=False)
    top = xp.asarray(z[:, -1:], copy=True)
    masked = bool(xp.any(xp.isinf(z[:, 0])))
    valid = ~xp.isinf(z) if masked else None
    with np.errstate(over="ignore"):
        depth = subtract_from_(top, z)
    if not bool(xp.max(depth[:, 0]) <= LARGEST):
        depth = xp.clip(depth, max=LARGEST)
    if valid is None:
        height = xp.asarray(depth[:, 0], copy=True)
    else:
        height = xp.max(xp.where(valid, depth, 0 * depth), axis=1)
        depth = xp.where(valid, depth, 2 * height[:, None] + 1)
    tail = None
    if r < m:
        with np.errstate(over="ignore"):
            below = top - xp.astype(logits, dtype, copy=False)
        if not bool(xp.max(height) < LARGEST):  # cut as the sorted ones were, masked classes apart
            below = xp.where(xp.isinf(logits), below, xp.clip(below, max=LARGEST))
        equal = count_true(below == height[:, None])
        tail = Tail(logits, equal - count_true(depth == height[:, None]), bool(xp.any(xp.isinf(logits))))
    return Ranked(depth, height, top, valid, tail, m)


def _ends_in_place(logits: Array) -> Array:
    """Rows with their largest logit last and their smallest first."""
    xp = array_namespace(logits)
    z = xp.asarray(logits, copy=True)
    row = xp.arange(z.shape[0], **device_of(z))
    for place, find in ((-1, xp.argmax), (0, xp.argmin)):
        at = find(z, axis=1)
        there = z[row, at]
        z[row, at] = xp.asarray(z[:, place], copy=True)  # what is written must not be what is read
        z[:, place] = there
    return z


def prepare_block(
    logits: Array,
    labels: Array,
    weight: Array | None,
    *,
    top_k: int | None = None,
    statistics: Sequence[Callable[[Ranked], Array]] = (),
    dtype: object = None,
    ordered: bool = True,
) -> Block:
    """Everything the kernel needs of some rows; ``ordered=False`` will do where no atom begins above the lowest rank."""
    xp = array_namespace(logits)
    rows = rank_rows(logits, top_k, dtype, ordered)
    depth, tail = rows.depth, rows.tail
    z_label = xp.astype(xp.take_along_axis(logits, labels[:, None], axis=1), depth.dtype)
    with np.errstate(over="ignore"):
        label_depth = xp.clip(rows.top - z_label, max=LARGEST)
    tied: np.ndarray | None
    if ordered and compiled.suits(depth):
        below, held, tied = compiled.find_labels(depth, label_depth[:, 0])
    else:
        below = count_true(depth > label_depth)
        held = count_true(depth >= label_depth) - below
        tied = to_numpy(xp.any(depth[:, 1:] == depth[:, :-1], axis=0)) if ordered else None
    if tied is not None:
        rows = replace(rows, tied=np.append(False, tied))
    label_depth = label_depth[:, 0]
    size = held
    if tail is not None:
        in_tail = label_depth > rows.height  # the lowest rank stands for it
        below = xp.where(in_tail, 0 * below, below)
        held = xp.where(in_tail, 0 * held + 1, held)
        size = held + xp.where(label_depth == rows.height, tail.ties, 0 * held)
    if weight is None:
        weight = xp.ones(depth.shape[0], dtype=depth.dtype, **device_of(depth))
    stats = xp.stack([xp.astype(s(rows), depth.dtype) for s in statistics], axis=1) if statistics else None
    return Block(rows, xp.astype(weight, depth.dtype), label_depth, below, held, size, stats)


def join_blocks(blocks: Sequence[Block], logits: Array | None = None) -> Block:
    """One block with the rows of several; ``logits`` are theirs, where they lie together already."""
    if len(blocks) == 1:
        return blocks[0]
    xp = array_namespace(blocks[0].weight)

    def join(get: Callable[[Block], Array | None]) -> Array | None:
        parts = [get(b) for b in blocks]
        return None if parts[0] is None else xp.concat(parts, axis=0)

    tail = blocks[0].rows.tail
    if tail is not None:
        tail = Tail(
            logits if logits is not None else join(lambda b: b.rows.tail and b.rows.tail.logits),
            join(lambda b: b.rows.tail and b.rows.tail.ties),
            any(b.rows.tail is not None and b.rows.tail.masked for b in blocks),
            tail.rest and Rest(join(lambda b: _rest(b).depth), join(lambda b: _rest(b).count)),
        )
    masked = any(b.rows.valid is not None for b in blocks)
    rows = Ranked(
        join(lambda b: b.rows.depth),
        join(lambda b: b.rows.height),
        join(lambda b: b.rows.top),
        join(lambda b: _valid(b.rows)) if masked else None,
        tail,
        blocks[0].rows.n_classes,
        _any_tied([b.rows.tied for b in blocks]),
    )
    return Block(
        rows,
        join(lambda b: b.weight),
        join(lambda b: b.label_depth),
        join(lambda b: b.label_rank),
        join(lambda b: b.label_held),
        join(lambda b: b.label_size),
        join(lambda b: b.statistics),
        join(lambda b: b.factors),
    )


def _any_tied(tied: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [t for t in tied if t is not None]
    return np.any(known, axis=0) if len(known) == len(tied) else None


def _rest(block: Block) -> Rest:
    assert block.rows.tail is not None
    assert block.rows.tail.rest is not None
    return block.rows.tail.rest


def _valid(rows: Ranked) -> Array:
    xp = array_namespace(rows.depth)
    return xp.ones_like(rows.depth, dtype=xp.bool) if rows.valid is None else rows.valid


def tie_bounds(depth: Array) -> tuple[Array, Array]:
    """First and last rank of the group of equal values that each rank belongs to."""
    xp = array_namespace(depth)
    n, r = depth.shape
    rank = xp.broadcast_to(xp.arange(r, **device_of(depth)), (n, r))
    edge = depth[:, 1:] != depth[:, :-1]
    true = xp.ones((n, 1), dtype=xp.bool, **device_of(depth))
    begins = xp.concat([true, edge], axis=1)
    ends = xp.concat([edge, true], axis=1)
    first = running_maximum(xp.where(begins, rank, 0 * rank))
    last = r - 1 - xp.flip(running_maximum(xp.flip(xp.where(ends, r - 1 - rank, 0 * rank), axis=1)), axis=1)
    return first, last


def largest_tie(rows: Ranked) -> int:
    """Ranks of the largest group of equal values, masked classes apart; 1 where rows are in no order."""
    if rows.tied is None or not rows.tied.any():
        return 1
    xp = array_namespace(rows.depth)
    equal = rows.depth[:, 1:] == rows.depth[:, :-1]
    if rows.valid is not None:
        equal = equal & rows.valid[:, :-1]
    longer = xp.nonzero(xp.any(equal[:, 1:] & equal[:, :-1], axis=1))[0]
    if not longer.shape[0]:
        return 2
    first, last = tie_bounds(rows.depth[longer])
    size = last - first + 1
    return int(xp.max(size if rows.valid is None else xp.where(rows.valid[longer], size, 1 + 0 * size)))


def average_ties(f: Array, rows: Ranked, jumps: np.ndarray) -> bool:
    """Give tied ranks one value, the mean of theirs; it lies between its neighbours, so the order stands.

    ``f`` (n, r) is linear in the logit between the ranks in ``jumps``, so ties need care only where one of these falls
    inside a group of equal values. Changes ``f`` in place, and says whether it did.
    """
    xp = array_namespace(f)
    jumps = jumps[jumps > 0]
    if rows.tied is not None:
        jumps = jumps[rows.tied[jumps]]
    if not len(jumps):
        return False
    split = xp.any(rows.depth[:, jumps] == rows.depth[:, jumps - 1], axis=1)
    index = xp.nonzero(split)[0]
    chunk = max(1, 2**22 // f.shape[1])  # half a dozen arrays of this size are needed at a time
    rows = rows.in_use()
    for begin in range(0, index.shape[0], chunk):
        part = index[begin : begin + chunk]
        f[part] = _group_means(f[part], rows[part])
    return bool(index.shape[0])


def _group_means(f: Array, rows: Ranked) -> Array:
    xp = array_namespace(f)
    first, last = tie_bounds(rows.depth)
    total = xp.cumulative_sum(xp.astype(f, xp.float64), axis=1)
    f_first = xp.take_along_axis(f, first, axis=1)
    f_last = xp.take_along_axis(f, last, axis=1)
    before = xp.take_along_axis(total, first, axis=1) - xp.astype(f_first, xp.float64)
    mean = (xp.take_along_axis(total, last, axis=1) - before) / xp.astype(last - first + 1, xp.float64)
    mean = xp.clip(xp.astype(mean, f.dtype), f_first, f_last)
    if rows.tail is not None:
        # Classes of the tail that equal the lowest logit in use belong to its group, with the lowest rank's value.
        low = rows.depth == rows.height[:, None]
        kept = xp.astype(count_true(low), f.dtype)
        share = (kept / (kept + xp.astype(rows.tail.ties, f.dtype)))[:, None]
        lowest = xp.take_along_axis(f, xp.argmax(xp.astype(low, xp.int8), axis=1)[:, None], axis=1)
        mean = xp.where(low, xp.minimum(lowest + (mean - lowest) * share, mean), mean)
    return mean
