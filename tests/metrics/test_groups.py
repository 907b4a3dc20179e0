"""Calibration by group: against plain loops, in every container, with honest chances, and where the order is the obstacle."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, softmax

import monocal as mc
from monocal import metrics as M

GENERATOR = np.random.default_rng(3)
N = 400
PROBS = softmax(1.5 * GENERATOR.standard_normal((N, 4)), axis=1)
LABELS = np.where(GENERATOR.random(N) < 0.5, PROBS.argmax(axis=1), GENERATOR.integers(4, size=N))
GROUP = GENERATOR.integers(5, size=N)
WORDS = np.array(["art", "law", "maths", "music", "sport"])[GROUP]
WEIGHT = GENERATOR.integers(0, 3, size=N).astype(float)


def by_group(groups, probs=PROBS, labels=LABELS, **options):
    return mc.evaluate(probs, labels, metrics="accuracy", groups=groups, **options).groups


def two_class(confidence, right):
    """Probabilities of two classes, the second predicted, and labels that make the given rows right."""
    return np.stack([1 - confidence, confidence], axis=1), np.where(right, 1, 0)


def loop_ece(confidence, right, n_bins, weight=None):
    """Plain loops over ((k-1)/K, k/K]."""
    weight = np.ones(len(right)) if weight is None else weight
    total = 0.0
    for k in range(n_bins):
        inside = [i for i, c in enumerate(confidence) if k / n_bins < c <= (k + 1) / n_bins]
        total += abs(sum(weight[i] * (confidence[i] - right[i]) for i in inside))
    return total / sum(weight)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_columns_against_loops(weight):
    result = by_group(WORDS, sample_weight=weight)
    w = np.ones(N) if weight is None else weight
    top, right = PROBS.max(axis=1), (PROBS.argmax(axis=1) == LABELS).astype(float)
    assert sorted(result.names) == ["art", "law", "maths", "music", "sport"]
    mean = 0.0
    for one in result:
        rows = (one.name == WORDS) & (w > 0)
        assert one.rows == rows.sum()
        assert one.accuracy == pytest.approx(np.average(right[rows], weights=w[rows]))
        assert one.confidence == pytest.approx(np.average(top[rows], weights=w[rows]))
        assert one.ece == pytest.approx(loop_ece(top[rows], right[rows], 5, w[rows]), abs=1e-12)
        assert one.over_confidence == pytest.approx(one.confidence - one.accuracy)
        assert one.low <= one.over_confidence <= one.high
        if weight is None:
            assert one.floor == pytest.approx(mc.ece_floor(PROBS[rows], n_bins=5).median, rel=0.1)
        mean += one.ece * w[rows].sum() / w.sum()
    assert result.mean_ece == pytest.approx(mean)


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_top_label_ece_against_loops(n_bins):
    top, predicted = PROBS.max(axis=1), PROBS.argmax(axis=1)
    expected = 0.0
    for j in range(4):
        rows = predicted == j
        expected += rows.mean() * loop_ece(top[rows], (j == LABELS)[rows], n_bins)
    assert M.top_label_ece(PROBS, LABELS, n_bins=n_bins) == pytest.approx(expected, abs=1e-12)
    assert M.top_label_ece(PROBS, LABELS, n_bins=n_bins) >= M.ece(PROBS, LABELS, n_bins=n_bins) - 1e-12


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        pd.Series,
        lambda g: pd.Series(g, index=range(1000, 1000 + N), dtype="category"),
        lambda g: pd.DataFrame({"a": g}),
        lambda g: {"a": g},
        lambda g: np.asarray(g)[:, None],
        lambda g: pytest.importorskip("dask.array").from_array(np.asarray(g)),
    ],
)
def test_containers_give_the_same_groups(convert):
    for values in (WORDS.tolist(), GROUP.tolist(), (GROUP > 2).tolist()):
        assert by_group(convert(values)).to_dict() == by_group(np.array(values)).to_dict()


def test_tensors_bytes_dates_and_whole_floats_are_groups():
    expected = by_group(GROUP).to_dict()
    for same in (torch.tensor(GROUP), GROUP.astype(float), GROUP.astype(np.uint8), GROUP.astype(object)):
        assert by_group(same).to_dict() == expected
    assert by_group(WORDS.astype("S")).to_dict() == by_group(WORDS).to_dict()
    days = [datetime.date(2020, 1, 1 + k) for k in GROUP]
    assert by_group(days).to_dict() == by_group(np.array(days, dtype="datetime64[D]")).to_dict()
    assert set(by_group(GROUP / 2).names) == {"0", "0.5", "1", "1.5", "2"}


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT], ids=["None", "nan", "NA", "NaT"])
def test_rows_without_a_group_are_one(missing):
    values = WORDS.astype(object)
    values[:50] = missing
    numbers = np.where(np.arange(N) < 50, np.nan, GROUP)
    masked = np.ma.masked_array(WORDS, np.arange(N) < 50)
    for column in (values, values.tolist(), pd.Series(values, dtype="category"), numbers, masked):
        assert by_group(column)["(missing)"].rows == 50


def test_several_columns_make_combinations():
    result = by_group(pd.DataFrame({"subject": WORDS, "late": GROUP > 2}))
    assert set(result.names) == {"art, False", "law, False", "maths, False", "music, True", "sport, True"}
    crossed = by_group(np.stack([GROUP, np.arange(N) % 2], axis=1))
    assert len(crossed) == 10
    assert crossed["3, 1"].rows == ((GROUP == 3) & (np.arange(N) % 2 == 1)).sum()


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("subject", r"groups: expected one value per row, or \"predicted\""),
        (WORDS[:-1], r"400 rows, got shape \(399,\)"),
        (np.zeros((N, 2, 2)), r"\(400, 2, 2\)"),
        ([[1]] * (N - 1) + [[1, 2]], "one value per row"),
        ([{}] * N, "numbers or text"),
        ({}, "at least one column"),
        (np.zeros((N, 0)), "at least one column"),
    ],
)
def test_what_makes_no_groups_is_refused(groups, words):
    with pytest.raises(mc.InputError, match=words):
        by_group(groups)


def test_a_column_of_measurements_is_refused():
    probs, labels = np.tile([0.6, 0.4], (3000, 1)), np.zeros(3000, dtype=int)
    with pytest.raises(mc.InputError, match=r"3000 different fractional numbers.*np\.digitize"):
        by_group(np.random.default_rng(0).random(3000), probs, labels)
    with pytest.raises(mc.InputError, match="class_names: expected 4 names"):
        by_group("predicted", class_names=["a"])


def test_groups_of_one_row_and_one_group():
    alone = by_group(np.arange(N))
    assert len(alone) == N
    assert np.isfinite([alone.low, alone.high, alone.floor, alone.p_adjusted]).all()
    whole = by_group(np.zeros(N))
    top, right = PROBS.max(axis=1), PROBS.argmax(axis=1) == LABELS
    assert whole.off.all()
    assert whole.worst.over_confidence == pytest.approx(top.mean() - right.mean())
    assert not mc.evaluate([[0.9, 0.1]], [0], groups=["a"]).groups.off.any()


def test_certain_rows_and_rows_of_weight_zero():
    sure = by_group(WORDS, np.eye(4)[LABELS], LABELS)
    assert not sure.off.any()
    assert (sure.ece == 0).all()
    wrong = by_group(WORDS, np.eye(4)[(LABELS + 1) % 4], LABELS)
    assert wrong.off.all()
    assert wrong.worst.over_confidence == 1
    assert "law" not in by_group(WORDS, sample_weight=(WORDS != "law").astype(float)).names
    twice, once = (by_group(WORDS, sample_weight=np.full(N, w)).to_dict() for w in (2.0, 1.0))
    assert json.dumps(twice) == json.dumps(once)


def test_false_discoveries_are_as_rare_as_promised():
    """30 experiments of 60 groups, 10 of which are off: of those called off at most 5 % are not, on average."""
    generator = np.random.default_rng(11)
    false, power = [], 0
    for _ in range(30):
        group = np.repeat(np.arange(60), generator.integers(5, 120, size=60))
        confidence = np.where(
            generator.random(len(group)) < 0.4, 0.999, 0.5 + 0.5 * generator.random(len(group))
        )
        true = np.where(group < 10, np.clip(confidence - 0.25, 0, 1), confidence)
        result = by_group(group, *two_class(confidence, generator.random(len(group)) < true))
        called = [int(name) for name, off in zip(result.names, result.off, strict=True) if off]
        false.append(np.mean([k >= 10 for k in called]) if called else 0.0)
        power += sum(k < 10 for k in called)
    assert np.mean(false) <= 0.05 + 2 * np.std(false) / np.sqrt(len(false))
    assert power >= 0.5 * 300


@pytest.mark.parametrize("shape", ["spread", "sure", "two heaps"])
def test_p_values_keep_their_level_and_intervals_cover(shape):
    generator = np.random.default_rng(5)
    for size in (4, 30, 200):
        n = 400 * size
        confidence = {
            "spread": 0.5 + 0.5 * generator.random(n),
            "sure": 1 - 0.1 * generator.random(n) ** 3,
            "two heaps": np.where(generator.random(n) < 0.5, 0.999, 0.6),
        }[shape]
        group = np.repeat(np.arange(400), size)
        calibrated = by_group(group, *two_class(confidence, generator.random(n) < confidence))
        for level in (0.05, 0.2):
            assert (calibrated.p_value <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / 400)
        assert not calibrated.off.any()
        true = np.where(confidence > 0.9, 0.8, confidence)
        result = by_group(group, *two_class(confidence, generator.random(n) < true))
        gap = (confidence - true).reshape(400, size).mean(axis=1)[np.array(result.names, dtype=int)]
        assert np.mean((result.low <= gap + 1e-12) & (gap <= result.high + 1e-12)) >= 0.9


def test_one_group_off_among_many_is_found():
    generator = np.random.default_rng(2)
    group = np.repeat(np.arange(1000), 100)
    confidence = 0.5 + 0.5 * generator.random(len(group))
    true = np.where(group == 77, confidence - 0.4, confidence)
    result = by_group(group, *two_class(confidence, generator.random(len(group)) < true))
    assert [one.name for one in result if one.off] == ["77"]
    assert result.verdict.startswith("1 of 1,000 groups is off beyond chance; the worst is '77': P(class 1)")


def test_of_two_classes_p_of_class_one_is_judged():
    """What is too high in one group and too low in the other leaves the predicted classes right about as often as claimed."""
    generator = np.random.default_rng(0)
    z = 1.5 * generator.standard_normal(6000)
    old = np.arange(6000) % 2 == 1
    labels = generator.random(6000) < expit(z + np.where(old, 1, -1))
    result = by_group(np.where(old, "old", "young"), expit(z), labels)
    top = np.where(z > 0, expit(z), expit(-z))
    for name, rows, sign in (("old", old, -1), ("young", ~old, 1)):
        assert result[name].over_confidence == pytest.approx(np.mean(expit(z) - labels, where=rows))
        assert sign * result[name].low > 0.1
        assert abs(np.mean(top - (labels == (z > 0)), where=rows)) < 0.06
    assert max(map(len, str(result).partition("\n\n")[2].splitlines())) <= 80


def test_results_are_plain_and_do_not_depend_on_the_order_of_rows():
    actual = by_group(WORDS)
    result = json.loads(json.dumps(actual.to_dict()))
    assert (result["n_groups"], result["n_off"]) == (5, actual.off.sum())
    assert [one["name"] for one in result["groups"]] == list(actual.names)
    shuffled = np.random.default_rng(0).permutation(N)
    again = by_group(WORDS[shuffled], PROBS[shuffled], LABELS[shuffled])
    assert again.names == actual.names
    np.testing.assert_allclose(again.p_value, actual.p_value)
    assert actual.to_pandas().loc["law", "ece"] == actual["law"].ece
    with pytest.raises(KeyError, match="no group 'latin'"):
        actual["latin"]
    assert actual.verdict in repr(mc.evaluate(PROBS, LABELS, metrics="nll", groups=WORDS))


def test_the_table_fits_eighty_columns():
    names = ["a very long name of a group, longer than any column", "b\nc\x1b[31m", "", "日本", "e"]
    for groups in (np.array(names)[GROUP], np.arange(N), "predicted"):
        text = by_group(groups, class_names=["x" * 90, "y", "z\tz", "ω"]).table(limit=None)
        assert max(map(len, text.splitlines())) <= 79
        assert "\x1b" not in text
    lines = by_group(np.arange(N)).table().splitlines()
    assert (len(lines), lines[-1]) == (22, "... and 380 more")


def test_where_the_order_is_the_obstacle():
    """When it says cat it is a dog two times in three, on enough rows; of 'fox' there are too few to tell."""
    predicted = np.repeat([0, 1, 2], [300, 300, 3])
    labels = np.concatenate([np.tile([0, 1, 1], 100), np.tile([1, 1, 0], 100), [2, 0, 0]])
    probs = np.full((603, 3), 0.1)
    probs[np.arange(603), predicted] = 0.8
    result = by_group("predicted", probs, labels, class_names=["cat", "dog", "fox"])
    (cat,) = result.obstacles
    assert (cat.predicted, cat.truth, cat.rows) == ("cat", "dog", 300)
    assert (cat.accuracy, cat.truth_share) == pytest.approx((1 / 3, 2 / 3))
    assert result.to_dict()["obstacles"][0]["sentence"] == str(cat)
    assert str(cat) in str(result)
    assert by_group(predicted, probs, labels).obstacles == ()
    # Chance alone is no obstacle: 1000 classes of a few rows each, all guesses.
    generator = np.random.default_rng(0)
    guesses = softmax(generator.standard_normal((3000, 1000)), axis=1)
    assert by_group("predicted", guesses, generator.integers(1000, size=3000)).obstacles == ()


@pytest.mark.parametrize(("m", "remedy"), [(2, "BinaryMCCT"), (10, "StructuredMCCT")])
def test_a_biased_class_is_an_obstacle_among_the_least_confident_rows(m, remedy):
    data = mc.data.synthetic(4000, m, overconfidence=1.0)
    biased = softmax(data.values + 3.0 * np.eye(m)[0], axis=1)
    (result,) = by_group("predicted", biased, data.labels).obstacles
    assert (result.predicted, result.remedy) == ("0", remedy)
    assert result.truth_share > result.accuracy
    assert m > 2 or result.at_most < 1
    assert by_group("predicted", softmax(data.values, axis=1), data.labels).obstacles == ()


@pytest.mark.parametrize("bias", [[0, 0, 0, -4.0], [0, -9.0, 0], [-5.0, -5.0, 0, 0, 0, 0]])
def test_a_class_that_is_never_predicted_is_an_obstacle(bias):
    generator = np.random.default_rng(0)
    z = 2.0 * generator.standard_normal((2000, len(bias)))
    labels = (z + generator.gumbel(size=z.shape)).argmax(axis=1)
    biased = softmax(z + bias, axis=1)
    (rare,) = [one for one in by_group("predicted", biased, labels).obstacles if one.rarely]
    assert bias[int(rare.truth)] == min(bias)
    assert rare.truth_share > rare.accuracy
    assert f"'{rare.truth}' is predicted too rarely" in str(rare)
    assert by_group("predicted", softmax(1.5 * z, axis=1), labels).obstacles == ()
    ids = np.argsort(-biased, axis=1)  # of the largest alone, other tests are left
    top = mc.TopK(np.log(np.take_along_axis(biased, ids, axis=1)), ids, n_classes=len(bias))
    assert not any(one.rarely for one in by_group("predicted", top, labels).obstacles)


def test_the_floor_of_the_top_label_ece():
    """Of a calibrated predictor the value is about the floor, and of another far above."""
    generator = np.random.default_rng(0)
    confidence = 0.5 + 0.5 * generator.random(3000)
    honest = two_class(confidence, generator.random(3000) < confidence)
    floor = mc.ece_floor(*honest, 300, metric="top_label_ece")
    assert floor.observed == pytest.approx(M.top_label_ece(*honest))
    assert floor.low <= floor.observed <= floor.high
    assert mc.ece_floor(*honest, 300, n_bins=5).median < 1.2 * floor.median
    lying = two_class(confidence, generator.random(3000) < confidence - 0.1)
    assert mc.ece_floor(*lying, 300, metric="top_label_ece").p_value < 0.01
    with pytest.raises(mc.InputError, match="metric"):
        mc.ece_floor(*honest, metric="mce")


def test_errors_that_cancel_are_detected():
    confidence = np.tile([0.55, 0.95], 300)
    probs, labels = two_class(confidence, np.tile([True, True, True, False, True, True, True, False], 75))
    result = by_group(np.zeros(600), probs, labels)
    assert result.off.all()
    assert "right on average but not at each probability (ECE " in result.verdict
