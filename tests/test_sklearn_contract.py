"""scikit-learn's own checks, with a short list of those that cannot hold and why."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import check_estimator

import monocal as mc
from monocal.calibration import Published
from monocal.data import synthetic

TOO_MANY = "the check has labels 0..2 for two columns of X; here each class has its column"
MORE_LABELS_THAN_COLUMNS = dict.fromkeys(
    [
        "check_estimators_overwrite_params",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
    ],
    TOO_MANY,
)
EXPECTED = {
    Published: {
        "check_sample_weight_equivalence_on_dense_data": "SLSQP as published stops early, not always at the same point"
    }
}


def test_a_grid_search_goes_by_the_likelihood():
    data = synthetic(400, 6, seed=0)
    search = GridSearchCV(mc.MCCT(), {"shrinkage": [0.0, 1.0, 1000.0]}, cv=4).fit(data.values, data.labels)
    folds = list(KFold(4).split(data.values))  # how it splits for estimators that are no classifiers
    for strength, found in zip([0.0, 1.0, 1000.0], search.cv_results_["mean_test_score"], strict=True):
        nll = [
            mc.metrics.nll(
                mc.MCCT(shrinkage=strength)
                .fit(data.values[train], data.labels[train])
                .predict_proba(data.values[test]),
                data.labels[test],
            )
            for train, test in folds
        ]
        assert found == pytest.approx(-np.mean(nll), rel=1e-6)


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


@pytest.mark.parametrize(
    "calibrator",
    [
        mc.TemperatureScaling(),
        mc.MCCT(),
        mc.MCCTInverse(),
        mc.MCCT(shrinkage=0),
        mc.MCCT(top_k=2),
        Published(),
    ],
    ids=repr,
)
def test_check_estimator(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert set(failed) == set(MORE_LABELS_THAN_COLUMNS) | set(EXPECTED.get(type(calibrator), {}))
    assert len(results) > 40
