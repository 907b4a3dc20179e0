"""Sums over sorted rows in one reading, on a CUDA device.

    f_i = w_d v_i + base_d,   d the piece of rank i;   tied ranks share the mean of theirs;   p_i = exp(f_i - f_top)

A pass over an image classifier's logits takes a modern device less time than the dozens of calls of plain tensor operations
(`array`, `curvature`) take the host. Here a pass is a handful of calls: the parameters go over in one piece, one kernel reads
every row once and writes what value, gradient and Hessian need of it, and the sums come back in one piece.

    sums     by rank:  p v,  p U,  p      by row, at the starts of the working set:  P, V, Q of `curvature`, and p
    atoms    by row and atom:  mean drop, U times it, what a later start takes off, the factor, mean / weight;
             one matrix product of these over all rows gives the Hessian
    ties     what that counts too much where a start falls among ties (`curvature.within_ties`)

Masked classes have no probability. The lowest rank stands for the tail below the top k as well: its sums are made first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import takes_triton
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
# Ranks for each warp.
_LANES = 512
# Rows whose ties are added up together.
_TOGETHER = 32
# Few sizes, so that few kernels are compiled.
_LEAST_PAD = 64


def readable(block: Block) -> bool:
    """Whether the kernels can read a block's depths."""
    v: Any = block.rows.depth
    return takes_triton(v) and str(v.dtype) == "torch.float32" and bool(v.is_contiguous())


def suits(block: Block, point: Point) -> bool:
    """Whether the kernels take rows and a point like these."""
    tail = block.rows.tail
    known = tail is None or (tail.logits is None) != (tail.rest is None)
    r = block.rows.depth.shape[1]
    short = r <= _LONGEST and len(point.jumps) <= _JUMPS and len(point.start) <= _ATOMS
    plain = block.factors is None or point.whole_scales
    return known and short and plain and readable(block)


