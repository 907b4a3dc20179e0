"""The portable map (`core.map`) as nodes of an ONNX graph: traced with ndonnx, whose arrays are tensors of a graph.

    x (n, m), context (n, C)  ->  apply(x, ..., GRAPH)  ->  nodes of operator set 21  ->  the operator set that is asked for

ndonnx has the standard's semantics in full (NaN in a maximum, dtypes that mix), which costs nodes. The functions that the map
calls often are single operators here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ndonnx
import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v21 as op
from onnx import helper, numpy_helper

from ..core.libraries import Functions
from ..core.map import FittedMap, apply, steps_as
from ..errors import InputError

_TRACED = 21
# Attributes of later operator sets, at their defaults, which the converter leaves in place.
_LATER = ("saturate", "noop_with_empty_axes")


def _var(x: Any) -> spox.Var:
    return x.unwrap_spox()


def _operator(function: Callable[..., Any], **attributes: Any) -> Callable[..., Any]:
    """An operator of arrays."""
    return lambda *arrays: ndonnx.asarray(function(*map(_var, arrays), **attributes))


def _constant(value: float, like: Any) -> spox.Var:
    return op.const(np.asarray(value, dtype=like.dtype.unwrap_numpy()))


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, axis: int, keepdims: bool = False) -> Any:
        return ndonnx.asarray(function(_var(x), op.const(np.array([axis])), keepdims=int(keepdims)))

    return reduced


def _clip(x: Any, min: float | None = None, max: float | None = None) -> Any:
    bounded = _var(x)
    if min is not None:
        bounded = op.max([bounded, _constant(min, x)])
    if max is not None:
        bounded = op.min([bounded, _constant(max, x)])
    return ndonnx.asarray(bounded)


def _shifted(x: Any, k: int) -> Any:
    places = np.maximum(np.arange(x.shape[0]) - k, 0)
    places[:k] = np.arange(min(k, len(places)))
    return ndonnx.asarray(op.gather(_var(x), op.const(places), axis=0))


def _largest(z: Any, k: int) -> tuple[Any, Any]:
    values, index = op.top_k(_var(z), op.const(np.array([k])), axis=1)
    return ndonnx.asarray(values), ndonnx.asarray(index)


# onnxruntime takes Exp and Log of doubles in packets, and of what is left over one by one, which rounds otherwise: equal classes
# would no longer be equal. Powers, and sums of one term, it takes one by one throughout.
def _exp(x: Any) -> Any:
    return _operator(op.exp)(x) if x.dtype != ndonnx.float64 else np.e**x


def _log(x: Any) -> Any:
    if x.dtype != ndonnx.float64:
        return _operator(op.log)(x)
    x, last = _var(x), op.const(np.array([-1]))
    logs = op.reduce_log_sum(op.unsqueeze(x, last), last)
    return ndonnx.asarray(op.reshape(logs, op.shape(x), allowzero=1))  # of no rows it has another shape


GRAPH = Functions(
    ndonnx,
    exp=_exp,
    log=_log,
    where=_operator(op.where),
    sum=_reduction(op.reduce_sum),
    max=_reduction(op.reduce_max),
    min=_reduction(op.reduce_min),
    clip=_clip,
    matmul=_operator(op.matmul),
    minimum=_operator(lambda *x: op.min(x)),
    maximum=_operator(lambda *x: op.max(x)),
    take=lambda x, index, axis: _operator(op.gather, axis=axis)(x, index),
    take_along_axis=lambda x, index, axis: _operator(op.gather_elements, axis=axis)(x, index),
    cumulative_sum=lambda x, axis: ndonnx.asarray(op.cumsum(_var(x), op.const(np.int64(axis)))),
    astype=lambda x, dtype, copy=True: (
        x if x.dtype == dtype else _operator(op.cast, to=dtype.unwrap_numpy())(x)
    ),
    log1p=lambda x: _operator(op.log)(x + 1.0),
    scalar_like=lambda x, value: ndonnx.asarray(_constant(value, x)),
    largest_of_rows=_largest,
    scatter_in_rows=_operator(op.scatter_elements, axis=1),
    scatter_add=_operator(op.scatter_elements, axis=0, reduction="add"),
    row=lambda x, i: ndonnx.asarray(op.gather(_var(x), op.const(np.int64(i)), axis=0)),
    shifted=_shifted,
)


def calibrated(graph: Any, fitted: FittedMap, source: str, output: str, context: str = "") -> str:
    """Add the map of rows ``source`` (n, m) and, where there is one, ``context`` (n, C) to a graph; the name of its result."""
    traced = _traced(fitted, graph.dtype, output, graph.opset)
    prefix = f"{graph.prefix}map/"
    names = {"rows": source, "context": context}

    def name(tensor: str) -> str:
        return names.get(tensor, prefix + tensor) if tensor else tensor

    for tensor in traced.initializer:
        names[tensor.name] = graph.constant(numpy_helper.to_array(tensor), exactly=True)
    for node in traced.node:
        if node.op_type == "Constant":
            names[node.output[0]] = graph.constant(numpy_helper.to_array(node.attribute[0].t), exactly=True)
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        copy.input[:], copy.output[:] = map(name, node.input), map(name, node.output)
        graph.nodes.append(copy)
    return name("result")


def _traced(fitted: FittedMap, dtype: np.dtype[Any], output: str, opset: int) -> onnx.GraphProto:
    """The map as a graph of its own, from ``rows`` and ``context`` to ``result``."""
    for function in fitted.functions:
        raise InputError(
            f"{fitted.name} uses the statistic {getattr(function, '__name__', function)!r}, a Python function, which "
            "ONNX cannot hold. Fit with the built-in statistics, or use to_torch()."
        )
    inputs = {"rows": spox.argument(spox.Tensor(dtype, ("n", fitted.n_classes)))}
    context = None
    if fitted.n_context:
        inputs["context"] = spox.argument(spox.Tensor(np.float64, ("n", fitted.n_context)))
        context = ndonnx.asarray(inputs["context"])
    steps = steps_as(fitted.steps, ndonnx.asarray, dtype)
    result = apply(
        ndonnx.asarray(inputs["rows"]),
        steps,
        GRAPH,
        output,
        smallest_probability=fitted.smallest_probability,
        context=context,
    )
    model = spox.build(inputs, {"result": _var(result)}, drop_unused_inputs=True)
    if opset != _TRACED:
        for node in model.graph.node:
            kept = [a for a in node.attribute if a.name not in _LATER]
            del node.attribute[:]
            node.attribute.extend(kept)
        model = onnx.version_converter.convert_version(model, opset)
    assert helper.make_opsetid("", opset) in model.opset_import
    graph: onnx.GraphProto = model.graph
    return graph


class Graph:
    """Nodes and constants of a graph; a tensor is the name of what makes it."""

    def __init__(self, opset: int, dtype: str, prefix: str = ""):
        self.opset = opset
        self.dtype = np.dtype(dtype)
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._constant_names: dict[tuple[Any, ...], str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        number = len(self.nodes)
        result, name = f"{self.prefix}{kind}_{number}", f"{self.prefix}node_{number}"
        self.nodes.append(helper.make_node(kind, inputs, [result], name=name, **attributes))
        return result

    def constant(self, values: Any, dtype: Any = None, exactly: bool = False) -> str:
        array = values if exactly else np.asarray(values, dtype=dtype or self.dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constant_names:
            self._constant_names[key] = f"{self.prefix}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, self._constant_names[key]))
        return self._constant_names[key]

    def integers(self, values: Any) -> str:
        return self.constant(values, np.int64)

    def cast(self, x: str, dtype: Any) -> str:
        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def rename(self, old: str, new: str) -> None:
        """Give the output of the last node its public name."""
        assert list(self.nodes[-1].output) == [old]
        self.nodes[-1].output[0] = new
