"""scikit-learn's own checks, with a short list of those that cannot hold and why."""

import warnings

import numpy as np
import pandas
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import monocal as mc
from monocal.calibrators import Published
from monocal.data import synthetic

# A calibrator has a column for every class, so a label without a column is an error in the data. Each of these checks has one:
# no calibrator can pass it, and no tag of scikit-learn describes such data. `test_the_failures_are_of_the_data_alone` runs
# the same seven with a column for every label, and then they pass.
MORE_LABELS_THAN_COLUMNS = {
    "check_estimators_overwrite_params": "make_blobs: labels 0, 1, 2 and two columns",
    "check_estimators_fit_returns_self": "make_blobs: labels 0, 1, 2 and two columns",
    "check_readonly_memmap_input": "make_blobs: labels 0, 1, 2 and two columns",
    "check_sample_weights_pandas_series": "labels 1, 2 and two columns: there is no column 2",
    "check_sample_weights_not_an_array": "labels 1, 2 and two columns: there is no column 2",
    "check_sample_weights_shape": "labels 1, 2 and two columns: there is no column 2",
    "check_sample_weights_not_overwritten": "labels 1, 2 and two columns: there is no column 2",
}
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
BATCHES = {WEIGHTS: "random batches are not the same for repeated rows as for weighted ones"}
EARLY = {WEIGHTS: "SLSQP as published stops early, not always at the same point"}
# By name in `calibrators`, in addition to those above.
EXPECTED = {
    "PTS": BATCHES,
    "DIAG": BATCHES,
    "MCCT published": EARLY,
}
# Those that stand in `calibrators` in one form only.
FURTHER = [mc.MCCT(shrinkage=0, top_k=2), mc.Stacked(mc.MCCT()), mc.LabelShift(mc.ConditionalMCCT())]


def test_a_grid_search_goes_by_the_likelihood():
    data = synthetic(400, 6, seed=0)
    search = GridSearchCV(mc.MCCT(), {"shrinkage": [0.0, 1.0, 1000.0]}, cv=4).fit(data.values, data.labels)
    folds = list(KFold(4).split(data.values))  # how it splits for estimators that are no classifiers
    for strength, result in zip([0.0, 1.0, 1000.0], search.cv_results_["mean_test_score"], strict=True):
        nll = [
            mc.metrics.nll(
                mc.MCCT(shrinkage=strength)
                .fit(data.values[train], data.labels[train])
                .predict_proba(data.values[test]),
                data.labels[test],
            )
            for train, test in folds
        ]
        assert result == pytest.approx(-np.mean(nll), rel=1e-6)


def test_score_of_odd_input():
    data = synthetic(50, 3, seed=0)
    cal = mc.MCCT().fit(data.values, data.labels)
    masked = data.values.copy()
    masked[4, data.labels[4]] = -np.inf
    assert cal.score(masked, data.labels) == -np.inf
    assert np.isfinite(cal.score(masked, data.labels, sample_weight=np.arange(50) != 4))
    with pytest.raises(NotFittedError):
        mc.MCCT().score(data.values, data.labels)
    with pytest.raises(mc.InputError, match="49 labels"):
        cal.score(data.values, data.labels[1:])
    with pytest.raises(mc.InputError, match="score: X must be an array in memory"):
        cal.score(lambda: [(data.values, data.labels)], data.labels)


def _every_calibrator():
    by_class = {info.cls: info for info in reversed(mc.all_calibrators())}  # the first of each class
    for info in by_class.values():
        made = info.make()
        quick = {"max_epochs": 1, "folds": 2}
        made.set_params(**{name: value for name, value in quick.items() if name in made.get_params()})
        yield pytest.param(made, EXPECTED.get(info.name, {}), info.extras, id=info.name)
    for made in FURTHER:
        yield pytest.param(made, {}, (), id=repr(made))


@pytest.mark.parametrize(("calibrator", "expected", "extras"), list(_every_calibrator()))
def test_check_estimator(calibrator, expected, extras):
    for extra in extras:
        pytest.importorskip(extra)
    expected = {**MORE_LABELS_THAN_COLUMNS, **expected}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, on_fail=None, expected_failed_checks=expected)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)
    assert len(results) > 40


# Of data cut to their first column, which these calibrators take.
ONE_COLUMN = {
    "check_n_features_in_after_fitting": "has data without the last column",
    "check_sample_weight_equivalence_on_dense_data": "passes its data on uncut",
    "check_estimators_nan_inf": "the NaN is in a later column",
    "check_classifiers_train": "classes that one column does not tell apart",
    "check_classifier_not_supporting_multiclass": "asks for scikit-learn's own sentence",
    "check_fit1d": "one dimension is one score per row",
    "check_fit2d_predict1d": "one dimension is one score per row",
}


