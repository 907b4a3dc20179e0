"""The pieces of a rank map: where its weights and biases jump, and what they are in a row.

    w_d = sum over starts up to d of  s_j,        s_j = sum_k psi_k(z) scale_steps_kj
    D_d = sum over starts above d of  s_j U + t_j,  t_j = sum_k psi_k(z) bias_steps_kj

A class of piece d at depth ``v`` below the top of its row, whose lowest class is at depth ``U``, comes to lie ``w_d v + D_d``
below the top. Increments are non-negative and so are the factors ``psi``, so weights never fall and drops ``D`` never rise as the
rank rises, whatever the rounding: they are running sums of non-negative numbers. Nothing cancels, so both have the relative
precision of their type, however low the lowest class is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..arrays import Array, array_namespace, like, on_host, running_maximum
from ..core.ranked import Ranked
from ..engines import compiled
from .fields_only import FieldsOnly
from .ramps import RampFactors

# Up to so many rows, calls take more time than arithmetic.
FEW = 16


@dataclass(frozen=True)
class Pieces(FieldsOnly):
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

    @property
    def needs_ranks(self) -> bool:
        """Whether anything depends on ranks."""
        return len(self.starts) > 1 or self.factors is not None or self.top_k is not None

    @cached_property
    def scales_jump(self) -> bool:
        """Whether some weight changes with the rank."""
        return bool(self.scale_steps[:, 1:].any())

    @cached_property
    def has_named_statistics(self) -> bool:
        """Whether factors are ramps of statistics that have names, or all constant."""
        factors = self.in_use.factors
        if not isinstance(factors, RampFactors):
            return factors is None
        return all(isinstance(s, str) for s in factors.statistics)

    @cached_property
    def in_use(self) -> Self:
        """The same map without the factors that have no increments."""
        if not isinstance(self.factors, RampFactors):
            return self
        steps = self.scale_steps.any(axis=1) | self.bias_steps.any(axis=1)
        used = np.union1d(0, np.flatnonzero(steps))
        factors = self.factors.only(used)
        return replace(
            self, scale_steps=self.scale_steps[used], bias_steps=self.bias_steps[used], factors=factors
        )

    def parameters(self, rows: Ranked) -> tuple[Array, Array]:
        """Weight and drop of each piece, (n, D), or (1, D) where all rows have the same."""
        factors = self.in_use.factors
        return self.cumulated(None if factors is None else factors(rows), rows.height[:, None], rows.depth)

    def cumulated(self, psi: Array | None, height: Array, other: Array) -> tuple[Any, Any]:
        """The same from the factors (n, K) and heights (n, 1), in the library and type of ``other``."""
        if type(other) is not np.ndarray:
            return self._cumulated_like(psi, height, other)
        tables = self._tables_of(other.dtype)
        if psi is None:
            w, drop = tables.shared
            return w, drop if drop is not None else _drops(
                tables.steps[0, :1], tables.steps[1, :1], np.asarray(height)
            )
        if len(psi) <= FEW:  # the same sums, in fewer calls
            mixed = np.add.accumulate(np.asarray(psi)[:, None, :, None] * tables.steps, axis=2)[:, :, -1]
            return np.add.accumulate(mixed[:, 0], axis=1), _drops(
                mixed[:, 0], mixed[:, 1], np.asarray(height)
            )
        return _running_sums(
            tables.by_start, np.ascontiguousarray(np.asarray(psi).T), np.asarray(height)[:, 0]
        )

    def _cumulated_like(self, psi: Array | None, height: Array, other: Array) -> tuple[Array, Array]:
        """The same in any library."""
        xp = array_namespace(other)
        scale, bias = (_mix(psi, *x) for x in self._steps_like(other))
        rise = scale * height + bias
        w = xp.cumulative_sum(scale, axis=1)
        none = 0 * rise[:, :1]
        above = xp.cumulative_sum(xp.concat([none, xp.flip(rise[:, 1:], axis=1)], axis=1), axis=1)
        if not on_host(other):  # a device sums in parallel, in an order of its own
            w, above = running_maximum(w), running_maximum(above)
        return w, xp.flip(above, axis=1)

    def bounds(self, w: np.ndarray, drop: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """How far below the top the lowest class above each piece comes to lie (n, D), given the depths (n, D - 1) at the jumps.

        Rounding may let a class cross a jump at which the weight changes. None may come to lie above its bound.
        """
        at_jump = thresholds * w[:, 1:] + drop[:, 1:]
        out = np.zeros((len(at_jump), len(self.starts)), dtype=at_jump.dtype)
        np.maximum.accumulate(at_jump[:, ::-1], axis=1, out=out[:, -2::-1])
        return out

    def lengths(self, n_ranks: int) -> np.ndarray:
        """Ranks of each piece, of so many in all."""
        if n_ranks not in self._kept:
            self._kept[n_ranks] = np.diff(self.starts, append=n_ranks)
        known: np.ndarray = self._kept[n_ranks]
        return known

    def by_rank(self, dtype: Any, n_ranks: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Where all rows have the same increments: of each rank the weight, and ``a`` and ``b`` of its drop ``a U + b``.

        Where no weight jumps, ``a`` is None: it is 0 for all.
        """
        key = dtype, n_ranks
        if key not in self._kept:
            scale, bias = self.in_use.scale_steps[0], self.in_use.bias_steps[0]
            above = [np.append(np.cumsum(x[:0:-1])[::-1], 0.0) for x in (scale, bias)]
            tables = (np.cumsum(scale), *above)
            w, of_height, rest = (np.repeat(x, self.lengths(n_ranks)).astype(dtype) for x in tables)
            self._kept[key] = w, of_height if self.scales_jump else None, rest
        known: tuple[np.ndarray, np.ndarray | None, np.ndarray] = self._kept[key]
        return known

    def _tables_of(self, dtype: Any) -> _Tables:
        if dtype not in self._kept:
            steps = np.stack([self.in_use.scale_steps, self.in_use.bias_steps]).astype(dtype)
            by_start = [
                [[(int(k), x[k, d]) for k in np.flatnonzero(x[:, d])] for x in steps]
                for d in range(steps.shape[2])
            ]
            drop = None if self.scales_jump else _drops(steps[0, :1], steps[1, :1], steps[0, :1, :1])
            self._kept[dtype] = _Tables((np.cumsum(steps[0, :1], axis=1), drop), steps, by_start)
        known: _Tables = self._kept[dtype]
        return known

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    def _steps_like(self, other: Array) -> list[tuple[np.ndarray, Any]]:
        """Of weights and of biases: the constant factor and those with increments, and their increments in another's type."""
        both = (self.in_use.scale_steps, self.in_use.bias_steps)
        used = [np.append(0, np.flatnonzero(x[1:].any(axis=1)) + 1) for x in both]
        return [(k, like(x[k], other)) for k, x in zip(used, both, strict=True)]

    @cached_property
    def mixture(self) -> compiled.Mixture | None:
        """How compiled loops make weights and biases; None where all rows have the same."""
        mapped = self.in_use
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


