"""The one computation over rows: sums of one block, for every atom at once.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]``
(bias). With coefficients ``c >= 0`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise.

Measured from the top (``u = U - v``, depth ``v``, height ``U``), where rounding does no harm,

    f_(i) - f_top = -(w_i v_i + (w_top - w_i) U + (b_top - b_i)),

and the objective ``sum_n weight_n [log sum_i exp(f_(i) - f_top) + f_top - f_label]`` has

    value      log-partition (the labels' part is linear in ``c`` and known beforehand)
    gradient   column sums of ``psi p v``, ``psi p U``, ``psi p``; then sums over ranks give every atom (in `problem`)
    Hessian    E_p[atom_a atom_b] - E_p[atom_a] E_p[atom_b] on a working set; the product of two atoms starts where the
               later one starts, so its expectation is a suffix sum, too.

What is returned has a fixed size and adds up, so rows may live anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    device_of,
    exp_,
    like,
    maximum_,
    on_host,
    segment_sums,
    to_numpy,
)
from . import compiled, tail_triton
from .blocks import Block, Ranked, average_ties, tie_bounds

SCALE, BIAS = 0, 1
DEPTH, HEIGHT, MASS = 0, 1, 2


@dataclass(frozen=True)
class Point:
    """Where to evaluate, and for which atoms the Hessian is wanted."""

    weights: np.ndarray  # (K, r): scale coefficients, summed up to each rank
    biases: np.ndarray  # (K, r)
    kind: np.ndarray  # (a,) of the working set
    factor: np.ndarray  # (a,)
    start: np.ndarray  # (a,)
    # Scales of all factors but the first begin at the lowest rank: their sums are wanted, but not rank by rank.
    whole_scales: bool = False
    _shared: dict[tuple[str, ...], Shared] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shared": {}}  # workers make their own

    @cached_property
    def jumps(self) -> np.ndarray:
        """Ranks at which a weight or a bias changes."""
        change = np.diff(self.weights, axis=1).any(axis=0) | np.diff(self.biases, axis=1).any(axis=0)
        return np.flatnonzero(change) + 1

    def shared(self, other: Array) -> Shared:
        """What all rows share, beside ``other`` and for its precision; made once for all blocks."""
        key = (str(other.dtype), str(device_of(other)))
        if key not in self._shared:
            self._shared[key] = self._make_shared(other)
        return self._shared[key]

    def _make_shared(self, other: Array) -> Shared:
        xp = array_namespace(other)
        weights, biases = self.weights, self.biases
        drops = [weights[:, -1:] - weights, biases[:, -1:] - biases]
        used = np.flatnonzero(weights.any(axis=1) | drops[1].any(axis=1))
        starts = np.append(0, self.jumps)
        at = np.ix_(used, starts)
        minus = [xp.asarray(-x, **device_of(other)) for x in (weights[at], *(d[at] for d in drops))]
        lengths = xp.asarray(np.diff(np.append(starts, weights.shape[1])), **device_of(other))
        parts = _in_parts(-weights[:1, starts], other)
        return Shared(minus[0], xp.concat(minus[1:]), parts, used, lengths)


@dataclass(frozen=True)
class Shared:
    """Parameters of each piece between two jumps: ``f - f_top = psi weights v + [psi U, psi] drops``."""

    weights: Array  # (K, D), -w in double precision
    drops: Array  # (2 K, D), -(w_top - w) and -(b_top - b), in double precision
    parts: list[
        Array
    ]  # (1, D) each: the weights of the first factor, as numbers of the rows' precision that add up
    used: np.ndarray  # which factors count
    lengths: Array  # (D,), ranks of each piece


@dataclass(frozen=True)
class Sums:
    """Sums over rows, in float64 on the host. They add."""

    value: float
    by_rank: np.ndarray  # (3, K, r): sums of psi p v, psi p U and psi p at each rank
    hessian: np.ndarray  # (a, a)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.value + other.value, self.by_rank + other.by_rank, self.hessian + other.hessian)


def block_sums(block: Block, point: Point) -> Sums:
    """Value, gradient by rank and working-set Hessian of one block's log-partition."""
    if block.factors is None and not len(point.start) and _compiles(block):
        return _compiled_sums(block, point)
    return _array_sums(block, point)


def _compiles(block: Block) -> bool:
    return block.rows.valid is None and block.rows.tail is None and compiled.suits(block.rows.depth)


def _compiled_sums(block: Block, point: Point) -> Sums:
    """In one loop over the rows; the few with ties across a jump go the long way."""
    rows = block.rows
    weights, base = _parameters(block, point, rows.depth)
    split = _split_by(point.jumps, rows)
    by_rank, total = compiled.sums_by_rank(
        rows.depth, np.append(0, point.jumps), weights, base, block.weight, rows.height, split
    )
    logs = np.log(total, dtype=np.float64)
    sums = Sums(float(block.weight @ np.where(split, 0.0, logs)), by_rank[:, None, :], np.zeros((0, 0)))
    return sums + _array_sums(block[np.flatnonzero(split)], point) if split.any() else sums


