"""A calibrator as an ONNX model, alone or at the end of a classifier.

The map itself, in standard operators, is in `export.onnx_map`; here it gets inputs, outputs and names. At the end of a
classifier it takes the place of the output that it calibrates, behind the tensor that `_tensor_to_calibrate` names: logits and
probabilities are never mixed.
"""

from __future__ import annotations

import json
import os
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import spox
from onnx import TensorProto, compose, helper

from .. import __version__
from ..core.map import FittedMap, map_of
from ..errors import InputError, wording
from ..inputs.validation import check_choice
from ..io import atomic_path
from .onnx_map import OPSET, TYPES, built, mapped_along

_FLOATING = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_Shape = list[str | int]


def to_onnx(
    calibrator: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    append_to: Any = None,
    tensor: str | None = None,
    output: str = "probabilities",
    dtype: str = "float32",
    ndim: int | None = None,
    force: bool = False,
) -> onnx.ModelProto:
    """The calibrator as an ONNX model, or a classifier's ONNX model with the calibrator at its end.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted; a rank map, an affine map such as `VectorScaling` or `StructuredScaling`, a calibrator of one score or of many
        labels, or a sequence of these (`Stacked`, `StructuredMCCT`, `LabelShift`). Fitted with context, it takes a second input
        ``context``: what ``calibrator.context_.codes(context)`` gives, (..., C) in double precision.
    path : path, optional
        Where to write the model as well.
    append_to : onnx.ModelProto or path, optional
        A classifier whose output is calibrated in place; its other outputs stay. Not changed itself. Behind a softmax, a
        calibrator of logits takes the softmax's input; logits and probabilities are never mixed.
    tensor : str, optional
        Name of the classifier's output to calibrate; not needed where only one is a floating-point tensor.
    output : {"probabilities", "logits"}
        What the graph gives: calibrated probabilities, or the calibrated logits they are the softmax of.
    dtype : {"float32", "float64"}
        Type of the graph alone. Appended, it takes the classifier's type (half precision is computed in float32).
    ndim : int, optional
        How many axes the input of the graph alone has: 4 for (N, C, H, W), with the classes in ``calibrator.class_axis``; 1 for
        one score per row, which gives P(class 1). By default two, where the classes are last.
    force : bool
        Replace an existing file.

    Notes
    -----
    A classifier whose graph rounds a tie otherwise than the original, such as a random forest, may get another class first
    there; `monocal.evaluate` says whether many rows have such ties (``near_ties``).

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> model = mc.MCCT().fit(data.values, data.labels).to_onnx("cal.onnx")  # needs onnx
    >>> [value.name for value in model.graph.output]
    ['probabilities']
    """
    fitted = map_of(calibrator)
    check_choice(output, "output", ("probabilities", "logits"))
    check_choice(dtype, "dtype", tuple(TYPES))
    if ndim == 1:
        fitted = fitted.of_one_score() or fitted
    if append_to is None:
        model = _alone(fitted, output, dtype, _shape(fitted, ndim))
    elif ndim is None:
        model = _appended(fitted, append_to, tensor, output)
    else:
        raise InputError(
            "ndim is for a graph alone: behind a classifier it is that of the classifier's output."
        )
    properties = {"monocal_version": __version__, "monocal_calibrator": fitted.name}
    if fitted.classes is not None:
        properties["monocal_classes"] = json.dumps(fitted.classes)
    helper.set_model_props(model, {p.key: p.value for p in model.metadata_props} | properties)
    return written(model, path, force)


def written(model: onnx.ModelProto, path: str | os.PathLike[str] | None, force: bool) -> onnx.ModelProto:
    """The model, which is saved too where there is a path."""
    if path is not None:
        with atomic_path(path, force=force) as temporary:
            onnx.save(model, os.fspath(temporary))
    return model


