"""The engine for CUDA devices: a handful of kernels a pass where rows allow it, tensor operations for others.

    f_i = w_d v_i + base_d,   d the piece of rank i;   tied ranks share the mean of theirs;   p_i = exp(f_i - f_top)

A pass over an image classifier's logits takes a modern device less time than the dozens of calls of plain tensor operations
(`engines.array`) take the host. Here a pass is a handful of calls: the parameters go over in one piece, one kernel reads every
row once and writes what value, gradient and Hessian need of it, and the sums come back in one piece.

    sums     by rank:  p v,  p U,  p      by row, at the starts of the working set:  P, V, Q of `engines.array`, and p
             by row and atom:  mean drop, U times it, what a later start takes off, the factor, mean / weight;
             one matrix product of these over all rows gives the Hessian
    ties     what that counts too much where a start falls among ties (`core.ties.within_ties`)
    tail     sum_j exp(-w (v_j - U)) v_j^t,     v_j = max(top - z_j, U),     t = 0, 1, 2

Masked classes have no probability. The lowest rank stands for the tail below the top k as well: its sums are made first. A
vocabulary has a hundred thousand classes, and plain tensor operations would write and read a dozen arrays of that width; the
kernels read each logit once, in its own type, and write a few numbers per row. In units of what the lowest rank in use has, no
sum underflows.

**Once in a fit** rows are prepared, and label sums, moments and information are computed.
One kernel holds a row: it sorts it (rows that are too long for that are sorted by torch first), writes the depths as
`core.ranked` has them, masked classes among them, and counts.

Label sums are taken in a fixed order, without copies of rows to the host: labels are put in the order of their ranks; running
sums over them, and differences where the rank changes, are the sums of each rank. Nothing is added by atomic operations, whose
order would change from run to run.

Information, in one reading, P the probability below each start and V the sum of p v from it on:

    by rank, added up over rows:   p v^2,   U^2 P - (V + U P)^2,   P - P^2
    by row:                        the variance of the plain scale, 1 - p_top

A matrix product with the squares of the factors gives the rest.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, takes_triton, to_numpy, to_numpy_together
from ..core.engine import SCALE, Block, Information, Point, Sums, Totals
from ..core.ranked import LARGEST, Ranked, rank_rows
from ..core.ties import few
from .array import ArrayEngine
from .label_sums import with_top_labels


def device_of_kernel(x: Any) -> AbstractContextManager[Any]:
    """The device of ``x`` as the current one. Mostly it is; on the host, where Triton interprets kernels, there is none."""
    import torch

    there = x.is_cuda and x.device.index != torch.cuda.current_device()
    return torch.cuda.device(x.device) if there else nullcontext()


def power(x: int) -> int:
    """The next power of two, at least 2: sizes of arrays in a kernel are such."""
    return 1 << max(x - 1, 1).bit_length()


def sorted_each(log: int) -> int:
    """How many of ``2^log`` numbers a thread holds that sorts them (`triton_map_kernels`)."""
    return min(max((1 << log) // 32, 1), 32)


def sorting_warps(log: int) -> int:
    """How many warps sort ``2^log`` numbers."""
    return max((1 << log) // 1024, 1)


def to_host(xs: list[Any]) -> list[np.ndarray]:
    """Tensors as numpy arrays, with one wait for all of them; through memory that the device writes itself."""
    import torch

    if not xs[0].is_cuda:
        return [x.numpy() for x in xs]
    copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in xs]
    for copy, x in zip(copies, xs, strict=True):
        copy.copy_(x, non_blocking=True)
    torch.cuda.current_stream(xs[0].device).synchronize()
    return [copy.numpy() for copy in copies]


# Ranks of a row that a kernel holds at a time.
_LONGEST = 16384
# Registers of a thread, so that many rows are under way at a time.
_REGISTERS = 128
# Jumps, and atoms of a working set, that are looked at together.
_JUMPS, _ATOMS = 1024, 512
_TILE = 32
# Ranks for each warp; programs to keep a device busy; rows that one of them adds up in single precision, at the most.
_LANES, _PROGRAMS, _ROWS = 256, 2048, 32
# Rows whose ties are added up together.
_TOGETHER = 128
# Few sizes, so that few kernels are compiled.
_LEAST_PAD = 64
# Once in a fit: classes of a row that a kernel sorts in registers, ranks that a program looks at, and rows that it adds up in
# single precision, at the most.
_SORTED, _RANKS, _SUMMED = 4096, 1024, 32


class TritonEngine(ArrayEngine):
    """Implements `core.engine.Engine`."""

    _reads_tail_in_place = True

    def takes(self, logits: Array, dtype: object) -> bool:
        return takes_triton(logits) and dtype == array_namespace(logits).float32

    def _prepare_block(self, logits: Array, labels: Array, weight: Array | None, **how: Any) -> Block:
        m = logits.shape[1]
        all_ranks = how.get("ordered", True) and min(how.get("top_k") or m, m) == m
        prepared = _prepare_rows(logits, labels) if all_ranks else None
        if prepared is None:
            return super()._prepare_block(logits, labels, weight, **how)
        (rows, label_depth, rank, held), statistics = prepared, how.get("statistics")
        xp = array_namespace(rows.depth)
        weight = xp.ones_like(rows.height) if weight is None else xp.astype(weight, rows.height.dtype)
        values = self._measure(rows, statistics) if statistics else None
        top = to_numpy(xp.argmax(logits, axis=1)) if how.get("top_class") else None
        return Block(self, rows, weight, label_depth, rank, held, held, values, top_class=top)

    def sums(self, block: Block, point: Point, gradient: bool = True) -> Sums:
        return _sums(block, point, gradient) if _suits(block, point) else super().sums(block, point, gradient)

    def scale_sums(self, block: Block, scale: float) -> np.ndarray:
        return _scale_sums(block, scale) if _readable(block) else super().scale_sums(block, scale)

    def totals(self, block: Block) -> Totals:
        return _totals(block) if _readable(block) else super().totals(block)

    def information(self, block: Block, scale: float) -> Information:
        tail = block.rows.tail
        short = block.rows.depth.shape[1] <= _LONGEST and (tail is None or tail.rest is not None)
        plain = short and _readable(block)
        return _information(block, scale) if plain else super().information(block, scale)

    def _ranked(self, logits: Array, top_k: int | None, dtype: object, ordered: bool) -> Ranked:
        return rank_rows(logits, top_k, dtype, ordered, _look_at_tail)

    def _tail_sums(self, block: Block, weights: list[Array], base: Array, count: int) -> list[Array]:
        rows, tail = block.rows, block.rows.tail
        assert tail is not None
        xp = array_namespace(base)
        weight = sum(xp.astype(w, xp.float64) for w in weights)
        sums = _sums_of_tail(tail.logits, rows.top, rows.height, weight)
        unit = xp.exp(base + sum(w * rows.height for w in weights))
        return [sums[:, t] * unit for t in range(count)]


def _readable(block: Block) -> bool:
    """Whether the kernels can read a block's depths."""
    v = block.rows.depth
    return takes_triton(v) and str(v.dtype) == "torch.float32" and bool(v.is_contiguous())