@dataclass(frozen=True)
class _Tables:
    """Increments in one of numpy's types."""

    # Weights (1, D) of the constant factor, and drops, which depend on the row where weights jump: then None.
    shared: tuple[np.ndarray, np.ndarray | None]
    steps: np.ndarray  # (2, K, D), of weights and of biases
    # The same: at each start, of weights and of biases, the factors with increments there, and these.
    by_start: list[list[list[tuple[int, Any]]]]


def _drops(scale: np.ndarray, bias: np.ndarray, height: np.ndarray) -> np.ndarray:
    """``D`` (n, D) from increments (n or 1, D) and heights (n, 1)."""
    rise = scale[:, 1:] * height + bias[:, 1:]
    out = np.zeros((len(rise), scale.shape[1]), dtype=rise.dtype)
    np.add.accumulate(rise[:, ::-1], axis=1, out=out[:, -2::-1])
    return out


def _mix(psi: Array | None, used: np.ndarray, table: Array) -> Array:
    """Increments (n, D) of each row, or (1, D) where they are the same for all; non-negative whatever the rounding.

    Not a matrix product, whose rounding depends on how many rows it is given. Factors without increments are left out.
    """
    if psi is None:
        return table
    total: Any = psi[:, :1] * table[0]
    for place, k in enumerate(used[1:], 1):
        total += psi[:, k : k + 1] * table[place]
    mixed: Array = total
    return mixed


def _running_sums(
    by_start: list[list[list[tuple[int, Any]]]], columns: np.ndarray, height: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and drops (n, D) from factors (K, n); few of these have increments at any one start."""
    w, drop = np.zeros((2, len(by_start), columns.shape[1]), dtype=columns.dtype)
    mixed = [[_mixed(x, columns) for x in of_start] for of_start in by_start]
    for d, (scale, _) in enumerate(mixed):
        w[d] = scale if d == 0 else w[d - 1] + scale
    for d in range(len(by_start) - 1, 0, -1):
        scale, bias = mixed[d]
        drop[d - 1] = drop[d] + (scale * height + bias)
    return w.T, drop.T


def _mixed(steps: list[tuple[int, Any]], columns: np.ndarray) -> Any:
    total: Any = 0.0
    for k, step in steps:
        total = total + columns[k] * step
    return total
