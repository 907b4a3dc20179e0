"""The words of statistics (`calibration.depths`) in operators of ONNX.

All is in double precision: a runtime's sums are not compensated, and an entropy near 0 is a small difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .onnx_graph import Graph


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph, known by its name, with the signs of arithmetic."""

    g: Graph
    name: str

    def op(self, kind: str, *others: Tensor | float) -> Tensor:
        names = [o.name if isinstance(o, Tensor) else self.g.constant(o, np.float64) for o in others]
        return Tensor(self.g, self.g.op(kind, self.name, *names))

    def __add__(self, other: Tensor | float) -> Tensor:
        return self.op("Add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self.op("Sub", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self.op("Mul", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self.op("Div", other)

    def __neg__(self) -> Tensor:
        return self.op("Neg")

    def __abs__(self) -> Tensor:
        return self.op("Abs")

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Tensor:
        return -self + other

    def __rtruediv__(self, other: float) -> Tensor:
        return self.op("Reciprocal") * other


class OnnxDepths:
    """Depths (..., m) by the name of their tensor, 0 where a class is ``masked``, with flags of the classes on top."""

    def __init__(self, g: Graph, depth: str, at_top: str, masked: str):
        self._g, self._masked, self._at_top = g, masked, at_top
        self.depth = self._double(depth)

    def _double(self, x: str) -> Tensor:
        return Tensor(self._g, self._g.cast(x, np.float64))

    def _reduced(self, kind: str, x: Tensor) -> Tensor:
        return Tensor(self._g, self._g.reduce(kind, x.name))

    def _where(self, flags: str, x: Tensor | float, other: Tensor | float) -> Tensor:
        return Tensor(self._g, flags).op("Where", x, other)

    @cached_property
    def _available(self) -> Tensor:
        return self._double(self._g.op("Not", self._masked))

    @cached_property
    def _lower(self) -> str:
        lower: str = self._g.op("Not", self._g.op("Or", self._at_top, self._masked))
        return lower

    @cached_property
    def _n_top(self) -> Tensor:
        return self._reduced("Sum", self._double(self._at_top))

    @cached_property
    def count(self) -> Tensor:
        return self._reduced("Sum", self._available)

    @cached_property
    def second(self) -> Tensor:
        least = self._reduced("Min", self._where(self._lower, self.depth, np.inf))
        shared = self._n_top.op("Greater", 1.0)
        none = self._g.op("Or", self._g.op("IsInf", least.name), shared.name)
        return self._where(none, 0.0, least)

    def sum(self, x: Tensor) -> Tensor:
        return self._reduced("Sum", x * self._available)

    def largest(self, x: Tensor) -> Tensor:
        return self._reduced("Max", abs(x) * self._available)

    def sum_but_one(self, x: Tensor) -> Tensor:
        return self._reduced("Sum", self._where(self._lower, x, 0.0)) + (self._n_top - 1.0)

    def exp(self, x: Tensor) -> Tensor:
        return x.op("Exp")

    def log(self, x: Tensor) -> Tensor:
        return x.op("Log")

    def log1p(self, x: Tensor) -> Tensor:
        return (x + 1.0).op("Log")

    def sqrt(self, x: Tensor) -> Tensor:
        return x.op("Sqrt")

    def at_least(self, x: Tensor, low: float) -> Tensor:
        return x.op("Max", low)

    def or_one(self, x: Tensor) -> Tensor:
        return self._where(x.op("Equal", 0.0).name, 1.0, x)
