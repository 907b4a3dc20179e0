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

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import (
    Array,
    add_product_,
    array_namespace,
    device_of,
    exp_,
    like,
    maximum_,
    on_host,
    segment_sums,
    to_numpy,
)
from . import tail_triton
from .blocks import Block, average_ties, tie_bounds

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

    @property
    def jumps(self) -> np.ndarray:
        """Ranks at which a weight or a bias changes."""
        change = np.diff(self.weights, axis=1).any(axis=0) | np.diff(self.biases, axis=1).any(axis=0)
        return np.flatnonzero(change) + 1

    @property
    def drops(self) -> tuple[np.ndarray, np.ndarray]:
        """``w_top - w_i`` and ``b_top - b_i``."""
        return self.weights[:, -1:] - self.weights, self.biases[:, -1:] - self.biases


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
    rows, v, psi = block.rows, block.rows.depth, block.factors
    xp = array_namespace(v)
    f = from_top(block, point, v, slice(None))
    shift = None
    if average_ties(f, rows, point.jumps):  # a tied top has come down to the mean of its group
        shift = xp.asarray(f[:, -1:], copy=True)
        f -= shift
    with np.errstate(under="ignore"):
        p = exp_(f) if rows.tail is None else xp.exp(f)
        if rows.valid is not None:
            p *= xp.astype(rows.valid, p.dtype)
        total = xp.sum(p, axis=1)
        tail = None
        if rows.tail is not None:
            tail = tail_moments(block, point, f, shift, 3 if len(point.start) else 2)
            total = total + tail[0]
        logs = xp.log(total) if shift is None else xp.log(total) + shift[:, 0]
        value = xp.sum(block.weight * logs, dtype=xp.float64)
        share = block.weight / total
        p *= share[:, None]  # from here on, probabilities times the row's weight
        pv = p * v
    left = xp.ones((v.shape[0], 1), dtype=v.dtype, **device_of(v)) if psi is None else psi
    if tail is not None:
        tail = [t * share for t in tail]
    by_rank = _sums_by_rank(left, rows.height, p, pv, tail, point.whole_scales)
    hessian = _hessian(block, point, [p, pv, pv * v], tail) if len(point.start) else np.zeros((0, 0))
    return Sums(float(value), to_numpy(by_rank).astype(np.float64), hessian)


def _sums_by_rank(
    left: Array, height: Array, p: Array, pv: Array, tail: list[Array] | None, whole_scales: bool
) -> Array:
    """Sums of ``psi p v``, ``psi p U`` and ``psi p`` at each rank, (3, K, r); ``whole_scales``: see `Point`."""
    xp = array_namespace(p)
    part = left[:, :1] if whole_scales else left
    k = part.shape[1]
    sums = xp.concat([part * height[:, None], left], axis=1).T @ p
    by_rank = xp.zeros((3, left.shape[1], p.shape[1]), dtype=p.dtype, **device_of(p))
    by_rank[DEPTH, :k], by_rank[HEIGHT, :k], by_rank[MASS] = part.T @ pv, sums[:k], sums[k:]
    if k < left.shape[1]:
        by_rank[DEPTH, k:, 0] = left[:, k:].T @ xp.sum(pv, axis=1)
    if tail is not None:
        by_rank[DEPTH, :, 0] += left.T @ tail[1]
        by_rank[HEIGHT, :, 0] += left.T @ (tail[0] * height)
        by_rank[MASS, :, 0] += left.T @ tail[0]
    return by_rank


def from_top(block: Block, point: Point, v: Array, ranks: slice) -> Array:
    """``f - f_top`` at depths ``v`` with the parameters of ``ranks``."""
    (first, *rest), base = _parameters(block, point, v, ranks)
    f = first * v
    for part in rest:
        f = add_product_(f, part, v)
    f += base
    return f


def _parameters(block: Block, point: Point, like_: Array, ranks: slice) -> tuple[list[Array], Array]:
    """``-w`` (in parts that add up) and ``-(w_top - w) U - (b_top - b)``, so that ``f - f_top = sum(parts) v + base``."""
    psi, height = block.factors, block.rows.height[:, None]
    weight_drop, bias_drop = (x[:, ranks] for x in point.drops)
    weights = point.weights[:, ranks]
    xp = array_namespace(height)
    lengths = None
    if psi is None:
        psi = xp.ones_like(height)
    else:
        used = np.flatnonzero(weights.any(axis=1) | bias_drop.any(axis=1))
        psi, weights, weight_drop, bias_drop = psi[:, used], weights[used], weight_drop[used], bias_drop[used]
        # Parameters of a row change at few ranks: compute them there, then spread them out.
        jumps = point.jumps[point.jumps < weights.shape[1]]
        starts = np.append(0, jumps)
        lengths = np.diff(np.append(starts, weights.shape[1]))
        weights, weight_drop, bias_drop = weights[:, starts], weight_drop[:, starts], bias_drop[:, starts]
    drops = _split(-np.concatenate([weight_drop, bias_drop]), like_)
    base = xp.concat([psi * height, psi] * len(drops), axis=1) @ xp.concat(drops)
    parts = _split(-weights, like_)
    if lengths is None:
        return parts, base
    times = xp.asarray(lengths, **device_of(like_))
    return [xp.repeat(psi @ part, times, axis=1) for part in parts], xp.repeat(base, times, axis=1)


