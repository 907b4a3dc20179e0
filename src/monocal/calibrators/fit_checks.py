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

from ..arrays import to_numpy
from ..errors import CalibrationWarning, in_part_of_a_fit, part_of_a_fit, warn
from ..inputs.context import NUMBER
from ..inputs.reader import ArraySource
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
class Finding:
    """What is wrong after a fit, in words, and what may help."""

    sentence: str
    advice: str

    @classmethod
    def of(cls, sentence: str, n_classes: int) -> Finding:
        remedy = "BinaryMCCT" if n_classes == 2 else "StructuredMCCT"
        return cls(sentence, f"It cannot put that right; try {remedy}, which may change the order.")

    def __str__(self) -> str:
        return self.sentence


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


def what_is_off(rows: CalibratedRows, odds: np.ndarray, n_classes: int, *, by_class: bool) -> Finding | None:
    """What is wrong after a fit, by the final log-odds (n,) of the tops; without ``by_class``, of the rate alone."""
    p, right = expit(odds), rows.label_place == 0
    off = _off_class(rows, p, right, n_classes) if by_class else None
    if off is not None or n_classes != 2:
        return off
    one = rows.top_class == 1
    p = np.where(one, p, 1.0 - p)
    return off_rate(np.stack([1.0 - p, p], axis=1), (right == one).astype(np.intp), rows.weight)


