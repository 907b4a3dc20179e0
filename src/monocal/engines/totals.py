"""What is known of the rows before any coefficient: label sums, and the sizes of all atoms.

label     sum_n weight_n psi_k (v, U, 1) of the label, at the rank that holds it    (the labels enter the loss linearly)
moments   sum_n weight_n psi_k u_(i) and its square, at each rank
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from scipy.sparse import csc_array

from ..arrays import Array, array_namespace, count_true, to_numpy
from ..core.ranked import Ranked
from .block import Block

DEPTH, HEIGHT, MASS = 0, 1, 2


@dataclass(frozen=True)
class Totals:
    """What is known of the rows before any coefficient. They add."""

    weight: float
    label: np.ndarray  # (3, K, r): where the label's shares of psi v, psi U and psi begin (positive) and end
    # (3, K, r): the same as if every label were the top class, in blocks where some rows share it
    top: np.ndarray
    ties: int  # number of ranks in the largest group of ties
    tied: np.ndarray  # (r,) bool: whether a rank equals the one below it in some row
    mean: np.ndarray  # (2, K, r): sums of psi u and psi (all rows) at each rank
    square: np.ndarray  # (2, K, r): sums of their squares

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.weight + other.weight,
            self.label + other.label,
            self.top + other.top,
            max(self.ties, other.ties),
            self.tied | other.tied,
            self.mean + other.mean,
            self.square + other.square,
        )


def label_totals(block: Block, psi: np.ndarray, r: int) -> np.ndarray:
    """Each label in equal shares on the ranks that hold it: what begins and ends at each rank.

    Shares of tied classes outside the ranks in use go to the lowest rank, whose parameters those classes have.
    """
    weight = to_numpy(block.weight).astype(np.float64)
    rank, held, size = (to_numpy(x) for x in (block.label_rank, block.label_held, block.label_size))
    share = weight / size
    values = np.stack([to_numpy(block.label_depth) * share, to_numpy(block.rows.height) * share, share])

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


def label_sums(block: Block, begins: np.ndarray | None = None) -> np.ndarray:
    """The label sums (3, K, r) alone, by column where it is said where these begin, in a row with the weight of all behind."""
    weight = to_numpy(block.weight).astype(np.float64, copy=False)
    psi = np.ones((len(weight), 1)) if block.factors is None else to_numpy(block.factors)
    psi = psi.astype(np.float64, copy=False)
    r = block.rows.depth.shape[1]
    if begins is None:
        label = label_totals(block, psi, r)
    else:
        from .columns import label_totals_of_columns

        label = label_totals_of_columns(block, psi, begins, r)
    return np.append(label, weight.sum())


def with_top_labels(block: Block) -> Block:
    """The same rows, each with its top class as its label."""
    rows, xp = block.rows, array_namespace(block.weight)
    held = count_true(rows.depth == 0)
    size = held
    if rows.tail is not None:
        size = held + xp.where(rows.height == 0, rows.tail.ties, 0 * held)
    rank = rows.depth.shape[1] - held
    return replace(block, label_depth=0 * rows.height, label_rank=rank, label_held=held, label_size=size)


def scale_totals(
    block: Block, known: np.ndarray | None = None, parts: Sequence[slice] = (slice(None),)
) -> Totals:
    """The totals where the plain scale is the only atom: sums over all ranks, which stand at the lowest, and at the top.

    The sums of ``u`` and ``u^2`` of each row (2, n) may be ``known``. Rows are added up part by part.
    """
    rows, w, xp = block.rows, block.weight, array_namespace(block.weight)
    of_rows = [block.label_depth, rows.height**2, *(_heights(rows) if known is None else known)]
    sums = xp.stack([xp.astype(x, xp.float64, copy=False) for x in (*of_rows, xp.ones_like(w))])
    w = xp.astype(w, xp.float64, copy=False)
    total = reduce(add, [sums[:, part] @ w[part] for part in parts])
    label_depth, at_top, first, second, weight = to_numpy(total)
    r = rows.depth.shape[1]
    label, mean, square = np.zeros((3, 1, r)), np.zeros((2, 1, r)), np.zeros((2, 1, r))
    label[DEPTH, 0, 0] = label_depth
    if r > 1:
        label[DEPTH, 0, 1] = -label_depth
    mean[0, 0, 0], square[0, 0, -1] = first, at_top
    square[0, 0, 0] += second - at_top
    mean[1], square[1] = weight, weight
    return Totals(float(weight), label, np.zeros_like(label), 1, np.zeros(r, dtype=bool), mean, square)


def _heights(rows: Ranked) -> tuple[Array, Array]:
    """Sums of ``u`` and ``u^2`` over all ranks of each row."""
    xp = array_namespace(rows.depth)
    u = rows.height[:, None] - rows.depth
    if rows.valid is not None:
        u = xp.clip(u, min=0.0)
    return xp.sum(u, axis=1), xp.sum(u * u, axis=1)
