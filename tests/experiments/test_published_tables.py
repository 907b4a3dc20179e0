"""The DenseNet-40 rows of the published tables: ECE %, KDE-ECE % and equal-size-bin ECE times 10.

Vector scaling and networks are printed as 0.98, 3.96 (PTS) and 1.05 (DIAG) in ECE. The exact optimum of vector scaling is at 1.10
(an optimiser that stops early ends below); PTS after 200 epochs at learning rate 5e-5 is little more than its random start.
"""

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal import metrics
from monocal.errors import OrderWarning

ROWS = {
    "Uncalibrated": (5.50, 5.01, 5.49),
    "TS": (0.95, 1.14, 0.92),
    "MCCT published": (1.06, 1.30, 1.09),
    "MCCT-I published": (1.06, 1.30, 1.09),
}


def figures(p, y):
    return np.array([100 * metrics.ece(p, y), 100 * metrics.kde_ece(p, y), 10 * metrics.eq_bin_ece(p, y)])


def calibrated(data, name):
    if name == "Uncalibrated":
        return softmax(data.logits_test, axis=1)
    made = next(info for info in mc.all_calibrators() if info.name == name).make()
    return made.fit(data.logits_val, data.y_val).predict_proba(data.logits_test)


@pytest.mark.filterwarnings(f"ignore::{OrderWarning.__module__}.{OrderWarning.__name__}")
@pytest.mark.parametrize("name", ROWS)
def test_row(shared_logits, name):
    data = shared_logits("nncal_cifar10_densenet40")
    result = figures(calibrated(data, name), data.y_test)
    assert (np.abs(result - ROWS[name]) < [0.03, 0.05, 0.03]).all(), result


def test_diag(shared_logits):
    pytest.importorskip("torch")
    data = shared_logits("nncal_cifar10_densenet40")
    cal = mc.IntraOrderPreserving(patience=4).fit(data.logits_val, data.y_val)
    assert 100 * metrics.ece(cal.predict_proba(data.logits_test), data.y_test) == pytest.approx(
        1.05, abs=0.15
    )
