"""The map in compiled loops, for large single-precision arrays: the same numbers up to rounding, in a fraction of the time.

    jumps of a block of rows  ->  weights and biases of each row  ->  logits or probabilities         (`kernel.compiled`)

The rows of a block stay in the cache from one loop to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, keep_argmax, to_numpy
from ..engines import compiled
from ..parallel import parallel_map, row_slices, rows_of_size
from .pieces import Pieces
from .ranked_rows import rank
from .wanted import Wanted

# Logits of a block.
_BLOCK = 2**17


def suits(pieces: Pieces, logits: Array) -> bool:
    """Whether an array is large enough, and made, for the loops."""
    large = logits.shape[0] * logits.shape[1] >= compiled.LARGE
    return large and pieces.needs_ranks and compiled.suits(logits)


def calibrated(
    logits: np.ndarray, wanted: Wanted, otherwise: Callable[[np.ndarray, Wanted], Any]
) -> np.ndarray:
    """Probabilities (n, m), with the argmax of the logits, or calibrated logits; of rows too deep for the loops ``otherwise``."""
    out = np.empty_like(logits)

    def one(block: slice) -> None:
        _calibrate(logits[block], wanted.of(block), otherwise, out[block])

    parallel_map(one, row_slices(logits, rows_of_size(_BLOCK, logits.shape[1])))
    return out


def _calibrate(
    z: np.ndarray, wanted: Wanted, otherwise: Callable[[np.ndarray, Wanted], Any], out: np.ndarray
) -> None:
    pieces, normalise, adjust, context = wanted
    mixture = pieces.mixture
    from_statistics = mixture is not None and len(mixture.which) > 0
    jumps = compiled.find_jumps(z, pieces.starts[1:], pieces.top_k, from_statistics)
    if mixture is None:
        with np.errstate(over="ignore", invalid="ignore"):  # rows too deep
            w, drop = pieces.cumulated(None, jumps.height[:, None], z)
    else:
        factors = pieces.in_use.factors
        psi = None if from_statistics or factors is None else to_numpy(factors(rank(pieces, z)))
        w, drop = compiled.mix(mixture, jumps.height, jumps.statistics, psi)
    stage = () if adjust is None else (adjust.in_loops(context),)
    lost = compiled.calibrate(z, jumps, w, drop, out, normalise, *stage)
    far = np.flatnonzero(~jumps.done)
    if len(far):
        out[far] = otherwise(z[far], wanted.of(far))
    near = np.flatnonzero(lost & jumps.done)
    if len(near):
        out[near] = keep_argmax(out[near], z[near])