@pytest.mark.parametrize("calibrator", [mc.BinaryMCCT(), mc.VennAbers()], ids=repr)
def test_check_estimator_of_one_score(calibrator, monkeypatch):
    def first_column(estimator, X, X_test=None, **rest):
        return X[:, :1] if X_test is None else (X[:, :1], X_test[:, :1])

    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", first_column)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator.set_params(input="scores"), on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set(ONE_COLUMN)
    assert len(results) > 60


CALIBRATORS = [
    mc.TemperatureScaling(),
    mc.ConditionalMCCT(),
    mc.StructuredScaling(),
    mc.IsotonicCalibration(),
    Published(),
]


@pytest.mark.filterwarnings("ignore::monocal.OrderWarning")  # of the published procedure
@pytest.mark.filterwarnings(
    "ignore::monocal.CalibrationWarning"
)  # the columns of these checks are no scores of classes
@pytest.mark.filterwarnings(
    "ignore:BinaryMCCT. the score ranks the rows the wrong way:UserWarning"
)  # likewise
@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_the_failures_are_of_the_data_alone(calibrator, monkeypatch):
    def one_more_column(estimator, X, **rest):
        return np.hstack([X, np.zeros((len(X), 1))])

    # The checks pass their data through these two, so that an estimator can ask for others.
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", one_more_column)
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_y", lambda estimator, y: y - y.min())
    for name in MORE_LABELS_THAN_COLUMNS:
        getattr(estimator_checks, name)(type(calibrator).__name__, calibrator)


def test_columns_keep_their_names():
    data = synthetic(60, 3, seed=0)
    frame = pandas.DataFrame(data.values, columns=["cat", "dog", "owl"])
    named = mc.MCCT().fit(frame, data.labels)
    assert named.get_feature_names_out().tolist() == named.feature_names_in_.tolist() == ["cat", "dog", "owl"]
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        named.predict_proba(frame[["dog", "cat", "owl"]])
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        named.get_feature_names_out(["a", "b", "c"])
    plain = mc.MCCT().fit(data.values, data.labels)
    assert plain.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert not hasattr(plain, "feature_names_in_")
    with pytest.raises(NotFittedError):
        mc.MCCT().get_feature_names_out()


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("calibrator", [mc.ConditionalMCCT(), mc.StructuredScaling()], ids=repr)
def test_frames_out_on_request(calibrator, library):
    data = synthetic(80, 3, seed=0)
    frame = pandas.DataFrame(data.values, columns=["cat", "dog", "owl"], index=np.arange(80) + 7)
    cal = clone(calibrator).fit(frame, data.labels)
    expected = cal.transform(frame)
    cal.set_output(transform=library)
    for result in (cal.transform(frame), cal.fit_transform(frame, data.labels)):
        assert type(result).__module__.partition(".")[0] == library
        assert list(result.columns) == ["cat", "dog", "owl"]
        np.testing.assert_array_equal(result.to_numpy(), expected.to_numpy())
    if library == "pandas":
        assert cal.transform(frame).index.equals(frame.index)
    # A setting for all of scikit-learn must not reach what works inside.
    with sklearn.config_context(transform_output=library):
        again = clone(calibrator).fit(frame, data.labels)
        np.testing.assert_array_equal(again.predict_proba(frame), cal.predict_proba(frame))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_out_of_other_kinds(library):
    arrow, torch, xarray = map(pytest.importorskip, ("pyarrow", "torch", "xarray"))
    data = synthetic(60, 4, seed=0)
    z, y = data.values, data.labels
    cal = mc.MCCT().fit(z, y)
    expected = cal.transform(z)
    cal.set_output(transform=library)
    table = arrow.table({str(i): column for i, column in enumerate(z.T)})
    lists = pandas.Series(z.tolist())
    for X, within in (
        (table, 0),
        (arrow.array(z.tolist()), 1e-5),
        (lists, 1e-5),
        (xarray.DataArray(z), 0),
        (torch.tensor(z), 1e-5),
        (torch.tensor(z).bfloat16(), 0.2),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X has feature names", UserWarning)  # the fit had none
            result = cal.transform(X)
        assert type(result).__module__.partition(".")[0] == library
        np.testing.assert_allclose(result.to_numpy(), expected, atol=within, rtol=0)


def test_what_is_no_frame_is_not_made_one():
    data = synthetic(60, 4, seed=0)
    images = np.moveaxis(data.values.reshape(5, 12, 4), -1, 1)
    dense = mc.MCCT(class_axis=1).fit(images, data.labels.reshape(5, 12)).set_output(transform="pandas")
    turned = mc.MCCT(class_axis=0).fit(data.values.T, data.labels).set_output(transform="polars")
    top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3], [0.7, 0.1]]), [[7, 3], [3, 9], [1, 2]], n_classes=100)
    served = mc.TemperatureScaling().fit(top, [7, 9, 1]).set_output(transform="pandas")
    for cal, X in ((dense, images), (turned, data.values.T), (served, top)):
        with pytest.raises(mc.InputError, match="set_output: what comes out has"):
            cal.transform(X)
        cal.predict_proba(X)
