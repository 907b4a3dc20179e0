"""A calibrator as an ONNX model, alone or at the end of a classifier.

The map itself, in standard operators, is in `export.onnx_map`; here it gets inputs, outputs and names. At the end of a
classifier it takes the place of the output that it calibrates, behind the tensor that `tensor_to_calibrate` names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from .. import __version__
from ..core.map import FittedMap, map_of
from ..errors import InputError, option
from ..io import atomic_path
from .onnx_map import Graph, calibrated

OPSET = 17
_DOMAIN = "monocal"
_TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
_OUTPUTS = ("probabilities", "logits")
_CONTEXT = "context"


def to_onnx(
    calibrator: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    append_to: Any = None,
    tensor: str | None = None,
    output: str = "probabilities",
    dtype: str = "float32",
    ndim: int | str | None = None,
    force: bool = False,
) -> onnx.ModelProto:
    """The calibrator as an ONNX model, or a classifier's ONNX model with the calibrator at its end.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted; a rank map, an affine map such as `VectorScaling` or `StructuredScaling`, a calibrator of one score or of many
        labels, or a sequence of these (`Stacked`, `StructuredMCCT`, `LabelShift`). Fitted with
        context, it takes it as a second input ``context``: what ``calibrator.context_.codes(context)`` gives, (..., C)
        in double precision. The graph takes any number of axes, with the classes in ``calibrator.class_axis``.
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
    ndim : int, "any" or None
        How many axes the input of the graph alone has, which ONNX requires: 4 for (N, C, H, W), 1 for one score per row,
        which gives P(class 1). None: two, where the classes are last. "any": the graph says nothing, and onnxruntime takes
        tensors of any number of axes; but onnx's own checker asks every graph for a shape, so tools that call it refuse.
    force : bool
        Replace an existing file.

    Returns
    -------
    onnx.ModelProto

    Notes
    -----
    A classifier whose graph rounds a tie otherwise than the original, such as a random forest, may get another class first
    there. Maps by rank (`MCCT`, `ConditionalMCCT`) jump where two classes change places; `monocal.evaluate` says whether
    many rows have such ties (``near_ties``).

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> model = cal.to_onnx("cal.onnx")  # needs onnx
    >>> [value.name for value in model.graph.output]
    ['probabilities']
    """
    plan = map_of(calibrator)
    for value, name, choices in ((output, "output", _OUTPUTS), (dtype, "dtype", tuple(_TYPES))):
        if value not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")
    axis = plan.class_axis
    if ndim == 1:
        plan = plan.of_one_score() or plan
    if append_to is None:
        model = _alone(plan, output, dtype, axis, _shape(plan, axis, ndim))
    elif ndim is None:
        model = _appended(plan, append_to, tensor, output, axis)
    else:
        raise InputError(
            "ndim is for a graph alone: behind a classifier it is that of the classifier's output."
        )
    properties = {"monocal_version": __version__, "monocal_calibrator": plan.name}
    if plan.classes is not None:
        properties["monocal_classes"] = json.dumps(plan.classes)
    helper.set_model_props(model, {p.key: p.value for p in model.metadata_props} | properties)
    onnx.checker.check_model(_with_some_shape(model) if ndim == "any" else model)
    if path is not None:
        with atomic_path(path, force=force) as temporary:
            onnx.save(model, os.fspath(temporary))
    return model


def _shape(plan: FittedMap, axis: int, ndim: int | str | None) -> list[str | int] | None:
    """The shape that a graph alone says its input has: names of axes, and the number of classes."""
    if plan.of_scores:
        if ndim not in (None, 1, 2) or (ndim == 1 and plan.n_classes > 1):
            raise InputError(
                f"ndim: of scores of one event it is 2, or 1 for a single score, but is {ndim!r}."
            )
        return ["batch"] if ndim == 1 else ["batch", plan.n_classes]
    if ndim == "any":
        return None
    if ndim is None and axis != -1:
        raise InputError(
            f"ndim: the calibrator has class_axis={axis}, so say how many axes the graph's input has: {option('ndim', 4)} for "
            f"(N, C, H, W), or {option('ndim', 'any')}."
        )
    if ndim is not None and (isinstance(ndim, bool) or not isinstance(ndim, int) or ndim < 2):
        raise InputError(f"ndim must be a whole number of at least 2, 'any' or None, but is {ndim!r}.")
    axes = 2 if ndim is None else int(ndim)
    if not -axes <= axis < axes:
        raise InputError(f"{option('ndim', axes)}: then class_axis={axis} is no axis of the graph's input.")
    shape: list[str | int] = ["batch", *(f"axis_{i}" for i in range(1, axes))]
    shape[axis] = plan.n_classes
    return shape


def _with_some_shape(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose inputs and outputs have a shape, for the checker, which requires one."""
    model = deepcopy(model)
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.tensor_type.HasField("shape"):
            for name in ("axis_0", "axis_1"):
                value.type.tensor_type.shape.dim.add(dim_param=f"{value.name}_{name}")
    return model


