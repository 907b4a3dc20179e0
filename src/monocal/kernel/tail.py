"""The classes below the top k: their part of the sums, read off the logits as they are.

sum p,  sum p v,  sum p v^2      over the tail, p = exp(-w v + base) with the parameters of the lowest rank in use
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, clip_, exp_, takes_triton
from ..ranks.ranked import LARGEST, Block
from . import compiled
from . import triton_tail as tail_triton
from .point import Point, parameters, weighted


def tail_moments(block: Block, point: Point, f: Array, shift: Array | None, count: int = 3) -> list[Array]:
    """``sum p``, ``sum p v``, ``sum p v^2`` (the first ``count``) over the tail, unnormalised like ``exp(f)``.

    With depths cut at the height, each class in use contributes as much as the lowest, and that is taken off again. What
    it loses in precision is below the rounding of the whole normaliser: each of them weighs at least as much there.
    """
    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    xp = array_namespace(f)
    weights, base = parameters(block, point, f)
    weights, base = [w[:, :1] for w in weights], base[:, :1]
    if shift is not None:
        base = base - shift
    rest = _rest_moments(block, weights, base, count)
    if tail.logits is None:
        return rest
    lowest = exp_(base[:, 0] + sum(w[:, 0] * rows.height for w in weights))
    sums = _tail_sums(block, weights, base, count)
    kept = f.shape[1] if rows.valid is None else xp.sum(xp.astype(rows.valid, f.dtype), axis=1)
    # Classes of the tail that equal the lowest logit in use share the value of its group (see average_ties).
    low = rows.depth == rows.height[:, None]
    group = xp.exp(xp.max(xp.where(low, f, xp.min(f) + 0 * f), axis=1))
    extra = xp.astype(tail.ties, f.dtype) * (group - lowest)
    powers = [rows.height**t for t in range(count)]
    return [
        xp.clip(s - kept * lowest * h, min=0.0) + extra * h + t
        for s, h, t in zip(sums, powers, rest, strict=True)
    ]


def read_in_place(logits: Array, other: Array) -> bool:
    """Whether a kernel sums logits where they lie, in the precision of ``other``; else arrays of their size are needed."""
    return takes_triton(logits) and str(other.dtype).endswith("float32")


def _rest_moments(block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
    """The same of classes of which only the number and the common depth are known."""
    tail = block.rows.tail
    assert tail is not None
    rest = tail.rest
    if rest is None:
        return [0.0] * count
    mass = rest.count * exp_(base[:, 0] + sum(w[:, 0] * rest.depth for w in weights))
    return [mass * rest.depth**t for t in range(count)]


def _tail_sums(block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
    """``sum exp(f) v^t`` over all classes, with depths cut at the height; masked classes count nothing."""
    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    assert tail.logits is not None
    if read_in_place(tail.logits, base):
        leading, *lesser = [-w[:, 0] for w in weights]
        parts = [leading, lesser[0] if lesser else 0 * leading]
        return tail_triton.tail_sums(tail.logits, rows.top[:, 0], rows.height, parts, base[:, 0])[:count]
    if not tail.masked and compiled.suits(tail.logits) and base.dtype == np.float32:
        given = [np.ascontiguousarray(w[:, 0]) for w in (*weights, base)]
        return list(
            compiled.tail_sums(tail.logits, rows.top[:, 0], rows.height, given[:-1], given[-1])[:count]
        )
    xp = array_namespace(base)
    with np.errstate(over="ignore"):
        v = rows.top - xp.astype(tail.logits, base.dtype, copy=False)
    v = clip_(v, rows.height[:, None], LARGEST)
    hidden = xp.isinf(tail.logits) if tail.masked else None
    e = weighted(v, weights)
    e += base
    e = exp_(e)
    if hidden is not None:
        e *= xp.astype(~hidden, e.dtype)
    sums = []
    for power in range(count):
        if power:
            e *= v
        sums.append(xp.sum(e, axis=1))
    return sums
