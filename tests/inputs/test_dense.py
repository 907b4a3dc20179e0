"""Arrays of several axes: the classes in any of them, labels that do not count, results in the shape given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import monocal as mc
from monocal.data import synthetic
from monocal.persistence import from_json, to_json

N, M, H, W = 6, 5, 7, 9
DATA = synthetic(N * H * W, M, seed=4)
ROWS, LABELS = DATA.values, DATA.labels
PLACES = LABELS.reshape(N, H, W)


def images(rows):
    return np.ascontiguousarray(np.moveaxis(rows.reshape(N, H, W, -1), -1, 1))


IMAGES = images(ROWS)


@pytest.mark.parametrize("axis", [0, 1, 3, -2])
def test_any_axis_gives_what_rows_give(axis):
    X = np.moveaxis(ROWS.reshape(N, H, W, M), -1, axis)
    cal = mc.MCCT(class_axis=axis).fit(X, PLACES)
    cal = from_json(to_json(cal, data=(X, PLACES)))
    rows = mc.MCCT().fit(ROWS, LABELS)
    for method in ("predict_proba", "transform"):
        result = getattr(cal, method)(X)
        assert result.shape == X.shape
        np.testing.assert_array_equal(
            np.moveaxis(result, axis, -1).reshape(-1, M), getattr(rows, method)(ROWS)
        )
    np.testing.assert_array_equal(cal.predict(X), rows.predict(ROWS).reshape(N, H, W))
    assert cal.score(X, PLACES) == rows.score(ROWS, LABELS)


IGNORING = [
    mc.TemperatureScaling(),
    mc.MCCT(),
    mc.ConditionalMCCT(),
    mc.StructuredScaling(kind="vector"),
    mc.VectorScaling(),
    mc.StructuredMCCT(),
]


@pytest.mark.parametrize("cal", IGNORING, ids=lambda cal: type(cal).__name__)
@pytest.mark.parametrize("padding", [np.nan, -100.0])
def test_what_is_ignored_may_hold_anything(cal, padding):
    hidden = np.zeros((N, H, W), dtype=bool)
    hidden[:, :2] = hidden[0] = True
    X = np.where(hidden[:, None], padding, IMAGES)
    y = np.where(hidden, -100, PLACES)
    kept = ~hidden.ravel()
    expected = clone(cal).fit(ROWS[kept], LABELS[kept])
    dense = clone(cal).set_params(class_axis=1, ignore_index=-100)
    np.testing.assert_array_equal(dense.fit(X, y).predict_proba(IMAGES), images(expected.predict_proba(ROWS)))
    assert dense.score(X, y) == pytest.approx(expected.score(ROWS[kept], LABELS[kept]), rel=1e-12)
    rows = np.moveaxis(X, 1, -1).reshape(-1, M)
    plain = clone(cal).set_params(ignore_index=-100).fit(rows, y.ravel())
    np.testing.assert_array_equal(plain.predict_proba(ROWS), expected.predict_proba(ROWS))


def test_weights_and_masks_have_the_shape_of_labels():
    mask = np.random.default_rng(0).random((N, H, W)) < 0.7
    cal = mc.MCCT(class_axis=1).fit(IMAGES, PLACES, sample_weight=mask)
    expected = mc.MCCT().fit(ROWS[mask.ravel()], LABELS[mask.ravel()])
    np.testing.assert_array_equal(cal.predict_proba(IMAGES), images(expected.predict_proba(ROWS)))


def test_context_of_places_and_of_images():
    site, light = np.arange(N) % 2, np.random.default_rng(1).normal(size=(N, H, W))
    cal = mc.ConditionalMCCT(class_axis=1)
    cal.fit(IMAGES, PLACES, context={"site": site, "light": light})
    result = cal.predict_proba(IMAGES, context={"site": site, "light": light})
    rows = {"site": np.repeat(site, H * W), "light": light.ravel()}
    expected = mc.ConditionalMCCT().fit(ROWS, LABELS, context=rows).predict_proba(ROWS, context=rows)
    np.testing.assert_array_equal(result, images(expected))
    with pytest.raises(mc.InputError, match=r"context has shape \(4,\), and there are places of shape"):
        cal.predict_proba(IMAGES, context={"site": site[:4], "light": light})


def test_out_and_blocks_have_the_shape_given(tmp_path, monkeypatch):
    cal = mc.MCCT(class_axis=1).fit(IMAGES, PLACES)
    expected = cal.predict_proba(IMAGES)
    out = np.lib.format.open_memmap(tmp_path / "p.npy", mode="w+", dtype=np.float32, shape=IMAGES.shape)
    assert cal.predict_proba(IMAGES, out=out) is out
    np.testing.assert_allclose(out, expected, atol=1e-6)
    np.save(tmp_path / "z.npy", IMAGES)
    file = np.load(tmp_path / "z.npy", mmap_mode="r")
    monkeypatch.setattr("monocal.inputs.files._READ", 2 * M * H * W)
    result = list(cal.predict_blocks(file))
    assert [block.shape for block in result] == [(2, M, H, W)] * 3
    np.testing.assert_array_equal(np.concatenate(result), expected)
    with pytest.raises(mc.InputError, match=r"out must be an array of shape \(6, 5, 7, 9\)"):
        cal.predict_proba(IMAGES, out=np.empty((N, H, W, M)))


@pytest.mark.parametrize(
    ("cal", "X", "y", "words"),
    [
        (mc.MCCT(), IMAGES, PLACES, r"y has shape \(6, 7, 9\) .*in shape"),
        (mc.MCCT(class_axis=1), IMAGES, LABELS, r"in shape \(6, 7, 9\)"),
        (
            mc.MCCT(class_axis=4),
            IMAGES,
            PLACES,
            r"class_axis=4.* is no axis of X.* from -4 to 3",
        ),
        (mc.MCCT(class_axis=-3), ROWS, LABELS, "class_axis=-3.* is no axis of X"),
        (mc.MCCT(class_axis=True), IMAGES, PLACES, "class_axis must be a whole number"),
        (
            mc.MCCT(ignore_index=0.5),
            ROWS,
            LABELS,
            "ignore_index must be a whole number or None",
        ),
        (mc.MCCT(ignore_index=-100), ROWS, np.full(len(ROWS), -100), "every label is -100"),
        (mc.MCCT(class_axis=1, ignore_index=-1), IMAGES, np.full(PLACES.shape, -1), "every label is -1"),
        (mc.MCCT(), ROWS, np.where(LABELS == 0, -100, LABELS), "label -100 in row"),
        (mc.MCCT(class_axis=1), np.where(IMAGES > 3, np.nan, IMAGES), PLACES, "X contains NaN: first in row"),
        (mc.Stacked([mc.MCCT(class_axis=1)]), ROWS, LABELS, "class_axis=1 for all of them together"),
        (mc.LabelShift(mc.MCCT(ignore_index=-1)), ROWS, LABELS, "ignore_index=-1 for all of them together"),
    ],
)
def test_what_does_not_fit_is_refused(cal, X, y, words):
    with pytest.raises(mc.InputError, match=words):
        cal.fit(X, y)


def test_all_ignored_wherever_the_rows_are(tmp_path):
    da = pytest.importorskip("dask.array")
    nothing = np.full(PLACES.shape, -100)
    cal = mc.MCCT(class_axis=1, ignore_index=-100)
    with pytest.raises(mc.InputError, match="every label is -100"):
        cal.fit(lambda: iter([(IMAGES, nothing)]))
    with pytest.raises(mc.InputError, match="every label is -100"):
        mc.MCCT(ignore_index=-100).fit(da.from_array(ROWS, chunks=(50, M)), nothing.ravel())
    with pytest.raises(mc.InputError, match=r"a Dask array must have one row per sample .* reshape it"):
        cal.fit(da.from_array(IMAGES, chunks=(2, M, H, W)), PLACES)


def test_parameters_are_saved_and_compared(tmp_path):
    cal = mc.MCCT().fit(ROWS, LABELS)
    for X, words in ((IMAGES, "Set class_axis"), (IMAGES[:, :4], "of the same model")):
        with pytest.raises(mc.InputError, match=words):
            cal.predict_proba(X)
    cal = mc.MCCT(class_axis=1, ignore_index=-100).fit(IMAGES, PLACES)
    cal.save(tmp_path / "cal.json", data=(IMAGES, PLACES))
    again = mc.load(tmp_path / "cal.json")
    assert (again.class_axis, again.ignore_index) == (1, -100)
    np.testing.assert_array_equal(again.predict_proba(IMAGES), cal.predict_proba(IMAGES))
    from monocal.persistence import describe

    counts = describe(tmp_path / "cal.json")["data"]["label_counts"]
    assert counts == np.bincount(LABELS, minlength=M).tolist()


def test_tokens_of_a_server_with_padding():
    top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3], [0.7, 0.1]]), [[7, 3], [3, 9], [1, 2]], n_classes=100)
    cal = mc.TemperatureScaling(ignore_index=-100).fit(top, [7, 4, -100])
    assert cal.temperature_ == mc.TemperatureScaling().fit(top[:2], [7, 4]).temperature_
    assert cal.score(top, [7, 4, -100]) == pytest.approx(cal.score(top[:2], [7, 4]), rel=1e-12)
    result = mc.evaluate(top, [7, 4, -100], ignore_index=-100)
    assert result.to_dict() == mc.evaluate(top[:2], [7, 4]).to_dict()


def test_context_that_can_be_read_in_two_ways_is_refused():
    """H columns for each image, or one value for each line of pixels: the shape is the same."""
    either = np.random.default_rng(2).normal(size=(N, H))
    cal = mc.ConditionalMCCT(class_axis=1)
    with pytest.raises(mc.InputError, match="Give a dict of columns, or one value for each place"):
        cal.fit(IMAGES, PLACES, context=either)
    lines = np.repeat(either.ravel(), W)
    expected = mc.ConditionalMCCT().fit(ROWS, LABELS, context={"line": lines})
    cal.fit(IMAGES, PLACES, context={"line": either})
    result = cal.predict_proba(IMAGES, context={"line": either})
    np.testing.assert_array_equal(result, images(expected.predict_proba(ROWS, context={"line": lines})))
    columns = np.random.default_rng(2).normal(size=(N, H + 1))  # no other way to read these
    assert len(cal.fit(IMAGES, PLACES, context=columns).context_.columns) == H + 1
    assert len(cal.fit(IMAGES, PLACES, context=lines.reshape(N, H, W)).context_.columns) == 1
