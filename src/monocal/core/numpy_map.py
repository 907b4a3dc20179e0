"""The map on numpy arrays: in few array operations where rows allow that, as `core.map.apply` does it for all others.

    z_(1) <= ... <= z_(m), and where each came from       one sort of double precision, in whose last bits the places travel
    g_(i) = max(w_d v_(i) + D_d, g_(i + 1))               d the piece of rank i: nothing is compared, nothing is looked up
    g' = W g + A below the top                            a second stage
    p                                                     written to where it belongs

``D_d`` is the sum of ``s_j U + b_j`` over the jumps above piece d. *Plain* rows are those of which all classes are ranked, none
is masked and none lies a million below the top. Which way a row goes depends on that row alone, and so does the order in which it
is summed. What an operation costs decides here: rows of few classes are laid out rank by rank, so that every operation runs along
thousands of rows and not along ten classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays import GRID_OF_SIZE, by_class, keep_argmax, row_sums
from .libraries import FEW, HOST, ramps_of
from .map import LOGITS, PROBABILITIES, MapStep, Step, apply, steps_as
from .ranked import LARGEST, Ranked
from .second_stage import of_context, weight_and_lift
from .statistics import STATISTICS, Depths
from .ties import average_ties

# Far less than half a unit of any other number that single precision has.
_NEXT_TO_NOTHING = 2.0**-1000
# The places of so many values fit into the bits that single precision lacks, and are kept for the next call. Of fewer, a sort of
# places in two calls costs least.
_MOST_PLACES, _FEW_PLACES = 2**19, 256


class NumpyMap:
    """A fitted map for numpy arrays in single or double precision."""

    def __init__(self, steps: Sequence[MapStep], smallest_probability: float | None = None):
        self._steps, self._smallest = steps, smallest_probability
        self._in_dtype: dict[Any, tuple[list[Step], _PlainRows | None]] = {}
        s = steps[0].static
        self._may_be_plain = (
            len(steps) == 1
            and steps[0].kind == "ranks"
            and smallest_probability is None
            and s["n_ranks"] == s["n_classes"] > 1
            and all(isinstance(q, str) for q in s["statistics"])
        )

    def __call__(
        self,
        z: np.ndarray,
        output: str,
        context: np.ndarray | None = None,
        narrow: tuple[float, float] | None = None,
    ) -> np.ndarray:
        """Calibrated rows (n, m): see `core.map.apply`."""
        numbers = self._in_dtype.get(z.dtype)
        if numbers is None:
            in_type = steps_as(self._steps, np.ascontiguousarray, z.dtype)
            numbers = in_type, _PlainRows(*in_type[0][1:]) if self._may_be_plain else None
            self._in_dtype[z.dtype] = numbers
        steps, plain_rows = numbers

        def portable(z: np.ndarray, context: np.ndarray | None) -> np.ndarray:
            smallest = self._smallest
            done = apply(
                z, steps, HOST, output, smallest_probability=smallest, context=context, narrow=narrow
            )
            return np.ascontiguousarray(done)

        with np.errstate(all="ignore"):
            usual = narrow is None and output in (PROBABILITIES, LOGITS)
            # Rows may be filled up with more classes than there were in the fit.
            if plain_rows is None or not usual or z.shape[1] != plain_rows.s["n_classes"]:
                return portable(z, context)
            out = np.empty(z.shape, dtype=z.dtype)
            plain = plain_rows.calibrate(z, output == PROBABILITIES, context, out)
            if np.count_nonzero(plain) < len(plain):  # what was made of the others is nothing
                rest = np.flatnonzero(~plain)
                out[rest] = portable(z[rest], None if context is None else context[rest])
            return out


class _PlainRows:
    """The map of plain rows, from the numbers of the step ``"ranks"`` in the type of the rows."""

    def __init__(self, a: dict[str, Any], s: dict[str, Any]):
        self.a, self.s, self.second, self.scales_jump = a, s, s["adjustment"], s["scale_jumps"]
        self.jumps = a["jumps"] if s["n_jumps"] else np.zeros(0, dtype=np.int64)
        self.before = self.jumps - 1
        self.lengths = np.diff(self.jumps, prepend=0, append=s["n_ranks"])
        # Where all rows have the same increments: of each rank the weight, and `a` and `b` of ``D = a U + b``.
        scale, bias = a["steps"][0].astype(np.float64)
        of_pieces = (np.cumsum(scale), *(np.append(np.cumsum(x[:0:-1])[::-1], 0.0) for x in (scale, bias)))
        self.w, self.of_height, self.drop = (
            np.repeat(x, self.lengths).astype(a["steps"].dtype) for x in of_pieces
        )

    def calibrate(
        self, z: np.ndarray, normalise: bool, context: np.ndarray | None, out: np.ndarray
    ) -> np.ndarray:
        """Probabilities or calibrated logits to ``out``; returns which rows are plain."""
        ordered, places = _in_order(z)
        ordered = by_class(ordered)
        v = np.subtract(ordered[:, -1:].copy(), ordered, out=ordered)
        height, shared = v[:, :1].copy(), v[:, -2] == 0
        f = self._logits(v, height)
        if self.second is not None:
            f = self._adjusted(f, places[:, -1], shared, context)
        level = _to_probabilities(f) if normalise else f[:, -2] == 0
        out.reshape(-1)[places] = f
        if np.count_nonzero(level):  # rounding may have made another class equal to the top
            chosen = np.flatnonzero(level)
            out[chosen] = keep_argmax(out[chosen], z[chosen])
        return height[:, 0] <= LARGEST

    def _logits(self, v: np.ndarray, height: np.ndarray) -> np.ndarray:
        """Calibrated logits by rank, in the place of the depths; 0 at the top."""
        g, jumps = v, self.jumps
        psi = None if self.s["n_factors"] == 1 else self._factors(v)
        tied, depth = jumps[:0], v[:0]
        if len(jumps):
            equal = v.take(jumps, axis=1) == v.take(self.before, axis=1)
            if np.count_nonzero(equal):
                tied = np.flatnonzero(equal.any(axis=1))
                depth = v[tied]
        if psi is not None:
            w, drop = self._mixed(psi, height[:, 0])
            g *= self._by_rank(w, v) if self.scales_jump else w[0][:, None]
            if len(jumps):
                g += self._by_rank(drop, v)
        else:
            g *= self.w
            if self.scales_jump:  # laid out as the depths are
                by_row = v.flags.c_contiguous
                g += (
                    height * self.of_height if by_row else (height.T * self.of_height[:, None]).T
                ) + self.drop
            elif len(jumps):
                g += self.drop
        if self.scales_jump:
            # Rounding may have let a class cross a jump: a running maximum from the top down.
            if len(g) <= FEW:
                np.maximum.accumulate(g[:, ::-1], axis=1, out=g[:, ::-1])
            elif len(crossed := np.flatnonzero((g[:, self.before] < g[:, jumps]).any(axis=1))):
                g[crossed] = np.maximum.accumulate(g[crossed, ::-1], axis=1)[:, ::-1]
        f: np.ndarray = np.subtract(0.0, g, out=g)
        if len(tied):
            chosen = f[tied]
            average_ties(chosen, Ranked(depth, height[tied, 0], height[tied], None, None, v.shape[1]), jumps)
            # Where a jump splits the classes that share the top, that has come down.
            f[tied] = chosen - chosen[:, -1:]
        return f

    def _factors(self, v: np.ndarray) -> np.ndarray:
        """Ramps (K - 1, n) of rows."""
        a, names = self.a, self.s["statistics"]
        depths = Depths(v.T, None, HOST, v[:, -2])
        values = np.empty((len(names), len(v)), dtype=v.dtype)
        for k, name in enumerate(names):
            values[k] = STATISTICS[name](depths)
        return ramps_of(values, a["ramp_statistic"], a["ramp_zero"], a["ramp_width"], HOST)

    def _mixed(self, psi: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights and drops (D, n) of rows from their ramps."""
        mixture = HOST.mixed(self.a["steps"], psi)
        scale, rise = mixture[0], mixture[1, 1:]
        if self.scales_jump:
            rise = scale[1:] * height + rise
            scale = np.add.accumulate(scale)
        drop = np.zeros_like(mixture[1])
        np.add.accumulate(rise[::-1], out=drop[-2::-1])
        return scale, drop

    def _by_rank(self, table: np.ndarray, v: np.ndarray) -> np.ndarray:
        """What each rank has (n, m) of tables (D, n), laid out as the depths are."""
        if v.flags.c_contiguous:
            return np.repeat(table.T, self.lengths, axis=1)
        return np.repeat(table, self.lengths, axis=0).T

    def _adjusted(
        self, f: np.ndarray, top_place: np.ndarray, shared: np.ndarray, context: np.ndarray | None
    ) -> np.ndarray:
        """The second stage by rank, in place. Where the top is ``shared`` nothing is lifted."""
        scale: Any = None
        numbers: list[Any] = []
        if context is not None:
            scale, numbers = of_context(context, self.a, self.second, HOST, f.dtype)
        if self.second["by_class"]:
            of_class = np.where(shared, f.dtype.type(1), self.a["class_scales"][top_place % f.shape[1]])
            scale = of_class if scale is None else of_class * scale
        # Relative to the second class, as in `statistics.log_odds`; the top is left out.
        second = -f[:, -2:-1]
        if scale is not None:
            second *= scale[:, None]
            e = f * scale[:, None]
            e += second
        else:
            e = f + second
        np.exp(e, out=e)
        e[:, -1] = 0.0
        odds = (second - np.log(np.maximum(row_sums(e), 1.0)))[:, 0]
        weight, lift = weight_and_lift(odds if self.second["n_ramps"] else None, numbers, self.a, odds, HOST)
        f *= (weight if scale is None else weight * scale)[:, None]
        f -= (np.where(shared, 0, lift) if np.count_nonzero(shared) else lift)[:, None]
        f[:, -1] = 0.0
        return f


