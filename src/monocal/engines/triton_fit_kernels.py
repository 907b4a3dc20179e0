"""The kernels of `triton_engine`: what is computed once in a fit, and what a pass sums over rows. Importing this needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures. What changes from step to step must not make a kernel of its own each time.

from __future__ import annotations

import triton
import triton.language as tl

from .triton_map_kernels import exponential, sorted_row


@triton.jit(do_not_specialize=["n", "rows"])
def moments(v, n, r, rows, weight, height, by_row, by_rank, rows_too: tl.constexpr, block: tl.constexpr):
    # u and u^2: at each rank times the weight, added up over rows; of each row, added up over the ranks below the top.
    part = tl.program_id(0).to(tl.int64)
    rank = tl.program_id(1) * block + tl.arange(0, block)
    used = rank < r
    first = tl.zeros([block], dtype=tl.float32)
    second = tl.zeros([block], dtype=tl.float32)
    for row in range(part * rows, tl.minimum(part * rows + rows, n)):
        x = tl.load(v + row * r + rank, mask=used, other=0.0)
        u = tl.where(used, tl.maximum(tl.load(height + row) - x, 0.0), 0.0)
        w = tl.load(weight + row)
        first += w * u
        second += w * u * u
        if rows_too:
            below = tl.where(rank < r - 1, u, 0.0)
            to = by_row + tl.program_id(1) * 2 * n + row
            tl.store(to, tl.sum(below, axis=0).to(tl.float64))
            tl.store(to + n, tl.sum(below * below, axis=0).to(tl.float64))
    by_rank += part * 2 * r + rank
    tl.store(by_rank, first.to(tl.float64), mask=used)
    tl.store(by_rank + r, second.to(tl.float64), mask=used)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def longest_ties(v, r, height, out, block: tl.constexpr):
    # Ranks of the largest group of equal depths in a row, masked classes apart.
    row = tl.program_id(0).to(tl.int64)
    u = tl.load(height + row)
    longest = 1
    since = 0
    for begin in range(0, r, block):
        rank = begin + tl.arange(0, block)
        x = tl.load(v + row * r + rank, mask=rank < r, other=-1.0)
        below = tl.load(v + row * r + rank - 1, mask=(rank > 0) & (rank < r), other=-2.0)
        begins = tl.where(x != below, rank, since)
        begins = tl.associative_scan(begins, 0, larger)
        valid = (rank < r) & (x <= u)
        longest = tl.maximum(longest, tl.max(tl.where(valid, rank - begins + 1, 1), axis=0))
        since = tl.max(begins, axis=0)
    tl.store(out + row, longest)


@triton.jit(do_not_specialize=["n", "rows"])
def information(
    v, n, r, rows, weight, height, leading, lesser, rest_depth, rest_count, biases, by_row, by_rank,
    factors: tl.constexpr, rest: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    # See `once.information`; the scale is given in two parts.
    part = tl.program_id(0).to(tl.int64)
    rank = tl.arange(0, block)
    used = rank < r
    depth = tl.zeros([block], dtype=tl.float32)
    others = tl.zeros([block], dtype=tl.float32)
    bias = tl.zeros([block], dtype=tl.float32)
    for row in range(part * rows, tl.minimum(part * rows + rows, n)):
        x = tl.load(v + row * r + rank, mask=used, other=0.0)
        u = tl.load(height + row)
        valid = used & (x <= u)
        x = tl.where(valid, x, 0.0)
        x64 = x.to(tl.float64)
        p = tl.where(valid, exponential(-(leading * x64 + lesser * x64).to(tl.float32)), 0.0)
        # The rest lies below all starts, and at the lowest it drops by its own depth.
        t0 = u * 0.0
        t1 = t0
        t2 = t0
        if rest:
            away = tl.load(rest_depth + row).to(tl.float64)
            many = tl.load(rest_count + row).to(tl.float64) * tl.exp(-(leading * away + lesser * away))
            t0 = many.to(tl.float32)
            t1 = (many * away).to(tl.float32)
            t2 = (many * away * away).to(tl.float32)
        total = tl.sum(p, axis=0) + t0
        p = p / total
        below = tl.cumsum(p, 0) - p + t0 / total
        pv = p * x
        lowest = rank == 0
        pvv = pv * x + tl.where(lowest, t2 / total, 0.0)
        upwards = tl.cumsum(pv, 0, reverse=True)
        first = tl.where(lowest, upwards + t1 / total, upwards + u * below)
        second = tl.where(lowest, 0.0, u * u * below) - first * first
        spread = tl.where(used, below - below * below, 0.0)
        w = tl.load(weight + row)
        depth += w * pvv
        others += tl.where(used, w * second, 0.0)
        bias += w * spread
        if factors:
            tl.store(biases + row * r + rank, spread, mask=used)
        whole = tl.sum(pvv + tl.where(lowest, second, 0.0), axis=0)
        tl.store(by_row + row * 3, whole.to(tl.float64))
        tl.store(by_row + row * 3 + 1, tl.sum(tl.where(rank == r - 1, below, 0.0), axis=0).to(tl.float64))
    by_rank += part * 3 * r + rank
    tl.store(by_rank, depth.to(tl.float64), mask=used)
    tl.store(by_rank + r, others.to(tl.float64), mask=used)
    tl.store(by_rank + 2 * r, bias.to(tl.float64), mask=used)


@triton.jit(do_not_specialize=["n"])
def prepare(
    z, stride, ordered, ordered_stride, n, m, labels, largest, depth, of_rows, counts, seen,
    log: tl.constexpr, each: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    rank = tl.arange(0, block)
    used = rank < m
    if log > 0:  # the row is not sorted yet
        x = sorted_row(ordered + row * ordered_stride, m, log, each)
    else:
        x = tl.load(ordered + row * ordered_stride + rank, mask=used, other=float("inf")).to(tl.float32)
    z_top = tl.max(tl.where(used, x, -float("inf")), axis=0)
    # As in `core.ranked`: depths are cut, and masked classes lie below the height.
    valid = used & (x != -float("inf"))
    v = tl.minimum(z_top - x, largest)
    height = tl.max(tl.where(valid, v, 0.0), axis=0)
    v = tl.where(valid, v, 2.0 * height + 1.0)
    depth += row * m + rank
    tl.store(depth, v, mask=used)
    label = tl.minimum(z_top - tl.load(z + row * stride + tl.load(labels + row)).to(tl.float32), largest)
    tl.store(of_rows + row, height)
    tl.store(of_rows + n + row, z_top)
    tl.store(of_rows + 2 * n + row, label)
    tl.store(counts + row, tl.sum((used & (v > label)).to(tl.int32), axis=0).to(tl.int64))
    tl.store(counts + n + row, tl.sum((used & (v == label)).to(tl.int32), axis=0).to(tl.int64))
    # All programs that store here store the same.
    tl.debug_barrier()  # other threads have stored what is read
    lower = tl.load(depth - 1, mask=used & (rank > 0), other=-1.0)
    tl.store(seen + rank, (rank >= 0).to(tl.int8), mask=used & (v == lower))
    if tl.sum((used & ~valid).to(tl.int32), axis=0) > 0:
        tl.store(seen + m, 1)


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def below_top(x, u, table, pieces, d):
    # ``f - f_top`` at depths ``x`` of a row of height ``u``, in pieces ``d``. The table is read again for every row: kept, it
    # would leave no registers for anything else.
    f = tl.load(table + d) * x.to(tl.float64)
    f += tl.load(table + pieces + d) * u + tl.load(table + 2 * pieces + d)
    return f.to(tl.float32)


@triton.jit
def averaged(f, x, u, of_row, used, r, table, pieces, jumps, jump, n_jumps, rank):
    # Ties that a jump splits share their mean. The same after that, and what the top has come down to.
    top = 0.0
    upper = tl.load(of_row + jump, mask=jump > 0, other=-1.0)
    lower = tl.load(of_row + jump - 1, mask=jump > 0, other=-2.0)
    if tl.sum((upper == lower).to(tl.int32), axis=0) > 0:
        for j in range(0, n_jumps):
            s = tl.load(jumps + j).to(tl.int32)
            xs = tl.load(of_row + s)
            if xs == tl.load(of_row + s - 1):
                # Measured from what the jump itself has, so that sums of many stay small.
                here = below_top(xs, u, table, pieces, j + 1)
                same = used & (x == xs)
                away = tl.where(same, f - here, 0.0)
                total, count = tl.reduce((away, same.to(tl.float32)), 0, add_both)
                f = tl.where(same, here + total / count, f)
        top = tl.sum(tl.where(rank == r - 1, f, 0.0), axis=0)
    return f, top


@triton.jit(
    do_not_specialize=["n", "rows", "pieces", "n_jumps", "n_starts", "n_atoms", "q_stride", "psi_stride"],
    do_not_specialize_on_alignment=["table", "numbers"],
)
def sums(
    v, n, r, rows, table, pieces, numbers, n_jumps, n_starts, n_atoms, weight, height, tails, tail_ties, counts,
    q_out, q_stride, psi, psi_stride, moments, products, out,
    factors: tl.constexpr, by_rank: tl.constexpr, tail: tl.constexpr, curved: tl.constexpr,
    jump_pad: tl.constexpr, start_pad: tl.constexpr, atom_pad: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    # ``numbers``: the piece of each rank, which start it is (or -1), jumps, starts, and of each atom its start, factor, kind.
    part = tl.program_id(0).to(tl.int64)
    rank = tl.arange(0, block)
    used = rank < r
    d = tl.load(numbers + rank, mask=used, other=0.0).to(tl.int32)
    jumps = numbers + 2 * r
    starts = jumps + n_jumps
    each_jump = tl.arange(0, jump_pad)
    jump = tl.load(jumps + each_jump, mask=each_jump < n_jumps, other=0.0).to(tl.int32)
    if curved:
        at = tl.load(numbers + r + rank, mask=used, other=-1.0).to(tl.int32)
        each_start = tl.arange(0, start_pad)
        start = tl.load(starts + each_start, mask=each_start < n_starts, other=0.0).to(tl.int32)
        atom = tl.arange(0, atom_pad)
        is_atom = atom < n_atoms
        of_atom = starts + n_starts + atom
        atom_start = tl.load(of_atom, mask=is_atom, other=0.0).to(tl.int32)
        atom_factor = tl.load(of_atom + n_atoms, mask=is_atom, other=0.0).to(tl.int32)
        is_scale = tl.load(of_atom + 2 * n_atoms, mask=is_atom, other=0.0) > 0
    depth = tl.zeros([block], dtype=tl.float32)
    high = tl.zeros([block], dtype=tl.float32)
    mass = tl.zeros([block], dtype=tl.float32)
    value = tl.zeros([1], dtype=tl.float64)
    tied = tl.zeros([1], dtype=tl.float64)
    for row in range(part * rows, tl.minimum(part * rows + rows, n)):
        of_row = v + row * r
        x = tl.load(of_row + rank, mask=used, other=-1.0)
        u = tl.load(height + row)
        u64 = u.to(tl.float64)
        of_table = table
        if factors:
            of_table = table + row * 3 * pieces
        f = below_top(x, u64, of_table, pieces, d)
        valid = used & (x <= u)
        if tail > 0:
            low = valid & (x == u)
            lowest = tl.min(tl.where(low, f, float("inf")), axis=0)
        f, top = averaged(f, x, u64, of_row, used, r, of_table, pieces, jumps, jump, n_jumps, rank)
        if tail > 0:  # classes of the tail that equal the lowest logit in use belong to its group
            equal = tl.load(tail_ties + row).to(tl.float32)
            n_low = tl.sum(low.to(tl.float32), axis=0)
            group = tl.max(tl.where(low, f, -float("inf")), axis=0)
            group = lowest + (group - lowest) * (n_low / (n_low + equal))
            f = tl.where(low, group, f)
            top = tl.sum(tl.where(rank == r - 1, f, 0.0), axis=0)
        e = tl.where(valid, exponential(tl.minimum(f - top, 0.0)), 0.0)
        ev = tl.where(valid, e * x, 0.0)
        evv = ev * x
        if tail > 0:  # the lowest rank stands for the tail, whose sums are in units of its own value
            steep = tl.load(of_table)
            own = steep * u64 + (tl.load(of_table + pieces) * u64 + tl.load(of_table + 2 * pieces))
            unit = exponential(tl.minimum(own.to(tl.float32) - top, 0.0))
            extra = equal * (exponential(tl.minimum(group - top, 0.0)) - unit)
            if tail == 1:  # sums over all classes, with those in use at the height
                kept = tl.sum(valid.to(tl.float32), axis=0)
                t0 = tl.maximum(unit * (tl.load(tails + row * 3) - kept), 0.0)
                t1 = tl.maximum(unit * (tl.load(tails + row * 3 + 1) - kept * u), 0.0)
                t2 = tl.maximum(unit * (tl.load(tails + row * 3 + 2) - kept * u * u), 0.0)
            else:  # classes of which the number and the common depth are known
                away = tl.load(tails + row).to(tl.float64)
                many = unit.to(tl.float64) * tl.load(counts + row).to(tl.float64)
                many *= tl.exp(steep * (away - u64))
                t0 = many.to(tl.float32)
                t1 = (many * away).to(tl.float32)
                t2 = (many * away * away).to(tl.float32)
            first = rank == 0
            e += tl.where(first, t0 + extra, 0.0)
            ev += tl.where(first, t1 + extra * u, 0.0)
            evv += tl.where(first, t2 + extra * u * u, 0.0)
        total = tl.sum(e, axis=0)
        whole = tl.load(weight + row)
        value += whole * (tl.log(total.to(tl.float64)) + top)
        share = whole / total
        q = e * share
        qv = ev * share
        if by_rank:
            depth += qv
            high += q * u
            if factors:
                tl.store(q_out + row * q_stride + rank, q, mask=used)
                tl.store(q_out + row * q_stride + r, tl.sum(qv, axis=0))
            else:
                mass += q
        if curved:
            begins = used & (at >= 0)
            to = moments + row * 4 * n_starts
            first, second = tl.associative_scan((qv, evv * share), 0, add_both, reverse=True)
            tl.store(to + at, tl.cumsum(q, 0) - q, mask=begins)
            tl.store(to + n_starts + at, first, mask=begins)
            tl.store(to + 2 * n_starts + at, second, mask=begins)
            tl.store(to + 3 * n_starts + at, q, mask=begins)
            upper = tl.load(of_row + start, mask=start > 0, other=-1.0)
            lower = tl.load(of_row + start - 1, mask=start > 0, other=-2.0)
            tied += tl.max((upper == lower).to(tl.float64), axis=0)
            # What the Hessian needs of every atom.
            tl.debug_barrier()  # other threads have stored what is read
            below = tl.load(to + atom_start, mask=is_atom, other=0.0)
            depths = tl.load(to + n_starts + atom_start, mask=is_atom, other=0.0)
            squares = tl.load(to + 2 * n_starts + atom_start, mask=is_atom, other=0.0)
            mean_drop = tl.where(is_scale, u64 * below + depths, below)
            later = tl.where(is_scale, squares - u64 * depths, -depths)
            one = below * 0.0 + 1.0
            if factors:
                one = tl.load(psi + row * psi_stride + atom_factor, mask=is_atom, other=0.0).to(tl.float64)
                mean_drop *= one
                later *= one
            to = products + row * 5 * n_atoms + atom
            tl.store(to, mean_drop, mask=is_atom)
            tl.store(to + n_atoms, u64 * mean_drop, mask=is_atom)
            tl.store(to + 2 * n_atoms, later, mask=is_atom)
            tl.store(to + 3 * n_atoms, one, mask=is_atom)
            tl.store(to + 4 * n_atoms, mean_drop / whole.to(tl.float64), mask=is_atom)
    out += part * (3 * r + 2)
    if by_rank:
        tl.store(out + rank, depth.to(tl.float64), mask=used)
        tl.store(out + r + rank, high.to(tl.float64), mask=used)
        tl.store(out + 2 * r + rank, mass.to(tl.float64), mask=used)
    one = tl.arange(0, 1)
    tl.store(out + 3 * r + one, value)
    tl.store(out + 3 * r + 1 + one, tied)


@triton.jit(do_not_specialize=["n_atoms"], do_not_specialize_on_alignment=["at", "scale", "out"])
def covariances(x, at, scale, n_atoms, out, tile: tl.constexpr):
    # `curvature.covariance` of the products (3 a, 2 a) of the atoms' numbers.
    a = (tl.program_id(0) * tile + tl.arange(0, tile))[:, None]
    b = (tl.program_id(1) * tile + tl.arange(0, tile))[None, :]
    used = (a < n_atoms) & (b < n_atoms)
    in_order = tl.load(at + a, mask=a < n_atoms, other=0.0) <= tl.load(at + b, mask=b < n_atoms, other=0.0)
    first = tl.where(in_order, a, b)
    later = tl.where(in_order, b, a)
    width = 2 * n_atoms
    to_bias = tl.load(x + first * width + later, mask=used, other=0.0)
    to_scale = tl.load(x + (n_atoms + first) * width + later, mask=used, other=0.0)
    from_scale = tl.load(x + (width + later) * width + first, mask=used, other=0.0)
    product = tl.where(tl.load(scale + later, mask=used, other=0.0) > 0, to_scale, to_bias)
    product += tl.where(tl.load(scale + first, mask=used, other=0.0) > 0, from_scale, 0.0)
    product -= tl.load(x + a * width + n_atoms + b, mask=used, other=0.0)
    tl.store(out + a * n_atoms + b, product, mask=used)


@triton.jit(do_not_specialize=["n", "n_starts"], do_not_specialize_on_alignment=["starts"])
def groups(
    v, n, r, moments, n_starts, height, tail_ties, starts, out,
    tail: tl.constexpr, steps: tl.constexpr, rows: tl.constexpr, pad: tl.constexpr,
):  # fmt: skip
    # Of the group of ties that each start falls in: its first rank, or -1 where it begins there and is not split; the share
    # of it at or above the start; its probability; and u.
    row = (tl.program_id(0) * rows + tl.arange(0, rows))[:, None].to(tl.int64)
    d = tl.arange(0, pad)[None, :]
    used = (row < n) & (d < n_starts)
    start = tl.load(starts + d, mask=d < n_starts, other=0.0).to(tl.int32)
    of_row = v + row * r
    x = tl.load(of_row + start, mask=used, other=0.0)
    first = start * 0
    end = start + first
    last = start + first
    beyond = first + r
    first = tl.where(used, first, 0)
    end = tl.where(used, end, 0)
    last = tl.where(used, last, 0)
    beyond = tl.where(used, beyond, 1)
    for _ in range(steps):  # depths fall as ranks rise
        middle = (first + end) // 2
        inside = tl.load(of_row + middle, mask=used, other=0.0) <= x
        first = tl.where((first < end) & ~inside, middle + 1, first)
        end = tl.where(inside & (middle < end), middle, end)
        middle = (last + beyond) // 2
        inside = tl.load(of_row + tl.minimum(middle, r - 1), mask=used, other=0.0) >= x
        last = tl.where(inside & (middle < beyond), middle, last)
        beyond = tl.where(inside, beyond, tl.minimum(beyond, middle))
    size = (last - first + 1).to(tl.float32)
    u = tl.load(height + row, mask=row < n, other=0.0)
    if tail:
        equal = tl.load(tail_ties + row, mask=row < n, other=0).to(tl.float32)
        size += tl.where(x == u, equal, 0.0)
    q = tl.load(moments + row * 4 * n_starts + 3 * n_starts + d, mask=used, other=0.0).to(tl.float32)
    to = out + row * 4 * n_starts + d
    tl.store(to, tl.where(first < start, first.to(tl.float32), -1.0), mask=used)
    tl.store(to + n_starts, (last - start + 1).to(tl.float32) / size, mask=used)
    tl.store(to + 2 * n_starts, q * size, mask=used)
    tl.store(to + 3 * n_starts, u - x, mask=used)


@triton.jit(
    do_not_specialize=["n", "n_starts", "stride", "n_atoms"],
    do_not_specialize_on_alignment=["at", "factor", "scale", "order"],
)
def ties(
    of_groups, n, n_starts, psi, stride, at, factor, scale, order, n_atoms, out,
    factors: tl.constexpr, rows: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    # Atoms are taken in the order of their starts, and each pair of tiles once.
    part = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    j = tl.program_id(2)
    if i <= j:
        a_used = i * tile + tl.arange(0, tile) < n_atoms
        b_used = j * tile + tl.arange(0, tile) < n_atoms
        a = tl.load(order + i * tile + tl.arange(0, tile), mask=a_used, other=0.0).to(tl.int32)
        b = tl.load(order + j * tile + tl.arange(0, tile), mask=b_used, other=0.0).to(tl.int32)
        d_a = tl.load(at + a).to(tl.int32)
        d_b = tl.load(at + b).to(tl.int32)
        scale_a = tl.load(scale + a) > 0
        scale_b = tl.load(scale + b) > 0
        if factors:
            k_a = tl.load(factor + a).to(tl.int32)
            k_b = tl.load(factor + b).to(tl.int32)
        # Groups have ranks side by side: one that reaches from tile to tile has the last start of the one and the first of the
        # other.
        each = part * rows + tl.arange(0, rows)
        end = tl.max(tl.where(a_used, d_a, 0), axis=0)
        begin = tl.min(tl.where(b_used, d_b, n_starts), axis=0)
        of_end = tl.load(of_groups + each * 4 * n_starts + end, mask=each < n, other=-1.0)
        of_begin = tl.load(of_groups + each * 4 * n_starts + begin, mask=each < n, other=-1.0)
        reaching = tl.sum(((of_end >= 0) & (of_end == of_begin)).to(tl.int32), axis=0)
        total = tl.zeros([tile, tile], dtype=tl.float32)
        if (i == j) | (reaching > 0):
            for row in range(part * rows, tl.minimum(part * rows + rows, n)):
                of_row = of_groups + row * 4 * n_starts
                first_a = tl.load(of_row + d_a)
                first_b = tl.load(of_row + d_b)
                share_a = tl.load(of_row + n_starts + d_a)
                share_b = tl.load(of_row + n_starts + d_b)
                own_a = tl.load(of_row + 2 * n_starts + d_a) * tl.where(
                    scale_a, tl.load(of_row + 3 * n_starts + d_a), 1.0
                )
                own_b = tl.where(scale_b, tl.load(of_row + 3 * n_starts + d_b), 1.0)
                if factors:
                    own_a *= tl.load(psi + row * stride + k_a)
                    own_b *= tl.load(psi + row * stride + k_b)
                own_a = tl.where(first_a >= 0, own_a, 0.0)
                least = tl.minimum(share_a[:, None], share_b[None, :])
                most = tl.maximum(share_a[:, None], share_b[None, :])
                product = own_a[:, None] * own_b[None, :] * least * (1.0 - most)
                total += tl.where(first_a[:, None] == first_b[None, :], product, 0.0)
        used = a_used[:, None] & b_used[None, :]
        out += part * n_atoms * n_atoms
        tl.store(out + a[:, None] * n_atoms + b[None, :], total, mask=used)
        tl.store(out + b[None, :] * n_atoms + a[:, None], total, mask=used & (i < j))


@triton.jit
def tail_sums(logits, stride, m, top, height, weight, weight_stride, largest, out, block: tl.constexpr):
    # sum exp(w (v - U)) v^t over all classes, depths cut at the height; ``weight`` is -w.
    row = tl.program_id(0).to(tl.int64)
    z_top = tl.load(top + row)
    low = tl.load(height + row)
    w = tl.load(weight + row * weight_stride)
    leading = w.to(tl.float32)
    lesser = (w - leading.to(tl.float64)).to(tl.float32)
    s0 = tl.zeros([block], dtype=tl.float32)
    s1 = tl.zeros([block], dtype=tl.float32)
    s2 = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, m, block):
        column = begin + tl.arange(0, block)
        z = tl.load(logits + row * stride + column, mask=column < m, other=-float("inf")).to(tl.float32)
        hidden = z == -float("inf")
        v = tl.minimum(tl.maximum(z_top - z, low), largest)
        e = tl.where(hidden, 0.0, tl.exp(leading * (v - low) + lesser * (v - low)))
        v = tl.where(hidden, 0.0, v)
        s0 += e
        s1 += e * v
        s2 += e * v * v
    tl.store(out + row * 3, tl.sum(s0, axis=0))
    tl.store(out + row * 3 + 1, tl.sum(s1, axis=0))
    tl.store(out + row * 3 + 2, tl.sum(s2, axis=0))


@triton.jit
def tail_ties(logits, stride, m, top, height, largest, equal, masked, block: tl.constexpr):
    # Classes whose depth is the height, and whether some class is masked.
    row = tl.program_id(0).to(tl.int64)
    z_top = tl.load(top + row)
    low = tl.load(height + row)
    count = tl.zeros([block], dtype=tl.int32)
    hidden = tl.zeros([block], dtype=tl.int32)
    for begin in range(0, m, block):
        column = begin + tl.arange(0, block)
        z = tl.load(logits + row * stride + column, mask=column < m, other=float("inf")).to(tl.float32)
        away = z == -float("inf")
        depth = tl.minimum(z_top - z, largest)
        count += ((depth == low) & ~away & (column < m)).to(tl.int32)
        hidden = tl.maximum(hidden, away.to(tl.int32))
    tl.store(equal + row, tl.sum(count, axis=0).to(tl.int64))
    tl.store(masked + row, tl.max(hidden, axis=0).to(tl.int8))


@triton.jit
def scale_moments(v, r, weight, height, leading, lesser, out, block: tl.constexpr):
    # Of one row: log sum p, E v and E v^2 - (E v)^2, p = exp(-scale v), times the weight. Ranks may be in any order, and the
    # scale is given in two parts.
    row = tl.program_id(0).to(tl.int64)
    u = tl.load(height + row)
    s0 = tl.zeros([block], dtype=tl.float32)
    s1 = tl.zeros([block], dtype=tl.float32)
    s2 = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, r, block):
        rank = begin + tl.arange(0, block)
        x = tl.load(v + row * r + rank, mask=rank < r, other=0.0)
        valid = (rank < r) & (x <= u)
        x64 = x.to(tl.float64)
        e = tl.where(valid, exponential(-(leading * x64 + lesser * x64).to(tl.float32)), 0.0)
        x = tl.where(valid, x, 0.0)
        s0 += e
        s1 += e * x
        s2 += e * x * x
    total = tl.sum(s0.to(tl.float64), axis=0)
    mean = tl.sum(s1.to(tl.float64), axis=0) / total
    square = tl.sum(s2.to(tl.float64), axis=0) / total
    share = tl.load(weight + row).to(tl.float64)
    tl.store(out + row * 3, share * tl.log(total))
    tl.store(out + row * 3 + 1, share * mean)
    tl.store(out + row * 3 + 2, share * (square - mean * mean))