def _split_by(jumps: np.ndarray, rows: Ranked) -> np.ndarray:
    """Whether a jump falls among tied ranks of a row, (n,)."""
    if rows.tied is not None:
        jumps = jumps[rows.tied[jumps]]
    return (rows.depth[:, jumps] == rows.depth[:, jumps - 1]).any(axis=1)


def _array_sums(block: Block, point: Point) -> Sums:
    rows, v, psi = block.rows, block.rows.depth, block.factors
    xp = array_namespace(v)
    with np.errstate(under="ignore"):
        p, total, shift, tail = _exponentials(block, point)
        logs = xp.log(total) if shift is None else xp.log(total) + shift[:, 0]
        value = xp.sum(block.weight * logs, dtype=xp.float64)
        share = (block.weight / total)[:, None]  # makes probabilities of `p`, times the row's weight
        left = share if psi is None else psi * share
        if len(point.start):  # the Hessian wants them row by row, the sums do not
            p *= share
            left = xp.ones_like(share) if psi is None else psi
            tail = None if tail is None else [t * share[:, 0] for t in tail]
        hessian = _hessian(block, point, p, tail) if len(point.start) else np.zeros((0, 0))
        by_rank = _sums_by_rank(left, rows.height, p, v, tail, point.whole_scales)
    return Sums(float(value), to_numpy(by_rank).astype(np.float64), hessian)


def scale_sums(block: Block, scale: float) -> np.ndarray:
    """The same where there is no atom but the plain scale: value, slope and curvature in the scale, without the labels.

    ``log sum_i exp(-scale v_i)``, minus its slope ``E_p[v]``, and ``E_p[v^2] - E_p[v]^2``. The order plays no part.
    """
    v, valid = block.rows.depth, block.rows.valid
    xp = array_namespace(v)
    with np.errstate(under="ignore"):
        weights = _in_parts(np.array([[-scale]]), v)
        if valid is None and compiled.suits(v):
            one = np.zeros(1, dtype=np.intp)
            p, _ = compiled.exponentials(v, one, weights, np.zeros((len(v), 1), dtype=v.dtype))
            total, first, second = compiled.piece_moments(p, v, one)[:, :, 0]
        else:
            p = exp_(_weighted(v, weights))
            if valid is not None:
                p *= xp.astype(valid, p.dtype)
            total = xp.sum(p, axis=1)
            p *= v
            first, second = xp.sum(p, axis=1), xp.vecdot(p, v)
        mean = first / total
        curvature = second / total - mean * mean
    rows = xp.stack([xp.log(total), mean, curvature])
    return to_numpy(xp.sum(rows * block.weight, axis=1, dtype=xp.float64))


def _exponentials(block: Block, point: Point) -> tuple[Array, Array, Array | None, list[Array] | None]:
    """``exp(f - shift)`` (n, r), its total (n,) with the tail, the shift (n, 1) where it is not the top, the tail's moments."""
    rows, v = block.rows, block.rows.depth
    if _compiles(block):
        return *_compiled_exponentials(block, point), None
    xp = array_namespace(v)
    f = from_top(block, point, v)
    shift = None
    if average_ties(f, rows, point.jumps):  # a tied top has come down to the mean of its group
        shift = xp.asarray(f[:, -1:], copy=True)
        f -= shift
    p = exp_(f) if rows.tail is None else xp.exp(f)
    if rows.valid is not None:
        p *= xp.astype(rows.valid, p.dtype)
    total = xp.sum(p, axis=1)
    if rows.tail is None:
        return p, total, shift, None
    tail = tail_moments(block, point, f, shift, 3 if len(point.start) else 2)
    return p, total + tail[0], shift, tail


def _compiled_exponentials(block: Block, point: Point) -> tuple[Array, Array, Array | None]:
    """The same in one loop, without masks or a tail; the few rows with ties across a jump are done again."""
    v = block.rows.depth
    weights, base = _parameters(block, point, v)
    p, total = compiled.exponentials(v, np.append(0, point.jumps), weights, base)
    split = np.flatnonzero(_split_by(point.jumps, block.rows))
    if not len(split):
        return p, total, None
    some = block[split]
    f = from_top(some, point, some.rows.depth)
    average_ties(f, some.rows, point.jumps)
    shift = np.zeros((len(v), 1), dtype=v.dtype)
    shift[split] = f[:, -1:]
    p[split] = np.exp(f - f[:, -1:])
    total[split] = p[split].sum(axis=1)
    return p, total, shift