def _shape(fitted: FittedMap, ndim: int | None) -> _Shape:
    """The shape of the input of a graph alone."""
    m, axis = fitted.n_classes, fitted.class_axis
    if ndim is None and axis != -1:
        raise InputError(
            f"ndim: the calibrator has class_axis={axis}, so say how many axes the graph's input has: {wording('ndim=', 4)} for "
            "(N, C, H, W)."
        )
    if fitted.of_scores and m == ndim == 1:
        return ["batch"]
    axes = 2 if ndim is None else ndim
    if not isinstance(axes, int) or axes < 2 or not -axes <= axis < axes or (fitted.of_scores and axes > 2):
        raise InputError(
            f"ndim: {axes!r} is no number of axes that the input of a {fitted.name} with class_axis={axis} can have."
        )
    return _sides(axes, axis, m)


def _sides(axes: int, class_axis: int, n_classes: int) -> _Shape:
    """A shape of names of axes and the number of classes."""
    shape: _Shape = ["batch", *(f"axis_{i}" for i in range(1, axes))]
    shape[class_axis] = n_classes
    return shape


def _alone(fitted: FittedMap, output: str, dtype: str, shape: _Shape) -> onnx.ModelProto:
    source = fitted.input
    result = output if output != source else f"calibrated_{output}"
    model = _traced(fitted, (source, "context", result), output, dtype, shape, OPSET)
    if fitted.of_scores and len(shape) == 2:
        shape = [shape[0], fitted.width(output)]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(result, TYPES[dtype], shape))
    model.graph.name, model.ir_version = f"monocal_{fitted.name}", 8
    model.producer_name, model.producer_version = "monocal", __version__
    return model


def _traced(
    fitted: FittedMap, names: tuple[str, str, str], output: str, dtype: str, shape: _Shape, opset: int
) -> onnx.ModelProto:
    """The calibrator as a model with these names of its input, its context and its result."""
    source, context, result = names
    inputs = {source: spox.argument(spox.Tensor(np.dtype(dtype), tuple(shape)))}
    if fitted.n_context:
        # In double precision whatever the logits are: a time, say, is large compared with its differences.
        others = [side for i, side in enumerate(shape) if i != fitted.class_axis % len(shape)] or shape
        inputs[context] = spox.argument(spox.Tensor(np.float64, (*others, fitted.n_context)))
    x = mapped_along(fitted, inputs[source], inputs.get(context), output, dtype, len(shape))
    return built(inputs, {result: x}, opset)


# At the end of a classifier


def _appended(fitted: FittedMap, classifier: Any, tensor: str | None, output: str) -> onnx.ModelProto:
    model = upgraded(_read(classifier))
    opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    graph = model.graph
    target = _output_to_calibrate(graph, tensor)
    last = _maker(graph, target.name)
    mapping = last if last is not None and last.op_type == "ZipMap" else None
    shape = _shape_of_output(fitted, target, mapping)
    kind = target.type.tensor_type.elem_type
    dtype = "float64" if kind == TensorProto.DOUBLE else "float32"
    scores = target.name if mapping is None else mapping.input[0]
    source = _tensor_to_calibrate(graph, scores, fitted.input, len(shape), fitted.class_axis)
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    taken.update(name for node in graph.node for name in node.output)
    prefix = f"monocal_{len(graph.node)}/"
    if source != target.name or kind != TYPES[dtype]:
        graph.node.append(helper.make_node("Cast", [source], [f"{prefix}cast"], to=TYPES[dtype]))
        source = f"{prefix}cast"
    result = next(n for n in (output, f"calibrated_{output}", f"{prefix}{output}") if n not in taken)
    context = "context" if "context" not in taken else f"{prefix}context"
    own = _traced(fitted, (source, context, result), output, dtype, shape, opset).graph
    own = compose.add_prefix_graph(own, prefix, rename_inputs=False, rename_outputs=False)
    graph.node.extend(own.node)
    graph.initializer.extend(own.initializer)
    graph.input.extend(own.input[1:])
    if mapping is not None:  # it comes after the tensor that it takes now
        graph.node.remove(mapping)
        graph.node.append(mapping)
        graph.node[-1].input[0] = result
    else:
        value = helper.make_tensor_value_info(result, TYPES[dtype], None)
        value.type.tensor_type.shape.CopyFrom(target.type.tensor_type.shape)
        if shape != ["batch"]:
            value.type.tensor_type.shape.dim[fitted.class_axis].dim_value = fitted.width(output)
        target.CopyFrom(value)
    onnx.checker.check_model(model)
    return model


