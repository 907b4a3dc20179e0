"""Rows of every kind side by side in one batch: each is answered as if it were alone, in order, finite.

Every method of the registry (and some variants) x every form of array x every export (`every_form`).
"""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from every_form import (
    CONES,
    EXPORTS,
    FORMS,
    MATRIX_PRODUCTS,
    METHODS,
    M,
    assert_near,
    assert_sound,
    calibration_rows,
    double,
    epsilon,
    fitted,
    how_far_off,
    in_batch_and_alone,
    in_form,
    sane,
    through_loops,
)
from hostile import assert_order_kept, mixed_rows

torch = pytest.importorskip("torch")


def in_places(cal, method, rows, axis, lead):
    """The same rows as places of an array of several axes: pixels of an image, tokens of a sequence."""
    cal = copy(cal).set_params(class_axis=axis)
    places = rows.reshape(*lead, M)
    places = (torch if torch.is_tensor(rows) else np).moveaxis(places, -1, axis)
    result = getattr(cal, method)(places)
    assert result.shape == places.shape
    return np.moveaxis(double(result), axis, -1).reshape(-1, M)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", METHODS)
def test_each_row_alone_equals_the_row_in_the_batch(name, form, monkeypatch):
    """Also among any others, and as a token or a pixel."""
    dtype = through_loops(form, monkeypatch)
    cal = fitted(name)
    rows = in_form(mixed_rows(M, seed=len(name), each=1), dtype)
    some = np.random.default_rng(0).permutation(len(rows))[:5]
    for method in ("predict_proba", "transform"):
        function = getattr(cal, method)
        assert function(rows[:2]).dtype == rows.dtype
        batch, alone = in_batch_and_alone(function, rows)
        results = [
            batch,
            in_places(cal, method, rows, -1, (-1, 2)),
            in_places(cal, method, rows, 1, (1, 2, -1)),
        ]
        for result in results:
            assert_sound(rows, result, method, cal.preserves_order)
            if name not in MATRIX_PRODUCTS:
                np.testing.assert_array_equal(result, alone)
        if name not in MATRIX_PRODUCTS:
            np.testing.assert_array_equal(double(function(rows[some])), alone[some])
        else:
            assert_near(batch[sane(rows)], alone[sane(rows)], 4 * max(epsilon(rows), 1e-6))
        if cal.preserves_top1:
            np.testing.assert_array_equal(batch.argmax(axis=1), double(rows).argmax(axis=1))


EXPORTED = (
    "TS",
    "MCCT, many jumps",
    "conditional, all statistics",
    "conditional, top 5",
    "conditional, by class",
)


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("name", EXPORTED)
def test_each_row_alone_equals_the_row_in_the_batch_of_an_export(name, export):
    cal = fitted(name)
    make, dtype = EXPORTS[export]
    rows = in_form(mixed_rows(M, seed=len(name), each=1), dtype)
    for method in ("predict_proba", "transform"):
        batch, alone = in_batch_and_alone(make(cal, method), rows)
        rounding = 1e-12 if epsilon(rows) < 1e-12 else 2e-6  # a runtime may take matrix products
        np.testing.assert_allclose(batch, alone, rtol=rounding, atol=rounding)
        for result in (batch, alone):
            assert_sound(rows, result, method)
        # In single precision the calibrator itself is off, perhaps to the other side: an export is as near to what is right.
        results = batch, double(getattr(cal, method)(rows)), getattr(cal, method)(double(rows))
        if method == "transform":  # logits are known up to a constant per row
            results = tuple(x - x.max(axis=1, keepdims=True) for x in results)
        narrow = epsilon(rows) if epsilon(rows) > 1e-6 else 0.0
        off, off_itself = (how_far_off(x[sane(rows)], results[2][sane(rows)]) for x in results[:2])
        assert (off <= off_itself + max(rounding, narrow)).all()


def test_a_tie_and_a_mask_that_cancel():
    """One class too many above a jump in one row, one too few in another: rows between them are not reshaped."""
    rng = np.random.default_rng(0)
    z, y = calibration_rows(100, n=1500)
    cal = mc.MCCT().fit(z, y)
    start = cal.rank_map_.starts[1]
    rows = np.sort(rng.normal(size=(3, 100)) * 3, axis=1)
    rows[0, start - 1] = rows[0, start]
    rows[2, : start + 1] = -np.inf
    rows[1] = np.roll(rows[1], 10)
    batch, alone = in_batch_and_alone(cal.predict_proba, rows)
    np.testing.assert_array_equal(batch, alone)
    assert_order_kept(rows, batch)


