"""What large single-precision rows in memory tell about each atom (`objective.information`), by the loop of `information_loops`.

    drop_i = sum_j p_j v_j + sum_{j < i} p_j (U - v_j)          mean drop of a scale that begins at rank i
    variance_i = sum_{j >= i} p_j v_j^2 + U^2 below_i - drop_i^2

All that is summed is positive; the difference is taken of two such sums. Sums over rows of ``p v^2`` are taken at each rank, and
over the ranks once for all rows.
"""

from __future__ import annotations

import numpy as np

from .compiled import first_turn
from .run import Run, added


def information_of_run(run: Run, scale: float) -> tuple[float, np.ndarray, np.ndarray]:
    """`Engine.information_of_run`; scales of factors but the first begin at the lowest rank."""
    from .information_loops import information_of_blocks

    block, ends, rows = run.block, run.ends, run.block.rows
    psi = np.ones((1, 1), dtype=np.float32) if block.factors is None else np.ascontiguousarray(block.factors)
    (count, r), k = (len(ends), rows.depth.shape[1]), psi.shape[1]
    leading = np.float32(-scale)
    lesser = np.float32(-scale - float(leading))
    scales, squares, biases = np.empty((count, r)), np.empty((count, r)), np.empty((count, k, r))
    lowest, errors = np.empty((count, k)), np.empty((count, k))
    out = scales, squares, biases, lowest, errors
    args = rows.depth, rows.height, block.weight, psi, leading, lesser, ends, *out, first_turn()
    run.threads.share(lambda: information_of_blocks(*args), count)
    variances = np.zeros((2, k, r))
    variances[0, :, 0] = added(lowest)
    variances[0, 0] = np.cumsum(added(squares)[::-1])[::-1] + added(scales)
    variances[1] = added(biases)
    return run.weight(), np.maximum(variances, 0.0), added(errors)