def _sums_by_rank(
    left: Array, height: Array, p: Array, v: Array, tail: list[Array] | None, whole_scales: bool
) -> Array:
    """Sums of ``psi p v``, ``psi p U`` and ``psi p`` at each rank, (3, K, r); ``whole_scales``: see `Point`. Changes ``p``."""
    xp = array_namespace(p)
    part = left[:, :1] if whole_scales else left
    k = part.shape[1]
    sums = xp.concat([part * height[:, None], left], axis=1).T @ p
    by_rank = xp.zeros((3, left.shape[1], p.shape[1]), dtype=p.dtype, **device_of(p))
    by_rank[HEIGHT, :k], by_rank[MASS] = sums[:k], sums[k:]
    p *= v
    by_rank[DEPTH, :k] = part.T @ p
    if k < left.shape[1]:
        by_rank[DEPTH, k:, 0] = left[:, k:].T @ xp.sum(p, axis=1)
    if tail is not None:
        by_rank[DEPTH, :, 0] += left.T @ tail[1]
        by_rank[HEIGHT, :, 0] += left.T @ (tail[0] * height)
        by_rank[MASS, :, 0] += left.T @ tail[0]
    return by_rank


def from_top(block: Block, point: Point, v: Array) -> Array:
    """``f - f_top`` at the depths of all ranks."""
    weights, base = _parameters(block, point, v)
    xp, lengths = array_namespace(v), point.shared(v).lengths
    f = _weighted(v, [xp.repeat(w, lengths, axis=1) for w in weights])
    f += xp.repeat(base, lengths, axis=1)
    return f


def _weighted(v: Array, weights: list[Array]) -> Array:
    """``sum(weights) v``."""
    first, *rest = weights
    f = first * v
    for part in rest:
        f += part * v
    return f


def _in_parts(x: np.ndarray, other: Array) -> list[Array]:
    """Numbers that all rows share, in the precision of ``other``: as they are, or as a sum of two.

    Their rounding would not average out: in single precision it moves the gradient by 1e-6.
    """
    if str(other.dtype).endswith("float64"):
        return [like(x, other)]
    leading = x.astype(np.float32).astype(np.float64)
    return [like(leading, other), like(x - leading, other)]


def _parameters(block: Block, point: Point, other: Array) -> tuple[list[Array], Array]:
    """``-w`` (in parts that add up) and ``-(w_top - w) U - (b_top - b)`` of each piece, so that ``f - f_top = -w v + base``.

    They change at few ranks, so double precision costs nothing; what rounding is left is that of a row and averages out.
    """
    shared, xp = point.shared(other), array_namespace(other)
    height = xp.astype(block.rows.height[:, None], xp.float64)
    if block.factors is None:
        psi, parts = xp.ones_like(height), shared.parts
    else:
        psi = xp.astype(block.factors[:, shared.used], xp.float64)
        parts = [xp.astype(psi @ shared.weights, other.dtype)]
    return parts, xp.astype(xp.concat([psi * height, psi], axis=1) @ shared.drops, other.dtype)


def tail_moments(block: Block, point: Point, f: Array, shift: Array | None, count: int = 3) -> list[Array]:
    """``sum p``, ``sum p v``, ``sum p v^2`` (the first ``count``) over the tail, unnormalised like ``exp(f)``.

    With depths cut at the height, each class in use contributes as much as the lowest, and that is taken off again. What
    it loses in precision is below the rounding of the whole normaliser: each of them weighs at least as much there.
    """
    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    xp = array_namespace(f)
    weights, base = _parameters(block, point, f)
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
    if not on_host(tail.logits) and str(base.dtype).endswith("float32") and tail_triton.available():
        leading, *lesser = [-w[:, 0] for w in weights]
        parts = [leading, lesser[0] if lesser else 0 * leading]
        return tail_triton.tail_sums(tail.logits, rows.top[:, 0], rows.height, parts, base[:, 0])[:count]
    xp = array_namespace(base)
    with np.errstate(over="ignore"):
        v = rows.top - xp.astype(tail.logits, base.dtype, copy=False)
    v = maximum_(v, rows.height[:, None])
    hidden = None
    if tail.masked:
        hidden = xp.isinf(v)
        v = xp.where(hidden, rows.height[:, None], v)
    e = _weighted(v, weights)
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