def off_rate(p: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> Finding | None:
    """The class whose rate is farthest off, by probabilities (n, m), where one is; of two classes it is class 1.

    Of more than two classes, some may never be the label of few rows: they are left out, and so is one class alone.
    """
    m, total, square = p.shape[1], float(weight.sum()), squared(weight)
    frequency, mean = np.bincount(labels, weight, m) / total, weight @ p / total
    # Sum of the squares of (hit - p): the label's own entry is (1 - p)^2, not p^2.
    own = p[np.arange(len(labels)), labels]
    seen = square @ p**2 + np.bincount(labels, square * (1.0 - 2.0 * own), m)
    noise = np.sqrt(np.maximum(square @ (p * (1.0 - p)), seen)) / total
    few = m == 2
    level, small = (_RATE_LEVEL, _SMALL_RATE_OF_TWO) if few else (_RATE_LEVEL / m, _SMALL_RATE)
    gap = abs(mean - frequency)
    if not few:
        gap *= (frequency > 0) * (np.count_nonzero(frequency) > 1)
    j = 1 if few else int(np.argmax(np.where(gap > -ndtri(level / 2) * noise, gap, 0.0)))
    if gap[j] <= max(small, -ndtri(level / 2) * noise[j]):
        return None
    sentence = f"class {j} is the label of {100 * frequency[j]:.1f} % of the rows, at a mean probability of {100 * mean[j]:.1f} %"
    if few and not 1e-12 < frequency[j] < 1 - 1e-12:
        return Finding(sentence, "One class alone says nothing of the other: give rows of both.")
    return Finding.of(sentence, m)


def warn_if_off(calibrator: object, off: Finding | None) -> None:
    """Warn of what a calibrator leaves wrong, unless another one uses it as a part."""
    if off is not None and not in_part_of_a_fit():
        warn(f"{type(calibrator).__name__}: {off}. {off.advice}", CalibrationWarning)


def _off_class(rows: CalibratedRows, p: np.ndarray, right: np.ndarray, n_classes: int) -> Finding | None:
    """The worst predicted class, by the confidences (n,) and which of them are right."""
    g, w = rows.top_class, rows.weight
    count, total, correct, sure = (
        np.bincount(g, x, n_classes) for x in (np.ones(len(g)), w, w * right, w * p)
    )
    present = total > 0
    n_present = int(present.sum())
    excess = right - p
    variance = np.maximum(*(np.bincount(g, squared(w) * x, n_classes) for x in (p * (1 - p), excess**2)))
    total = np.where(present, total, 1.0)
    gap = abs(correct - sure) / total
    beyond = gap + ndtri(_LEVEL / (2 * n_present)) * np.sqrt(variance) / total
    j = int(np.argmax(np.where(present, beyond, -1.0)))
    if beyond[j] > _SMALL_GAP:
        rate, mean = 100 * correct[j] / total[j], 100 * sure[j] / total[j]
        where = f"the {int(count[j])} rows that predict class {j} are right {rate:.1f} % of the time"
        return Finding.of(f"{where} at a mean confidence of {mean:.1f} %", n_classes)
    lows = least_confident(g, p, right, rows.label_place == 1, w, squared(w), n_classes)
    tails = lows.tails(_CLEAR)
    worst = np.unravel_index(np.argmin(tails), tails.shape)
    if tails[worst] > _LEVEL / (len(SHARES) * n_present):
        return None
    n_rows, j = int(lows.rows[worst]), int(worst[1])
    first, second = (100 * x[worst] / lows.total[worst] for x in (lows.first, lows.second))
    sentence = (
        f"the {n_rows} least confident rows that predict class {j} are right {first:.1f} % of the time, and the class ranked "
        f"second {second:.1f} %"
    )
    return Finding.of(sentence, n_classes)


def warn_if_worse_than_nothing(calibrator: Any, source: ArraySource) -> None:
    """Warn where a cone of atoms makes the NLL of rows that it was not fitted on worse than it was.

    Nothing is held out where so few coefficients can do no harm, or where the first stage is better on its own rows by more than
    they would be by chance (Akaike's criterion).
    """
    rows = source.checked
    weight = np.ones(source.shape[0]) if rows.weight is None else to_numpy(rows.weight).astype(np.float64)
    effective = weight.sum() ** 2 / squared(weight).sum()
    optimism = np.count_nonzero(calibrator.solution_.coefficients) / effective
    if effective < _LEAST_ROWS or optimism <= 2.0 * _SMALL_LOSS:
        return
    logits, labels = to_numpy(rows.logits), to_numpy(rows.labels)
    before = _nll(logits, labels)
    gain, error = _mean(before - _nll(to_numpy(calibrator.rank_map_.apply(logits, "logits")), labels), weight)
    if gain - optimism > _CLEAR_ERRORS * error:
        return
    after = np.empty(len(rows))
    columns = _as_columns(source)
    with part_of_a_fit(), warnings.catch_warnings(action="ignore"):
        for fitted, judged in splits_of(logits, weight, _FOLDS):
            here, there = (_of_rows(columns, part) for part in (fitted, judged))
            other = clone(calibrator).set_params(input="logits", class_axis=-1, ignore_index=None)
            other.fit(logits[fitted], labels[fitted], weight[fitted], **here)
            after[judged] = _nll(other.transform(logits[judged], **there), labels[judged])
    gain, _ = _mean(before - after, weight)
    if gain < -_SMALL_LOSS:
        nll, _ = _mean(before, weight)
        warn(
            f"{type(calibrator).__name__}: on rows held out in {_FOLDS} folds the NLL is {nll - gain:.3f} after calibration and "
            f"{nll:.3f} before: its coefficients are too many for so few rows. Give more rows, or shrink more.",
            CalibrationWarning,
        )


def _nll(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    with np.errstate(under="ignore"):
        nll: np.ndarray = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels]
    return nll


def _mean(x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The weighted mean, and its standard error."""
    total = weight.sum()
    mean = float(weight @ x / total)
    return mean, float(np.sqrt(squared(weight) @ (x - mean) ** 2) / total)


def _as_columns(source: ArraySource) -> dict[str, np.ndarray]:
    """The context of checked rows as columns that a fit takes; empty without any."""
    codes, reader = source.checked.context, source.reader.context
    if codes is None or reader is None:
        return {}
    numbers = [column.kind == NUMBER for column in reader.columns]
    return {
        str(i): codes[:, i] if number else codes[:, i].astype(np.intp) for i, number in enumerate(numbers)
    }


def _of_rows(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, Any]:
    return {"context": {name: x[rows] for name, x in columns.items()}} if columns else {}
