"""The Hessian of a working set: covariances of atoms under the calibrated probabilities, summed over the rows of a block.

Measured from the top an atom drops by ``U`` below its start and by ``v`` from there on (a scale), or by 1 below its start (a
bias). With ``P`` the probability below a start, ``V`` and ``Q`` the sums of ``p v`` and ``p v^2`` from it on, and atom a
starting no later than b, the mean product of their drops is

    scale, scale   U (U P_a + V_a) + Q_b - U V_b           bias, scale   U P_a
    scale, bias      (U P_a + V_a)       -   V_b           bias, bias      P_a

Nothing cancels where one class has nearly all the probability, and the few sums of a row are kept in double precision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Array, array_namespace, like, to_numpy, to_numpy_together
from ..column_sums import sums_from, sums_up_to
from ..core.ties import tie_bounds
from .block import Block
from .point import SCALE, Point


def hessian_of(block: Block, point: Point, p: Array, tail: list[Array] | None) -> np.ndarray:
    """Covariance (a, a) of the working set's atoms, from probabilities times weights ``p`` (n, r) and the tail's moments."""
    xp = array_namespace(block.weight)
    starts = point.columns[0]
    height = xp.astype(block.rows.height[:, None], xp.float64)
    drops = _drops(height, *_sums_at(block, p, starts, tail))
    return _covariance_of_drops(block, point, *drops) - block.engine.within_ties(block, point, p)


def hessian_of_columns(
    block: Block, point: Point, p: Array, mass: Array, depth: Array, square: Array
) -> np.ndarray:
    """The same from sums over columns (n, G), among which are those that begin where atoms do."""
    assert point.begins is not None
    xp = array_namespace(mass)
    starts = point.columns[0]
    where = np.searchsorted(point.begins, starts)
    height = xp.astype(block.rows.height[:, None], xp.float64)
    below = sums_up_to(mass) - mass
    upwards = [sums_from(x) for x in (depth, square)]
    drops = _drops(height, *(x[:, where] for x in (below, *upwards)))
    return _covariance_of_drops(block, point, *drops) - block.engine.within_ties(block, point, p)


def _covariance_of_drops(block: Block, point: Point, mean: Array, later: Array) -> np.ndarray:
    """The same as if no ranks were tied, from the mean drops at each start and what a later start takes off, (n, 2 D) each."""
    psi, xp = block.factors, array_namespace(block.weight)
    column = point.columns[2]
    height = xp.astype(block.rows.height[:, None], xp.float64)
    mean, later = mean[:, column], later[:, column]
    factor = xp.ones_like(height)
    if psi is not None:
        factor = xp.astype(psi[:, point.factor], xp.float64)
        mean, later = mean * factor, later * factor
    share = mean / xp.astype(block.weight[:, None], xp.float64)
    products = [mean.T @ factor, (height * mean).T @ factor, factor.T @ later, mean.T @ share]
    return covariance(point, *to_numpy_together(products))


def _sums_at(
    block: Block, p: Array, starts: np.ndarray, tail: list[Array] | None
) -> tuple[Array, Array, Array]:
    """``P`` below each start, ``V`` and ``Q`` from it on, (n, D) each."""
    pieces = block.engine.piece_moments(p, block.rows.depth, starts)
    if tail is not None:
        for piece, t in zip(pieces, tail, strict=True):
            piece[:, 0] += t
    mass, depth, square = pieces
    return sums_up_to(mass) - mass, sums_from(depth), sums_from(square)


def _drops(height: Array, below: Array, depth: Array, square: Array) -> tuple[Array, Array]:
    """Mean drop of a scale and of a bias at each start, and what a later start takes off the products, (n, 2 D) each."""
    xp = array_namespace(height)
    later = xp.concat([square - height * depth, -depth], axis=1)
    return xp.concat([height * below + depth, below], axis=1), later


def covariance(
    point: Point, to_bias: np.ndarray, to_scale: np.ndarray, from_scale: np.ndarray, squares: np.ndarray
) -> np.ndarray:
    """From the parts of the mean products with a bias and with a scale, and the products of the means."""
    is_scale = point.kind == SCALE
    product = np.where(is_scale, to_scale, to_bias) + np.where(is_scale[:, None], from_scale, 0.0)
    # Row a holds the product with b where b starts no earlier than a; the rest follows by symmetry.
    covariance: np.ndarray = (
        np.where(point.start[:, None] <= point.start[None, :], product, product.T) - squares
    )
    return covariance


def few(n_tied: int, n_rows: int) -> bool:
    """Whether so few rows have ties at a start that they do not matter for a step."""
    return 20 * n_tied < n_rows


def within_ties(block: Block, point: Point, p: Array) -> np.ndarray | float:
    """What the products above count too much: covariance of atoms inside groups of tied ranks.

    Tied ranks share one value, so an atom that starts inside a group of L counts there as its mean: h = (ranks of the group
    from its start on) / L. Two atoms in one group of probability P have product ``P h_a h_b``, not ``P min(h_a, h_b)``.
    """
    rows = block.rows
    xp = array_namespace(p)
    starts, at, _ = point.columns
    inner = starts[1:] if rows.tied is None else starts[1:][rows.tied[starts[1:]]]
    if not len(inner):
        return 0.0
    index = xp.nonzero(xp.any(rows.depth[:, inner] == rows.depth[:, inner - 1], axis=1))[0]
    total: np.ndarray | float = 0.0
    if few(index.shape[0], block.n_rows):
        return total
    chunk = max(1, 2**24 // len(at) ** 2)
    block = replace(block, rows=rows.in_use())
    for begin in range(0, index.shape[0], chunk):
        total = total + _ties_of_rows(
            block[index[begin : begin + chunk]], point, p[index[begin : begin + chunk]], starts, at
        )
    return total


def _ties_of_rows(block: Block, point: Point, p: Array, starts: np.ndarray, at: np.ndarray) -> np.ndarray:
    rows = block.rows
    xp = array_namespace(p)
    first, last = (x[:, starts] for x in tie_bounds(rows.depth))
    size = xp.astype(last - first + 1, p.dtype)
    if rows.tail is not None:
        lowest = rows.depth[:, starts] == rows.height[:, None]
        size = size + xp.astype(lowest, p.dtype) * xp.astype(rows.tail.ties, p.dtype)[:, None]
    rank = like(starts, p)
    share = (xp.astype(last, p.dtype) - rank + 1) / size
    inside = xp.astype(first, p.dtype) < rank
    u = rows.height[:, None] - rows.depth[:, starts]
    mass = p[:, starts] * size
    at_atoms = [x[:, at] for x in (first, share, inside, u, mass)]
    first, share, inside, u, mass = at_atoms
    factor = xp.where(like((point.kind == SCALE).astype(float), p) > 0, u, xp.ones_like(u))
    if block.factors is not None:
        factor = factor * block.factors[:, point.factor]
    factor = factor * xp.astype(inside, p.dtype)
    same = xp.astype(first[:, :, None] == first[:, None, :], p.dtype)
    one, other = share[:, :, None], share[:, None, :]
    excess = mass[:, :, None] * xp.minimum(one, other) * (1.0 - xp.maximum(one, other))
    return to_numpy(xp.sum(same * excess * factor[:, :, None] * factor[:, None, :], axis=0)).astype(
        np.float64
    )
