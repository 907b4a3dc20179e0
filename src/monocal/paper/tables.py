"""The arithmetic of a table: mean and spread over runs, rank in each row, average rank, what is best.

Ranks and the best are of the values *as shown*: two methods that read 1.19 are tied, share the mean of their ranks and are
both best. That is also how the paper's average ranks come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import rankdata


@dataclass(frozen=True)
class Table:
    """Sets by methods.

    Attributes
    ----------
    title, caption : str
    rows, columns : tuple of str
    mean, spread : ndarray of shape (rows, columns)
        In the unit shown. NaN: not run or failed (mean), one run only (spread).
    decimals : int
        Digits shown.
    higher_is_better : bool
    marks : dict of (row, column) to str
        Signs set behind a value; the caption explains them.
    paper : tuple of int
        Columns of the paper, for an average rank among them alone.
    """

    title: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    mean: np.ndarray
    spread: np.ndarray
    decimals: int = 2
    higher_is_better: bool = False
    marks: dict[tuple[int, int], str] = field(default_factory=dict)
    paper: tuple[int, ...] = ()

    @property
    def shown(self) -> np.ndarray:
        """Means as they are printed."""
        return np.round(self.mean, self.decimals) + 0.0  # no negative zero

    def ranks(self, columns: Sequence[int] | None = None) -> np.ndarray:
        """Rank of each value in its row, 1 the best, ties share their mean; NaN where there is no value."""
        shown = self.shown if columns is None else self.shown[:, list(columns)]
        signed = -shown if self.higher_is_better else shown
        return np.apply_along_axis(lambda row: rankdata(row, nan_policy="omit"), 1, signed)

    def average_rank(self, columns: Sequence[int] | None = None) -> np.ndarray:
        """Mean rank of each column over the rows where it has a value."""
        return _column_means(self.ranks(columns))

    def average(self) -> np.ndarray:
        """Mean value of each column over the rows; NaN where a row has none, for it would not be comparable."""
        return self.mean.mean(axis=0)

    def best(self) -> np.ndarray:
        """Which values are the best of their row, as shown."""
        shown = self.shown
        signed = -shown if self.higher_is_better else shown
        lowest = np.where(np.isnan(signed), np.inf, signed).min(axis=1, keepdims=True)
        return (signed == lowest) & ~np.isnan(signed)

    def summary(self) -> list[Summary]:
        """Rows below the table."""
        lines = [Summary.of("Mean", self.average(), self.decimals, self.higher_is_better)]
        lines.append(Summary.of("Average rank", self.average_rank()))
        if self.paper and len(self.paper) < len(self.columns):
            among = np.full(len(self.columns), np.nan)
            among[list(self.paper)] = self.average_rank(self.paper)
            lines.append(Summary.of("Average rank, paper's columns", among))
        return lines


@dataclass(frozen=True)
class Summary:
    """A row below a table: a value for each column, and which are the best as shown."""

    name: str
    values: np.ndarray
    best: np.ndarray
    decimals: int

    @classmethod
    def of(cls, name: str, values: np.ndarray, decimals: int = 2, higher_is_better: bool = False) -> Summary:
        """Find the best."""
        shown = np.round(-values if higher_is_better else values, decimals)
        best = shown == np.where(np.isnan(shown), np.inf, shown).min()
        return cls(name, values, best, decimals)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; NaN spread of a single value, NaN both of none."""
    if not values:
        return float("nan"), float("nan")
    with np.errstate(invalid="ignore"):
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return float(np.mean(values)), spread


def _column_means(values: np.ndarray) -> np.ndarray:
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
