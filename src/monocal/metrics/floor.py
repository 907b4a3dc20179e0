"""The ECE that a perfectly calibrated predictor shows on this many samples.

If confidences are honest, row i is correct with probability ``c_i`` whatever its class, so drawing
``Bernoulli(c_i)`` and binning gives the distribution of ECE under "perfectly calibrated": its median is the
floor no calibrator can be expected to go below, and the share of draws at or above the observed ECE is the
p-value of that hypothesis. The test is one-sided, and so is the interval shown with it: from 0 to the smallest value that
is still within chance, so that the observed ECE lies outside exactly where it is called more than chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.formats import without_names
from ..inputs.layout import Layout
from ..inputs.validation import check_choice, check_count, check_fraction
from .outcomes import Floats, Integers, Outcomes, bin_index, equal_width_edges, read_scores
from .within import GROUP_BINS

_ROUNDING = 1e-12  # of one minus the level
_AT_A_TIME = 1 << 18  # numbers drawn at a time


@dataclass(frozen=True, repr=False)
class Floor:
    """Distribution of the ECE of a calibrated predictor.

    Attributes
    ----------
    median : float
        Of the draws.
    low, high : float
        What is within chance: from 0 to the largest ECE that ``more_than_chance`` does not call so.
    observed, p_value : float or None
        ECE against the labels and share of draws that reach it, when labels were given.
    draws : (n_draws,) array

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> floor = mc.ece_floor(data.truth, n_draws=100)
    >>> len(floor.draws), floor.observed is None
    (100, True)
    >>> round(floor.median, 3)
    0.027
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

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array, optional
        True classes; with them the observed ECE and its p-value are given.
    n_draws : int
        Draws of outcomes.
    metric : {"ece", "top_label_ece", "positive_ece"}
        Which error: of the top class, within each predicted class, or of P(class 1) with two classes.
    n_bins : int, optional
        Its bins: 15, or 5 for each predicted class.
    level : float
        Share of the draws within chance, from 0 to ``high``; one minus it is the level of the test.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.
    seed : int, optional
        None draws anew each time.

    Returns
    -------
    Floor

    Notes
    -----
    A small p-value says "not calibrated"; a large one says that this many samples cannot tell. ``p_value`` is
    ``(1 + #{draws >= observed}) / (1 + n_draws)``, so it is never zero.

    References
    ----------
    Bröcker & Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting 22 (2007).
    Vaicenavicius et al., Evaluating model calibration in classification, AISTATS 2019.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> floor = mc.ece_floor(data.truth, data.labels)  # the probabilities that the labels were drawn from
    >>> bool(floor.low <= floor.observed <= floor.high)
    True
    >>> floor.p_value > 0.05
    True
    """
    n_draws, level = check_count(n_draws, "n_draws"), check_fraction(level, "level")
    layout = Layout(class_axis, ignore_index)
    labels_or_any = labels
    if labels is None:
        probs = without_names(probs)
        labels_or_any = np.zeros(read_scores(probs, "probs", layout)[0].lead, dtype=np.int64)
    check_choice(metric, "metric", ("ece", "top_label_ece", "positive_ece"))
    by_class = metric == "top_label_ece"
    n_bins = (GROUP_BINS if by_class else 15) if n_bins is None else n_bins
    rows = Outcomes.of(probs, labels_or_any, sample_weight, n_bins=n_bins, layout=layout)
    confidence, correct = rows.confidence, rows.correct
    cell = rows.top_bin + n_bins * rows.predicted if by_class else rows.top_bin
    if metric == "positive_ece":
        if rows.n_classes != 2:
            raise InputError(f"metric: positive_ece is of two classes, and probs has {rows.n_classes}.")
        confidence, correct = rows.of_class(1), (rows.labels == 1).astype(np.float64)
        cell = bin_index(confidence, equal_width_edges(n_bins))
    observed, draws = ece_by_chance(
        confidence, None if labels is None else correct, rows.weight, cell, n_draws, seed
    )
    p_value = None
    if observed is not None:
        p_value = float((1 + np.count_nonzero(draws >= observed)) / (1 + n_draws))
    high = most_by_chance(draws, level)
    return Floor(float(np.median(draws)), 0.0, high, observed, p_value, level, draws)


def most_by_chance(draws: Floats, level: float) -> float:
    """The largest value whose p-value ``(1 + #{draws >= value}) / (1 + #draws)`` exceeds ``1 - level``."""
    # So many ranks from the top have a p-value small enough; of very few draws none has.
    rejected = int((1 - level) * (len(draws) + 1) * (1 + _ROUNDING))
    return float(np.sort(draws)[-rejected]) if rejected else 1.0


def ece_by_chance(
    confidence: Floats, correct: Floats | None, weight: Floats, cell: Integers, n_draws: int, seed: int | None
) -> tuple[float | None, Floats]:
    """ECE of rows in cells (bins), if it is known which were right, and draws of what it is where confidences are honest."""
    order = np.argsort(cell, kind="stable")  # rows of a bin side by side, so that a bin sum is a slice sum
    confidence, weight = confidence[order], weight[order]
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    expected, total = np.add.reduceat(weight * confidence, starts), weight.sum()

    def ece_of(right: Any) -> Floats:
        found: Floats = (
            np.abs(np.add.reduceat(weight * right, starts, axis=-1) - expected).sum(axis=-1) / total
        )
        return found

    generator = np.random.default_rng(seed)
    step = max(1, _AT_A_TIME // len(weight))
    parts = [min(step, n_draws - done) for done in range(0, n_draws, step)]
    draws = np.concatenate([ece_of(generator.random((some, len(weight))) < confidence) for some in parts])
    return None if correct is None else float(ece_of(correct[order])), draws