def sums(block: Block, point: Point) -> Sums:
    """`interface.Engine.sums`."""
    import torch

    v: Any = block.rows.depth
    psi, own = _factors(block, point)
    n, r = v.shape
    there = _Parameters.of(point, v)
    table = there.table if psi is None else psi @ there.table
    a = len(point.start)
    together = min(power(n // 4096), 32)
    parts = -(-n // together)
    q, depths = (v, v) if own is None else (torch.empty_like(v), torch.empty_like(v[:, 0]))
    moments = v.new_empty((n if a else 1, 4, len(there.starts)), dtype=torch.float64)
    out = v.new_empty((parts, 3 * r + 3))
    tails, tail_ties = _tail(block, table)
    size = power(r)
    with device_of_kernel(v):
        _kernels().sums[(parts,)](
            v, n, r, table, there.pieces, there.piece, there.place, there.jumps, len(point.jumps), there.starts,
            len(there.starts), block.weight, block.rows.height, tails, tail_ties, q, depths, moments, out,
            factors=own is not None, tail=block.rows.tail is not None, curved=a > 0,
            jump_pad=max(_LEAST_PAD, power(len(point.jumps))), start_pad=max(_LEAST_PAD, power(len(there.starts))),
            rows=together, block=size,
            num_warps=min(max(size // _LANES, 1), 16),
        )  # fmt: skip
    # Everything into one array, which is copied to the host at once.
    n_own = 0 if own is None else own.shape[1]
    ends = np.cumsum([3 * r + 3, n_own * r, max(n_own - 1, 0), 6 * a * a])
    found = v.new_empty(int(ends[-1]), dtype=torch.float64)
    torch.sum(out, dim=0, dtype=torch.float64, out=found[: ends[0]])
    if own is not None:
        found[ends[0] : ends[1]].view(n_own, r).copy_(own.T @ q)
        found[ends[1] : ends[2]].copy_(own[:, 1:].T @ depths)
    if a:
        _products(block, there, moments, found[ends[2] :].view(3 * a, 2 * a))
    by_rank, of_factors, whole, x = np.split(found.cpu().numpy(), ends[:-1])
    (leading, lesser, n_tied), by_rank = by_rank[3 * r :], by_rank[: 3 * r].reshape(3, r)
    if own is not None:
        by_rank = np.concatenate([by_rank[:2], of_factors.reshape(n_own, r)])
    hessian = np.zeros((0, 0))
    if a:
        x = x.reshape(3 * a, 2 * a)
        hessian = covariance(point, x[:a, :a], x[a : 2 * a, :a], x[2 * a :, :a].T, x[:a, a:])
        if not few(int(n_tied), n):
            hessian -= _within_ties(block, there, moments)
    return Sums(float(leading + lesser), by_rank, whole, hessian)


def _factors(block: Block, point: Point) -> tuple[Any, Any]:
    """All factors in double precision, and those whose sums are wanted; made once for a block."""
    if block.factors is None:
        return None, None
    key = None if point.own is None else point.own.tobytes()
    kept: dict[bytes | None, tuple[Any, Any]] = block.__dict__.setdefault("_kept", {})
    if key not in kept:
        psi: Any = block.factors
        kept[key] = psi.double(), psi if point.own is None else psi[:, point.own].contiguous()
    return kept[key]


@dataclass(frozen=True)
class _Parameters:
    """A point on the device, brought over at once, in double precision."""

    table: Any  # (K, 3 D): -w, -(w_top - w), -(b_top - b) of each piece
    pieces: int
    piece: Any  # (r,)
    place: Any  # (r,): which start a rank is, or -1
    jumps: Any
    starts: Any
    at: Any  # (a,): the place of each atom's start
    factor: Any  # (a,)
    scale: Any  # (a,): 1 for scales, 0 for biases

    @classmethod
    def of(cls, point: Point, other: Any) -> _Parameters:
        import torch

        k, r = point.weights.shape
        first = np.append(0, point.jumps)
        weights, biases = point.weights[:, first], point.biases[:, first]
        drops = weights - point.weights[:, -1:], biases - point.biases[:, -1:]
        starts, at, _ = point.columns
        piece = np.zeros(r)
        piece[point.jumps] = 1.0
        place = np.full(r, -1.0)
        place[starts] = np.arange(len(starts))
        parts = [
            np.concatenate([-weights, *drops], axis=1).ravel(),
            np.cumsum(piece),
            place,
            point.jumps,
            starts,
        ]
        parts += [at, point.factor, point.kind == SCALE]
        flat = torch.from_numpy(np.concatenate(parts, dtype=np.float64)).to(other.device)
        table, *rest = flat.split([len(part) for part in parts])
        return cls(table.view(k, -1), len(first), *rest)


def _products(block: Block, there: _Parameters, moments: Any, to: Any) -> None:
    """Sums over rows of products of the atoms' numbers, (3 a, 2 a); see `triton_rows_kernels.atoms`."""
    import torch

    n, a = block.n_rows, len(there.at)
    psi: Any = block.factors
    out = moments.new_empty((n, 5 * a))
    pad = max(_LEAST_PAD, power(a))
    rows = max(1, 1024 // pad)
    with device_of_kernel(moments):
        _kernels().atoms[(-(-n // rows),)](
            moments, n, moments.shape[2], block.weight, block.rows.height, block.weight if psi is None else psi,
            0 if psi is None else psi.stride(0), there.at, there.factor, there.scale, a, out,
            factors=psi is not None, rows=rows, pad=pad, num_warps=4,
        )  # fmt: skip
    torch.mm(out[:, : 3 * a].T, out[:, 3 * a :], out=to)


def _within_ties(block: Block, there: _Parameters, moments: Any) -> np.ndarray:
    rows = block.rows
    v: Any = rows.depth
    psi: Any = block.factors
    (n, r), a = v.shape, len(there.at)
    starts, parts, tiles = moments.shape[2], -(-n // _TOGETHER), -(-a // _TILE)
    of_groups = v.new_empty((n, 4, starts))
    out = v.new_empty((parts, a, a))
    pad = max(_LEAST_PAD, power(starts))
    with device_of_kernel(moments):
        _kernels().groups[(-(-n // 4),)](
            v, n, r, moments, starts, rows.height, rows.height if rows.tail is None else rows.tail.ties,
            there.starts, of_groups, tail=rows.tail is not None, steps=r.bit_length() + 1, rows=4, pad=pad,
        )  # fmt: skip
        _kernels().ties[(parts, tiles, tiles)](
            of_groups, n, starts, block.weight if psi is None else psi, 0 if psi is None else psi.stride(0),
            there.at, there.factor, there.scale, a, out, factors=psi is not None, rows=_TOGETHER, tile=_TILE,
        )  # fmt: skip
    excess: np.ndarray = out.sum(dim=0).cpu().numpy()
    return excess


def _tail(block: Block, table: Any) -> tuple[Any, Any]:
    """Sums over the tail (n, 3), and how many of its classes equal the lowest in use (n,); anything where there is none."""
    rows, tail = block.rows, block.rows.tail
    if tail is None:
        return rows.height, rows.height
    if tail.rest is not None:
        return _rest_sums(block, table), tail.ties
    return tail_sums(tail.logits, rows.top, rows.height, table), tail.ties


def _rest_sums(block: Block, table: Any) -> Any:
    """`tail_sums` where only the number of the classes and their common depth are known: with those in use at the height."""
    import torch

    rows, tail = block.rows, block.rows.tail
    assert tail is not None
    assert tail.rest is not None
    rest: tuple[Any, Any] = tail.rest.depth, tail.rest.count
    depth, count = (x.double() for x in rest)
    height: Any = rows.height
    valid: Any = rows.valid
    height = height.double()
    kept = torch.full_like(height, rows.depth.shape[1]) if valid is None else valid.sum(dim=1).double()
    mass = count * torch.exp(table[:, 0] * (depth - height))
    powers = [kept * height**t + mass * depth**t for t in range(3)]
    return torch.stack(powers, dim=1).float()


def scale_sums(block: Block, scale: float) -> np.ndarray:
    """`interface.Engine.scale_sums`."""
    import torch

    v: Any = block.rows.depth
    n, r = v.shape
    out = v.new_empty((n, 3), dtype=torch.float64)
    size = min(power(r), 4096)
    with device_of_kernel(v):
        _kernels().scale_moments[(n,)](
            v, r, block.weight, block.rows.height, torch.tensor([-scale], dtype=torch.float64, device=v.device), out,
            block=size, num_warps=min(max(size // 512, 1), 8),
        )  # fmt: skip
    found: np.ndarray = out.sum(dim=0).cpu().numpy()
    return found


def _kernels() -> Any:
    from . import triton_rows_kernels

    return triton_rows_kernels
