"""The classics for one score agree with what people know: scikit-learn, betacal, venn-abers."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import monocal as mc

rng = np.random.default_rng(0)
S = rng.normal(size=400) * 2
Y = (rng.random(400) < expit(1.5 * S - 1)).astype(int)
NEW = np.linspace(-9, 9, 301)
CLASSICS = [mc.PlattScaling, mc.BetaCalibration, mc.VennAbers, mc.IsotonicCalibration]


def test_platt_and_isotonic_are_those_of_scikit_learn():
    X, y = make_classification(600, random_state=0)
    svm = LinearSVC(random_state=0).fit(X[:200], y[:200])
    margin = svm.decision_function(X)
    for method, cal in (
        ("sigmoid", mc.PlattScaling(input="scores")),
        ("isotonic", mc.IsotonicCalibration(input="scores")),
    ):
        theirs = CalibratedClassifierCV(FrozenEstimator(svm), method=method).fit(X[200:400], y[200:400])
        ours = cal.fit(margin[200:400], y[200:400])
        expected = theirs.predict_proba(X[400:])
        np.testing.assert_allclose(ours.predict_proba(margin[400:]), expected[:, 1], atol=1e-6)
        column = cal.fit(margin[200:400, None], y[200:400])
        np.testing.assert_allclose(column.predict_proba(margin[400:, None]), expected, atol=1e-6)


def test_isotonic_of_one_score_saves_and_goes_back_to_classes(tmp_path):
    cal = mc.IsotonicCalibration(input="scores").fit(S, np.array(["no", "yes"])[Y])
    again = mc.load(cal.save(tmp_path / "cal.json"))
    np.testing.assert_array_equal(again.predict_proba(NEW), cal.predict_proba(NEW))
    assert again.classes_.tolist() == ["no", "yes"]
    assert cal.score(S, np.array(["no", "yes"])[Y]) > np.log(0.5)
    np.testing.assert_array_equal(next(cal.predict_blocks([NEW])), cal.predict_proba(NEW))
    z = rng.normal(size=(50, 3))
    classes = mc.IsotonicCalibration().fit(z, z.argmax(axis=1))
    assert (
        cal.set_params(input="logits").fit(z, z.argmax(axis=1)).predict_proba(z).tolist()
        == classes.predict_proba(z).tolist()
    )
    names = pytest.importorskip("pandas").DataFrame(z, columns=["cat", "dog", "owl"])
    refitted = mc.IsotonicCalibration().fit(names, z.argmax(axis=1)).fit(S, Y)
    assert vars(refitted).keys() == vars(mc.IsotonicCalibration().fit(S, Y)).keys()
    assert list(refitted.get_feature_names_out()) == ["x0"]


@pytest.mark.parametrize(
    "labels", [Y, (rng.random(400) < np.where(np.abs(S) > 1, 0.8, 0.2)).astype(int)], ids=["both", "one"]
)
def test_beta_is_a_logistic_regression_of_two_logarithms(labels):
    """As betacal does it: the feature with a negative coefficient is left out, the other fitted alone."""
    p = expit(S)
    features = np.stack([np.log(p), -np.log1p(-p)], axis=1)
    model = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000).fit(features, labels)
    coef = model.coef_[0]
    if (coef < 0).any():
        keep = [int(coef[0] < 0)]
        model = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000).fit(features[:, keep], labels)
        coef = np.zeros(2)
        coef[keep] = model.coef_[0]
    cal = mc.BetaCalibration().fit(p, labels)
    np.testing.assert_allclose(cal.coef_, coef, atol=2e-3)
    np.testing.assert_allclose(cal.intercept_, model.intercept_[0], atol=2e-3)
    same = mc.BetaCalibration(input="logits").fit(S, labels)
    np.testing.assert_allclose(same.predict_proba(NEW), cal.predict_proba(expit(NEW)), atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_venn_abers_is_isotonic_regression_with_the_row_added(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(4, 80))
    s = np.round(draw.normal(size=n), int(draw.integers(0, 3)))
    y = (draw.random(n) < expit(2 * s)).astype(int)
    y[:2] = 0, 1
    new = np.concatenate([np.round(draw.normal(size=20), 1), s[:6], [-99.0, 99.0]])
    cal = mc.VennAbers(input="scores").fit(s, y)
    low, high = cal.predict_interval(new)
    for label, ours in ((0, low), (1, high)):
        slow = [IsotonicRegression().fit(np.append(s, x), np.append(y, label)).predict([x])[0] for x in new]
        np.testing.assert_allclose(ours, slow, atol=1e-9)
    np.testing.assert_allclose(cal.predict_proba(new), high / (1 - low + high), atol=1e-9)


@pytest.mark.parametrize("kind", CLASSICS)
def test_what_all_of_them_do(kind, tmp_path):
    X, new = (expit(S), expit(NEW)) if kind is mc.BetaCalibration else (S, NEW)
    cal = kind().fit(X, np.array(["no", "yes"])[Y])
    p = cal.predict_proba(new)
    assert (np.diff(p) >= 0).all()
    assert (np.diff(cal.transform(new)) >= 0).all()
    assert cal.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(cal.predict(new) == "yes", p > 0.5)
    again = mc.load(cal.save(tmp_path / "cal.json"))
    np.testing.assert_array_equal(again.predict_proba(new), p)
    w = rng.integers(0, 3, len(Y)).astype(float)
    times = w.astype(int)
    np.testing.assert_allclose(
        kind().fit(X, Y, sample_weight=w).predict_proba(new),
        kind().fit(np.repeat(X, times), np.repeat(Y, times)).predict_proba(new),
        atol=1e-6,
    )
    blocks = (
        kind().fit(lambda: [(X[:100], Y[:100]), (X[100:], Y[100:])])
        if kind is not mc.IsotonicCalibration
        else cal
    )
    np.testing.assert_allclose(blocks.predict_proba(new), p, atol=1e-9)


def test_they_are_listed():
    names = [info.name for info in mc.all_calibrators(one_score=True)]
    assert names == ["Binary MCCT", "Platt", "Beta", "Venn-Abers"]
    assert all(info.one_score and info.make() is not None for info in mc.all_calibrators(one_score=True))
    from monocal.registry import find_method

    assert isinstance(find_method("binary")[1], mc.BinaryMCCT)
    assert isinstance(find_method("venn-abers")[1], mc.VennAbers)


def test_a_fit_that_fails_leaves_isotonic_regression_of_one_score_as_it_was() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200)
    model = mc.IsotonicCalibration().fit(scores, (scores > rng.normal(size=200)).astype(int))
    before = model.predict_proba(scores)
    with pytest.raises(mc.InputError):
        model.fit(np.full((10, 3), np.nan), np.zeros(10, dtype=int))
    np.testing.assert_array_equal(model.predict_proba(scores), before)


@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.PlattScaling, mc.VennAbers])
@pytest.mark.parametrize("names", [[1, 0], ["prob_b", "prob_a"], ["b", "other"]])
def test_columns_in_another_order_than_the_labels_are_refused(kind, names):
    """Places would count silently: the wrong column would be P(class 1)."""
    pandas = pytest.importorskip("pandas")
    data = mc.data.synthetic(200, 2)
    labels = data.labels if names == [1, 0] else np.array(["a", "b"])[data.labels]
    with pytest.raises(mc.InputError, match="labels in sorted order"):
        kind().fit([(pandas.DataFrame(data.values[:, ::-1], columns=names), labels)])  # one block
    with pytest.raises(mc.InputError, match="labels in sorted order"):
        kind().fit(pandas.DataFrame(data.values[:, ::-1], columns=names), labels)
    right = pandas.DataFrame(data.values, columns=names[::-1])
    p = kind().fit(right, labels).predict_proba(data.values)
    np.testing.assert_array_equal(p, kind().fit(data.values, labels).predict_proba(data.values))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dask.dataframe"])
@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.VennAbers, mc.MultilabelMCCT])
def test_frames_with_columns_in_another_order_than_in_the_fit_are_refused(kind, library):
    """Places would count silently, in whatever is asked of them."""
    pandas, other = pytest.importorskip("pandas"), pytest.importorskip(library)
    data = mc.data.synthetic(200, 2)
    y = np.eye(2, dtype=int)[data.labels] if kind is mc.MultilabelMCCT else data.labels
    frame = pandas.DataFrame(data.values.astype(float), columns=["cat", "dog"])
    cal = kind().fit(frame, y)
    make = {
        "polars": lambda x: other.DataFrame({name: x[name].to_numpy() for name in x}),
        "pyarrow": lambda x: other.Table.from_pandas(x),
        "dask.dataframe": lambda x: other.from_pandas(x, npartitions=2),
    }.get(library, lambda x: x)
    right, swapped = make(frame), make(frame[["dog", "cat"]])
    requests = [cal.predict_proba, cal.transform]
    if library != "dask.dataframe":
        requests += [lambda X: cal.score(X, y), lambda X: next(cal.predict_blocks([X]))]
    if library == "pandas" and kind is not mc.MultilabelMCCT:
        requests.append(cal.predict_interval)
    for ask in requests:
        ask(right)
        with pytest.raises(ValueError, match="in the same order"):
            ask(swapped)


def test_blocks_of_an_array_in_a_file_are_its_rows(tmp_path):
    """A row of two columns is no pair of scores."""
    data = mc.data.synthetic(200, 2)
    np.save(tmp_path / "x.npy", data.values)
    cal = mc.BinaryMCCT().fit(data.values, data.labels)
    blocks = cal.predict_blocks(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(np.concatenate(list(blocks)), cal.predict_proba(data.values))
    with pytest.raises(mc.InputError, match="is one array"):
        cal.predict_blocks(data.values)
    np.save(tmp_path / "s.npy", S)
    cal = mc.BinaryMCCT().fit(S, Y)
    blocks = cal.predict_blocks(np.load(tmp_path / "s.npy", mmap_mode="r"))
    np.testing.assert_array_equal(np.concatenate(list(blocks)), cal.predict_proba(S))


def test_blocks_count_the_context_that_no_calibration_row_had():
    data = mc.data.synthetic(200, 2)
    site = np.arange(200)[:, None] % 3
    cal = mc.BinaryMCCT().fit(data.values, data.labels, context=site)
    new = np.where(np.arange(200)[:, None] < 5, 9, site)
    halves = [(data.values[half], new[half]) for half in (slice(100), slice(100, 200))]
    np.testing.assert_array_equal(
        np.concatenate(list(cal.predict_blocks(halves))), cal.predict_proba(data.values, context=new)
    )
    list(cal.predict_blocks(halves))
    assert cal.unseen_ == 5


def test_a_column_of_lists_holds_the_scores_of_a_row():
    pandas = pytest.importorskip("pandas")
    data = mc.data.synthetic(200, 2)
    expected = mc.BinaryMCCT().fit(data.values, data.labels).predict_proba(data.values)
    series = pandas.Series(list(data.values))
    for X in (series, pandas.DataFrame({"scores": series})):
        result = mc.BinaryMCCT().fit(X, data.labels).predict_proba(X)
        np.testing.assert_array_equal(np.stack(list(result.squeeze())), expected)


@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.MCCT])
def test_blocks_of_a_fit_have_their_columns_in_one_order(kind):
    pandas = pytest.importorskip("pandas")
    data = mc.data.synthetic(200, 2)
    frame = pandas.DataFrame(data.values, columns=["cat", "dog"])
    halves = slice(100), slice(100, 200)
    kind().fit(lambda: ((frame[half], data.labels[half]) for half in halves))
    other = frame[["dog", "cat"]]
    with pytest.raises(ValueError, match="order"):
        kind().fit(
            lambda: ((X[half], data.labels[half]) for X, half in zip((frame, other), halves, strict=True))
        )
