"""Sums over sorted rows in one reading, on a CUDA device.

    f_i = w_d v_i + base_d,   d the piece of rank i;   tied ranks share the mean of theirs;   p_i = exp(f_i - f_top)

A pass over an image classifier's logits takes a modern device less time than the dozens of calls of plain tensor operations
(`kernel`, `curvature`) take the host. Here a row is read once, its ties are averaged where a jump falls among them, and what
value, gradient and Hessian need of it is written: all rows in one call. With factors only the exponentials are made so. Rows
with masked classes or a tail, and rows too long for a kernel, take the ordinary way.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..arrays import takes_triton, to_numpy_together
from .block import Block
from .point import Point, parameters

# Ranks of a row that a kernel holds at a time.
_LONGEST = 8192
# Rows that are added up in single precision, before rounding adds up too.
_ROWS = 32


def suits(block: Block) -> bool:
    """Whether the kernels take rows like these."""
    v: Any = block.rows.depth
    plain = block.rows.valid is None and block.rows.tail is None and v.shape[1] <= _LONGEST
    return plain and takes_triton(v) and str(v.dtype) == "torch.float32" and v.is_contiguous()


@cache
def _kernels() -> Any:
    import triton
    import triton.language as tl

    # Triton reads bare signatures.

    @triton.jit
    def add_within(one, count, begins, other, other_count, other_begins):
        # Sums that start anew where a group begins.
        total = tl.where(other_begins != 0, other, one + other)
        number = tl.where(other_begins != 0, other_count, count + other_count)
        return total, number, begins | other_begins

    @triton.jit
    def below_top(x, below, v, r, rank, used, piece, leading, lesser, base):
        d = tl.load(piece + rank, mask=used, other=0)
        w = tl.load(leading + d)
        f = w * x + (tl.load(lesser + d) * x + tl.load(base + d))
        inner = used & (rank > 0) & (x == below)
        if tl.max((inner & (d != tl.load(piece + rank - 1, mask=inner, other=0))).to(tl.int32), axis=0) > 0:
            above = tl.load(v + rank + 1, mask=rank + 1 < r, other=-1.0)
            one = (rank >= 0).to(tl.float64)
            wide = f.to(tl.float64)
            up, n_up, _ = tl.associative_scan((wide, one, (x != below).to(tl.int32)), 0, add_within)
            down, n_down, _ = tl.associative_scan(
                (wide, one, (x != above).to(tl.int32)), 0, add_within, reverse=True
            )
            f = ((up + down - wide) / (n_up + n_down - one)).to(tl.float32)
        top = tl.sum(tl.where(rank == r - 1, f, 0.0), axis=0)
        return tl.where(used, tl.exp(f - top), 0.0), top

    # What changes from step to step must not make a kernel of its own each time.
    @triton.jit(do_not_specialize=["pieces"])
    def exponentials(
        v, r, piece, leading, lesser, stride, base, pieces, p, total, shift, block: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        rank = tl.arange(0, block)
        used = rank < r
        v += row * r
        x = tl.load(v + rank, mask=used, other=-1.0)
        below = tl.load(v + rank - 1, mask=used & (rank > 0), other=-1.0)
        e, top = below_top(
            x,
            below,
            v,
            r,
            rank,
            used,
            piece,
            leading + row * stride,
            lesser + row * stride,
            base + row * pieces,
        )
        tl.store(p + row * r + rank, e, mask=used)
        tl.store(total + row, tl.sum(e, axis=0))
        tl.store(shift + row, top)

    @triton.jit(do_not_specialize=["n", "pieces", "starts"])
    def sums(
        v, n, r, piece, leading, lesser, base, pieces, weight, height, place, starts,
        p, by_rank, totals, drops, curved: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        part = tl.program_id(0).to(tl.int64)
        rank = tl.arange(0, block)
        used = rank < r
        at = tl.load(place + rank, mask=used, other=-1)
        depth = tl.zeros([block], dtype=tl.float32)
        high = tl.zeros([block], dtype=tl.float32)
        mass = tl.zeros([block], dtype=tl.float32)
        value = tl.zeros([1], dtype=tl.float64)
        tied = tl.zeros([1], dtype=tl.float64)
        for row in range(part * rows, tl.minimum(part * rows + rows, n)):
            x = tl.load(v + row * r + rank, mask=used, other=-1.0)
            below = tl.load(v + row * r + rank - 1, mask=used & (rank > 0), other=-1.0)
            e, top = below_top(
                x, below, v + row * r, r, rank, used, piece, leading, lesser, base + row * pieces
            )
            total = tl.sum(e, axis=0)
            w = tl.load(weight + row)
            u = tl.load(height + row)
            q = e * (w / total)
            qx = tl.where(used, q * x, 0.0)
            depth += qx
            high += q * u
            mass += q
            value += w * (tl.log(total.to(tl.float64)) + top)
            if curved:
                tl.store(p + row * r + rank, q, mask=used)
                begins = used & (at >= 0)
                tied += tl.max((begins & (rank > 0) & (x == below)).to(tl.float64), axis=0)
                wide = q.to(tl.float64)
                mean = tl.cumsum(wide, 0) - wide
                first = tl.cumsum(qx.to(tl.float64), 0, reverse=True)
                second = tl.cumsum(qx.to(tl.float64) * x, 0, reverse=True)
                u = u.to(tl.float64)
                out = drops + row * 6 * starts + at
                tl.store(out, u * mean + first, mask=begins)
                tl.store(out + starts, mean, mask=begins)
                tl.store(out + 2 * starts, u * (u * mean + first), mask=begins)
                tl.store(out + 3 * starts, u * mean, mask=begins)
                tl.store(out + 4 * starts, second - u * first, mask=begins)
                tl.store(out + 5 * starts, -first, mask=begins)
        out = by_rank + part * 3 * r + rank
        tl.store(out, depth, mask=used)
        tl.store(out + r, high, mask=used)
        tl.store(out + 2 * r, mass, mask=used)
        tl.store(totals + part * 2 + tl.arange(0, 1), value)
        tl.store(totals + part * 2 + 1 + tl.arange(0, 1), tied)

    return exponentials, sums


def _layout(r: int) -> dict[str, int]:
    """How a kernel is cut for rows of ``r`` ranks."""
    block = 1 << max(r - 1, 1).bit_length()
    return {"block": block, "num_warps": min(max(block // 512, 1), 16)}


def exponentials(block: Block, point: Point) -> tuple[Any, Any, Any]:
    """``p`` (n, r), its sums (n,) and ``f_top`` (n, 1)."""
    import torch

    v: Any = block.rows.depth
    base: Any
    weights, base = parameters(block, point, v)
    leading, lesser = _in_two(weights)
    stride = 0 if len(leading) == 1 else leading.shape[1]
    p, total, shift = torch.empty_like(v), torch.empty_like(v[:, 0]), torch.empty_like(v[:, :1])
    with torch.cuda.device(v.device):
        _kernels()[0][(len(v),)](
            v, v.shape[1], point.shared(v).piece, leading, lesser, stride, base.contiguous(), base.shape[1],
            p, total, shift, **_layout(v.shape[1]),
        )  # fmt: skip
    return p, total, shift


@dataclass(frozen=True)
class DeviceSums:
    """Sums over rows, on the host; what is for the Hessian is None where none is wanted."""

    value: float
    by_rank: np.ndarray  # (3, r), as in `kernel.Sums`
    drops: (
        np.ndarray | None
    )  # (6, D) at each start, scales and biases: mean, U mean, and what later starts change
    squares: np.ndarray | None  # (2 D, 2 D), of the means
    n_tied: int  # rows in which a start falls among ties
    p: Any  # (n, r), probabilities times weights, on the device; for the Hessian too


def sums(block: Block, point: Point, starts: np.ndarray) -> DeviceSums:
    """All sums of rows without factors; those for the Hessian at ``starts`` (D,), where the point has a working set."""
    import torch

    v: Any = block.rows.depth
    rows = block.rows
    n, r = v.shape
    base: Any
    weights, base = parameters(block, point, v)
    leading, lesser = _in_two(weights)
    curved = len(point.start) > 0
    place = np.full(r, -1, dtype=np.int32)
    place[starts] = np.arange(len(starts))
    parts = -(-n // _ROWS)
    p = torch.empty_like(v) if curved else v
    by_rank = v.new_empty((parts, 3, r))
    totals = v.new_empty((parts, 2), dtype=torch.float64)
    drops = v.new_empty((n if curved else 1, 6, len(starts)), dtype=torch.float64)
    with torch.cuda.device(v.device):
        _kernels()[1][(parts,)](
            v, n, r, point.shared(v).piece, leading, lesser, base.contiguous(), base.shape[1], block.weight,
            rows.height, torch.as_tensor(place, device=v.device), len(starts), p, by_rank, totals, drops,
            curved=curved, rows=_ROWS, **_layout(r),
        )  # fmt: skip
    results = [by_rank.sum(dim=0, dtype=torch.float64), totals.sum(dim=0)]
    if curved:
        mean = drops[:, :2].reshape(n, -1)
        results += [drops.sum(dim=0), mean.T @ (mean / block.weight[:, None])]
    ranks, (value, n_tied), *products = to_numpy_together(results)
    drop_sums, squares = products if curved else (None, None)
    return DeviceSums(float(value), ranks, drop_sums, squares, int(n_tied), p if curved else None)


def _in_two(weights: list[Any]) -> tuple[Any, Any]:
    leading, *lesser = (w.contiguous() for w in weights)
    return leading, lesser[0] if lesser else 0 * leading
