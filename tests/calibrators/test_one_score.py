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
from monocal.registry import find_method

rng = np.random.default_rng(0)
S = rng.normal(size=400) * 2
Y = (rng.random(400) < expit(1.5 * S - 1)).astype(int)
NEW = np.linspace(-9, 9, 301)
DATA = mc.data.synthetic(200, 2)


def test_platt_and_isotonic_are_those_of_scikit_learn():
    X, y = make_classification(600, random_state=0)
    svm = LinearSVC(random_state=0).fit(X[:200], y[:200])
    margin = svm.decision_function(X)
    for method, kind in (("sigmoid", mc.PlattScaling), ("isotonic", mc.IsotonicCalibration)):
        theirs = CalibratedClassifierCV(FrozenEstimator(svm), method=method).fit(X[200:400], y[200:400])
        expected, cal = theirs.predict_proba(X[400:]), kind(input="scores")
        ours = cal.fit(margin[200:400], y[200:400]).predict_proba(margin[400:])
        np.testing.assert_allclose(ours, expected[:, 1], atol=1e-6)
        column = cal.fit(margin[200:400, None], y[200:400]).predict_proba(margin[400:, None])
        np.testing.assert_allclose(column, expected, atol=1e-6)


def test_isotonic_of_one_score_goes_back_to_classes_and_stays_where_a_fit_fails():
    pandas = pytest.importorskip("pandas")
    cal = mc.IsotonicCalibration(input="scores").fit(S, np.array(["no", "yes"])[Y])
    before = cal.predict_proba(NEW)
    assert cal.score(S, np.array(["no", "yes"])[Y]) > np.log(0.5)
    np.testing.assert_array_equal(next(cal.predict_blocks([NEW])), before)
    with pytest.raises(mc.InputError):
        cal.set_params(input="logits").fit(np.full((10, 3), np.nan), np.zeros(10, dtype=int))
    np.testing.assert_array_equal(cal.predict_proba(NEW), before)
    z = rng.normal(size=(50, 3))
    classes = mc.IsotonicCalibration().fit(z, z.argmax(axis=1))
    again = cal.fit(z, z.argmax(axis=1)).predict_proba(z)
    np.testing.assert_array_equal(again, classes.predict_proba(z))
    names = pandas.DataFrame(z, columns=["cat", "dog", "owl"])
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
    model = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000)
    coef = model.fit(features, labels).coef_[0]
    if (coef < 0).any():
        keep = [int(coef[0] < 0)]
        coef = np.zeros(2)
        coef[keep] = model.fit(features[:, keep], labels).coef_[0]
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


@pytest.mark.parametrize("kind", [mc.PlattScaling, mc.BetaCalibration, mc.VennAbers, mc.IsotonicCalibration])
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
    assert again.classes_.tolist() == ["no", "yes"]
    w = rng.integers(0, 3, len(Y))
    weighted, repeated = kind().fit(X, Y, sample_weight=w), kind().fit(np.repeat(X, w), np.repeat(Y, w))
    np.testing.assert_allclose(weighted.predict_proba(new), repeated.predict_proba(new), atol=1e-6)
    if kind is not mc.IsotonicCalibration:
        blocks = kind().fit(lambda: [(X[:100], Y[:100]), (X[100:], Y[100:])])
        np.testing.assert_allclose(blocks.predict_proba(new), p, atol=1e-9)


def test_they_are_listed():
    listed = mc.all_calibrators(one_score=True)
    assert [info.name for info in listed] == ["Binary MCCT", "Platt", "Beta", "Venn-Abers"]
    assert all(info.one_score and info.make() is not None for info in listed)
    assert isinstance(find_method("binary")[1], mc.BinaryMCCT)
    assert isinstance(find_method("venn-abers")[1], mc.VennAbers)


