r"""What chance alone does to a calibrated predictor in groups of rows, and which groups do more than that.

If the confidences are honest, the rows of a group in a narrow slice of confidence are wrong about ``Binomial(n, mean (1 - c))``
times: a number that varies no less than the true one (Hoeffding), and hardly more, as the slice is narrow. Drawing it for every
slice of every group gives what a calibrated predictor shows in that group, at a cost that does not grow with the rows: the floor
of its ECE, and the p-value of

    ECE + |mean confidence - accuracy|,

which is large where errors have one direction and where they have not. With weights ``n`` is ``(sum w)^2 / sum w^2``.

Of ``G`` p-values those up to the largest ``p_(k) <= a k / G`` are called off: among them the expected share of groups that are
calibrated is at most ``a`` (Benjamini and Hochberg).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .outcomes import Floats, Integers, Outcomes, bin_totals
from .within import cell_of

# A probability of 1 is often a rounded one: one error in a million rows does not refute it.
_LEAST_ERROR = 1e-6
_SLICES = 4  # of a bin
_ENOUGH = 20  # draws that reach what was seen, after which a p-value is known well enough
_BATCH = 1 << 21  # numbers drawn at a time
_MOST = 1 << 23  # numbers drawn in all: for the floor, and as many again for small p-values
_LEAST_SURPLUS, _SURPLUS = 5, 100  # how much smaller a p-value can get than the false discovery rate asks for


@dataclass(frozen=True)
class CalibratedGroups:
    """Errors of a calibrated predictor in every slice of every group: ``scale * Binomial(size, share)``, less ``mean``.

    Arrays of shape (G, K, S) for S slices of each of the K bins; ``weight`` (G,) is that of the groups.
    """

    size: Integers
    share: Floats
    scale: Floats
    mean: Floats
    weight: Floats

    @classmethod
    def of(cls, rows: Outcomes, group: Integers, n_groups: int, n_bins: int) -> CalibratedGroups:
        shape = (n_groups, n_bins, _SLICES)
        cell = cell_of(rows, group, n_bins * _SLICES)
        weight, square, mean = (
            bin_totals(cell, values, n_groups * n_bins * _SLICES).reshape(shape)
            for values in (rows.weight, rows.weight**2, rows.weight * (1 - rows.confidence))
        )
        some = weight > 0
        # Rounded down, which makes the spread wider; and equal weights must not lose a row to rounding.
        size = np.floor(np.divide(weight**2, square, out=np.zeros(shape), where=some) * (1 + 1e-9))
        share = np.clip(np.divide(mean, weight, out=np.zeros(shape), where=some), _LEAST_ERROR, 1)
        scale = np.divide(weight, size, out=np.zeros(shape), where=some)
        return cls(size.astype(np.int64), share, scale, mean, weight.sum(axis=(1, 2)))

    def draws(
        self, groups: Integers, n_draws: int, generator: np.random.Generator
    ) -> Iterator[tuple[Integers, Floats, Floats]]:
        """Some of ``groups`` at a time, with draws (groups, n_draws) of their ECE and of ``|confidence - accuracy|``."""
        filled = (self.size[groups] > 0).sum(axis=(1, 2))
        part = np.cumsum(filled * n_draws) // _BATCH
        for these in np.split(groups, np.flatnonzero(np.diff(part)) + 1):
            cell = np.nonzero(self.size[these])
            slices = (these[cell[0]], *cell[1:])
            size, share, scale, mean = (
                x[slices][:, None] for x in (self.size, self.share, self.scale, self.mean)
            )
            excess = scale * generator.binomial(size, share, (len(size), n_draws)) - mean
            starts = np.flatnonzero(np.diff(cell[0] * self.size.shape[1] + cell[1], prepend=-1))
            bins, owner = np.add.reduceat(excess, starts, axis=0), cell[0][starts]
            firsts, weight = np.flatnonzero(np.diff(owner, prepend=-1)), self.weight[these][:, None]
            yield (
                these,
                np.add.reduceat(np.abs(bins), firsts, axis=0) / weight,
                np.abs(np.add.reduceat(bins, firsts, axis=0)) / weight,
            )


@dataclass(frozen=True)
class Chance:
    """Median ECE by chance of every group (G,), draws of the mean ECE by weight, and p-values (G,) of what was seen."""

    floor: Floats
    mean_draws: Floats
    p_value: Floats


def what_chance_does(
    calibrated: CalibratedGroups, ece: Floats, gap: Floats, rate: float, generator: np.random.Generator
) -> Chance:
    """Draw until it is known how often chance alone makes ``ece + |gap|`` of a group as large as was seen.

    A group is drawn until 20 draws reach it, or often enough for its p-value to count among so many at this false discovery
    ``rate``: where few are that far off, each can be drawn often.

    References
    ----------
    Besag & Clifford, Sequential Monte Carlo p-values, Biometrika 78 (1991).
    Hoeffding, On the distribution of the number of successes in independent trials, Ann. Math. Stat. 27 (1956).
    """
    n_groups = len(ece)
    seen = (ece + np.abs(gap)) * (1 - 1e-9)  # sums of the same numbers round differently
    floor, p = np.empty(n_groups), np.empty(n_groups)
    above, done = np.zeros(n_groups, dtype=np.int64), np.zeros(n_groups, dtype=np.int64)

    def count(groups: Integers, values: Floats) -> None:
        total = above[groups, None] + np.cumsum(values >= seen[groups, None], axis=1)
        enough = total[:, -1] >= _ENOUGH
        known = groups[enough]
        p[known] = _ENOUGH / (done[known] + 1 + (total[enough] >= _ENOUGH).argmax(axis=1))
        above[groups] = total[:, -1]
        done[groups] += values.shape[1]

    filled = int((calibrated.size > 0).sum())
    at_first = int(np.clip(_MOST // filled, 60, 500))
    mean_draws = np.zeros(at_first)
    share = calibrated.weight / calibrated.weight.sum()
    for groups, errors, gaps in calibrated.draws(np.arange(n_groups), at_first, generator):
        floor[groups] = np.median(errors, axis=1)
        mean_draws += share[groups] @ errors
        count(groups, errors + gaps)
    left = np.flatnonzero(above < _ENOUGH)
    while len(left):
        # Most groups are done soon, and where few are left each can be drawn more often.
        needed = n_groups / (rate * len(left))
        filled = int((calibrated.size[left] > 0).sum())
        wanted = int(min(_SURPLUS * needed, max(_MOST / filled, _LEAST_SURPLUS * needed)))
        some = min(wanted - int(done[left[0]]), int(done[left[0]]), _BATCH)
        if some <= 0:
            break
        for groups, errors, gaps in calibrated.draws(left, some, generator):
            count(groups, errors + gaps)
        left = left[above[left] < _ENOUGH]
    rare = above < _ENOUGH
    p[rare] = (above[rare] + 1) / (done[rare] + 1)
    return Chance(floor, mean_draws, p)


def adjusted(p_values: Floats) -> Floats:
    """Adjusted p-values: those of the groups called off at rate ``a`` are at most ``a``.

    References
    ----------
    Benjamini & Hochberg, Controlling the false discovery rate, JRSS B 57 (1995).
    """
    n, order = len(p_values), np.argsort(p_values, kind="stable")
    raised = p_values[order] * n / np.arange(1, n + 1)
    out = np.empty(n)
    out[order] = np.minimum(1.0, np.minimum.accumulate(raised[::-1])[::-1])
    return out
