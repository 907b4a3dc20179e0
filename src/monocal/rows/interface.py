"""Where rows live, as the solver sees it: rows add up what a function returns for each prepared block.

`memory` keeps prepared blocks and works on them with threads. `stream` prepares them anew in every pass. The workers of
`dask` hold theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..arrays import Array

T = TypeVar("T")


class Rows(Protocol):
    """Prepared rows somewhere."""

    n_rows: int
    n_classes: int
    n_ranks: int
    has_tail: bool  # whether there are classes below the ranks in use
    single_precision: bool

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        """``function(block, *args)`` added up over all blocks, in a fixed order."""

    def sample(self) -> Rows | None:
        """A representative quarter or less, the same wherever the rows live; None where that would be too few."""

    def coarse(self) -> Rows | None:
        """As many rows as a rough step needs here; None where fewer rows would save nothing."""

    def part(self, chosen: np.ndarray) -> Rows:
        """The rows where ``chosen`` (n_rows,) is true."""

    def statistics(self) -> np.ndarray:
        """The statistics of all rows, (n_rows, S)."""

    def weights(self) -> np.ndarray:
        """The weights of all rows, (n_rows,), in double precision."""

    def with_factors(self, factors: Callable[[Array], Array]) -> Rows:
        """The same rows with the factors computed from their statistics."""


@runtime_checkable
class RowSource(Protocol):
    """Checked rows that are no array in memory, with their labels and weights."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows that count, and classes."""

    def prepare(self, **how: Any) -> Rows:
        """Rows for the solver; the keywords are those of `Engine.prepare`."""
