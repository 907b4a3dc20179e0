"""A block of rows, prepared: sorted, anchored, with its labels found.

A row of logits enters the mathematics only through its sorted, anchored values

    u_(i) = z_(i) - z_low >= 0,      z_low = the lowest logit in use,

and the rank of its label. With ``top_k`` the ranks in use are the k largest; what lies below (the tail, ``u < 0``) is
not sorted and stays in the normaliser with the parameters of the lowest rank in use. Masked classes (``-inf``) take
the lowest ranks of their row and no probability.

Labels among tied logits: the tied ranks share the label in equal parts, so the sort's whims do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, array_namespace, compute_dtype, is_lazy_torch, running_maximum

# Larger than any ratio of logits that means anything, small enough that a weight times it stays finite.
_LARGEST = {"float32": 1e30, "float64": 1e290}
_MASKED = -1.0  # stands for a masked class among the non-negative u


@dataclass(frozen=True)
class Tail:
    """The classes below the top k: their logits stay where they are."""

    logits: Array  # (n, m), all classes
    ties: Array  # (n,), classes of the tail that equal the anchor
    masked: bool


@dataclass(frozen=True)
class Ranked:
    """Sorted, anchored logits of some rows."""

    u: Array  # (n, r), ascending, lowest in use is 0; masked classes are negative
    anchor: Array  # (n, 1), the lowest logit in use
    valid: Array | None  # (n, r) bool, None where nothing is masked
    tied: bool
    tail: Tail | None
    n_classes: int


@dataclass(frozen=True)
class Block:
    """Prepared rows: what the kernel reads."""

    rows: Ranked
    weight: Array  # (n,)
    label_u: Array  # (n,), anchored logit of the label
    label_rank: Array  # (n,), first of the ranks its value holds
    label_size: Array  # (n,), how many ranks (and tied tail classes) hold it
    statistics: Array | None = None  # (n, S)
    factors: Array | None = None  # (n, K), non-negative, first column 1; None means just the 1

    @property
    def n_rows(self) -> int:
        return self.weight.shape[0]

    def take(self, index: slice | np.ndarray) -> Block:
        """Some of the rows."""

        def part(x: Array | None) -> Array | None:
            return None if x is None else x[index]

        tail = self.rows.tail
        if tail is not None:
            tail = Tail(tail.logits[index], tail.ties[index], tail.masked)
        rows = replace(
            self.rows,
            u=self.rows.u[index],
            anchor=self.rows.anchor[index],
            valid=part(self.rows.valid),
            tail=tail,
        )
        return Block(
            rows,
            self.weight[index],
            self.label_u[index],
            self.label_rank[index],
            self.label_size[index],
            part(self.statistics),
            part(self.factors),
        )


def rank_rows(logits: Array, top_k: int | None = None, dtype: object = None) -> Ranked:
    """Sort and anchor rows of logits (n, m); computed in ``dtype`` (default: float32, float64 for float64)."""
    xp = array_namespace(logits)
    dtype = dtype or compute_dtype(logits)
    m = logits.shape[1]
    r = m if top_k is None else min(top_k, m)
    if r == m:
        u = xp.astype(xp.sort(logits, axis=1), dtype, copy=False)
    elif is_lazy_torch(logits):
        u = xp.astype(logits.topk(r, dim=1).values.flip(1), dtype, copy=False)
    else:
        u = np.sort(np.partition(logits, m - r, axis=1)[:, m - r :], axis=1).astype(dtype, copy=False)
    low = u[:, :1]
    valid = None
    if bool(xp.any(xp.isinf(low))):
        valid = ~xp.isinf(u)
        low = xp.min(xp.where(valid, u, xp.asarray(np.inf, dtype=dtype)), axis=1, keepdims=True)
    anchor = xp.asarray(low, copy=True)
    largest = _LARGEST[str(u.dtype).rpartition(".")[2]]
    with np.errstate(over="ignore", invalid="ignore"):
        u -= anchor
    if not bool(xp.max(u[:, -1]) <= largest):
        u = xp.clip(u, max=largest)
    if valid is not None:
        u = xp.where(valid, u, xp.asarray(_MASKED, dtype=dtype))
    tied = bool(xp.any(u[:, 1:] == u[:, :-1])) if r > 1 else False
    tail = None
    if r < m:
        equal = xp.sum(xp.astype(xp.astype(logits, dtype) == anchor, dtype), axis=1)
        kept = xp.sum(xp.astype(u == 0, dtype), axis=1)
        tail = Tail(logits, equal - kept, bool(xp.any(xp.isinf(logits))))
        tied = tied or bool(xp.any(tail.ties > 0))
    return Ranked(u, anchor, valid, tied, tail, m)


def prepare_block(
    logits: Array,
    labels: Array,
    weight: Array | None,
    *,
    top_k: int | None = None,
    statistics: Sequence[Callable[[Ranked], Array]] = (),
    dtype: object = None,
) -> Block:
    """Everything the kernel needs of some rows."""
    xp = array_namespace(logits)
    rows = rank_rows(logits, top_k, dtype)
    u, tail = rows.u, rows.tail
    n = u.shape[0]
    z_label = xp.astype(xp.take_along_axis(logits, labels[:, None], axis=1), u.dtype)
    label_u = xp.clip(z_label - rows.anchor, max=_LARGEST[str(u.dtype).rpartition(".")[2]])
    below = xp.sum(xp.astype(u < label_u, xp.int32), axis=1)
    size = xp.sum(xp.astype(u == label_u, xp.int32), axis=1)
    label_u = label_u[:, 0]
    if tail is not None:
        size = size + xp.where(label_u == 0, xp.astype(tail.ties, xp.int32), 0 * size)
    in_tail = label_u < 0
    below = xp.where(in_tail, 0 * below, below)
    size = xp.where(in_tail, 0 * size + 1, size)
    if weight is None:
        weight = xp.ones(n, dtype=u.dtype, **_device(u))
    stats = xp.stack([xp.astype(s(rows), u.dtype) for s in statistics], axis=1) if statistics else None
    return Block(rows, xp.astype(weight, u.dtype), label_u, below, size, stats)


def _device(x: Array) -> dict[str, object]:
    return {"device": x.device} if is_lazy_torch(x) else {}


def tie_bounds(u: Array) -> tuple[Array, Array]:
    """First and last rank of the group of equal values that each rank belongs to."""
    xp = array_namespace(u)
    n, r = u.shape
    rank = xp.broadcast_to(xp.arange(r, **_device(u)), (n, r))
    edge = u[:, 1:] != u[:, :-1]
    true = xp.ones((n, 1), dtype=xp.bool, **_device(u))
    begins = xp.concat([true, edge], axis=1)
    ends = xp.concat([edge, true], axis=1)
    first = running_maximum(xp.where(begins, rank, 0 * rank))
    last = r - 1 - xp.flip(running_maximum(xp.flip(xp.where(ends, r - 1 - rank, 0 * rank), axis=1)), axis=1)
    return first, last


def average_ties(f: Array, rows: Ranked) -> Array:
    """Give tied ranks one value, the mean of theirs; it lies between its neighbours, so the order stands."""
    xp = array_namespace(f)
    first, last = tie_bounds(rows.u)
    total = xp.cumulative_sum(xp.astype(f, xp.float64), axis=1)
    f_first = xp.take_along_axis(f, first, axis=1)
    f_last = xp.take_along_axis(f, last, axis=1)
    before = xp.take_along_axis(total, first, axis=1) - xp.astype(f_first, xp.float64)
    mean = (xp.take_along_axis(total, last, axis=1) - before) / xp.astype(last - first + 1, xp.float64)
    mean = xp.clip(xp.astype(mean, f.dtype), f_first, f_last)
    if rows.tail is not None:
        # Classes of the tail that equal the anchor belong to its group, with the lowest rank's value.
        kept = xp.sum(xp.astype(rows.u == 0, f.dtype), axis=1, keepdims=True)
        share = kept / (kept + xp.astype(rows.tail.ties[:, None], f.dtype))
        mean = xp.where(rows.u == 0, f[:, :1] + (mean - f[:, :1]) * share, mean)
    return mean