def _shape_of_output(fitted: FittedMap, target: Any, mapping: Any) -> _Shape:
    """The shape of the output to calibrate, checked."""
    m, axis = fitted.n_classes, fitted.class_axis
    dims = target.type.tensor_type.shape.dim
    shape: _Shape = [dim.dim_value or f"axis_{i}" for i, dim in enumerate(dims)]
    if mapping is not None:  # of each row, a mapping from the names of the columns of a tensor
        shape = ["batch", max(len(a.ints) + len(a.strings) for a in mapping.attribute)]
    if not -len(shape) <= axis < len(shape):
        raise InputError(
            f"append_to: the output {target.name!r} has {len(shape)} axes, but the calibrator has class_axis={axis}: set it to "
            "the axis of the classes, and export the classifier with the shape of its output."
        )
    if fitted.of_scores and m == len(shape) == 1:
        return ["batch"]
    if shape[axis] != m and not isinstance(shape[axis], str):
        raise InputError(
            f"append_to: the output {target.name!r} has {shape[axis]} columns, but the calibrator was fitted on {m} classes "
            f"(class_axis={axis}). Fit it on the outputs of this model."
        )
    return _sides(len(shape), axis, m)


def _read(classifier: Any, *, external: bool = True) -> onnx.ModelProto:
    if isinstance(classifier, onnx.ModelProto):
        return deepcopy(classifier)
    if not isinstance(classifier, (str, os.PathLike)):
        raise InputError(
            f"append_to must be an ONNX model or a path to one, got {type(classifier).__name__}."
        )
    if not Path(classifier).is_file():
        raise InputError(f"append_to: there is no file {os.fspath(classifier)!r}.")
    try:
        return onnx.load(os.fspath(classifier), load_external_data=external)
    except Exception as error:  # the parser and the system raise errors of many kinds
        raise InputError(
            f"append_to: {os.fspath(classifier)!r} cannot be read as an ONNX model ({error})."
        ) from error


def external_files(path: Path) -> list[Path]:
    """The files in which a model keeps its weights apart from itself."""
    weights = _read(path, external=False).graph.initializer
    names = (entry.value for tensor in weights for entry in tensor.external_data if entry.key == "location")
    return [path.parent / name for name in dict.fromkeys(names)]


def upgraded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the operator set of the map, or in a later one that it has already."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset >= OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # the converter has an error for each way of failing
        raise InputError(
            f"append_to: the model uses operator set {opset} and cannot be raised to {OPSET} ({error}). Export it again with "
            f"opset {OPSET} or later."
        ) from error


def _output_to_calibrate(graph: onnx.GraphProto, tensor: str | None) -> Any:
    names = ", ".join(repr(o.name) for o in graph.output)
    chosen = [o for o in graph.output if tensor in (None, o.name)]
    if not chosen:
        raise InputError(f"tensor: the model has no output {tensor!r}; it has {names}.")
    fit = [
        o
        for o in chosen
        if o.type.tensor_type.elem_type in _FLOATING or o.type.sequence_type.elem_type.HasField("map_type")
    ]
    if not fit:
        raise InputError(
            f"append_to: none of the outputs {', '.join(repr(o.name) for o in chosen)} is a floating-point tensor. Export the "
            "classifier with its scores as a plain tensor (skl2onnx: options={'zipmap': False})."
        )
    if len(fit) > 1:
        raise InputError(
            f"append_to: the outputs {', '.join(repr(o.name) for o in fit)} are all floating-point; say which one to "
            "calibrate with tensor=."
        )
    return fit[0]


