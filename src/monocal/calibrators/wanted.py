"""What is to be made of rows: calibrated logits or probabilities, perhaps after a second stage, which may know their context.

The ways of a rank map (`loop_rows`, `plain_rows`, `ranked_rows`) all take it. A tuple, since one row is computed in microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .pieces import Pieces

if TYPE_CHECKING:
    from .adjustment import Adjustment


class Wanted(NamedTuple):
    """The map, whether probabilities are wanted (``normalise``), the second stage, and the context (n, c) of the rows."""

    pieces: Pieces
    normalise: bool
    adjust: Adjustment | None = None
    context: np.ndarray | None = None

    def of(self, some: slice | np.ndarray) -> Wanted:
        """The same of some of the rows."""
        return self if self.context is None else self._replace(context=self.context[some])
