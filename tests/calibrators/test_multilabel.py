"""`MultilabelMCCT`: rare and missing labels, order of the rows, inputs of all kinds, files."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import monocal as mc
from monocal import persistence

SHARED = Path(__file__).resolve().parents[3] / "shared" / "binary" / "multilabel_ecg.npz"
NAMES = ["flu", "cold", "rare", "never", "unknown", "half"]
INTERCEPTS, SLOPES = np.array([-1.0, -2.0, -7.0, -60.0, 0.0, -1.5]), np.array([0.7, 1.2, 1.0, 1.0, 1.0, 0.9])


def rows(n=600, seed=0):
    """Log-odds that are too large, and labels of six kinds."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 6)) * 1.5
    truth = expit(INTERCEPTS + SLOPES * z)
    return z, (rng.random((n, 6)) < truth).astype(float), truth


Z, Y, _ = rows()
Y[:, 2] = 0
Y[np.argsort(Z[:, 2])[[-1, -3, -40]], 2] = 1  # three positives
Y[:, 4] = np.nan
Y[::2, 5] = -1
NEW, NEW_Y, NEW_TRUTH = rows(4000, 1)
INPUTS = {"scores": lambda z: z * 30 + 7, "logits": lambda z: z, "probabilities": expit}


@cache
def _cached(name):
    return mc.MultilabelMCCT(input=name).fit(INPUTS[name](Z), Y)


@pytest.fixture(params=INPUTS, ids=str)
def fitted(request):
    return _cached(request.param)


def nll(p, y):
    return float(-np.mean(np.log(np.where(y == 1, p, 1 - p))))


# The fit.


def test_every_label_is_certified_frequent_ones_are_calibrated_and_rare_ones_safe(fitted):
    assert [solution is None for solution in fitted.solutions_] == [name == "unknown" for name in NAMES]
    for solution in filter(None, fitted.solutions_):
        assert solution.converged
        assert 0 <= solution.duality_gap < 1e-4
    new, old = (INPUTS[fitted.input](z) for z in (NEW, Z))
    p = fitted.predict_proba(new)
    for i in (0, 1, 5):
        assert nll(p[:, i], NEW_Y[:, i]) < nll(NEW_TRUTH[:, i], NEW_Y[:, i]) + 0.01
        counted = Y[:, i] >= 0
        alone = mc.BinaryMCCT(input=fitted.input).fit(old[counted, i], Y[counted, i])
        assert np.abs(alone.predict_proba(new[:, i]) - p[:, i]).mean() < 0.05
    assert 1 < 600 * p[:, 2].mean() < 9  # three among 600
    assert 0 < 600 * p[:, 3].mean() < 1.5  # none, yet not impossible
    assert 0 < p[:, 4].min() < 0.5 < p[:, 4].max() < 1
    for i in range(6):
        assert roc_auc_score(NEW[:, i] > 1, p[:, i]) == 1


