"""Choose the strength of shrinkage by held-out likelihood: the strongest that is not clearly worse than the best.

    loss_i = mean over folds of the held-out NLL at strength i
    choose the largest i with  loss_i - loss_best <= its standard error

The difference is taken fold by fold, so what all strengths share cancels. Where different rows are few, the deal is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import to_numpy
from ..engines.block import Block
from ..inputs.gathered import Gathered
from ..objective.cone import RankCone
from ..solver import minimize
from .folds import DEPTHS, deal, fold_keys

FOLDS = 5
# Rows are dealt into folds again until so many have been held out, but at most so often.
_HELD_OUT, _DEALS = 1000, 4


def _keys_of_block(block: Block) -> Gathered[np.ndarray]:
    depth = to_numpy(block.rows.depth[:, -1 - DEPTHS : -1])  # descending, the top is last
    return Gathered((fold_keys(depth[:, ::-1]),))


def choose_shrinkage(
    problem: RankCone, path: Sequence[float], default: float, *, tol: float, max_iter: int
) -> float:
    """A strength of the path, which goes from strong to weak: each fit is the next one's start."""
    rows = problem.rows
    keys = np.concatenate(rows.sum(_keys_of_block).parts)
    different = len(np.unique(keys))
    folds = min(FOLDS, different)
    if folds < 2:
        return default
    deals = int(np.clip(_HELD_OUT // different, 1, _DEALS))
    nothing = np.zeros(0, dtype=np.intp)
    loss = np.zeros((deals * folds, len(path)))
    share = np.zeros(deals * folds)
    for i in range(deals * folds):
        held_out = deal(keys, folds, i // folds) == i % folds
        train = problem.on_rows(rows.part(~held_out), prior_rows=problem.prior_rows)
        test = problem.on_rows(rows.part(held_out))
        start = None
        for j, strength in enumerate(path):
            shrunk = train.with_strength(strength, tol)
            start = minimize(shrunk, tol=max(tol, 1e-5), max_iter=max_iter, start=start).coefficients
            loss[i, j] = test.evaluate(start, nothing).value
        share[i] = test.totals.weight
    share /= share.sum()
    excess = loss - loss[:, [int(np.argmin(share @ loss))]]
    mean = share @ excess
    # Only the folds of one deal count: other deals hold out the same rows.
    error = np.sqrt(share @ (excess - mean) ** 2 / folds)
    return float(path[int(np.argmax(mean <= error))])
