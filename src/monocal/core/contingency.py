"""Do two rows of counts come from the same frequencies? Pearson's chi-squared, exact where counts are small."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, random_table

_DRAWS = 9999
_ENOUGH = 100
_BATCH = 2**22  # entries of tables drawn at a time
# Tables with larger counts in a row are drawn as if there were only so many: scipy tabulates the factorials of all numbers up
# to their sum. So many rows, against a few, are as good as known frequencies.
_MOST = 2**22


def chi_squared(table: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Whether two rows of counts (2, m) come from the same frequencies: the statistic and its p-value.

    Where counts are small the p-value is drawn from tables with the same margins.
    """
    table = np.round(_no_more(table, 2**60)).astype(np.int64)
    table = table[:, table.any(axis=0)]
    if table.shape[1] < 2 or not table.sum(axis=1).all():
        return 0.0, 1.0
    expected = table.sum(axis=1, keepdims=True) * (table.sum(axis=0) / table.sum())
    statistic = float(((table - expected) ** 2 / expected).sum())
    if expected.min() >= 5:
        return statistic, float(chi2.sf(statistic, table.shape[1] - 1))
    if table.sum(axis=1).max() > _MOST + table.shape[1]:  # rounding may have added a little
        return chi_squared(_no_more(table, _MOST), seed)
    drawing = random_table(table.sum(axis=1), table.sum(axis=0), seed=np.random.default_rng(seed))
    above = done = 0
    while done < _DRAWS and above < _ENOUGH:  # once many lie above, the p-value is known well enough
        batch = min(_DRAWS - done, max(1, _BATCH // table.size), 1 + 9 * done if done else 500)
        drawn = ((drawing.rvs(batch) - expected) ** 2 / expected).sum(axis=(1, 2))
        above += int((drawn >= statistic * (1 - 1e-12)).sum())
        done += batch
    return statistic, (above + 1) / (done + 1)


def _no_more(table: np.ndarray, most: int) -> np.ndarray:
    """Rows of counts (2, m) in the same proportions, with sums of at most ``most``."""
    size = np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    return table * np.minimum(most / size, 1.0)