def test_a_label_with_three_positives_leans_on_the_others():
    """Alone, three positives above all others ask for a steep map; with others they have about the slope of these."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 20)) * 1.5
    y = (rng.random(z.shape) < expit(z - 2)).astype(float)
    y[:, 0] = 0
    y[np.argsort(z[:, 0])[-3:], 0] = 1
    cal = mc.MultilabelMCCT().fit(z, y)
    slope = np.diff(cal.transform(np.tile([[-1.0], [3.0]], 20)), axis=0)[0, 0] / 4
    assert 0.7 < slope < 1.5
    assert abs(slope - 1) < 0.6 * abs(mc.PlattScaling().fit(z[:, 0], y[:, 0]).coef_[0] - 1)


def test_a_label_without_labelled_rows_has_the_mean_map():
    cal = _cached("logits")
    f = cal.shared_.transform(NEW[:50, 4])
    np.testing.assert_allclose(cal.transform(NEW[:50])[:, 4], cal.mean_[0] + cal.mean_[1] * f, atol=1e-12)


def test_minus_one_and_nan_are_the_same_and_as_if_absent():
    expected = _cached("logits").predict_proba(NEW)
    for z, y in (
        (Z, np.nan_to_num(Y, nan=-1).astype(int)),
        (Z, np.where(Y == -1, np.nan, Y)),
        (np.where(Y >= 0, Z, 5.0), Y),  # scores without a label do not matter
    ):
        np.testing.assert_array_equal(mc.MultilabelMCCT().fit(z, y).predict_proba(NEW), expected)


def test_weights_count_as_rows():
    w = np.random.default_rng(3).integers(0, 3, len(Z))
    repeated = np.repeat(Z, w, axis=0), np.repeat(Y, w, axis=0)
    a, b = mc.MultilabelMCCT().fit(Z, Y, sample_weight=w.astype(float)), mc.MultilabelMCCT().fit(*repeated)
    np.testing.assert_allclose(a.predict_proba(NEW), b.predict_proba(NEW), atol=1e-5)
    assert a.score(Z, Y, w) == pytest.approx(b.score(*repeated), abs=1e-5)


def test_many_rows_as_cells_agree_with_the_truth():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60_000, 2))
    truth = expit(np.array([-1.0, -2.0]) + np.array([1.0, 2.0]) * z + np.maximum(z - 1, 0))
    cal = mc.MultilabelMCCT().fit(z, rng.random(z.shape) < truth)
    assert np.abs(cal.predict_proba(z[:2000]) - truth[:2000]).mean() < 0.005


def test_it_is_better_than_platt_by_label_with_300_rows():
    if not SHARED.exists():
        pytest.skip("needs ../shared/binary/multilabel_ecg.npz next to the checkout")
    with np.load(SHARED) as file:
        p, y, new, new_y = (file[name].astype(float) for name in ("p_cal", "y_cal", "p_test", "y_test"))
    chosen = np.random.default_rng(0).choice(len(p), 300, replace=False)
    p, y = p[chosen], y[chosen]
    ours = mc.MultilabelMCCT(input="probabilities").fit(p, y).predict_proba(new)
    platt = np.tile((y.sum(axis=0) + 1) / (len(y) + 2), (len(new), 1))
    for i in np.flatnonzero(y.any(axis=0)):
        platt[:, i] = mc.PlattScaling(input="probabilities").fit(p[:, i], y[:, i]).predict_proba(new[:, i])
    assert nll(ours, new_y) < nll(platt, new_y) - 0.002


@pytest.mark.parametrize("n_labels", [1, 2])
def test_few_labels_stay_near_the_shared_map(n_labels):
    """Empirical Bayes of one or two labels with separable classes must not run away."""
    z = np.random.default_rng(0).normal(size=(200, n_labels))
    p = mc.MultilabelMCCT().fit(z, z > 1.9).predict_proba(np.tile(np.linspace(-3, 4, 30)[:, None], n_labels))
    alone = mc.BinaryMCCT().fit(z.ravel(), z.ravel() > 1.9).predict_proba(np.linspace(-3, 4, 30))
    assert np.abs(p - alone[:, None]).max() < 0.15


def test_a_label_ranked_the_wrong_way_round_is_named():
    z, y, _ = rows(2000, 4)
    z[:, 0] *= -1
    with pytest.warns(UserWarning, match=r"wrong way round, or not at all, for the label\(s\) flu:"):
        cal = mc.MultilabelMCCT().fit(pd.DataFrame(z, columns=NAMES), y)
    assert (np.diff(cal.transform(np.tile(np.linspace(-9, 9, 50)[:, None], 6)), axis=0) > 0).all()


# The order of the rows.


def check_order(cal, scores):
    scores = np.sort(scores, axis=0)
    for result in (cal.transform(scores), cal.predict_proba(scores)):
        assert np.isfinite(result).all()
        assert (np.diff(result.astype(np.float64), axis=0) >= 0).all()


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(
    arrays(np.float64, (20, 6), elements=st.floats(-1.7e308, 1.7e308)),
    arrays(np.float64, (20, 6), elements=st.floats(0, 1)),
)
def test_any_scores_keep_their_order(scores, p):
    for name in ("logits", "scores"):
        check_order(_cached(name), np.concatenate([scores, np.nextafter(scores, np.inf)]))
    check_order(_cached("probabilities"), np.concatenate([p, np.nextafter(p, 0)]))
    check_order(_cached("probabilities"), p.astype(np.float32))


def test_scores_beside_the_knots_keep_their_order():
    cal = _cached("logits")
    at = np.interp(cal.maps_[0].knots, cal.shared_.transform(np.sort(Z[:, 0])), np.sort(Z[:, 0]))
    near = [at * (1 + k * 2.0**-52) for k in range(-4, 5)]
    check_order(cal, np.tile(np.concatenate(near)[:, None], 6))


# Shapes, kinds and files.


def test_what_comes_out(fitted, tmp_path):
    new, old = INPUTS[fitted.input](NEW), INPUTS[fitted.input](Z)
    p, f = fitted.predict_proba(new), fitted.transform(new)
    np.testing.assert_allclose(p, expit(f), rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(new), (p > 0.5).astype(int))
    labelled = Y >= 0
    q = fitted.predict_proba(old)
    assert fitted.score(old, Y) == pytest.approx(-nll(q[labelled], Y[labelled]))
    single = fitted.predict_proba(new.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, p, atol=1e-5)
    assert fitted.predict_proba(new, out=np.empty_like(p)).tolist() == p.tolist()
    whole = fitted.predict_proba(np.tile(new, (3, 1)))  # a row alone is the row among many
    np.testing.assert_array_equal(
        np.concatenate([fitted.predict_proba(new[[i]]) for i in range(20)]), whole[:20]
    )
    path = fitted.save(tmp_path / "cal.json", data=(old, Y))
    assert "label_counts" not in persistence.describe(path)["data"]
    again = mc.load(path)
    np.testing.assert_array_equal(again.predict_proba(new), p)
    assert again.get_params() == fitted.get_params()


def test_kinds_come_back_as_they_came():
    torch, da = pytest.importorskip("torch"), pytest.importorskip("dask.array")
    cal, few = _cached("logits"), NEW[:5]
    expected = cal.predict_proba(few)
    np.testing.assert_array_equal(cal.predict_proba(torch.tensor(few)).numpy(), expected)
    assert cal.predict(torch.tensor(few)).dtype == torch.int64
    np.testing.assert_array_equal(cal.predict_proba(da.from_array(few, chunks=(2, 3))).compute(), expected)
    np.testing.assert_array_equal(cal.predict_proba(few.tolist()), expected)
    np.testing.assert_array_equal(np.concatenate(list(cal.predict_blocks([few[:2], few[2:]]))), expected)
    missing = pd.DataFrame(Y).replace(-1, np.nan).astype("Int64")
    for y in (torch.tensor(Y), pd.DataFrame(Y), missing, pl.DataFrame(Y, schema=NAMES), Y.tolist()):
        np.testing.assert_array_equal(mc.MultilabelMCCT().fit(Z, y).predict_proba(few), expected)
    np.testing.assert_array_equal(mc.MultilabelMCCT().fit(torch.tensor(Z), Y).predict_proba(few), expected)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames(library):
    def frame(values, names=NAMES):
        return library.DataFrame(dict(zip(names, values.T, strict=True)))

    cal = mc.MultilabelMCCT().fit(frame(Z), frame(Y))
    p = cal.predict_proba(frame(NEW[:5]))
    assert isinstance(p, library.DataFrame)
    assert list(p.columns) == list(cal.feature_names_in_) == list(cal.get_feature_names_out()) == NAMES
    np.testing.assert_array_equal(p.to_numpy(), _cached("logits").predict_proba(NEW[:5]))
    assert set(np.unique(cal.predict(frame(NEW)).to_numpy())) == {0, 1}
    with pytest.raises(ValueError, match="feature names"):
        cal.predict_proba(frame(NEW[:5], NAMES[::-1]))
    with pytest.raises(mc.InputError, match="another order"):
        mc.MultilabelMCCT().fit(frame(Z), frame(Y, NAMES[::-1]))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda state: state["maps_"]["$tuple"][1]["slopes"]["values"].__setitem__(0, -1.0),
            "slopes above 0",
        ),
        (lambda state: state["maps_"]["$tuple"].pop(), "a map for each label"),
        (lambda state: state["maps_"]["$tuple"][0].update(input="logits"), "maps of log-odds"),
        (lambda state: state["shared_"]["parameters"].update(input="scores"), "own input"),
        (lambda state: state.update(shared_=None), "expected a BinaryMCCT"),
    ],
)
def test_forged_files_are_refused(change, match):
    forged = json.loads(persistence.to_json(_cached("logits")))
    change(forged["state"])
    forged["checksum"] = persistence._checksum(forged)
    with pytest.raises(mc.FileError, match=match):
        persistence.from_json(json.dumps(forged))


# scikit-learn.


def test_conventions_of_scikit_learn():
    cal = mc.MultilabelMCCT(input="scores", label_shrinkage=3.0)
    assert clone(cal).get_params() == cal.get_params()
    tags = get_tags(cal)
    assert is_classifier(cal)
    assert tags.classifier_tags.multi_label
    assert tags.target_tags.multi_output
    with pytest.raises(NotFittedError):
        cal.predict_proba(Z)
    with pytest.raises(NotFittedError):
        _ = cal.classes_
    assert cal.fit(Z, Y).classes_.tolist() == list(range(6))
    frame = cal.set_output(transform="pandas").transform(Z)
    assert isinstance(frame, pd.DataFrame)
    np.testing.assert_array_equal(clone(cal).fit_transform(Z, Y), frame)
    scores = cross_val_score(mc.MultilabelMCCT(), Z, np.nan_to_num(Y, nan=-1), cv=3)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("X", "y", "parameters", "message"),
    [
        (Z, None, {}, "target y is None"),
        (Z, Y[:, :5], {}, "y has shape"),
        (Z, Y[:, 0], {}, "y has shape"),
        (Z, np.where(Y == 1, 2, 0), {}, "row . of label . is 2"),
        (Z, np.full(Y.shape, -1), {}, "nothing to learn from"),
        (Z, np.zeros(Y.shape), {}, "One class alone"),
        (Z[:, 0], Y[:, 0], {}, "One score per row: use BinaryMCCT"),
        (np.stack([Z, Z]), Y, {}, "a column for each label"),
        (np.where(Z > 2, np.nan, Z), Y, {}, "contains NaN"),
        (lambda: [(Z, Y)], None, {}, "arrays in memory"),
        (Z, Y, {"label_shrinkage": -1}, "label_shrinkage"),
        (Z, Y, {"input": "odds"}, "input"),
        (Z, Y, {"input": "probabilities"}, "no prob"),
    ],
)
def test_what_is_refused(X, y, parameters, message):
    cal = mc.MultilabelMCCT(**parameters)
    with pytest.raises(mc.InputError, match=message):
        cal.fit(X, y)
    assert not [name for name in vars(cal) if name.endswith("_")]
    with pytest.raises(mc.InputError, match="expecting 6 features"):
        _cached("logits").predict_proba(Z[:, :4])
