"""Label shift between two sets of labels, paired differences, and what keeping the order costs."""

import json

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import monocal as mc
from monocal.metrics import Price, PriceOfOrder
from monocal.metrics.differences import paired_difference
from real_logits import load_shared_logits


def test_large_counts_are_pearsons_test():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 2000), rng.choice(5, 3000, p=[0.3, 0.2, 0.2, 0.15, 0.15])
    result = mc.label_shift_test(a, b)
    expected = chi2_contingency([np.bincount(a), np.bincount(b)])
    assert result.statistic == pytest.approx(expected.statistic)
    assert result.p_value == pytest.approx(expected.pvalue)
    assert result.shifted
    assert result.calibration == pytest.approx(np.bincount(a) / 2000)
    assert "LabelShift(calibrator, prior=...)" in json.loads(json.dumps(result.to_dict()))["sentence"]


def test_small_counts_are_permuted_and_hold_their_level():
    rng = np.random.default_rng(1)
    p_values = [
        mc.label_shift_test(rng.integers(0, 30, 40), rng.integers(0, 30, 25)).p_value for _ in range(60)
    ]
    # Without a shift p-values are uniform: their mean is 1/2 within three standard errors.
    assert abs(np.mean(p_values) - 0.5) < 3 * np.sqrt(1 / 12 / 60)
    strong = mc.label_shift_test([0] * 8, [1] * 8)
    exact = 2 / 12870  # 2 of the 12870 ways to deal the labels
    assert strong.p_value == pytest.approx(exact, abs=5e-4)
    assert strong.distance == 1
    assert mc.label_shift_test([0, 1, 2], [2, 1, 0]).p_value == 1


def test_one_class_and_bad_labels():
    assert not mc.label_shift_test([0, 0], [0]).shifted
    assert len(mc.label_shift_test([0, 1], [1], n_classes=4).test) == 4
    for arguments, words in (
        (([], [0]), "calibration: expected labels"),
        (([0], [[0]]), "test: expected labels"),
        (([0.5], [0]), "calibration: labels must be whole"),
        (([0], [-1]), "test: labels must be 0..m-1, got -1"),
    ):
        with pytest.raises(mc.InputError, match=words):
            mc.label_shift_test(*arguments)
    with pytest.raises(mc.InputError, match="there is a label 3"):
        mc.label_shift_test([3], [0], n_classes=2)


def test_the_sets_with_and_without_a_shift():
    for name, expected in (("sctl_cifar10LT_densenet40", True), ("nncal_cifar10_densenet40", False)):
        data = load_shared_logits(name)
        assert mc.label_shift_test(data.y_val, data.y_test).shifted is expected


def test_the_price_is_counted_right():
    keeping = np.array([[0.6, 0.4, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
    free = np.array([[0.3, 0.7, 0.0], [0.4, 0.6, 0.0], [0.2, 0.3, 0.5], [0.8, 0.1, 0.1]])
    price = mc.price_of_order(keeping, free, [1, 0, 2, 1])
    assert (price.n_rows, price.moved, price.right_before, price.right_after) == (4, 3, 2, 1)
    assert price.moves == (mc.metrics.Move(0, 1, 2, 1, 1), mc.metrics.Move(1, 0, 1, 1, 0))
    assert price.accuracy.value == -0.25
    each = np.log([0.7, 0.4, 0.5, 0.1]) - np.log([0.4, 0.6, 0.5, 0.8])
    assert price.nll.value == pytest.approx(each.mean())
    assert price.nll.high - price.nll.value == pytest.approx(1.959964 * each.std(ddof=1) / 2)
    assert not price.costs
    json.dumps(price.to_dict())


def test_a_label_of_probability_zero_on_one_side_costs_without_bound():
    price = mc.price_of_order([[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]], [1, 0])
    assert price.nll.value == np.inf
    assert price.nll.measured
    assert str(price).startswith("Keeping the order costs ∞ NLL")
    assert json.loads(json.dumps(price.to_dict(), allow_nan=False))["nll"]["value"] is None
    both = mc.price_of_order([[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.0, 1.0]], [1, 0])
    assert (both.costs, both.gains) == (False, False)
    assert mc.price_of_order([[1.0, 0.0]], [[1.0, 0.0]], [1]).nll.value == 0


INTERVALS = {
    "gains": (-0.085, -0.099, -0.071),
    "": (-0.002, -0.01, 0.006),
    "costs": (0.085, 0.071, 0.099),
}


@pytest.mark.parametrize("nll", INTERVALS)
@pytest.mark.parametrize("accuracy", INTERVALS)
def test_the_price_of_order_is_called_what_it_is(nll, accuracy):
    price = PriceOfOrder(Price(*INTERVALS[nll]), Price(*INTERVALS[accuracy]), 1000, 120, 50, 60, (), 0.95)
    text = str(price)
    assert ("nothing that could be measured" in text) == (not nll and not accuracy)
    if nll:
        assert f"{nll} 0.085 NLL (95 % interval 0.071 to 0.099)" in text
    if accuracy:
        assert f"{accuracy} 8.5 points of accuracy (7.1 to 9.9)" in text
    if nll or accuracy:
        assert text.endswith("120 of 1,000 top classes move, 50 of them right before and 60 after.")


@pytest.mark.parametrize("infinite", ["before", "after", "both", "the same row", "none"])
def test_an_infinite_loss_on_one_side_decides(infinite):
    before, after = np.full(50, 0.7), np.full(50, 0.6)
    after[::2] = 0.75
    if infinite in ("before", "both", "the same row"):
        before[3] = np.inf
    if infinite in ("after", "both"):
        after[4] = np.inf
    if infinite == "the same row":
        after[3] = np.inf
    change = paired_difference(after, before, 0.95)
    assert change.decided == (infinite != "both" and change.mean != 0)
    expected = {"before": -np.inf, "after": np.inf}.get(infinite)
    assert expected is None or change.mean == change.low == change.high == expected


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([[0.5, 0.5]], [[0.2, 0.3, 0.5]], [0]), {}, "free: expected the 2 classes of keeping, got 3"),
        (([[0.5, 0.4]], [[0.5, 0.5]], [0]), {}, "keeping"),
        (([[0.5, 0.5]], [[0.5, 0.5]], [2]), {}, "label"),
        (
            ([[9.0, 9.0], [0.5, 0.4]], [[0.5, 0.5]] * 2, [-100, 0]),
            {"ignore_index": -100},
            r"keeping.*row 1",
        ),
    ],
)
def test_bad_input_of_the_price(arguments, options, words):
    with pytest.raises(mc.InputError, match=words):
        mc.price_of_order(*arguments, **options)
