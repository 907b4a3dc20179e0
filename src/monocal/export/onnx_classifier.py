"""A calibrated scikit-learn classifier as one ONNX model: the classifier's graph by skl2onnx, the calibrator behind it.

    estimator -> scores -> what the calibrator was fitted on -> calibrator -> label

Of two classes skl2onnx gives the scores (-d, d), while the calibrator was fitted on (0, d): half of the first is the second,
but for a shift. Not every graph that skl2onnx makes computes what the estimator does, so both are applied to some rows, and
a graph that differs is not given out.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.map import map_of
from ..errors import InputError, require
from ..inputs.validation import check_choice
from ..io import atomic_path
from .onnx import OPSET, to_onnx
from .onnx_map import Graph

if TYPE_CHECKING:
    from ..classifier import CalibratedClassifier, CalibratedModel

_CHECKED_ROWS = 200
# How far scores in single precision may be off, in units of their size, and in which share of the rows: near a split of a
# tree the two may take different sides.
_TOLERANCE, _STRAY = 1e-3, 0.05
_ADVICE = (
    "Export model.calibrator_ alone, and feed it the estimator's scores. Or, where another package makes the estimator's graph "
    "(onnxmltools that of LightGBM), use model.calibrator_.to_onnx(append_to=graph); behind probabilities, fit with a calibrator "
    "of input='probabilities'."
)


def classifier_to_onnx(
    model: CalibratedClassifier,
    path: str | os.PathLike[str] | None = None,
    *,
    X: Any = None,
    output: str = "probabilities",
    dtype: str = "float32",
    force: bool = False,
) -> onnx.ModelProto:
    """The model of `CalibratedClassifier.to_onnx`, which documents the parameters."""
    check_is_fitted(model)
    members = model.calibrated_classifiers_
    if len(members) == 1 and len(members[0].seen) == len(model.classes_):
        graph = _calibrated(members[0], X, output, dtype)
    else:
        check_choice(output, "output", ("probabilities", "logits"))
        parts = [_calibrated(member, X, "probabilities", dtype) for member in members]
        places = [member.seen for member in members]
        graph = _mean_graph(parts, places, len(model.classes_), output, dtype)
    scores = next(o.name for o in graph.graph.output if o.name != "label")
    _put_labels_first(graph, scores, model.classes_)
    onnx.checker.check_model(graph)
    if path is not None:
        with atomic_path(path, force=force) as temporary:
            onnx.save(graph, os.fspath(temporary))
    return graph


def _calibrated(model: CalibratedModel, X: Any, output: str, dtype: str) -> onnx.ModelProto:
    """One estimator with its calibrator; the label is still the estimator's."""
    map_of(model.calibrators[0])  # first: what cannot be exported need not be converted
    skl2onnx = require("skl2onnx")
    runtime = require("onnxruntime", "onnx")
    rows = _rows(model, X, dtype)
    name = "uncalibrated_probabilities" if model.response == "predict_proba" else "logits"
    graph = _with_scores(_converted(skl2onnx, model, rows), model, dtype, name)
    _check(runtime, graph, model, rows, name)
    return to_onnx(model.calibrators[0], append_to=graph, tensor=name, output=output, dtype=dtype)


def _rows(model: CalibratedModel, X: Any, dtype: str) -> Any:
    """Rows to learn the types of the features from, and to compare the graph with the estimator on."""
    if X is None:
        if not hasattr(model.estimator, "n_features_in_") or hasattr(model.estimator, "feature_names_in_"):
            raise InputError(
                "to_onnx: the estimator was fitted on columns with names, or on something else than numbers, whose types the "
                "graph needs to know. Pass some rows as X."
            )
        X = np.random.default_rng(0).normal(size=(_CHECKED_ROWS, model.estimator.n_features_in_))
    X = X[:_CHECKED_ROWS]
    return X if hasattr(X, "columns") else np.asarray(X).astype(dtype)


