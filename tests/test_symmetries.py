"""What a shift of the logits and other names of the classes change: nothing, or the order of sums."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from every_form import FORMS, M, double, epsilon, fitted, in_form
from hostile import mixed_rows

pytest.importorskip("torch")


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
