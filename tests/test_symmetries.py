"""What a shift of the logits, other names of the classes and another layout in memory change: nothing, or the order of sums."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

import monocal as mc
from every_form import FORMS, M, assert_sound, double, epsilon, fitted, in_form
from hostile import mixed_rows

torch = pytest.importorskip("torch")


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
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "conditional, all statistics", "conditional, top 5"]
)
def test_a_shift_that_is_exact_changes_nothing_at_all(name, form):
    dtype, _ = FORMS[form]
    rows = in_form(np.random.default_rng(0).integers(-40, 40, size=(200, M)) / 8.0, dtype)
    p = fitted(name).predict_proba(rows)
    for shift in (1.0, -11.0, 0.125):
        np.testing.assert_array_equal(double(fitted(name).predict_proba(rows + shift)), double(p))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "conditional, all statistics", "conditional, top 5"]
)
def test_renaming_the_classes_renames_the_result_up_to_the_order_of_sums(name, form):
    dtype, _ = FORMS[form]
    rows = in_form(mixed_rows(M, seed=11, each=5), dtype)
    names = np.random.default_rng(0).permutation(M)
    rounding = 1e-14 if epsilon(rows) < 1e-12 else max(epsilon(rows), 2e-6)
    cal = fitted(name)
    p, renamed = (
        double(c.predict_proba(x)) for c, x in ((cal, rows), (with_names(cal, names), rows[:, names]))
    )
    np.testing.assert_allclose(renamed, p[:, names], rtol=rounding, atol=rounding)


@pytest.mark.parametrize("kind", ["mixed", "tied"])
@pytest.mark.parametrize("form", ["numpy float64", "numpy float32", "torch float64"])
@pytest.mark.parametrize(
    "name", ["TS", "MCCT, many jumps", "MCCT, top 5", "conditional, all statistics", "conditional, top 5"]
)
def test_rows_that_lie_in_memory_class_by_class(name, form, kind):
    """As decision functions of scikit-learn and transposed arrays do. All that differs is the order of sums."""
    dtype, _ = FORMS[form]
    tied = np.round(4 * np.random.default_rng(0).normal(size=(200, M)))
    rows = in_form(tied if kind == "tied" else mixed_rows(M, seed=13, each=5), dtype)
    other = rows.T.contiguous().T if isinstance(rows, torch.Tensor) else np.asfortranarray(rows)
    rounding = 1e-13 if epsilon(rows) < 1e-12 else 2e-6
    for method in ("predict_proba", "transform"):
        expected, result = (double(getattr(fitted(name), method)(x)) for x in (rows, other))
        assert_sound(rows, result, method)
        if method == "predict_proba":
            np.testing.assert_allclose(result, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("classes", [20, 65, 5000])
@pytest.mark.parametrize("make", [mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT])
def test_how_rows_lie_in_memory_changes_no_bit(make, classes):
    data = mc.data.synthetic(40, classes, seed=classes)
    cal = make().fit(data.values, data.labels)
    for dtype in (np.float32, np.float64):
        z = data.values.astype(dtype)
        for method in (cal.predict_proba, cal.transform):
            np.testing.assert_array_equal(method(np.asfortranarray(z)), method(z))
            t = torch.from_numpy(z)
            np.testing.assert_array_equal(method(t.T.contiguous().T), method(t))
