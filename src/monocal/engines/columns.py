"""Ranks in columns: where atoms begin at few ranks, sums are wanted only between these.

    column g: ranks begins_g .. begins_(g+1) - 1,         sum p_i,  sum p_i v_i,  sum p_i v_i^2    over its ranks, of each row

A vocabulary has a hundred thousand ranks and the conditional family forty factors, but the sums of a few hundred columns are all
that value, gradient and Hessian need. Arrays that elsewhere have an entry for each rank have one for each column here.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, to_numpy
from .block import Block
from .curvature import hessian_of_columns
from .interface import Sums
from .point import Point
from .totals import Totals, with_top_labels


def column_sums(block: Block, point: Point) -> Sums:
    """`Engine.sums` by column; scales of all factors but the first begin at the lowest rank."""
    assert point.begins is not None
    with np.errstate(under="ignore"):
        block, p, logs, tail = block.engine.probabilities(block, point)
        mass, depth, square = column_moments(block, p, tail, point.begins)
        xp = array_namespace(mass)
        psi = xp.ones_like(mass[:, :1]) if block.factors is None else xp.astype(block.factors, mass.dtype)
        if point.own is not None:
            psi = psi[:, point.own]
        height = xp.astype(block.rows.height, mass.dtype)
        first = xp.stack([xp.sum(depth, axis=0), height @ mass])
        by_rank = xp.concat([first, psi.T @ mass])
        whole = psi[:, 1:].T @ xp.sum(depth, axis=1)
        hessian = np.zeros((0, 0))
        if len(point.start):
            hessian = hessian_of_columns(block, point, p, mass, depth, square)
        value = xp.sum(xp.astype(block.weight, mass.dtype) * xp.astype(logs, mass.dtype))
    return Sums(float(value), to_numpy(by_rank), to_numpy(whole), hessian)


def column_moments(block: Block, p: Array, tail: list[Array] | None, begins: np.ndarray) -> list[Array]:
    """``sum p``, ``sum p v``, ``sum p v^2`` over each column, (n, G) each in double precision; a tail is in the lowest."""
    moments = block.engine.piece_moments(p, block.rows.depth, begins)
    for moment, t in zip(moments, tail or (), strict=False):
        moment[:, 0] = moment[:, 0] + t
    return moments


def column_totals(block: Block, begins: np.ndarray) -> Totals:
    """`Engine.totals` by column."""
    rows, r = block.rows, block.rows.depth.shape[1]
    weight = to_numpy(block.weight).astype(np.float64)
    psi = np.ones((len(weight), 1)) if block.factors is None else to_numpy(block.factors).astype(np.float64)
    lengths = np.diff(np.append(begins, r))
    xp = array_namespace(rows.depth)
    held = xp.ones_like(rows.depth) if rows.valid is None else xp.astype(rows.valid, rows.depth.dtype)
    count, depth, square = (to_numpy(x) for x in block.engine.piece_moments(held, rows.depth, begins))
    height = to_numpy(rows.height).astype(np.float64)[:, None]
    # Of ``u = U - v``, and of its square.
    scales = [height * count - depth, np.maximum(height**2 * count - 2.0 * height * depth + square, 0.0)]
    lefts = [psi * weight[:, None], psi * psi * weight[:, None]]
    mean, psi_square = (
        np.stack([left.T @ scale, left.sum(axis=0)[:, None] * lengths])
        for left, scale in zip(lefts, scales, strict=True)
    )
    label = label_totals_of_columns(block, psi, begins, r)
    top = np.zeros_like(label)
    tied = np.zeros(r, dtype=bool) if rows.tied is None else rows.tied.astype(bool)
    if tied[-1]:
        top = label_totals_of_columns(with_top_labels(block), psi, begins, r)
    ties = block.engine.largest_tie(rows)
    return Totals(float(weight.sum()), label, top, ties, tied[begins], mean, psi_square)


def label_totals_of_columns(block: Block, psi: np.ndarray, begins: np.ndarray, r: int) -> np.ndarray:
    """`totals.label_totals` by column: what begins and ends at each."""
    weight = to_numpy(block.weight).astype(np.float64)
    rank, held, size = (to_numpy(x) for x in (block.label_rank, block.label_held, block.label_size))
    ends = np.append(begins, r)
    inside = np.clip(ends, rank[:, None], (rank + held)[:, None])
    on = np.diff(inside, axis=1).astype(np.float64)  # ranks of the label in each column
    on[:, 0] += size - held  # classes outside the ranks in use have the lowest one's parameters
    values = (to_numpy(block.label_depth), to_numpy(block.rows.height), np.ones(len(rank)))
    shares = np.stack([(psi * (weight * value / size)[:, None]).T @ on for value in values])
    return np.diff(shares, axis=2, prepend=0.0)
