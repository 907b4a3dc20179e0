"""Published figures on real logits, and the cost of computing them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import monocal as mc
from monocal import metrics as M

# Raw and temperature-scaled ECE % of each real set, as its documentation states them.
ECE = {
    "nncal_cifar10_densenet40": (5.50, 0.95),
    "toplabel_cifar10_resnet50_brier": (1.82, 1.12),
    "toplabel_cifar10_wide_resnet_flsd53": (1.56, 0.76),
    "toplabel_cifar100_wide_resnet_brier": (4.31, 4.24),
    "toplabel_cifar100_densenet121_brier": (5.17, 4.04),
    "netcal_cifar10_lenet-5": (11.66, 2.31),
    "netcal_cifar100_densenet-bc-100": (13.75, 1.14),
    "sctl_cifar10LT_densenet40": (21.08, 6.10),
    "imagenet5k_efficientnet_lite0": (8.12, 2.20),
}


def temperature_scaled(data):
    """Test probabilities at the inverse temperature of least NLL on the validation part."""
    logits, rows = data.logits_val.astype(np.float64), np.arange(len(data.y_val))

    def loss(beta):
        return -log_softmax(beta * logits, axis=1)[rows, data.y_val].mean()

    beta = minimize_scalar(loss, bounds=(1e-3, 20), method="bounded", options={"xatol": 1e-9}).x
    return softmax(beta * data.logits_test.astype(np.float64), axis=1)


@pytest.mark.parametrize("name", ECE)
def test_ece_of_the_real_sets(shared_logits, name):
    """Of DenseNet on CIFAR-10 also Tables 1 to 3 of the paper: ECE %, EQ-BIN times ten, KDE %."""
    data = shared_logits(name)
    raw, scaled = softmax(data.logits_test, axis=1), temperature_scaled(data)
    expected = pytest.approx(ECE[name][0], abs=0.006), pytest.approx(ECE[name][1], abs=0.03)
    assert (100 * mc.metrics.ece(raw, data.y_test), 100 * mc.metrics.ece(scaled, data.y_test)) == expected
    if name == "nncal_cifar10_densenet40":
        for probs, *figures in ((raw, 5.50, 5.49, 5.01), (scaled, 0.95, 0.92, 1.14)):
            ece, eq_bin, kde = (f(probs, data.y_test) for f in (M.ece, M.eq_bin_ece, M.kde_ece))
            assert (100 * ece, 10 * eq_bin, 100 * kde) == pytest.approx(figures, abs=0.01)


def test_evaluating_a_thousand_classes_costs_few_log_softmax_passes():
    generator = np.random.default_rng(0)
    logits = 3 * generator.standard_normal((10_000, 1000), dtype=np.float32)
    probs, labels = softmax(logits, axis=1), generator.integers(1000, size=10_000)

    def seconds(call):
        start = time.process_time()  # of this process alone, whatever else the machine does
        call()
        return time.process_time() - start

    unit = min(seconds(lambda: log_softmax(logits, axis=1)) for _ in range(3))
    cost = min(seconds(lambda: mc.evaluate(probs, labels)) for _ in range(3))
    assert cost < 10 * unit
