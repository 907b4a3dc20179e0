"""Weights and biases by rank, checked through what the calibrator does to logits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal.calibrators import ConditionalMCCT
from monocal.errors import InputError
from monocal.plots import effect_curve, rank_parameters


@pytest.fixture(scope="module")
def data():
    return mc.data.synthetic(1500, 12, seed=3, distort=lambda t: 2 * t - np.sign(t) * np.sqrt(abs(t)))


def test_numbers_shown_are_the_map(data):
    cal = mc.MCCT(shrinkage=0.1).fit(data.values, data.labels)
    shown, row = rank_parameters(cal), data.values[:1].astype(float)
    order = np.argsort(-row[0])
    by_hand = shown.weight * (row[0] - row[0].min())[order] + shown.bias
    made = cal.transform(row)[0][order]
    np.testing.assert_allclose(by_hand - by_hand.max(), made - made.max(), atol=1e-6)
    np.testing.assert_allclose(shown.weight[::-1], cal.weights_)
    tail, above = slice(shown.constant_from - 1, None), shown.constant_from - 2
    assert np.ptp(shown.weight[tail]) == np.ptp(shown.bias[tail]) == 0
    assert shown.weight[above] > shown.weight[-1] or shown.bias[above] > shown.bias[-1]


def test_temperature_scaling_is_constant_from_the_top(data):
    cal = mc.TemperatureScaling().fit(data.values, data.labels)
    shown = rank_parameters(cal)
    assert shown.constant_from == 1
    np.testing.assert_allclose(shown.weight, 1 / cal.temperature_)
    assert not shown.bias.any()


def test_effects_of_one_statistic_are_the_map_of_the_row(data):
    cal = ConditionalMCCT(statistics=("margin",), n_knots=3, by_class=False, shrinkage=0.1)
    cal.fit(data.values, data.labels)
    effect = effect_curve(cal, data.values, n_bins=400)
    z = np.sort(data.values.astype(float), axis=1)
    row = int(np.argmin(abs(z[:, -1] - z[:, -2] - effect.x[200])))
    made = cal.transform(z[row : row + 1])[0]
    u = z[row] - z[row, 0]
    for i, rank in enumerate(effect.ranks):
        expected = effect.weight[i, 200] * u[-rank] + effect.bias[i, 200]
        assert made[-rank] - made[0] == pytest.approx(expected, rel=0.02, abs=0.02)
    assert (effect.weight_range[0] <= effect.weight + 1e-9).all()
    assert (effect.weight_range[1] >= effect.weight - 1e-9).all()
    assert (np.diff(effect.x) > 0).all()


def test_conditional_parameters_need_rows_and_show_their_spread(data):
    cal = ConditionalMCCT(shrinkage=0.1).fit(data.values, data.labels)
    with pytest.raises(InputError, match="X"):
        rank_parameters(cal)
    shown = rank_parameters(cal, data.values)
    assert shown.varies
    assert (shown.weight_range[0] <= shown.weight_range[1]).all()


def test_probabilities_as_input_and_masked_classes(data):
    logits, labels = data.values[:300].astype(float), data.labels[:300]
    logits[::3, 2] = np.where(labels[::3] == 2, logits[::3, 2], -np.inf)
    effect = effect_curve(ConditionalMCCT().fit(logits, labels), logits, "mean_gap", ranks=(1, 12, 99))
    assert effect.ranks == (1, 12)
    assert np.isfinite(effect.weight).all()
    assert np.isfinite(effect.x).all()
    probs = softmax(logits, axis=1)
    by_probs = ConditionalMCCT(input="probabilities").fit(probs, labels)
    assert rank_parameters(by_probs, probs).n_classes == 12


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda cal, x: rank_parameters(mc.MCCT()), "not fitted"),
        (lambda cal, x: rank_parameters(object()), "object"),
        (lambda cal, x: effect_curve(cal, x, "size"), "statistic"),
        (lambda cal, x: effect_curve(cal, x, ranks=(0,)), "ranks"),
    ],
)
def test_bad_input_is_refused_in_words(data, call, says):
    with pytest.raises(InputError, match=says):
        call(mc.MCCT().fit(data.values, data.labels), data.values)
