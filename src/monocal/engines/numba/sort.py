"""Rows sorted many at a time, by a network: places are compared in an order that does not depend on the values.

    x (places, 16):   for given pairs i < j    x_i, x_j  <-  min(x_i, x_j), max(x_i, x_j)       16 rows side by side

One instruction compares a pair of places in sixteen rows, and no branch has to be guessed. The network is Batcher's bitonic
sort in the form in which the smaller value always goes to the lower place: runs of eight are sorted, then two runs are merged
by comparing the first with the second backwards (`flip`) and halves of halves after that (`clean`). Places beyond the row would
hold infinity and never move, so they are left out. Two or three steps are taken while the values are in registers.

Needs numba at once, as `loops` does.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .loops import MOST, loop, next_of, place_of, rows_of_a_piece, strict_loop
from .total_loops import measure_rows
from .vectors import INDEX, LANES, data_of, vector_at


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
        while k:  # blocks of k x k beside the diagonal change places
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


@loop
def prepare_rows(z, labels, depth, top, height, label_depth, first, held, tied, measured, turn):
    # Depths below the top in order; where the label lies, and how many ranks hold its value; which ranks equal the one below them
    # in some row; statistics where there is room for them (n, 3). Threads take turns.
    n, r = z.shape
    own = np.zeros(r, dtype=np.uint8)
    piece = rows_of_a_piece(r)
    begin = piece * next_of(turn)
    while begin < n:
        end = min(begin + piece, n)
        sort_rows(z[begin:end], depth[begin:end], top[begin:end])
        for i in range(begin, end):
            row = depth[i]
            height[i] = row[0]
            label_depth[i] = min(top[i] - z[i, labels[i]], MOST)
            first[i], held[i] = place_of(label_depth[i], row)
            for j in range(1, r):
                own[j] |= np.uint8(row[j - 1] == row[j] and row[j] < MOST)  # masked classes tie with nothing
        if measured.shape[0]:
            measure_rows(depth[begin:end], measured[begin:end])
        begin = piece * next_of(turn)
    for j in range(r):
        if own[j]:  # whoever else writes there writes the same
            tied[j] = 1