def _in_order(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in rising order, and the place of each value in the flattened array."""
    n, m = z.shape
    if z.dtype != np.float32 or not _FEW_PLACES < n * m <= _MOST_PLACES:
        index = z.argsort(axis=1)
        if n > 1:
            index += m * np.arange(n)[:, None]
        return z.reshape(-1)[index], index
    places = _places(n, m)
    # Double precision has 29 bits more than single: what is written into the last of them changes no value when it is rounded.
    # Written into those of 0 it would be a subnormal number, which torch.set_flush_denormal tells a processor to take for 0.
    wide = z.astype(np.float64, order="C")
    wide += _NEXT_TO_NOTHING
    bits = wide.view(np.int64)
    bits |= places
    wide.sort(axis=1)
    ordered = wide.astype(np.float32)
    bits &= 2 ** int(n * m).bit_length() - 1
    # Minus infinity with a place in its last bits is NaN, and loses the place.
    lost = np.isnan(ordered[:, -1])
    if np.count_nonzero(lost):
        bits[lost] = places[lost]
    return ordered, bits


@lru_cache(maxsize=2)
def _places(n: int, m: int) -> np.ndarray:
    places = np.arange(n * m).reshape(n, m)
    places.flags.writeable = False
    return places


def _to_probabilities(g: np.ndarray) -> np.ndarray:
    """Softmax by rank, in place, of rows whose top is at 0; returns where the rank below has come level with the top (n,)."""
    grid = GRID_OF_SIZE[g.dtype.itemsize]
    g *= grid
    np.rint(g, out=g)
    level: np.ndarray = g[:, -2] == 0
    g *= 1.0 / grid
    np.exp(g, out=g)
    g *= 1.0 / row_sums(g)
    return level
