"""The loop that prepares rows, in numba, which is needed at once: each is sorted and looked at while the cache still holds it."""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from .loops import MOST, loop, next_of, place_of, rows_of_a_piece
from .sorting import sort_rows
from .total_loops import measure_rows


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
