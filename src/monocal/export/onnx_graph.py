"""A graph of ONNX being written: its nodes and constants, by the names of their tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Graph:
    """Nodes and constants being collected; tensors are known by their names."""

    def __init__(self, opset: int, dtype: str, prefix: str = ""):
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._known: dict[tuple[Any, ...], str] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        number = len(self.nodes)
        names = [f"{self.prefix}{kind}_{number}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=f"{self.prefix}node_{number}", **attributes)
        )
        return names if outputs > 1 else names[0]

    def constant(self, values: Any, dtype: Any = None, exactly: bool = False) -> str:
        array = values if exactly else np.asarray(values, dtype=dtype or self.dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"{self.prefix}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, values: Any) -> str:
        return self.constant(values, np.int64)

    def cast(self, x: str, dtype: Any) -> str:
        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reduce(self, kind: str, x: str) -> str:
        """Over the last axis, which stays. The axis became an input with operator set 18 (sums: 13).

        onnxruntime leaves the shape of a tensor without rows as it was, so its first column is taken.
        """
        if self.opset < 18 and kind != "Sum":
            return self.columns(self.op(f"Reduce{kind}", x, axes=[-1], keepdims=1), 0, 1)
        return self.columns(self.op(f"Reduce{kind}", x, self.integers([-1]), keepdims=1), 0, 1)

    def columns(self, x: str, begin: int, end: int) -> str:
        return self.op(
            "Slice", x, self.integers([begin]), self.integers([end]), self.integers([-1]), self.integers([1])
        )

    def running_sum(self, x: str, exclusive: bool = False) -> str:
        return self.op("CumSum", x, self.integers(-1), exclusive=int(exclusive))

    def take(self, x: str, index: str) -> str:
        return self.op("GatherElements", x, index, axis=-1)

    def rename(self, old: str, new: str) -> None:
        """Give the output of the last node its public name."""
        assert list(self.nodes[-1].output) == [old]
        self.nodes[-1].output[0] = new
