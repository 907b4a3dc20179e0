"""Which tensor of a classifier's graph a calibrator belongs behind: its logits, or its probabilities.

    ... -> MatMul -> logits -> Softmax -> probabilities -> Cast -> output

The two are told apart by the node that makes the output, and only where that says nothing by the output's name. A calibrator of
logits behind a softmax takes what goes into the softmax. Whatever else does not fit is refused: a calibrator behind the wrong
tensor gives numbers that look like probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from ..errors import InputError

# They hand on the numbers they are given; the first three in the same shape.
_COPIES = ("Identity", "Cast", "Dropout")
_MOVES = (*_COPIES, "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "ZipMap")
_LINEAR = ("MatMul", "Gemm")
_CERTAIN = {
    "Softmax": "probabilities",
    "Sigmoid": "probabilities",
    "Exp": "probabilities",
    "Normalizer": "probabilities",
    "LogSoftmax": "logits",
    "Log": "logits",
}
_NAMES = (
    (re.compile(r"logit|log_?-?(prob|softmax|likelihood)|decision"), "logits"),
    (re.compile(r"prob|softmax"), "probabilities"),
)
_ADVICE = {
    "logits": "Export the classifier with its logits as the output (skl2onnx: options={'raw_scores': True}), or fit the "
    "calibrator on its probabilities with input='probabilities'. A CalibratedClassifier has a to_onnx() of its own, which takes "
    "care of this.",
    "probabilities": "Export the classifier with a softmax at its end, or fit the calibrator on its logits.",
}


def maker(graph: onnx.GraphProto, tensor: str) -> onnx.NodeProto | None:
    """The node that makes a tensor; None for an input or a constant."""
    return next((node for node in graph.node if tensor in node.output), None)


def tensor_to_calibrate(graph: onnx.GraphProto, output: str, wanted: str, rank: int, class_axis: int) -> str:
    """Name of the tensor that holds what the calibrator was fitted on: ``output``, of ``rank`` axes, or one that leads to it.

    ``wanted`` is "logits" or "probabilities"; the classes are in ``class_axis``.
    """
    held = _held(graph, output)
    if not held or wanted in held.values():
        return output
    before = _before_softmax(graph, output, rank, class_axis) if wanted == "logits" else None
    if before is not None:
        return before
    because, found = next(iter(held.items()))
    wrong_name = " If the name is wrong, rename the output." if because.startswith("by its name") else ""
    raise InputError(
        f"append_to: the output {output!r} holds {found} ({because}), but the calibrator was fitted on {wanted}. "
        f"{_ADVICE[wanted]}{wrong_name}"
    )


def _held(graph: onnx.GraphProto, output: str) -> dict[str, str]:
    """What an output holds, by the reason to think so. A node that leaves no doubt is the only reason."""
    node = next((n for n in _back(graph, output, _MOVES) if n.op_type not in _MOVES), None)
    hints = {}
    if node is not None:
        because = f"it comes from a node {node.op_type}"
        certain = _CERTAIN.get(node.op_type) or _of_classifier(node) or _of_quotient(graph, node)
        if certain:
            return {because: certain}
        if _is_linear(graph, node):
            hints[because] = "logits"
    said = next((kind for pattern, kind in _NAMES if pattern.search(output.lower())), None)
    return {**hints, f"by its name {output!r}": said} if said else hints


def _back(graph: onnx.GraphProto, tensor: str, through: tuple[str, ...]) -> Iterator[onnx.NodeProto]:
    """The nodes that lead to a tensor, last first, up to the first that is not passed through."""
    node = maker(graph, tensor)
    while node is not None:
        yield node
        node = maker(graph, node.input[0]) if node.op_type in through and node.input else None


def _of_classifier(node: onnx.NodeProto) -> str | None:
    """Scores of the classifiers of ai.onnx.ml. Of trees without a transform only the name can tell."""
    if node.op_type not in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"):
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("post_transform", b"NONE") != b"NONE" or attributes.get("prob_a"):
        return "probabilities"
    return None if node.op_type == "TreeEnsembleClassifier" else "logits"


def _of_quotient(graph: onnx.GraphProto, node: onnx.NodeProto) -> str | None:
    """A tensor divided by its own sum."""
    if node.op_type != "Div":
        return None
    total = maker(graph, node.input[1])
    by_its_sum = (
        total is not None and total.op_type in ("ReduceSum", "ReduceL1") and total.input[0] == node.input[0]
    )
    return "probabilities" if by_its_sum else None


def _is_linear(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    if node.op_type == "Add":
        parts = [maker(graph, name) for name in node.input]
        return any(part is not None and part.op_type in _LINEAR for part in parts)
    return node.op_type in _LINEAR


def _before_softmax(graph: onnx.GraphProto, output: str, rank: int, class_axis: int) -> str | None:
    """What goes into the softmax (or the sigmoids) over the classes, if nothing between it and the output changes the shape."""
    node = None
    for node in _back(graph, output, _COPIES):  # noqa: B007  the last one is wanted
        pass
    if node is None or node.op_type not in ("Softmax", "Sigmoid"):
        return None
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    same = axis == class_axis or (rank > 0 and (axis - class_axis) % rank == 0)
    return node.input[0] if same else None
