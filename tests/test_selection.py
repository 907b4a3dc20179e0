"""One recommendation: which method, by the rows alone, and the same wherever no method is named."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import monocal as mc
from monocal.data import synthetic
from monocal.report import Trial, as_set, collect, compare_methods
from monocal.selection import recommend


def biased(n=2000, m=4, shift=4.0):
    data = synthetic(n, m)
    return data.values + shift * np.eye(m)[0], data.labels


def rows_of(n, m, seed=0):
    data = synthetic(n, m, seed=seed)
    return data.values, data.labels


ONE_SCORE = synthetic(500, 2).values[:, 1], synthetic(500, 2).labels
CASES = {
    "many classes": (rows_of(2000, 4), {}, "conditional-mcct"),
    "two classes": (rows_of(500, 2), {}, "binary-mcct"),
    "one score": (ONE_SCORE, {"kind": "scores"}, "binary-mcct"),
    "one class only": ((synthetic(50, 2).values, np.zeros(50, int)), {}, "mcct"),
    "the order is the obstacle": (biased(), {}, "structured-mcct"),
    "to a rare prediction": (biased(shift=-4.0), {}, "structured-mcct"),
    "a class is predicted a little too rarely": (biased(shift=-0.5), {}, "conditional-mcct"),
    "the order is the obstacle, and a context": (biased(), {"keep_order": True}, "conditional-mcct"),
    "few rows": (rows_of(40, 5), {}, "conditional-mcct"),
    "one row": (rows_of(1, 5), {}, "conditional-mcct"),
    "more rows than are examined": (biased(120_000, 3), {}, "structured-mcct"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_method_follows_from_the_rows(case):
    (values, labels), options, name = CASES[case]
    names = ["cat", "dog", "owl", "bee", "cow"][: np.shape(values)[-1]]
    made = recommend(values, labels, class_names=names, **options)
    assert made.name == name
    assert made.calibrator.input == options.get("kind", "logits")
    assert not hasattr(made.calibrator, "solution_")  # it is not fitted
    assert bool(made.obstacles) == (name == "structured-mcct" or "keep_order" in options)
    assert ("'cat'" in made.reason) == bool(made.obstacles)


@pytest.mark.parametrize("m", [3, 20])
def test_rows_without_a_biased_class_keep_their_order(m):
    sets = [rows_of(n, m, seed) for n in (100, 1000) for seed in range(10)]
    assert {recommend(*rows).name for rows in sets} == {"conditional-mcct"}


def test_labels_that_do_not_count_and_weights_of_zero_change_nothing():
    values, labels = biased()
    expected = recommend(values, labels).reason
    more = np.concatenate([values, -values]), np.concatenate([labels, np.full(len(labels), -100)])
    assert recommend(*more).reason == expected
    weight = np.repeat([1.0, 0.0], len(labels))
    assert recommend(more[0], np.concatenate([labels, labels]), sample_weight=weight).reason == expected


@pytest.mark.parametrize("m", [2, 5])
def test_groups_that_differ_become_the_context_and_equal_ones_do_not(m):
    (values, labels), groups = rows_of(1800, m, 3), np.arange(1800) % 3
    assert not recommend(values, labels, groups=groups).context
    uneven = np.where((groups == 0)[:, None], 4.0, 1.0) * values
    differ = recommend(uneven, labels, groups=np.array(["a", "b", "c"])[groups])
    assert differ.context
    assert "they are its context" in differ.reason


@pytest.mark.parametrize("m", [2, 6])
def test_groups_that_do_not_differ_are_rarely_said_to(m):
    sets = [rows_of(300, m, seed) for seed in range(40)]
    assert np.mean([recommend(*rows, groups=np.arange(300) % 4).context for rows in sets]) <= 0.10


@pytest.mark.parametrize("m", [2, 5])
def test_every_way_leads_to_the_same_method(m):
    values, labels = rows_of(400, m, 7)
    expected = recommend(values, labels)
    cal = as_set((values, labels), "cal")
    make = pytest.importorskip("monocal.cli.fit_apply").make
    assert type(make(None, cal)) is type(expected.calibrator)
    methods = {expected.title: expected.calibrator, "TS": mc.TemperatureScaling()}
    assert compare_methods(Trial.of(cal, None), methods, n_boot=2).recommended == expected.title
    report = collect(cal, methods=methods, n_boot=2)
    assert report.shown == expected.title
    assert report.verdict.advice.startswith(f"Use {expected.title}: {expected.reason}")

    class Scores(ClassifierMixin, BaseEstimator):  # its scores are the logits
        def fit(self, X, y):
            self.classes_ = np.arange(m)
            return self

        def decision_function(self, X):
            return X[:, 1] - X[:, 0] if m == 2 else X

    model = mc.CalibratedClassifier(Scores().fit(None, None), cv="prefit").fit(values, labels)
    assert type(model.calibrator_) is type(expected.calibrator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(100, int)}, "inconsistent numbers of samples"),
        ({"labels": np.repeat("cat", 200)}, "expected places of the columns"),
        ({"sample_weight": np.ones(100)}, "sample_weight"),
        ({"sample_weight": -np.ones(200)}, "negative"),
        ({"kind": "log-odds"}, "kind must be one of"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    rows = synthetic(200, 3)
    with pytest.raises(ValueError, match=message):
        recommend(**{"values": rows.values, "labels": rows.labels} | change)
