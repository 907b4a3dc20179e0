"""The label of a calibrated classifier in ONNX: the name of the most probable class, whatever the classes are called.

    label = classes[argmax_j p_j]

The estimator's own label would do only where the calibrator keeps the order, the estimator knows the names of the classes, and
there is one estimator.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..errors import InputError
from .onnx_graph import Graph


def with_labels(model: onnx.ModelProto, scores: str, classes: np.ndarray, opset: int) -> onnx.ModelProto:
    """The model with an output ``label``, its first, read off the output ``scores``. Changes the model itself."""
    names = _tensor(classes, "label/classes")
    g = Graph(opset, "float32", prefix="label/")
    best = g.op("ArgMax", scores, axis=-1, keepdims=0)
    g.rename(g.op("Gather", names.name, best), "label")
    graph = model.graph
    outputs = [output for output in graph.output if output.name != "label"]
    rename(graph, "label", "uncalibrated_label")
    graph.node.extend(g.nodes)
    graph.initializer.append(names)
    del graph.output[:]
    graph.output.extend([helper.make_tensor_value_info("label", names.data_type, [None]), *outputs])
    return model


def rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Give a tensor inside another name."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]


def _tensor(classes: np.ndarray, name: str) -> onnx.TensorProto:
    if all(isinstance(one, str) for one in classes.tolist()):
        return helper.make_tensor(
            name, TensorProto.STRING, classes.shape, [c.encode() for c in classes.tolist()]
        )
    if classes.dtype.kind in "iub":
        return numpy_helper.from_array(classes.astype(np.int64), name)
    if classes.dtype.kind == "f":
        return numpy_helper.from_array(classes.astype(np.float64), name)
    raise InputError(
        f"to_onnx: ONNX holds labels that are text or numbers, but {classes[0]!r} is neither. Fit on text or numbers."
    )
