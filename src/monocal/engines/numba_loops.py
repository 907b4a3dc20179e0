"""What all loops of numba share: how they are compiled, steps on sixteen ranks at a time, sums over one row, and sorting.

    y_i = w v_i + (c v_i + b),         sum p_i,  sum p_i v_i,  sum p_i v_i^2           begin <= i < end
    sum_n left_nk p_ni                 for 8 columns k and 16 ranks i, over a few rows n
    x (places, 16):   for given pairs i < j    x_i, x_j  <-  min(x_i, x_j), max(x_i, x_j)       16 rows side by side

**Pieces** between jumps are many and short. A compiler that is left to itself takes what does not fill its registers one by one,
which for a piece of thirty ranks is nearly all of it. So what is left of a piece is masked.

**Rows are sorted** by a network, which compares places in an order that does not depend on the values: one instruction compares
a pair of places in sixteen rows, and no branch has to be guessed. The network is Batcher's bitonic sort in the form in which the
smaller value always goes to the lower place: runs of eight are sorted, then two runs are merged by comparing the first with the
second backwards (`flip_and_clean`) and halves of halves after that (`clean_twice`). Places beyond the row would hold infinity and
never move, so they are left out. Two or three steps are taken while the values are in registers.

This module needs numba when it is imported, and so do the other modules of loops.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment, untyped-decorator, attr-defined"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from ..core.ranked import LARGEST

LANES = 16
FACTORS = 8  # columns of a tile of a product
TOGETHER = 64  # rows of one matrix product
FLOAT, INDEX = ir.FloatType(), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)
_INDICES = ir.VectorType(INDEX, LANES)


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the numbers of an array begin."""
    return context.make_array(kind)(context, builder, array).data


def vector_at(builder: Any, data: Any, offset: Any) -> Any:
    """A pointer to the sixteen numbers from an offset on."""
    return builder.bitcast(builder.gep(data, [offset]), ir.PointerType(VECTOR))


def spread(builder: Any, x: Any, vector: Any = VECTOR) -> Any:
    """One number in all lanes."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), x, ir.IntType(32)(0))
    nowhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), nowhere)


def over_lanes(builder: Any, begin: Any, end: Any, body: Callable[[Any, Any], None]) -> None:
    """``body(i, mask)`` for i = begin, begin + 16, ...; the mask says which lanes lie before the end."""
    lanes = ir.Constant(_INDICES, list(range(LANES)))
    with cgutils.for_range_slice(builder, begin, end, ir.Constant(INDEX, LANES), INDEX) as (i, _):
        where = builder.add(spread(builder, i, _INDICES), lanes)
        body(i, builder.icmp_signed("<", where, spread(builder, end, _INDICES)))


def masked_load(builder: Any, pointer: Any, mask: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [pointer.type, ir.IntType(32), _MASK, VECTOR])
    load = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
    return builder.call(load, [pointer, ir.IntType(32)(4), mask, ir.Constant(VECTOR, [0.0] * LANES)])


def masked_store(builder: Any, value: Any, pointer: Any, mask: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, pointer.type, ir.IntType(32), _MASK])
    store = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(store, [value, pointer, ir.IntType(32)(4), mask])


@intrinsic
def affine_between(context: Any, v: Any, begin: Any, end: Any, w: Any, c: Any, b: Any, out: Any) -> Any:
    """``out = w v + (c v + b)`` from ``begin`` to ``end``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = data_of(context, builder, signature.args[0], args[0])
        target = data_of(context, builder, signature.args[6], args[6])
        w, c, b = (spread(builder, x) for x in args[3:6])

        def body(i: Any, mask: Any) -> None:
            x = masked_load(builder, vector_at(builder, source, i), mask)
            inner = builder.fadd(builder.fmul(c, x, flags=("contract",)), b, flags=("contract",))
            y = builder.fadd(builder.fmul(w, x, flags=("contract",)), inner, flags=("contract",))
            masked_store(builder, y, vector_at(builder, target, i), mask)

        over_lanes(builder, args[1], args[2], body)
        return context.get_dummy_value()

    f32 = types.float32
    return types.void(v, types.intp, types.intp, f32, f32, f32, out), generate


