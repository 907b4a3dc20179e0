"""An upper bound of how far a point lies above the infimum: a dual bound, from the sums of one evaluation.

For any probabilities ``p'`` of the classes in every row, ``log sum_i exp f_i >= sum_i p'_i f_i + entropy(p')``. So with
targets ``t`` and drops below the top class ``d_a >= 0`` of atom ``a``,

    F(c') >= entropy(p') + g' . c',      g'_a = E_t[d_a] - E_p'[d_a] + penalty_a       for all c',

a lower bound of ``F`` wherever ``g' >= 0``: then ``g' . c' >= g' . lower``. At a solution the predicted ``p`` itself is
nearly enough (``g'`` is the gradient). What is still negative is made up for by moving probability to the top class, which lowers
all drops:

    everywhere, a share e:     F(c) - inf F  <=  (1 - e) g . (c - lower) + e (F(c) - (E_t[d] + penalty) . lower)
    at rank i, a share e_i:    F(c) - inf F  <=  g' . (c - lower) + m (1 + sum_i e_i exp(b_i - b_top)),    m = sum_i e_i E[p_i]

(the second because the top class then has an entropy term ``-(p + m) log(p + m)``, ``log(1 + m/p) <= m/p``, and ``p_i`` is at
most ``p_top exp(b_i - b_top)``, with ``b`` the biases that all rows share). The second is tight where what must be moved lies on
ranks with little probability. Both hold whether or not there is a minimum, up to the rounding of the sums.
"""

from __future__ import annotations

import numpy as np

from .engine import BIAS, DEPTH, HEIGHT, MASS, SCALE

_ROUNDING = 1e-9


def excess_everywhere(
    objective: float, gradient: np.ndarray, worth: np.ndarray, lower: np.ndarray, size: np.ndarray
) -> float:
    """The first bound, from numbers of every atom (a,).

    ``gradient`` is with the penalty, ``worth`` the mean drop of the targets below the top plus the penalty (never negative), and
    ``size`` the coefficients less their lower bounds.
    """
    need = np.maximum(-gradient, 0.0)
    with np.errstate(invalid="ignore"):
        share = float(np.where(need > 0, need / (need + worth), 0.0).max(initial=0.0))
    return (1.0 - share) * float(gradient @ size) + share * (objective - float(worth @ lower))


def excess_by_rank(
    gradient: np.ndarray,
    size: np.ndarray,
    where: np.ndarray,
    predicted: np.ndarray,
    tied: np.ndarray,
    ties: int,
    n_classes: int,
    lengths: np.ndarray | int = 1,
) -> float:
    """The second bound.

    ``where`` (3, a): kind, factor and start of each atom. ``predicted`` (3, K, r): mean psi p v, psi p U, psi p at each rank; of
    scales of factors but the first (which are at most 1) the total alone, at the lowest rank. ``tied`` (r,): whether a rank
    equals the one below it in some row; ``ties``: ranks in the largest group of these. ``lengths`` (r,): how many ranks each
    entry stands for, where entries are columns.
    """
    # Atoms that ask for nothing and have nothing to lose play no part.
    asking = np.flatnonzero((gradient < 0) | (size > 0))
    gradient, size, (kind, factor, start) = gradient[asking], size[asking], where[:, asking]
    r = predicted.shape[2]
    rank = np.arange(r)
    # Ranks from `head` on may share the top; nothing is moved from there. An atom that begins among them is not at its
    # full height where they do, but at no less than its part of them.
    begins = np.maximum.accumulate(np.where(tied, 0, rank))
    last = np.append(~tied[1:], True)
    ends = np.minimum.accumulate(np.where(last, rank, r - 1)[::-1])[::-1]
    # The lowest and the highest rank that each may be tied with.
    lowest, highest = np.maximum(begins, rank - ties + 1), np.minimum(ends, rank + ties - 1)
    head = lowest[-1]
    need = np.maximum(-gradient, 0.0) * np.where(start > head, ties, 1)
    unsure = (kind == SCALE) & (factor > 0)
    exact = _moved(predicted, (rank < head).astype(np.float64), kind, factor, start)
    beyond = float(predicted[DEPTH, 0, head:].sum())
    available = np.where(unsure, predicted[DEPTH, factor, 0] - beyond, exact)
    wanting = need > 0
    if (need[wanting] > available[wanting] * (1.0 + _ROUNDING)).any():
        return np.inf
    # An atom asks all ranks below its reach. So a rank gives the most that is asked of it or of any rank above.
    reach = np.where(kind == BIAS, np.minimum(start, head), head)[wanting]
    share = np.zeros(r + 1)
    np.maximum.at(share, reach, np.minimum(need[wanting] / available[wanting], 1.0))
    share = np.maximum.accumulate(share[::-1])[::-1][1:]
    # Tied classes give the same share, that of the lowest of them. They may lie as high as the highest.
    share = share[lowest]
    bias = np.bincount(start, np.where((kind == BIAS) & (factor == 0), size, 0.0), r).cumsum()
    below_top = np.exp(np.minimum(bias[highest] - bias[head], 0.0))
    more = _moved(predicted, share, kind, factor, start)
    at_most = np.minimum(predicted[DEPTH, 0] @ share, share[0] * predicted[DEPTH, factor, 0])
    more = np.where(unsure, at_most, more)
    moved = float(predicted[MASS, 0] @ share)
    lengths = np.broadcast_to(lengths, r)
    outside = n_classes - int(lengths.sum())
    of_classes = float((lengths * share) @ below_top) + outside * share[0] * below_top[0]
    return float((gradient + more) @ size + moved * (1.0 + of_classes))


def _moved(
    predicted: np.ndarray, share: np.ndarray, kind: np.ndarray, factor: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """How much the mean drop of each atom falls when every rank gives its share to the top, (a,)."""
    used, factor = np.unique(factor, return_inverse=True)
    shares = predicted[:, used] * share
    before = np.cumsum(shares[HEIGHT:], axis=2) - shares[HEIGHT:]
    after = np.cumsum(shares[DEPTH, :, ::-1], axis=1)[:, ::-1]
    scale = before[HEIGHT - 1, factor, start] + after[factor, start]
    return np.where(kind == SCALE, scale, before[MASS - 1, factor, start])
