"""A calibrated scikit-learn classifier as one ONNX model: the estimators' graphs by skl2onnx, one traced graph behind them.

    estimator k -> scores -> what calibrator k was fitted on -> calibrator k -> probabilities -> mean -> label

Of two classes skl2onnx gives the scores (-d, d), while the calibrator was fitted on (0, d): half of the first is the second,
but for a shift. Not every graph that skl2onnx makes computes what the estimator does, so both are applied to some rows, and
a graph that differs is not given out.
"""

from __future__ import annotations

import copy
import os
import warnings
from typing import TYPE_CHECKING, Any

import ndonnx
import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v21 as op
from onnx import compose, helper
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.map import map_of
from ..errors import InputError, require
from ..inputs.validation import check_choice
from .onnx import upgraded, written
from .onnx_map import OPSET, TYPES, built, mapped

if TYPE_CHECKING:
    from ..classifier import CalibratedClassifier, CalibratedModel

_CHECKED_ROWS = 200
# How far scores in single precision may be off, in units of their size, and in which share of the rows: near a split of a
# tree the two may take different sides.
_TOLERANCE, _STRAY = 1e-3, 0.05
_ADVICE = (
    "Where another package makes the estimator's graph (onnxmltools that of LightGBM), use "
    "model.calibrator_.to_onnx(append_to=graph); behind probabilities, fit with a calibrator of input='probabilities'."
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
    check_choice(output, "output", ("probabilities", "logits"))
    check_choice(dtype, "dtype", tuple(TYPES))
    members = model.calibrated_classifiers_
    maps = [
        map_of(member.calibrators[0]) for member in members
    ]  # first: what is refused need not be converted
    if len(maps) > 1 and maps[0].n_context:
        raise InputError(
            "to_onnx: the members of an ensemble read a context each in its own way. Use ensemble=False."
        )
    skl2onnx = require("skl2onnx")
    rows = _rows(members[0], X, dtype)
    whole = None
    arguments = []
    for number, member in enumerate(members):
        head = _converted(skl2onnx, member, rows)
        _check(head, member, rows)
        scores = head.graph.output[1]
        kind = helper.tensor_dtype_to_np_dtype(scores.type.tensor_type.elem_type)
        prefix = f"member_{number}/"
        shape = (None, len(member.seen))
        arguments.append((f"{prefix}{scores.name}", spox.argument(spox.Tensor(kind, shape))))
        head.graph.CopyFrom(compose.add_prefix_graph(head.graph, prefix, rename_inputs=False))
        if whole is None:
            whole = head
            del whole.graph.output[:]
        else:
            whole.graph.node.extend(head.graph.node)
            whole.graph.initializer.extend(head.graph.initializer)
    assert whole is not None
    context = (
        spox.argument(spox.Tensor(np.float64, ("batch", maps[0].n_context))) if maps[0].n_context else None
    )
    results = _results(model, [argument for _, argument in arguments], context, output, dtype)
    more = {} if context is None else {"context": context}
    tail = built(dict(arguments) | more, results, OPSET).graph
    tail = compose.add_prefix_graph(tail, "monocal/", rename_inputs=False, rename_outputs=False)
    whole.graph.input.extend(tail.input[len(members) :])
    whole.graph.node.extend(tail.node)
    whole.graph.initializer.extend(tail.initializer)
    whole.graph.output.extend(tail.output)
    onnx.checker.check_model(whole)
    return written(whole, path, force)


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
    """The estimator's graph, whose second output are its scores, as a plain tensor where it can give them so."""
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
                graph = skl2onnx.to_onnx(
                    estimator,
                    rows[:1],
                    options={id(last): options},
                    target_opset={"": OPSET, "ai.onnx.ml": 3},
                    final_types=[("label", None), ("scores", None)],
                )
            return upgraded(graph)
        except Exception as error:  # one of many, each with a message of its own
            refused = error
            if not isinstance(error, NameError):  # which says that an estimator lacks an option
                break
    raise InputError(
        f"skl2onnx cannot convert the {type(last).__name__} with its {model.response}: {' '.join(str(refused).split())} "
        f"{_ADVICE}"
    ) from refused


def _as_fitted(model: CalibratedModel, scores: Any) -> Any:
    """Scores of skl2onnx as the calibrator was fitted on, but for a shift of each row; numpy arrays or tensors of a graph."""
    from ..classifier import resolvable

    if model.response == "predict_proba":
        return resolvable(scores)
    return scores * (model.scale * (0.5 if len(model.seen) == 2 else 1.0))


def _check(graph: onnx.ModelProto, model: CalibratedModel, rows: Any) -> None:
    """Refuse a graph that gives other scores than the estimator."""
    runtime = require("onnxruntime", "onnx")
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = [i.name for i in session.get_inputs()]
    in_columns = hasattr(rows, "columns")
    feed = {i: rows[[i]].to_numpy() for i in inputs} if in_columns else {inputs[0]: rows}
    scores = _as_fitted(model, session.run(["scores"], feed)[0].astype(np.float64))
    expected = np.asarray(model.scores(rows), dtype=np.float64)
    off = np.full(len(expected), np.inf)
    if scores.shape == expected.shape:
        error = scores - expected
        if model.response == "decision_function":
            error -= error.mean(axis=1, keepdims=True)
        off = np.abs(error).max(axis=1) / np.abs(expected).max(axis=1, initial=1.0)
    if np.mean(~(off <= _TOLERANCE)) > _STRAY:
        raise InputError(
            f"The graph that skl2onnx makes of {type(model.estimator).__name__} gives another {model.response} than the "
            f"estimator itself (by up to {off.max():.2g} of its size), so nothing is exported. {_ADVICE}"
        )


def _results(
    model: CalibratedClassifier, scores: list[spox.Var], context: spox.Var | None, output: str, dtype: str
) -> dict[str, spox.Var]:
    """The label and the mean of the members' probabilities, or its logarithm, from the scores of each."""
    members, m = model.calibrated_classifiers_, len(model.classes_)
    alone = len(members) == 1 and len(members[0].seen) == m
    parts = []
    for member, raw in zip(members, scores, strict=True):
        own = _as_fitted(member, ndonnx.asarray(op.cast(raw, to=np.dtype(dtype)))).unwrap_spox()
        kind = output if alone else "probabilities"
        p = mapped(map_of(member.calibrators[0]), own, context, kind, dtype)
        if len(member.seen) < m:
            p = op.matmul(p, op.const(np.eye(m, dtype=dtype)[member.seen]))
        parts.append(p)
    if alone:
        result = parts[0]
    else:
        result = op.div(op.sum(parts), op.const(np.array(len(parts), dtype=dtype)))
        result = op.log(result) if output == "logits" else result
    label = op.gather(op.const(_classes(model.classes_)), op.arg_max(result, axis=-1, keepdims=0))
    return {"label": label, "calibrated_logits" if output == "logits" else output: result}


def _classes(classes: np.ndarray) -> np.ndarray:
    """Labels in a type that ONNX has."""
    if all(isinstance(one, str) for one in classes.tolist()):
        return classes.astype(np.str_)
    if classes.dtype.kind in "iubf":
        return classes.astype(np.float64 if classes.dtype.kind == "f" else np.int64)
    raise InputError(
        f"to_onnx: ONNX holds labels that are text or numbers, but {classes[0]!r} is neither. Fit on text or numbers."
    )
