"""Two predictors on the same rows: the mean of the row differences d, and how sure it is.

    mean(d) ± z sd(d) / sqrt(n),        rows that would settle it = n ((z + z_power) sd(d) / sqrt(n) / |mean(d)|)^2

What is hard for both cancels in d, so the interval is much narrower than those of the two means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

NEGLIGIBLE = 1e-4  # of a score: what four decimals do not show matters to nobody, however sure it is
_POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """Mean of paired row differences a - b, and its interval.

    Attributes
    ----------
    mean, low, high : float
        The ends are infinite where no interval can be given: of one row, or with a label of probability zero.
    n_rows : int
    level : float
    """

    mean: float
    low: float
    high: float
    n_rows: int = 0
    level: float = 0.95

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def rows_to_settle(self) -> float | None:
        """How many rows like these would decide a difference of this size, four times in five; None where it is decided."""
        width = self.high - self.mean
        if self.decided or self.mean == 0 or not np.isfinite([self.mean, width]).all():
            return None
        z = float(ndtri((1 + self.level) / 2))
        return float(self.n_rows * ((z + ndtri(_POWER)) / z * width / abs(self.mean)) ** 2)


def paired_difference(a: np.ndarray, b: np.ndarray, level: float) -> Difference:
    """Of values (n,) of the same rows; two infinite ones do not differ."""
    with np.errstate(invalid="ignore"):
        d = np.where(a == b, 0.0, np.subtract(a, b, dtype=np.float64))
        mean = float(d.mean())
    if len(d) < 2 or not np.isfinite(d).all():  # a label with probability zero: the sign is all there is
        return Difference(mean, -np.inf, np.inf, len(d), level)
    room = float(ndtri((1 + level) / 2) * d.std(ddof=1) / np.sqrt(len(d)))
    return Difference(mean, mean - room, mean + room, len(d), level)
