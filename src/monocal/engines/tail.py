"""The classes below the top k: their part of the sums, read off the logits as they are.

sum p,  sum p v,  sum p v^2      over the tail, p = exp(-w v + base) with the parameters of the lowest rank in use
"""

from __future__ import annotations

from ..arrays import Array, array_namespace, exp_
from .block import Block
from .point import Point, parameters


def tail_moments(block: Block, point: Point, f: Array, shift: Array | None, count: int = 3) -> list[Array]:
    """``sum p``, ``sum p v``, ``sum p v^2`` (the first ``count``) over the tail, unnormalised like ``exp(f)``.

    With depths cut at the height, each class in use contributes as much as the lowest, and that is taken off again. What
    it loses in precision is below the rounding of the whole normaliser: each of them weighs at least as much there.
    """
    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    xp = array_namespace(f)
    weights, base = parameters(block, point, f, lowest=True)
    if shift is not None:
        base = base - shift
    rest = _rest_moments(block, weights, base, count)
    if tail.logits is None:
        return rest
    lowest = exp_(base[:, 0] + sum(w[:, 0] * rows.height for w in weights))
    sums = block.engine.tail_sums(block, weights, base, count)
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


def _rest_moments(block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
    """The same of classes of which only the number and the common depth are known."""
    tail = block.rows.tail
    assert tail is not None
    rest = tail.rest
    if rest is None:
        return [0 * base[:, 0]] * count
    xp = array_namespace(base)
    mass = rest.count * exp_(base[:, 0] + sum(w[:, 0] * rest.depth for w in weights))
    return [xp.astype(mass * rest.depth**t, base.dtype, copy=False) for t in range(count)]
