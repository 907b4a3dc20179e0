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
HOW = {"class_axis": 1, "ignore_index": -100}


def images(rows):
    return np.ascontiguousarray(np.moveaxis(rows.reshape(N, H, W, -1), -1, 1))


def padded(rows, labels):
    """As images in which the hidden places have no values."""
    hidden = HIDDEN.reshape(N, H, W)
    return np.where(hidden[:, None], np.nan, images(rows)), np.where(hidden, -100, labels.reshape(N, H, W))


IMAGES, PLACES = images(ROWS), LABELS.reshape(N, H, W)
PADDED, PADDED_LABELS = padded(ROWS, LABELS)
KEPT = ROWS[~HIDDEN], LABELS[~HIDDEN]
TWO = np.column_stack([ROWS[:, 0], 1 - ROWS[:, 0]]), np.minimum(LABELS, 1)

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
    return result.to_dict() if hasattr(result, "to_dict") else getattr(result, "__dict__", result)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_metric_of_places_is_that_of_their_rows(name):
    function = getattr(metrics, name)
    two = name in metrics.METRICS and metrics.METRICS[name].binary
    rows, labels = TWO if two else (ROWS, LABELS)
    result = function(*padded(rows, labels), **HOW)
    np.testing.assert_equal(plain(result), plain(function(rows[~HIDDEN], labels[~HIDDEN])))


def test_weights_and_groups_have_the_shape_of_labels():
    weight, site = RNG.random((N, H, W)), np.arange(N) % 2
    result = mc.evaluate(PADDED, PADDED_LABELS, sample_weight=weight, groups=site, **HOW)
    rows = ~HIDDEN
    expected = mc.evaluate(*KEPT, sample_weight=weight.ravel()[rows], groups=np.repeat(site, H * W)[rows])
    assert result.to_dict() == expected.to_dict()


@pytest.mark.parametrize("function", [metrics.compare, metrics.price_of_order])
def test_two_predictors_on_the_same_places(function):
    other = softmax(LOGITS / 2, axis=1)
    result = function(padded(other, LABELS)[0], PADDED, PADDED_LABELS, **HOW)
    assert result.to_dict() == function(other[~HIDDEN], *KEPT).to_dict()


def test_parts_of_a_large_file(tmp_path, monkeypatch):
    np.save(tmp_path / "p.npy", PADDED)
    p, y = np.load(tmp_path / "p.npy", mmap_mode="r"), PADDED_LABELS
    monkeypatch.setattr("monocal.inputs.files.IN_MEMORY", 1000)
    monkeypatch.setattr("monocal.inputs.files._READ", 500)
    result, expected = mc.evaluate(p, y, **HOW), mc.evaluate(*KEPT)
    assert "adaptive_ece" not in result.estimates
    assert result.n_samples == expected.n_samples
    for name, estimate in result.estimates.items():
        assert estimate.value == pytest.approx(expected[name].value, rel=1e-12), name
    for refused in ({"metrics": "adaptive_ece"}, {"n_boot": 10}, {"groups": PLACES}):
        with pytest.raises(mc.InputError, match="needs all rows in one process"):
            mc.evaluate(p, y, **HOW, **refused)


def test_the_audit_of_order_examines_places_that_count():
    after = IMAGES.copy()
    after[0, [0, 1], 0, 0] = after[0, [1, 0], 0, 0]  # two classes of one pixel change places
    labels = PLACES.copy()
    labels[0, 0, 0] = -100
    assert mc.order_audit(IMAGES, after, class_axis=1).all.rows_inverted == 1
    audit = mc.order_audit(IMAGES, after, class_axis=1, labels=labels, ignore_index=-100)
    assert audit.preserved
    assert audit.all.rows == N * H * W - 1
    with pytest.raises(mc.InputError, match="go together"):
        mc.order_audit(IMAGES, after, class_axis=1, labels=labels)


@pytest.mark.parametrize(
    ("labels", "how", "words"),
    [
        (PLACES, {}, "there is one entry for each place"),
        (PLACES, {"class_axis": 7}, "is no axis of probs"),
        (np.full_like(PLACES, -100), HOW, "every label is -100"),
        (PADDED_LABELS, {"class_axis": 1}, "label -100 in row"),
    ],
)
def test_what_does_not_fit_is_refused(labels, how, words):
    with pytest.raises(mc.InputError, match=words):
        mc.evaluate(IMAGES, labels, **how)
