"""The one computation over rows: sums of one block, for every atom at once.

An atom is (kind, factor k, start s): in rank order ``psi_k(z) 1[i >= s] u_(i)`` (scale) or ``psi_k(z) 1[i >= s]``
(bias). With non-negative coefficients ``c`` the calibrated logits of a row are

    f_(i) = w_i u_(i) + b_i,    w_i = sum_k psi_k sum_{s <= i} c[scale, k, s],   b_i likewise,

and the block's contribution to the objective ``sum_n weight_n log sum_i exp f_(i)`` (the labels' part is linear in
``c`` and known beforehand) is

    value      log-partition
    gradient   E_p[atom]: column sums of psi p u and psi p, then suffix sums over ranks (done once, in `problem`)
    Hessian    E_p[atom_a atom_b] - E_p[atom_a] E_p[atom_b] on a working set; the product of two atoms starts where the
               later one starts, so its expectation is a suffix sum, too.

What is returned has a fixed size and adds up, so rows may live anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, is_lazy_torch, segment_sums, to_numpy
from .blocks import Block, average_ties

SCALE, BIAS = 0, 1


@dataclass(frozen=True)
class Point:
    """Where to evaluate, and for which atoms the Hessian is wanted."""

    weights: np.ndarray  # (K, r): scale coefficients, summed up to each rank
    biases: np.ndarray  # (K, r)
    kind: np.ndarray  # (a,) of the working set
    factor: np.ndarray  # (a,)
    start: np.ndarray  # (a,)


@dataclass(frozen=True)
class Sums:
    """Sums over rows, in float64 on the host. They add."""

    value: float
    by_rank: np.ndarray  # (2, K, r): sums of psi p u and of psi p at each rank
    hessian: np.ndarray  # (a, a)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.value + other.value, self.by_rank + other.by_rank, self.hessian + other.hessian)


def block_sums(block: Block, point: Point) -> Sums:
    """Value, gradient by rank and working-set Hessian of one block's log-partition."""
    rows, u, psi = block.rows, block.rows.u, block.factors
    xp = array_namespace(u)
    f = _combine(psi, point.weights, u) * u
    f += _combine(psi, point.biases, u)
    if rows.tied:
        f = average_ties(f, rows)
    top = xp.asarray(f[:, -1:], copy=True)
    f -= top
    with np.errstate(under="ignore"):
        p = xp.exp(f)
        if rows.valid is not None:
            p *= xp.astype(rows.valid, p.dtype)
        total = xp.sum(p, axis=1)
        tail = None
        if rows.tail is not None:
            tail = _tail_moments(block, point, f, top)
            total = total + tail[0]
        value = xp.sum(xp.astype(block.weight * (xp.log(total) + top[:, 0]), xp.float64))
        share = block.weight / total
        p *= share[:, None]  # from here on, probabilities times the row's weight
        pu = p * u
    by_rank = [_column_sums(psi, pu), _column_sums(psi, p)]
    if tail is not None:
        tail = [t * share for t in tail]
        by_rank[SCALE][:, 0] += to_numpy(_weighted(psi, tail[1]))
        by_rank[BIAS][:, 0] += to_numpy(_weighted(psi, tail[0]))
    if len(point.start):
        hessian = _hessian(block, point, [p, pu, pu * u], tail)
    else:
        hessian = np.zeros((0, 0))
    return Sums(float(value), np.stack(by_rank), hessian)


def _combine(psi: Array | None, coefficients: np.ndarray, u: Array) -> Array:
    """``sum_k psi_k coefficients[k]`` for every row (or one row of it where psi is the constant 1)."""
    xp = array_namespace(u)
    if psi is None:
        return _like(coefficients, u)
    active = np.flatnonzero(coefficients.any(axis=1))
    if not len(active):
        return xp.zeros((1, 1), dtype=u.dtype, **({"device": u.device} if is_lazy_torch(u) else {}))
    return psi[:, active] @ _like(coefficients[active], u)


def _like(x: np.ndarray, u: Array) -> Array:
    """A small host array in the library, type and device of ``u``."""
    if is_lazy_torch(u):
        import torch

        return torch.as_tensor(x, device=u.device).to(u.dtype)
    return np.asarray(x, dtype=u.dtype)


def _column_sums(psi: Array | None, x: Array) -> np.ndarray:
    xp = array_namespace(x)
    sums = xp.sum(x, axis=0)[None, :] if psi is None else psi.T @ x
    return to_numpy(sums).astype(np.float64)


