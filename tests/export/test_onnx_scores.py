"""Behind the right tensor: logits and probabilities are never mixed, and what is served is what `predict_proba` says."""

import sys

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import monocal as mc

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")
helper = onnx.helper

M = 5


def run(model, x):
    s = ort.InferenceSession(model.SerializeToString())
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, {s.get_inputs()[0].name: x}), strict=True))


def network(*steps, output="out", rank=2, opset=17, width=M):
    """x (n, 4) -> x W -> the steps, one node after another -> output."""
    weights = onnx.numpy_helper.from_array(
        np.random.default_rng(8).normal(size=(4, width)).astype(np.float32) * 2, "W"
    )
    nodes, name = [], "x"
    for i, (kind, rest) in enumerate([("MatMul", {}), *steps]):
        after = output if i == len(steps) else f"t{i}"
        nodes.append(helper.make_node(kind, [name, "W"] if kind == "MatMul" else [name], [after], **rest))
        name = after
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [*"ab"[: rank - 1], 4])],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [*"ab"[: rank - 1], width])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture(scope="module")
def rows():
    """Inputs, the logits of `network` and labels of a cooler model."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(800, 4)).astype(np.float32)
    z = run(network(), x)["out"]
    y = np.array([rng.choice(M, p=row) for row in softmax(z / 4, axis=1)])
    return x, z, y


@pytest.fixture(scope="module")
def of_logits(rows):
    return mc.MCCT().fit(rows[1], rows[2])


@pytest.fixture(scope="module")
def of_probabilities(rows):
    return mc.MCCT(input="probabilities").fit(softmax(rows[1], axis=1), rows[2])


SOFTMAX, CAST = ("Softmax", {"axis": -1}), ("Cast", {"to": onnx.TensorProto.FLOAT})


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [SOFTMAX],
        [("Softmax", {"axis": 1})],
        [SOFTMAX, ("Identity", {})],
        [SOFTMAX, CAST, ("Dropout", {})],
        [("Cast", {"to": onnx.TensorProto.FLOAT16}), SOFTMAX, CAST],
        [("LogSoftmax", {"axis": -1})],
        [("Sigmoid", {})],
    ],
    ids=lambda steps: "-".join(kind for kind, _ in steps) or "plain",
)
def test_a_calibrator_of_logits_gets_logits(rows, of_logits, steps):
    x, z, y = rows
    p = run(of_logits.to_onnx(append_to=network(*steps)), x)["probabilities"]
    half = any(rest.get("to") == onnx.TensorProto.FLOAT16 for _, rest in steps)
    np.testing.assert_allclose(p, of_logits.predict_proba(z), atol=5e-3 if half else 1e-6)
    served, offline = mc.metrics.nll(p, y), mc.metrics.nll(of_logits.predict_proba(z), y)
    assert served == pytest.approx(offline, abs=2e-3 if half else 1e-6)


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ([SOFTMAX], "out"),
        ([SOFTMAX, CAST], "logits"),  # the node is right, the name is not
        ([("Exp", {})], "out"),
        ([("Tanh", {})], "out"),  # nothing is known
        ([("Abs", {})], "probs"),
        ([], "probabilities"),
    ],
)
def test_a_calibrator_of_probabilities_gets_probabilities(rows, of_probabilities, steps, output):
    x = rows[0]
    base = network(*steps, output=output)
    model = of_probabilities.to_onnx(append_to=base)
    if steps and steps[0] is SOFTMAX:
        expected = of_probabilities.predict_proba(run(base, x)[output])
        (p,) = run(model, x).values()
        np.testing.assert_allclose(p, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("steps", "output", "holds", "why"),
    [
        ([], "logits", "logits", "by its name 'logits'"),
        ([], "out", "logits", "a node MatMul"),
        ([("LogSoftmax", {"axis": -1})], "probabilities", "logits", "a node LogSoftmax"),
        ([("Tanh", {})], "log_probs", "logits", "by its name 'log_probs'"),
        ([SOFTMAX, ("Flatten", {})], "out", "probabilities", "a node Softmax"),
        ([("Exp", {})], "logits", "probabilities", "a node Exp"),
        ([("Tanh", {})], "class_probability", "probabilities", "by its name.*rename the output"),
    ],
)
def test_what_does_not_fit_is_refused(of_logits, of_probabilities, steps, output, holds, why):
    cal = of_probabilities if holds == "logits" else of_logits
    with pytest.raises(mc.InputError, match=rf"{output}' holds {holds} \(.*{why}.*fitted on {cal.input}"):
        cal.to_onnx(append_to=network(*steps, output=output))


def test_a_calibrated_model_is_not_taken_for_logits(of_logits):
    once = of_logits.to_onnx(append_to=network(SOFTMAX))
    with pytest.raises(mc.InputError, match="holds probabilities"):
        of_logits.to_onnx(append_to=once)


def test_models_of_skl2onnx():
    """The default of skl2onnx gives probabilities, in mappings: a calibrator of decision values does not belong there."""
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    model = mc.CalibratedClassifier(LogisticRegression(C=0.01), "temperature").fit(X, y)
    for options in (None, {"zipmap": False}):
        base = skl2onnx.to_onnx(model.estimator_, X[:1], options=options, target_opset=17)
        with pytest.raises(mc.InputError, match=r"Normalizer.*fitted on logits.*to_onnx\(\) of its own"):
            model.calibrator_.to_onnx(append_to=base)
    forest = mc.CalibratedClassifier(RandomForestClassifier(20, random_state=0)).fit(X, y)
    base = skl2onnx.to_onnx(forest.estimator_, X[:1], target_opset=17)
    served = run(forest.calibrator_.to_onnx(append_to=base), X)["output_probability"]
    p = np.array([[row[c] for c in range(3)] for row in served])
    np.testing.assert_allclose(p, forest.predict_proba(X), atol=1e-5)


ESTIMATORS = [
    SVC(),
    RidgeClassifier(alpha=1e9, fit_intercept=False),  # scores of 1e-7
    RandomForestClassifier(10, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    AdaBoostClassifier(n_estimators=3, random_state=0),
    KNeighborsClassifier(),
    make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
]


def check(model, X, **options):
    """The graph gives what the classifier gives: probabilities, and the label where it is clear."""
    result = run(model.to_onnx(**options), X)
    assert list(result) == ["label", "probabilities"]
    p = model.predict_proba(X)
    np.testing.assert_allclose(result["probabilities"], p, atol=2e-4)
    clear = np.diff(np.sort(p, axis=1)[:, -2:])[:, 0] > 1e-3
    np.testing.assert_array_equal(result["label"][clear], model.predict(X)[clear])


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # some estimators are that biased
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_calibrated_classifier_exports_itself(estimator, classes):
    X, y = (load_breast_cancer if classes == 2 else load_iris)(return_X_y=True)
    # Single precision before all, so that trees see the numbers the graph sees.
    X = StandardScaler().fit_transform(X[:250]).astype(np.float32)
    check(mc.CalibratedClassifier(estimator, "temperature", cv=3).fit(X, y[:250]), X)


def test_other_forms_of_the_exported_classifier(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(LogisticRegression(C=0.05, max_iter=1000).fit(X, y))
    model = mc.CalibratedClassifier(frozen, "conditional").fit(X, y)
    wide = run(model.to_onnx(tmp_path / "m.onnx", dtype="float64", output="logits"), X)["calibrated_logits"]
    np.testing.assert_allclose(softmax(wide, axis=1), model.predict_proba(X), atol=1e-5)
    with pytest.raises(mc.InputError, match="exists"):
        model.to_onnx(tmp_path / "m.onnx")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    named = mc.CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(frame, y)
    with pytest.raises(mc.InputError, match="Pass some rows as X"):
        named.to_onnx()
    s = ort.InferenceSession(named.to_onnx(X=frame).SerializeToString())
    feed = {i.name: frame[[i.name]].to_numpy() for i in s.get_inputs()}
    np.testing.assert_allclose(s.run(["probabilities"], feed)[0], named.predict_proba(frame), atol=1e-5)
    ward = np.array(["east", "west"])[np.arange(len(y)) % 2]
    by_ward = mc.CalibratedClassifier(LogisticRegression(max_iter=1000), "conditional", cv=2).fit(
        X, y, context=ward
    )
    s = ort.InferenceSession(by_ward.to_onnx().SerializeToString())
    feed = {"X": X.astype(np.float32), "context": by_ward.calibrator_.context_.codes(ward).astype(float)}
    np.testing.assert_allclose(s.run(["probabilities"], feed)[0], by_ward.predict_proba(X, ward), atol=1e-5)


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")
def test_what_cannot_be_exported_is_refused(monkeypatch):
    class Booster(GaussianNB):
        """As LightGBM's, of which another package makes a graph."""

    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    of_probabilities = mc.MCCT(input="probabilities")
    for estimator, method, words in (
        # skl2onnx gives twice the decision values of this one as its log-odds.
        (LinearDiscriminantAnalysis(), of_probabilities, "gives another predict_proba than the estimator"),
        (Booster(), mc.MCCT(), r"cannot convert the Booster.*to_onnx\(append_to=graph\)"),
        (LogisticRegression(), mc.HistogramBinning(), "HistogramBinning cannot be exported"),
    ):
        model = mc.CalibratedClassifier(estimator, method, cv=2).fit(X, y)
        with pytest.raises(mc.InputError, match=words):
            model.to_onnx()
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(mc.MissingExtraError, match="pip install skl2onnx"):
        mc.CalibratedClassifier(LogisticRegression(), "mcct", cv=2).fit(X, y).to_onnx()


