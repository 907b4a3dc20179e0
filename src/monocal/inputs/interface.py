"""Where rows live, as the solver sees it: rows add up what a function returns for each prepared block.

`memory` keeps prepared blocks and works on them with threads. `stream` prepares them anew in every pass. The workers of
`dask` hold theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from ..arrays import Array
from .reader import Checked, Reader

T = TypeVar("T")


class Rows(Protocol):
    """Prepared rows somewhere."""

    n_rows: int
    n_classes: int
    n_ranks: int
    has_tail: bool  # whether there are classes below the ranks in use
    single_precision: bool
    slow_calls: bool  # whether a call takes longer than what it computes, as on a GPU

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        """``function(block, *args)`` added up over all blocks, in a fixed order."""

    def sample(self) -> Rows | None:
        """A representative quarter or less, the same wherever the rows live; None where that would be too few."""

    def coarse(self) -> Rows | None:
        """As many rows as a rough step needs here; None where fewer rows would save nothing."""

    def part(self, chosen: np.ndarray) -> Rows:
        """The rows where ``chosen`` (n_rows,) is true."""

    def total_weight(self) -> float:
        """The sum of all weights."""

    def measured(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (n, S) and weights (n,) of one row in ``step``, the first among them."""

    def with_factors(self, factors: Callable[[Array], Array]) -> Rows:
        """The same rows with the factors computed from their statistics."""


class Held(Protocol):
    """Blocks of rows somewhere, made by whoever asked for them."""

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        """``function(block, *args)`` added up over all blocks, in a fixed order."""


class Source(Protocol):
    """Checked rows with labels and weights, wherever they live."""

    @property
    def single_precision(self) -> bool:
        """Whether the rows are in single precision, or less."""

    @property
    def reader(self) -> Reader:
        """The reader, with what it has learnt from the rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows that count, and classes."""

    def first_rows(self) -> Array:
        """Logits of a few of the rows, to judge their unit by."""

    def prepare(self, **how: Any) -> Rows:
        """Rows for the solver; the keywords are those of `prepare_block`."""

    def hold(self, make: Callable[[Checked], Any]) -> Held:
        """Blocks of rows in the caller's own order of classes: ``make(checked)``, which has ``n_rows``.

        They are made once where they can be kept, and in every pass where rows are read anew.
        """


@dataclass(frozen=True)
class RowMap:
    """A method of a fitted calibrator as a function of rows.

    Attributes
    ----------
    name : str
        The calibrator's class.
    method : {"predict_proba", "transform", "predict"}
    n_classes : int
    input : {"logits", "probabilities"}
    function : callable
        ``function(X, first_row, dtype)`` gives the result for rows in memory that begin at ``first_row`` of more, as an array of
        type ``dtype`` (None: that of ``X``).
    rank_map : RankMap or None
        What the calibrator has learnt, where it works by rank.
    has_context : bool
        Whether the result depends on a context, which goes by the number of the row.
    """

    name: str
    method: str
    n_classes: int
    input: str
    function: Callable[[Any, int, Any], Any]
    rank_map: Any = None
    has_context: bool = False


class Elsewhere(Protocol):
    """Rows that are no array in memory."""

    # What to tell a user whose method needs all rows in memory.
    refusal: str
    # An empty frame with the names of the columns, where they have names.
    names: Any

    def open(self, reader: Reader) -> Source:
        """Checked rows for a fit."""

    def apply(self, row_map: RowMap, out: Any) -> Any:
        """The result for all rows, written to ``out`` where that is given."""