def _weighted(psi: Array | None, x: Array) -> Array:
    xp = array_namespace(x)
    return xp.sum(x)[None] if psi is None else psi.T @ x


def _tail_moments(block: Block, point: Point, f: Array, top: Array) -> list[Array]:
    """``sum p``, ``sum p u``, ``sum p u^2`` over the tail, each row on the scale of ``exp(f)``.

    With ``u`` cut at 0 the classes in use contribute exactly one each and are taken off again; what that loses in
    precision is below the rounding of the whole normaliser, since each of them weighs at least as much there.
    """
    u, tail = block.rows.u, block.rows.tail
    assert tail is not None
    xp = array_namespace(u)
    w = _combine(block.factors, point.weights[:, :1], u)
    x = xp.astype(tail.logits, u.dtype) - block.rows.anchor
    x = xp.clip(x, max=0.0)
    if tail.masked:
        hidden = xp.isinf(x)
        x = xp.where(hidden, 0 * u[:1, :1], x)
        e = xp.exp(x * w) * xp.astype(~hidden, x.dtype)
    else:
        e = xp.exp(x * w)
    kept = u.shape[1] if block.rows.valid is None else xp.sum(xp.astype(block.rows.valid, u.dtype), axis=1)
    t0 = xp.clip(xp.sum(e, axis=1) - kept, min=0.0)
    e *= x
    t1 = xp.sum(e, axis=1)
    e *= x
    t2 = xp.sum(e, axis=1)
    scale = xp.exp(-top[:, 0])  # the lowest rank in use has f = 0, on the scale of f less its top
    if block.rows.tied:
        # The tail's classes that equal the anchor share its group's mean (see average_ties).
        zero = u == 0
        group = xp.max(xp.where(zero, f, xp.asarray(-np.inf, dtype=f.dtype)), axis=1)
        t0 = t0 * scale + tail.ties * (xp.exp(group) - scale)
    else:
        t0 = t0 * scale
    return [t0, t1 * scale, t2 * scale]


def _hessian(block: Block, point: Point, moments: list[Array], tail: list[Array] | None) -> np.ndarray:
    psi = block.factors
    starts, at = np.unique(np.append(0, point.start), return_inverse=True)
    at = at[1:]
    # suffix[t][:, d]: sum over ranks >= starts[d] of weight * p * u^t
    suffix = []
    for t, x in enumerate(moments):
        sums = segment_sums(x, starts)
        if tail is not None:
            sums[:, 0] += tail[t]
        suffix.append(_suffix(sums))
    scale_atoms, bias_atoms = point.kind == SCALE, point.kind == BIAS
    mean = _select(suffix, (1, 0), scale_atoms, at)  # E[atom], times the weight of the row
    raised = _select(suffix, (2, 1), scale_atoms, at)  # E[atom u]
    weight = block.weight[:, None]
    second = np.empty((len(at), len(at)))
    if psi is None:
        total_mean, total_raised = _host_sum(mean), _host_sum(raised)
        second[:, bias_atoms] = total_mean[:, None]
        second[:, scale_atoms] = total_raised[:, None]
    else:
        factor = psi[:, point.factor]
        mean = mean * factor
        raised = raised * factor
        second[:, bias_atoms] = to_numpy(mean.T @ factor[:, bias_atoms])
        second[:, scale_atoms] = to_numpy(raised.T @ factor[:, scale_atoms])
    # Row a holds the product with b where b starts no later than a; the rest follows by symmetry.
    later = point.start[:, None] >= point.start[None, :]
    second = np.where(later, second, second.T)
    first = to_numpy(mean.T @ (mean / weight)).astype(np.float64)
    return second - first


def _select(suffix: list[Array], power: tuple[int, int], scale_atoms: np.ndarray, at: np.ndarray) -> Array:
    xp = array_namespace(suffix[0])
    joined = xp.concat([suffix[power[0]], suffix[power[1]]], axis=1)
    column = at + np.where(scale_atoms, 0, suffix[0].shape[1])
    return joined[:, column]


def _host_sum(x: Array) -> np.ndarray:
    return to_numpy(array_namespace(x).sum(x, axis=0)).astype(np.float64)


def _suffix(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.flip(xp.cumulative_sum(xp.flip(x, axis=1), axis=1), axis=1)
