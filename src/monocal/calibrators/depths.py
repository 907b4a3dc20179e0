"""Rows as a statistic sees them: the depths of the classes below the top of their row, and a few words to work on them.

    v.depth                       v_i = z_top - z_i >= 0, of classes (..., m); 0 where a class is masked
    v.second                      the smallest depth but the top's own, of rows (..., 1); 0 where no other class is available
    v.count                       available classes
    v.sum(x), v.largest(x)        sum_i x_i and max_i |x_i| over the available classes, of rows (..., 1)
    v.sum_but_one(x)              the sum without one of the classes on top, where x is 1 on top
    v.exp  v.log  v.log1p  v.sqrt  v.at_least(x, low)  v.or_one(x), 1 where x is 0;  + - * / and abs

A statistic is a function of such rows (`statistics`). Whatever computes one implements the words once: `ArrayDepths` here for
sorted rows of numpy and torch, `portable.Depths` for exports to torch and ONNX. So no statistic is written twice.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..arrays import Array, array_namespace, count_true, device_of, row_sums
from ..core.ranked import LARGEST, Ranked, Rest

# An array, a tensor, or what stands for a tensor in a graph.
Value = Any


class Depths(Protocol):
    """What a statistic may use."""

    @property
    def depth(self) -> Value: ...
    @property
    def second(self) -> Value: ...
    @property
    def count(self) -> Value: ...
    def sum(self, x: Value) -> Value: ...
    def largest(self, x: Value) -> Value: ...
    def sum_but_one(self, x: Value) -> Value: ...
    def exp(self, x: Value) -> Value: ...
    def log(self, x: Value) -> Value: ...
    def log1p(self, x: Value) -> Value: ...
    def sqrt(self, x: Value) -> Value: ...
    def at_least(self, x: Value, low: float) -> Value: ...
    def or_one(self, x: Value) -> Value: ...


class ArrayDepths:
    """Depths (n, m) in an array of any library, infinite where a class is masked, with flags of the classes on top.

    One row of few classes is computed in microseconds, so what is known is kept without any machinery.
    """

    def __init__(self, depth: Array | None, at_top: Array | None, second: Array | None = None):
        self._depth, self._at_top, self._second = depth, at_top, second
        self._valid: Array | None = None
        self._n_top: Array | None = None
        self._total: Any = None

    @property
    def depth(self) -> Array:
        if self._depth is None:
            self._depth, self._valid = self._read()
        return self._depth

    def _read(self) -> tuple[Array, Array | None]:
        """Depths that were not given, and which of them are of available classes; None for all."""
        raise NotImplementedError(f"{type(self).__name__} must write _read, or be given the depths")

    @property
    def second(self) -> Array:
        if self._second is None:
            xp = array_namespace(self.depth)
            beyond = xp.asarray(np.inf, dtype=self.depth.dtype, **device_of(self.depth))
            n_top, lower = self.n_top, ~self.at_top
            lower = lower if self._valid is None else lower & self._valid
            least = xp.min(xp.where(lower, self.depth, beyond), axis=1, keepdims=True)
            self._second = xp.where(xp.isinf(least) | (n_top > 1), 0 * n_top, least)
        return self._second

    @property
    def at_top(self) -> Array:
        """Which classes are on top, (n, m)."""
        if self._at_top is None:
            at_top = self.depth == 0
            self._at_top = at_top if self._valid is None else at_top & self._valid
        return self._at_top

    @property
    def n_top(self) -> Array:
        """How many are, (n, 1)."""
        if self._n_top is None:
            self._n_top = self._counted(self.at_top)
        return self._n_top

    @property
    def count(self) -> Array | float:
        m = float(self.depth.shape[1])
        return m if self._valid is None else self._counted(self._valid)

    def sum(self, x: Array) -> Array:
        if x is self._depth:  # which several statistics need
            if self._total is None:
                self._total = row_sums(self._available(x))
            total: Array = self._total
        else:
            total = row_sums(self._available(x))
        return total

    def largest(self, x: Array) -> Array:
        size: Any = abs(self._available(x))
        if type(size) is np.ndarray:  # the short way, for the many small calls
            return np.maximum.reduce(size, axis=1, keepdims=True)
        return array_namespace(x).max(size, axis=1, keepdims=True)

    def sum_but_one(self, x: Array) -> Array:
        n_top = self.n_top
        return self.sum(array_namespace(x).where(self.at_top, 0 * n_top, x)) + (n_top - 1.0)

    def exp(self, x: Array) -> Array:
        return array_namespace(x).exp(x)

    def log(self, x: Array) -> Array:
        return array_namespace(x).log(x)

    def log1p(self, x: Array) -> Array:
        return array_namespace(x).log1p(x)

    def sqrt(self, x: Array) -> Array:
        return array_namespace(x).sqrt(x)

    def at_least(self, x: Array, low: float) -> Array:
        return array_namespace(x).clip(x, min=low)

    def or_one(self, x: Array) -> Array:
        return x + (x == 0)

    def _available(self, x: Array) -> Array:
        return x if self._valid is None else array_namespace(x).where(self._valid, x, 0 * x[:, :1])

    def _counted(self, flags: Array) -> Array:
        return array_namespace(flags).astype(count_true(flags), self.depth.dtype)[:, None]


class RankedDepths(ArrayDepths):
    """Depths of sorted rows. The classes of a tail count too; they are read only where a statistic asks for them.

    A rest of which the number and the common depth are known is a last column that counts as so many.
    """

    def __init__(self, rows: Ranked):
        self._rows = rows
        self._rest = None if rows.tail is None else rows.tail.rest
        second = None
        if rows.depth.shape[1] >= 2:
            second = rows.depth[:, -2:-1]
            if rows.valid is not None:
                second = array_namespace(second).where(rows.valid[:, -2:-1], second, 0 * second)
        super().__init__(None, None, second)

    def _read(self) -> tuple[Array, Array | None]:
        rows, tail = self._rows, self._rows.tail
        depth, valid = rows.depth, rows.valid
        if tail is not None and tail.logits is not None:
            xp = array_namespace(depth)
            with np.errstate(over="ignore"):
                depth = rows.top - xp.astype(tail.logits, depth.dtype, copy=False)
            depth = xp.clip(depth, max=LARGEST)
            valid = ~xp.isinf(tail.logits) if tail.masked else None
        if valid is not None:
            depth = array_namespace(depth).where(valid, depth, 0 * rows.height[:, None])
        if self._rest is not None:
            named = np.ones(depth.shape, dtype=bool) if valid is None else valid
            valid = np.concatenate([named, self._rest.count[:, None] > 0], axis=1)
            depth = np.concatenate([depth, self._rest.depth[:, None]], axis=1)
        return depth, valid

    def sum(self, x: Array) -> Array:
        total = super().sum(x)
        return total if self._rest is None else total + self._behind(self._available(x), self._rest)

    def _counted(self, flags: Array) -> Array:
        counted = super()._counted(flags)
        return counted if self._rest is None else counted + self._behind(flags, self._rest)

    @staticmethod
    def _behind(x: Array, rest: Rest) -> Array:
        """What the classes that stand behind the last column add, beside the one it is."""
        more: Array = np.maximum(rest.count[:, None] - 1.0, 0.0) * x[:, -1:]
        return more