def _suits(block: Block, point: Point) -> bool:
    """Whether the kernels take rows and a point like these."""
    tail = block.rows.tail
    described = tail is None or (tail.logits is None) != (tail.rest is None)
    r = block.rows.depth.shape[1]
    short = r <= _LONGEST and len(point.jumps) <= _JUMPS and len(point.start) <= _ATOMS
    return described and short and _readable(block)


def _sums(block: Block, point: Point, gradient: bool = True) -> Sums:
    """`Engine.sums`; without the gradient what is not the Hessian means nothing."""
    import torch

    v = block.rows.depth
    height = block.rows.height
    psi, own = _factors(block, point)
    own = own if gradient else None
    n, r = v.shape
    there = _Parameters.of(point, v)
    table = there.table if psi is None else psi @ there.table
    a, starts, jumps = len(point.start), len(there.starts), len(point.jumps)
    together = min(power(n // _PROGRAMS), _ROWS)
    parts = -(-n // together)
    # The sum of a row's depths follows its probabilities; entries that are not read may be anything.
    q, stride = v, 0
    if own is not None:
        stride = -(-(r + 1) // 8) * 8
        q = v.new_empty((n, stride))
    moments = v.new_empty((n if a else 1, 4, starts), dtype=torch.float64)
    products = v.new_empty((n if a else 1, 5 * a), dtype=torch.float64)
    out = v.new_empty((parts, 3 * r + 2), dtype=torch.float64)
    kind, tails, counts = _tail(block, table)
    factors: Any = height if block.factors is None else block.factors
    size = power(r)
    with device_of_kernel(v):
        _kernels().sums[(parts,)](
            v, n, r, together, table, there.pieces, there.numbers, jumps, starts, a, block.weight, height, tails,
            height if block.rows.tail is None else block.rows.tail.ties, counts, q, stride, factors, factors.stride(0),
            moments, products, out, factors=psi is not None, by_rank=gradient, tail=kind, curved=a > 0, jump_pad=_pad(jumps),
            start_pad=_pad(starts), atom_pad=_pad(a), block=size, num_warps=min(max(size // _LANES, 1), 16),
            maxnreg=_REGISTERS,
        )  # fmt: skip
    # Everything into two arrays, which are copied to the host together.
    packed = v.new_empty(3 * r + 2 + a * a, dtype=torch.float64)
    if gradient:
        torch.sum(out, dim=0, out=packed[: 3 * r + 2])
    else:
        torch.sum(out[:, 3 * r :], dim=0, out=packed[3 * r : 3 * r + 2])
    arrays = [packed if gradient else packed[3 * r :]]
    if own is not None:
        arrays.append(own.T @ q[:, : r + 1])
    if a:
        # Sums over rows of products of the atoms' numbers.
        of_atoms = torch.mm(products[:, : 3 * a].T, products[:, 3 * a :])
        _, at, _, scale, _ = there.split(point)
        tiles = -(-a // _TILE)
        with device_of_kernel(v):
            _kernels().covariances[(tiles, tiles)](of_atoms, at, scale, a, packed[3 * r + 2 :], tile=_TILE)
    flat, *others = to_host(arrays)
    by_rank, whole = np.zeros((3, 0)), np.zeros(0)
    if gradient:
        by_rank, flat = flat[: 3 * r].reshape(3, r), flat[3 * r :]
    value, n_tied = flat[:2]
    if own is not None:
        x = others[0]
        by_rank, whole = np.concatenate([by_rank[:2], x[:, :r]]), x[1:, r].astype(np.float64)
    hessian = flat[2:].reshape(a, a)
    if a and not few(int(n_tied), n):
        hessian = hessian - to_host([_within_ties(block, point, there, moments)])[0]
    return Sums(float(value), by_rank, whole, hessian)


def _pad(count: int) -> int:
    return max(_LEAST_PAD, power(count))


def _factors(block: Block, point: Point) -> tuple[Any, Any]:
    """All factors in double precision, and those whose sums are asked for."""
    psi = block.factors
    if psi is None:
        return None, None
    return psi.double(), psi if point.own is None else psi[:, point.own].contiguous()


@dataclass(frozen=True)
class _Parameters:
    """A point on the device, brought over at once, in double precision."""

    table: Any  # (K, 3 D): -w, -(w_top - w), -(b_top - b) of each piece
    pieces: int
    # The piece of each rank (r,), which start it is or -1 (r,), jumps, starts, of each atom its start, its factor and whether it
    # is a scale, (a,) each, and the atoms in the order of their starts (a,).
    numbers: Any
    starts: np.ndarray

    @classmethod
    def of(cls, point: Point, other: Any) -> _Parameters:
        import torch

        k, r = point.shape[0], other.shape[1]
        used, of_used = point.table
        starts, at, _ = point.columns
        pieces, size, a = of_used.shape[2], k * 3 * of_used.shape[2], len(at)
        ends = np.cumsum([size, r, r, pieces - 1, len(starts), a, a, a, a])
        flat = np.zeros(ends[-1])
        table, piece, place, *rest = np.split(flat, ends[:-1])
        table.reshape(k, 3, pieces)[used] = of_used.swapaxes(0, 1)
        piece[point.jumps] = 1.0
        piece.cumsum(out=piece)
        place -= 1.0
        place[starts] = np.arange(len(starts))
        of_atoms = (at, point.factor, point.kind == SCALE, point.by_start[0])
        for to, numbers in zip(rest, (point.jumps, starts, *of_atoms), strict=True):
            to[:] = numbers
        # The driver takes a copy before this returns.
        there = torch.from_numpy(flat).to(other.device, non_blocking=True)
        return cls(there[:size].view(k, -1), pieces, there[size:], starts)

    def split(self, point: Point) -> Any:
        """The starts (D,), of each atom its place among them, its factor and whether it is a scale, and the order of the atoms by
        their starts, (a,) each."""
        lengths = [len(self.starts), *[len(point.start)] * 4]
        return self.numbers[-sum(lengths) :].split(lengths)


def _within_ties(block: Block, point: Point, there: _Parameters, moments: Any) -> Any:
    """`core.ties.within_ties`, (a, a) on the device."""
    rows = block.rows
    v: Any = rows.depth
    psi = block.factors
    (n, r), a = v.shape, len(point.start)
    starts, parts, tiles = len(there.starts), -(-n // _TOGETHER), -(-a // _TILE)
    of_groups = v.new_empty((n, 4, starts))
    out = v.new_empty((parts, a, a))
    at_start, at, factor, scale, order = there.split(point)
    with device_of_kernel(moments):
        _kernels().groups[(-(-n // 4),)](
            v, n, r, moments, starts, rows.height, rows.height if rows.tail is None else rows.tail.ties,
            at_start, of_groups, tail=rows.tail is not None, steps=r.bit_length() + 1, rows=4, pad=_pad(starts),
        )  # fmt: skip
        _kernels().ties[(parts, tiles, tiles)](
            of_groups, n, starts, block.weight if psi is None else psi, 0 if psi is None else psi.stride(0),
            at, factor, scale, order, a, out, factors=psi is not None, rows=_TOGETHER, tile=_TILE,
        )  # fmt: skip
    return out.sum(dim=0)


def _tail(block: Block, table: Any) -> tuple[int, Any, Any]:
    """What is known of a tail: nothing, its sums (n, 3), or its depth and the number of its classes, (n,) each."""
    rows, tail = block.rows, block.rows.tail
    if tail is None:
        return 0, rows.height, rows.height
    if tail.rest is not None:
        return 2, tail.rest.depth, tail.rest.count
    return 1, _sums_of_tail(tail.logits, rows.top, rows.height, table), rows.height


def _scale_sums(block: Block, scale: float) -> np.ndarray:
    """`Engine.scale_sums`."""
    import torch

    v = block.rows.depth
    n, r = v.shape
    out = v.new_empty((n, 3), dtype=torch.float64)
    size = min(power(r), 4096)
    leading = float(np.float32(scale))
    with device_of_kernel(v):
        _kernels().scale_moments[(n,)](
            v, r, block.weight, block.rows.height, leading, scale - leading, out,
            block=size, num_warps=min(max(size // 512, 1), 8),
        )  # fmt: skip
    (packed,) = to_host([out.sum(dim=0)])
    return packed


def _sums_of_tail(logits: Any, top: Any, height: Any, weight: Any) -> Any:
    """``s_0, s_1, s_2`` (n, 3) of logits (n, m); ``weight`` (n or 1, ...) holds ``-w`` first, in double precision."""
    logits = _along_classes(logits)
    n, m = logits.shape
    out = height.new_empty((n, 3))
    stride = 0 if len(weight) == 1 else weight.stride(0)
    with device_of_kernel(logits):
        _kernels().tail_sums[(n,)](
            logits, logits.stride(0), m, top, height, weight, stride, LARGEST, out, block=4096, num_warps=8
        )
    return out


def _look_at_tail(logits: Any, top: Any, height: Any) -> tuple[Any, bool]:
    """How many classes have the lowest logit in use (n,), and whether any is masked."""
    import torch

    logits = _along_classes(logits)
    n, m = logits.shape
    equal = torch.empty(n, dtype=torch.int64, device=logits.device)
    masked = torch.empty(n, dtype=torch.int8, device=logits.device)
    with device_of_kernel(logits):
        _kernels().tail_ties[(n,)](
            logits, logits.stride(0), m, top, height, LARGEST, equal, masked, block=4096, num_warps=8
        )
    return equal, bool(masked.max())


def _along_classes(logits: Any) -> Any:
    """Kernels read along the classes."""
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _kernels() -> Any:
    from . import triton_fit_kernels

    return triton_fit_kernels


def _prepare_rows(logits: Any, labels: Any) -> tuple[Ranked, Any, Any, Any] | None:
    """Sorted rows of logits (n, m); depth, rank and held ranks of the labels (n,). None where the kernel does not take them."""
    import torch

    n, m = logits.shape
    if not (n and takes_triton(logits) and m <= _LONGEST and str(logits.dtype) != "torch.float64"):
        return None
    z = logits if logits.stride(1) == 1 else logits.contiguous()
    ordered = z if m <= _SORTED else z.sort(dim=1).values
    depth = torch.empty((n, m), dtype=torch.float32, device=z.device)
    of_rows = torch.empty((3, n), dtype=torch.float32, device=z.device)
    counts = torch.empty((2, n), dtype=torch.int64, device=z.device)
    # Which ranks equal the one below in some row; and last, whether a class is masked.
    seen = torch.zeros(m + 1, dtype=torch.int8, device=z.device)
    size = power(m)
    log = size.bit_length() - 1 if m <= _SORTED else 0
    with device_of_kernel(z):
        _kernels().prepare[(n,)](
            z, z.stride(0), ordered, ordered.stride(0), n, m, labels, LARGEST, depth, of_rows, counts, seen,
            log=log, each=sorted_each(log), block=size, num_warps=sorting_warps(log) if log else size // 512,
        )  # fmt: skip
    packed: np.ndarray = seen.cpu().numpy()
    height, top, label_depth = of_rows.unbind()
    valid = depth <= height[:, None] if packed[m] else None
    rows = Ranked(depth, height, top[:, None], valid, None, m, packed[:m] > 0)
    return rows, label_depth, *counts.unbind()


def _totals(block: Block) -> Totals:
    """`Engine.totals`."""
    import torch

    r = block.rows.depth.shape[1]
    weight = block.weight
    factors = block.factors
    w = weight.double()
    psi = torch.ones_like(w)[:, None] if factors is None else factors.double()
    tied = block.rows.tied
    tied = np.zeros(r, dtype=bool) if tied is None else tied.astype(bool)
    blocks = [block, with_top_labels(block)] if tied[-1] else [block]
    labels = [_label_totals(b, psi, r) for b in blocks]
    biases = [w @ psi, w @ (psi * psi)]
    flat = to_numpy_together([*biases, *_scale_moments(block), *labels])
    mean, square, first, second, label, *top = flat
    moments = [np.stack([s, np.repeat(b[:, None], r, axis=1)]) for s, b in ((first, mean), (second, square))]
    tops = top[0] if top else np.zeros_like(label)
    # The first factor is 1.
    return Totals(float(mean[0]), label, tops, tied, moments[0], moments[1], _largest_tie(block, tied))


def _scale_moments(block: Block) -> list[Any]:
    """Sums over rows of ``psi u`` and its square at each rank, (K, r) each; of factors but the first only all of it, at the
    lowest rank and at the top."""
    import torch

    v = block.rows.depth
    parts: list[Any] = [block.weight, block.rows.height, block.factors]
    weight, height, psi = parts
    n, r = v.shape
    size = min(power(r), _RANKS)
    many = -(-r // size)
    together = min(power(n // 4096), _SUMMED)
    by_rank = v.new_empty((-(-n // together), 2, 1, r), dtype=torch.float64)
    by_row = v.new_empty((many, 2, n), dtype=torch.float64)
    with device_of_kernel(v):
        _kernels().moments[(len(by_rank), many)](
            v, n, r, together, weight, height, by_row, by_rank, rows_too=psi is not None, block=size,
            num_warps=min(max(size // 256, 1), 8),
        )  # fmt: skip
    first = by_rank.sum(dim=0)
    if psi is None:
        return list(first)
    out = []
    below = by_row.sum(dim=0)
    left = psi.double() * weight.double()[:, None]
    for k in range(2):
        at_ends = left.T @ torch.stack([below[k], height.double() ** (k + 1)], dim=1)
        scales = torch.zeros((psi.shape[1], r), dtype=torch.float64, device=v.device)
        scales[:, 0] = at_ends[:, 0]
        scales[:, -1] = at_ends[:, 1]
        scales[:1] = first[k]
        out.append(scales)
        left = left * psi
    return out


def _label_totals(block: Block, psi: Any, r: int) -> Any:
    """`labels.label_totals`, (3, K, r)."""
    import torch

    parts: list[Any] = [block.label_rank, block.label_held, block.label_size, block.weight]
    rank, held, size, weight = parts
    depths: list[Any] = [block.label_depth, block.rows.height]
    values = torch.stack([*(x.double() for x in depths), torch.ones_like(psi[:, 0])])
    share = (psi.T[None] * (values * (weight.double() / size))[:, None]).reshape(3 * psi.shape[1], -1)
    # What begins at a rank and what ends there.
    place, order = torch.cat([rank, rank + held]).sort(stable=True)
    running = torch.cat([share, -share], dim=1)[:, order].cumsum(dim=1)
    ends = torch.searchsorted(place, torch.arange(r, device=place.device), right=True)
    upto = torch.nn.functional.pad(running, (1, 0))[:, ends]
    edges = torch.diff(upto, dim=1, prepend=torch.zeros_like(upto[:, :1]))
    # Shares of tied classes outside the ranks in use go to the lowest, whose parameters those classes have.
    lowest = share @ (size - held).double()
    edges[:, 0] += lowest
    if r > 1:
        edges[:, 1] -= lowest
    return edges.reshape(3, psi.shape[1], r)


def _largest_tie(block: Block, tied: np.ndarray) -> int:
    """`ties.largest_tie`."""
    if not tied.any():
        return 1
    v = block.rows.depth
    n, r = v.shape
    rank = block.label_rank
    out = rank.new_empty(n)
    size = min(power(r), 4096)
    with device_of_kernel(v):
        _kernels().longest_ties[(n,)](
            v, r, block.rows.height, out, block=size, num_warps=min(max(size // 512, 1), 8)
        )
    return max(2, int(to_numpy(out.max())))


def _information(block: Block, scale: float) -> Information:
    """`Engine.information`."""
    import torch

    v = block.rows.depth
    height = block.rows.height
    weight = block.weight
    psi = block.factors
    rest: Any = None if block.rows.tail is None else block.rows.tail.rest
    n, r = v.shape
    together = min(power(n // 4096), _SUMMED)
    by_rank = v.new_empty((-(-n // together), 3, r), dtype=torch.float64)
    by_row = torch.ones((n, 3), dtype=torch.float64, device=v.device)
    biases = v if psi is None else torch.empty_like(v)
    size, leading = power(r), float(np.float32(scale))
    with device_of_kernel(v):
        _kernels().information[(len(by_rank),)](
            v, n, r, together, weight, height, leading, scale - leading, height if rest is None else rest.depth,
            height if rest is None else rest.count, biases, by_row, by_rank,
            factors=psi is not None, rest=rest is not None, block=size, num_warps=min(max(size // 256, 1), 16),
        )  # fmt: skip
    square = torch.ones_like(height)[:, None] if psi is None else psi * psi
    left = square * weight[:, None]
    arrays = [by_rank.sum(dim=0), left.double().T @ by_row]
    if psi is not None:
        arrays.append(left.T @ biases)
    (depth, others, bias), of_rows, *of_biases = to_host(arrays)
    variances = np.zeros((2, len(of_rows), r))
    variances[0, :, 0] = of_rows[:, 0]
    variances[0, 0] = np.cumsum(depth[::-1])[::-1] + others
    variances[1] = of_biases[0] if of_biases else bias
    return Information(float(of_rows[0, 2]), np.maximum(variances, 0.0), of_rows[:, 1].copy())
