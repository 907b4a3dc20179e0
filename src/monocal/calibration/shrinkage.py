"""Choose the strength of shrinkage by held-out likelihood: the strongest that is not clearly worse than the best.

    loss_i = mean over folds of the held-out NLL at strength i
    choose the largest i with  loss_i - loss_best <= its standard error

The difference is taken fold by fold, so what all strengths share cancels. Folds are dealt by the content of a row, not by its
place: neither the order of the rows nor how they are cut into blocks matters, and equal rows stay together, so that a weight of
2 is two rows here as well. The label does not count: where rows repeat, a fit without one label of a row has learnt the contrary
of the truth, and every strength but the strongest would look bad. Where different rows are few, the deal is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import to_numpy
from ..kernel.block import Block
from ..objective.cone import RankCone
from ..rows.gathered import Gathered
from ..solver import minimize

FOLDS = 5
# Rows are dealt into folds again until so many have been held out, but at most so often.
_HELD_OUT, _DEALS = 1000, 4
# Ranks that tell one row from another, counted from the top.
_RANKS = 64


def _keys_of_block(block: Block) -> Gathered[np.ndarray]:
    """A number for each row, made of its content without its label."""
    rows = block.rows
    parts = [rows.depth[:, -_RANKS:], rows.height[:, None]]
    return Gathered(
        (row_keys(np.concatenate([to_numpy(part).astype(np.float64) for part in parts], axis=1).T),)
    )


def row_keys(values: np.ndarray) -> np.ndarray:
    """A number for each of n rows, made of what is looked at, (values, n)."""
    factors = np.random.default_rng(0).integers(1, 2**63, size=_RANKS + 2, dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    keys = np.zeros(values.shape[1], dtype=np.uint64)
    for bits, factor in zip((values + 0.0).view(np.uint64), factors, strict=False):  # no -0.0
        keys = _mixed(keys ^ (bits * factor))
    return keys


def _mixed(x: np.ndarray) -> np.ndarray:
    """Every bit depends on every bit (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def deal(keys: np.ndarray, folds: int, number: int) -> np.ndarray:
    """The fold of each row, (n,); equal keys, equal folds."""
    _, which = np.unique(_mixed(keys + np.uint64(number + 1)), return_inverse=True)
    return which % folds


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
