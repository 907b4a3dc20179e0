"""One recommendation: which method, by the rows alone, and the same wherever no method is named."""

from __future__ import annotations

import numpy as np
import pytest

from monocal.data import LogitsSet, synthetic
from monocal.registry import find_method
from monocal.selection import recommend


def biased(n=2000, m=4):
    data = synthetic(n, m)
    return data.values + 4.0 * np.eye(m)[0], data.labels


CASES = {
    "many classes": (synthetic(2000, 4), {}, "conditional-mcct"),
    "two classes": (synthetic(500, 2), {}, "binary-mcct"),
    "one score": (
        (synthetic(500, 2).values[:, 1], synthetic(500, 2).labels),
        {"kind": "scores"},
        "binary-mcct",
    ),
    "one class only": ((synthetic(50, 2).values, np.zeros(50, int)), {}, "mcct"),
    "the order is the obstacle": (biased(), {}, "structured-mcct"),
    "the order is the obstacle, and a context": (biased(), {"keep_order": True}, "conditional-mcct"),
    "few rows": (synthetic(40, 5), {}, "conditional-mcct"),
    "one row": (synthetic(1, 5), {}, "conditional-mcct"),
}


def pair(rows):
    return rows if isinstance(rows, tuple) else (rows.values, rows.labels)


@pytest.mark.parametrize("case", CASES)
def test_the_method_follows_from_the_rows(case):
    rows, options, name = CASES[case]
    made = recommend(*pair(rows), **options)
    assert made.name == name
    assert type(made.calibrator) is type(find_method(name)[1])
    assert made.calibrator.input == options.get("kind", "logits")
    assert made.reason.endswith(".")
    assert bool(made.obstacles) == case.startswith("the order")


def test_an_obstacle_is_told_by_the_names_of_the_classes():
    made = recommend(*biased(), class_names=["cat", "dog", "owl", "bee"])
    assert "where it predicts 'cat'" in made.reason
    assert made.obstacles[0].truth_share > made.obstacles[0].accuracy


def test_labels_that_do_not_count_and_weights_of_zero_change_nothing():
    values, labels = biased()
    expected = recommend(values, labels).reason
    more = np.concatenate([values, -values]), np.concatenate([labels, np.full(len(labels), -100)])
    assert recommend(*more).reason == expected
    weight = np.repeat([1.0, 0.0], len(labels))
    assert recommend(more[0], np.concatenate([labels, labels]), sample_weight=weight).reason == expected


@pytest.mark.parametrize("m", [2, 5])
def test_groups_that_differ_become_the_context_and_equal_ones_do_not(m):
    data, groups = synthetic(1800, m, seed=3), np.arange(1800) % 3
    alike = recommend(data.values, data.labels, groups=groups)
    assert not alike.context
    assert "groups" not in alike.reason
    values = np.where((groups == 0)[:, None], 4.0, 1.0) * data.values
    differ = recommend(values, data.labels, groups=np.array(["a", "b", "c"])[groups])
    assert differ.context
    assert differ.name == ("binary-mcct" if m == 2 else "conditional-mcct")
    assert "their context" in differ.reason or "they are its context" in differ.reason


@pytest.mark.parametrize("m", [2, 6])
def test_groups_that_do_not_differ_are_rarely_said_to(m):
    calls = [
        recommend(data.values, data.labels, groups=np.arange(400) % 4).context
        for data in (synthetic(400, m, seed=seed) for seed in range(60))
    ]
    assert np.mean(calls) <= 0.10


def test_larger_sets_are_looked_at_in_part():
    data = synthetic(120_000, 3)
    assert recommend(data.values, data.labels).name == "conditional-mcct"
    assert recommend(data.values + np.array([5.0, 0, 0]), data.labels).name == "structured-mcct"


@pytest.mark.parametrize(("rows", "kind"), [((biased()), "logits"), (pair(synthetic(300, 2)), "logits")])
def test_the_command_line_takes_what_is_recommended(rows, kind):
    from monocal.cli.by_name import make

    assert type(make(None, LogitsSet(*rows, kind))) is type(recommend(*rows, kind=kind).calibrator)
