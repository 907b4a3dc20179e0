"""skops stores every calibrator, and loads it with the published list of trusted types alone."""

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

import monocal as mc
from monocal.data import synthetic

DATA = synthetic(90, 3, seed=0)
METHODS = {one.name: one for one in mc.all_calibrators() if not one.extras}


def made(name):
    if name == "Label shift":
        return mc.LabelShift(mc.MCCT(), prior=[0.2, 0.3, 0.5])
    return METHODS[name].make()


@pytest.mark.filterwarnings("ignore::monocal.OrderWarning")
@pytest.mark.parametrize("name", METHODS)
def test_every_calibrator_comes_back(name):
    cal = made(name).fit(DATA.values, DATA.labels)
    expected = cal.predict_proba(DATA.values)
    cal.predict_proba(DATA.values.astype(np.float32))  # what is worked out on the way is not part of it
    again = skops.io.loads(skops.io.dumps(cal), trusted=mc.SKOPS_TRUSTED)
    np.testing.assert_array_equal(again.predict_proba(DATA.values), expected)
    if hasattr(cal, "solution_"):
        assert again.solution_.status == cal.solution_.status
        np.testing.assert_array_equal(again.solution_.coefficients, cal.solution_.coefficients)


def test_classifiers_and_context():
    ward = np.array(["east", "west"])[np.arange(90) % 2]
    for ensemble in (False, True):
        model = mc.CalibratedClassifier(LogisticRegression(), "conditional", cv=2, ensemble=ensemble)
        model.fit(DATA.values, np.array(["ant", "bee", "cat"])[DATA.labels], context=ward)
        again = skops.io.loads(skops.io.dumps(model), trusted=mc.SKOPS_TRUSTED)
        np.testing.assert_array_equal(
            again.predict_proba(DATA.values, ward), model.predict_proba(DATA.values, ward)
        )
        np.testing.assert_array_equal(again.predict(DATA.values, ward), model.predict(DATA.values, ward))


def test_the_list_names_types_that_exist_and_every_method():
    import importlib

    for name in mc.SKOPS_TRUSTED:
        module, _, kind = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), kind), type)
    for one in mc.all_calibrators():
        assert f"{one.cls.__module__}.{one.cls.__qualname__}" in mc.SKOPS_TRUSTED
