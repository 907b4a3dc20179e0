"""Metrics of arrays of several axes are those of their rows, less what does not count."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal import metrics

N, M, H, W = 5, 4, 6, 7
RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(N * H * W, M)) * 2
ROWS = softmax(LOGITS, axis=1)
LABELS = np.array([RNG.choice(M, p=p) for p in softmax(LOGITS / 2, axis=1)])
HIDDEN = RNG.random(len(ROWS)) < 0.3


def images(rows):
    return np.ascontiguousarray(np.moveaxis(rows.reshape(N, H, W, -1), -1, 1))


IMAGES, PLACES = images(ROWS), LABELS.reshape(N, H, W)
PADDED = np.where(HIDDEN.reshape(N, 1, H, W), np.nan, IMAGES)
PADDED_LABELS = np.where(HIDDEN, -100, LABELS).reshape(N, H, W)
KEPT = ROWS[~HIDDEN], LABELS[~HIDDEN]
HOW = {"class_axis": 1, "ignore_index": -100}

# Every public function of probabilities and labels takes the two keywords; but the promise of a review rule needs independent
# rows, which the pixels of an image are not.
FUNCTIONS = [
    name
    for name in metrics.__all__
    if inspect.isfunction(getattr(metrics, name))
    and list(inspect.signature(getattr(metrics, name)).parameters)[:2] == ["probs", "labels"]
    and name not in ("review_rule", "evaluate_labels")
]


def test_no_metric_is_left_out():
    assert set(FUNCTIONS) >= {"evaluate", "ece_floor", *metrics.METRICS}


def plain(result):
    return result.to_dict() if hasattr(result, "to_dict") else result


def two_classes():
    """The same rows, of the first class and all others."""
    rows = np.column_stack([ROWS[:, 0], 1 - ROWS[:, 0]])
    labels = np.minimum(LABELS, 1)
    padded = np.where(HIDDEN.reshape(N, 1, H, W), np.nan, images(rows))
    hidden = np.where(HIDDEN, -100, labels).reshape(N, H, W)
    return (rows[~HIDDEN], labels[~HIDDEN]), (padded, hidden)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_metric_of_places_is_that_of_their_rows(name):
    function = getattr(metrics, name)
    two = name in metrics.METRICS and metrics.METRICS[name].binary
    kept, padded = two_classes() if two else (KEPT, (PADDED, PADDED_LABELS))
    expected = function(*kept)
    result = function(*padded, **HOW)
    if name == "bin_sums":
        result, expected = result.__dict__, expected.__dict__
    np.testing.assert_equal(plain(result), plain(expected))


def test_weights_and_groups_have_the_shape_of_labels():
    weight, site = RNG.random((N, H, W)), np.arange(N) % 2
    result = mc.evaluate(PADDED, PADDED_LABELS, sample_weight=weight, groups=site, **HOW)
    rows = ~HIDDEN
    expected = mc.evaluate(*KEPT, sample_weight=weight.ravel()[rows], groups=np.repeat(site, H * W)[rows])
    assert result.to_dict() == expected.to_dict()


def test_two_predictors_on_the_same_places():
    other = images(softmax(LOGITS / 2, axis=1))
    for function in (metrics.compare, metrics.price_of_order):
        result = function(np.where(np.isnan(PADDED), np.nan, other), PADDED, PADDED_LABELS, **HOW)
        expected = function(softmax(LOGITS / 2, axis=1)[~HIDDEN], *KEPT)
        assert result.to_dict() == expected.to_dict()


def test_parts_of_a_large_file(tmp_path, monkeypatch):
    np.save(tmp_path / "p.npy", PADDED)
    np.save(tmp_path / "y.npy", PADDED_LABELS)
    p, y = (np.load(tmp_path / name, mmap_mode="r") for name in ("p.npy", "y.npy"))
    monkeypatch.setattr("monocal.inputs.files.IN_MEMORY", 1000)
    monkeypatch.setattr("monocal.inputs.files._READ", 500)
    result, expected = mc.evaluate(p, y, **HOW), mc.evaluate(*KEPT)
    assert "adaptive_ece" not in result.estimates
    assert result.n_samples == expected.n_samples
    for name, estimate in result.estimates.items():
        assert estimate.value == pytest.approx(expected[name].value, rel=1e-12), name
    for refused in ({"metrics": "adaptive_ece"}, {"n_boot": 10}, {"groups": PLACES}):
        with pytest.raises(mc.InputError, match="large file"):
            mc.evaluate(p, y, **HOW, **refused)


def test_dask_arrays_of_images():
    da = pytest.importorskip("dask.array")
    p, y = da.from_array(PADDED, chunks=(2, 2, H, 3)), da.from_array(PADDED_LABELS, chunks=(2, H, W))
    result, expected = mc.evaluate(p, y, **HOW), mc.evaluate(*KEPT)
    for name, estimate in result.estimates.items():
        assert estimate.value == pytest.approx(expected[name].value, rel=1e-12), name


def test_the_audit_of_order_looks_at_places_that_count():
    after = IMAGES.copy()
    after[0, [0, 1], 0, 0] = after[0, [1, 0], 0, 0]  # two classes of one pixel change places
    labels = PLACES.copy()
    labels[0, 0, 0] = -100
    assert mc.order_audit(IMAGES, after, class_axis=1).all.rows_inverted == 1
    audit = mc.order_audit(IMAGES, after, class_axis=1, labels=labels, ignore_index=-100)
    assert audit.preserved
    assert audit.all.rows == N * H * W - 1
    for wrong in ({"labels": labels}, {"ignore_index": -100}):
        with pytest.raises(mc.InputError, match="go together"):
            mc.order_audit(IMAGES, after, class_axis=1, **wrong)


@pytest.mark.parametrize(
    ("labels", "how", "words"),
    [
        (PLACES, {}, "fits class_axis=1"),
        (PLACES, {"class_axis": 7}, "is no axis of probs"),
        (np.full_like(PLACES, -100), HOW, "every label is -100"),
        (PADDED_LABELS, {"class_axis": 1}, "label -100 in row"),
    ],
)
def test_what_does_not_fit_is_refused(labels, how, words):
    with pytest.raises(mc.InputError, match=words):
        mc.evaluate(IMAGES, labels, **how)
