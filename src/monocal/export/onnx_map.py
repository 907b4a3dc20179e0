"""The portable map (`core.map`) as an ONNX graph: traced with ndonnx, whose arrays are tensors of a graph.

    x (n, m), context (n, C)  ->  apply(x, ..., GRAPH)  ->  operator set 21  ->  the operator set that is asked for

Where ndonnx takes several nodes (NaN in a maximum, empty matrices), or lacks a function, there is a single operator here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ndonnx
import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v21 as op
from onnx import TensorProto

from ..core.libraries import Functions
from ..core.map import FittedMap, apply, steps_as
from ..errors import InputError

OPSET = 17
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
# ndonnx traces in this operator set.
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
    graph=True,
    exp=_exp,
    log=_log,
    max=_reduction(op.reduce_max),
    min=_reduction(op.reduce_min),
    matmul=_operator(op.matmul),
    log1p=lambda x: _operator(op.log)(x + 1.0),
    filled=lambda x, value: ndonnx.asarray(_constant(value, x)),
    largest_of_rows=_largest,
    scatter_in_rows=_operator(op.scatter_elements, axis=1),
    scatter_add=_operator(op.scatter_elements, axis=0, reduction="add"),
    row=lambda x, i: ndonnx.asarray(op.gather(_var(x), op.const(np.int64(i)), axis=0)),
    shifted=_shifted,
)


def mapped(fitted: FittedMap, rows: spox.Var, context: spox.Var | None, output: str, dtype: str) -> spox.Var:
    """The map of rows (n, m) and, where there is one, their context (n, C)."""
    if fitted.functions:
        raise InputError(
            f"{fitted.name} uses a statistic that is a Python function, which ONNX cannot hold. Fit with the built-in "
            "statistics, or use to_torch()."
        )
    result = apply(
        ndonnx.asarray(rows),
        steps_as(fitted.steps, ndonnx.asarray, np.dtype(dtype)),
        GRAPH,
        output,
        smallest_probability=fitted.smallest_probability,
        context=None if context is None else ndonnx.asarray(context),
    )
    return _var(result)


def mapped_along(
    fitted: FittedMap, x: spox.Var, context: spox.Var | None, output: str, dtype: str, ndim: int
) -> spox.Var:
    """The map along the axis of the classes of a tensor with ``ndim`` axes.

    ``(..., m, ...) -> (L, m, R) -> (L, R, m) -> (L R, m)`` and back, L and R the products of the axes before and after.
    """
    m, axis = fitted.n_classes, fitted.class_axis
    axis = -1 if axis == ndim - 1 else axis
    if ndim == 2 and axis == -1:
        return mapped(fitted, x, context, output, dtype)
    if fitted.of_scores:
        column = op.reshape(x, op.const(np.array([-1, 1])))
        return op.gather(mapped(fitted, column, context, output, dtype), op.const(np.int64(-1)), axis=1)
    last = x
    if axis != -1:
        parts = op.reshape(op.flatten(x, axis=axis), op.const(np.array([0, m, -1])))
        last = op.transpose(parts, perm=[0, 2, 1])
    rows = op.reshape(last, op.const(np.array([-1, m])))
    if context is not None:
        context = op.reshape(context, op.const(np.array([-1, fitted.n_context])))
    result = op.reshape(mapped(fitted, rows, context, output, dtype), op.shape(last))
    return result if axis == -1 else op.reshape(op.transpose(result, perm=[0, 2, 1]), op.shape(x))


def built(inputs: Mapping[str, spox.Var], outputs: Mapping[str, spox.Var], opset: int) -> onnx.ModelProto:
    """A model in an operator set, its constants as initializers."""
    model = spox.build(dict(inputs), dict(outputs))
    if opset != _TRACED:
        for node in model.graph.node:
            kept = [a for a in node.attribute if a.name not in _LATER]
            del node.attribute[:]
            node.attribute.extend(kept)
        model = onnx.version_converter.convert_version(model, opset)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "Constant":
            tensor = node.attribute[0].t
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
        else:
            model.graph.node.append(node)
    onnx.checker.check_model(model)
    return model
