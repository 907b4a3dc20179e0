"""Sums over sorted rows in one reading, on a CUDA device.

    f_i = w_d v_i + base_d,   d the piece of rank i;   tied ranks share the mean of theirs;   p_i = exp(f_i - f_top)

A pass over an image classifier's logits takes a modern device less time than the dozens of calls of plain tensor operations
(`array`, `curvature`) take the host. Here a pass is a handful of calls: the parameters go over in one piece, one kernel reads
every row once and writes what value, gradient and Hessian need of it, and the sums come back in one piece.

    sums     by rank:  p v,  p U,  p      by row, at the starts of the working set:  P, V, Q of `curvature`, and p
    atoms    by row and atom:  mean drop, U times it, what a later start takes off, the factor, mean / weight;
             one matrix product of these over all rows gives the Hessian
    ties     what that counts too much where a start falls among ties (`curvature._within_ties`)

Masked classes have no probability. The lowest rank stands for the tail below the top k as well: its sums are made first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, takes_triton
from .block import Block
from .curvature import covariance, few
from .interface import Sums
from .point import SCALE, Point
from .triton_launch import device_of_kernel, power
from .triton_tail import tail_sums

# Ranks of a row that a kernel holds at a time.
_LONGEST = 8192
# Jumps, and atoms of a working set, that are looked at together.
_JUMPS, _ATOMS = 1024, 512
_TILE = 32


def readable(block: Block) -> bool:
    """Whether the kernels can read a block's depths."""
    v = block.rows.depth
    return takes_triton(v) and str(v.dtype) == "torch.float32" and v.is_contiguous()


def suits(block: Block, point: Point) -> bool:
    """Whether the kernels take rows and a point like these."""
    tail = block.rows.tail
    known = tail is None or (tail.logits is not None and tail.rest is None)
    r = block.rows.depth.shape[1]
    short = r <= _LONGEST and len(point.jumps) <= _JUMPS and len(point.start) <= _ATOMS
    plain = block.factors is None or point.whole_scales
    return known and short and plain and readable(block)