def _converted(skl2onnx: Any, model: CalibratedModel, rows: Any) -> onnx.ModelProto:
    """The estimator's graph, with the scores that the calibrator was fitted on as a plain tensor where it can give them."""
    from ..classifier import scores_pairs, scoring_estimator

    estimator = model.estimator
    while isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    if scores_pairs(estimator):  # the calibrator was fitted on scores of classes
        estimator = copy.deepcopy(estimator)
        scoring_estimator(estimator).decision_function_shape = "ovr"
    last = scoring_estimator(estimator)
    raw = {"raw_scores": True} if model.response == "decision_function" else {}
    for options in ({"zipmap": False, **raw}, raw):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # skl2onnx calls parts of scikit-learn that warn
                return skl2onnx.to_onnx(
                    estimator,
                    rows[:1],
                    options={id(last): options},
                    target_opset={"": OPSET, "ai.onnx.ml": 3},
                    final_types=[("label", None), ("scores", None)],
                )
        except Exception as error:  # one of many, each with a message of its own
            refused = error
            if not isinstance(error, NameError):  # which says that an estimator lacks an option
                break
    raise InputError(
        f"skl2onnx cannot convert the {type(last).__name__} with its {model.response}: {' '.join(str(refused).split())} "
        f"{_ADVICE}"
    ) from refused


def _with_scores(graph: onnx.ModelProto, model: CalibratedModel, dtype: str, name: str) -> onnx.ModelProto:
    """The same with its second output brought to the form of the calibrator's input."""
    from ..classifier import RESOLUTION

    _rename(graph.graph, "probabilities", "uncalibrated")
    g = Graph(OPSET, dtype, prefix="scores/")
    scores = g.cast("scores", dtype)
    if model.response == "predict_proba":
        least = g.constant(RESOLUTION)
        tiny = g.op("And", g.op("Greater", scores, g.constant(0.0)), g.op("Less", scores, least))
        scores = g.op("Where", tiny, least, scores)
    else:
        factor = model.scale * (0.5 if len(model.seen) == 2 else 1.0)
        scores = scores if factor == 1 else g.op("Mul", scores, g.constant(factor))
    g.rename(scores, name)
    graph.graph.node.extend(g.nodes)
    graph.graph.initializer.extend(g.constants)
    kind = helper.np_dtype_to_tensor_dtype(g.dtype)
    del graph.graph.output[1]
    graph.graph.output.append(helper.make_tensor_value_info(name, kind, [None, len(model.seen)]))
    return graph


def _check(runtime: Any, graph: onnx.ModelProto, model: CalibratedModel, rows: Any, name: str) -> None:
    expected = model.scores(rows).astype(np.float64)
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = [i.name for i in session.get_inputs()]
    in_columns = hasattr(rows, "columns")
    feed = {i: rows[[i]].to_numpy() for i in inputs} if in_columns else {inputs[0]: rows}
    scores = session.run([name], feed)[0].astype(np.float64)
    size = np.abs(expected).max(axis=1, initial=1.0)
    off = np.full(len(expected), np.inf)
    if scores.shape == expected.shape:
        error = scores - expected
        if model.response == "decision_function":
            error -= error.mean(axis=1, keepdims=True)
        off = np.abs(error).max(axis=1) / size
    if np.mean(~(off <= _TOLERANCE)) > _STRAY:
        raise InputError(
            f"The graph that skl2onnx makes of {type(model.estimator).__name__} gives another {model.response} than the "
            f"estimator itself (by up to {off.max():.2g} of its size), so nothing is exported. {_ADVICE}"
        )


def _mean_graph(
    members: Sequence[onnx.ModelProto], places: Sequence[np.ndarray], n_classes: int, output: str, dtype: str
) -> onnx.ModelProto:
    """One model whose output is the mean of the members' ``probabilities``, or its logarithm.

    ``places`` says which of all classes the columns of each member are.
    """
    merged = copy.deepcopy(members[0])
    for field in (merged.graph.node, merged.graph.initializer, merged.graph.output, merged.graph.value_info):
        del field[:]
    g = Graph(OPSET, dtype, prefix="mean/")
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


def _put_labels_first(model: onnx.ModelProto, scores: str, classes: np.ndarray) -> None:
    """Give the model a first output ``label``, the class with the largest of the output ``scores``."""
    names = _tensor(classes, "label/classes")
    g = Graph(OPSET, "float32", prefix="label/")
    best = g.op("ArgMax", scores, axis=-1, keepdims=0)
    g.rename(g.op("Gather", names.name, best), "label")
    graph = model.graph
    outputs = [output for output in graph.output if output.name != "label"]
    _rename(graph, "label", "uncalibrated_label")
    graph.node.extend(g.nodes)
    graph.initializer.append(names)
    del graph.output[:]
    graph.output.extend([helper.make_tensor_value_info("label", names.data_type, [None]), *outputs])


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
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
