"""Sums of the labels: they enter the loss linearly, so they are computed once, before any coefficient.

sum_n weight_n psi_k (v, U, 1) of the label, at the rank that holds it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
from scipy.sparse import csc_array

from ..arrays import Array, array_namespace, to_numpy
from ..core.engine import DEPTH, Block, Totals


def label_totals(block: Block) -> np.ndarray:
    """Each label in equal shares on the ranks that hold it: what begins and ends at each rank, (3, K, r).

    Shares of tied classes outside the ranks in use go to the lowest rank, whose parameters those classes have.
    """
    weight = to_numpy(block.weight).astype(np.float64)
    psi = np.ones((len(weight), 1)) if block.factors is None else to_numpy(block.factors).astype(np.float64)
    rank, held, size = (to_numpy(x) for x in (block.label_rank, block.label_held, block.label_size))
    share = weight / size
    values = np.stack([to_numpy(block.label_depth) * share, to_numpy(block.rows.height) * share, share])
    r = block.rows.depth.shape[1]

    def added_at(places: np.ndarray) -> np.ndarray:
        """Sums of the three values times the factors at each place, (3, r + 1, K): a sparse product adds row after row."""
        at = (places[:, None] + (r + 1) * np.arange(3)).ravel()
        entries = (values.T.ravel(), at, np.arange(0, len(at) + 1, 3))
        added = csc_array(entries, shape=(3 * (r + 1), len(places))) @ psi
        return np.asarray(added).reshape(3, r + 1, -1)

    edges = added_at(rank)
    if (held == 1).all():  # what begins at a rank ends at the next
        edges[:, 1:] -= edges[:, :-1].copy()
    else:
        edges -= added_at(rank + held)
    edges = np.ascontiguousarray(edges[:, :r].swapaxes(1, 2))
    outside = size - held
    if outside.any():
        lowest = (values * outside) @ psi
        edges[:, :, 0] += lowest
        if r > 1:
            edges[:, :, 1] -= lowest
    return edges


def with_top_labels(block: Block) -> Block:
    """The same rows, each with its top class as its label."""
    rows, xp = block.rows, array_namespace(block.weight)
    held = xp.count_nonzero(rows.depth == 0, axis=1)
    size = held
    if rows.tail is not None:
        size = held + xp.where(rows.height == 0, rows.tail.ties, 0 * held)
    rank = rows.depth.shape[1] - held
    return replace(block, label_depth=0 * rows.height, label_rank=rank, label_held=held, label_size=size)


def scale_totals(
    block: Block, first: Array, second: Array, parts: Sequence[slice] = (slice(None),)
) -> Totals:
    """The totals where the plain scale is the only atom, from the sums of ``u`` and ``u^2`` of each row, (n,) each.

    Rows are added up part by part.
    """
    rows, w, xp = block.rows, block.weight, array_namespace(block.weight)
    of_rows = (block.label_depth, rows.height**2, first, second, xp.ones_like(w))
    sums = xp.stack([xp.astype(x, xp.float64, copy=False) for x in of_rows])
    w = xp.astype(w, xp.float64, copy=False)
    total = reduce(add, [sums[:, part] @ w[part] for part in parts])
    label_depth, at_top, mean_u, square_u, weight = to_numpy(total)
    r = rows.depth.shape[1]
    label, mean, square = np.zeros((3, 1, r)), np.zeros((2, 1, r)), np.zeros((2, 1, r))
    label[DEPTH, 0, 0] = label_depth
    if r > 1:
        label[DEPTH, 0, 1] = -label_depth
    mean[0, 0, 0], square[0, 0, -1] = mean_u, at_top
    square[0, 0, 0] += square_u - at_top
    mean[1], square[1] = weight, weight
    return Totals(float(weight), label, np.zeros_like(label), np.zeros(r, dtype=bool), mean, square, ties=1)
