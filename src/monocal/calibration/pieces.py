"""The pieces of a rank map: where its weights and biases jump, and what they are in a row.

    w_d = sum over starts up to d of  sum_k psi_k(z) scale_steps_kd,        b_d likewise of bias_steps

Increments are non-negative and so are the factors ``psi``, so weights and biases never fall as the rank rises, whatever the
rounding: they are running sums of non-negative numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..arrays import Array, array_namespace, like, on_host, running_maximum
from ..kernel import compiled
from ..ranks.ranked import Ranked
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
    def kinds(self) -> tuple[bool, bool]:
        """Whether some weight jumps, and whether there is a bias."""
        return bool(self.scale_steps[:, 1:].any()), bool(self.bias_steps.any())

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
        """Weight and bias of each piece, (n, D), or (1, D) where all rows have the same."""
        factors = self.in_use.factors
        return self.cumulated(None if factors is None else factors(rows), rows.depth)

    def cumulated(self, psi: Array | None, other: Array) -> tuple[Any, Any]:
        """The same from the factors (n, K), in the library and type of ``other``."""
        if type(other) is not np.ndarray:
            steps = self._steps_like(other)
            w, b = (array_namespace(other).cumulative_sum(_mix(psi, *x), axis=1) for x in steps)
            if not on_host(other):  # a device sums in parallel, in an order of its own
                w, b = running_maximum(w), running_maximum(b)
            return w, b
        tables = self._tables_of(other.dtype)
        if psi is None:
            return tables.shared
        if len(psi) <= FEW:  # the same sums, in fewer calls
            mixed = np.add.accumulate(np.asarray(psi)[:, None, :, None] * tables.steps, axis=2)[:, :, -1]
            both = np.add.accumulate(mixed, axis=2)
            return both[:, 0], both[:, 1]
        columns = np.ascontiguousarray(np.asarray(psi).T)
        w, b = (_running_sums(x, columns) for x in tables.by_start)
        return w, b

    def lengths(self, n_ranks: int) -> np.ndarray:
        """Ranks of each piece, of so many in all."""
        if n_ranks not in self._kept:
            self._kept[n_ranks] = np.diff(self.starts, append=n_ranks)
        known: np.ndarray = self._kept[n_ranks]
        return known

    def by_rank(self, dtype: Any, n_ranks: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases (1, r) of each rank, where all rows have the same."""
        key = dtype, n_ranks
        if key not in self._kept:
            w, b = (np.repeat(x, self.lengths(n_ranks), axis=1) for x in self._tables_of(dtype).shared)
            self._kept[key] = w, b
        known: tuple[np.ndarray, np.ndarray] = self._kept[key]
        return known

    def _tables_of(self, dtype: Any) -> _Tables:
        if dtype not in self._kept:
            of_both = [x.astype(dtype) for x in (self.in_use.scale_steps, self.in_use.bias_steps)]
            by_start = [
                [[(int(k), x[k, d]) for k in np.flatnonzero(x[:, d])] for d in range(x.shape[1])]
                for x in of_both
            ]
            w, b = (np.cumsum(x[:1], axis=1) for x in of_both)
            self._kept[dtype] = _Tables((w, b), np.stack(of_both), by_start)
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

    shared: tuple[np.ndarray, np.ndarray]  # weights and biases (1, D) of the constant factor
    steps: np.ndarray  # (2, K, D), of weights and of biases
    by_start: list[
        list[list[tuple[int, Any]]]
    ]  # the same: at each start the factors with increments there, and these


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


def _running_sums(steps: list[list[tuple[int, Any]]], columns: np.ndarray) -> np.ndarray:
    """Sums (n, D) of increments up to each start; few of the factors (K, n) have increments at any one start."""
    out = np.empty((len(steps), columns.shape[1]), dtype=columns.dtype)
    for d, of_start in enumerate(steps):
        total: Any = 0.0
        for k, step in of_start:
            total = total + columns[k] * step
        out[d] = total if d == 0 else out[d - 1] + total
    return out.T
