"""An ensemble of calibrated classifiers as one ONNX model: all members on the same input, and their mean.

    p = 1/K sum_k p^(k) S_k

where S_k puts the columns of the classes that member k has seen in their places among all, zeros elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import compose, helper

from .onnx_graph import Graph


def mean_graph(
    members: Sequence[onnx.ModelProto],
    places: Sequence[np.ndarray],
    n_classes: int,
    *,
    output: str,
    dtype: str,
    opset: int,
) -> onnx.ModelProto:
    """One model whose output is the mean of the members' ``probabilities``, or its logarithm.

    ``places`` says which of all classes the columns of each member are.
    """
    merged = onnx.ModelProto()
    merged.CopyFrom(members[0])
    for field in (merged.graph.node, merged.graph.initializer, merged.graph.output, merged.graph.value_info):
        del field[:]
    g = Graph(opset, dtype, prefix="mean/")
    total = ""
    for number, (member, place) in enumerate(zip(members, places, strict=True)):
        prefix = f"member_{number}/"
        part = compose.add_prefix_graph(member.graph, prefix, rename_inputs=False)
        merged.graph.node.extend(part.node)
        merged.graph.initializer.extend(part.initializer)
        p = f"{prefix}probabilities"
        if len(place) < n_classes:
            p = g.op("MatMul", p, g.constant(np.eye(n_classes)[place]))
        total = p if number == 0 else g.op("Add", total, p)
    mean = g.op("Div", total, g.constant(float(len(members))))
    name = "probabilities"
    if output == "logits":
        mean, name = g.op("Log", mean), "calibrated_logits"
    g.rename(mean, name)
    merged.graph.node.extend(g.nodes)
    merged.graph.initializer.extend(g.constants)
    kind = helper.np_dtype_to_tensor_dtype(g.dtype)
    merged.graph.output.append(helper.make_tensor_value_info(name, kind, [None, n_classes]))
    return merged