@intrinsic
def moments_between(context: Any, p: Any, v: Any, begin: Any, end: Any) -> Any:
    """Sums of ``p``, ``p v`` and ``p v^2`` from ``begin`` to ``end``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sources = [data_of(context, builder, signature.args[k], args[k]) for k in (0, 1)]
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(3)]

        def body(i: Any, mask: Any) -> None:
            p, v = (masked_load(builder, vector_at(builder, x, i), mask) for x in sources)
            for power, total in enumerate(sums):
                p = builder.fmul(p, v) if power else p
                builder.store(builder.fadd(builder.load(total), p), total)

        over_lanes(builder, args[2], args[3], body)
        return context.make_tuple(builder, signature.return_type, [_sum(builder, x) for x in sums])

    return types.UniTuple(types.float32, 3)(p, v, types.intp, types.intp), generate


@intrinsic
def product_tile(context: Any, left: Any, p: Any, rows: Any, k: Any, i: Any, out: Any) -> Any:
    """``out = left.T @ p`` of the first rows of both, at the eight columns from k and the sixteen ranks from i on.

    The library for matrix products is made for larger ones: for this one it takes twice the time.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        arrays = [context.make_array(kinds[j])(context, builder, args[j]) for j in (0, 1, 5)]
        bytes_of = ir.Constant(INDEX, 4)
        steps = [
            builder.sdiv(builder.extract_value(a.strides, 0), bytes_of) for a in arrays
        ]  # of rows, in numbers
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(FACTORS)]
        for total in sums:
            builder.store(zero, total)
        with cgutils.for_range(builder, args[2], intp=INDEX) as loop:
            ranks = builder.add(builder.mul(loop.index, steps[1]), args[4])
            x = builder.load(vector_at(builder, arrays[1].data, ranks), align=4)
            column = builder.add(builder.mul(loop.index, steps[0]), args[3])
            for j, total in enumerate(sums):
                size = builder.load(builder.gep(arrays[0].data, [builder.add(column, ir.Constant(INDEX, j))]))
                more = builder.fmul(spread(builder, size), x, flags=("contract",))
                builder.store(builder.fadd(builder.load(total), more, flags=("contract",)), total)
        for j, total in enumerate(sums):
            line = builder.mul(builder.add(args[3], ir.Constant(INDEX, j)), steps[2])
            place = vector_at(builder, arrays[2].data, builder.add(line, args[4]))
            builder.store(builder.load(total), place, align=4)
        return context.get_dummy_value()

    return types.void(left, p, types.intp, types.intp, types.intp, out), generate


def _sum(builder: Any, place: Any) -> Any:
    """All lanes added up, halves by halves."""
    x, k = builder.load(place), LANES // 2
    while k:
        indices = [(i + k) % LANES for i in range(LANES)]
        x = builder.fadd(
            x, builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(ir.IntType(32), LANES), indices))
        )
        k //= 2
    return builder.extract_element(x, ir.IntType(32)(0))


F32 = np.float32
MOST = F32(LARGEST)  # depths are cut here
PART = 4096
# Numbers that a thread takes at a time, where nothing is added up over rows.
PIECE = 2**17
# log(2) as a sum of two: the first has few bits, so its multiples are exact.
PER_LN2, LN2_HIGH, LN2_LOW = F32(1 / np.log(2)), F32(355 / 512), F32(np.log(2) - 355 / 512)


def nothing():
    return 0


try:
    numba.njit(cache=True)(nothing)
    KEEPS = True
except RuntimeError:  # no folder to keep compiled code in
    KEEPS = False
# Loops are put into the loops that call them. Else there would be two versions of each, its own and one made for its caller, and
# it would depend on what was compiled in this process and what was loaded which of the two is called: sums differ in last digits.
HOW = {"nogil": True, "error_model": "numpy", "cache": KEEPS, "forceinline": True}
# Sums may be taken in any order. Nothing else may be rearranged, least of all what rests on a rounding; where the order
# of classes is at stake, products are not even fused with sums.
sum_loop = numba.njit(fastmath=True, **HOW)
loop = numba.njit(fastmath={"contract"}, **HOW)
strict_loop = numba.njit(**HOW)


