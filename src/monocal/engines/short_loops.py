"""Calibrated rows cut short (`calibrators.calibrated_rows`), by a loop in numba, which is needed at once."""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from .loops import exp, loop, sum_loop
from .sum_loops import exponentials_of_row, moments_of, row_buffers

# A probability whose logarithm single precision still knows.
SMALL = 1e-30


@sum_loop
def said(v, depth, scale):
    total, drop, top = 0.0, 0.0, 0.0
    for j in range(v.size):
        e = np.float64(exp(scale * v[j]))
        total += e
        drop += e * depth[j]
        top += e if v[j] == 0 else 0.0
    return total, drop, top


@loop
def shorten_rows(
    v, starts, psi, used, weights, drops, height, kept, shares, scales, label_depth, label_rank, depths, out
):
    # Depths of the highest ranks, to `depths` (n, kept). To `out` (n, 6): mass and mass times depth of the ranks below, the
    # depth of the label; mean depth and probability of the top under what the classifier itself says; classes on top.
    n, r = v.shape
    step, cut, pieces = (0 if psi.shape[0] == 1 else 1), r - kept, starts.size - 1
    buffers, p = row_buffers(pieces), np.empty(r, dtype=np.float32)
    w, b = buffers[0], buffers[1]  # minus the weights, and the bases before the shift
    for i in range(n):
        row, depth, found = v[i], depths[i], out[i]
        _, shift = exponentials_of_row(
            row, starts, psi[i * step], used, weights, drops, height[i], buffers, p
        )
        found[0], found[1] = 0.0, 0.0
        d = 0
        while d < pieces and starts[d] < cut:
            s0, s1, _ = moments_of(p, row, starts[d], min(starts[d + 1], cut))
            found[0] += s0
            found[1] += -w[d] * s1 - (b[d] - shift) * s0
            d += 1
        d = 0
        for j in range(kept):
            k = cut + j
            while starts[d + 1] <= k:
                d += 1
            depth[j] = -w[d] * row[k] - (b[d] - shift)
            tied = (k > 0 and row[k - 1] == row[k]) or (k + 1 < r and row[k + 1] == row[k])
            if tied and p[k] > SMALL:  # tied ranks share a mean
                depth[j] = -np.log(np.float64(p[k]))
        rank = label_rank[i]
        if rank >= cut:
            found[2] = depth[rank - cut]
        else:
            d = 0
            while starts[d + 1] <= rank:
                d += 1
            found[2] = -w[d] * label_depth[i] - (b[d] - shift)
        found[3], found[4] = 0.0, 0.0
        for s in range(shares.size):
            total, drop, top = said(row[cut:], depth, np.float32(-scales[s]))
            found[3] += shares[s] * drop / total
            found[4] += shares[s] * top / total
        on_top = 1
        while on_top < r and row[r - 1 - on_top] == 0:
            on_top += 1
        found[5] = on_top
