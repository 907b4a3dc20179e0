"""The one computation over rows: sums of one block, for every atom at once.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]``
(bias). With coefficients ``c >= 0`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise,

measured from the top of the row (``u = U - v``, depth ``v``, height ``U``; in `point`), where rounding does no harm. The
objective ``sum_n weight_n [log sum_i exp(f_(i) - f_top) + f_top - f_label]`` has

    value      log-partition (the labels' part is linear in ``c`` and known beforehand)
    gradient   column sums of ``psi p v``, ``psi p U``, ``psi p``; then sums over ranks give every atom (in `problem`)
    Hessian    covariances of the atoms of a working set (in `curvature`)

What is returned has a fixed size and adds up, so rows may live anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, device_of, exp_, to_numpy, to_numpy_together
from . import compiled, rows_triton
from .blocks import Block, Ranked, average_ties
from .curvature import device_hessian, hessian_of
from .point import Point, from_top, in_parts, parameters, weighted
from .tail import tail_moments


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


def block_sums(block: Block, point: Point) -> Sums:
    """Value, gradient by rank and working-set Hessian of one block's log-partition."""
    if block.factors is None and not len(point.start) and _compiles(block):
        return _compiled_sums(block, point)
    if block.factors is None and rows_triton.suits(block):
        return _device_sums(block, point)
    return _array_sums(_precise(block), point)


def _precise(block: Block) -> Block:
    """The same block in double precision, where array operations on the host would round every step.

    The rounding of ``w v`` before the exponential moves the gradient by 1e-7 of the depths, and those of a large vocabulary are
    large. Compiled loops keep the product exact.
    """
    v = block.rows.depth
    return block.in_double() if isinstance(v, np.ndarray) and not compiled.suits(v) else block


def _compiles(block: Block) -> bool:
    return block.rows.valid is None and block.rows.tail is None and compiled.suits(block.rows.depth)


def _compiled_sums(block: Block, point: Point) -> Sums:
    """In one loop over the rows; the few whose top is split go the long way."""
    rows = block.rows
    weights, base = parameters(block, point, rows.depth)
    split = _top_is_split(point.jumps, rows)
    by_rank, total = compiled.sums_by_rank(
        rows.depth, np.append(0, point.jumps), weights, base, block.weight, rows.height, split
    )
    logs = np.log(total, dtype=np.float64)
    sums = Sums(float(block.weight @ np.where(split, 0.0, logs)), by_rank, np.zeros(0), np.zeros((0, 0)))
    return sums + _array_sums(block[np.flatnonzero(split)], point) if split.any() else sums


def _top_is_split(jumps: np.ndarray, rows: Ranked) -> np.ndarray:
    """Whether a jump falls among the classes that share the top of a row, (n,): the top then is no longer at 0."""
    return rows.depth[:, jumps[-1] - 1] == 0 if len(jumps) else np.zeros(len(rows.depth), dtype=bool)


def _device_sums(block: Block, point: Point) -> Sums:
    sums = rows_triton.sums(block, point, point.columns[0])
    hessian = np.zeros((0, 0))
    if sums.drops is not None and sums.squares is not None:
        hessian = device_hessian(block, point, sums.p, sums.drops, sums.squares, sums.n_tied)
    return Sums(sums.value, sums.by_rank, np.zeros(0), hessian)


def _array_sums(block: Block, point: Point) -> Sums:
    rows, v, psi = block.rows, block.rows.depth, block.factors
    xp = array_namespace(v)
    with np.errstate(under="ignore"):
        p, total, shift, tail = _exponentials(block, point)
        logs = xp.log(total) if shift is None else xp.log(total) + shift[:, 0]
        value = xp.sum(block.weight * logs, dtype=xp.float64)
        share = (block.weight / total)[:, None]  # makes probabilities of `p`, times the row's weight
        if psi is not None and point.own is not None:
            psi = psi[:, point.own]
        left = share if psi is None else psi * share
        if len(point.start):  # the Hessian wants them row by row, the sums do not
            p *= share
            left = xp.ones_like(share) if psi is None else psi
            tail = None if tail is None else [t * share[:, 0] for t in tail]
        hessian = hessian_of(block, point, p, tail) if len(point.start) else np.zeros((0, 0))
        by_rank, whole = _sums_by_rank(left, rows.height, p, v, tail, point.whole_scales)
    return Sums(float(value), by_rank.astype(np.float64), whole.astype(np.float64), hessian)


def scale_sums(block: Block, scale: float) -> np.ndarray:
    """The same where there is no atom but the plain scale: value, slope and curvature in the scale, without the labels.

    ``log sum_i exp(-scale v_i)``, minus its slope ``E_p[v]``, and ``E_p[v^2] - E_p[v]^2``. The order plays no part.
    """
    block = _precise(block)
    v, valid = block.rows.depth, block.rows.valid
    xp = array_namespace(v)
    with np.errstate(under="ignore"):
        weights = in_parts(xp.asarray([[-scale]], dtype=xp.float64, **device_of(v)), v.dtype)
        if valid is None and compiled.suits(v):
            one = np.zeros(1, dtype=np.intp)
            p, _ = compiled.exponentials(v, one, weights, np.zeros((len(v), 1), dtype=v.dtype))
            total, first, second = compiled.piece_moments(p, v, one)[:, :, 0]
        else:
            p = exp_(weighted(v, weights))
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
    if rows_triton.suits(block):
        return *rows_triton.exponentials(block, point), None
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
    """The same in one loop, without masks or a tail; the few rows whose top is split are done again."""
    v = block.rows.depth
    weights, base = parameters(block, point, v)
    p, total = compiled.exponentials(v, np.append(0, point.jumps), weights, base)
    split = np.flatnonzero(_top_is_split(point.jumps, block.rows))
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
) -> list[np.ndarray]:
    """``by_rank`` and ``whole`` of `Sums`, from factors with the rows' shares. Changes ``p``."""
    xp = array_namespace(p)
    part = left[:, :1] if whole_scales else left
    k = part.shape[1]
    by_rank = xp.empty((2 * k + left.shape[1], p.shape[1]), dtype=p.dtype, **device_of(p))
    by_rank[k:] = xp.concat([part * height[:, None], left], axis=1).T @ p
    p *= v
    by_rank[:k] = part.T @ p
    total = xp.sum(p, axis=1)
    if tail is not None:
        total = total + tail[1]
        by_rank[:k, 0] += part.T @ tail[1]
        by_rank[k : 2 * k, 0] += part.T @ (tail[0] * height)
        by_rank[2 * k :, 0] += left.T @ tail[0]
    return to_numpy_together([by_rank, left[:, k:].T @ total])