@intrinsic
def float_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def next_of(context: Any, turn: Any) -> Any:
    """The number in an array (1,), which goes up by one. Threads that count so take every piece of work once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(turn), generate


@numba.njit(inline="always")
def power_of_two(k):
    return float_of_bits((k + np.int32(127)) << np.int32(23))


@numba.njit(inline="always")
def exp(x):
    # 2^k e^r with |r| <= log(2)/2, where seven terms of the series leave an error of 6e-9.
    x = max(x, F32(-104.0))  # where it is zero
    k = np.rint(x * PER_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    y = F32(1 / 5040)
    y = y * r + F32(1 / 720)
    y = y * r + F32(1 / 120)
    y = y * r + F32(1 / 24)
    y = y * r + F32(1 / 6)
    y = y * r + F32(1 / 2)
    y = y * r * r + r + F32(1)
    k = np.int32(k)
    half = k >> np.int32(1)  # in two steps, because the smallest numbers have no exponent of their own
    return y * power_of_two(half) * power_of_two(k - half)


@numba.njit(inline="always")
def exp_in_sums(x):
    # As `exp`, but what is below the smallest number with an exponent of its own becomes that number: no sum notices. The
    # polynomial is the one of its degree with the smallest relative error, 3e-9.
    x = max(x, F32(-87.0))
    k = np.rint(x * PER_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    y = F32(0.0013813144394)
    y = y * r + F32(0.0083694188465)
    y = y * r + F32(0.0416684567898)
    y = y * r + F32(0.1666651479128)
    y = y * r + F32(0.4999999305071)
    y = y * r * r + r + F32(1)
    return y * power_of_two(np.int32(k))


@loop
def rows_of_a_piece(m):
    # Rows of m numbers that a thread takes at a time; no fewer than are sorted together.
    return min(max(PIECE // m, 16), 64)


# Long sums are taken in parts: adding a hundred thousand numbers in single precision would lose the last two digits.


@sum_loop
def part_total(x):
    s = F32(0)
    for i in range(x.size):
        s += x[i]
    return s


@loop
def total_of(x):
    if x.size <= PART:
        return part_total(x)
    s = 0.0
    for begin in range(0, x.size, PART):
        s += part_total(x[begin : begin + PART])
    return F32(s)


@sum_loop
def part_moments(p, v):
    s0, s1, s2 = F32(0), F32(0), F32(0)
    for i in range(p.size):
        s0 += p[i]
        s1 += p[i] * v[i]
        s2 += p[i] * v[i] * v[i]
    return s0, s1, s2


@loop
def moments_of(p, v):
    if p.size <= PART:
        return part_moments(p, v)
    s0, s1, s2 = 0.0, 0.0, 0.0
    for begin in range(0, p.size, PART):
        t0, t1, t2 = part_moments(p[begin : begin + PART], v[begin : begin + PART])
        s0, s1, s2 = s0 + t0, s1 + t1, s2 + t2
    return F32(s0), F32(s1), F32(s2)


def _comparing(pairs: Sequence[tuple[int, int]], count: int) -> Any:
    """A function of an array (places, 16) and ``count`` places in it, which compares these pairs of them one after another."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, lanes = (
            data_of(context, builder, signature.args[0], args[0]),
            ir.Constant(INDEX, LANES),
        )
        places = [vector_at(builder, data, builder.mul(at, lanes)) for at in args[1:]]
        values = [builder.load(place, align=4) for place in places]
        for low, high in pairs:
            a, b = values[low], values[high]
            swaps = builder.fcmp_ordered("<", b, a)
            values[low], values[high] = builder.select(swaps, b, a), builder.select(swaps, a, b)
        for place, value in zip(places, values, strict=True):
            builder.store(value, place, align=4)
        return context.get_dummy_value()

    if count == 4:

        @intrinsic
        def of_four(context: Any, x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            return types.void(x, *[types.intp] * 4), generate

        return of_four

    @intrinsic
    def of_eight(context: Any, x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        return types.void(x, *[types.intp] * 8), generate

    return of_eight


_SORTED_PAIRS = [(0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)]
_SORTED_PAIRS += [(4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)]
sort_eight = _comparing(_SORTED_PAIRS, 8)
flip_and_clean = _comparing([(0, 3), (1, 2), (0, 1), (2, 3)], 4)
clean_twice = _comparing([(0, 2), (1, 3), (0, 1), (2, 3)], 4)
_HALVES = [(0, 4), (1, 5), (2, 6), (3, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 1), (2, 3), (4, 5), (6, 7)]
clean_eight = _comparing(_HALVES, 8)


@intrinsic
def transpose(context: Any, source: Any, source_step: Any, target: Any, target_step: Any) -> Any:
    """The first 16 x 16 values of one array, transposed, to another; steps are from row to row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = [data_of(context, builder, signature.args[i], args[i]) for i in (0, 2)]
        rows = []
        for i in range(LANES):
            offset = builder.mul(args[1], ir.Constant(INDEX, i))
            rows.append(builder.load(vector_at(builder, data[0], offset), align=4))
        k = LANES // 2
        while k:  # blocks of k x k next to the diagonal change places
            upper = [LANES + c - k if c & k else c for c in range(LANES)]
            lower = [LANES + c if c & k else c + k for c in range(LANES)]
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), m) for m in (upper, lower)]
            for i in (i for i in range(LANES) if not i & k):
                pair = rows[i], rows[i + k]
                rows[i], rows[i + k] = (builder.shuffle_vector(*pair, mask) for mask in masks)
            k //= 2
        for i, row in enumerate(rows):
            offset = builder.mul(args[3], ir.Constant(INDEX, i))
            builder.store(row, vector_at(builder, data[1], offset), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


@strict_loop
def sort_lanes(x, n):
    # The first n places of x, whose others hold infinity.
    for i in range(0, n, 8):
        sort_eight(x, i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7)
    half = 8
    while half < n:
        size, k = 2 * half, half // 2
        for begin in range(0, n, size):
            for i in range(begin, min(begin + k, n - k)):
                mirror = 2 * begin + size - 1 - i
                flip_and_clean(x, i, i + k, mirror - k, mirror)
        k //= 2
        while k > 4 or k == 2:
            h = k // 2
            for begin in range(0, n, 2 * k):
                for i in range(begin, min(begin + h, n - h)):
                    clean_twice(x, i, i + h, i + k, i + k + h)
            k //= 4
        if k == 4:
            for i in range(0, n, 8):
                clean_eight(x, i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7)
        half = size


@intrinsic
def take_from(context: Any, x: Any, top: Any, at: Any) -> Any:
    """``x_at = x_top - x_at``, at two places of an array (places, 16)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, lanes = data_of(context, builder, signature.args[0], args[0]), ir.Constant(INDEX, LANES)
        high, place = (vector_at(builder, data, builder.mul(i, lanes)) for i in args[1:])
        less = builder.fsub(builder.load(high, align=4), builder.load(place, align=4))
        builder.store(less, place, align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp), generate


@strict_loop
def sort_rows(z, out, top):
    # Rows of z in rising order, to out, which may be z. With an array for the tops (n,), out gets the depths below them.
    n, width = z.shape[1], 8
    while width < n:
        width *= 2
    x = np.full((width, LANES), np.float32(np.inf), dtype=np.float32)
    for r in range(0, z.shape[0], LANES):
        many = min(LANES, z.shape[0] - r)
        done = n // LANES * LANES if many == LANES else 0
        for i in range(0, done, LANES):
            transpose(z[r:, i:], n, x[i:], LANES)
        for i in range(many):
            for j in range(done, n):
                x[j, i] = z[r + i, j]
        sort_lanes(x, n)
        if top.size:
            for i in range(many):
                top[r + i] = x[n - 1, i]
            for i in range(n):
                take_from(x, n - 1, i)
        for i in range(0, done, LANES):
            transpose(x[i:], LANES, out[r:, i:], n)
        for i in range(many):
            for j in range(done, n):
                out[r + i, j] = x[j, i]
