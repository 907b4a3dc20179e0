"""What the rows can tell about each atom: its Fisher information at temperature scaling.

    information_a = 1/N sum_n weight_n Var_p[atom_a],       p = softmax(scale * z).

Its root is the size of an atom as the likelihood sees it: a bias on the top rank of a thousand classes moves one logit in a
thousand but nearly all of the probability. Under temperature scaling the gradient of atom ``a`` is noise with standard
deviation ``sqrt(information_a / N)``, so a penalty in proportion to the root holds all atoms back alike.

Measured from the top, an atom drops by ``v_i`` (scale; by ``U`` below its start) or by 1 (bias, below its start). Squares of
small drops are summed, so nothing cancels where one class has nearly all the probability.
"""

from __future__ import annotations

import numpy as np

from ..arrays import array_namespace, to_numpy
from .blocks import Block
from .kernel import Point, from_top, tail_moments
from .sources import Rows


def information(rows: Rows, scale: float) -> np.ndarray:
    """Information (2, K, r) by kind, factor and start, where all logits are multiplied by ``scale``."""
    total: np.ndarray = rows.sum(_block_information, scale)
    return total[:2] / total[2, 0, 0]


def _block_information(block: Block, scale: float) -> np.ndarray:
    """Sums of the two kinds (2, K, r), and of the weights in a third layer, so that blocks add up."""
    rows, v, height = block.rows, block.rows.depth, block.rows.height[:, None]
    xp = array_namespace(v)
    psi = xp.ones_like(height) if block.factors is None else block.factors
    k, r = psi.shape[1], v.shape[1]
    plain = np.zeros((k, r))
    plain[0] = scale
    none = np.zeros(0, dtype=np.intp)
    point = Point(plain, np.zeros((k, r)), none, none, none)
    with np.errstate(under="ignore", over="ignore"):
        f = from_top(block, point, v, slice(None))
        p = xp.exp(f)
        if rows.valid is not None:
            p *= xp.astype(rows.valid, p.dtype)
        tail = [0 * height[:, 0]] * 3 if rows.tail is None else tail_moments(block, point, f, None)
        total = xp.sum(p, axis=1) + tail[0]
        p = p / total[:, None]
        tail = [(t / total)[:, None] for t in tail]
        first, square = (
            xp.flip(xp.cumulative_sum(xp.flip(x, axis=1), axis=1), axis=1) for x in (p * v, p * v * v)
        )
        below = xp.cumulative_sum(p, axis=1) - p + tail[0]  # probability below each start
        first, square = first + height * below, square + height * (height * below)
        # At the lowest start nothing lies below, and the tail drops by its own depths.
        first[:, :1] += tail[1] - height * tail[0]
        square[:, :1] += tail[2] - height * (height * tail[0])
        scales = xp.clip(square - first**2, min=0.0)
        biases = xp.clip(below * (1.0 - below), min=0.0)
        left = (psi * psi * block.weight[:, None]).T
        out = np.empty((3, k, r))
        out[0], out[1] = to_numpy(left @ scales), to_numpy(left @ biases)
    out[2] = float(xp.sum(block.weight, dtype=xp.float64))
    return out
