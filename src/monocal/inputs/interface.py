"""Rows that are no array in memory, and what is applied to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .reader import Reader
from .sources import Source

T = TypeVar("T")


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
