"""Applying a rank map: ``f = w_rank u + b_rank`` without ever leaving the order.

Weights and biases change at a few ranks only (the jumps, `pieces`). A softmax knows logits up to a constant per row, so all is
measured from the top of the row, ``v = z_top - z``, where no class that matters loses digits to one far below. Every class gets

    f - f_top = -max(w_d v + D_d, bound_d),  d = number of jumps at or below its rank,  bound_d = the largest of any class above,

with ``w_d`` non-decreasing and ``D_d`` non-increasing in ``d``. Order in floating point: ``v`` is a rounded monotone function of
``z``, and ``w_d v + D_d`` rounds monotonely within a piece; between pieces of different weights the bound keeps the order. Tied
classes split by a jump get the mean of their group.

There are four ways to the same numbers: kernels on a CUDA device (`kernel.triton_map`), compiled loops for large arrays
(`loop_rows`), array operations of numpy for rows in which nothing is special (`plain_rows`), and array operations of any library
for all the others (`ranked_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, on_host
from ..core.ranked import Ranked, Rest
from ..engines import triton_map
from ..parallel import block_rows, map_rows
from . import loop_rows, plain_rows, ranked_rows
from .pieces import FEW, Pieces
from .ramps import RampFactors, check_factors
from .state import expect
from .wanted import Wanted

if TYPE_CHECKING:
    from .adjustment import Adjustment


@dataclass(frozen=True)
class RankMap(Pieces):
    """A map that is piecewise constant in rank, and how it reaches the rows. Attributes are those of `Pieces`."""

    @classmethod
    def from_grid(cls, coefficients: np.ndarray, **rest: Any) -> RankMap:
        """From coefficients (2, K, r) by kind, factor and start."""
        used = np.flatnonzero(coefficients.any(axis=(0, 1)))
        starts = np.union1d(0, used)
        return cls(starts, coefficients[0][:, starts], coefficients[1][:, starts], **rest)

    def transform(self, logits: Array) -> Array:
        """Calibrated logits (n, m) in compute precision, 0 at the top of each row; masked classes stay -inf."""
        return self._applied(logits, False)

    def probabilities(self, logits: Array) -> Array:
        """Calibrated probabilities (n, m), with the argmax of the logits."""
        return self._applied(logits, True)

    def adjusted(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """The calibrated logits (n, m) after a second stage."""
        return self._applied(logits, False, adjust, context)

    def adjusted_probabilities(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """The probabilities (n, m) of that, with the argmax of the logits."""
        return self._applied(logits, True, adjust, context)

    def with_rest(self, z: np.ndarray, rows: Ranked, rest: Rest) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated logits of ranked rows (n, k), and of each class of their rest (n,), which lies below all of them."""
        return ranked_rows.with_rest(self, z, rows, rest)

    def _applied(
        self,
        logits: Any,
        normalise: bool,
        adjust: Adjustment | None = None,
        context: np.ndarray | None = None,
    ) -> Array:
        if self.has_kernels(logits):
            stage = None if adjust is None else adjust.on_device(logits.device, context)
            return self._by_kernels(
                logits, triton_map.PROBABILITIES if normalise else triton_map.LOGITS, stage
            )
        wanted = Wanted(self, normalise, adjust, context)
        for way in (loop_rows, plain_rows):
            if way.suits(self, logits):
                done: Array = way.calibrated(logits, wanted, _of_any_kind)
                return done
        return _of_any_kind(logits, wanted)

    def has_kernels(self, logits: Array) -> bool:
        """Whether the map has kernels for an array like this: their results are in its type, with the argmax it had."""
        statistics = () if self.factors is None else getattr(self.factors, "statistics", (None,))
        return triton_map.suits(logits, len(self.starts) - 1, statistics)

    def _by_kernels(self, logits: Array, mode: int, stage: triton_map.SecondStage | None = None) -> Array:
        key = (str(logits.device), logits.shape[1])
        if key not in self._tables:
            self._tables[key] = self._make_tables(logits)
        on_device: Array = triton_map.apply(logits, self._tables[key], mode, stage)
        return on_device

    @cached_property
    def _tables(self) -> dict[tuple[str, int], triton_map.Tables]:
        """What was brought to a device, for rows of a length."""
        return {}

    def _make_tables(self, logits: Array) -> triton_map.Tables:
        m = logits.shape[1]
        r = min(self.top_k or m, m)
        used = self.starts < r
        mapped = self.in_use
        ramps = (np.zeros(0),) * 3
        statistics: tuple[Any, ...] = ()
        if isinstance(mapped.factors, RampFactors):
            factors = mapped.factors
            places = np.array([ramp.statistic for ramp in factors.ramps])
            ramps, statistics = (places, factors.zeros, factors.widths), factors.statistics
        steps = mapped.scale_steps[:, used], mapped.bias_steps[:, used]
        return triton_map.tables(logits.device, self.starts[used][1:], *steps, ramps, r, statistics)


def _of_any_kind(z: Any, wanted: Wanted) -> Array:
    """Block by block in the way for rows of any kind."""
    if z.shape[0] <= FEW:
        few: Array = ranked_rows.calibrated(z, wanted)
        return few

    def one(block: Array, context: np.ndarray | None = None) -> Any:
        return ranked_rows.calibrated(block, wanted._replace(context=context))

    # Predicting on a device needs half a dozen arrays of a block's size beside the result: smaller blocks there.
    size = block_rows(z) if on_host(z) else max(1, block_rows(z) // 4)
    done: Array = map_rows(one, z, size, wanted.context)
    return done


def check_rank_map(calibrator: Any, value: Any, name: str) -> None:
    """Starts 0 = s_0 < s_1 < ... < m; increments >= 0, one column for each start, one row for each factor."""
    expect(isinstance(value, RankMap), name, value, "a rank map")
    starts, m = np.asarray(value.starts), calibrator.n_features_in_
    from_zero = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) and starts[0] == 0
    expect(from_zero and starts[-1] < m, f"{name}.starts", starts, f"ranks from 0 on, below {m}")
    expect(np.diff(starts) > 0, f"{name}.starts", starts, "ranks that rise")
    top_k = value.top_k
    whole = isinstance(top_k, int | np.integer) and top_k >= 1
    expect(top_k is None or whole, f"{name}.top_k", top_k)
    expect(top_k == getattr(calibrator, "top_k", None), f"{name}.top_k", top_k, "the calibrator's own")
    if value.factors is not None:
        check_factors(calibrator, value.factors, f"{name}.factors")
    shape = (1 if value.factors is None else value.factors.n_factors, len(starts))
    for kind in ("scale_steps", "bias_steps"):
        steps = np.asarray(getattr(value, kind))
        expect(steps.shape == shape, f"{name}.{kind}", steps, f"shape {shape}")
        expect(steps >= 0, f"{name}.{kind}", steps, "increments that are not negative")