# What a tensor holds: by the node that makes it, else by its name.

# They pass numbers on unchanged; the first three in the same shape.
_COPIES = ("Identity", "Cast", "Dropout")
_MOVES = (*_COPIES, "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "ZipMap")
_HOLDS = {
    **dict.fromkeys(("Softmax", "Sigmoid", "Exp", "Normalizer"), "probabilities"),
    **dict.fromkeys(("LogSoftmax", "Log"), "logits"),
}
_BY_NAME = {
    "logits": re.compile(r"logit|log_?-?(prob|softmax|likelihood)|decision"),
    "probabilities": re.compile(r"prob|softmax"),
}
_LINEAR = ("MatMul", "Gemm")
_ADVICE = {
    "logits": "Export the classifier with its logits as the output (skl2onnx: options={'raw_scores': True}), or fit the "
    "calibrator with input='probabilities'. A CalibratedClassifier has a to_onnx() of its own.",
    "probabilities": "Export the classifier with a softmax at its end, or fit the calibrator on its logits.",
}


def _maker(graph: onnx.GraphProto, tensor: str) -> onnx.NodeProto | None:
    """The node that makes a tensor; None for an input or a constant."""
    return next((node for node in graph.node if tensor in node.output), None)


def _origin(graph: onnx.GraphProto, tensor: str, through: tuple[str, ...]) -> onnx.NodeProto | None:
    """The first node on the way back from a tensor that is not passed through."""
    node = _maker(graph, tensor)
    while node is not None and node.op_type in through:
        node = _maker(graph, node.input[0])
    return node


def _tensor_to_calibrate(graph: onnx.GraphProto, output: str, kind: str, ndim: int, class_axis: int) -> str:
    """Name of the tensor that holds what the calibrator was fitted on: ``output``, or the input of a softmax before it.

    ``kind`` is "logits", "probabilities" or "scores" (of any scale).
    """
    holds, because = _content(graph, output)
    if kind == "scores" or holds in (None, kind):
        return output
    node = _origin(graph, output, _COPIES)
    if kind == "logits" and node is not None and node.op_type in ("Softmax", "Sigmoid"):
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
        if (axis - class_axis) % ndim == 0:
            return str(node.input[0])
    raise InputError(
        f"append_to: the output {output!r} holds {holds} ({because}), but the calibrator was fitted on {kind}. {_ADVICE[kind]}"
    )


def _content(graph: onnx.GraphProto, output: str) -> tuple[str | None, str]:
    """What an output holds, and why: the node that makes it if that leaves no doubt, else its name."""
    node = _origin(graph, output, _MOVES)
    kind, inputs = ("", []) if node is None else (node.op_type, list(node.input))
    because = f"it comes from a node {kind}"
    makers = [_maker(graph, name) for name in inputs]
    if kind in _HOLDS:
        return _HOLDS[kind], because
    if node is not None and kind in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"):
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("post_transform", b"NONE") != b"NONE" or attributes.get("prob_a"):
            return "probabilities", because
        if kind != "TreeEnsembleClassifier":  # of trees without a transform only the name can tell
            return "logits", because
    total = makers[1] if kind == "Div" else None
    if total is not None and total.op_type in ("ReduceSum", "ReduceL1") and total.input[0] in inputs:
        return "probabilities", because
    for held, pattern in _BY_NAME.items():
        if pattern.search(output.lower()):
            return held, f"by its name {output!r}; if that is wrong, rename the output"
    sums = kind == "Add" and any(one is not None and one.op_type in _LINEAR for one in makers)
    return "logits" if sums or kind in _LINEAR else None, because