def _alone(
    plan: FittedMap, output: str, dtype: str, axis: int, shape: list[str | int] | None
) -> onnx.ModelProto:
    source = plan.input
    name = output if output != source else f"calibrated_{output}"
    graph = Graph(OPSET, dtype)
    ndim = None if shape is None else len(shape)
    of_result = (
        [shape[0], plan.width(output)] if plan.of_scores and shape is not None and ndim == 2 else shape
    )
    graph.rename(_along(graph, plan, source, output, _CONTEXT, axis, ndim), name)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            f"monocal_{plan.name}",
            [
                helper.make_tensor_value_info(source, _TYPES[dtype], shape),
                *_context(plan, _CONTEXT, shape, axis),
            ],
            [helper.make_tensor_value_info(name, _TYPES[dtype], of_result)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name=_DOMAIN,
        producer_version=__version__,
    )


def _along(
    graph: Graph, plan: FittedMap, source: str, output: str, context: str, axis: int, ndim: int | None
) -> str:
    """The map along an axis of a tensor of ``ndim`` axes, None where that is not known.

    It is of rows. Other tensors are brought to that form and back:
    ``(..., m, ...) -> (L, m, R) -> (L, R, m) -> (L R, m)``, with L and R the products of the axes before and after.
    """
    m = plan.n_classes
    if ndim == 2 and axis in (-1, 1):
        return calibrated(graph, plan, source, output, context)
    if plan.of_scores:
        column = graph.op("Reshape", source, graph.integers([-1, 1]))
        return graph.op(
            "Gather", calibrated(graph, plan, column, output, context), graph.integers(-1), axis=1
        )
    last = source
    if axis != -1:
        parts = graph.op("Reshape", graph.op("Flatten", source, axis=axis), graph.integers([0, m, -1]))
        last = graph.op("Transpose", parts, perm=[0, 2, 1])
    rows = graph.op("Reshape", last, graph.integers([-1, m]))
    if plan.n_context:
        context = graph.op("Reshape", context, graph.integers([-1, plan.n_context]))
    back = graph.op("Reshape", calibrated(graph, plan, rows, output, context), graph.op("Shape", last))
    if axis == -1:
        return back
    return graph.op("Reshape", graph.op("Transpose", back, perm=[0, 2, 1]), graph.op("Shape", source))


def _context(
    plan: FittedMap, name: str, shape: Sequence[str | int] | None, axis: int
) -> list[onnx.ValueInfoProto]:
    """The second input of a calibrator that was fitted with context."""
    if not plan.n_context:
        return []
    # In double precision whatever the logits are: a time, say, is large compared with its differences.
    if shape is not None:
        sides = [side for i, side in enumerate(shape) if i != axis % len(shape)]
        shape = [*(sides or shape), plan.n_context]
    return [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)]


