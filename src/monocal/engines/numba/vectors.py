"""Steps on sixteen ranks of a row at a time; what is left of a piece is masked.

    y_i = w v_i + (c v_i + b),         sum p_i,  sum p_i v_i,  sum p_i v_i^2           begin <= i < end
    sum_n left_nk p_ni                 for 8 columns k and 16 ranks i, over a few rows n

Pieces between jumps are many and short. A compiler that is left to itself takes what does not fill its registers one by one,
which for a piece of thirty ranks is nearly all of it. Needs numba at once, as `loops` does.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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
