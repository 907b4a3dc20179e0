"""Applying a rank map: ``f = w_rank u + b_rank`` without ever leaving the order.

Weights and biases change at a few ranks only (the jumps). Between two jumps a class needs no rank, only to know which
jumps it lies above, so on numpy arrays a row is sorted for its thresholds (or searched for them) and never un-sorted. Other
libraries sort with an index and scatter back. Both give every class

    f = w_d u + b_d,    d = number of jumps at or below its rank,    u = z - z_low,

with ``w_d``, ``b_d`` non-decreasing in ``d`` because they are running sums of non-negative numbers. Order in floating point:
``u`` is a rounded monotone function of ``z``; a larger non-negative ``w`` times a larger ``u`` rounds to no less; adding a
larger ``b`` rounds to no less. Tied classes split by a jump get the mean of their group.

Every row is treated as if it were alone. What is decided for a block of rows at once is only what leaves no trace in a row:
which of two ways to the same bits is taken, or whether anything has to be cut or masked at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import (
    A,
    Array,
    anchored_softmax_,
    array_namespace,
    compute_dtype,
    cut_,
    is_torch,
    keep_argmax,
    like,
    on_host,
    ordered_softmax,
    running_maximum,
    scatter,
    sort_with_index,
    to_numpy,
    widened,
)
from ..kernel import compiled, triton_map
from ..ranks.ranked import LARGEST, Ranked, rank_rows
from ..ranks.ties import average_ties
from ..rows.parallel import block_rows, map_rows, parallel_map, row_slices
from .ramps import RampFactors

if TYPE_CHECKING:
    from .adjustment import Adjustment

# Log-odds beyond which single precision knows none.
_FARTHEST = 100.0


@dataclass(frozen=True)
class RankMap:
    """A map that is piecewise constant in rank.

    Attributes
    ----------
    starts : ndarray of shape (D,)
        First rank of each piece, counted from the lowest in use; the first is 0.
    scale_steps, bias_steps : ndarray of shape (K, D)
        Non-negative increments of weight and bias at each start, for each factor.
    top_k : int or None
    factors : RampFactors, optional
        Gives the factors (n, K) of ranked rows; None for the constant 1.
    """

    starts: np.ndarray
    scale_steps: np.ndarray
    bias_steps: np.ndarray
    top_k: int | None = None
    factors: RampFactors | None = field(default=None, repr=False)

    @classmethod
    def from_grid(cls, coefficients: np.ndarray, **rest: Any) -> RankMap:
        """From coefficients (2, K, r) by kind, factor and start."""
        used = np.flatnonzero(coefficients.any(axis=(0, 1)))
        starts = np.union1d(0, used)
        return cls(starts, coefficients[0][:, starts], coefficients[1][:, starts], **rest)

    def transform(self, logits: Array) -> Array:
        """Calibrated logits (n, m) in compute precision; masked classes stay -inf."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.LOGITS)
        return self._by_block(logits, self._block)

    def adjusted(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """The calibrated logits (n, m) after a second stage."""
        return self._by_block(logits, lambda *rows: self._adjusted_block(adjust, *rows), context)

    def _adjusted_block(self, adjust: Adjustment, z: Array, context: np.ndarray | None = None) -> Array:
        xp = array_namespace(z)
        z = widened(z)
        return adjust(self._block(z), z == xp.max(z, axis=1, keepdims=True), context)

    def probabilities(self, logits: Array) -> Array:
        """Calibrated probabilities (n, m)."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.PROBABILITIES)
        large = logits.shape[0] * logits.shape[1] >= compiled.LARGE
        if large and self._needs_ranks and compiled.suits(logits):
            out = np.empty_like(logits)
            parallel_map(lambda b: self._compiled_probabilities(logits[b], out[b]), row_slices(logits))
            return out
        if not self._needs_ranks:
            return self._by_block(logits, self._scaled_probabilities)
        return self._by_block(logits, lambda z: ordered_softmax(self._block(z)))

    def adjusted_probabilities(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """Probabilities (n, m) of the calibrated logits after a second stage."""
        large = logits.shape[0] * logits.shape[1] >= compiled.LARGE
        if not (large and compiled.suits(logits)):
            return self._by_block(
                logits, lambda *rows: ordered_softmax(self._adjusted_block(adjust, *rows)), context
            )
        out = np.empty_like(logits)

        def one(rows: slice) -> None:
            self._compiled_adjusted(
                logits[rows], adjust, None if context is None else context[rows], out[rows]
            )

        parallel_map(one, row_slices(logits))
        return out

    def has_kernels(self, logits: Array) -> bool:
        """Whether the map has kernels for an array like this: their results are in its type, with the argmax it had."""
        statistics = () if self.factors is None else self.factors.statistics
        return triton_map.suits(logits, len(self.starts) - 1, statistics)

    def _by_kernels(self, logits: Array, what: int) -> Array:
        result: Array = triton_map.apply(logits, self._tables(logits), what)
        return result

    def _tables(self, logits: Array) -> triton_map.Tables:
        m = logits.shape[1]
        r = min(self.top_k or m, m)
        used = self.starts < r
        ramps: tuple[np.ndarray, ...] = (np.zeros(0),) * 3
        statistics: tuple[Any, ...] = ()
        if self.factors is not None:
            factors = self.factors
            places = np.array([ramp.statistic for ramp in factors.ramps])
            ramps, statistics = (places, factors.zeros, factors.widths), factors.statistics
        steps = self.scale_steps[:, used], self.bias_steps[:, used]
        return triton_map.tables(logits.device, self.starts[used][1:], *steps, ramps, r, statistics)

    def _scaled_probabilities(self, z: Array) -> Array:
        """Where all classes have one weight, only the top of a row matters."""
        xp = array_namespace(z)
        z = xp.astype(z, compute_dtype(z), copy=False)
        with np.errstate(over="ignore"):
            f = z - xp.max(z, axis=1, keepdims=True)
            if not bool(xp.min(f) >= -LARGEST):  # depths are cut here as everywhere, masked classes apart
                f = xp.where(xp.isinf(z), f, xp.clip(f, min=-LARGEST))
            f *= float(self.scale_steps[0, 0])
        return anchored_softmax_(f)

    def _by_block(
        self, logits: Array, function: Callable[..., Array], beside: np.ndarray | None = None
    ) -> Array:
        # Predicting on a device needs half a dozen arrays of a block's size beside the result: smaller blocks there.
        size = block_rows(logits) if on_host(logits) else max(1, block_rows(logits) // 4)
        return map_rows(function, logits, size, beside)

    def _compiled_probabilities(self, z: np.ndarray, out: np.ndarray) -> None:
        """The same in loops, which look for the values at the jumps alone, ties included."""
        jumps = compiled.find_jumps(z, self.starts[1:], self.top_k)
        w, b = self._cumulated(self._compiled_factors(z, jumps), z)
        lost = compiled.probabilities(z, jumps, w, b, out)
        far = np.flatnonzero(~jumps.done)
        if len(far):
            out[far] = ordered_softmax(self._block(z[far]))
        _mend(out, z, lost | ~jumps.done)

    def _compiled_adjusted(
        self, z: np.ndarray, adjust: Adjustment, context: np.ndarray | None, out: np.ndarray
    ) -> None:
        """The same in two sweeps: one for the log-odds of the top class, one for the result. The top is a piece of its own."""
        r = min(self.top_k or z.shape[1], z.shape[1])
        starts = np.union1d(self.starts, r - 1)
        jumps = compiled.find_jumps(z, starts[1:], self.top_k)
        w, b = self._cumulated(self._compiled_factors(z, jumps), z)
        piece = np.searchsorted(self.starts, starts, side="right") - 1
        w, b = to_numpy(w[:, piece]), to_numpy(b[:, piece])
        top = z.argmax(axis=1)
        n_top = jumps.many[:, 0].astype(z.dtype) if len(starts) > 1 else np.ones_like(jumps.top)
        scale = to_numpy(adjust.scales(top, n_top, context))[:, None]
        compiled.probabilities(z, jumps, w * scale, b * scale, out)
        row = np.arange(len(z))
        of_top = out[row, top]
        out[row, top] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that are not done, and a certain top
            odds = np.log(of_top) - np.log(out.sum(axis=1))
        odds = np.where(jumps.done, np.clip(odds, -_FARTHEST, _FARTHEST), 0.0)
        weight, lift = (to_numpy(x)[:, None] for x in adjust.weight_and_lift(odds, context))
        weight = weight * scale
        b = b * weight
        b[:, -1:] += lift
        lost = compiled.probabilities(z, jumps, w * weight, b, out)
        far = np.flatnonzero(~jumps.done)
        if len(far):
            some = None if context is None else context[far]
            out[far] = ordered_softmax(self._adjusted_block(adjust, z[far], some))
        _mend(out, z, lost | ~jumps.done)

    def _compiled_factors(self, z: np.ndarray, jumps: compiled.Jumps) -> np.ndarray | None:
        if self.factors is None:
            return None
        names = self.factors.statistics
        if not set(names) <= set(compiled.STATISTICS):
            return to_numpy(self.factors(self._ranked(z)))
        known = compiled.statistics(z, jumps)
        chosen = known[:, [compiled.STATISTICS.index(str(name)) for name in names]]
        return to_numpy(self.factors.of_statistics(chosen))

    def _block(self, z: Array) -> Array:
        z = widened(z)
        if self.has_kernels(z):
            return self._by_kernels(z, triton_map.LOGITS)
        return self._of_ranked(z, self._ranked(z))

    def _ranked(self, z: Array) -> Ranked:
        return rank_rows(z, self.top_k, ordered=self._needs_ranks)

    @property
    def _needs_ranks(self) -> bool:
        return len(self.starts) > 1 or self.factors is not None or self.top_k is not None

    def _parameters(self, rows: Ranked) -> tuple[Array, Array]:
        """Weight and bias of each piece, (n, D), or (1, D) where all rows have the same."""
        return self._cumulated(None if self.factors is None else self.factors(rows), rows.depth)

    def _cumulated(self, psi: Array | None, other: Array) -> tuple[Array, Array]:
        """The same from the factors (n, K), in the library and type of ``other``."""
        xp = array_namespace(other)
        w, b = (
            xp.cumulative_sum(_mix(psi, steps, other), axis=1)
            for steps in (self.scale_steps, self.bias_steps)
        )
        if not on_host(other):  # a device sums in parallel, in an order of its own
            w, b = running_maximum(w), running_maximum(b)
        return w, b

    def _split(self, rows: Ranked) -> np.ndarray:
        """Whether a jump falls among tied classes of a row, (n,)."""
        jumps = self.starts[1:]
        jumps = jumps[jumps < rows.depth.shape[1]]
        tied = to_numpy(rows.depth[:, jumps] == rows.depth[:, jumps - 1])
        return np.asarray(tied.any(axis=1))

    def _of_ranked(self, z: Array, rows: Ranked) -> Array:
        """Calibrated logits of rows that have been ranked."""
        w, b = self._parameters(rows)
        if not self._needs_ranks:
            return _mask((rows.height[:, None] - _depth(z, rows)) * w + b, z, rows)
        if is_torch(z):
            return self._scattered(z, rows, w, b)
        split = self._split(rows)
        if split.all():
            return self._scattered(z, rows, w, b)
        f = self._thresholded(z, rows, w, b)
        if split.any():
            part = slice(None) if len(w) == 1 else split
            f[split] = self._scattered(z[split], rows[split], w[part], b[part])
        return f

    def _thresholded(self, z: np.ndarray, rows: Ranked, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Every class finds its piece by comparing with the values at the jumps."""
        depth = to_numpy(_depth(z, rows))
        jumps = self.starts[1:]
        piece = _count_passed(depth, rows.depth[:, jumps], jumps - rows.depth.shape[1] + z.shape[1])
        u: np.ndarray = np.subtract(rows.height[:, None], depth, out=depth)
        if not self.scale_steps[:, 1:].any():
            u *= w[:, :1]
        else:
            u *= _look_up(w, piece)
        if self.bias_steps.any():
            u += _look_up(b, piece)
        return _mask(u, z, rows)

    def _scattered(self, z: Array, rows: Ranked, w: Array, b: Array) -> Array:
        """Sorted values are calibrated rank by rank and put back where they came from."""
        xp = array_namespace(z)
        r = rows.depth.shape[1]
        piece = np.searchsorted(self.starts, np.arange(r), side="right") - 1
        u = xp.maximum(rows.height[:, None] - rows.depth, 0 * rows.depth)
        f = u * w[:, piece] + b[:, piece]
        average_ties(f, rows, self.starts[1:])
        if r == z.shape[1]:
            return _mask(scatter(f, sort_with_index(z)[1]), z, rows)
        # The tail has the lowest rank's parameters; classes tied with the lowest in use have its group's value.
        depth = _depth(z, rows)
        whole: Any = (rows.height[:, None] - depth) * w[:, :1] + b[:, :1]
        low = depth == rows.height[:, None]
        first = xp.argmax(xp.astype(rows.depth == rows.height[:, None], xp.int8), axis=1)
        whole = xp.where(low, xp.take_along_axis(f, first[:, None], axis=1), whole)
        if is_torch(z):
            index = z.topk(r, dim=1).indices.flip(1)
            whole = whole.scatter(1, index, f)
        else:
            index = np.argsort(z, axis=1)[:, z.shape[1] - r :]
            np.put_along_axis(whole, index, f, axis=1)
        masked: Array = _mask(whole, z, rows)
        return masked


def _mend(out: np.ndarray, z: np.ndarray, which: np.ndarray) -> None:
    """Give back their argmax to rows in which rounding has made another class equal to the top."""
    rows = np.flatnonzero(which)
    if len(rows):
        out[rows] = keep_argmax(out[rows], z[rows])


def _mix(psi: Array | None, steps: np.ndarray, other: Array) -> Array:
    """Increments (n, D) of each row, or (1, D) where they are the same for all; non-negative whatever the rounding.

    Not a matrix product, whose rounding depends on how many rows it is given. Factors without increments are left out.
    """
    table = like(steps, other)
    if psi is None:
        return table
    total = psi[:, :1] * table[0]
    for k in np.flatnonzero(steps[1:].any(axis=1)) + 1:
        total += psi[:, k : k + 1] * table[k]
    return total


def _depth(z: Array, rows: Ranked) -> Array:
    """Depths of the classes in their own places, rounded exactly as when they were sorted."""
    xp = array_namespace(z)
    with np.errstate(over="ignore"):
        depth = xp.astype(z, rows.depth.dtype) - rows.top
    depth *= -1.0
    # Nothing lies below the height but masked classes and a tail.
    if rows.valid is not None or rows.tail is not None or not bool(xp.max(rows.height) < LARGEST):
        depth = cut_(depth, LARGEST)
    return depth


def _mask(f: A, z: Array, rows: Ranked) -> A:
    masked = rows.valid is not None or (rows.tail is not None and rows.tail.masked)
    if masked:
        xp = array_namespace(f)
        kept: Any = xp.where(xp.isinf(z), xp.asarray(-np.inf, dtype=f.dtype), f)
        f = kept
    return f


def _count_passed(depth: np.ndarray, thresholds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How many thresholds each class has passed, (n, m) small integers.

    Without ties across a threshold exactly ``m - start`` classes of a row pass it, so once few do, and as many in every row,
    they are cut out into an array of their own and only they are compared any further.
    """
    n, m = depth.shape
    passed = np.zeros((n, m), dtype=np.uint8 if len(starts) < 256 else np.uint16)
    for d, start in enumerate(starts):
        inside = depth <= thresholds[:, d : d + 1]
        passed += inside
        few = m - int(start)
        if 4 * few <= m and d + 2 < len(starts):
            if (np.count_nonzero(inside, axis=1) != few).any():  # some row has a tie here, or is masked
                continue
            index = np.flatnonzero(inside)
            part = depth.ravel()[index].reshape(n, few)
            passed.ravel()[index] += _count_passed(
                part, thresholds[:, d + 1 :], starts[d + 1 :] - start
            ).ravel()
            break
    return passed


def _look_up(table: np.ndarray, piece: np.ndarray) -> np.ndarray:
    if len(table) == 1:
        return np.take(table[0], piece, mode="clip")  # the default mode checks and copies
    return np.take_along_axis(table, piece.astype(np.intp), axis=1)