def _appended(
    plan: FittedMap, classifier: Any, tensor: str | None, output: str, axis: int
) -> onnx.ModelProto:
    model = _read(classifier)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None or opset < OPSET:
        model, opset = _upgraded(model, opset), OPSET
    target = _output_to_calibrate(model, tensor)
    kind = target.type.tensor_type
    dims = kind.shape.dim
    last = maker(model.graph, target.name)
    zip_map = last if last is not None and last.op_type == "ZipMap" else None
    if zip_map is not None:  # a mapping for each row, of the columns of a tensor
        width: int | None = max(
            len(attribute.ints) + len(attribute.strings) for attribute in zip_map.attribute
        )
        scores, rank = zip_map.input[0], 2
    else:
        if dims and not -len(dims) <= axis < len(dims):
            raise InputError(
                f"append_to: the output {target.name!r} has {len(dims)} axes, but the calibrator has class_axis={axis}: set it "
                "to the axis of the classes."
            )
        scores, rank = target.name, len(dims)
        vector = plan.of_scores and plan.n_classes == rank == 1
        width = dims[axis].dim_value if dims and dims[axis].HasField("dim_value") and not vector else None
    if width not in (None, plan.n_classes):
        raise InputError(
            f"append_to: the output {target.name!r} has {width} columns, but the calibrator was fitted on "
            f"{plan.n_classes} classes (class_axis={axis}). Fit it on the outputs of this model."
        )
    dtype = "float64" if kind.elem_type == TensorProto.DOUBLE else "float32"
    graph = Graph(opset, dtype, prefix=_unused_prefix(model.graph))
    source = tensor_to_calibrate(model.graph, scores, plan.input, rank, axis)
    if source != target.name or kind.elem_type != _TYPES[dtype]:
        source = graph.op("Cast", source, to=_TYPES[dtype])
    taken = _value_names(model.graph)
    name = next(n for n in (output, f"calibrated_{output}", f"{graph.prefix}{output}") if n not in taken)
    context = _CONTEXT if _CONTEXT not in taken else f"{graph.prefix}{_CONTEXT}"
    graph.rename(_along(graph, plan, source, output, context, axis, rank or None), name)
    own = ["batch", *(f"axis_{i}" for i in range(1, max(rank, 2)))]
    model.graph.input.extend(_context(plan, context, own, axis))
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.constants)
    if zip_map is not None:  # it comes after what it takes now
        moved = deepcopy(zip_map)
        moved.input[0] = name
        model.graph.node.remove(zip_map)
        model.graph.node.append(moved)
        return model
    value = helper.make_tensor_value_info(name, _TYPES[dtype], None)
    if dims:
        value.type.tensor_type.shape.CopyFrom(kind.shape)
        if not vector:
            value.type.tensor_type.shape.dim[axis].dim_value = plan.width(output)
    position = [o.name for o in model.graph.output].index(target.name)
    del model.graph.output[position]
    model.graph.output.insert(position, value)
    return model


def external_files(path: Path) -> list[Path]:
    """The files that hold the tensors of a model, where it keeps them apart."""
    model = _read(path, external=False)
    return [path.parent / location for location in dict.fromkeys(_locations(model))]


def _locations(message: Any) -> Iterator[str]:
    if isinstance(message, TensorProto):
        yield from (entry.value for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if isinstance(value, Sequence) else [value]:
                yield from _locations(item)


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
    except Exception as error:  # protobuf's parser and the system raise what they like on somebody's file
        raise InputError(
            f"append_to: {os.fspath(classifier)!r} cannot be read as an ONNX model ({error})."
        ) from error


def _upgraded(model: onnx.ModelProto, opset: int | None) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, OPSET)
    except (
        Exception
    ) as error:  # the converter reports unknown operators in several ways, all of which mean no
        raise InputError(
            f"append_to: the model uses operator set {opset} and cannot be raised to {OPSET} ({error}). Export it again with "
            f"opset {OPSET} or later."
        ) from error


def _output_to_calibrate(model: onnx.ModelProto, tensor: str | None) -> Any:
    outputs = {o.name: o for o in model.graph.output}
    if tensor is not None:
        if tensor not in outputs:
            raise InputError(
                f"tensor: the model has no output {tensor!r}; it has {', '.join(map(repr, outputs))}."
            )
        outputs = {tensor: outputs[tensor]}
    floating = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    fit = [o for o in outputs.values() if o.type.tensor_type.elem_type in floating or _is_mapping(o)]
    if len(fit) == 1:
        return fit[0]
    if fit:
        raise InputError(
            f"append_to: the outputs {', '.join(repr(o.name) for o in fit)} are all floating-point; say which one to "
            "calibrate with tensor=."
        )
    raise InputError(
        f"append_to: none of the outputs {', '.join(map(repr, outputs))} is a floating-point tensor. Export the classifier "
        "with its scores as a plain tensor (skl2onnx: options={'zipmap': False})."
    )


def _is_mapping(output: onnx.ValueInfoProto) -> bool:
    """Whether an output is what ZipMap makes: a mapping from class to number for each row."""
    return output.type.sequence_type.elem_type.HasField("map_type")


