"""What a map that keeps the order leaves wrong beyond chance, judged on the rows it was fitted on.

Of the rows with class ``j`` on top:

    gap       |mean confidence - accuracy|: a scale cannot separate rows whose logits the first stage has made equal
    order     the class ranked second is the label more often than the top, among the least confident rows. A map that keeps
              the order gives the top at least as much in every row, so the two can never be right on average.

Of all rows:

    rate      |mean probability - frequency| of a class: a map that treats all classes alike cannot move it

Where there are few rows for each coefficient (k coefficients that fit noise cost k / 2n nats), of rows held out in five folds:

    NLL       mean NLL after fits on the other folds, against that of the logits as they were

Unequal weights count as fewer rows of weight 1, ``(sum w)^2 / sum w^2``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc, expit, log_softmax, ndtri
from sklearn.base import clone

from ..errors import CalibrationWarning, in_part_of_a_fit, part_of_a_fit, warn
from ..inputs.reader import ArraySource, Reader
from .calibrated_rows import CalibratedRows, squared
from .folds import splits_of

# The least confident rows that are looked at: so large a share of each class.
SHARES = (0.125, 0.25, 0.5, 1.0)
# How often a fit that is right may be called off, by each of the two; a gap that does not matter; and how much more often than
# the top the second class must be right to matter, among the rows where one of them is.
_LEVEL, _SMALL_GAP, _CLEAR = 0.02, 0.03, 0.6
# The same of the rate of a class; of two classes it is one number, which decides about a threshold. And about how many rows of
# many classes are looked at.
_RATE_LEVEL, _SMALL_RATE_OF_TWO, _SMALL_RATE = 0.01, 0.01, 0.03
JUDGED_ROWS = 2500
# Rows (effective) for which held-out folds say something; a loss that does not matter, in nats; and the standard errors by which
# a gain is clear.
_LEAST_ROWS, _FOLDS, _SMALL_LOSS, _CLEAR_ERRORS = 50.0, 5, 0.01, 2.0


@dataclass(frozen=True)
class LowRows:
    """The least confident rows of each class, for each of `SHARES`: sums by share and class, (4, m), and who is among them."""

    rows: np.ndarray
    total: np.ndarray  # of weights
    first: np.ndarray  # of those that are right
    second: np.ndarray  # of those whose second class is the label
    squares: np.ndarray  # of what rows add to a variance
    highest: np.ndarray  # confidence
    members: np.ndarray  # (4, n) bool

    def tails(self, share: float) -> np.ndarray:
        """`second_by_chance`, (4, m)."""
        scale = self.total / np.maximum(self.squares, 1e-300)
        return second_by_chance(self.first, self.second, scale, share)


def second_by_chance(first: np.ndarray, second: np.ndarray, scale: np.ndarray, share: float) -> np.ndarray:
    """Probability that the second class is right as often, if it is in ``share`` of the rows where one of the two is.

    ``P(Binomial(n, share) >= k)`` for ``k`` of ``n``: the sums of weights of both times ``scale``, rows of weight 1 in a unit.
    """
    k, n = scale * second, scale * (first + second)
    return np.where(k > 0, betainc(np.maximum(k, 1e-300), n - k + 1.0, share), 1.0)


def least_confident(
    top: np.ndarray,
    confidence: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    weight: np.ndarray,
    square: np.ndarray,
    m: int,
) -> LowRows:
    """The least confident rows of every class; ``first`` and ``second`` (n,) say which one is the label, ``square`` (n,) what a
    row adds to a variance."""
    order = np.lexsort((confidence, top))
    count = np.bincount(top, minlength=m)
    place = np.empty(len(top), dtype=np.intp)
    place[order] = np.arange(len(top)) - np.repeat(np.cumsum(count) - count, count)
    parts = []
    for share in SHARES:
        low = place < share * count[top]
        w, highest = np.where(low, weight, 0.0), np.zeros(m)
        np.maximum.at(highest, top[low], confidence[low])
        sums = (np.bincount(top, x, m) for x in (low, w, w * first, w * second, low * square))
        parts.append((*sums, highest, low))
    return LowRows(*(np.stack(part) for part in zip(*parts, strict=True)))


def off_class(rows: CalibratedRows, odds: np.ndarray, n_classes: int) -> str | None:
    """What is wrong with the worst predicted class, by the final log-odds (n,) of the tops."""
    g, w, p, right = rows.top_class, rows.weight, expit(odds), rows.label_place == 0
    count, total, correct, sure = (
        np.bincount(g, x, n_classes) for x in (np.ones(len(g)), w, w * right, w * p)
    )
    present = total > 0
    n_present = int(present.sum())
    squares = squared(w)
    variance = np.maximum(*(np.bincount(g, squares * x, n_classes) for x in (p * (1 - p), (right - p) ** 2)))
    total = np.where(present, total, 1.0)
    gap = abs(correct - sure) / total
    beyond = gap + ndtri(_LEVEL / (2 * n_present)) * np.sqrt(variance) / total
    j = int(np.argmax(np.where(present, beyond, -1.0)))
    if beyond[j] > _SMALL_GAP:
        return (
            f"the {int(count[j])} rows that predict class {j} are right {100 * correct[j] / total[j]:.1f} % of the time at a "
            f"mean confidence of {100 * sure[j] / total[j]:.1f} %. {_remedy(n_classes)}"
        )
    lows = least_confident(g, p, right, rows.label_place == 1, w, squares, n_classes)
    tails = lows.tails(_CLEAR)
    worst = np.unravel_index(np.argmin(tails), tails.shape)
    if tails[worst] > _LEVEL / (len(SHARES) * n_present):
        return None
    first, second = (100 * x[worst] / lows.total[worst] for x in (lows.first, lows.second))
    return (
        f"the {int(lows.rows[worst])} least confident rows that predict class {worst[1]} are right {first:.1f} % of the time, "
        f"and the class ranked second {second:.1f} %. {_remedy(n_classes)}"
    )


def off_rate(p: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> str | None:
    """The class whose rate is farthest off, by probabilities (n, m), where one is; of two classes it is class 1."""
    m, total, square = p.shape[1], float(weight.sum()), squared(weight)
    frequency, mean = np.bincount(labels, weight, m) / total, weight @ p / total
    # Sum of the squares of (hit - p): the label's own entry is (1 - p)^2, not p^2.
    own = p[np.arange(len(labels)), labels]
    seen = square @ p**2 + np.bincount(labels, square * (1.0 - 2.0 * own), m)
    noise = np.sqrt(np.maximum(square @ (p * (1.0 - p)), seen)) / total
    gap = abs(mean - frequency)
    if m == 2:
        level, small, j = _RATE_LEVEL, _SMALL_RATE_OF_TWO, 1
    else:
        level, small = _RATE_LEVEL / m, _SMALL_RATE
        gap *= (frequency > 0) * (np.count_nonzero(frequency) > 1)
        j = int(np.argmax(np.where(gap > -ndtri(level / 2) * noise, gap, 0.0)))
    if gap[j] <= max(small, -ndtri(level / 2) * noise[j]):
        return None
    alone = m == 2 and not 1e-12 < frequency[j] < 1 - 1e-12
    advice = "One class alone says nothing of the other: give rows of both." if alone else _remedy(m)
    return (
        f"class {j} is the label of {100 * frequency[j]:.1f} % of the rows, at a mean probability of {100 * mean[j]:.1f} %. "
        f"{advice}"
    )


def _remedy(n_classes: int) -> str:
    method = "BinaryMCCT" if n_classes == 2 else "StructuredMCCT"
    return f"It cannot put that right; try {method}, which may change the order."


def warn_if_off(calibrator: object, off: str | None) -> None:
    """Warn of what a calibrator leaves wrong, unless another one uses it as a part."""
    if off is not None and not in_part_of_a_fit():
        warn(f"{type(calibrator).__name__}: {off}", CalibrationWarning)


def warn_if_worse_than_nothing(calibrator: Any, source: ArraySource) -> None:
    """Warn where a cone of atoms makes the NLL of rows that it was not fitted on worse than it was.

    Nothing is held out where so few coefficients can do no harm, or where the first stage is better on its own rows by more than
    they would be by chance (Akaike's criterion).
    """
    rows = source.checked.on_host()
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight.astype(np.float64)
    effective = weight.sum() ** 2 / squared(weight).sum()
    optimism = np.count_nonzero(calibrator.solution_.coefficients) / effective
    if effective < _LEAST_ROWS or optimism <= 2.0 * _SMALL_LOSS:
        return
    before = _nll(rows.logits, rows.labels)
    gains = before - _nll(calibrator.rank_map_.apply(rows.logits, "logits"), rows.labels)
    gain = weight @ gains / weight.sum()
    error = np.sqrt(squared(weight) @ (gains - gain) ** 2) / weight.sum()
    if gain - optimism > _CLEAR_ERRORS * error:
        return
    after = np.empty(len(rows))
    reader = Reader(context=source.reader.context)
    with part_of_a_fit(), warnings.catch_warnings(action="ignore"):
        for fitted, judged in splits_of(rows.logits, weight, _FOLDS):
            other = clone(calibrator)
            other._learn(ArraySource(reader, rows[fitted]))
            held_out = rows[judged]
            context = () if held_out.context is None else (held_out.context,)
            after[judged] = _nll(other._calibrate(held_out.logits, *context), held_out.labels)
    nll, nll_after = weight @ before / weight.sum(), weight @ after / weight.sum()
    if nll_after > nll + _SMALL_LOSS:
        warn(
            f"{type(calibrator).__name__}: on rows held out in {_FOLDS} folds the NLL is {nll_after:.3f} after calibration and "
            f"{nll:.3f} before: its coefficients are too many for so few rows. Give more rows, or shrink more.",
            CalibrationWarning,
        )


def _nll(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    with np.errstate(under="ignore"):
        nll: np.ndarray = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels]
    return nll
