"""What the rows can tell about each atom: its Fisher information at temperature scaling.

    variance_a = 1/N sum_n weight_n Var_p[atom_a],       p = softmax(scale * z).

Its root is the size of an atom as the likelihood sees it: a bias on the top rank of a thousand classes moves one logit in a
thousand but nearly all of the probability. Under temperature scaling the gradient of atom ``a`` is noise with standard
deviation ``sqrt(variance_a / N)``, so a penalty in proportion to the root holds all atoms back alike, as long as the noise is
nearly normal. It is not where errors are rare: among confident rows a few wrong labels, or none, decide. Hence the second
number, how many errors temperature scaling expects among the rows that a factor concerns:

    errors_k = sum_n weight_n psi_k^2 (1 - p_top).

Measured from the top, an atom drops by ``v_i`` (scale; by ``U`` below its start) or by 1 (bias, below its start). Squares of
small drops are summed, so nothing cancels where one class has nearly all the probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import array_namespace, device_of, exp_, is_torch, on_host, to_numpy
from ..column_sums import by_columns, sums_along, sums_from, sums_up_to
from ..engines.block import Block
from ..engines.columns import column_moments
from ..engines.point import Point, in_parts, weighted
from ..engines.run import Run
from ..engines.runs import IN_RUNS, InRuns
from ..engines.tail import tail_moments
from ..inputs.interface import Rows
from ..parallel import parallel_sum

# Elements that are worked on at a time.
_PART = 2**18


@dataclass(frozen=True)
class Information:
    """Sums over rows. They add."""

    weight: float
    variances: np.ndarray  # (2, K, r), by kind, factor and start
    errors: np.ndarray  # (K,)

    def __add__(self, other: Information) -> Information:
        return Information(
            self.weight + other.weight, self.variances + other.variances, self.errors + other.errors
        )

    def unit(self, n_rows: float, pseudo_errors: float) -> np.ndarray:
        """Root of the variance (2, K, r), larger where fewer than ``pseudo_errors`` are expected among ``n_rows`` rows.

        ``sqrt(variance (1 + pseudo_errors / errors))``: the noise if that many errors more were to be expected.
        """
        errors = np.maximum(self.errors * (n_rows / self.weight), 1e-12)
        return np.sqrt(self.variances / self.weight * (1.0 + pseudo_errors / errors)[:, None])


def information(
    rows: Rows, scale: float, begins: np.ndarray | None = None, whole_scales: bool = False
) -> Information:
    """Information on every atom where all logits are multiplied by ``scale``; of those that begin a column (`kernel.columns`).

    With ``whole_scales``, scales of factors but the first begin at the lowest rank, and nothing is said of others.
    """
    if begins is not None:
        return rows.sum(_column_information, scale, begins, rows.n_ranks)
    return rows.sum(_block_information, scale, whole_scales)


def _column_information(block: Block, scale: float, begins: np.ndarray, n_ranks: int) -> Information:
    n_factors = 1 if block.factors is None else block.factors.shape[1]
    point = Point.of_scale((n_factors, len(begins)), scale, begins=begins, n_ranks=n_ranks)
    with np.errstate(under="ignore", over="ignore"):
        block, p, _, tail = block.engine.probabilities(block, point)
        weight = to_numpy(block.weight).astype(np.float64)[:, None]
        moments = [to_numpy(x) / weight for x in column_moments(block, p, tail, begins)]
        height = to_numpy(block.rows.height).astype(np.float64)[:, None]
        below = np.cumsum(moments[0], axis=1) - moments[0]
        depth, square = (np.cumsum(x[:, ::-1], axis=1)[:, ::-1] for x in moments[1:])
        first, second = depth + height * below, square + height**2 * below
        psi = np.ones_like(weight) if block.factors is None else to_numpy(block.factors).astype(np.float64)
        left = (psi * psi * weight).T
        variances = [np.maximum(second - first**2, 0.0), np.maximum(below - below**2, 0.0)]
    return Information(float(weight.sum()), np.stack([left @ x for x in variances]), left @ below[:, -1])


def _block_information(block: Block, scale: float, whole_scales: bool) -> Information:
    """On the host in parts, shared among threads: it takes a dozen arrays, and those of a whole block would not fit the cache."""
    found = block.engine.information(block, scale, whole_scales)
    if found is not None:
        return Information(*found)
    n, r = block.rows.depth.shape
    width = r if block.factors is None else max(r, block.factors.shape[1])
    size = max(1, _PART // width) if on_host(block.weight) else n
    if size >= n:
        return _part_information(block, scale, whole_scales)
    parts = [slice(i, i + size) for i in range(0, n, size)]
    return parallel_sum(
        lambda part: _part_information(block[part], scale, whole_scales), parts, serial=is_torch(block.weight)
    )


def _run_information(run: Run, scale: float, whole_scales: bool) -> Information:
    found = run.block.engine.information_of_run(run, scale, whole_scales)
    if found is not None:
        return Information(*found)
    return run.sum(lambda block: _block_information(block, scale, whole_scales))


IN_RUNS[_block_information] = InRuns(lambda scale, whole_scales: whole_scales, _run_information)


def _part_information(block: Block, scale: float, whole_scales: bool) -> Information:
    rows, height = block.rows, block.rows.height[:, None]
    v = by_columns(rows.depth)
    xp = array_namespace(v)
    psi = xp.ones_like(height) if block.factors is None else block.factors
    with np.errstate(under="ignore", over="ignore"):
        f = weighted(v, in_parts(xp.asarray([[-scale]], dtype=xp.float64, **device_of(v)), v.dtype))
        tail = [0 * height[:, 0]] * 3
        if rows.tail is not None:
            tail = tail_moments(block, Point.of_scale((psi.shape[1], v.shape[1]), scale), f, None)
        p = exp_(f)
        if rows.valid is not None:
            p *= xp.astype(rows.valid, p.dtype)
        total = sums_along(p) + tail[0]
        p /= total[:, None]
        tail = [(t / total)[:, None] for t in tail]
        below = sums_up_to(p)  # probability below each start
        below -= p
        below += tail[0]
        p *= v
        first = sums_from(p)
        first += height * below
        p *= v
        # At the lowest start nothing lies below, and the tail drops by its own depths.
        first[:, :1] += tail[1] - height * tail[0]
        left = (psi * psi * block.weight[:, None]).T
        part = left[:1] if whole_scales else left
        # Means of squares add up over the rows before they are added up over the ranks; squares of means do not.
        square = sums_from(part @ p) + (part * height.T**2) @ below
        square[:, :1] += part @ (tail[2] - height**2 * tail[0])
        first *= first
        scales = square - part @ first
        if whole_scales:
            others = xp.zeros((left.shape[0] - 1, v.shape[1]), dtype=v.dtype, **device_of(v))
            others[:, :1] = left[1:] @ (sums_along(p)[:, None] + tail[2] - first[:, :1])
            scales = xp.concat([scales, others])
        errors = left @ below[:, -1]
        variances = [scales, left @ (below - below * below)]
        return Information(
            float(xp.sum(block.weight, dtype=xp.float64)),
            np.stack([to_numpy(xp.clip(x, min=0.0)).astype(np.float64) for x in variances]),
            to_numpy(errors).astype(np.float64),
        )