def _split(x: np.ndarray, other: Array) -> list[Array]:
    """Numbers in the precision of ``other``: as they are, or as a sum of two.

    All rows share these numbers, so their rounding would not average out: in single precision it moves the gradient by 1e-6.
    With the leading twelve bits apart from the rest, what is left is the rounding of each row's own sum, which does.
    """
    if str(other.dtype).endswith("float64"):
        return [like(x, other)]
    mantissa, exponent = np.frexp(x)
    leading = np.ldexp(np.round(mantissa * 2.0**12) / 2.0**12, exponent)
    return [like(leading, other), like(x - leading, other)]


def tail_moments(block: Block, point: Point, f: Array, shift: Array | None, count: int = 3) -> list[Array]:
    """``sum p``, ``sum p v``, ``sum p v^2`` (the first ``count``) over the tail, unnormalised like ``exp(f)``.

    With depths cut at the height, each class in use contributes as much as the lowest, and that is taken off again. What
    it loses in precision is below the rounding of the whole normaliser: each of them weighs at least as much there.
    """
    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    xp = array_namespace(f)
    weights, base = _parameters(block, point, f, slice(0, 1))
    if shift is not None:
        base = base - shift
    rest = _rest_moments(block, weights, base, count)
    if tail.logits is None:
        return rest
    lowest = base[:, 0] + sum(w[:, 0] * rows.height for w in weights)
    lowest = exp_(lowest)
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
    if not on_host(tail.logits) and len(weights) == 2 and tail_triton.available():
        column = [x[:, 0] for x in (rows.top, rows.height[:, None], *(-w for w in weights), base)]
        top, height, *parts, offset = column
        return tail_triton.tail_sums(tail.logits, top, height, parts, offset)[:count]
    xp = array_namespace(base)
    with np.errstate(over="ignore"):
        v = rows.top - xp.astype(tail.logits, base.dtype, copy=False)
    v = maximum_(v, rows.height[:, None])
    hidden = None
    if tail.masked:
        hidden = xp.isinf(v)
        v = xp.where(hidden, rows.height[:, None], v)
    first, *rest = weights
    e = first * v
    for part in rest:
        e = add_product_(e, part, v)
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


def _hessian(block: Block, point: Point, moments: list[Array], tail: list[Array] | None) -> np.ndarray:
    """Covariance of the working set's atoms, summed over rows."""
    psi, height = block.factors, block.rows.height[:, None]
    xp = array_namespace(height)
    starts, at = np.unique(np.append(0, point.start), return_inverse=True)
    at = at[1:]
    # suffix[t][:, d]: sum over ranks >= starts[d] of weight * p * v^t; then of weight * p * u^t, with u = U - v
    suffix = []
    for t, x in enumerate(moments):
        sums = segment_sums(x, starts)
        if tail is not None:
            sums[:, 0] += tail[t]
        suffix.append(xp.flip(xp.cumulative_sum(xp.flip(sums, axis=1), axis=1), axis=1))
    mass, depth, square = suffix
    first = height * mass - depth
    second = height * (first - depth) + square
    is_scale, is_bias = point.kind == SCALE, point.kind == BIAS
    column = at + np.where(is_scale, 0, len(starts))
    mean = xp.concat([first, mass], axis=1)[:, column]  # E[atom], times the weight of the row
    raised = xp.concat([second, first], axis=1)[:, column]  # E[atom u]
    factor = xp.ones_like(mean) if psi is None else psi[:, point.factor]
    mean, raised = mean * factor, raised * factor
    product = np.empty((len(at), len(at)))
    product[:, is_bias] = to_numpy(mean.T @ factor[:, is_bias])
    product[:, is_scale] = to_numpy(raised.T @ factor[:, is_scale])
    # Row a holds the product with b where b starts no later than a; the rest follows by symmetry.
    later = point.start[:, None] >= point.start[None, :]
    product = np.where(later, product, product.T)
    product -= _within_ties(block, point, moments[0], starts, at)
    return product - to_numpy(mean.T @ (mean / block.weight[:, None])).astype(np.float64)


def _within_ties(
    block: Block, point: Point, p: Array, starts: np.ndarray, at: np.ndarray
) -> np.ndarray | float:
    """What the products above count too much: covariance of atoms inside groups of tied ranks.

    Tied ranks share one value, so an atom that starts inside a group of L counts there as its mean: h = (ranks of the group
    from its start on) / L. Two atoms in one group of probability P have product ``P h_a h_b``, not ``P min(h_a, h_b)``.
    """
    rows = block.rows
    xp = array_namespace(p)
    inner = starts[1:]
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