def _value_names(graph: onnx.GraphProto) -> set[str]:
    names = {v.name for v in (*graph.input, *graph.output, *graph.value_info, *graph.initializer)}
    return names.union(*(set(node.input) | set(node.output) for node in graph.node))


def _unused_prefix(graph: onnx.GraphProto) -> str:
    """A prefix no name of the graph has, so that a calibrated model can be appended to once more."""
    names = _value_names(graph) | {node.name for node in graph.node}
    prefix, i = f"{_DOMAIN}/", 1
    while any(name.startswith(prefix) for name in names):
        i += 1
        prefix = f"{_DOMAIN}{i}/"
    return prefix


# They pass numbers on unchanged; the first three in the same shape.
_COPIES = ("Identity", "Cast", "Dropout")
_MOVES = (*_COPIES, "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "ZipMap")
_LINEAR, _SUMS = ("MatMul", "Gemm"), ("ReduceSum", "ReduceL1")
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


def tensor_to_calibrate(graph: onnx.GraphProto, output: str, kind: str, rank: int, class_axis: int) -> str:
    """Name of the tensor that holds what the calibrator was fitted on: ``output``, of ``rank`` axes, or one that leads to it.

    ``kind`` is "logits", "probabilities" or "scores" (of any scale); the classes are in ``class_axis``.
    """
    held = _held(graph, output)
    if not held or kind == "scores" or kind in held.values():
        return output
    before = _before_softmax(graph, output, rank, class_axis) if kind == "logits" else None
    if before is not None:
        return before
    because, held_kind = next(iter(held.items()))
    wrong_name = " If the name is wrong, rename the output." if because.startswith("by its name") else ""
    raise InputError(
        f"append_to: the output {output!r} holds {held_kind} ({because}), but the calibrator was fitted on {kind}. "
        f"{_ADVICE[kind]}{wrong_name}"
    )


def _held(graph: onnx.GraphProto, output: str) -> dict[str, str]:
    """What an output holds, by the reason to think so. A node that leaves no doubt is the only reason."""
    node = next((n for n in _back(graph, output, _MOVES) if n.op_type not in _MOVES), None)
    hints = {}
    if node is not None:
        because = f"it comes from a node {node.op_type}"
        kind, certain = _of_node(graph, node)
        if kind is not None:
            hints[because] = kind
        if certain:
            return hints
    by_name = next((kind for pattern, kind in _NAMES if pattern.search(output.lower())), None)
    return {**hints, f"by its name {output!r}": by_name} if by_name else hints


def _back(graph: onnx.GraphProto, tensor: str, through: tuple[str, ...]) -> Iterator[onnx.NodeProto]:
    """The nodes that lead to a tensor, last first, up to the first that is not passed through."""
    node = maker(graph, tensor)
    while node is not None:
        yield node
        node = maker(graph, node.input[0]) if node.op_type in through and node.input else None


def _of_node(graph: onnx.GraphProto, node: onnx.NodeProto) -> tuple[str | None, bool]:
    """What a node gives, and whether that leaves no doubt."""
    makers = [maker(graph, name) for name in node.input]
    match node.op_type:
        case kind if kind in _CERTAIN:
            return _CERTAIN[kind], True
        case "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" as kind:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if attributes.get("post_transform", b"NONE") != b"NONE" or attributes.get("prob_a"):
                return "probabilities", True
            if kind != "TreeEnsembleClassifier":  # of trees without a transform only the name can tell
                return "logits", True
        case "Div":
            total = makers[1]
            if total is not None and total.op_type in _SUMS and total.input[0] == node.input[0]:
                return "probabilities", True
        case "Add" if any(part is not None and part.op_type in _LINEAR for part in makers):
            return "logits", False
        case kind if kind in _LINEAR:
            return "logits", False
    return None, False


def _before_softmax(graph: onnx.GraphProto, output: str, rank: int, class_axis: int) -> str | None:
    """What goes into the softmax (or the sigmoids) over the classes, if nothing between it and the output changes the shape."""
    node = None
    for node in _back(graph, output, _COPIES):  # noqa: B007  the last one counts
        pass
    if node is None or node.op_type not in ("Softmax", "Sigmoid"):
        return None
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    same = axis == class_axis or (rank > 0 and (axis - class_axis) % rank == 0)
    return node.input[0] if same else None