def sums(block: Block, point: Point) -> Sums:
    """`interface.Engine.sums`."""
    import torch

    rows, v, psi = block.rows, block.rows.depth, block.factors
    n, r = v.shape
    there = _Parameters.of(point, v)
    table = there.table if psi is None else psi.double() @ there.table
    own = None
    if psi is not None:
        own = psi if point.own is None else psi[:, point.own]
    curved = len(point.start) > 0
    together = min(max(n // 2048, 4), 32)
    parts = -(-n // together)
    q = torch.empty_like(v) if psi is not None else v
    depths = torch.empty_like(rows.height) if psi is not None else v
    moments = v.new_empty((n if curved else 1, 4, len(there.starts)), dtype=torch.float64)
    out = v.new_empty((parts, 3 * r + 3))
    tails, tail_ties = _tail(block, table)
    size = power(r)
    with device_of_kernel(v):
        _kernels().sums[(parts,)](
            v, n, r, table, there.pieces, there.piece, there.place, there.jumps, len(point.jumps), there.starts,
            len(there.starts), block.weight, rows.height, tails, tail_ties, q, depths, moments, out,
            factors=psi is not None, tail=rows.tail is not None, curved=curved, jump_pad=power(len(point.jumps)),
            start_pad=power(len(there.starts)), rows=together, block=size, num_warps=min(max(size // 256, 1), 16),
        )  # fmt: skip
    results = [out.sum(dim=0, dtype=torch.float64)]
    if own is not None:
        results += [own.T @ q, own[:, 1:].T @ depths]
    if curved:
        results.append(_products(block, there, moments))
    found = _to_host(results)
    by_rank, (leading, lesser, n_tied) = found[0][: 3 * r].reshape(3, r), found[0][3 * r :]
    whole = np.zeros(0)
    if own is not None:
        by_rank, whole = np.concatenate([by_rank[:2], found[1]]), found[2]
    hessian = np.zeros((0, 0))
    if curved:
        a = len(point.start)
        x = found[-1]
        hessian = covariance(point, x[:a, :a], x[a : 2 * a, :a], x[2 * a :, :a].T, x[:a, a:])
        if not few(int(n_tied), n):
            hessian -= _within_ties(block, there, moments)
    return Sums(float(leading + lesser), by_rank, whole, hessian)


@dataclass(frozen=True)
class _Parameters:
    """A point on the device, brought over at once, in double precision."""

    table: Array  # (K, 3 D): -w, -(w_top - w), -(b_top - b) of each piece
    pieces: int
    piece: Array  # (r,)
    place: Array  # (r,): which start a rank is, or -1
    jumps: Array
    starts: Array
    at: Array  # (a,): the place of each atom's start
    factor: Array  # (a,)
    scale: Array  # (a,): 1 for scales, 0 for biases

    @classmethod
    def of(cls, point: Point, other: Array) -> _Parameters:
        import torch

        weights, biases = point.weights, point.biases
        k, r = weights.shape
        first = np.append(0, point.jumps)
        pieces = [
            weights[:, first],
            (weights[:, -1:] - weights)[:, first],
            (biases[:, -1:] - biases)[:, first],
        ]
        starts, at, _ = point.columns
        piece = np.repeat(np.arange(len(first)), np.diff(np.append(first, r)))
        place = np.full(r, -1.0)
        place[starts] = np.arange(len(starts))
        parts = [-np.concatenate(pieces, axis=1).ravel(), piece, place, point.jumps, starts, at, point.factor]
        parts.append(point.kind == SCALE)
        flat = torch.from_numpy(np.concatenate(parts, dtype=np.float64)).to(other.device)
        table, *rest = flat.split([len(part) for part in parts])
        return cls(table.view(k, -1), len(first), *rest)


def _products(block: Block, there: _Parameters, moments: Any) -> Any:
    """Sums over rows of products of the atoms' numbers, (3 a, 2 a); see `triton_rows_kernels.atoms`."""
    n, a, psi = block.n_rows, len(there.at), block.factors
    out = moments.new_empty((n, 5 * a))
    rows = max(1, 1024 // power(a))
    with device_of_kernel(moments):
        _kernels().atoms[(-(-n // rows),)](
            moments, n, moments.shape[2], block.weight, block.rows.height, block.weight if psi is None else psi,
            0 if psi is None else psi.stride(0), there.at, there.factor, there.scale, a, out,
            factors=psi is not None, rows=rows, pad=power(a), num_warps=4,
        )  # fmt: skip
    return out[:, : 3 * a].T @ out[:, 3 * a :]


def _within_ties(block: Block, there: _Parameters, moments: Any) -> np.ndarray:
    rows, psi = block.rows, block.factors
    (n, r), a = rows.depth.shape, len(there.at)
    together = max(16, n // 512)
    parts, tiles = -(-n // together), -(-a // _TILE)
    out = rows.depth.new_empty((parts, a, a))
    with device_of_kernel(moments):
        _kernels().ties[(parts, tiles, tiles)](
            rows.depth, n, r, moments, moments.shape[2], rows.height,
            rows.height if rows.tail is None else rows.tail.ties, block.weight if psi is None else psi,
            0 if psi is None else psi.stride(0), there.at, there.factor, there.scale, there.starts, a, out,
            factors=psi is not None, tail=rows.tail is not None, rows=together, steps=r.bit_length() + 1,
            tile=_TILE, num_warps=4,
        )  # fmt: skip
    return _to_host([out.sum(dim=0)])[0]


def _tail(block: Block, table: Any) -> tuple[Any, Any]:
    """Sums over the tail (n, 3), and how many of its classes equal the lowest in use (n,); anything where there is none."""
    rows, tail = block.rows, block.rows.tail
    if tail is None:
        return rows.height, rows.height
    return tail_sums(tail.logits, rows.top, rows.height, table), tail.ties


def _to_host(xs: list[Any]) -> list[np.ndarray]:
    """Several results in double precision, in one copy: the host waits once."""
    import torch

    flat = torch.cat([x.reshape(-1).double() for x in xs]).cpu().numpy()
    ends = np.cumsum([x.numel() for x in xs])
    return [part.reshape(x.shape) for part, x in zip(np.split(flat, ends[:-1]), xs, strict=True)]


def scale_sums(block: Block, scale: float) -> np.ndarray:
    """`interface.Engine.scale_sums`."""
    import torch

    v = block.rows.depth
    n, r = v.shape
    out = v.new_empty((n, 3), dtype=torch.float64)
    size = min(power(r), 4096)
    with device_of_kernel(v):
        _kernels().scale_moments[(n,)](
            v, r, block.weight, block.rows.height, torch.tensor([-scale], dtype=torch.float64, device=v.device), out,
            block=size, num_warps=min(max(size // 512, 1), 8),
        )  # fmt: skip
    return out.sum(dim=0).cpu().numpy()


def _kernels() -> Any:
    from . import triton_rows_kernels

    return triton_rows_kernels