@pytest.mark.parametrize("form", [name for name in FORMS if "64" in name])
@pytest.mark.parametrize(
    "make", [mc.TemperatureScaling, mc.MCCT, lambda: mc.MCCT(top_k=5), mc.ConditionalMCCT]
)
def test_probabilities_are_the_softmax_of_the_calibrated_logits(make, form):
    """Also of a map that trusts nothing, under which a class a million below the top still counts."""
    z, _ = calibration_rows(M)
    cal = make().fit(z, np.random.default_rng(0).integers(0, M, len(z)))
    rows = in_form(mixed_rows(M, seed=2), FORMS[form][0])
    expected = softmax(double(cal.transform(rows)), axis=1)
    np.testing.assert_allclose(double(cal.predict_proba(rows)), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # labels of two classes that say nothing
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("classes", [2, 33, 48, 49, 301, 4097])
def test_sums_do_not_depend_on_the_number_of_rows(classes):
    """Rows of few, of more and of many classes are laid out and summed in different ways: each as if it were alone."""
    data = mc.data.synthetic(60, classes, seed=classes)
    for cal in (mc.TemperatureScaling(), mc.MCCT(shrinkage=0.1), mc.ConditionalMCCT(shrinkage=0.1)):
        if classes > 1000:  # what is fitted matters less than what is summed
            cal.set_params(max_iter=2, tol=1.0)
        cal.fit(data.values, data.labels)
        for dtype in (np.float32, np.float64):
            z = data.values[:24].astype(dtype)
            for method in (cal.predict_proba, cal.transform):
                batch, alone = in_batch_and_alone(method, z)
                np.testing.assert_array_equal(batch, alone)
                for n in (16, 17):
                    np.testing.assert_array_equal(double(method(z[7 : 7 + n])), alone[7 : 7 + n])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONES)
def test_a_finite_mask_costs_the_other_classes_no_digits(name, form, monkeypatch):
    """Everything is measured from the top of a row, so a number that hides a class takes no precision from the others."""
    dtype = through_loops(form, monkeypatch)
    cal = fitted(name)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(120, M)) * 3
    hidden = rng.random(z.shape) < 0.4
    hidden[:, :2] = False
    mask = np.repeat([-1e4, -1e5, -9e5, -3e38], 30)[:, None]
    rows = in_form(np.where(hidden, mask if dtype != np.float16 else np.maximum(mask, -6e4), z), dtype)
    right = cal.predict_proba(double(rows))
    p, f = double(cal.predict_proba(rows)), double(cal.transform(rows))
    unit = epsilon(rows)
    # A statistic of the row (its mean gap, its spread) is of the size of the mask, and rounded as such before a ramp reads it.
    np.testing.assert_allclose(p, right, rtol=0, atol=max(unit, 1e-5))
    # Logits that matter are few, and rounded to their type.
    np.testing.assert_allclose(softmax(f, axis=1), right, rtol=0, atol=max(4 * unit, 1e-5))


# What a shift of the logits and other names of the classes change: nothing, or the order of sums.
FEW = pytest.mark.parametrize("name", EXPORTED[:4])


@pytest.mark.parametrize("form", FORMS)
@FEW
def test_a_shift_that_is_exact_changes_nothing_at_all(name, form):
    rows = in_form(np.random.default_rng(0).integers(-40, 40, size=(200, M)) / 8.0, FORMS[form][0])
    p = fitted(name).predict_proba(rows)
    for shift in (1.0, -11.0, 0.125):
        np.testing.assert_array_equal(double(fitted(name).predict_proba(rows + shift)), double(p))


def with_names(cal, names):
    """The same calibrator for renamed classes: what it knows of classes is renamed with them."""
    stage = getattr(cal, "adjustment_", None)
    if stage is None or stage.class_scales is None:
        return cal
    other = copy(cal)
    scales = replace(stage.class_scales, scales=stage.class_scales.scales[names])
    other.adjustment_ = replace(stage, class_scales=scales)
    return other


@pytest.mark.parametrize("form", FORMS)
@FEW
def test_renaming_the_classes_renames_the_result_up_to_the_order_of_sums(name, form):
    rows = in_form(mixed_rows(M, seed=11, each=5), FORMS[form][0])
    names = np.random.default_rng(0).permutation(M)
    rounding = 1e-14 if epsilon(rows) < 1e-12 else max(epsilon(rows), 2e-6)
    cal = fitted(name)
    p, renamed = (
        double(c.predict_proba(x)) for c, x in ((cal, rows), (with_names(cal, names), rows[:, names]))
    )
    np.testing.assert_allclose(renamed, p[:, names], rtol=rounding, atol=rounding)
