"""What chance alone does to a calibrated predictor in groups of rows, and which groups do more than that.

If the confidences are calibrated, the rows of a group in a narrow slice of confidence are wrong about ``Binomial(n, mean (1 -
c))`` times: a number that varies no less than the true one (Hoeffding, Ann. Math. Stat. 27, 1956), and hardly more, as the
slice is narrow. Drawing it for every slice of every group gives what a calibrated predictor shows in that group, at a cost
that does not grow with the rows: the floor of its ECE, and the p-value of

    ECE + |mean confidence - accuracy|,

which is large whether errors have one direction or not. With weights ``n`` is ``(sum w)^2 / sum w^2``.

The floor of all rows is the same from single rows: row i is right with probability ``c_i``. Its test is one-sided, and so is the
interval: from 0 to the smallest value within chance, so that the observed ECE lies outside exactly where it is more than chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..inputs.formats import as_array
from ..inputs.layout import Layout
from ..inputs.validation import check_choice, check_count, check_fraction
from .outcomes import Floats, Integers, Outcomes, bin_totals, read_scores
from .positive import check_two_classes
from .row_sums import GROUP_BINS, cell_of

_ROUNDING = 1e-12  # of one minus the level
_AT_A_TIME = 1 << 18  # numbers drawn at a time
# A probability of 1 is often a rounded one: one error in a million rows does not refute it.
_LEAST_ERROR = 1e-6
_SLICES = 4  # of a bin
_ENOUGH = 20  # draws that reach what was observed, after which a p-value is exact enough
_BATCH = 1 << 21  # numbers drawn at a time
_MOST = 1 << 23  # numbers drawn in all: for the floor, and as many again for small p-values
_LEAST_SURPLUS, _SURPLUS = 5, 100  # how much smaller a p-value can get than the false discovery rate asks for


class CalibratedGroups:
    """Errors of a calibrated predictor in slices of bins of groups, (G, K, S): ``scale * Binomial(size, share) - mean``."""

    def __init__(self, rows: Outcomes, group: Integers, n_groups: int, n_bins: int) -> None:
        shape = (n_groups, n_bins, _SLICES)
        cell = cell_of(rows, group, n_bins * _SLICES)
        weight, square, self.mean = (
            bin_totals(cell, values, n_groups * n_bins * _SLICES).reshape(shape)
            for values in (rows.weight, rows.weight**2, rows.weight * (1 - rows.confidence))
        )
        with np.errstate(invalid="ignore"):  # empty slices
            # Rounded down, which makes the spread wider; and equal weights must not lose a row to rounding.
            size = np.floor(np.nan_to_num(weight**2 / square) * (1 + 1e-9))
            self.share = np.clip(np.nan_to_num(self.mean / weight), _LEAST_ERROR, 1)
            self.scale = np.nan_to_num(weight / size)
        self.size, self.weight = size.astype(np.int64), weight.sum(axis=(1, 2))
        self.filled = (self.size > 0).sum(axis=(1, 2))  # slices of each group that have rows

    def draws(
        self, groups: Integers, n_draws: int, generator: np.random.Generator
    ) -> Iterator[tuple[Integers, Floats, Floats]]:
        """A few of ``groups`` at a time, with draws (groups, n_draws) of their ECE and of ``|confidence - accuracy|``."""
        part = np.cumsum(self.filled[groups] * n_draws) // _BATCH
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
            ece, gap = (np.add.reduceat(x, firsts, axis=0) / weight for x in (np.abs(bins), bins))
            yield these, ece, np.abs(gap)


def what_chance_does(
    calibrated: CalibratedGroups, ece: Floats, gap: Floats, rate: float, generator: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Median ECE by chance of every group (G,), draws of the mean ECE by weight, and p-values (G,) of ``ece + |gap|``.

    A group is drawn until 20 draws reach the observed value (Besag & Clifford, Biometrika 78, 1991), or often enough for its
    p-value to count at this false discovery ``rate``: where few groups are that far off, each can be drawn often.
    """
    n_groups = len(ece)
    observed = (ece + np.abs(gap)) * (1 - 1e-9)  # sums of the same numbers round differently
    floor, p = np.empty((2, n_groups))
    above, done = np.zeros((2, n_groups), dtype=np.int64)

    def count(groups: Integers, values: Floats) -> None:
        total = above[groups, None] + np.cumsum(values >= observed[groups, None], axis=1)
        enough = total[:, -1] >= _ENOUGH
        settled = groups[enough]
        p[settled] = _ENOUGH / (done[settled] + 1 + (total[enough] >= _ENOUGH).argmax(axis=1))
        above[groups] = total[:, -1]
        done[groups] += values.shape[1]

    left = np.arange(n_groups)
    n_draws = int(np.clip(_MOST // calibrated.filled[left].sum(), 60, 500))
    mean_draws = np.zeros(n_draws)
    share = calibrated.weight / calibrated.weight.sum()
    for groups, errors, gaps in calibrated.draws(left, n_draws, generator):
        floor[groups] = np.median(errors, axis=1)
        mean_draws += share[groups] @ errors
        count(groups, errors + gaps)
    while len(left := np.flatnonzero(above < _ENOUGH)):
        # Most groups are done soon, and where few are left each can be drawn more often.
        needed = n_groups / (rate * len(left))
        most = int(
            min(_SURPLUS * needed, max(_MOST / calibrated.filled[left].sum(), _LEAST_SURPLUS * needed))
        )
        n_draws = min(most - int(done[left[0]]), int(done[left[0]]), _BATCH)
        if n_draws <= 0:
            break
        for groups, errors, gaps in calibrated.draws(left, n_draws, generator):
            count(groups, errors + gaps)
    p[left] = (above[left] + 1) / (done[left] + 1)
    return floor, mean_draws, p


@dataclass(frozen=True, repr=False)
class Floor:
    """Distribution of the ECE of a calibrated predictor.

    Attributes
    ----------
    median : float
    low, high : float
        What is within chance: from 0 to the largest ECE that ``more_than_chance`` does not call so.
    observed, p_value : float or None
        ECE against the labels and share of draws that reach it, where there are labels.
    level : float
    draws : (n_draws,) array

    Examples
    --------
    >>> import monocal as mc
    >>> floor = mc.ece_floor(mc.data.synthetic(1000, 5).truth, n_draws=100)
    >>> len(floor.draws), floor.observed is None, round(floor.median, 3)
    (100, True, 0.027)
    """

    median: float
    low: float
    high: float
    observed: float | None
    p_value: float | None
    level: float
    draws: Floats = field(compare=False)

    @property
    def more_than_chance(self) -> bool:
        """Whether the p-value is at most ``1 - level``, which is where the observed ECE exceeds ``high``."""
        return self.p_value is not None and self.p_value <= (1 - self.level) * (1 + _ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, without the draws."""
        return {key: value for key, value in self.__dict__.items() if key != "draws"}

    def __repr__(self) -> str:
        text = f"ECE floor {self.median:.5f} [{self.low:.5f}, {self.high:.5f}] ({self.level:.0%})"
        if self.observed is None:
            return text
        return f"{text}; observed {self.observed:.5f}, p = {self.p_value:.3g}"


def ece_floor(
    probs: Any,
    labels: Any = None,
    n_draws: int = 1000,
    *,
    metric: str = "ece",
    n_bins: int | None = None,
    level: float = 0.95,
    sample_weight: Any = None,
    seed: int | None = 0,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> Floor:
    """ECE that these probabilities would show if they were perfectly calibrated.

    A small p-value says "not calibrated"; a large one says that this many samples cannot tell.

    Parameters
    ----------
    probs, labels, level, sample_weight, seed, class_axis, ignore_index
        As in `evaluate`; with labels the observed ECE and its p-value ``(1 + #{draws >= observed}) / (1 + n_draws)`` are
        computed.
    n_draws : int
        Draws of outcomes.
    metric : {"ece", "top_label_ece", "positive_ece"}
        Which error: of the top class, within each predicted class, or of P(class 1) with two classes.
    n_bins : int, optional
        Its bins: 15, or 5 for each predicted class.

    References
    ----------
    Bröcker & Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting 22 (2007).
    Vaicenavicius et al., Evaluating model calibration in classification, AISTATS 2019.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> floor = mc.ece_floor(data.truth, data.labels)  # the probabilities that the labels were drawn from
    >>> bool(floor.low <= floor.observed <= floor.high), floor.p_value > 0.05
    (True, True)
    """
    n_draws, level = check_count(n_draws, "n_draws"), check_fraction(level, "level")
    check_choice(metric, "metric", ("ece", "top_label_ece", "positive_ece"))
    layout, without_labels = Layout(class_axis, ignore_index), labels is None
    if without_labels:
        probs = as_array(probs)
        labels = np.zeros(read_scores(probs, "probs", layout)[0].lead, dtype=np.int64)
    by_class = metric == "top_label_ece"
    n_bins = (GROUP_BINS if by_class else 15) if n_bins is None else n_bins
    rows = Outcomes.of(probs, labels, sample_weight, n_bins=n_bins, layout=layout)
    if metric == "positive_ece":
        check_two_classes(rows.n_classes, "metric")
        rows = rows.positive
    cell = rows.top_bin + n_bins * rows.predicted if by_class else rows.top_bin
    ece, draws = ece_by_chance(rows.confidence, rows.correct, rows.weight, cell, n_draws, seed)
    p_value = float(1 + np.count_nonzero(draws >= ece)) / (1 + n_draws)
    median, high = float(np.median(draws)), most_by_chance(draws, level)
    if without_labels:
        return Floor(median, 0.0, high, None, None, level, draws)
    return Floor(median, 0.0, high, ece, p_value, level, draws)


def most_by_chance(draws: Floats, level: float) -> float:
    """The largest value whose p-value ``(1 + #{draws >= value}) / (1 + #draws)`` exceeds ``1 - level``."""
    # So many ranks from the top have a p-value small enough; of very few draws none has.
    rejected = int((1 - level) * (len(draws) + 1) * (1 + _ROUNDING))
    return float(np.sort(draws)[-rejected]) if rejected else 1.0


def ece_by_chance(
    confidence: Floats,
    correct: Floats,
    weight: Floats,
    cell: Integers,
    n_draws: int,
    seed: int | np.random.Generator | None,
) -> tuple[float, Floats]:
    """ECE of rows in cells (bins), and draws of what it is where confidences are calibrated."""
    order = np.argsort(cell, kind="stable")  # rows of a bin side by side, so that a bin sum is a slice sum
    confidence, weight = confidence[order], weight[order]
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    expected, total = np.add.reduceat(weight * confidence, starts), weight.sum()

    def ece_of(right: Any) -> Any:
        return np.abs(np.add.reduceat(weight * right, starts, axis=-1) - expected).sum(axis=-1) / total

    generator = np.random.default_rng(seed)
    step = max(1, _AT_A_TIME // len(weight))
    sizes = [min(step, n_draws - done) for done in range(0, n_draws, step)]
    draws = np.concatenate([ece_of(generator.random((k, len(weight))) < confidence) for k in sizes])
    return float(ece_of(correct[order])), draws