def _hessian(block: Block, point: Point, p: Array, tail: list[Array] | None) -> np.ndarray:
    """Covariance of the working set's atoms, summed over rows.

    Measured from the top an atom drops by ``U`` below its start and by ``v`` from there on (a scale), or by 1 below its start
    (a bias). With ``P`` the probability below a start, ``V`` and ``Q`` the sums of ``p v`` and ``p v^2`` from it on, and
    atom a starting no later than b, the mean product of their drops is

        scale, scale   U (U P_a + V_a) + Q_b - U V_b           bias, scale   U P_a
        scale, bias      (U P_a + V_a)       -   V_b           bias, bias      P_a

    Nothing cancels where one class has nearly all the probability; the few sums of a row are kept in double precision.
    """
    psi, v, xp = block.factors, block.rows.depth, array_namespace(block.weight)
    height = xp.astype(block.rows.height[:, None], xp.float64)
    starts, at = np.unique(np.append(0, point.start), return_inverse=True)
    at = at[1:]
    if compiled.suits(p):
        pieces = list(compiled.piece_moments(p, v, starts).astype(np.float64))
    else:
        pv = p * v
        pieces = [xp.astype(segment_sums(x, starts), xp.float64) for x in (p, pv, pv * v)]
    if tail is not None:
        for piece, t in zip(pieces, tail, strict=True):
            piece[:, 0] += t
    below = xp.cumulative_sum(pieces[0], axis=1) - pieces[0]
    depth, square = (xp.flip(xp.cumulative_sum(xp.flip(x, axis=1), axis=1), axis=1) for x in pieces[1:])
    is_scale = point.kind == SCALE
    column = at + np.where(is_scale, 0, len(starts))
    mean = xp.concat([height * below + depth, below], axis=1)[:, column]
    later = xp.concat([square - height * depth, -depth], axis=1)[:, column]
    factor = xp.ones_like(mean)
    if psi is not None:
        factor = xp.astype(psi[:, point.factor], xp.float64)
        mean, later = mean * factor, later * factor
    product = np.empty((len(at), len(at)))
    product[:, ~is_scale] = to_numpy(mean.T @ factor[:, ~is_scale])
    product[:, is_scale] = to_numpy((height * mean).T @ factor[:, is_scale])
    product[is_scale] += to_numpy(factor[:, is_scale].T @ later)
    # Row a holds the product with b where b starts no earlier than a; the rest follows by symmetry.
    product = np.where(point.start[:, None] <= point.start[None, :], product, product.T)
    product -= _within_ties(block, point, p, starts, at)
    return product - to_numpy(mean.T @ (mean / xp.astype(block.weight[:, None], xp.float64)))


def _within_ties(
    block: Block, point: Point, p: Array, starts: np.ndarray, at: np.ndarray
) -> np.ndarray | float:
    """What the products above count too much: covariance of atoms inside groups of tied ranks.

    Tied ranks share one value, so an atom that starts inside a group of L counts there as its mean: h = (ranks of the group
    from its start on) / L. Two atoms in one group of probability P have product ``P h_a h_b``, not ``P min(h_a, h_b)``.
    """
    rows = block.rows
    xp = array_namespace(p)
    inner = starts[1:] if rows.tied is None else starts[1:][rows.tied[starts[1:]]]
    if not len(inner):
        return 0.0
    index = xp.nonzero(xp.any(rows.depth[:, inner] == rows.depth[:, inner - 1], axis=1))[0]
    total: np.ndarray | float = 0.0
    if 20 * index.shape[0] < block.n_rows:  # too few to matter for a step
        return total
    chunk = max(1, 2**24 // len(at) ** 2)
    block = replace(block, rows=rows.in_use())
    for begin in range(0, index.shape[0], chunk):
        total = total + _ties_of_rows(
            block[index[begin : begin + chunk]], point, p[index[begin : begin + chunk]], starts, at
        )
    return total


def _ties_of_rows(block: Block, point: Point, p: Array, starts: np.ndarray, at: np.ndarray) -> np.ndarray:
    rows = block.rows
    xp = array_namespace(p)
    first, last = (x[:, starts] for x in tie_bounds(rows.depth))
    size = xp.astype(last - first + 1, p.dtype)
    if rows.tail is not None:
        lowest = rows.depth[:, starts] == rows.height[:, None]
        size = size + xp.astype(lowest, p.dtype) * xp.astype(rows.tail.ties, p.dtype)[:, None]
    rank = like(starts, p)
    share = (xp.astype(last, p.dtype) - rank + 1) / size
    inside = xp.astype(first, p.dtype) < rank
    u = rows.height[:, None] - rows.depth[:, starts]
    mass = p[:, starts] * size
    at_atoms = [x[:, at] for x in (first, share, inside, u, mass)]
    first, share, inside, u, mass = at_atoms
    factor = xp.where(like((point.kind == SCALE).astype(float), p) > 0, u, xp.ones_like(u))
    if block.factors is not None:
        factor = factor * block.factors[:, point.factor]
    factor = factor * xp.astype(inside, p.dtype)
    same = xp.astype(first[:, :, None] == first[:, None, :], p.dtype)
    one, other = share[:, :, None], share[:, None, :]
    excess = mass[:, :, None] * xp.minimum(one, other) * (1.0 - xp.maximum(one, other))
    return to_numpy(xp.sum(same * excess * factor[:, :, None] * factor[:, None, :], axis=0)).astype(
        np.float64
    )
