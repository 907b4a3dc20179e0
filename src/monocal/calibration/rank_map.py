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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import (
    A,
    Array,
    anchored_softmax_and_top_,
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
    softmax_and_top,
    sort_with_index,
    to_numpy,
    widened,
)
from ..kernel import compiled, triton_map
from ..ranks.ranked import LARGEST, Ranked, Rest, Tail, rank_rows
from ..ranks.ties import average_ties
from ..rows.parallel import block_rows, map_rows, parallel_map, row_slices, rows_of_size
from .fields_only import FieldsOnly
from .ramps import RampFactors

if TYPE_CHECKING:
    from .adjustment import Adjustment

# With FEW rows, calls take more time than arithmetic: a call may touch up to CALL numbers, and nobody will notice.
FEW, CALL = 16, 4096
# Logits that the loops are given at a time: they stay in the cache between the search for jumps and the result.
_LOOP_BLOCK = 2**17


@dataclass(frozen=True)
class RankMap(FieldsOnly):
    """A map that is piecewise constant in rank.

    Attributes
    ----------
    starts : ndarray of shape (D,)
        First rank of each piece, counted from the lowest in use; the first is 0.
    scale_steps, bias_steps : ndarray of shape (K, D)
        Non-negative increments of weight and bias at each start, for each factor.
    top_k : int or None
    factors : callable, optional
        Gives the factors (n, K) of ranked rows; None for the constant 1.
    """

    starts: np.ndarray
    scale_steps: np.ndarray
    bias_steps: np.ndarray
    top_k: int | None = None
    factors: Callable[[Ranked], Array] | None = field(default=None, repr=False)

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
        if self._in_loops(logits):
            return self._by_loops(logits, False)
        return self._by_block(logits, self._block)

    def adjusted(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """The calibrated logits (n, m) after a second stage."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.LOGITS, adjust.on_device(logits.device, context))
        if self._in_loops(logits):
            return self._by_loops(logits, False, adjust, context)
        return self._by_block(logits, lambda *rows: _adjusted(self._block, adjust, *rows), context)

    def adjusted_probabilities(self, logits: Array, adjust: Adjustment, context: np.ndarray | None) -> Array:
        """The probabilities (n, m) of that, with the argmax of the logits."""
        if self.has_kernels(logits):
            return self._by_kernels(
                logits, triton_map.PROBABILITIES, adjust.on_device(logits.device, context)
            )
        if self._in_loops(logits):
            return self._by_loops(logits, True, adjust, context)
        return self._by_block(logits, lambda *rows: self._adjusted_block(adjust, *rows), context)

    def _adjusted_block(self, adjust: Adjustment, z: Array, context: np.ndarray | None = None) -> Array:
        f = _adjusted(self._block, adjust, z, context, from_top=True)
        return keep_argmax(ordered_softmax(f), widened(z))

    def probabilities(self, logits: Array) -> Array:
        """Calibrated probabilities (n, m), with the argmax of the logits."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.PROBABILITIES)
        if self._in_loops(logits):
            return self._by_loops(logits, True)
        if not self._needs_ranks:
            return self._by_block(logits, self._scaled_probabilities)
        return self._by_block(logits, self._ranked_probabilities)

    def _ranked_probabilities(self, z: Array) -> Array:
        z = widened(z)
        rows = self._ranked(z)
        return _kept(*softmax_and_top(*self._of_ranked(z, rows)), z, rows.top)

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
        mapped = self._in_use
        ramps: tuple[np.ndarray, ...] = (np.zeros(0),) * 3
        statistics: tuple[Any, ...] = ()
        if isinstance(mapped.factors, RampFactors):
            factors = mapped.factors
            places = np.array([ramp.statistic for ramp in factors.ramps])
            ramps, statistics = (places, factors.zeros, factors.widths), factors.statistics
        steps = mapped.scale_steps[:, used], mapped.bias_steps[:, used]
        return triton_map.tables(logits.device, self.starts[used][1:], *steps, ramps, r, statistics)

    def _scaled_probabilities(self, z: Array) -> Array:
        """Where all classes have one weight, only the top of a row matters."""
        xp = array_namespace(z)
        z = xp.astype(z, compute_dtype(z), copy=False)
        top = xp.max(z, axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            f = z - top
            if not bool(xp.min(f) >= -LARGEST):  # depths are cut here as everywhere, masked classes apart
                f = xp.where(xp.isinf(z), f, xp.clip(f, min=-LARGEST))
            f *= float(self.scale_steps[0, 0])
        return _kept(*anchored_softmax_and_top_(f), z, top)

    def _by_block(
        self, logits: Array, function: Callable[..., Array], beside: np.ndarray | None = None
    ) -> Array:
        if logits.shape[0] <= FEW:
            return function(logits) if beside is None else function(logits, beside)
        # Predicting on a device needs half a dozen arrays of a block's size beside the result: smaller blocks there.
        size = block_rows(logits) if on_host(logits) else max(1, block_rows(logits) // 4)
        return map_rows(function, logits, size, beside)

    def _in_loops(self, logits: Array) -> bool:
        """Whether an array is large enough, and made, for the compiled loops."""
        large = logits.shape[0] * logits.shape[1] >= compiled.LARGE
        return large and self._needs_ranks and compiled.suits(logits)

    def _by_loops(
        self,
        logits: np.ndarray,
        normalise: bool,
        adjust: Adjustment | None = None,
        context: np.ndarray | None = None,
    ) -> np.ndarray:
        """The same in loops, which look for the values at the jumps alone, ties included."""
        out = np.empty_like(logits)

        def one(rows: slice) -> None:
            some = None if context is None else context[rows]
            self._block_by_loops(logits[rows], normalise, adjust, some, out[rows])

        parallel_map(one, row_slices(logits, rows_of_size(_LOOP_BLOCK, logits.shape[1])))
        return out

    def _block_by_loops(
        self,
        z: np.ndarray,
        normalise: bool,
        adjust: Adjustment | None,
        context: np.ndarray | None,
        out: np.ndarray,
    ) -> None:
        mixture = self._mixture
        from_statistics = mixture is not None and len(mixture.which) > 0
        jumps = compiled.find_jumps(z, self.starts[1:], self.top_k, from_statistics)
        if mixture is None:
            w, b = self._cumulated(None, z)
        else:
            factors = self._in_use.factors
            psi = None if from_statistics or factors is None else to_numpy(factors(self._ranked(z)))
            w, b = compiled.mix(mixture, jumps.statistics, psi)
        stage = () if adjust is None else (adjust.in_loops(context),)
        lost = compiled.calibrate(z, jumps, w, b, out, normalise, *stage)
        far = np.flatnonzero(~jumps.done)
        if len(far):
            out[far] = self._by_arrays(z[far], normalise, adjust, None if context is None else context[far])
        near = np.flatnonzero(lost & jumps.done)
        if len(near):
            out[near] = keep_argmax(out[near], z[near])

    @cached_property
    def _mixture(self) -> compiled.Mixture | None:
        """How the loops make weights and biases; None where all rows have the same."""
        mapped = self._in_use
        if mapped.factors is None:
            return None
        steps = np.stack([mapped.scale_steps, mapped.bias_steps]).astype(np.float32)
        which, ends = np.zeros(0, dtype=np.intp), (np.zeros(0, dtype=np.float32),) * 2
        if isinstance(mapped.factors, RampFactors):
            ramps = mapped.factors
            if all(isinstance(s, str) and s in compiled.STATISTICS for s in ramps.statistics):
                places = np.array([compiled.STATISTICS.index(str(s)) for s in ramps.statistics])
                which = places[[ramp.statistic for ramp in ramps.ramps]]
                ends = ramps.zeros.astype(np.float32), ramps.widths.astype(np.float32)
        return compiled.Mixture(which, *ends, steps)

    def _by_arrays(
        self, z: Array, normalise: bool, adjust: Adjustment | None, context: np.ndarray | None
    ) -> Any:
        """Calibrated logits or probabilities of a block, in array operations."""
        if adjust is None:
            return self._ranked_probabilities(z) if normalise else self._block(z)
        return (
            self._adjusted_block(adjust, z, context)
            if normalise
            else _adjusted(self._block, adjust, z, context)
        )

    def _block(self, z: Array) -> Array:
        z = widened(z)
        return self._of_ranked(z, self._ranked(z))[0]

    def _ranked(self, z: Array) -> Ranked:
        return rank_rows(z, self.top_k, ordered=self._needs_ranks)

    @property
    def _needs_ranks(self) -> bool:
        return len(self.starts) > 1 or self.factors is not None or self.top_k is not None

    def _parameters(self, rows: Ranked) -> tuple[Array, Array]:
        """Weight and bias of each piece, (n, D), or (1, D) where all rows have the same."""
        factors = self._in_use.factors
        return self._cumulated(None if factors is None else factors(rows), rows.depth)

    @cached_property
    def _in_use(self) -> RankMap:
        """The same map without the factors that have no increments."""
        if not isinstance(self.factors, RampFactors):
            return self
        steps = self.scale_steps.any(axis=1) | self.bias_steps.any(axis=1)
        used = np.union1d(0, np.flatnonzero(steps))
        factors = self.factors.only(used)
        return replace(
            self, scale_steps=self.scale_steps[used], bias_steps=self.bias_steps[used], factors=factors
        )

    def _cumulated(self, psi: Array | None, other: Array) -> tuple[Array, Array]:
        """The same from the factors (n, K), in the library and type of ``other``."""
        cumulate = np.cumsum if type(other) is np.ndarray else array_namespace(other).cumulative_sum
        w, b = (cumulate(_mix(psi, *steps), axis=1) for steps in self._steps_like(other))
        if not on_host(other):  # a device sums in parallel, in an order of its own
            w, b = running_maximum(w), running_maximum(b)
        return w, b

    def _steps_like(self, other: Array) -> list[tuple[np.ndarray, Any]]:
        """Of weights and of biases: the constant factor and those with increments, and their increments in another's type."""
        key = other.dtype if type(other) is np.ndarray else None
        if key is None or key not in self._steps:
            both = (self._in_use.scale_steps, self._in_use.bias_steps)
            used = [np.append(0, np.flatnonzero(x[1:].any(axis=1)) + 1) for x in both]
            found = [(k, like(x[k], other)) for k, x in zip(used, both, strict=True)]
            if key is None:
                return found
            self._steps[key] = found
        return self._steps[key]

    @cached_property
    def _steps(self) -> dict[Any, list[tuple[np.ndarray, Any]]]:
        return {}

    def _split(self, rows: Ranked) -> np.ndarray | None:
        """Whether a jump falls among tied classes of a row, (n,); None where that happens in no row."""
        jumps = self.starts[1:]
        if len(jumps) and jumps[-1] >= rows.depth.shape[1]:
            jumps = jumps[jumps < rows.depth.shape[1]]
        tied = to_numpy(rows.depth[:, jumps] == rows.depth[:, jumps - 1])
        return np.asarray(tied.any(axis=1)) if tied.any() else None

    def with_rest(self, z: np.ndarray, rows: Ranked, rest: Rest) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated logits of ranked rows (n, k), and of each class of their rest (n,), which lies below all of them."""
        tail = rows.tail or Tail(None, np.zeros(len(z), dtype=np.int64), False)
        w, b = self._parameters(replace(rows, tail=replace(tail, rest=rest)))
        below = rows.height - np.maximum(rest.depth, rows.height)
        return to_numpy(self._of_ranked(z, rows, (w, b))[0]), to_numpy(below * w[:, 0] + b[:, 0])

    def _of_ranked(
        self, z: Array, rows: Ranked, parameters: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array | None]:
        """Calibrated logits of rows that have been ranked, and the highest of each (n, 1), where it is known."""
        w, b = parameters or self._parameters(rows)
        highest = rows.height[:, None] * w[:, -1:] + b[:, -1:]
        if not self._needs_ranks:
            return _mask((rows.height[:, None] - _depth(z, rows)) * w + b, z, rows), highest
        if is_torch(z):
            return self._scattered(z, rows, w, b), None
        split = self._split(rows)
        if split is not None and split.all():
            return self._scattered(z, rows, w, b), None
        f = self._thresholded(z, rows, w, b)
        if split is None:
            return f, highest
        part = slice(None) if len(w) == 1 else split
        f[split] = self._scattered(z[split], rows[split], w[part], b[part])
        return f, None

    def _thresholded(self, z: np.ndarray, rows: Ranked, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Every class finds its piece by comparing with the values at the jumps."""
        depth = to_numpy(_depth(z, rows))
        jumps = self.starts[1:]
        piece = _count_passed(depth, rows.depth[:, jumps], jumps - rows.depth.shape[1] + z.shape[1])
        u: np.ndarray = np.subtract(rows.height[:, None], depth, out=depth)
        scales, biases = self._kinds
        u *= _look_up(w, piece) if scales else w[:, :1]
        if biases:
            u += _look_up(b, piece)
        return _mask(u, z, rows)

    @cached_property
    def _kinds(self) -> tuple[bool, bool]:
        """Whether some weight jumps, and whether there is a bias."""
        return bool(self.scale_steps[:, 1:].any()), bool(self.bias_steps.any())

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


def _adjusted(
    way: Callable[[Any], Any],
    adjust: Adjustment,
    z: Array,
    context: np.ndarray | None = None,
    from_top: bool = False,
) -> Array:
    """Calibrated logits of a block, after a second stage; ``from_top`` measured there, where rounding does no harm."""
    xp = array_namespace(z)
    z = xp.astype(z, compute_dtype(z), copy=False)
    f = way(z)
    if from_top:
        f = f - xp.max(f, axis=1, keepdims=True)
    return adjust(f, z == xp.max(z, axis=1, keepdims=True), context)


def _kept(p: Array, p_top: Array, z: Array, top: Array) -> Array:
    """Probabilities with the argmax of the logits.

    What is on top among the logits is on top among the probabilities: ``argmax`` can only change where some other class is, too.
    So all on top are counted, which is faster than to look for the first in every row.
    """
    if is_torch(p) or np.count_nonzero(p == p_top) != np.count_nonzero(z == top):
        return keep_argmax(p, z)
    return p


def _mix(psi: Array | None, used: np.ndarray, table: Array) -> Array:
    """Increments (n, D) of each row, or (1, D) where they are the same for all; non-negative whatever the rounding.

    Not a matrix product, whose rounding depends on how many rows it is given. Factors without increments are left out.
    """
    if psi is None:
        return table
    if type(psi) is np.ndarray and len(psi) <= FEW:  # the same sums, in fewer calls
        return np.cumsum(psi[:, used, None] * table, axis=1)[:, -1] if len(used) > 1 else psi[:, :1] * table
    total: Any = psi[:, :1] * table[0]
    for place, k in enumerate(used[1:], 1):
        total += psi[:, k : k + 1] * table[place]
    mixed: Array = total
    return mixed


def _depth(z: Array, rows: Ranked) -> Array:
    """Depths of the classes in their own places, rounded exactly as when they were sorted."""
    xp = array_namespace(z)
    with np.errstate(over="ignore"):
        depth = xp.astype(z, rows.depth.dtype, copy=False) - rows.top
    depth *= -1.0
    # Nothing lies below the height but masked classes and a tail.
    if rows.valid is not None or rows.tail is not None or not bool(xp.all(rows.height < LARGEST)):
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
    small = np.uint8 if len(starts) < 256 else np.uint16
    if n <= FEW and m * len(starts) <= CALL:
        return np.asarray(np.count_nonzero(depth[:, :, None] <= thresholds[:, None, :], axis=2), dtype=small)
    passed = np.zeros((n, m), dtype=small)
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
