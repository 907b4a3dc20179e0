"""The report on many labels: columns by name, pairs of arrays, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import monocal as mc
from monocal.data import LogitsSet

RNG = np.random.default_rng(0)
P = RNG.uniform(size=(300, 2))
Y = (RNG.uniform(size=P.shape) < P ** [1, 3]).astype(int)
CAL = LogitsSet(P, Y, "probabilities", class_names=("a", "b"), many_labels=True)
SWAPPED = replace(CAL, values=P[:, ::-1], labels=Y[:, ::-1], class_names=("b", "a"))


@pytest.fixture
def page(tmp_path):
    return lambda *sets, **options: mc.write_report(tmp_path / "page.html", *sets, force=True, **options)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_columns_are_matched_by_name(page):
    expected = page(CAL, CAL)
    swapped = page(CAL, replace(SWAPPED, weights=np.ones(len(P))))
    np.testing.assert_array_equal(swapped.after.ece, expected.after.ece)
    assert any("order" in note for note in swapped.notes)
    assert any("weights" in note for note in swapped.notes)
    fitted = mc.MultilabelMCCT(input="probabilities").fit(pd.DataFrame(P, columns=["a", "b"]), Y)
    np.testing.assert_array_equal(page(SWAPPED, calibrator=fitted).after.ece, expected.after.ece)


def test_weights_are_not_used_and_pairs_of_arrays_are_sets(page):
    expected = page(CAL).after.nll
    weighted = page(replace(CAL, weights=RNG.uniform(0, 9, len(P))))
    np.testing.assert_array_equal(weighted.after.nll, expected)
    np.testing.assert_array_equal(page(CAL, (P, Y)).after.nll, page(CAL, CAL).after.nll)
    fitted = mc.MultilabelMCCT(input="probabilities").fit(P, Y)
    assert "they flatter it" in page(CAL, calibrator=fitted).judged_how


@pytest.mark.parametrize(
    ("test", "options", "message"),
    [
        (replace(CAL, labels=None), {}, "test: it has no labels"),
        (replace(CAL, labels=Y[:, 0]), {}, r"labels of shape \(300,\)"),
        (replace(CAL, kind="logits"), {}, "got logits"),
        ((P[:, :1], Y[:, :1]), {}, r"labels of shape \(n, 2\)"),
        ((P, Y[:9]), {}, r"labels of shape \(9, 2\)"),
        (P, {}, "expected a LogitsSet"),
        ((pd.DataFrame(P), Y), {}, "for frames make a LogitsSet"),
        (replace(CAL, class_names=("a", "c")), {}, "'a' and 'c'|'a', 'c'"),
        (None, {"n_bins": 9}, "not 'n_bins'"),
        (None, {"groups": Y[:, 0], "level": 0.9}, "not 'groups', 'level'"),
    ],
)
def test_what_does_not_apply_is_refused(page, test, options, message):
    with pytest.raises(mc.InputError, match=message):
        page(CAL, test, **options)


def test_few_rows_are_cross_validated_in_fewer_folds(page):
    few = replace(CAL, values=np.array([[0.1, 0.2], [0.9, 0.8], [0.3, 0.6], [0.7, 0.4]]))
    assert "4-fold" in page(replace(few, labels=(few.values > 0.5).astype(int))).judged_how
    with pytest.raises(mc.InputError, match="one row cannot be split"):
        page(replace(CAL, values=P[:1], labels=Y[:1]), calibrator=mc.MultilabelMCCT(input="probabilities"))


@pytest.mark.parametrize(
    ("power", "rows", "state", "headline", "advice"),
    [
        (2, 600, "bad", "2 of 2 labels are off", "Use MultilabelMCCT. After it, none of 2 labels is off beyond chance."),
        (1, 600, "good", "None of 2 labels", "No calibration is needed. If you want one: use MultilabelMCCT. After it, "),
        (1, 60, "few", "Too few rows to say: none of 2", "More rows would tell whether calibration helps."),
    ],
)  # fmt: skip
def test_the_verdict_says_what_to_do(page, power, rows, state, headline, advice):
    rng = np.random.default_rng(3)
    p = rng.uniform(size=(rows, 2))
    report = page(replace(CAL, values=p, labels=(rng.uniform(size=p.shape) < p**power).astype(int)))
    verdict = report.verdict
    assert verdict.state == state
    assert verdict.headline.startswith(headline)
    assert verdict.advice.startswith(advice)
    assert "P(label)" in report.to_html()
    assert "P(class 1)" not in report.to_html()