def test_the_label_is_that_of_the_calibrated_probabilities():
    """With a method that may change the order the estimator's own label is another."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 400, p=[0.7, 0.2, 0.1])
    X = (rng.normal(size=(400, 3)) + 0.7 * np.eye(3)[y]).astype(np.float32)
    balanced = LogisticRegression(class_weight="balanced")
    model = mc.CalibratedClassifier(balanced, "structured").fit(X, np.array(["ant", "bee", "cat"])[y])
    assert (model.predict(X) != model.estimator_.predict(X)).mean() > 0.1
    check(model, X)


def test_an_ensemble_exports_itself():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    names = np.array(["setosa", "versicolor", "virginica"])
    chosen = np.r_[0:50, 50:100, 100]  # one row of the last class: a member has not seen it
    splits = list(KFold(3, shuffle=True, random_state=0).split(X[chosen]))
    model = mc.CalibratedClassifier(GaussianNB(), cv=splits, ensemble=True).fit(X[chosen], names[y[chosen]])
    assert sorted(len(m.seen) for m in model.calibrated_classifiers_) == [2, 3, 3]
    check(model, X)
    logits = run(model.to_onnx(output="logits"), X)["calibrated_logits"]
    np.testing.assert_allclose(np.exp(logits), model.predict_proba(X), atol=2e-4)
    with pytest.raises(mc.InputError, match="output must be one of"):
        model.to_onnx(output="labels")