@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.PlattScaling, mc.VennAbers])
@pytest.mark.parametrize("names", [[1, 0], ["prob_b", "prob_a"], ["b", "other"]])
def test_columns_in_another_order_than_the_labels_are_refused(kind, names):
    """Places would count silently: the wrong column would be P(class 1)."""
    pandas = pytest.importorskip("pandas")
    labels = DATA.labels if names == [1, 0] else np.array(["a", "b"])[DATA.labels]
    swapped = pandas.DataFrame(DATA.values[:, ::-1], columns=names)
    for rows in (([(swapped, labels)],), (swapped, labels)):  # one block, and in memory
        with pytest.raises(mc.InputError, match="labels in sorted order"):
            kind().fit(*rows)
    p = kind().fit(pandas.DataFrame(DATA.values, columns=names[::-1]), labels).predict_proba(DATA.values)
    np.testing.assert_array_equal(p, kind().fit(DATA.values, labels).predict_proba(DATA.values))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dask.dataframe"])
@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.VennAbers, mc.MultilabelMCCT])
def test_frames_with_columns_in_another_order_than_in_the_fit_are_refused(kind, library):
    """Places would count silently, in whatever is asked of them."""
    pandas, other = pytest.importorskip("pandas"), pytest.importorskip(library)
    y = np.eye(2, dtype=int)[DATA.labels] if kind is mc.MultilabelMCCT else DATA.labels
    frame = pandas.DataFrame(DATA.values.astype(float), columns=["cat", "dog"])
    cal = kind().fit(frame, y)
    make = {
        "polars": lambda x: other.DataFrame({name: x[name].to_numpy() for name in x}),
        "pyarrow": lambda x: other.Table.from_pandas(x),
        "dask.dataframe": lambda x: other.from_pandas(x, npartitions=2),
    }.get(library, lambda x: x)
    requests = [cal.predict_proba, cal.transform]
    if library != "dask.dataframe":
        requests += [lambda X: cal.score(X, y), lambda X: next(cal.predict_blocks([X]))]
    if library == "pandas" and kind is not mc.MultilabelMCCT:
        requests.append(cal.predict_interval)
    for ask in requests:
        ask(make(frame))
        with pytest.raises(ValueError, match="in the same order"):
            ask(make(frame[["dog", "cat"]]))


def test_blocks_of_an_array_in_a_file_are_its_rows(tmp_path):
    """A row of two columns is no pair of scores."""
    for X, y in ((DATA.values, DATA.labels), (S, Y)):
        np.save(tmp_path / "x.npy", X)
        cal = mc.BinaryMCCT().fit(X, y)
        blocks = cal.predict_blocks(np.load(tmp_path / "x.npy", mmap_mode="r"))
        np.testing.assert_array_equal(np.concatenate(list(blocks)), cal.predict_proba(X))
    with pytest.raises(mc.InputError, match="is one array"):
        cal.predict_blocks(X)


def test_blocks_count_the_context_that_no_calibration_row_had():
    site = np.arange(200)[:, None] % 3
    cal = mc.BinaryMCCT().fit(DATA.values, DATA.labels, context=site)
    new = np.where(np.arange(200)[:, None] < 5, 9, site)
    halves = [(DATA.values[half], new[half]) for half in (slice(100), slice(100, 200))]
    p = np.concatenate(list(cal.predict_blocks(halves)))
    assert cal.unseen_ == 5
    np.testing.assert_array_equal(p, cal.predict_proba(DATA.values, context=new))


@pytest.mark.parametrize("kind", [mc.BinaryMCCT, mc.MCCT])
def test_blocks_of_a_fit_have_their_columns_in_one_order(kind):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(DATA.values, columns=["cat", "dog"])
    first, second = slice(100), slice(100, 200)
    for names, outcome in ((["cat", "dog"], None), (["dog", "cat"], "order")):
        blocks = [(frame[first], DATA.labels[first]), (frame[names][second], DATA.labels[second])]
        if outcome is None:
            kind().fit(lambda blocks=blocks: blocks)
            continue
        with pytest.raises(ValueError, match=outcome):
            kind().fit(lambda blocks=blocks: blocks)
